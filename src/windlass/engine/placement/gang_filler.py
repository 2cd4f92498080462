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
from windlass.engine.groups.next_step import Part, Run, Step
from windlass.engine.nodes.table import NodeTable
from windlass.engine.nodes.view import TableView
from windlass.engine.placement.domain_selector import Nearness
from windlass.engine.placement.placer import Placer
from windlass.engine.placement.subgroup_filler import Nesting
from windlass.engine.placement.topology_domains import Scope
from windlass.engine.queues.queue import QueueEntry
from windlass.engine.state.statement import Statement
from windlass.spi.plugins import Admits, Concerns, Refusal, StepView
from windlass.spi.topology import TopologyNeed


class Attempt(msgspec.Struct):
    """What came of a step. Its placements stand in the statement if ``done``, else nothing does.

    ``reached``: how many of the missing members could be placed at best. ``pipelined``: they are
    promises, on room part of which is being vacated.
    """

    done: bool
    reached: int = 0
    refusals: list[Refusal] = msgspec.field(default_factory=list)
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
    step: Step
    future: bool
    want: _Want
    result: Attempt
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


class Filling:
    def __init__(
        self, table: NodeTable, admissions: Sequence[Admits], placer: Placer, nearness: Nearness
    ) -> None:
        self._placer = placer
        self._nearness = nearness
        self._nesting = Nesting[_Trial](placer, nearness, self._run)
        self._admissions = [
            (plugin, plugin if isinstance(plugin, Concerns) else None) for plugin in admissions
        ]
        self._concerned: dict[str, tuple[int, list[Admits]]] = {}
        """Queue → the version of the queue tree, and the policies that may have something against a step."""
        self._nodes = TableView(table)

    def one(self, statement: Statement, group: GroupEntry, step: Step, future: bool) -> Attempt:
        """Place one task: of the first run that is admitted and fits."""
        refusals: list[Refusal] = []
        for run in step.runs:
            refused = self.refusals(group, run, 1, step, future)
            if refused:
                refusals += refused
                continue
            later = future and bool(self.refusals(group, run, 1, step, False))
            if self._placer.place(statement, group, run.cls, _first(run.entries, 1), future=future):
                return Attempt(True, 1, pipelined=later)
        return Attempt(False, 0, refusals)

    def alone(self, statement: Statement, group: GroupEntry, step: Step) -> Attempt | None:
        """:meth:`one` for a step of a single task, if policies and nodes by themselves decide: what most steps of a
        busy cluster are, without the ceremony. ``None`` if more has to be asked."""
        run = step.runs[0]
        queue = group.queue
        if queue is not None and group.group is not None and (concerned := self.asked(queue)):
            view = StepView(group.group, run.cls.request, 1, step.extra, False, (run.cls.needs,))
            path, nodes = queue.path, self._nodes
            found = [no for plugin in concerned if (no := plugin.admits(view, path, nodes)) is not None]
            if found:
                return Attempt(False, 0, found)
        placed = self._placer.place_plain(statement, group, run.cls, run.entries)
        return None if placed is None else Attempt(placed, int(placed))

    def near(self, statement: Statement, group: GroupEntry, step: Step) -> bool:
        """:meth:`gang` for one of one class without members yet, in the best domain by the counts, if nothing
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
        run, n = step.runs[0], step.members
        scope = self._nearness.first(need, run.cls, n) if len(step.runs) == 1 else None
        if scope is None or self.refusals(group, run, n, step, False):
            return False
        mark = statement.checkpoint()
        if self._placer.fill_plain(statement, group, run.cls, _first(run.entries, n), scope):
            return True
        statement.rollback(mark)
        return False

    def options(self, statement: Statement, group: GroupEntry, step: Step, future: bool) -> Attempt:
        """Complete the first of the step's options that can be."""
        refusals: list[Refusal] = []
        for option in step.options:
            trial = _Trial(statement, group, step, future, _Want(0, {}), Attempt(False))
            mark = statement.checkpoint()
            with self._placer.within(self._beside(group, option.name)):
                done = self._part(trial, option)
            if done:
                trial.result.done = True
                return trial.result
            statement.rollback(mark)
            refusals += trial.result.refusals
        return Attempt(False, 0, refusals)

    def gang(
        self, statement: Statement, group: GroupEntry, step: Step, runs: Sequence[Run], future: bool
    ) -> Attempt:
        """Place until the minimum is reached: what parts and roles lack, and any task for the rest."""
        trial = _Trial(statement, group, step, future, _Want(step.members, dict(step.roles)), Attempt(False))
        if step.root is not None:
            trial.want.members = max(0, group.missing)
            root = _ordered(step.root, runs)
            if not self._part(trial, _tightest_first(root, group.near_parts) if group.near_parts else root):
                return trial.result
            self._from_pool(trial, step.pool)
        else:
            self._from_runs(trial, runs)
        trial.result.done = trial.want.met
        return trial.result

    # ------------------------------------------------------------------ pieces

    def _from_runs(self, trial: _Trial, runs: Sequence[Run], part: str = "") -> None:
        """Place what is still lacking from these runs."""
        for run in runs:
            if trial.want.met:
                return
            wanted = min(len(run.entries), trial.want.of(run.role))
            if wanted > 0:
                self._run(trial, run, wanted, part)

    def _from_pool(self, trial: _Trial, pool: Sequence[Part]) -> None:
        """Place what is still lacking beyond the parts: of parts that are complete first, then whole parts."""
        for started in (True, False):
            for part in pool:
                if trial.want.met:
                    return
                lacks = part.members - trial.placed.get(part.name, 0)
                rest = [altered(run, entries=_unplaced(run.entries)) for run in part.runs]
                if started is (lacks <= 0) and (
                    lacks <= 0 or self._unit(trial, Part(part.name, lacks, rest))
                ):
                    rest = [altered(run, entries=_unplaced(run.entries)) for run in rest]
                    with self._placer.within(self._beside(trial.group, part.name)):
                        self._from_runs(trial, rest, part.name)

    def _unit(self, trial: _Trial, part: Part) -> bool:
        """Complete a part, or leave everything as it was."""
        mark = trial.mark()
        if self._part(trial, part):
            return True
        trial.undo(mark)
        return False

    def _beside(self, group: GroupEntry, part: str) -> Scope | None:
        """Where tasks of a part may be, by what is required of it and of those that it lies in."""
        scope = self._placer.scope
        return self._nearness.allowed(group, part, scope) if group.near_parts else scope

    def _run(self, trial: _Trial, run: Run, wanted: int, part: str) -> int:
        """Place up to ``wanted`` tasks of a run, as far as they are admitted and fit."""
        group, step, future = trial.group, trial.step, trial.future
        refused = self.refusals(group, run, wanted, step, future)
        if refused:
            trial.result.refusals += refused
            wanted = self._admitted(group, run, wanted, step, future)
        elif future and self.refusals(group, run, wanted, step, False):
            trial.result.pipelined = True
        entries = _first(run.entries, wanted)
        placed = self._placer.place(trial.statement, group, run.cls, entries, future=future)
        trial.result.reached += placed
        trial.want.booked(run.role, placed)
        trial.placed[part] = trial.placed.get(part, 0) + placed
        return placed

    def _part(self, trial: _Trial, part: Part) -> bool:
        """Complete a part: its own tasks, then as many of the parts below as it needs."""
        if trial.group.near_parts:
            return self._nesting.complete(trial, part)
        left = part.members
        for run in part.runs:
            if not left:
                break
            left -= self._run(trial, run, min(left, len(run.entries)), part.name)
        if left:
            return False
        done = 0
        for child in part.parts:
            if done == part.needed:
                break
            done += self._unit(trial, child)
        return done == part.needed

    # ------------------------------------------------------------------ admission

    def refusals(self, group: GroupEntry, run: Run, n: int, step: Step, future: bool) -> list[Refusal]:
        """What the policies and queues say against ``n`` more tasks of the run, as things stand."""
        if group.queue is None or group.group is None or not self.asked(group.queue):
            return []
        request = run.cls.request
        if n > 1:
            request = {name: units * n for name, units in run.cls.items}
        return self.refusals_of(
            group, StepView(group.group, request, n, step.extra, future, (run.cls.needs,))
        )

    def refusals_of(self, group: GroupEntry, view: StepView) -> list[Refusal]:
        """What the policies say against a step, the queues being as they are."""
        if group.queue is None:
            return []
        path = group.queue.path
        found = []
        for plugin in self.asked(group.queue):
            refusal = plugin.admits(view, path, self._nodes)
            if refusal is not None:
                found.append(refusal)
        return found

    def asked(self, queue: QueueEntry | None) -> list[Admits]:
        """The policies that may have something against a step of a group of the queue."""
        if queue is None:
            return []
        known, version = self._concerned.get(queue.name), queue.tree.version
        if known is not None and known[0] == version:
            return known[1]
        path = queue.path
        concerned = [p for p, says in self._admissions if says is None or says.concerns(path)]
        self._concerned[queue.name] = version, concerned
        return concerned

    def _admitted(self, group: GroupEntry, run: Run, refused: int, step: Step, future: bool) -> int:
        """The largest number below ``refused`` that is admitted."""
        low, high = 0, refused
        while high - low > 1:
            middle = (low + high) // 2
            if self.refusals(group, run, middle, step, future):
                high = middle
            else:
                low = middle
        return low


