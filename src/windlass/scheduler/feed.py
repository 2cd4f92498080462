"""Informers → model: which kinds are followed, and who is told of their changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from windlass.api import resources, views
from windlass.client.informers import Informer, SharedInformers
from windlass.model.cluster import ClusterModel

PodChanged = Callable[[views.Pod | None, views.Pod | None], None]


class Feed:
    """``on_pod`` and ``on_queue_gone`` are told after the model; ``wake`` is called after every change."""

    def __init__(
        self,
        informers: SharedInformers,
        model: ClusterModel,
        on_pod: PodChanged,
        on_queue_gone: Callable[[str], None],
        wake: Callable[[], None],
    ) -> None:
        self._model = model
        self._on_pod = on_pod
        self._on_queue_gone = on_queue_gone
        self._wake = wake
        self._informers: list[Informer[Any]] = []
        self._follow(
            informers,
            resources.NODES,
            views.decode_node,
            model.upsert_node,
            lambda n: model.remove_node(n.name),
        )
        self._follow(
            informers,
            resources.QUEUES,
            views.decode_queue,
            model.upsert_queue,
            self._queue_gone,
        )
        self._follow(
            informers,
            resources.PRIORITY_CLASSES,
            views.decode_priority_class,
            model.upsert_class,
            lambda c: model.remove_class(c.name),
        )
        self._follow(
            informers,
            resources.NAMESPACES,
            views.decode_namespace,
            model.upsert_namespace,
            lambda n: model.remove_namespace(n.name),
        )
        self._follow(
            informers,
            resources.POD_GROUPS,
            views.decode_pod_group,
            model.upsert_group,
            lambda g: model.remove_group(g.key),
        )
        pods = informers.informer(resources.PODS, decode=views.decode_pod)
        pods.add_handler(
            lambda new: self._pod(None, new),
            lambda old, new: self._pod(old, new),
            lambda old: self._pod(old, None),
        )
        self._informers.append(pods)

    async def wait_synced(self) -> None:
        """Return when all kinds are known completely."""
        for informer in self._informers:
            await informer.wait_synced()

    def unsynced(self) -> list[str]:
        """The kinds that are not known yet."""
        return [i.resource.qualified for i in self._informers if not i.synced]

    def _follow(
        self,
        informers: SharedInformers,
        resource: resources.Resource,
        decode: Callable[[Any], Any],
        upsert: Callable[[Any], None],
        remove: Callable[[Any], None],
    ) -> None:
        def changed(new: Any) -> None:
            upsert(new)
            self._wake()

        def gone(old: Any) -> None:
            remove(old)
            self._wake()

        informer = informers.informer(resource, decode=decode)
        informer.add_handler(changed, lambda _, new: changed(new), gone)
        self._informers.append(informer)

    def _queue_gone(self, old: views.Queue) -> None:
        self._model.remove_queue(old.name)
        self._on_queue_gone(old.name)

    def _pod(self, old: views.Pod | None, new: views.Pod | None) -> None:
        if new is not None:
            self._model.upsert_pod(new)
        elif old is not None:
            self._model.remove_pod(old.key)
        self._on_pod(old, new)
        self._wake()
