"""What a group asks for next.

A gang below its minimum asks for what it lacks, all or nothing: members, roles, parts. One that holds its
minimum asks for one task more, or for the minimum of one more part. Pods that ask for nothing are left out
where they are placed apart (``GroupEntry.apart``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass, field

import msgspec

from windlass.engine.feasibility.task_class import TaskClass
from windlass.engine.groups.entries import PENDING, GroupEntry, TaskEntry, nominated
from windlass.engine.groups.subgroups import SubGroupEntry, SubGroupTree
from windlass.spi.plugins import StepView


class TaskBatch(msgspec.Struct):
    """Neighbouring tasks of a step that are alike: one class, one role."""

    cls: TaskClass
    role: str
    entries: list[TaskEntry]


@dataclass(slots=True)
class MissingSubGroup:
    """What a part of a gang lacks: ``members`` of its own tasks, and ``needed`` of ``parts``."""

    name: str
    members: int
    batches: list[TaskBatch]
    parts: list[MissingSubGroup] = field(default_factory=list)
    needed: int = 0

    def least(self) -> int:
        """The fewest tasks that complete it."""
        return self.members + sum(sorted(part.least() for part in self.parts)[: self.needed])

    def shape(self) -> Hashable:
        """Equal for parts that lack the same."""
        runs = tuple((batch.cls.number, batch.role, len(batch.entries)) for batch in self.batches)
        return (self.members, self.needed, runs, tuple(part.shape() for part in self.parts))


class NextTasks(msgspec.Struct):
    """A group's next step.

    A gang below its minimum: enough of ``runs`` to reach it, all or nothing. ``members``: how many are
    missing; ``roles``: role → how many are missing; ``root``: what its parts lack. An elastic group
    (``extra``): one task, of the first run of which one fits; or of a group with parts the first of
    ``options`` that fits, ``members`` being what the smallest of them lacks. ``pool``: for what a group
    with parts lacks beyond its parts, the tasks of every part, with what it lacks itself: no part is
    started below its own minimum.
    """

    batches: list[TaskBatch]
    members: int
    roles: dict[str, int]
    extra: bool = False
    root: MissingSubGroup | None = None
    options: Sequence[MissingSubGroup] = ()
    pool: Sequence[MissingSubGroup] = ()

    @property
    def alone(self) -> bool:
        """Whether it asks for one certain task and nothing else."""
        batches = self.batches
        return (
            len(batches) == 1
            and len(batches[0].entries) == 1
            and not self.roles
            and self.root is None
            and not self.options
        )

    @property
    def single_class(self) -> bool:
        return len({batch.cls for batch in self.batches}) == 1


@dataclass(frozen=True, slots=True)
class Shortage:
    """Why a group has no step: it lacks tasks. ``role`` and ``part`` are empty for the group as a whole."""

    role: str
    needed: int
    there: int
    gated: int
    part: str = ""


def next_step(group: GroupEntry, *, unpromised: bool = False) -> NextTasks | Shortage | None:
    """What the group asks for next; ``None`` if nothing of it waits.

    ``unpromised``: leave out tasks of an elastic group that room is already promised to.
    """
    pending = group.pending
    if len(pending) == 1 and not (group.tallies or group.apart or unpromised):
        missing = group.minimum - group.active - group.succeeded
        if missing <= 1:
            (entry,) = pending.values()
            return NextTasks([TaskBatch(entry.cls, "", [entry])], 1, {}, missing <= 0)
    missing = group.missing
    if group.ready():
        return _extra_step(group, unpromised=unpromised) if pending else _gated_extra(group)
    waiting = group.waiting_count()
    if missing > waiting:
        return Shortage("", group.minimum, group.minimum - missing + waiting, group.gated())
    roles = group.missing_roles()
    for role, lacking in roles.items():
        there = sum(1 for e in group.candidates() if e.task.role == role)
        if there < lacking:
            have = group.roles_enforced[role] - lacking
            return Shortage(role, group.roles_enforced[role], have + there, _gated(group, role=role))
    if group.parts is None:
        return NextTasks(_runs(group), max(missing, 0), roles)
    return _parted_step(group, group.parts, max(missing, 0), roles)


def _gated(group: GroupEntry, *, role: str | None = None, part: str | None = None) -> int:
    return sum(
        1
        for e in group.tasks.values()
        if e.state is PENDING
        and e.task.gated
        and (role is None or e.task.role == role)
        and (part is None or e.task.subgroup == part)
    )


def _gated_extra(group: GroupEntry) -> Shortage | None:
    gated = group.gated()
    return Shortage("", group.minimum, group.held_members, gated) if gated else None


def _extra_step(group: GroupEntry, *, unpromised: bool) -> NextTasks | None:
    """One task: the first that fits of the first of each class."""
    if group.parts is not None:
        return _parted_extra(group, group.parts, unpromised=unpromised)
    batches: list[TaskBatch] = []
    seen: set[TaskClass] = set()
    for entry in group.candidates():
        if entry.cls not in seen and not (unpromised and entry.promised >= 0):
            seen.add(entry.cls)
            batches.append(TaskBatch(entry.cls, "", [entry]))
            if len(seen) == len(group.pending_classes):
                break
    return NextTasks(batches, 1, {}, extra=True) if batches else None


def _runs(group: GroupEntry) -> list[TaskBatch]:
    """What waits of the group in its order, as runs."""
    if len(group.pending_classes) == 1 and not group.roles_enforced and not group.apart:
        (cls,) = group.pending_classes
        return [TaskBatch(cls, "", list(group.waiting()))]
    return runs_of(group.candidates(), by_role=bool(group.roles_enforced))


def runs_of(entries: Iterable[TaskEntry], *, by_role: bool = False) -> list[TaskBatch]:
    """Neighbours of one class (and role, if asked for) together."""
    batches: list[TaskBatch] = []
    for entry in entries:
        role = entry.task.role if by_role else ""
        last = batches[-1] if batches else None
        if last is not None and last.cls is entry.cls and last.role == role:
            last.entries.append(entry)
        else:
            batches.append(TaskBatch(entry.cls, role, [entry]))
    return batches


# ---------------------------------------------------------------------- groups with parts

_Waiting = dict[SubGroupEntry, list[TaskEntry]]


def _by_part(group: GroupEntry, tree: SubGroupTree, *, unpromised: bool = False) -> _Waiting:
    found: _Waiting = {}
    for entry in group.candidates():
        if not (unpromised and entry.promised >= 0):
            found.setdefault(tree.of(entry.task.subgroup), []).append(entry)
    return found


def _parted_step(
    group: GroupEntry, tree: SubGroupTree, missing: int, roles: dict[str, int]
) -> NextTasks | Shortage:
    waiting = _by_part(group, tree)
    by_role = bool(group.roles_enforced)
    root = _lack(tree.root, waiting, by_role)
    if root is None:
        return _short_part(group, tree.root, waiting)
    members = max(missing, sum(roles.values()), root.least())
    pool = [
        MissingSubGroup(part.name, max(0, part.minimum - part.held), runs_of(own, by_role=by_role))
        for part in tree.root.walk()
        if (own := waiting.get(part))
    ]
    return NextTasks(runs_of(group.candidates(), by_role=by_role), members, roles, root=root, pool=pool)


def _lack(part: SubGroupEntry, waiting: _Waiting, by_role: bool) -> MissingSubGroup | None:
    """What the part lacks; ``None`` if the tasks that are there cannot complete it."""
    own = waiting.get(part, [])
    members = max(0, part.minimum - part.held)
    if members > len(own):
        return None
    needed = max(0, part.required - part.completed())
    children: list[MissingSubGroup] = []
    if needed:
        incomplete = (child for child in part.children if not child.complete())
        children = [lack for child in incomplete if (lack := _lack(child, waiting, by_role)) is not None]
        if len(children) < needed:
            return None
        children.sort(key=MissingSubGroup.least)
    return MissingSubGroup(part.name, members, runs_of(own, by_role=by_role), children, needed)


def _short_part(group: GroupEntry, root: SubGroupEntry, waiting: _Waiting) -> Shortage:
    """The first part, from the top, of which too few tasks are there."""
    for part in root.walk():
        there = part.held + len(waiting.get(part, ()))
        if there < part.minimum:
            gated = _gated(group, part=part.name)
            return Shortage("", part.minimum, there, gated, part.name)
    for part in root.walk():
        able = sum(c.complete() or _lack(c, waiting, False) is not None for c in part.children)
        if able < part.required:
            return Shortage("", part.required, able, 0, part.name)
    raise RuntimeError(f"nothing is short in {group!r}")


def _parted_extra(group: GroupEntry, tree: SubGroupTree, *, unpromised: bool) -> NextTasks | None:
    """What may come next of a complete group, best first: parts that are not complete, then the emptiest."""
    waiting = _by_part(group, tree, unpromised=unpromised)
    options = list(_options(tree.root, waiting, bool(group.roles_enforced)))
    if not options:
        return None
    batches = [batch for option in options for batch in _all_runs(option)]
    return NextTasks(batches, min(option.least() for option in options), {}, extra=True, options=options)


def _options(part: SubGroupEntry, waiting: _Waiting, by_role: bool) -> Iterable[MissingSubGroup]:
    if part.children:
        ranked = sorted(part.children, key=lambda child: (child.complete(), child.fullness(), child.position))
        for child in ranked:
            if child.complete():
                yield from _options(child, waiting, by_role)
            elif (lack := _lack(child, waiting, by_role)) is not None:
                yield lack
    seen: set[TaskClass] = set()
    for entry in waiting.get(part, ()):
        if entry.cls not in seen:
            seen.add(entry.cls)
            yield MissingSubGroup(
                part.name, 1, [TaskBatch(entry.cls, entry.task.role if by_role else "", [entry])]
            )


def nominated_units(group: GroupEntry) -> list[tuple[SubGroupEntry | None, list[TaskEntry]]]:
    """What a group that holds its minimum is promised beyond it, by what may come without the rest: every task by
    itself, but those that are to complete a part (told with them) together."""
    if group.parts is None:
        return [(None, [entry]) for entry in nominated(group)]
    alone: list[tuple[SubGroupEntry | None, list[TaskEntry]]] = []
    together: _Waiting = {}
    for entry in nominated(group):
        lacking = group.parts.of(entry.task.subgroup).outermost_incomplete()
        if lacking is None:
            alone.append((None, [entry]))
        else:
            together.setdefault(lacking, []).append(entry)
    return [*together.items(), *alone]


def _all_runs(part: MissingSubGroup) -> Iterable[TaskBatch]:
    yield from part.batches
    for child in part.parts:
        yield from _all_runs(child)


def is_nominated(group: GroupEntry, step: NextTasks) -> bool:
    """Whether the group waits for promised room already."""
    there = len(nominated(group))
    return there >= (len(group.pending) if step.extra else max(step.members, 1))


# ---------------------------------------------------------------------- in sum


def whole_step(group: GroupEntry, step: NextTasks) -> StepView:
    """The least that the step asks for in sum: the tasks that would be taken in task order."""
    if len(step.batches) == 1 and step.root is None and not step.options:
        batch = step.batches[0]
        n = min(len(batch.entries), step.members)
        request = batch.cls.request
        if n > 1:
            request = {name: units * n for name, units in batch.cls.items}
        return StepView(group.spec, request, n, step.extra, needs=(batch.cls.needs,))
    taken: dict[str, TaskEntry] = {}
    roles, members = dict(step.roles), step.members
    if step.extra:
        if step.options:
            _take_part(min(step.options, key=MissingSubGroup.least), taken)
        else:
            taken[step.batches[0].entries[0].key] = step.batches[0].entries[0]
        return view_of(group, taken.values(), extra=True)
    if step.root is not None:
        _take_part(step.root, taken)
        for entry in taken.values():
            role = entry.task.role
            if roles.get(role, 0):
                roles[role] -= 1
    members = max(0, members - len(taken))
    for batch in step.batches:
        lacking = roles.get(batch.role, 0)
        free = max(0, members - sum(roles.values()))
        for entry in batch.entries:
            if entry.key in taken:
                continue
            if lacking:
                lacking -= 1
                roles[batch.role] -= 1
            elif free:
                free -= 1
            else:
                break
            members -= 1
            taken[entry.key] = entry
    return view_of(group, taken.values(), extra=False)


def least_in_sum(group: GroupEntry, step: NextTasks) -> dict[str, int]:
    """Of each resource the least that the gang holds of nodes, in units, once the step is done, whichever of its tasks
    are taken: what it holds already, and the smallest that are missing, of each role as many as it must have."""
    found: Counter[str] = Counter()
    for entry in group.tasks.values():
        if entry.row >= 0:
            found.update(dict(entry.cls.node_items))
    for name in {name for batch in step.batches for name, _ in batch.cls.node_items}:
        found[name] += _least_of(step, name)
    return dict(found)


def _least_of(step: NextTasks, resource: str) -> int:
    lacking, total = dict(step.roles), 0
    free = max(0, step.members - sum(lacking.values()))
    sizes = [(dict(run.cls.node_items).get(resource, 0), run) for run in step.batches]
    for units, batch in sorted(sizes, key=lambda size: size[0]):
        of_role = min(len(batch.entries), lacking.get(batch.role, 0))
        others = min(len(batch.entries) - of_role, free)
        if of_role:
            lacking[batch.role] -= of_role
        free -= others
        total += units * (of_role + others)
    return total


def _take_part(part: MissingSubGroup, taken: dict[str, TaskEntry]) -> None:
    left = part.members
    for batch in part.batches:
        for entry in batch.entries[:left]:
            taken[entry.key] = entry
        left = max(0, left - len(batch.entries))
    for child in part.parts[: part.needed]:
        _take_part(child, taken)


def view_of(group: GroupEntry, taken: Collection[TaskEntry], *, extra: bool) -> StepView:
    """What these tasks ask for in sum."""
    request: dict[str, int] = {}
    for entry in taken:
        for name, units in entry.cls.items:
            request[name] = request.get(name, 0) + units
    kinds = dict.fromkeys(entry.cls for entry in taken)
    return StepView(group.spec, request, len(taken), extra, needs=tuple([cls.needs for cls in kinds]))
