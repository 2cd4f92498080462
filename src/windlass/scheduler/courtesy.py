"""Others first: while another scheduler may be about to take a node's room, nothing is bound there.

The API server takes any binding, so two schedulers that see the same room at the same time fill it twice. What can
be known of another scheduler's intentions are its pods that wait. One that has just been seen, or for which room
has just been freed, is about to be placed: where it would fit, and would not beside what is decided here, the bind
is held back. It goes on as soon as the pod is placed, or has had its turn. Pure; time comes in as monotonic seconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from windlass.api import views
from windlass.api.views.podshape import PodShape
from windlass.engine.decision import Bind
from windlass.model import cards
from windlass.model.cluster import ClusterModel
from windlass.model.ledger import PODS, Ledger, amounts_held

ALIVE_SECONDS = 600.0
"""A scheduler that has bound nothing for so long takes no freed room, either."""
_FRESH_SECONDS = 0.02


@dataclass(slots=True)
class _Alike:
    """Pods that ask the same: how many, and when the last of them was seen first."""

    pods: int = 0
    seen: float = 0.0


class Courtesy:
    """``turn_seconds``: how long a pod of another scheduler counts as about to be placed; ``most_seconds``: so long is
    a bind held back at most."""

    def __init__(self, model: ClusterModel, ledger: Ledger, turn_seconds: float, most_seconds: float) -> None:
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
        self._ours: tuple[float, dict[str, dict[str, int]]] = (float("-inf"), {})

    @property
    def idle(self) -> bool:
        """Whether nobody else's pods wait."""
        return not self._waiting

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
                alike = self._shapes.setdefault(new.scheduler_name, {}).setdefault(new.shape, _Alike())
                alike.pods += 1
                alike.seen = now
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

    def holds_back(self, binds: Iterable[Bind], since: float, now: float) -> bool:
        """Whether a node of ``binds``, decided at ``since``, may be about to be taken by somebody else."""
        if not self._waiting or now - since >= self._most:
            return False
        return any(self._contested(node, now) for node in dict.fromkeys(bind.node for bind in binds))

    def _contested(self, name: str, now: float) -> bool:
        node = self._model.nodes.get(name)
        if node is None:
            return False
        free = self._ledger.free(name, cards.amounts_of(node))
        ours = self._assumed(now).get(name, {})
        freed = now - self._freed.get(name, float("-inf")) < self._turn
        for scheduler, shapes in self._shapes.items():
            rushes = freed and now - self._alive.get(scheduler, float("-inf")) < ALIVE_SECONDS
            for shape, alike in shapes.items():
                if (rushes or now - alike.seen < self._turn) and _between(shape.request, free, ours):
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
            for name, units in {**amounts_held(pod), PODS: 1}.items():
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
