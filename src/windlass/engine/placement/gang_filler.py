"""Placement of batches of a gang (level: sub-group and class).

One order of the batches is placed here.
:mod:`~windlass.engine.placement.gang_allocator` chooses the orders. Placements are
undone here only for a sub-group that cannot be completed while another one may replace
it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import msgspec
from msgspec.structs import replace as altered

from windlass.engine.groups.entries import GroupEntry, MissingSubGroup, NextTasks, TaskBatch, TaskEntry
from windlass.engine.groups.queue_entry import QueueEntry
from windlass.engine.nodes.table import NodeTable
from windlass.engine.nodes.view import TableView
from windlass.engine.placement.domain_selector import DomainSelector
from windlass.engine.placement.placer import Placer
from windlass.engine.placement.subgroup_filler import SubGroupFiller
from windlass.engine.placement.topology_domains import DomainRows
from windlass.engine.state.statement import Statement
from windlass.spi.plugins import Admit, AdmitUnconditionally, Rejection, StepView
from windlass.spi.topology import TopologyNeed


class PlacementAttempt(msgspec.Struct):
    """Result of an attempt. If ``done``, the statement contains its placements, else none.

    ``reached``: maximum number of missing members that could be placed. ``pipelined``:
        the tasks are nominated, since part of the capacity is still being released.
    """

    done: bool
    reached: int = 0
    rejections: list[Rejection] = msgspec.field(default_factory=list)
    pipelined: bool = False


@dataclass(slots=True)
class _Missing:
    """Tasks still missing: members in total, and members by role among them."""

    members: int
    roles: dict[str, int]

    def take(self, role: str, placed: int) -> None:
        for_role = min(self.roles.get(role, 0), placed)
        if for_role:
            self.roles[role] -= for_role
        self.members -= placed

    def available_to(self, role: str) -> int:
        """Return the number of tasks of a role that may be placed without using other roles' share."""
        missing = self.roles.get(role, 0)
        return missing + max(0, self.members - sum(self.roles.values()))

    @property
    def met(self) -> bool:
        return self.members <= 0 and not any(self.roles.values())


@dataclass(slots=True)
class _Trial:
    """Attempt to place the next tasks of a group in one order."""

    statement: Statement
    group: GroupEntry
    step: NextTasks
    future: bool
    missing: _Missing
    result: PlacementAttempt
    placed: dict[str, int] = field(default_factory=dict)
    """Sub-group → number of placed tasks."""

    def mark(self) -> _Mark:
        """Return a mark for :meth:`undo`."""
        missing = replace(self.missing, roles=dict(self.missing.roles))
        return self.statement.checkpoint(), missing, self.result.reached, dict(self.placed)

    def undo(self, mark: _Mark) -> None:
        """Undo everything since ``mark``."""
        self.statement.rollback(mark[0])
        self.missing = replace(mark[1], roles=dict(mark[1].roles))
        self.result.reached, self.placed = mark[2], dict(mark[3])


_Mark = tuple[int, _Missing, int, dict[str, int]]


