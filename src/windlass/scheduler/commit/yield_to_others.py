"""Precedence of other schedulers on nodes where they may be about to place a pod.

The API server accepts any binding, so two schedulers that see the same capacity at the
same time fill it twice. Of another scheduler's intentions only its pending pods are
known. One that has just been seen, or for which capacity has just been freed, is about
to be placed. Binds are held back where it would fit, but not together with what is
decided here.

They go on as soon as the pod is placed or its time is over. Before that the API server
is asked once more for the pods of the node, since its events may be late. Times are
monotonic seconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import msgspec

from windlass.api import resources, views
from windlass.api.errors import StatusError
from windlass.api.views.podshape import PodShape
from windlass.client.client import Client
from windlass.client.errors import Unreachable
from windlass.engine.decision import Bind
from windlass.model.cluster.cluster_model import ClusterModel
from windlass.model.cluster.node_usage import NodeUsage
from windlass.model.devices.usage import PODS, as_bound, resources_held, resources_with_pod
from windlass.scheduler.commit.conflict_detector import ACTIVE_SECONDS
from windlass.scheduler.commit.node_fits import accepts

ALIVE_SECONDS = 600.0
"""Time in seconds without a bind after which a scheduler counts as inactive.

It is not expected to take freed capacity.
"""
_FRESH_SECONDS = 0.02


@dataclass(slots=True)
class _Alike:
    """Pending pods with equal requests.

    ``seen``: when the last of them was first seen.
    """

    request: Mapping[str, int]
    pods: int = 0
    seen: float = 0.0


class YieldToOthers:
    """Holds binds back while another scheduler may be about to take their capacity.

    ``yield_seconds``: how long a pending foreign pod counts as about to be placed.
    ``max_yield_seconds``: maximum time for which a bind is held back.
    ``off()``: whether other schedulers cannot take what is decided here.
    """

    def __init__(
        self,
        client: Client,
        model: ClusterModel,
        node_usage: NodeUsage,
        yield_seconds: float,
        max_yield_seconds: float,
        off: Callable[[], bool],
    ) -> None:
        self._client = client
        self._model = model
        self._node_usage = node_usage
        self._yield_seconds = yield_seconds
        self._max_yield_seconds = max_yield_seconds
        self._off = off
        self._pending: dict[str, views.Pod] = {}
        """Pending pods of other schedulers."""
        self._shapes: dict[str, dict[PodShape, _Alike]] = {}
        """Scheduler → its pending pods by shape."""
        self._alive: dict[str, float] = {}
        self._freed: dict[str, float] = {}
        self._newest = float("-inf")
        self._assumed: tuple[float, dict[str, dict[str, int]]] = (float("-inf"), {})

    @property
    def idle(self) -> bool:
        """Return whether no other scheduler has pending pods."""
        return not self._pending or self._off()

    def is_active(self, now: float) -> bool:
        """Return whether another scheduler has just got a pod to place."""
        return bool(self._pending) and now - self._newest < ACTIVE_SECONDS

    def pod_changed(self, old: views.Pod | None, new: views.Pod | None, now: float) -> None:
        """Take in a change of a pod, as the API server shows it."""
        if old is not None and old.node_name and not old.finished and (new is None or new.finished):
            self._freed[old.node_name] = now
        pod = new or old
        if pod is None or (pod.node_name and pod.key not in self._pending):
            return
        known = self._pending.pop(pod.key, None)
        if new is not None and _is_pending(new) and not self._model.manages(new):
            self._pending[new.key] = new
            if known is None or known.uid != new.uid or known.shape is not new.shape:
                shapes = self._shapes.setdefault(new.scheduler_name, {})
                alike = shapes.setdefault(new.shape, _Alike(resources_held(new)))
                alike.pods += 1
                alike.seen = self._newest = now
                self._discard(known)
        elif known is not None:
            if new is not None and new.node_name:
                self._alive[new.scheduler_name] = now
            self._discard(known)
            if not self._pending:
                self._freed.clear()

    def _discard(self, known: views.Pod | None) -> None:
        """Forget a pod that is no longer pending."""
        if known is None:
            return
        shapes = self._shapes[known.scheduler_name]
        shapes[known.shape].pods -= 1
        if not shapes[known.shape].pods:
            del shapes[known.shape]
        if not shapes:
            del self._shapes[known.scheduler_name]

    def holds_back(self, binds: Iterable[Bind], since: float, now: float) -> bool:
        """Return whether binds decided at ``since`` must wait for another scheduler."""
        if self.idle or now - since >= self._max_yield_seconds:
            return False
        return any(self._is_contested(node, now) for node in dict.fromkeys(bind.node for bind in binds))

    async def verify(self, binds: Iterable[Bind]) -> str:
        """Ask the API server whether the nodes still have capacity for what is decided for them.

        Returns the reason against the binds, ``""`` if there is none. A server that
        does not answer is a reason, too.
        """
        nodes = list(dict.fromkeys(bind.node for bind in binds))
        try:
            answers = await asyncio.gather(*map(self._lacks, nodes))
        except (StatusError, Unreachable) as error:
            return f"the pods on {', '.join(nodes)} could not be looked up: {error.message}"
        for node, lacks in zip(nodes, answers, strict=True):
            if lacks:
                return f"another scheduler's pod took the capacity of {node} ({', '.join(lacks)})"
        return ""

    async def _lacks(self, name: str) -> list[str]:
        """Return the resources of which a node has too little.

        Raises :class:`StatusError` and :class:`Unreachable`.
        """
        node = self._model.objects.nodes.get(name)
        if node is None:
            return []
        page = await self._client.list_page(
            resources.PODS, fields=f"spec.nodeName={name}", resource_version="0", type=msgspec.Raw
        )
        free = NodeUsage(self._model.features.claims.index).free(node)
        seen = set()
        for raw in page.items:
            pod = views.decode_pod(raw)
            seen.add(pod.key)
            if not pod.finished:
                free.take(pod)
        lacks: dict[str, None] = {}
        for task, assumed in self._model.binds.assumed.items():
            pod = self._model.objects.pods.get(task) if assumed.node == name and task not in seen else None
            if pod is not None:
                bound = as_bound(pod, assumed)
                lacks.update(dict.fromkeys(free.crowded(bound)))
                free.take(bound)
        return [*sorted(free.over()), *lacks]

    def _is_contested(self, name: str, now: float) -> bool:
        node = self._model.objects.nodes.get(name)
        if node is None:
            return False
        free = self._node_usage.free(node).left
        assumed = self._assumed_by_node(now).get(name, {})
        freed = now - self._freed.get(name, float("-inf")) < self._yield_seconds
        for scheduler, shapes in self._shapes.items():
            takes_freed = freed and now - self._alive.get(scheduler, float("-inf")) < ALIVE_SECONDS
            for shape, alike in shapes.items():
                due = takes_freed or now - alike.seen < self._yield_seconds
                if due and _fits_only_alone(alike.request, free, assumed) and accepts(node, shape):
                    return True
        return False

    def _assumed_by_node(self, now: float) -> dict[str, dict[str, int]]:
        """Return the resources of binds that are decided and not seen yet, by node."""
        time, sums = self._assumed
        if now - time < _FRESH_SECONDS:
            return sums
        sums = {}
        for task, assumed in self._model.binds.assumed.items():
            pod = self._model.objects.pods.get(task)
            if pod is None or pod.node_name:
                continue
            held = sums.setdefault(assumed.node, {})
            for name, units in resources_with_pod(pod).items():
                held[name] = held.get(name, 0) + units
        self._assumed = (now, sums)
        return sums


def _is_pending(pod: views.Pod) -> bool:
    return not (pod.node_name or pod.finished or pod.deleted or pod.shape.gates)


def _fits_only_alone(request: Mapping[str, int], free: Mapping[str, int], assumed: Mapping[str, int]) -> bool:
    """Return whether a pod fits, but not together with what is assumed."""
    together = True
    for name, units in {**request, PODS: 1}.items():
        left = free.get(name, 0 if name != PODS else units)
        if units > left:
            return False
        if units > left - assumed.get(name, 0):
            together = False
    return not together
