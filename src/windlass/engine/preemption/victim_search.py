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

from windlass.engine.groups.entries import GroupEntry
from windlass.engine.groups.next_step import NextTasks
from windlass.engine.pending.capacity_if_evicted import CapacityIfEvicted
from windlass.engine.placement.gang_allocator import GangAllocator
from windlass.engine.plugin_set import PluginSet
from windlass.engine.preemption.relocation import ANYWHERE, RelocationStrategy, Relocator
from windlass.engine.state.cluster_state import ClusterState
from windlass.engine.state.statement import Statement
from windlass.engine.victims.victim_pool import FreedByQueue, PooledVictimSet
from windlass.spi.victims import FreedResources, Preemption, PreemptionTerms, RelocationMode

TRIALS = 48
"""Maximum number of trial placements of the step for one preemption."""
EAGER = 64
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
    units: list[PooledVictimSet] = field(default_factory=list)

    def reach(self, n: int) -> bool:
        """Draw until there are ``n``. Return whether there are."""
        while len(self.units) < n:
            unit = next(self.source, None)
            if unit is None:
                return False
            self.units.append(unit)
        return True

    def rest(self, n: int) -> list[PooledVictimSet]:
        """Return all victim sets after the first ``n``."""
        self.units.extend(self.source)
        return self.units[n:]


