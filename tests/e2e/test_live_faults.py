"""Faults of a real cluster under load, a seeded round of each; `make chaos` plays each thirty times."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from example_counts import seeds
from fault_rounds import FAULTS, World, run_round
from realkube import REQUIRED, need

SEED = 1001

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    need(*REQUIRED[:2])
    made = World(tmp_path_factory.mktemp("faults"))
    made.start()
    yield made
    made.stop()


@pytest.mark.seeds
@pytest.mark.parametrize("fault", seeds(FAULTS, 4))
def test_gangs_stay_whole_and_nodes_within_what_they_have(world: World, fault: str) -> None:
    outcome = run_round(world, SEED, fault)
    assert not outcome.problems, outcome
    assert outcome.binds >= 30, outcome
