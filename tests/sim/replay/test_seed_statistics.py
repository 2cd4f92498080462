"""Figures over several seeds."""

from __future__ import annotations

from statistics import mean, stdev
from typing import Any

import pytest

from windlass.sim.replay.metrics import Metrics
from windlass.sim.replay.seed_statistics import over_seeds


def run(seed: int, **figures: Any) -> Metrics:
    return Metrics("fifo", {"policy": "fifo", **figures, "seed": seed})


def test_every_number_has_a_mean_and_a_spread_wherever_it_stands() -> None:
    waits = [10.0, 20.0, 60.0]
    told = over_seeds(
        [
            run(seed, jobs=5, queue={"mean": wait, "p50": None})
            for seed, wait in zip((3, 4, 9), waits, strict=True)
        ]
    ).figures
    assert told["queue"] == {"mean": mean(waits), "p50": None}
    assert told["spread"]["queue"] == {"mean": pytest.approx(stdev(waits), abs=1e-4), "p50": None}
    assert (told["policy"], told["seeds"]) == ("fifo", [3, 4, 9])
    assert (told["jobs"], told["spread"]["jobs"]) == (5, 0)
    assert isinstance(told["jobs"], int)


def test_what_one_run_has_not_has_no_mean() -> None:
    told = over_seeds([run(1, wait=5.0), run(2, wait=None)]).figures
    assert (told["wait"], told["spread"]["wait"]) == (None, None)


def test_one_run_is_as_it_is() -> None:
    alone = Metrics("fifo", {"policy": "fifo", "wait": 5.0})
    assert over_seeds([alone]) is alone
    with pytest.raises(ValueError, match="no run"):
        over_seeds([])