class VictimSearch:
    """Search for one preemption."""

    def __init__(
        self,
        tools: SearchContext,
        preemption: Preemption,
        terms: PreemptionTerms,
        group: GroupEntry,
        step: NextTasks,
        *,
        counted: bool,
        spares: bool,
    ) -> None:
        self._state = tools.state
        self._plugins = tools.plugins
        self._gang_allocator = tools.gang_allocator
        self._statement = tools.statement
        self._relocator = tools.relocator
        self._claim = preemption
        self._terms = terms
        self._group = group
        self._step = step
        self._counted = counted
        self._spares = spares
        """True if only capacity is missing; victims that fit again may then stay."""
        self._strategies = tools.relocator.strategies
        if terms.only is not None:
            self._strategies = (RelocationStrategy.IN_TURN, *self._strategies)
        self._trials = TRIALS
        self._moves = False
        """True if some of the victims have another place."""
        self.possible: Callable[[], bool] = lambda: True
        """Function that returns whether the step could fit without any of the candidates."""
        self.packs: Callable[[Sequence[PooledVictimSet]], bool] = lambda _: True
        """Function that returns whether the step and these victims could all fit, by resources."""

    def without_victims(self) -> bool:
        """Place the step without evictions. If it does not fit, leave the statement empty."""
        return self._carry_out(())

    # ------------------------------------------------------------------ without relocations

    def plain(self, order: LazyVictimOrder) -> list[PooledVictimSet] | None:
        """Return the cheapest victim sets, each of which may be evicted."""
        if self._counted:
            chosen = self._by_counting(order)
            if chosen is None:
                return None
            if chosen and self._carry_out(chosen):
                return self._judged(chosen)
        chosen = self._by_trying(order)
        return self._judged(chosen) if chosen is not None else None

    def _judged(self, units: list[PooledVictimSet]) -> list[PooledVictimSet] | None:
        """Return the victims that remain after protection, if the rules allow them."""
        stay: set[PooledVictimSet] = set()
        moved: set[PooledVictimSet] = set()
        if self._spares:
            stay, moved = self._relocator.spare(
                units, move=self._terms.move is not RelocationMode.NEVER, needless=self._group.near
            )
        going = [unit for unit in units if unit not in stay]
        if going and self._valid([unit for unit in going if unit not in moved], going):
            return going
        self._statement.rollback()
        return None

    def _by_counting(self, order: LazyVictimOrder) -> list[PooledVictimSet] | None:
        """Return the cheapest victim sets that free enough, by resources."""
        wanted = self._step.members
        room = self._room()
        n = self._fill(room, order)
        if n is None:
            return None
        chosen = order.units[:n]
        cores = _cores(chosen)
        for at in range(n - 2, -1, -1):
            unit = chosen[at]
            if unit.group.key in cores and not unit.view.core:
                continue
            room.change(unit.entries, -1)
            if room.total >= wanted:
                chosen[at : at + 1] = []
                cores.discard(unit.group.key)
            else:
                room.change(unit.entries, 1)
        return chosen

    def _by_trying(self, order: LazyVictimOrder) -> list[PooledVictimSet] | None:
        """Return the cheapest victim sets that free enough, by placing the step.

        It stays in the statement.
        """
        shortest = self._shortest(order)
        if shortest is None:
            return None
        chosen = order.units[:shortest]
        for at in range(shortest - 2, -1, -1):
            if self._trials <= 0:
                break
            if not chosen[at].view.core and chosen[at].group.key in _cores(chosen):
                continue
            fewer = chosen[:at] + chosen[at + 1 :]
            if self._carry_out(fewer):
                chosen = fewer
            self._statement.rollback()
        return chosen if self._carry_out(chosen) else None

    def _shortest(self, order: LazyVictimOrder) -> int | None:
        """Return the length of the shortest prefix with which the step can be placed."""
        failed, works, n = 0, 0, 1
        while True:
            reached = order.reach(n)
            n = min(n, len(order.units))
            if n == failed:
                return None
            if self._trial(order.units[:n]):
                works = n
                break
            failed = n
            if not reached or self._trials <= 0:
                return None
            n *= 2
        while works - failed > 1 and self._trials > 0:
            middle = (works + failed) // 2
            if self._trial(order.units[:middle]):
                works = middle
            else:
                failed = middle
        return works

    def _trial(self, units: Sequence[PooledVictimSet]) -> bool:
        done = self._carry_out(units)
        self._statement.rollback()
        return done

    # ------------------------------------------------------------------ with relocations

    def moving(self, order: LazyVictimOrder, tries: int) -> list[PooledVictimSet] | None:
        """Return the victims of the shortest prefix that frees enough and stays within the rules.

        Victims that can be moved do not count for the rules.
        """
        first = self._first_that_fits(order)
        if first is None:
            return None
        named = self._terms.only is not None
        for n in range(first, first + tries):
            if not order.reach(n) or self._trials <= 0:
                return None
            units, later = order.units[:n], order.rest(n) if named else []
            if not self.packs([*units, *later]):
                self._trials -= len(self._strategies)  # no strategy would work
                continue
            found = self._moved(units, later)
            if found is not None:
                return found if named else self._fewer(units, found)
        return None

    def _fewer(self, units: list[PooledVictimSet], found: list[PooledVictimSet]) -> list[PooledVictimSet]:
        """Return a part of the victims that is enough alone, so that no task moves needlessly."""
        if self._terms.move is not RelocationMode.MAY or not self._moves:
            return found
        self._statement.rollback()
        fewer = self.plain(LazyVictimOrder(iter(units)))
        if fewer is not None and set(fewer) < set(found):
            return fewer
        self._statement.rollback()
        again = self._moved(units, [])
        if again is None:
            raise RuntimeError(f"what made room for {self._group.key} does so no more")
        return again

    def _moved(
        self, units: list[PooledVictimSet], later: list[PooledVictimSet]
    ) -> list[PooledVictimSet] | None:
        """Return the victims, if the step fits and all victims that must have a place have one.

        ``later``: evicted after the step is placed, so that the others get their
        places.
        """
        everyone = [*units, *later]
        must = self._terms.move is RelocationMode.MUST
        for strategy in self._strategies:
            if not self._carry_out(units, later):
                return None
            stay, moved = self._relocator.spare(
                everyone,
                move=True,
                strategy=strategy,
                needless=self._group.near,
                places=self._terms.place_of if strategy is RelocationStrategy.IN_TURN else ANYWHERE,
                whole=must,
            )
            going = [unit for unit in everyone if unit not in stay]
            charged = [unit for unit in going if unit not in moved]
            if going and not (must and charged) and self._valid(charged, going):
                self._moves = len(charged) < len(going)
                return going
            self._statement.rollback()
        return None

    def _first_that_fits(self, order: LazyVictimOrder) -> int | None:
        if not self._counted:
            return self._shortest(order)
        return self._fill(self._room(), order) or None

    def _room(self) -> CapacityIfEvicted:
        """Return the capacity for the step's class, in one domain if the group requires one."""
        domains = self._gang_allocator.domain_selector.domains(self._group) if self._group.near else None
        return CapacityIfEvicted(self._state.table, self._step.batches[0].cls, domains=domains)

    def _fill(self, room: CapacityIfEvicted, order: LazyVictimOrder) -> int | None:
        """Add victim sets until the step fits. Return their number.

        After a while, the search checks whether it can succeed at all.
        """
        n = 0
        while room.total < self._step.members:
            if (n == EAGER and not self.possible()) or not order.reach(n + 1):
                return None
            room.change(order.units[n].entries, 1)
            n += 1
        return n

    # ------------------------------------------------------------------ details

    def _carry_out(self, units: Sequence[PooledVictimSet], later: Sequence[PooledVictimSet] = ()) -> bool:
        """Evict the victims, place the step, and evict the later ones.

        On failure the statement is empty.
        """
        self._trials -= 1
        statement = self._statement
        self._evict(units)
        if self._gang_allocator.try_step(statement, self._group, self._step, future=True).done:
            self._evict(later)
            return True
        statement.rollback()
        return False

    def _evict(self, units: Sequence[PooledVictimSet]) -> None:
        for unit in units:
            for entry in unit.entries:
                self._statement.evict(entry, self._claim.action, self._group.key)

    def _valid(self, charged: Sequence[PooledVictimSet], going: Sequence[PooledVictimSet]) -> bool:
        """Return whether the rules allow these victims in this order, and all together.

        ``going``: includes moved victims.
        """
        taking = FreedByQueue()
        rules = self._plugins.validations
        for unit in charged:
            if not all(rule.may_take(self._claim, unit.view, taking.by_queue) for rule in rules):
                return False
            taking.add(unit)
        freed = FreedResources(
            [unit.view for unit in charged], taking.by_queue, [unit.view for unit in going]
        )
        return all(rule.validates(self._claim, freed) for rule in rules)


def _cores(units: Sequence[PooledVictimSet]) -> set[str]:
    """Return the groups that lose their minimum. Their elastic members are evicted as well."""
    return {unit.group.key for unit in units if unit.view.core}
