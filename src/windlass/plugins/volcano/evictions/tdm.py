"""``tdm``, beside its nodes: who leaves revocable nodes when their hours are over, and who makes room elsewhere.

Every ``tdm.evict.period`` (1m) a group loses as many of its preemptible pods there as its disruption budget
allows (``volcano.sh/jdb-min-available``, else ``volcano.sh/jdb-max-unavailable``; numbers or percentages of its
pods), one where it states none. Done by the action ``shuffle``. A zone of which no hours are known is left alone.

A pod counts as available while it runs, as unavailable while it waits, starts or terminates; one that is done
counts as neither.

On all other nodes work that is not preemptible itself may take the room of preemptible pods, within the same
budgets, goes before preemptible groups, and starves as long as a pod of it waits. On a group
``volcano.sh/preemptable`` has to stand for this; where it is absent the group is not preemptible.
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
        """Every period; a node may be labelled at any time."""
        return now + self._period

    def _is_over(self, zone: str, now: float) -> bool:
        hours = self._zones.get(zone)
        return hours is not None and not is_active(hours, now)


class RevocableEvictable:
    """Work that is preemptible, or that revocable nodes would take, takes nobody's room. Others take that of
    preemptible pods which run on nodes that are not revocable, of each group as many as its budget allows."""

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
    """A group that is not preemptible starves while a pod of it waits, beyond its minimum, too."""

    name = "tdm"

    def starving(self, gang: GangView) -> bool:
        return not revocable_group(gang) and gang.members > gang.held_members


class RevocableOrder:
    """Groups that are not preemptible go first."""

    name = "tdm"

    def group_key(self, group: GroupView) -> bool:
        return revocable_group(group)


def revocable_group(group: GroupView) -> bool:
    """Return whether the group itself says that it is preemptible."""
    return group.spec.annotations.get(PREEMPTABLE) is not None and group.spec.preemptible


def build(arguments: Arguments) -> RevocableEvictions:
    zones = {}
    for name, text in arguments.items():
        hours = parse_hours(str(text)) if name.startswith(PREFIX) else None
        if hours is not None:
            zones[name.removeprefix(PREFIX)] = hours
    return RevocableEvictions(zones, duration(arguments.get(PERIOD, "1m")) or 60.0)


def _budget(gang: GangView) -> int:
    """How many running pods of the group may go now, beside those that are away already."""
    annotations, size = gang.spec.annotations, gang.size
    least = _part(annotations.get(MIN_AVAILABLE), size)
    if least is not None:
        return max(0, gang.running - least)
    most = _part(annotations.get(MAX_UNAVAILABLE), size)
    if most is not None:
        return max(0, most - (size - gang.finished - gang.running))
    return 1


def _part(text: str | None, whole: int) -> int | None:
    """``"3"`` or ``"30%"`` of ``whole``, rounded up; ``None`` for none, and for what is neither."""
    number = (text or "").removesuffix("%")
    if not number.isdecimal():
        return None
    return -(-int(number) * whole // 100) if text and text.endswith("%") else int(number)
