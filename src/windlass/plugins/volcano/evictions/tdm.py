"""``tdm`` without its node filter: evictions from revocable nodes, and preemption elsewhere.

Every ``tdm.evict.period`` (1m) preemptible pods are evicted from revocable nodes
outside their hours. Each group loses as many as its disruption budget allows
(``volcano.sh/jdb-min-available``, otherwise ``volcano.sh/jdb-max-unavailable``; numbers
or percentages of its pods), one without a budget. The action ``shuffle`` does this.
Zones without known hours are ignored.

A running pod counts as available. A pending, starting or terminating one counts as
unavailable, a finished one as neither.

On all other nodes nonpreemptible work may preempt preemptible pods, within the same
budgets. It precedes preemptible groups, and it starves as long as one of its pods is
pending. The group needs the annotation ``volcano.sh/preemptable`` to be preemptible in
this sense.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from windlass.plugins.argument_values import Arguments, duration
from windlass.plugins.volcano.nodes.revocable import LABEL, PREFIX, Hours, is_active, parse_hours
from windlass.spi.objects import TaskState
from windlass.spi.plugins import GroupView
from windlass.spi.tiers import GangView, Purpose, TaskView

PERIOD = "tdm.evict.period"
MAX_UNAVAILABLE = "volcano.sh/jdb-max-unavailable"
PREEMPTABLE = "volcano.sh/preemptable"
MIN_AVAILABLE = "volcano.sh/jdb-min-available"


class RevocableEvictions:
    name = "tdm"

    def __init__(self, zones: Mapping[str, Hours], period: float) -> None:
        self._zones = dict(zones)
        self._period = period

    def due(self, running: Sequence[TaskView], now: float) -> Sequence[TaskView]:
        evicted: dict[str, list[TaskView]] = {}
        for task in running:
            zone = task.node.labels.get(LABEL, "") if task.node is not None else ""
            if task.task.preemptible and self._is_over(zone, now):
                evicted.setdefault(task.gang.spec.key, []).append(task)
        return [task for tasks in evicted.values() for task in tasks[: _budget(tasks[0].gang)]]

    def why(self, task: TaskView) -> str:
        zone = task.node.labels.get(LABEL, "") if task.node is not None else ""
        return f"the hours of revocable zone {zone} are over"

    def next_due(self, now: float) -> float | None:
        """Return the next period; a node may be labelled at any time."""
        return now + self._period

    def _is_over(self, zone: str, now: float) -> bool:
        hours = self._zones.get(zone)
        return hours is not None and not is_active(hours, now)


class RevocableEvictable:
    """Vote on victims of nonpreemptible work.

    Preemptible work, and work that revocable nodes accept, preempts no pod. Other work
    preempts preemptible pods that run on other than revocable nodes, of each group as
    many as its budget allows.
    """

    name = "tdm"

    def victims(
        self, purpose: Purpose, preemptor: TaskView, candidates: Sequence[TaskView]
    ) -> Sequence[TaskView] | None:
        if purpose is not Purpose.PREEMPT:
            return None
        if preemptor.task.preemptible or preemptor.task.needs.revocable_zone:
            return []
        by_group: dict[str, list[TaskView]] = {}
        for task in candidates:
            revocable = task.node is None or task.node.labels.get(LABEL)
            if not revocable and task.task.preemptible and task.task.state is TaskState.RUNNING:
                by_group.setdefault(task.gang.spec.key, []).append(task)
        return [task for tasks in by_group.values() for task in tasks[: _budget(tasks[0].gang)]]


class RevocableStarving:
    """Starvation: a nonpreemptible group has pending pods, also above its minimum."""

    name = "tdm"

    def starving(self, gang: GangView) -> bool:
        return not revocable_group(gang) and gang.members > gang.held_members


class RevocableOrder:
    """Group order: nonpreemptible groups first."""

    name = "tdm"

    def group_key(self, group: GroupView) -> bool:
        return revocable_group(group)


def revocable_group(group: GroupView) -> bool:
    """Return whether the group's own annotation makes it preemptible."""
    return group.spec.annotations.get(PREEMPTABLE) is not None and group.spec.preemptible


def build(arguments: Arguments) -> RevocableEvictions:
    zones = {}
    for name, text in arguments.items():
        hours = parse_hours(str(text)) if name.startswith(PREFIX) else None
        if hours is not None:
            zones[name.removeprefix(PREFIX)] = hours
    return RevocableEvictions(zones, duration(arguments.get(PERIOD, "1m")) or 60.0)


def _budget(gang: GangView) -> int:
    """Return the number of running pods of the group that may be evicted now.

    Pods that are unavailable already are subtracted.
    """
    annotations, size = gang.spec.annotations, gang.size
    least = _share_of(annotations.get(MIN_AVAILABLE), size)
    if least is not None:
        return max(0, gang.running - least)
    most = _share_of(annotations.get(MAX_UNAVAILABLE), size)
    if most is not None:
        return max(0, most - (size - gang.finished - gang.running))
    return 1


def _share_of(text: str | None, whole: int) -> int | None:
    """Return ``"3"`` or ``"30%"`` of ``whole``, rounded up; ``None`` for any other text."""
    number = (text or "").removesuffix("%")
    if not (number.isascii() and number.isdecimal()):
        return None
    return -(-int(number) * whole // 100) if text and text.endswith("%") else int(number)
