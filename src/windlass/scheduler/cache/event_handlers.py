"""Informers → model: which kinds are followed, and who is told of their changes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from windlass.api import resources, views
from windlass.api.errors import StatusError
from windlass.client.client import Client
from windlass.client.errors import Unreachable
from windlass.client.informers import Informer, SharedInformers
from windlass.kits.clock import Clock
from windlass.model.cluster.cluster_model import ClusterModel
from windlass.observe import logs

PROBE_SECONDS = 60.0
"""So often a kind that a cluster may have or not is looked for."""
ANSWER_SECONDS, ASK_SECONDS = 30.0, 0.5
"""So long is waited at the start, once all other kinds are known, until the server says of each of them whether it has
it, and so often it is asked. (One whose conversion webhook is broken never answers.)"""
log = logs.get("scheduler")
_Handling = tuple[Callable[[Any], Any], Callable[[Any], None], Callable[[Any], None]]
_Kinds = Mapping[resources.Resource, _Handling]
PodChanged = Callable[[views.Pod | None, views.Pod | None], None]


class EventHandlers:
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
        self._shared = informers
        self._client: Client
        self._clock: Clock
        self._opened: set[resources.Resource] = set()
        self._optional = _optional(model)
        for resource, handling in _required(model, self._queue_gone).items():
            self._follow(resource, handling)
        self._pods = informers.informer(resources.PODS, decode=views.decode_pod, early=True)
        self._pods.add_handler(
            lambda new: self._pod(None, new),
            lambda old, new: self._pod(old, new),
            lambda old: self._pod(old, None),
        )

    def probe_with(self, client: Client, clock: Clock) -> None:
        """With what the kinds are looked for that a cluster may have or not."""
        self._client, self._clock = client, clock

    async def known(self) -> None:
        """Return when all kinds but pods are known completely, and which of the optional ones the server has: whose
        claims, budgets or quotas are taken for absent is placed and evicted as if there were none. (A server that has
        just started may forbid everything for a moment: it is asked again once it shows the other kinds.)"""
        await self._open_served()
        await self._wait_known()
        unanswered = await self._open_served()
        until = self._clock.monotonic() + ANSWER_SECONDS
        while unanswered and self._clock.monotonic() < until:
            await self._clock.sleep(ASK_SECONDS)
            unanswered = await self._open_served()
        if unanswered:
            kinds = ",".join(resource.qualified for resource in unanswered)
            log.warning("the server does not say whether it has these kinds: left out for now", kinds=kinds)
        await self._wait_known()

    async def _open_served(self) -> list[resources.Resource]:
        """Follow those of the optional kinds that the server has and that are not followed yet. Those of which it
        does not say."""
        asked = [known for known in self._optional if known not in self._opened]
        served = await asyncio.gather(*map(self._is_served, asked))
        for resource, there in zip(asked, served, strict=True):
            if there and resource not in self._opened:  # somebody else may have asked meanwhile
                self._opened.add(resource)
                self._follow(resource, self._optional[resource])
        if {resources.STORAGE_CLASSES, resources.PERSISTENT_VOLUME_CLAIMS} <= self._opened:
            self._model.storage_is_served()
        self._model.serves_requests = resources.PROVISIONING_REQUESTS in self._opened
        return [resource for resource, there in zip(asked, served, strict=True) if there is None]

    async def _is_served(self, resource: resources.Resource) -> bool | None:
        """``None``: the server cannot say now."""
        try:
            await self._client.list(resource, limit=1)
        except StatusError as error:
            if error.code in (403, 404):
                return False
            log.debug("kind not probed", kind=resource.qualified, why=error.message)
            return None
        except Unreachable:
            return None
        return True

    async def follow_served(self) -> None:
        """Look for kinds that come later, until cancelled."""
        while len(self._opened) < len(self._optional):
            await self._clock.sleep(PROBE_SECONDS)
            await self._open_served()

    async def _wait_known(self) -> None:
        """Return when all kinds but pods that are followed are known completely."""
        for informer in self._informers:
            await informer.wait_synced()

    async def wait_pods(self) -> None:
        """Return when all pods are known. They are shown as they come."""
        await self._pods.wait_synced()

    def unsynced(self) -> list[str]:
        """The kinds that are not known yet."""
        return [i.resource.qualified for i in (*self._informers, self._pods) if not i.synced]

    def _follow(self, resource: resources.Resource, handling: _Handling) -> None:
        decode, upsert, remove = handling

        def changed(new: Any) -> None:
            upsert(new)
            self._wake()

        def gone(old: Any) -> None:
            remove(old)
            self._wake()

        informer = self._shared.informer(resource, decode=decode)
        informer.add_handler(changed, lambda _, new: changed(new), gone)
        self._informers.append(informer)

    def _queue_gone(self, old: views.QueueObject) -> None:
        self._model.remove_queue(old.name)
        self._on_queue_gone(old.name)

    def _pod(self, old: views.Pod | None, new: views.Pod | None) -> None:
        if new is not None:
            self._model.upsert_pod(new)
        elif old is not None:
            self._model.remove_pod(old.key)
        self._on_pod(old, new)
        self._wake()


def _required(model: ClusterModel, queue_gone: Callable[[views.QueueObject], None]) -> _Kinds:
    """Kinds without which nothing is decided: how to read them, and what to do with them."""
    return {
        resources.NODES: (views.decode_node, model.upsert_node, lambda n: model.remove_node(n.name)),
        resources.QUEUES: (views.decode_queue, model.upsert_queue, queue_gone),
        resources.PRIORITY_CLASSES: (
            views.decode_priority_class,
            model.upsert_class,
            lambda c: model.remove_class(c.name),
        ),
        resources.NAMESPACES: (
            views.decode_namespace,
            model.upsert_namespace,
            lambda n: model.remove_namespace(n.name),
        ),
        resources.POD_GROUPS: (
            views.decode_pod_group,
            model.upsert_group,
            lambda g: model.remove_group(g.key),
        ),
    }


def _of_other_apis(model: ClusterModel) -> _Kinds:
    """Queues and groups beside Volcano's."""
    return {
        resources.KAI_QUEUES: (
            views.decode_kai_queue,
            model.upsert_kai_queue,
            lambda q: model.remove_kai_queue(q.name),
        ),
        resources.KAI_POD_GROUPS: (
            views.decode_kai_pod_group,
            model.upsert_kai_group,
            lambda g: model.remove_kai_group(g.key),
        ),
        resources.NATIVE_POD_GROUPS: (
            views.decode_native_group,
            model.upsert_native_group,
            lambda g: model.remove_native_group(g.key),
        ),
        resources.COSCHEDULING_POD_GROUPS: (
            views.decode_coscheduling_group,
            model.upsert_coscheduling_group,
            lambda g: model.remove_coscheduling_group(g.key),
        ),
    }


