"""The action ``allocate``: give waiting groups what they ask for next, as long as it can be had.

One attempt is one group's next step inside one statement: a gang's missing minimum, all or nothing,
or one more task of an elastic group. A gang of several classes that does not fit in task order is
tried in a few other orders: the scarcest class first, and what depends on other pods last.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from windlass.engine.groups import GroupEntry, Run, Step, TaskEntry
from windlass.engine.parking import Waits
from windlass.engine.placing import Placer
from windlass.engine.policies import Policies
from windlass.engine.statement import Statement
from windlass.engine.table import NodeTable
from windlass.engine.view import TableView
from windlass.spi.plugins import Refusal, StepView


@dataclass(slots=True)
class Attempt:
    """What came of a step. ``placed`` tasks stand in the statement if ``done``, else nothing does.

    ``reached``: how many of the missing members could be placed at best.
    """

    done: bool
    reached: int = 0
    refusals: list[Refusal] = field(default_factory=list)


class Allocation:
    """``gated`` is false for a trial that asks no queue and no policy for its consent."""

    def __init__(self, table: NodeTable, policies: Policies, placer: Placer, *, gated: bool = True) -> None:
        self._placer = placer
        self._admissions = policies.admissions if gated else []
        self._nodes = TableView(table)

    def attempt(self, statement: Statement, group: GroupEntry, step: Step) -> Attempt:
        """Try a group's step. On failure the statement is as it was before.

        What is promised to the group's own tasks is theirs to use.
        """
        mark = statement.checkpoint()
        for entry in promised(group):
            statement.unpromise(entry)
        attempt = self._attempt(statement, group, step)
        if not attempt.done:
            statement.rollback(mark)
        return attempt

    def _attempt(self, statement: Statement, group: GroupEntry, step: Step) -> Attempt:
        if step.extra or (step.members == 1 and len(step.runs) == 1 and not step.roles):
            return self._one(statement, group, step)
        if len(step.runs) == 1 and self._hopeless(step):
            refusals = self._refusals(group, step.runs[0], step.members, extra=False)
            return Attempt(False, min(step.runs[0].cls.total, step.members), refusals)
        mark = statement.checkpoint()
        first = self._gang(statement, group, step, step.runs)
        if first.done:
            return first
        statement.rollback(mark)
        for order in self._other_orders(step):
            other = self._gang(statement, group, step, order)
            if other.done:
                return other
            statement.rollback(mark)
            first.reached = max(first.reached, other.reached)
        return first

    def _other_orders(self, step: Step) -> list[list[Run]]:
        """Orders of a gang's runs, beside task order, in which it may fit where it else would not."""
        if step.single_class:
            return []
        for run in step.runs:
            run.cls.refresh()
        scarcest = sorted(step.runs, key=lambda run: run.cls.total)
        dependent_last = sorted(scarcest, key=lambda run: bool(self._placer.constraints(run.cls)))
        found: list[list[Run]] = []
        for order in (scarcest, dependent_last):
            if order != step.runs and order not in found:
                found.append(order)
        return found

    def _hopeless(self, step: Step) -> bool:
        """Whether the nodes taken one by one hold too few: then nothing needs to be tried."""
        cls = step.runs[0].cls
        cls.refresh()
        return cls.total < step.members

    def _one(self, statement: Statement, group: GroupEntry, step: Step) -> Attempt:
        """Place one task: of the first run that is admitted and fits."""
        refusals: list[Refusal] = []
        for run in step.runs:
            refused = self._refusals(group, run, 1, extra=step.extra)
            if refused:
                refusals += refused
            elif self._placer.place(statement, group, run.cls, _first(run.entries, 1)):
                return Attempt(True, 1)
        return Attempt(False, 0, refusals)

    def _gang(self, statement: Statement, group: GroupEntry, step: Step, runs: Sequence[Run]) -> Attempt:
        """Place until the minimum is reached: what roles lack, and any task for the rest."""
        roles = dict(step.roles)
        free = max(0, step.members - sum(roles.values()))
        result = Attempt(False)
        for run in runs:
            lacking = roles.get(run.role, 0)
            wanted = min(len(run.entries), lacking + free)
            if not wanted:
                continue
            refused = self._refusals(group, run, wanted, extra=False)
            if refused:
                result.refusals += refused
                wanted = self._admitted(group, run, wanted)
            placed = self._placer.place(statement, group, run.cls, _first(run.entries, wanted))
            result.reached += placed
            for_role = min(lacking, placed)
            if for_role:
                roles[run.role] = lacking - for_role
            free -= placed - for_role
            if not free and not any(roles.values()):
                result.done = True
                return result
        return result

    # ------------------------------------------------------------------ admission

    def _refusals(self, group: GroupEntry, run: Run, n: int, *, extra: bool) -> list[Refusal]:
        """What the policies and queues say against ``n`` more tasks of the run, as things stand."""
        if not self._admissions or group.queue is None or group.group is None:
            return []
        request = run.cls.request
        if n > 1:
            request = {name: units * n for name, units in run.cls.items}
        return self.refusals_of(group, StepView(group.group, request, n, extra))

    def refusals_of(self, group: GroupEntry, view: StepView) -> list[Refusal]:
        """What the policies say against a step, the queues being as they are."""
        if group.queue is None:
            return []
        path = group.queue.path
        found = []
        for plugin in self._admissions:
            refusal = plugin.admits(view, path, self._nodes)
            if refusal is not None:
                found.append(refusal)
        return found

    def _admitted(self, group: GroupEntry, run: Run, refused: int) -> int:
        """The largest number below ``refused`` that is admitted."""
        low, high = 0, refused
        while high - low > 1:
            middle = (low + high) // 2
            if self._refusals(group, run, middle, extra=False):
                high = middle
            else:
                low = middle
        return low


def promised(group: GroupEntry) -> list[TaskEntry]:
    """The tasks of the group that room is promised to."""
    return [entry for entry in group.pending.values() if entry.promised >= 0] if group.promises else []


def _first(entries: list[TaskEntry], n: int) -> list[TaskEntry]:
    return entries if n == len(entries) else entries[:n]


def waits_for(group: GroupEntry, step: Step, refusals: Sequence[Refusal], placer: Placer) -> Waits:
    """What would help a step that failed."""
    waits = Waits(rows={entry.promised for entry in promised(group)})
    for refusal in refusals:
        if refusal.queue:
            waits.queues.add(refusal.queue)
        elif not refusal.permanent:
            waits.anything = True
    classes = {run.cls for run in step.runs}
    for cls in classes:
        cls.refresh()
        if placer.constraints(cls):
            waits.domains.add(cls)
    (first, *others) = classes
    if not others and not waits.domains and first.total < step.members:
        waits.room[first] = step.members
    elif not refusals or others or waits.domains:
        waits.any_room |= classes
    return waits
