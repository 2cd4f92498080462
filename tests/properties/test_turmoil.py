"""Whatever is known of gangs, pods, nodes and time changes under way: the books are right after every cycle (see
``cluster_dsl.Cluster.cycle``), and a copy decides as the original."""

from __future__ import annotations

import pytest
from engine_fuzz import Op, twin_world
from engine_fuzz_changes import CONFIGS, Rough, config_of, rough, turmoil, turmoils
from example_counts import examples
from hypothesis import example, given, settings
from hypothesis import strategies as st

from windlass.engine.decision import Decision
from windlass.engine.engine import Engine
from windlass.plugins.defaults import default_plugins


@example(turmoil(91, 131), 91)  # a queue is made below one in which work runs
@example(turmoil(187, 117), 187)  # an elastic group waits for too long for more than it was promised
@example(turmoil(301, 121), 301)  # a grace is taken back
@settings(max_examples=examples(25), deadline=None)
@given(turmoils(), st.integers(0, CONFIGS - 1))
def test_whatever_changes_the_books_are_right_and_a_copy_decides_alike(history: list[Op], how: int) -> None:
    cluster = rough([*history, Op("cycle")], config_of(how)).cluster
    engine, now = cluster.engine, cluster.now
    written = engine.dump()
    copy = Engine.load(written, default_plugins())
    assert copy.dump() == written
    for seconds in (1.0, 2.0, 3.0):
        ours, theirs = engine.cycle(now + seconds), copy.cycle(now + seconds)
        assert (ours.binds, ours.evictions, ours.nominations) == (
            theirs.binds,
            theirs.evictions,
            theirs.nominations,
        )


@example(turmoil(55, 115), turmoil(1_000_055, 60), 55)  # the first of a strict line has been removed, unseen
@example(
    turmoil(62, 62), turmoil(1_000_062, 60), 62
)  # claims that are not tried again as long as something stands
@settings(max_examples=examples(15), deadline=None)
@given(turmoils(), turmoils(40), st.integers(0, CONFIGS - 1))
def test_copy_continues_like_the_original(before: list[Op], after: list[Op], how: int) -> None:
    """The state of failed preemptions shows only later."""
    player = rough(before, config_of(how))
    engine = player.cluster.engine
    twin = Rough(twin_world(player.cluster, Engine.load(engine.dump(), default_plugins())))
    twin.number, twin.forgotten = player.number, list(player.forgotten)
    player.decisions.clear()
    follow = [*after, Op("cycle"), Op("cycle")]
    assert _decided(twin.play(follow)) == _decided(player.play(follow))


def _decided(decisions: list[Decision]) -> list[object]:
    return [(decision.binds, decision.evictions, decision.nominations) for decision in decisions]


@pytest.mark.parametrize("how", range(0, CONFIGS, 19))
def test_in_such_histories_much_is_decided(how: int) -> None:
    """They are not so rough that nothing is left to go wrong."""
    decisions = [d for seed in range(2) for d in rough(turmoil(seed, 120), config_of(how)).decisions]
    assert sum(len(decision.binds) for decision in decisions) >= 10
