"""Placing what a step lacks, run by run, as the queues admit it and as the nodes hold it.

One order of the runs is tried here; which orders there are to try is up to ``allocate``. Nothing is taken
back here but a part of a gang that cannot be completed while another one may stand in for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import msgspec
from msgspec.structs import replace as altered

from windlass.engine.groups.entries import GroupEntry, TaskEntry
from windlass.engine.groups.next_step import MissingSubGroup, NextTasks, TaskBatch
from windlass.engine.nodes.table import NodeTable
from windlass.engine.nodes.view import TableView
from windlass.engine.placement.domain_selector import DomainSelector
from windlass.engine.placement.placer import Placer
from windlass.engine.placement.subgroup_filler import SubGroupFiller
from windlass.engine.placement.topology_domains import DomainRows
from windlass.engine.queues.queue import QueueEntry
from windlass.engine.state.statement import Statement
from windlass.spi.plugins import Admit, AdmitUnconditionally, Rejection, StepView
from windlass.spi.topology import TopologyNeed


class PlacementAttempt(msgspec.Struct):
    """What came of a step. Its placements stand in the statement if ``done``, else nothing does.

    ``reached``: how many of the missing members could be placed at best. ``pipelined``: they are
    promises, on room part of which is being vacated.
    """

    done: bool
    reached: int = 0
    rejections: list[Rejection] = msgspec.field(default_factory=list)
    pipelined: bool = False


@dataclass(slots=True)
class _Want:
    """What is still lacking: members in all, and of each role among them."""

    members: int
    roles: dict[str, int]

    def booked(self, role: str, placed: int) -> None:
        for_role = min(self.roles.get(role, 0), placed)
        if for_role:
            self.roles[role] -= for_role
        self.members -= placed

    def of(self, role: str) -> int:
        """How many more of a role may be taken without taking what other roles need."""
        lacking = self.roles.get(role, 0)
        return lacking + max(0, self.members - sum(self.roles.values()))

    @property
    def met(self) -> bool:
        return self.members <= 0 and not any(self.roles.values())


@dataclass(slots=True)
class _Trial:
    """One try of one group's step."""

    statement: Statement
    group: GroupEntry
    step: NextTasks
    future: bool
    want: _Want
    result: PlacementAttempt
    placed: dict[str, int] = field(default_factory=dict)
    """Part → tasks of it that were placed."""

    def mark(self) -> _Mark:
        """Where it stands, to come back to."""
        want = replace(self.want, roles=dict(self.want.roles))
        return self.statement.checkpoint(), want, self.result.reached, dict(self.placed)

    def undo(self, mark: _Mark) -> None:
        """Come back to where it stood."""
        self.statement.rollback(mark[0])
        self.want = replace(mark[1], roles=dict(mark[1].roles))
        self.result.reached, self.placed = mark[2], dict(mark[3])


_Mark = tuple[int, _Want, int, dict[str, int]]


