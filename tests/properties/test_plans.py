"""Whatever the cluster: a plan over-commits nothing, starts no part of a gang, evicts only for a gang that
fits, and comes to rest."""

from __future__ import annotations

from collections import Counter

from example_counts import examples
from hypothesis import HealthCheck, given, settings
from random_plans import Planned, Scene, scenes

FEW = settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.too_slow])


def check(scene: Scene) -> None:
    planned = Planned(scene)
    planned.judge()
    assert planned.plan.stable
    assert planned.more(5) == []
    assert max(Counter(gone.pod for gone in planned.plan.evictions).values(), default=0) <= 2
    waiting = [pod for entry in planned.plan.waiting for pod in entry.pods]
    assert len(waiting) == len(set(waiting))


@FEW
@given(scenes(volcano=False))
def test_kai(scene: Scene) -> None:
    check(scene)


@FEW
@given(scenes(kai=False))
def test_volcano(scene: Scene) -> None:
    check(scene)


@FEW
@given(scenes())
def test_both_apis_at_once(scene: Scene) -> None:
    check(scene)