def _optional(model: ClusterModel) -> _Kinds:
    """Kinds that a cluster may have or not, or may not show to everybody."""
    return {
        **{
            resource: (decode, model.upsert_claim, model.remove_claim)
            for resource, decode in (
                (resources.DEVICE_CLASSES, views.decode_device_class),
                (resources.RESOURCE_SLICES, views.decode_resource_slice),
                (resources.RESOURCE_CLAIM_TEMPLATES, views.decode_claim_template),
                (resources.RESOURCE_CLAIMS, views.decode_device_claim),
            )
        },
        **_of_other_apis(model),
        resources.HYPERNODES: (views.decode_hypernode, model.upsert_topology, model.remove_topology),
        resources.KAI_TOPOLOGIES: (views.decode_topology, model.upsert_topology, model.remove_topology),
        resources.NUMATOPOLOGIES: (views.decode_numatopology, model.upsert_zones, model.remove_zones),
        resources.NODE_RESOURCE_TOPOLOGIES: (
            views.decode_node_resource_topology,
            model.upsert_zones,
            model.remove_zones,
        ),
        resources.POD_DISRUPTION_BUDGETS: (
            views.decode_disruption_budget,
            model.upsert_budget,
            model.remove_budget,
        ),
        resources.PROVISIONING_REQUESTS: (
            views.decode_provisioning_request,
            model.upsert_request,
            model.remove_request,
        ),
        resources.RESOURCE_QUOTAS: (views.decode_resource_quota, model.upsert_quota, model.remove_quota),
        **{
            resource: (decode, model.upsert_storage, model.remove_storage)
            for resource, decode in (
                (resources.PERSISTENT_VOLUMES, views.decode_volume),
                (resources.STORAGE_CLASSES, views.decode_storage_class),
                (resources.CSI_NODES, views.decode_csi_node),
                (resources.CSI_DRIVERS, views.decode_csi_driver),
                (resources.STORAGE_CAPACITIES, views.decode_storage_capacity),
                (resources.PERSISTENT_VOLUME_CLAIMS, views.decode_persistent_volume_claim),
            )
        },
    }