class GangFiller:
    def __init__(
        self, table: NodeTable, admissions: Sequence[Admit], placer: Placer, domain_selector: DomainSelector
    ) -> None:
        self._placer = placer
        self._domain_selector = domain_selector
        self._subgroup_filler = SubGroupFiller[_Trial](placer, domain_selector, self._place_batch)
        self._admissions = [
            (plugin, plugin if isinstance(plugin, AdmitUnconditionally) else None) for plugin in admissions
        ]
        self._concerned: dict[str, tuple[int, list[Admit]]] = {}
        """Queue → the version of the queue tree, and the policies that may have something against a step."""
        self._nodes = TableView(table)

    def place_task(
        self, statement: Statement, group: GroupEntry, step: NextTasks, future: bool
    ) -> PlacementAttempt:
        """Place one task: of the first run that is admitted and fits."""
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
        """:meth:`place_task` for a step of a single task, if policies and nodes by themselves decide: what most steps
        of a busy cluster are, without the ceremony. ``None`` if more has to be asked."""
        batch = step.batches[0]
        queue = group.queue
        if queue is not None and group.group is not None and (concerned := self.asked(queue)):
            view = StepView(group.group, batch.cls.request, 1, step.extra, False, (batch.cls.needs,))
            path, nodes = queue.path, self._nodes
            found = [no for plugin in concerned if (no := plugin.admits(view, path, nodes)) is not None]
            if found:
                return PlacementAttempt(False, 0, found)
        placed = self._placer.place_plain(statement, group, batch.cls, batch.entries)
        return None if placed is None else PlacementAttempt(placed, int(placed))

    def place_within_domain(self, statement: Statement, group: GroupEntry, step: NextTasks) -> bool:
        """:meth:`place_gang` for one of one class without members yet, in the best domain by the counts, if nothing
        else decides: what most gangs are that have to be near, without the ceremony. Not done is not a no."""
        need = group.spec.topology
        if (
            need is None
            or group.near_parts
            or group.active
            or step.extra
            or step.roles
            or step.root is not None
        ):
            return False
        batch, n = step.batches[0], step.members
        scope = self._domain_selector.first(need, batch.cls, n) if len(step.batches) == 1 else None
        if scope is None or self.rejections(group, batch, n, step, False):
            return False
        mark = statement.checkpoint()
        if self._placer.fill_plain(statement, group, batch.cls, _first(batch.entries, n), scope):
            return True
        statement.rollback(mark)
        return False

    def options(
        self, statement: Statement, group: GroupEntry, step: NextTasks, future: bool
    ) -> PlacementAttempt:
        """Complete the first of the step's options that can be."""
        rejections: list[Rejection] = []
        for option in step.options:
            trial = _Trial(statement, group, step, future, _Want(0, {}), PlacementAttempt(False))
            mark = statement.checkpoint()
            with self._placer.within(self._beside(group, option.name)):
                done = self._part(trial, option)
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
        """Place until the minimum is reached: what parts and roles lack, and any task for the rest."""
        trial = _Trial(
            statement, group, step, future, _Want(step.members, dict(step.roles)), PlacementAttempt(False)
        )
        if step.root is not None:
            trial.want.members = max(0, group.missing)
            root = _ordered(step.root, batches)
            if not self._part(trial, _tightest_first(root, group.near_parts) if group.near_parts else root):
                return trial.result
            self._from_pool(trial, step.pool)
        else:
            self._place_batches(trial, batches)
        trial.result.done = trial.want.met
        return trial.result

    # ------------------------------------------------------------------ pieces

    def _place_batches(self, trial: _Trial, batches: Sequence[TaskBatch], part: str = "") -> None:
        """Place what is still lacking from these runs."""
        for batch in batches:
            if trial.want.met:
                return
            wanted = min(len(batch.entries), trial.want.of(batch.role))
            if wanted > 0:
                self._place_batch(trial, batch, wanted, part)

    def _from_pool(self, trial: _Trial, pool: Sequence[MissingSubGroup]) -> None:
        """Place what is still lacking beyond the parts: of parts that are complete first, then whole parts."""
        for started in (True, False):
            for part in pool:
                if trial.want.met:
                    return
                lacks = part.members - trial.placed.get(part.name, 0)
                rest = [altered(batch, entries=_unplaced(batch.entries)) for batch in part.batches]
                if started is (lacks <= 0) and (
                    lacks <= 0 or self._unit(trial, MissingSubGroup(part.name, lacks, rest))
                ):
                    rest = [altered(batch, entries=_unplaced(batch.entries)) for batch in rest]
                    with self._placer.within(self._beside(trial.group, part.name)):
                        self._place_batches(trial, rest, part.name)

    def _unit(self, trial: _Trial, part: MissingSubGroup) -> bool:
        """Complete a part, or leave everything as it was."""
        mark = trial.mark()
        if self._part(trial, part):
            return True
        trial.undo(mark)
        return False

    def _beside(self, group: GroupEntry, part: str) -> DomainRows | None:
        """Where tasks of a part may be, by what is required of it and of those that it lies in."""
        scope = self._placer.scope
        return self._domain_selector.allowed(group, part, scope) if group.near_parts else scope

    def _place_batch(self, trial: _Trial, batch: TaskBatch, wanted: int, part: str) -> int:
        """Place up to ``wanted`` tasks of a run, as far as they are admitted and fit."""
        group, step, future = trial.group, trial.step, trial.future
        refused = self.rejections(group, batch, wanted, step, future)
        if refused:
            trial.result.rejections += refused
            wanted = self._admitted(group, batch, wanted, step, future)
        elif future and self.rejections(group, batch, wanted, step, False):
            trial.result.pipelined = True
        entries = _first(batch.entries, wanted)
        placed = self._placer.place_class(trial.statement, group, batch.cls, entries, future=future)
        trial.result.reached += placed
        trial.want.booked(batch.role, placed)
        trial.placed[part] = trial.placed.get(part, 0) + placed
        return placed

    def _part(self, trial: _Trial, part: MissingSubGroup) -> bool:
        """Complete a part: its own tasks, then as many of the parts below as it needs."""
        if trial.group.near_parts:
            return self._subgroup_filler.complete(trial, part)
        left = part.members
        for batch in part.batches:
            if not left:
                break
            left -= self._place_batch(trial, batch, min(left, len(batch.entries)), part.name)
        if left:
            return False
        done = 0
        for child in part.parts:
            if done == part.needed:
                break
            done += self._unit(trial, child)
        return done == part.needed

    # ------------------------------------------------------------------ admission

    def rejections(
        self, group: GroupEntry, batch: TaskBatch, n: int, step: NextTasks, future: bool
    ) -> list[Rejection]:
        """What the policies and queues say against ``n`` more tasks of the run, as things stand."""
        if group.queue is None or group.group is None or not self.asked(group.queue):
            return []
        request = batch.cls.request
        if n > 1:
            request = {name: units * n for name, units in batch.cls.items}
        return self.refusals_of(
            group, StepView(group.group, request, n, step.extra, future, (batch.cls.needs,))
        )

    def refusals_of(self, group: GroupEntry, view: StepView) -> list[Rejection]:
        """What the policies say against a step, the queues being as they are."""
        if group.queue is None:
            return []
        path = group.queue.path
        found = []
        for plugin in self.asked(group.queue):
            rejection = plugin.admits(view, path, self._nodes)
            if rejection is not None:
                found.append(rejection)
        return found

    def asked(self, queue: QueueEntry | None) -> list[Admit]:
        """The policies that may have something against a step of a group of the queue."""
        if queue is None:
            return []
        known, version = self._concerned.get(queue.name), queue.tree.version
        if known is not None and known[0] == version:
            return known[1]
        path = queue.path
        concerned = [p for p, says in self._admissions if says is None or says.may_reject(path)]
        self._concerned[queue.name] = version, concerned
        return concerned

    def _admitted(
        self, group: GroupEntry, batch: TaskBatch, refused: int, step: NextTasks, future: bool
    ) -> int:
        """The largest number below ``refused`` that is admitted."""
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
    return [entry for entry in entries if entry.row < 0 and entry.promised < 0]


