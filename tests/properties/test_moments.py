"""At no moment does the engine decide without end, whatever it is given: small clusters and crowds of every queue API,
with most actions and settings, on a cluster that executes each decision at once (:mod:`instant_cluster`). Failures
that were found are kept in ``tests/engine/preemption/test_moments.py``, each as small as it gets.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from example_counts import examples
from hypothesis import example, given, settings
from hypothesis import strategies as st
from instant_cluster import Case, World, arrive, play, settle
from instant_cluster_cases import BOTH, KAI, OWN, SHARING, TIERS, drawn

KINDS = (OWN, KAI, BOTH, SHARING, TIERS)


@example(592, BOTH)  # CPUs that no queue of Volcano's deserves were reclaimed with the GPUs
@example(637, BOTH)  # a second promise of room that a guarantee needs
@example(5312, TIERS)  # three groups of two queues without stated shares reclaimed from one another
@example(5327, TIERS)  # others went again and again for a part of a gang that was not started
@settings(max_examples=examples(30), deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(KINDS))
def test_every_moment_comes_to_rest(seed: int, kind: str) -> None:
    case = drawn(seed, kind)
    for lingers in (False, True):
        _, faults = play(replace(case, lingers=lingers))
        assert "no end" not in faults


def said(case: Case, *, copies: bool) -> list[list[str]]:
    """Return the decisions at each time.

    ``copies``: by engines that load the dump of the previous one at the arrival of each
    gang.
    """
    world, found = World(case), []
    for arrival in case.arrivals:
        ended = arrive(world, arrival)
        found += [] if ended is None else [ended.said]
        if copies:
            world.take_up()
    return [*found, settle(world).said]


@settings(max_examples=examples(20), deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(KINDS))
def test_a_copy_goes_on_as_the_original(seed: int, kind: str) -> None:
    case = drawn(seed, kind)
    assert said(case, copies=True) == said(case, copies=False)


@pytest.mark.parametrize("kind", KINDS)
def test_in_such_crowds_there_is_something_to_end(kind: str) -> None:
    found = 0
    for seed in range(30):
        world = World(drawn(seed, kind))
        for arrival in world.case.arrivals:
            ended = arrive(world, arrival)
            found += ended.evicted.total() if ended is not None else 0
        found += settle(world).evicted.total()
    assert found >= 5
