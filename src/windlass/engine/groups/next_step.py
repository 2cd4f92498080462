"""Choice of the next tasks of a group.

A gang below its minimum needs all missing members, roles and sub-groups at once. A
group that holds its minimum needs one more task, or the minimum of one more sub-group.
Pods without requests are left out if they are separate
(``GroupEntry.best_effort_separate``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Set
from dataclasses import dataclass

from windlass.engine.feasibility.task_class import TaskClass
from windlass.engine.groups.entries import (
    ENDING,
    PENDING,
    GroupEntry,
    MissingSubGroup,
    NextTasks,
    TaskBatch,
    TaskEntry,
    nominated,
)
from windlass.engine.groups.subgroups import SubGroupEntry, SubGroupTree
from windlass.spi.plugins import StepView


@dataclass(frozen=True, slots=True)
class Shortage:
    """Reason why a group has no next tasks: too few exist. ``role``, ``subgroup``: ""
    for the group.
    """

    role: str
    needed: int
    available: int
    gated: int
    subgroup: str = ""
    counts_subgroups: bool = False
    """True if ``needed`` and ``available`` are numbers of subgroups."""


def next_step(group: GroupEntry, *, unnominated: bool = False) -> NextTasks | Shortage | None:
    """Return the next tasks of the group, or ``None`` if no task is pending.

    ``unnominated``: leave out nominated tasks of an elastic group.
    """
    pending = group.pending
    if len(pending) == 1 and not (group.tallies or group.best_effort_separate or unnominated):
        missing = group.minimum - group.active - group.succeeded
        if missing <= 1:
            (entry,) = pending.values()
            return NextTasks([TaskBatch(entry.cls, "", [entry])], 1, {}, missing <= 0)
    missing = group.missing
    if group.ready():
        return _extra_step(group, unnominated=unnominated) if pending else _gated_extra(group)
    waiting = group.waiting_count()
    if missing > waiting:
        return Shortage("", group.minimum, group.minimum - missing + waiting, group.gated())
    roles = group.missing_roles()
    for role, missing_of_role in roles.items():
        available = sum(1 for e in group.candidates() if e.task.role == role)
        if available < missing_of_role:
            have = group.roles_enforced[role] - missing_of_role
            return Shortage(role, group.roles_enforced[role], have + available, _gated(group, role=role))
    if group.subgroups is None:
        return NextTasks(_batches(group), max(missing, 0), roles)
    return _subgroup_step(group, group.subgroups, max(missing, 0), roles)


def _gated(group: GroupEntry, *, role: str | None = None, subgroup: str | None = None) -> int:
    return sum(
        1
        for e in group.tasks.values()
        if e.state is PENDING
        and e.task.gated
        and (role is None or e.task.role == role)
        and (subgroup is None or e.task.subgroup == subgroup)
    )


def _gated_extra(group: GroupEntry) -> Shortage | None:
    gated = group.gated()
    return Shortage("", group.minimum, group.held_members, gated) if gated else None


def _extra_step(group: GroupEntry, *, unnominated: bool) -> NextTasks | None:
    """Return one task more: the first of each class, in task order."""
    if group.subgroups is not None:
        return _subgroup_extra(group, group.subgroups, unnominated=unnominated)
    batches: list[TaskBatch] = []
    seen: set[TaskClass] = set()
    for entry in group.candidates():
        if entry.cls not in seen and not (unnominated and entry.nominated_row >= 0):
            seen.add(entry.cls)
            batches.append(TaskBatch(entry.cls, "", [entry]))
            if len(seen) == len(group.pending_classes):
                break
    return NextTasks(batches, 1, {}, extra=True) if batches else None


def _batches(group: GroupEntry) -> list[TaskBatch]:
    """Return the pending tasks of the group in task order, as batches."""
    if len(group.pending_classes) == 1 and not group.roles_enforced and not group.best_effort_separate:
        (cls,) = group.pending_classes
        return [TaskBatch(cls, "", list(group.waiting()))]
    return batches_of(group.candidates(), by_role=bool(group.roles_enforced))


def batches_of(entries: Iterable[TaskEntry], *, by_role: bool = False) -> list[TaskBatch]:
    """Return batches of consecutive tasks of one class (and one role, if ``by_role``)."""
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

_PendingTasks = dict[SubGroupEntry, list[TaskEntry]]


def _by_subgroup(group: GroupEntry, tree: SubGroupTree, *, unnominated: bool = False) -> _PendingTasks:
    by_subgroup: _PendingTasks = {}
    for entry in group.candidates():
        if not (unnominated and entry.nominated_row >= 0):
            by_subgroup.setdefault(tree.of(entry.task.subgroup), []).append(entry)
    return by_subgroup


def _subgroup_step(
    group: GroupEntry, tree: SubGroupTree, missing: int, roles: dict[str, int]
) -> NextTasks | Shortage:
    waiting = _by_subgroup(group, tree)
    by_role = bool(group.roles_enforced)
    existing = sum(map(len, waiting.values()))
    required = {subgroup for subgroup, own in waiting.items() if existing - len(own) < missing}
    root = _missing(tree.root, waiting, by_role, required)
    if root is None:
        return _subgroup_shortage(group, tree.root, waiting, required)
    members = max(missing, sum(roles.values()), root.min_tasks())
    pool = [
        MissingSubGroup(
            subgroup.name, max(0, subgroup.minimum - subgroup.held), batches_of(own, by_role=by_role)
        )
        for subgroup in tree.root.walk()
        if (own := waiting.get(subgroup))
    ]
    return NextTasks(batches_of(group.candidates(), by_role=by_role), members, roles, root=root, pool=pool)


def _missing(
    subgroup: SubGroupEntry,
    waiting: _PendingTasks,
    by_role: bool,
    required: Set[SubGroupEntry] = frozenset(),
) -> MissingSubGroup | None:
    """Return the missing tasks of the sub-group, or ``None`` if its pending tasks do
    not suffice.

    ``required``: sub-groups without which the group cannot reach its own minimum.
    """
    own = waiting.get(subgroup, [])
    members = max(0, subgroup.minimum - subgroup.held)
    if members > len(own):
        return None
    needed = max(0, subgroup.required - subgroup.complete_children())
    children: list[MissingSubGroup] = []
    of_group = [child for child in subgroup.children if not required.isdisjoint(child.walk())]
    if needed or of_group:
        incomplete = [child for child in subgroup.children if not child.is_complete()]
        if set(incomplete) <= set(of_group):  # no other sub-group can replace one of them
            incomplete, needed = of_group, max(needed, len(of_group))
        children = [
            missing
            for child in incomplete
            if (missing := _missing(child, waiting, by_role, required)) is not None
        ]
        if len(children) < needed:
            return None
        children.sort(key=MissingSubGroup.min_tasks)
    return MissingSubGroup(subgroup.name, members, batches_of(own, by_role=by_role), children, needed)


def _subgroup_shortage(
    group: GroupEntry, subgroup: SubGroupEntry, waiting: _PendingTasks, required: Set[SubGroupEntry]
) -> Shortage:
    """Return the shortage of a sub-group that its pending tasks cannot complete.

    If a certain child has to be complete and cannot be, it is the shortage of that child.
    """
    available = subgroup.held + len(waiting.get(subgroup, ()))
    if available < subgroup.minimum:
        return Shortage("", subgroup.minimum, available, _gated(group, subgroup=subgroup.name), subgroup.name)
    short = [child for child in subgroup.children if not _can_complete(child, waiting, required)]
    can_complete = len(subgroup.children) - len(short)
    if can_complete >= subgroup.required or subgroup.required == len(subgroup.children):
        decisive = [child for child in short if not required.isdisjoint(child.walk())] or short
        if decisive:
            return _subgroup_shortage(group, decisive[0], waiting, required)
    return Shortage("", subgroup.required, can_complete, 0, subgroup.name, counts_subgroups=True)


def _can_complete(subgroup: SubGroupEntry, waiting: _PendingTasks, required: Set[SubGroupEntry]) -> bool:
    is_required = not required.isdisjoint(subgroup.walk())
    if subgroup.is_complete() and not is_required:
        return True
    return _missing(subgroup, waiting, False, required) is not None


def _subgroup_extra(group: GroupEntry, tree: SubGroupTree, *, unnominated: bool) -> NextTasks | None:
    """Return the options of a complete group, best first.

    Incomplete sub-groups precede complete ones, and emptier ones precede fuller ones.
    """
    waiting = _by_subgroup(group, tree, unnominated=unnominated)
    options = list(_options(tree.root, waiting, bool(group.roles_enforced)))
    if not options:
        return None
    batches = [batch for option in options for batch in _all_batches(option)]
    return NextTasks(batches, min(option.min_tasks() for option in options), {}, extra=True, options=options)


def _options(subgroup: SubGroupEntry, waiting: _PendingTasks, by_role: bool) -> Iterable[MissingSubGroup]:
    if subgroup.children:
        ranked = sorted(
            subgroup.children, key=lambda child: (child.is_complete(), child.fullness(), child.position)
        )
        for child in ranked:
            if child.is_complete():
                yield from _options(child, waiting, by_role)
            elif (missing := _missing(child, waiting, by_role)) is not None:
                yield missing
    seen: set[TaskClass] = set()
    for entry in waiting.get(subgroup, ()):
        if entry.cls not in seen:
            seen.add(entry.cls)
            yield MissingSubGroup(
                subgroup.name, 1, [TaskBatch(entry.cls, entry.task.role if by_role else "", [entry])]
            )


def nominated_sets(group: GroupEntry) -> list[tuple[SubGroupEntry | None, list[TaskEntry]]]:
    """Return the nominated tasks of a group that holds its minimum, by sets that start together.

    Each task is a set of its own, except tasks that complete a sub-group. Those form
    one set, returned with the sub-group.
    """
    if group.subgroups is None:
        return [(None, [entry]) for entry in nominated(group)]
    alone: list[tuple[SubGroupEntry | None, list[TaskEntry]]] = []
    together: _PendingTasks = {}
    for entry in nominated(group):
        incomplete = group.subgroups.of(entry.task.subgroup).outermost_incomplete()
        if incomplete is None:
            alone.append((None, [entry]))
        else:
            together.setdefault(incomplete, []).append(entry)
    return [*together.items(), *alone]


def _all_batches(subgroup: MissingSubGroup) -> Iterable[TaskBatch]:
    yield from subgroup.batches
    for child in subgroup.children:
        yield from _all_batches(child)


def is_nominated(group: GroupEntry, step: NextTasks) -> bool:
    """Return whether the group waits for nominated capacity already."""
    count = len(nominated(group))
    return count >= (len(group.pending) if step.extra else max(step.members, 1))


# ---------------------------------------------------------------------- in sum


def required_tasks(step: NextTasks) -> int:
    """Return the minimum number of tasks that the step places."""
    return max(step.members, sum(step.roles.values()))


def whole_step_view(group: GroupEntry, step: NextTasks) -> StepView:
    """Return the minimum request of the next tasks: the sum over the first ones in task order."""
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
            _take_subgroup(min(step.options, key=MissingSubGroup.min_tasks), taken)
        else:
            taken[step.batches[0].entries[0].key] = step.batches[0].entries[0]
        return view_of(group, taken.values(), extra=True)
    if step.root is not None:
        _take_subgroup(step.root, taken)
        for entry in taken.values():
            role = entry.task.role
            if roles.get(role, 0):
                roles[role] -= 1
    members = max(0, members - len(taken))
    for batch in step.batches:
        missing = roles.get(batch.role, 0)
        free = max(0, members - sum(roles.values()))
        for entry in batch.entries:
            if entry.key in taken:
                continue
            if missing:
                missing -= 1
                roles[batch.role] -= 1
            elif free:
                free -= 1
            else:
                break
            members -= 1
            taken[entry.key] = entry
    return view_of(group, taken.values(), extra=False)


def min_usage(group: GroupEntry, step: NextTasks) -> dict[str, int]:
    """Return the minimum node resources of the gang after its next tasks are placed, in units.

    For each resource separately, this is the usage of members that go on running plus the smallest missing
    tasks, as many of each role as required.
    """
    usage: Counter[str] = Counter()
    for entry in group.tasks.values():
        if entry.row >= 0 and entry.state not in ENDING:
            usage.update(dict(entry.cls.node_items))
    for name in {name for batch in step.batches for name, _ in batch.cls.node_items}:
        usage[name] += _min_units(step, name)
    return dict(usage)


def _min_units(step: NextTasks, resource: str) -> int:
    missing, total = dict(step.roles), 0
    free = max(0, step.members - sum(missing.values()))
    sizes = [(dict(run.cls.node_items).get(resource, 0), run) for run in step.batches]
    for units, batch in sorted(sizes, key=lambda size: size[0]):
        of_role = min(len(batch.entries), missing.get(batch.role, 0))
        others = min(len(batch.entries) - of_role, free)
        if of_role:
            missing[batch.role] -= of_role
        free -= others
        total += units * (of_role + others)
    return total


def _take_subgroup(subgroup: MissingSubGroup, taken: dict[str, TaskEntry]) -> None:
    missing = subgroup.members
    for batch in subgroup.batches:
        for entry in batch.entries[:missing]:
            taken[entry.key] = entry
        missing = max(0, missing - len(batch.entries))
    for child in subgroup.children[: subgroup.needed_children]:
        _take_subgroup(child, taken)


def view_of(group: GroupEntry, taken: Collection[TaskEntry], *, extra: bool) -> StepView:
    """Return the sum of the requests of these tasks."""
    request: dict[str, int] = {}
    for entry in taken:
        for name, units in entry.cls.items:
            request[name] = request.get(name, 0) + units
    kinds = dict.fromkeys(entry.cls for entry in taken)
    return StepView(group.spec, request, len(taken), extra, needs=tuple([cls.needs for cls in kinds]))
