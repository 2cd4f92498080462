"""The search for the units that make room for one claim.

It looks for the shortest beginning of the units' order that makes room, then spares what it can, dearest
first. As more victims never make less room, the set found spares the dearest unit that can be spared, then
the next dearest, and so on: no other set within the rules is cheaper by that measure.

* **Counting**: a step of one class that no policy ties to other pods is searched on amounts alone
  (:mod:`windlass.engine.pending.capacity_if_evicted`); only the result is placed.
* **Trying**: any other step is placed for each trial, a bounded number of times.

A step that queues refuse, not nodes, is searched by trying, and nobody is spared for having room.
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
"""How many times a step that has to be placed to be judged is placed for one claim."""
EAGER = 64
"""After so many units that did not do it is asked whether all of them would."""


@dataclass(frozen=True, slots=True)
class SearchContext:
    """What a search works with."""

    state: ClusterState
    plugins: PluginSet
    gang_allocator: GangAllocator
    statement: Statement
    relocator: Relocator


@dataclass(slots=True)
class LazyVictimOrder:
    """The units in order, drawn as far as they were needed."""

    source: Iterator[PooledVictimSet]
    units: list[PooledVictimSet] = field(default_factory=list)

    def reach(self, n: int) -> bool:
        """Draw until there are ``n``; whether there are."""
        while len(self.units) < n:
            unit = next(self.source, None)
            if unit is None:
                return False
            self.units.append(unit)
        return True

    def rest(self, n: int) -> list[PooledVictimSet]:
        """All of them after the first ``n``."""
        self.units.extend(self.source)
        return self.units[n:]


class VictimSearch:
    """The search for one claim."""

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
        """Whether room alone is missing: then whoever has room again may stay."""
        self._strategies = tools.relocator.strategies
        if terms.only is not None:
            self._strategies = (RelocationStrategy.IN_TURN, *self._strategies)
        self._trials = TRIALS
        self._moves = False
        """Whether some of those that go have another place."""
        self.possible: Callable[[], bool] = lambda: True
        """Whether the step could fit if everybody who may be asked to go were gone."""
        self.packs: Callable[[Sequence[PooledVictimSet]], bool] = lambda _: True
        """Whether the step, and these that go, could all have a place, as far as amounts tell."""

    def without_victims(self) -> bool:
        """Place the step with nobody going; nothing stands if that does not do."""
        return self._carry_out(())

    # ------------------------------------------------------------------ without moving anybody

    def plain(self, order: LazyVictimOrder) -> list[PooledVictimSet] | None:
        """The cheapest set of units of which each is allowed to go."""
        if self._counted:
            chosen = self._by_counting(order)
            if chosen is None:
                return None
            if chosen and self._carry_out(chosen):
                return self._judged(chosen)
        chosen = self._by_trying(order)
        return self._judged(chosen) if chosen is not None else None

    def _judged(self, units: list[PooledVictimSet]) -> list[PooledVictimSet] | None:
        """The units that are left once those that need not go are spared, if the rules let them go."""
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
        """The cheapest set that makes room, by amounts."""
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
        """The cheapest set that makes room, found by placing the step; it stands in the statement."""
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
        """The length of the shortest beginning with which the step can be placed."""
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

    # ------------------------------------------------------------------ with moving

    def moving(self, order: LazyVictimOrder, tries: int) -> list[PooledVictimSet] | None:
        """The shortest beginning that makes room and, with those that can be moved left out, is within
        the rules."""
        first = self._first_that_fits(order)
        if first is None:
            return None
        named = self._terms.only is not None
        for n in range(first, first + tries):
            if not order.reach(n) or self._trials <= 0:
                return None
            units, later = order.units[:n], order.rest(n) if named else []
            if not self.packs([*units, *later]):
                self._trials -= len(self._strategies)  # none would do
                continue
            found = self._moved(units, later)
            if found is not None:
                return found if named else self._fewer(units, found)
        return None

    def _fewer(self, units: list[PooledVictimSet], found: list[PooledVictimSet]) -> list[PooledVictimSet]:
        """Some of ``found`` if they do alone: nobody moves for room that others leave anyway."""
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
        """Those that go so that the step has room, all of which that must have a place having one. ``later``:
        they go once the step is placed, for the others to have their places."""
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
        """What the step's class finds, in one domain if the group has to be in one."""
        domains = self._gang_allocator.domain_selector.domains(self._group) if self._group.near else None
        return CapacityIfEvicted(self._state.table, self._step.batches[0].cls, domains=domains)

    def _fill(self, room: CapacityIfEvicted, order: LazyVictimOrder) -> int | None:
        """Let units go until there is room; how many it takes. Whether it can ever do is asked once it has
        taken a while."""
        n = 0
        while room.total < self._step.members:
            if (n == EAGER and not self.possible()) or not order.reach(n + 1):
                return None
            room.change(order.units[n].entries, 1)
            n += 1
        return n

    # ------------------------------------------------------------------ parts

    def _carry_out(self, units: Sequence[PooledVictimSet], later: Sequence[PooledVictimSet] = ()) -> bool:
        """Evict the units, place the step, and evict the later ones. On failure the statement is empty."""
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
        """Whether the rules let these go, in this order, for good. ``going``: with those that are moved."""
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
    """The groups whose core goes. Their extras would serve nothing alone, so they go too."""
    return {unit.group.key for unit in units if unit.view.core}
