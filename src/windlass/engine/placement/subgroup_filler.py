"""Completing the parts of a gang, each in a domain of its own inside that of the part above it.

Parts are placed one after the other, each in the best domain that takes it. Where a later one then finds none,
earlier ones are tried in their next best, a bounded number of times; so what a small gang asks for is found if
it can be had at all. A gang of very many parts is placed without second thoughts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Generic, Protocol, TypeVar

from windlass.engine.groups.entries import GroupEntry
from windlass.engine.groups.next_step import MissingSubGroup, TaskBatch
from windlass.engine.placement.domain_selector import DomainSelector
from windlass.engine.placement.placer import Placer
from windlass.engine.placement.topology_domains import DomainRows

SECOND_THOUGHTS = 128
"""How many placements are taken back for one step."""
MANY = 64
"""Of more parts than this, each is placed for itself."""

Then = Callable[[], bool]


class SubGroupTrial(Protocol):
    """The try of a step, as far as it concerns parts."""

    @property
    def group(self) -> GroupEntry: ...

    @property
    def future(self) -> bool: ...

    def mark(self) -> Any:
        """The state of the try, to come back to."""
        ...

    def undo(self, mark: Any) -> None:
        """Come back to a state."""
        ...


T = TypeVar("T", bound=SubGroupTrial)


class SubGroupFiller(Generic[T]):
    """``place`` places up to so many tasks of a run for a part."""

    def __init__(
        self, placer: Placer, domain_selector: DomainSelector, place: Callable[[T, TaskBatch, int, str], int]
    ) -> None:
        self._placer = placer
        self._domain_selector = domain_selector
        self._place = place
        self._left = 0

    def complete(self, trial: T, part: MissingSubGroup) -> bool:
        """Complete a part with what it needs below it. On failure the try is left as it was."""
        self._left = SECOND_THOUGHTS
        if _parts(part) > MANY:
            return self._each(trial, part)
        return self._nest(trial, part, _yes)

    def _scopes(self, trial: T, part: MissingSubGroup) -> Iterator[DomainRows | None]:
        outer = self._placer.scope
        if part.name not in trial.group.near_parts:
            yield outer
            return
        yield from self._domain_selector.of_part(trial.group, part, outer, future=trial.future)

    # ------------------------------------------------------------------ with second thoughts

    def _nest(self, trial: T, part: MissingSubGroup, then: Then) -> bool:
        """Complete a part and go on with ``then``, which is for what comes after it."""
        outer = self._placer.scope
        for scope in self._scopes(trial, part):
            mark = trial.mark()
            with self._placer.within(scope):
                done = self._own(trial, part) and self._below(trial, part, 0, 0, self._outside(outer, then))
            if done:
                return True
            trial.undo(mark)
            self._left -= 1
            if self._left <= 0:
                return False
        return False

    def _below(self, trial: T, part: MissingSubGroup, at: int, done: int, then: Then) -> bool:
        """Complete as many of the parts below as are needed, from the ``at``-th on, ``done`` being complete."""
        if done == part.needed:
            return then()
        if len(part.parts) - at < part.needed - done or self._left <= 0:
            return False
        if self._nest(trial, part.parts[at], lambda: self._below(trial, part, at + 1, done + 1, then)):
            return True
        return self._below(trial, part, at + 1, done, then)

    def _outside(self, outer: DomainRows | None, then: Then) -> Then:
        def go_on() -> bool:
            with self._placer.within(outer):
                return then()

        return go_on

    # ------------------------------------------------------------------ without

    def _each(self, trial: T, part: MissingSubGroup) -> bool:
        for scope in self._scopes(trial, part):
            mark = trial.mark()
            with self._placer.within(scope):
                if self._own(trial, part) and self._children(trial, part):
                    return True
            trial.undo(mark)
        return False

    def _children(self, trial: T, part: MissingSubGroup) -> bool:
        done = 0
        for child in part.parts:
            if done == part.needed:
                break
            done += self._each(trial, child)
        return done == part.needed

    def _own(self, trial: T, part: MissingSubGroup) -> bool:
        left = part.members
        for batch in part.batches:
            if not left:
                break
            left -= self._place(trial, batch, min(left, len(batch.entries)), part.name)
        return not left


def _yes() -> bool:
    return True


def _parts(part: MissingSubGroup) -> int:
    return 1 + sum(_parts(below) for below in part.parts)
