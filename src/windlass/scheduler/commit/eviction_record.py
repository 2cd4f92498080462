"""What has to stand on a group's object before its first pod is asked to go.

Who is suspended for others has there what he attained and how often he was
(:mod:`windlass.model.records.attained_service`): a scheduler that takes over counts from it. It is one patch, of the
values as they are, so it does not matter how often it is written; of a group without an object nothing is kept. A gang
of which several pods go has there which they are (:mod:`windlass.model.records.eviction_record`): whoever takes over
while some of them are gone, and too few left, evicts the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from windlass.api import annotations as names
from windlass.api.views import Pod
from windlass.engine.actions.timeshare import ACTION as SUSPENSION
from windlass.engine.decision import Eviction
from windlass.model.cluster.cluster_model import ClusterModel
from windlass.model.cluster.object_cache import coscheduling_key, kai_key
from windlass.model.records import attained_service, eviction_record, packed_text
from windlass.observe import logs
from windlass.scheduler.commit.binder import PreBindWrite
from windlass.scheduler.commit.evictor import EvictionOrder, order_for
from windlass.spi.objects import AttainedService

COUNTS_SECONDS = 300.0
"""So long after it was decided somebody else goes on with it. Later the gang is left to those who look for starts that
are incomplete."""
SLACK_SECONDS = 5.0
"""By so much may clocks differ."""
log = logs.get("scheduler")


class EvictionRecords:
    """``past(group)``: what the group has behind it. ``now()``: Unix seconds."""

    def __init__(
        self, model: ClusterModel, past: Callable[[str], AttainedService | None], now: Callable[[], float]
    ) -> None:
        self._model = model
        self._past = past
        self._now = now

    def of(self, evictions: Iterable[Eviction]) -> Iterator[tuple[list[EvictionOrder], PreBindWrite | None]]:
        """The orders group by group, each with what goes before them."""
        found: dict[str, list[Eviction]] = {}
        for eviction in evictions:
            found.setdefault(eviction.group, []).append(eviction)
        for group, mates in found.items():
            yield list(map(order_for, mates)), self._write(group, mates)

    def _write(self, group: str, evictions: list[Eviction]) -> PreBindWrite | None:
        found = self._model.object_of(group)
        if found is None:
            return None
        resource, view = found
        notes: dict[str, str | None] = {}
        if evictions[0].action == SUSPENSION and (past := self._past(group)) is not None:
            notes |= attained_service.written(past)
        if (
            len(evictions) > 1
            and (text := eviction_record.encode(_departure(evictions, self._now()))) is not None
        ):
            notes |= names.both(names.EVICTION, text)
            if 2 * len(text) > packed_text.MOST_BYTES:  # both together exceed what an object may hold
                notes[names.FORMER_NAMES[names.EVICTION]] = None
        if not notes:
            return None
        body = {"metadata": {"uid": view.uid, "annotations": notes}}
        return PreBindWrite(resource, view.namespace, view.name, body, vital=False)

    # ------------------------------------------------------------------ taking over

    def begun(self) -> Iterator[list[EvictionOrder]]:
        """The rest of gangs of which somebody else had begun to evict all, group by group: of those that have fewer
        pods left than they need."""
        for group, text in self._written():
            found = eviction_record.decode(text)
            if found is None or not -SLACK_SECONDS <= self._now() - found.at <= COUNTS_SECONDS:
                continue
            left, gone = self._left(group, found)
            if left and gone and self._is_short(group):
                log.info("evictions gone on with", group=group, left=len(left))
                evictions = [
                    Eviction(pod.key, pod.uid, group, pod.node_name, found.action, found.claimer)
                    for pod in left
                ]
                yield list(map(order_for, evictions))

    def _written(self) -> Iterator[tuple[str, str]]:
        """Groups with a text."""
        model = self._model
        views = [
            *model.groups.items(),
            *((kai_key(one), one) for one in model.kai_groups.values()),
            *((coscheduling_key(one), one) for one in model.coscheduling_groups.values()),
        ]
        for group, view in views:
            text = names.read(view.annotations, names.EVICTION)
            if text:
                yield group, text

    def _left(self, group: str, found: eviction_record.EvictionRecord) -> tuple[list[Pod], bool]:
        """Those of the pods that hold their room still, and whether one of them is gone or going."""
        pods = [pod for pod in self._model.pods_of(group) if found.is_of(pod.name, pod.uid)]
        left = [pod for pod in pods if _holds(pod)]
        ended = sum(1 for pod in pods if pod.finished)
        return left, len(left) + ended < len(found.pods)

    def _is_short(self, group: str) -> bool:
        sent = self._model.group_sent(group)
        pods = list(self._model.pods_of(group))
        return sent is not None and sum(1 for p in pods if _holds(p) or p.finished) < sent.min_member


def _holds(pod: Pod) -> bool:
    return bool(pod.node_name) and not pod.finished and not pod.deleted


def _departure(evictions: list[Eviction], now: float) -> eviction_record.EvictionRecord:
    first = evictions[0]
    pods = {eviction.task.partition("/")[2]: eviction.uid for eviction in evictions}
    return eviction_record.EvictionRecord(now, first.action, first.claimer, pods)