def _first(entries: list[TaskEntry], n: int) -> list[TaskEntry]:
    return entries if n == len(entries) else entries[:n]


def _unplaced(entries: list[TaskEntry]) -> list[TaskEntry]:
    return [entry for entry in entries if entry.row < 0 and entry.promised < 0]


def _ordered(part: Part, runs: Sequence[Run]) -> Part:
    """The part with its runs, and the parts below it, in the order in which their classes come in ``runs``."""
    rank: dict[int, int] = {}
    for at, run in enumerate(runs):
        rank.setdefault(run.cls.number, at)
    return _ranked(part, rank)


def _tightest_first(part: Part, needs: Mapping[str, TopologyNeed]) -> Part:
    """The parts below in the order in which domains are best given away: where all are needed, those bound to
    the finest level first, then the largest."""
    children = [_tightest_first(child, needs) for child in part.parts]
    if part.needed == len(children):
        children.sort(key=lambda child: (-_fineness(child, needs), -child.least()))
    return replace(part, parts=children)


def _fineness(part: Part, needs: Mapping[str, TopologyNeed]) -> int:
    """The number of the finest level that it, or one below it, has to be in one domain of; -1 for none."""
    own = needs[part.name].required if part.name in needs else -1
    return max([own, *(_fineness(below, needs) for below in part.parts)])


def _ranked(part: Part, rank: dict[int, int]) -> Part:
    children = [_ranked(child, rank) for child in part.parts]
    if part.needed == len(children):  # all of them are needed: those of the first classes go first
        children.sort(key=lambda child: min((rank[run.cls.number] for run in child.runs), default=len(rank)))
    return replace(part, runs=sorted(part.runs, key=lambda run: rank[run.cls.number]), parts=children)
