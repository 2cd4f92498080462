"""Placement of sub-groups with topology constraints (level: sub-group).

Each sub-group is placed in a domain of its own, inside the domain of its parent.
Sub-groups are placed in order, each in the best domain that takes it. If a later one
fits in no domain, earlier ones are tried in their next best, up to a limit. Thus a
feasible placement of a small gang is found. A gang with very many sub-groups is placed
without backtracking.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Generic, Protocol, TypeVar

from windlass.engine.groups.entries import GroupEntry, MissingSubGroup, TaskBatch
from windlass.engine.placement.domain_selector import DomainSelector
from windlass.engine.placement.placer import Placer
from windlass.engine.placement.topology_domains import DomainRows

MAX_ROLLBACKS = 128
"""Maximum number of placements that are undone for one group."""
MAX_BACKTRACKED = 64
"""Maximum number of sub-groups that are placed with backtracking."""

Then = Callable[[], bool]


class SubGroupTrial(Protocol):
    """Attempt to place a group, as far as sub-groups use it."""

    @property
    def group(self) -> GroupEntry: ...

    @property
    def future(self) -> bool: ...

    def mark(self) -> Any:
        """Return a mark for :meth:`undo`."""
        ...

    def undo(self, mark: Any) -> None:
        """Undo everything since ``mark``."""
        ...


T = TypeVar("T", bound=SubGroupTrial)


class SubGroupFiller(Generic[T]):
    """Completes sub-groups. ``place``: places up to a number of tasks of a batch for a
    sub-group.
    """

    def __init__(
        self, placer: Placer, domain_selector: DomainSelector, place: Callable[[T, TaskBatch, int, str], int]
    ) -> None:
        self._placer = placer
        self._domain_selector = domain_selector
        self._place = place
        self._rollbacks_left = 0

    def complete(self, trial: T, subgroup: MissingSubGroup) -> bool:
        """Complete a sub-group with the required children. On failure the trial is as before."""
        self._rollbacks_left = MAX_ROLLBACKS
        if _count(subgroup) > MAX_BACKTRACKED:
            return self._complete_greedily(trial, subgroup)
        return self._complete_and(trial, subgroup, _yes)

    def _scopes(self, trial: T, subgroup: MissingSubGroup) -> Iterator[DomainRows | None]:
        outer = self._placer.scope
        if subgroup.name not in trial.group.subgroup_topologies:
            yield outer
            return
        yield from self._domain_selector.subgroup_candidates(
            trial.group, subgroup, outer, future=trial.future
        )

    # ------------------------------------------------------------------ with second thoughts

    def _complete_and(self, trial: T, subgroup: MissingSubGroup, then: Then) -> bool:
        """Complete a sub-group, then call ``then``, which places what follows."""
        outer = self._placer.scope
        for scope in self._scopes(trial, subgroup):
            mark = trial.mark()
            with self._placer.within(scope):
                done = self._place_own(trial, subgroup) and self._complete_children(
                    trial, subgroup, 0, 0, self._outside(outer, then)
                )
            if done:
                return True
            trial.undo(mark)
            self._rollbacks_left -= 1
            if self._rollbacks_left <= 0:
                return False
        return False

    def _complete_children(self, trial: T, subgroup: MissingSubGroup, at: int, done: int, then: Then) -> bool:
        """Complete the required children from index ``at`` on. ``done``: number of complete ones."""
        if done == subgroup.needed_children:
            return then()
        if len(subgroup.children) - at < subgroup.needed_children - done or self._rollbacks_left <= 0:
            return False
        if self._complete_and(
            trial,
            subgroup.children[at],
            lambda: self._complete_children(trial, subgroup, at + 1, done + 1, then),
        ):
            return True
        return self._complete_children(trial, subgroup, at + 1, done, then)

    def _outside(self, outer: DomainRows | None, then: Then) -> Then:
        def go_on() -> bool:
            with self._placer.within(outer):
                return then()

        return go_on

    # ------------------------------------------------------------------ without

    def _complete_greedily(self, trial: T, subgroup: MissingSubGroup) -> bool:
        for scope in self._scopes(trial, subgroup):
            mark = trial.mark()
            with self._placer.within(scope):
                if self._place_own(trial, subgroup) and self._children_greedily(trial, subgroup):
                    return True
            trial.undo(mark)
        return False

    def _children_greedily(self, trial: T, subgroup: MissingSubGroup) -> bool:
        done = 0
        for child in subgroup.children:
            if done == subgroup.needed_children:
                break
            done += self._complete_greedily(trial, child)
        return done == subgroup.needed_children

    def _place_own(self, trial: T, subgroup: MissingSubGroup) -> bool:
        missing = subgroup.members
        for batch in subgroup.batches:
            if not missing:
                break
            missing -= self._place(trial, batch, min(missing, len(batch.entries)), subgroup.name)
        return not missing


def _yes() -> bool:
    return True


def _count(subgroup: MissingSubGroup) -> int:
    return 1 + sum(_count(below) for below in subgroup.children)
