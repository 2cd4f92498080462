"""Observation changes nothing: explanations, reports and written phases have no side effects.

An explanation places groups, ends runs and evicts pods tentatively. No trace of that
may affect a later preemption, nomination or rank. The live scheduler explains groups in
every cycle, and reads its own status a moment later; the simulator does neither.
"""

from __future__ import annotations

from cluster_dsl import Cluster
from engine_fuzz import Op, start
from engine_fuzz_changes import CONFIGS, Rough, config_of, turmoil, turmoils
from example_counts import examples
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace as altered

from windlass.engine.config import EngineConfig
from windlass.engine.decision import Bind, Decision, Eviction, Nomination

What = tuple[tuple[Bind, ...], tuple[Eviction, ...], tuple[Nomination, ...]]


def what(decision: Decision) -> What:
    return decision.binds, decision.evictions, decision.nominations


class Asking(Rough):
    """Scene in which all groups are explained before each cycle, and the dump must stay
    the same."""

    asked = 0

    def _ask(self) -> None:
        engine = self.cluster.engine
        before = engine.dump()
        for key, group in list(engine.state.groups.items()):
            if group.pending:
                self.asked += 1
                engine.explain(key, self.cluster.now)
        assert engine.dump() == before

    def _cycle(self, op: Op) -> None:
        self._ask()
        super()._cycle(op)

    def _jump(self, op: Op) -> None:
        self._ask()
        super()._jump(op)


class Confirming(Rough):
    """All that is decided is so at once, and what follows from that is decided at the same moment."""

    def _cycle(self, op: Op) -> None:
        self.decisions.append(self.cluster.cycle(1.0 + op.x % 3))
        while any(what(self.decisions[-1])):
            self.cluster.confirm()
            self.decisions.append(self.cluster.cycle(0.0))
        self._meanwhile()

    def _meanwhile(self) -> None:
        """Nothing happens."""


class Restless(Confirming):
    """Then there are other cycles, before the moment that was named: nothing is decided in them."""

    def _meanwhile(self) -> None:
        decision = self.decisions[-1]
        for seconds in (0.0, 0.01, 0.3, 0.7):
            now = self.cluster.now + seconds
            if decision.wake_at is not None and decision.wake_at <= now:
                break
            decision = self.cluster.engine.cycle(now)
            assert not any(what(decision))


class Echoing(Confirming):
    """Scene in which the admission of groups is read back after each cycle."""

    def _meanwhile(self) -> None:
        for key, group in list(self.cluster.groups.items()):
            if key not in self.forgotten and not group.admitted:
                self.cluster.group(altered(group, admitted=True))


def decided(player: Rough, history: list[Op]) -> list[What]:
    return [what(decision) for decision in player.play([*history, Op("cycle"), Op("cycle")])]


def of(config: EngineConfig, kind: type[Rough] = Rough) -> Rough:
    return kind(start(Cluster(config)))


@example(turmoil(1, 120), 1)
@settings(max_examples=examples(25), deadline=None)
@given(turmoils(), st.integers(0, CONFIGS - 1))
def test_asking_why_somebody_waits_leaves_no_trace(history: list[Op], how: int) -> None:
    player = of(config_of(how), Asking)
    player.play([*history, Op("cycle")])


@settings(max_examples=examples(25), deadline=None)
@given(turmoils(), st.integers(0, CONFIGS - 1))
def test_who_is_told_of_nothing_decides_as_who_tells_all(history: list[Op], how: int) -> None:
    config = config_of(how)
    silent = EngineConfig(
        actions=config.actions,
        backfill=config.backfill,
        aging_seconds=config.aging_seconds,
        best_effort_apart=config.best_effort_apart,
        move_hold_seconds=config.move_hold_seconds,
        reports=False,
    )
    assert decided(of(silent), history) == decided(of(config), history)


@settings(max_examples=examples(25), deadline=None)
@given(turmoils(), st.integers(0, CONFIGS - 1))
def test_however_many_cycles_there_are_the_same_is_decided(history: list[Op], how: int) -> None:
    config = config_of(how)
    assert decided(of(config, Restless), history) == decided(of(config, Confirming), history)


@settings(max_examples=examples(25), deadline=None)
@given(turmoils(), st.integers(0, CONFIGS - 1).filter(lambda how: config_of(how).actions[0] == "allocate"))
def test_a_phase_that_says_what_is_known_is_no_news(history: list[Op], how: int) -> None:
    config = config_of(how)
    assert decided(of(config, Echoing), history) == decided(of(config, Confirming), history)