class GangFiller:
    """Places batches as admitted by queues and as nodes permit."""

    def __init__(
        self, table: NodeTable, admissions: Sequence[Admit], placer: Placer, domain_selector: DomainSelector
    ) -> None:
        self._placer = placer
        self._domain_selector = domain_selector
        self._subgroup_filler = SubGroupFiller[_Trial](placer, domain_selector, self._place_batch)
        self._admissions = [
            (plugin, plugin if isinstance(plugin, AdmitUnconditionally) else None) for plugin in admissions
        ]
        self._admissions_by_queue: dict[str, tuple[int, list[Admit]]] = {}
        """Queue → version of the queue tree, and admission plugins that may reject tasks."""
        self._nodes = TableView(table)

    def place_task(
        self, statement: Statement, group: GroupEntry, step: NextTasks, future: bool
    ) -> PlacementAttempt:
        """Place one task: of the first batch that is admitted and fits."""
        rejections: list[Rejection] = []
        for batch in step.batches:
            refused = self.rejections(group, batch, 1, step, future)
            if refused:
                rejections += refused
                continue
            later = future and bool(self.rejections(group, batch, 1, step, False))
            if self._placer.place_class(statement, group, batch.cls, _first(batch.entries, 1), future=future):
                return PlacementAttempt(True, 1, pipelined=later)
        return PlacementAttempt(False, 0, rejections)

    def place_single_task(
        self, statement: Statement, group: GroupEntry, step: NextTasks
    ) -> PlacementAttempt | None:
        """Place a single task if only admission plugins and nodes decide. ``None`` if more applies.

        A shortcut for :meth:`place_task`. In a busy cluster most attempts are of this
        kind.
        """
        batch = step.batches[0]
        queue = group.queue
        if queue is not None and group.group is not None and (concerned := self.admissions_of(queue)):
            view = StepView(group.group, batch.cls.request, 1, step.extra, False, (batch.cls.needs,))
            path, nodes = queue.path, self._nodes
            rejections = [no for plugin in concerned if (no := plugin.admits(view, path, nodes)) is not None]
            if rejections:
                return PlacementAttempt(False, 0, rejections)
        placed = self._placer.place_plain(statement, group, batch.cls, batch.entries)
        return None if placed is None else PlacementAttempt(placed, int(placed))

    def place_within_domain(self, statement: Statement, group: GroupEntry, step: NextTasks) -> bool:
        """Place a gang of one class without members in the best domain by counts.

        A shortcut for :meth:`place_gang`, for most gangs with a topology constraint. A
        false result decides nothing.
        """
        need = group.spec.topology
        if (
            need is None
            or group.subgroup_topologies
            or group.active
            or step.extra
            or step.roles
            or step.root is not None
        ):
            return False
        batch, n = step.batches[0], step.members
        scope = self._domain_selector.best_by_count(need, batch.cls, n) if len(step.batches) == 1 else None
        if scope is None or self.rejections(group, batch, n, step, False):
            return False
        mark = statement.checkpoint()
        if self._placer.fill_plain(statement, group, batch.cls, _first(batch.entries, n), scope):
            return True
        statement.rollback(mark)
        return False

    def place_option(
        self, statement: Statement, group: GroupEntry, step: NextTasks, future: bool
    ) -> PlacementAttempt:
        """Complete the first option of the next tasks that fits."""
        rejections: list[Rejection] = []
        for option in step.options:
            trial = _Trial(statement, group, step, future, _Missing(0, {}), PlacementAttempt(False))
            mark = statement.checkpoint()
            with self._placer.within(self._scope_of(group, option.name)):
                done = self._place_subgroup(trial, option)
            if done:
                trial.result.done = True
                return trial.result
            statement.rollback(mark)
            rejections += trial.result.rejections
        return PlacementAttempt(False, 0, rejections)

    def place_gang(
        self,
        statement: Statement,
        group: GroupEntry,
        step: NextTasks,
        batches: Sequence[TaskBatch],
        future: bool,
    ) -> PlacementAttempt:
        """Place tasks up to the minimum: for sub-groups and roles first, then any others."""
        trial = _Trial(
            statement, group, step, future, _Missing(step.members, dict(step.roles)), PlacementAttempt(False)
        )
        if step.root is not None:
            trial.missing.members = max(0, group.missing)
            root = _ordered(step.root, batches)
            if not self._place_subgroup(
                trial, _tightest_first(root, group.subgroup_topologies) if group.subgroup_topologies else root
            ):
                return trial.result
            self._place_elastic(trial, step.pool)
        else:
            self._place_batches(trial, batches)
        trial.result.done = trial.missing.met
        return trial.result

    # ------------------------------------------------------------------ pieces

    def _place_batches(self, trial: _Trial, batches: Sequence[TaskBatch], subgroup: str = "") -> None:
        """Place missing tasks from these batches."""
        for batch in batches:
            if trial.missing.met:
                return
            wanted = min(len(batch.entries), trial.missing.available_to(batch.role))
            if wanted > 0:
                self._place_batch(trial, batch, wanted, subgroup)

    def _place_elastic(self, trial: _Trial, pool: Sequence[MissingSubGroup]) -> None:
        """Place missing tasks beyond sub-groups: of complete sub-groups first, then whole ones."""
        for started in (True, False):
            for subgroup in pool:
                if trial.missing.met:
                    return
                missing = subgroup.members - trial.placed.get(subgroup.name, 0)
                batches = [altered(batch, entries=_unplaced(batch.entries)) for batch in subgroup.batches]
                if started is (missing <= 0) and (
                    missing <= 0
                    or self._try_subgroup(trial, MissingSubGroup(subgroup.name, missing, batches))
                ):
                    batches = [altered(batch, entries=_unplaced(batch.entries)) for batch in batches]
                    with self._placer.within(self._scope_of(trial.group, subgroup.name)):
                        self._place_batches(trial, batches, subgroup.name)

    def _try_subgroup(self, trial: _Trial, subgroup: MissingSubGroup) -> bool:
        """Complete a sub-group. On failure everything is as before."""
        mark = trial.mark()
        if self._place_subgroup(trial, subgroup):
            return True
        trial.undo(mark)
        return False

    def _scope_of(self, group: GroupEntry, subgroup: str) -> DomainRows | None:
        """Return the rows for tasks of a sub-group by its constraints and those of its ancestors."""
        scope = self._placer.scope
        return self._domain_selector.allowed(group, subgroup, scope) if group.subgroup_topologies else scope

    def _place_batch(self, trial: _Trial, batch: TaskBatch, wanted: int, subgroup: str) -> int:
        """Place up to ``wanted`` tasks of a batch, as far as they are admitted and fit."""
        group, step, future = trial.group, trial.step, trial.future
        refused = self.rejections(group, batch, wanted, step, future)
        if refused:
            trial.result.rejections += refused
            wanted = self._max_admitted(group, batch, wanted, step, future)
        elif future and self.rejections(group, batch, wanted, step, False):
            trial.result.pipelined = True
        entries = _first(batch.entries, wanted)
        placed = self._placer.place_class(trial.statement, group, batch.cls, entries, future=future)
        trial.result.reached += placed
        trial.missing.take(batch.role, placed)
        trial.placed[subgroup] = trial.placed.get(subgroup, 0) + placed
        return placed

    def _place_subgroup(self, trial: _Trial, subgroup: MissingSubGroup) -> bool:
        """Complete a sub-group: its own tasks, then as many children as needed."""
        if trial.group.subgroup_topologies:
            return self._subgroup_filler.complete(trial, subgroup)
        missing = subgroup.members
        for batch in subgroup.batches:
            if not missing:
                break
            missing -= self._place_batch(trial, batch, min(missing, len(batch.entries)), subgroup.name)
        if missing:
            return False
        done = 0
        for child in subgroup.children:
            if done == subgroup.needed_children:
                break
            done += self._try_subgroup(trial, child)
        return done == subgroup.needed_children

    # ------------------------------------------------------------------ admission

    def rejections(
        self, group: GroupEntry, batch: TaskBatch, n: int, step: NextTasks, future: bool
    ) -> list[Rejection]:
        """Return the rejections of ``n`` more tasks of the batch in the present state."""
        if group.queue is None or group.group is None or not self.admissions_of(group.queue):
            return []
        request = batch.cls.request
        if n > 1:
            request = {name: units * n for name, units in batch.cls.items}
        return self.rejections_of(
            group, StepView(group.group, request, n, step.extra, future, (batch.cls.needs,))
        )

    def rejections_of(self, group: GroupEntry, view: StepView) -> list[Rejection]:
        """Return the rejections of the tasks by plugins in the present state of queues."""
        if group.queue is None:
            return []
        path = group.queue.path
        rejections = []
        for plugin in self.admissions_of(group.queue):
            rejection = plugin.admits(view, path, self._nodes)
            if rejection is not None:
                rejections.append(rejection)
        return rejections

    def admissions_of(self, queue: QueueEntry | None) -> list[Admit]:
        """Return the admission plugins that may reject tasks of groups in the queue."""
        if queue is None:
            return []
        known, version = self._admissions_by_queue.get(queue.name), queue.tree.version
        if known is not None and known[0] == version:
            return known[1]
        path = queue.path
        admissions = [
            p
            for p, unconditional in self._admissions
            if unconditional is None or unconditional.may_reject(path)
        ]
        self._admissions_by_queue[queue.name] = version, admissions
        return admissions

    def _max_admitted(
        self, group: GroupEntry, batch: TaskBatch, refused: int, step: NextTasks, future: bool
    ) -> int:
        """Return the largest number below ``refused`` that is admitted."""
        low, high = 0, refused
        while high - low > 1:
            middle = (low + high) // 2
            if self.rejections(group, batch, middle, step, future):
                high = middle
            else:
                low = middle
        return low


