"""Records written on a group's object before the first of its pods is evicted.

* A group suspended for others gets its attained service and its number of suspensions
  (:mod:`windlass.model.records.attained_service`). The next leader counts from there.
  The patch contains the values themselves, so it may be repeated. Nothing is stored for
  a group without an object.
* A gang of which several pods are evicted gets the list of them
  (:mod:`windlass.model.records.eviction_record`). If the leader changes while some are
  gone and too few left, the next leader evicts the rest.
* Every group gets the group that received the capacity, for its users
  (:mod:`windlass.scheduler.commit.displacements`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from windlass.api import annotations as names
from windlass.api.views import Pod
from windlass.engine.actions.timeshare import ACTION as SUSPENSION
from windlass.engine.decision import Eviction
from windlass.model.cluster.cluster_model import ClusterModel
from windlass.model.groups.podgroups import coscheduling_key, kai_key
from windlass.model.records import attained_service, eviction_record, packed_text
from windlass.observe import logs
from windlass.scheduler.commit.bind_batch import PreBindWrite
from windlass.scheduler.commit.displacements import Displacements
from windlass.scheduler.commit.evictor import EvictionOrder, order_for
from windlass.scheduler.steady_time import SteadyTime
from windlass.spi.objects import AttainedService

MAX_AGE_SECONDS = 300.0
"""Maximum age in seconds of a record that is continued.

Older gangs are left to the timeout of incomplete gangs.
"""
CLOCK_SKEW_SECONDS = 5.0
"""Maximum difference in seconds between the clocks of two leaders."""
log = logs.get("scheduler")


class EvictionRecords:
    """Records of evictions in progress.

    ``attained(group)`` returns the attained service of a group that shares time.
    """

    def __init__(
        self,
        model: ClusterModel,
        attained: Callable[[str], AttainedService | None],
        displacements: Displacements,
        time: SteadyTime,
    ) -> None:
        self._model = model
        self._attained = attained
        self._displacements = displacements
        self._time = time

    def orders(
        self, evictions: Iterable[Eviction]
    ) -> Iterator[tuple[list[EvictionOrder], PreBindWrite | None]]:
        """Return the orders group by group, each with the write that comes before."""
        by_group: dict[str, list[Eviction]] = {}
        for eviction in evictions:
            by_group.setdefault(eviction.group, []).append(eviction)
        for group, members in by_group.items():
            yield list(map(order_for, members)), self._record(group, members)

    def _record(self, group: str, evictions: list[Eviction]) -> PreBindWrite | None:
        entry = self._model.groups.object_of(group)
        if entry is None:
            return None
        resource, view = entry
        annotations = self._displacements.of_victim(group, evictions)
        if evictions[0].action == SUSPENSION and (attained := self._attained(group)) is not None:
            annotations |= attained_service.written(attained)
        if len(evictions) > 1:
            text = eviction_record.encode(_new_record(evictions, self._time.now()))
            if text is not None:
                annotations |= names.both(names.EVICTION, text)
                if 2 * len(text) > packed_text.MAX_BYTES:  # both exceed what an object may hold
                    annotations[names.FORMER_NAMES[names.EVICTION]] = None
        if not annotations:
            return None
        body = {"metadata": {"uid": view.uid, "annotations": annotations}}
        return PreBindWrite(resource, view.namespace, view.name, body, vital=False)

    # ------------------------------------------------------------------ taking over

    def unfinished(self) -> Iterator[list[EvictionOrder]]:
        """Return the remaining evictions that an earlier leader had started, group by group.

        This concerns groups that have fewer pods left than their minimum.
        """
        for group, text in self._recorded():
            record = eviction_record.decode(text)
            if record is None:
                continue
            if not -CLOCK_SKEW_SECONDS <= self._time.now() - record.at <= MAX_AGE_SECONDS:
                continue
            left, started = self._remaining(group, record)
            if left and started and self._is_below_minimum(group):
                log.info("continuing evictions of an earlier leader", group=group, left=len(left))
                evictions = [
                    Eviction(pod.key, pod.uid, group, pod.node_name, record.action, record.claimer)
                    for pod in left
                ]
                yield list(map(order_for, evictions))

    def _recorded(self) -> Iterator[tuple[str, str]]:
        """Return the groups with a record."""
        model = self._model
        views = [
            *model.objects.groups.items(),
            *((kai_key(view), view) for view in model.objects.kai_groups.values()),
            *((coscheduling_key(view), view) for view in model.objects.coscheduling_groups.values()),
        ]
        for group, view in views:
            text = names.read(view.annotations, names.EVICTION)
            if text:
                yield group, text

    def _remaining(self, group: str, record: eviction_record.EvictionRecord) -> tuple[list[Pod], bool]:
        """Return the recorded pods that hold resources, and whether others do not."""
        pods = [pod for pod in self._model.groups.pods_of(group) if record.is_of(pod.name, pod.uid)]
        left = [pod for pod in pods if _holds_resources(pod)]
        finished = sum(1 for pod in pods if pod.finished)
        return left, len(left) + finished < len(record.pods)

    def _is_below_minimum(self, group: str) -> bool:
        sent = self._model.group_sent(group)
        if sent is None:
            return False
        pods = self._model.groups.pods_of(group)
        return sum(1 for pod in pods if _holds_resources(pod) or pod.finished) < sent.min_member


def _holds_resources(pod: Pod) -> bool:
    return bool(pod.node_name) and not pod.finished and not pod.deleted


def _new_record(evictions: list[Eviction], now: float) -> eviction_record.EvictionRecord:
    first = evictions[0]
    pods = {eviction.task.partition("/")[2]: eviction.uid for eviction in evictions}
    return eviction_record.EvictionRecord(now, first.action, first.preemptor, pods)