def _ordered(part: MissingSubGroup, batches: Sequence[TaskBatch]) -> MissingSubGroup:
    """The part with its runs, and the parts below it, in the order in which their classes come in ``runs``."""
    rank: dict[int, int] = {}
    for at, batch in enumerate(batches):
        rank.setdefault(batch.cls.number, at)
    return _ranked(part, rank)


def _tightest_first(part: MissingSubGroup, needs: Mapping[str, TopologyNeed]) -> MissingSubGroup:
    """The parts below in the order in which domains are best given away: where all are needed, those bound to
    the finest level first, then the largest."""
    children = [_tightest_first(child, needs) for child in part.parts]
    if part.needed == len(children):
        children.sort(key=lambda child: (-_fineness(child, needs), -child.least()))
    return replace(part, parts=children)


def _fineness(part: MissingSubGroup, needs: Mapping[str, TopologyNeed]) -> int:
    """The number of the finest level that it, or one below it, has to be in one domain of; -1 for none."""
    own = needs[part.name].required if part.name in needs else -1
    return max([own, *(_fineness(below, needs) for below in part.parts)])


def _ranked(part: MissingSubGroup, rank: dict[int, int]) -> MissingSubGroup:
    children = [_ranked(child, rank) for child in part.parts]
    if part.needed == len(children):  # all of them are needed: those of the first classes go first
        children.sort(
            key=lambda child: min((rank[batch.cls.number] for batch in child.batches), default=len(rank))
        )
    return replace(
        part, batches=sorted(part.batches, key=lambda batch: rank[batch.cls.number]), parts=children
    )