def _first(entries: list[TaskEntry], n: int) -> list[TaskEntry]:
    return entries if n == len(entries) else entries[:n]


def _unplaced(entries: list[TaskEntry]) -> list[TaskEntry]:
    return [entry for entry in entries if entry.row < 0 and entry.nominated_row < 0]


def _ordered(subgroup: MissingSubGroup, batches: Sequence[TaskBatch]) -> MissingSubGroup:
    """Return the sub-group with batches and children in the order of the classes in ``batches``."""
    rank: dict[int, int] = {}
    for at, batch in enumerate(batches):
        rank.setdefault(batch.cls.number, at)
    return _ranked(subgroup, rank)


def _tightest_first(subgroup: MissingSubGroup, needs: Mapping[str, TopologyNeed]) -> MissingSubGroup:
    """Return the sub-group with its children in the best order for the allocation of domains.

    If all are needed, those bound to the finest level come first, then the largest
    ones.
    """
    children = [_tightest_first(child, needs) for child in subgroup.children]
    if subgroup.needed_children == len(children):
        children.sort(key=lambda child: (-_fineness(child, needs), -child.min_tasks()))
    return replace(subgroup, children=children)


def _fineness(subgroup: MissingSubGroup, needs: Mapping[str, TopologyNeed]) -> int:
    """Return the finest level required in its subtree; -1 for none."""
    own = needs[subgroup.name].required if subgroup.name in needs else -1
    return max([own, *(_fineness(below, needs) for below in subgroup.children)])


def _ranked(subgroup: MissingSubGroup, rank: dict[int, int]) -> MissingSubGroup:
    children = [_ranked(child, rank) for child in subgroup.children]
    if subgroup.needed_children == len(children):  # all are needed: first those of the first classes
        children.sort(
            key=lambda child: min((rank[batch.cls.number] for batch in child.batches), default=len(rank))
        )
    return replace(
        subgroup,
        batches=sorted(subgroup.batches, key=lambda batch: rank[batch.cls.number]),
        children=children,
    )
