"""The live scheduler and the simulator decide the same where nodes fail, are cordoned and drained, gangs grow and
shrink, jobs take parts of cards or cards of a model, and end before or after what was said of them; by Windlass' own
policy, by Volcano's as its chart configures it, and in KAI's queues."""

from __future__ import annotations

from typing import cast

import pytest
from random_scenes import scene
from service_replay import Scene, again, live_policy, lived, played, same, simulated

from windlass.model import scheduler_config
from windlass.sim.jobs import TraceJob
from windlass.sim.replay.job_progress import JobRun
from windlass.sim.replay.policies import KAI, PolicyContext
from windlass.sim.replay.task_factory import TaskFactory
from windlass.spi.objects import Dialect


@pytest.mark.parametrize(
    ("policy", "features", "seed", "restarts"),
    [
        ("windlass", "elastic estimates", 1, 3),
        ("windlass", "elastic failures sharing", 16, 3),
        ("windlass", "elastic failures sharing", 2, 3),
        ("windlass", "failures fractions priorities", 3, 1),
        ("windlass", "drains models", 4, 1),
        ("windlass", "elastic fractions queues", 13, 3),
        ("windlass", "drains estimates failures", 6, 1),
        ("kai", "models priorities", 7, 1),
        ("kai", "elastic failures fractions", 19, 3),
        ("kai", "drains estimates priorities", 9, 1),
        ("volcano", "elastic failures", 10, 3),
        ("volcano", "drains queues", 11, 1),
        ("volcano", "fractions failures estimates", 12, 3),
    ],
)
async def test_so_they_do_whatever_happens(policy: str, features: str, seed: int, restarts: int) -> None:
    drawn = scene(seed, features.split(), policy, 16)
    expected = simulated(drawn)
    assert same(await lived(drawn), expected)
    assert again(expected) >= restarts, "what was drawn had somebody start again, or with more or fewer pods"


@pytest.mark.parametrize(("priority", "began"), [(99, 100.0), (100, 1000.0)])
async def test_by_kais_rule_only_who_is_below_priority_100_goes_for_others(
    priority: int, began: float
) -> None:
    jobs = [
        TraceJob("first", 0.0, 1000.0, 8, queue="a", priority=priority),
        TraceJob("later", 100.0, 500.0, 8, queue="a", priority=2000),
    ]
    config = scheduler_config.parse(KAI).config
    made = Scene(jobs, config, {"a": {"deserved": 16}}, "1x8", Dialect.KAI)
    assert {one.job.id: one.started for one in played(made).jobs} == {"first": 0.0, "later": began}
    assert same(await lived(made), simulated(made))


@pytest.mark.parametrize(("dialect", "seconds"), [(Dialect.KAI, 60.0), (Dialect.VOLCANO, None)])
def test_by_kais_rule_a_gang_below_its_minimum_gives_up_what_it_holds(
    dialect: Dialect, seconds: float | None
) -> None:
    """As live: in the simulator it would keep it for ever."""
    made = live_policy(scheduler_config.parse(KAI).config, dialect).make(cast(PolicyContext, None))
    run = JobRun(0, "sim/0", TraceJob("first", 0.0, 1000.0, 8, min_gpus=4))
    TaskFactory(made, 8).enrol(run, 0.0)
    assert run.group is not None
    assert run.group.stale_grace == seconds


def test_a_difference_would_be_seen() -> None:
    drawn = scene(2, ("elastic", "failures"), "windlass", 16)
    expected = simulated(drawn)
    (moment, name, shape), *others = expected
    assert not same([(moment + 1.0, name, shape), *others], expected)
    assert not same(others, expected)
