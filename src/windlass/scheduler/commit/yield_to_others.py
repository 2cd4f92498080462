"""Others first: while another scheduler may be about to take a node's room, nothing is bound there.

The API server takes any binding, so two schedulers that see the same room at the same time fill it twice. What can
be known of another scheduler's intentions are its pods that wait. One that has just been seen, or for which room
has just been freed, is about to be placed: where it would fit, and would not beside what is decided here, the bind
is held back. It goes on as soon as the pod is placed, or has had its turn; but not before the server has been asked
once more what is on the node, since its news may be late. Time comes in as monotonic seconds.
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
from windlass.scheduler.commit.conflict_detector import LIVELY_SECONDS
from windlass.scheduler.commit.node_fits import takes

ALIVE_SECONDS = 600.0
"""A scheduler that has bound nothing for so long takes no freed room, either."""
_FRESH_SECONDS = 0.02


@dataclass(slots=True)
class _Alike:
    """Pods that ask the same: what of a node's amounts, how many, and when the last of them was seen first."""

    amounts: Mapping[str, int]
    pods: int = 0
    seen: float = 0.0


class YieldToOthers:
    """``turn_seconds``: how long a pod of another scheduler counts as about to be placed; ``most_seconds``: so long is
    a bind held back at most."""

    def __init__(
        self, client: Client, model: ClusterModel, ledger: NodeUsage, turn_seconds: float, most_seconds: float
    ) -> None:
        self.off: Callable[[], bool] = lambda: False
        """Whether there is no need for it: others cannot take what is decided for here."""
        self._client = client
        self._model = model
        self._ledger = ledger
        self._turn = turn_seconds
        self._most = most_seconds
        self._waiting: dict[str, views.Pod] = {}
        """Pods of other schedulers that wait."""
        self._shapes: dict[str, dict[PodShape, _Alike]] = {}
        """Scheduler → what its waiting pods ask."""
        self._alive: dict[str, float] = {}
        self._freed: dict[str, float] = {}
        self._newest = float("-inf")
        self._ours: tuple[float, dict[str, dict[str, int]]] = (float("-inf"), {})

    @property
    def idle(self) -> bool:
        """Whether nobody else's pods wait."""
        return not self._waiting or self.off()

    def lively(self, now: float) -> bool:
        """Whether somebody else has just been given work."""
        return bool(self._waiting) and now - self._newest < LIVELY_SECONDS

    def change(self, old: views.Pod | None, new: views.Pod | None, now: float) -> None:
        """A pod has changed, as the API server shows it."""
        if old is not None and old.node_name and not old.finished and (new is None or new.finished):
            self._freed[old.node_name] = now
        pod = new or old
        if pod is None or (pod.node_name and pod.key not in self._waiting):
            return
        known = self._waiting.pop(pod.key, None)
        if new is not None and _waits(new) and not self._model.manages(new):
            self._waiting[new.key] = new
            if known is None or known.uid != new.uid or known.shape is not new.shape:
                shapes = self._shapes.setdefault(new.scheduler_name, {})
                alike = shapes.setdefault(new.shape, _Alike(resources_held(new)))
                alike.pods += 1
                alike.seen = self._newest = now
                self._leave(known)
        elif known is not None:
            if new is not None and new.node_name:
                self._alive[new.scheduler_name] = now
            self._leave(known)
            if not self._waiting:
                self._freed.clear()

    def _leave(self, known: views.Pod | None) -> None:
        """A pod waits no more."""
        if known is None:
            return
        shapes = self._shapes[known.scheduler_name]
        shapes[known.shape].pods -= 1
        if not shapes[known.shape].pods:
            del shapes[known.shape]
        if not shapes:
            del self._shapes[known.scheduler_name]

    def holds_back(self, binds: Iterable[Bind], since: float, now: float) -> bool:
        """Whether a node of ``binds``, decided at ``since``, may be about to be taken by somebody else."""
        if self.idle or now - since >= self._most:
            return False
        return any(self._contested(node, now) for node in dict.fromkeys(bind.node for bind in binds))

    async def taken(self, binds: Iterable[Bind]) -> str:
        """What the server says against ``binds``: a node that has no room any more for what is decided for it, in
        words; ``""`` if there is none. A server that does not say what is there speaks against them, too."""
        nodes = list(dict.fromkeys(bind.node for bind in binds))
        try:
            answers = await asyncio.gather(*map(self._lacks, nodes))
        except (StatusError, Unreachable) as error:
            return f"what others have bound to {', '.join(nodes)} could not be looked up: {error.message}"
        for node, lacks in zip(nodes, answers, strict=True):
            if lacks:
                return f"another scheduler's pod took the room on {node} ({', '.join(lacks)})"
        return ""

    async def _lacks(self, name: str) -> list[str]:
        """Of which resources a node has too little. Raises :class:`StatusError` and :class:`Unreachable`."""
        node = self._model.nodes.get(name)
        if node is None:
            return []
        found = await self._client.list_page(
            resources.PODS, fields=f"spec.nodeName={name}", resource_version="0", type=msgspec.Raw
        )
        free = NodeUsage(self._model.claims).free(node)
        seen = set()
        for raw in found.items:
            pod = views.decode_pod(raw)
            seen.add(pod.key)
            if not pod.finished:
                free.take(pod)
        lacks: dict[str, None] = {}
        for task, assumed in self._model.assumed.items():
            pod = self._model.pods.get(task) if assumed.node == name and task not in seen else None
            if pod is not None:
                meant = as_bound(pod, assumed)
                lacks.update(dict.fromkeys(free.crowded(meant)))
                free.take(meant)
        return [*sorted(free.over()), *lacks]

    def _contested(self, name: str, now: float) -> bool:
        node = self._model.nodes.get(name)
        if node is None:
            return False
        free = self._ledger.free(node).left
        ours = self._assumed(now).get(name, {})
        freed = now - self._freed.get(name, float("-inf")) < self._turn
        for scheduler, shapes in self._shapes.items():
            rushes = freed and now - self._alive.get(scheduler, float("-inf")) < ALIVE_SECONDS
            for shape, alike in shapes.items():
                due = rushes or now - alike.seen < self._turn
                if due and _between(alike.amounts, free, ours) and takes(node, shape):
                    return True
        return False

    def _assumed(self, now: float) -> dict[str, dict[str, int]]:
        """What is decided here and not yet seen, by node."""
        moment, sums = self._ours
        if now - moment < _FRESH_SECONDS:
            return sums
        sums = {}
        for task, assumed in self._model.assumed.items():
            pod = self._model.pods.get(task)
            if pod is None or pod.node_name:
                continue
            amounts = sums.setdefault(assumed.node, {})
            for name, units in resources_with_pod(pod).items():
                amounts[name] = amounts.get(name, 0) + units
        self._ours = (now, sums)
        return sums


def _waits(pod: views.Pod) -> bool:
    return not (pod.node_name or pod.finished or pod.deleted or pod.shape.gates)


def _between(request: Mapping[str, int], free: Mapping[str, int], ours: Mapping[str, int]) -> bool:
    """Whether a pod fits, but not beside ours."""
    beside = True
    for name, units in {**request, PODS: 1}.items():
        left = free.get(name, 0 if name != PODS else units)
        if units > left:
            return False
        if units > left - ours.get(name, 0):
            beside = False
    return not beside
