"""Search for the victim sets of one preemption.

The search finds the shortest prefix of the victim order that frees enough. Then it
protects what it can, the costliest victim first. More victims never free less, so the
result protects the costliest victim set that can be protected, then the next costliest,
and so on. By this measure no other result within the rules is cheaper.

* **Counting**: a step of one class that no plugin ties to other pods is searched by
  resources alone (:mod:`windlass.engine.pending.capacity_if_evicted`). Only the result
  is placed.
* **Trying**: any other step is placed for each trial, a bounded number of times.

A step that queue limits reject, not nodes, is searched by trying. No victim is then
protected for having capacity.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from windlass.engine.groups.entries import GroupEntry, NextTasks
from windlass.engine.pending.capacity_if_evicted import CapacityIfEvicted
from windlass.engine.placement.gang_allocator import GangAllocator
from windlass.engine.plugin_set import PluginSet
from windlass.engine.preemption.relocation import ANYWHERE, RelocationStrategy, Relocator
from windlass.engine.state.cluster_state import ClusterState
from windlass.engine.state.statement import Statement
from windlass.engine.victims.victim_pool import FreedByQueue, PooledVictimSet
from windlass.spi.victims import FreedResources, Preemption, PreemptionTerms, RelocationMode

MAX_TRIALS = 48
"""Maximum number of trial placements of the step for one preemption."""
CHECK_AFTER = 64
"""Number of victim sets after which the search checks whether all of them could free enough."""


@dataclass(frozen=True, slots=True)
class SearchContext:
    """Dependencies of a search."""

    state: ClusterState
    plugins: PluginSet
    gang_allocator: GangAllocator
    statement: Statement
    relocator: Relocator


@dataclass(slots=True)
class LazyVictimOrder:
    """Victim sets in order, drawn from the source as needed."""

    source: Iterator[PooledVictimSet]
    victim_sets: list[PooledVictimSet] = field(default_factory=list)

    def reach(self, n: int) -> bool:
        """Draw until there are ``n``. Return whether there are."""
        while len(self.victim_sets) < n:
            victim_set = next(self.source, None)
            if victim_set is None:
                return False
            self.victim_sets.append(victim_set)
        return True

    def after(self, n: int) -> list[PooledVictimSet]:
        """Return all victim sets after the first ``n``."""
        self.victim_sets.extend(self.source)
        return self.victim_sets[n:]


class VictimSearch:
    """Search for one preemption."""

    def __init__(
        self,
        context: SearchContext,
        preemption: Preemption,
        terms: PreemptionTerms,
        group: GroupEntry,
        step: NextTasks,
        *,
        counted: bool,
        may_protect: bool,
    ) -> None:
        self._state = context.state
        self._plugins = context.plugins
        self._gang_allocator = context.gang_allocator
        self._statement = context.statement
        self._relocator = context.relocator
        self._preemption = preemption
        self._terms = terms
        self._group = group
        self._step = step
        self._counted = counted
        self._may_protect = may_protect
        """True if only capacity is missing; victims that fit again may then stay."""
        self._strategies = context.relocator.strategies
        if terms.only is not None:
            self._strategies = (RelocationStrategy.IN_ORDER, *self._strategies)
        self._trials = MAX_TRIALS
        self._has_moves = False
        """True if some of the victims have another place."""
        self.is_possible: Callable[[], bool] = lambda: True
        """Function that returns whether the step could fit without any of the candidates."""
        self.could_pack: Callable[[Sequence[PooledVictimSet]], bool] = lambda _: True
        """Function that returns whether the step and these victims could all fit, by resources."""

    def without_victims(self) -> bool:
        """Place the step without evictions. If it does not fit, leave the statement empty."""
        return self._execute(())

    # ------------------------------------------------------------------ without relocations

    def without_moves(self, order: LazyVictimOrder) -> list[PooledVictimSet] | None:
        """Return the cheapest victim sets, each of which may be evicted."""
        if self._counted:
            chosen = self._by_counting(order)
            if chosen is None:
                return None
            if chosen and self._execute(chosen):
                return self._protect_and_validate(chosen)
        chosen = self._by_trying(order)
        return self._protect_and_validate(chosen) if chosen is not None else None

    def _protect_and_validate(self, victim_sets: list[PooledVictimSet]) -> list[PooledVictimSet] | None:
        """Return the victims that remain after protection, if the rules allow them."""
        staying: set[PooledVictimSet] = set()
        moved: set[PooledVictimSet] = set()
        if self._may_protect:
            staying, moved = self._relocator.find_places(
                victim_sets,
                move=self._terms.move is not RelocationMode.NEVER,
                needless=self._group.has_topology,
            )
        victims = [victim_set for victim_set in victim_sets if victim_set not in staying]
        if victims and self._is_allowed(
            [victim_set for victim_set in victims if victim_set not in moved], victims
        ):
            return victims
        self._statement.rollback()
        return None

    def _by_counting(self, order: LazyVictimOrder) -> list[PooledVictimSet] | None:
        """Return the cheapest victim sets that free enough, by resources."""
        wanted = self._step.members
        capacity = self._capacity()
        n = self._fill(capacity, order)
        if n is None:
            return None
        chosen = order.victim_sets[:n]
        losing_minimum = _without_minimum(chosen)
        for index in range(n - 2, -1, -1):
            victim_set = chosen[index]
            if victim_set.group.key in losing_minimum and not victim_set.view.is_minimum:
                continue
            capacity.change(victim_set.entries, -1)
            if capacity.total >= wanted:
                chosen[index : index + 1] = []
                losing_minimum.discard(victim_set.group.key)
            else:
                capacity.change(victim_set.entries, 1)
        return chosen

    def _by_trying(self, order: LazyVictimOrder) -> list[PooledVictimSet] | None:
        """Return the cheapest victim sets that free enough, by placing the step.

        It stays in the statement.
        """
        shortest = self._shortest(order)
        if shortest is None:
            return None
        chosen = order.victim_sets[:shortest]
        for index in range(shortest - 2, -1, -1):
            if self._trials <= 0:
                break
            if not chosen[index].view.is_minimum and chosen[index].group.key in _without_minimum(chosen):
                continue
            fewer = chosen[:index] + chosen[index + 1 :]
            if self._execute(fewer):
                chosen = fewer
            self._statement.rollback()
        return chosen if self._execute(chosen) else None

    def _shortest(self, order: LazyVictimOrder) -> int | None:
        """Return the length of the shortest prefix with which the step can be placed."""
        failed, fits, n = 0, 0, 1
        while True:
            has_enough = order.reach(n)
            n = min(n, len(order.victim_sets))
            if n == failed:
                return None
            if self._trial(order.victim_sets[:n]):
                fits = n
                break
            failed = n
            if not has_enough or self._trials <= 0:
                return None
            n *= 2
        while fits - failed > 1 and self._trials > 0:
            middle = (fits + failed) // 2
            if self._trial(order.victim_sets[:middle]):
                fits = middle
            else:
                failed = middle
        return fits

    def _trial(self, victim_sets: Sequence[PooledVictimSet]) -> bool:
        done = self._execute(victim_sets)
        self._statement.rollback()
        return done

    # ------------------------------------------------------------------ with relocations

    def with_moves(self, order: LazyVictimOrder, tries: int) -> list[PooledVictimSet] | None:
        """Return the victims of the shortest prefix that frees enough and stays within the rules.

        Victims that can be moved do not count for the rules.
        """
        first = self._first_that_fits(order)
        if first is None:
            return None
        is_named = self._terms.only is not None
        for n in range(first, first + tries):
            if not order.reach(n) or self._trials <= 0:
                return None
            victim_sets, later = order.victim_sets[:n], order.after(n) if is_named else []
            if not self.could_pack([*victim_sets, *later]):
                self._trials -= len(self._strategies)  # no strategy would work
                continue
            result = self._place_moved(victim_sets, later)
            if result is not None:
                return result if is_named else self._needed_only(victim_sets, result)
        return None

    def _needed_only(
        self, victim_sets: list[PooledVictimSet], result: list[PooledVictimSet]
    ) -> list[PooledVictimSet]:
        """Return a part of the victims that is enough alone.

        No task then moves needlessly, and no task is evicted because it may not move.
        """
        if self._terms.move is not RelocationMode.MAY:
            return result
        if not self._has_moves and all(map(self._relocator.was_movable, result)):
            return result
        self._statement.rollback()
        fewer = self.without_moves(LazyVictimOrder(iter(victim_sets)))
        if fewer is not None and set(fewer) < set(result):
            return fewer
        self._statement.rollback()
        repeated = self._place_moved(victim_sets, [])
        if repeated is None:
            raise RuntimeError(f"what made room for {self._group.key} does so no more")
        return repeated

    def _place_moved(
        self, victim_sets: list[PooledVictimSet], later: list[PooledVictimSet]
    ) -> list[PooledVictimSet] | None:
        """Return the victims, if the step fits and all victims that must have a place have one.

        ``later``: evicted after the step is placed, so that the others get their
        places.
        """
        all_sets = [*victim_sets, *later]
        must = self._terms.move is RelocationMode.MUST
        for strategy in self._strategies:
            if not self._execute(victim_sets, later):
                return None
            staying, moved = self._relocator.find_places(
                all_sets,
                move=True,
                strategy=strategy,
                needless=self._group.has_topology,
                places=self._terms.place_of if strategy is RelocationStrategy.IN_ORDER else ANYWHERE,
                whole=must,
            )
            victims = [victim_set for victim_set in all_sets if victim_set not in staying]
            charged = [victim_set for victim_set in victims if victim_set not in moved]
            if victims and not (must and charged) and self._is_allowed(charged, victims):
                self._has_moves = len(charged) < len(victims)
                return victims
            self._statement.rollback()
        return None

    def _first_that_fits(self, order: LazyVictimOrder) -> int | None:
        if not self._counted:
            return self._shortest(order)
        return self._fill(self._capacity(), order) or None

    def _capacity(self) -> CapacityIfEvicted:
        """Return the capacity for the step's class, in one domain if the group requires one."""
        domains = (
            self._gang_allocator.domain_selector.domains(self._group) if self._group.has_topology else None
        )
        return CapacityIfEvicted(self._state.table, self._step.batches[0].cls, domains=domains)

    def _fill(self, capacity: CapacityIfEvicted, order: LazyVictimOrder) -> int | None:
        """Add victim sets until the step fits. Return their number.

        After a while, the search checks whether it can succeed at all.
        """
        n = 0
        while capacity.total < self._step.members:
            if (n == CHECK_AFTER and not self.is_possible()) or not order.reach(n + 1):
                return None
            capacity.change(order.victim_sets[n].entries, 1)
            n += 1
        return n

    # ------------------------------------------------------------------ details

    def _execute(self, victim_sets: Sequence[PooledVictimSet], later: Sequence[PooledVictimSet] = ()) -> bool:
        """Evict the victims, place the step, and evict the later ones.

        On failure the statement is empty.
        """
        self._trials -= 1
        statement = self._statement
        self._evict(victim_sets)
        if self._gang_allocator.try_group(statement, self._group, self._step, future=True).done:
            self._evict(later)
            return True
        statement.rollback()
        return False

    def _evict(self, victim_sets: Sequence[PooledVictimSet]) -> None:
        for victim_set in victim_sets:
            for entry in victim_set.entries:
                self._statement.evict(entry, self._preemption.action, self._group.key)

    def _is_allowed(self, charged: Sequence[PooledVictimSet], victims: Sequence[PooledVictimSet]) -> bool:
        """Return whether the rules allow these victims in this order, and all together.

        ``victims``: includes moved victims.
        """
        freed_by_queue = FreedByQueue()
        rules = self._plugins.validations
        for victim_set in charged:
            if not all(
                rule.may_take(self._preemption, victim_set.view, freed_by_queue.by_queue) for rule in rules
            ):
                return False
            freed_by_queue.add(victim_set)
        freed = FreedResources(
            [unit.view for unit in charged], freed_by_queue.by_queue, [unit.view for unit in victims]
        )
        return all(rule.validates(self._preemption, freed) for rule in rules)


def _without_minimum(victim_sets: Sequence[PooledVictimSet]) -> set[str]:
    """Return the groups that lose their minimum. Their elastic members are evicted as well."""
    return {victim_set.group.key for victim_set in victim_sets if victim_set.view.is_minimum}
