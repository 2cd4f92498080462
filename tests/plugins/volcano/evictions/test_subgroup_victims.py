"""Subgroups that are evicted under a tiered configuration, for which preemptors and in
which order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from vote_views import GPU, FakeQueue, queue

from windlass.plugins.volcano.evictions.bundles import Bundles
from windlass.plugins.volcano.queues import capacity, proportion
from windlass.plugins.volcano.tiers import VolcanoTiers, VotingTier
from windlass.spi.objects import Dialect, Group, Needs, Task
from windlass.spi.victims import Preemption, PreemptionDenied, PreemptionTerms, VictimScope, VictimSet


def claim(action: str, of: FakeQueue, **rest: Any) -> Preemption:
    spec = Group("claimer", priority=rest.pop("priority", 5))
    return Preemption(action, spec, {GPU: 2}, 2, tuple(of.path), rest.pop("extra", False), 0.0)


def unit(of: FakeQueue, request: Mapping[str, int], **rest: Any) -> VictimSet:
    spec = Group("victim", priority=rest.pop("priority", 0), created=rest.pop("created", 0.0))
    tasks = tuple(
        Task(f"v{n}", f"v{n}", "victim", Needs(request=tuple(sorted(request.items()))))
        for n in range(rest.pop("tasks", 1))
    )
    whole = {name: units * len(tasks) for name, units in request.items()}
    return VictimSet(
        spec, tuple(of.path), tasks, whole, rest.pop("core", False), rest.pop("spare", 1), **rest
    )


def bundles(rules: capacity.CapacityEvictable | None = None, **arguments: Any) -> Bundles:
    return Bundles(VolcanoTiers([], arguments=arguments), capacity=rules)


def test_who_may_claim_parts_of_gangs() -> None:
    found = bundles()
    assert found.preemption_terms(claim("preempt", queue())) is None
    assert found.preemption_terms(claim("gangpreempt", queue())) == PreemptionTerms(VictimScope.OWN_QUEUE)
    assert found.preemption_terms(claim("gangreclaim-surplus", queue())) == PreemptionTerms(
        VictimScope.OTHER_QUEUES
    )
    assert isinstance(found.preemption_terms(claim("gangpreempt", queue(), extra=True)), PreemptionDenied)
    full = VolcanoTiers([VotingTier(overused=[proportion.ProportionOverused()])])
    assert isinstance(Bundles(full).preemption_terms(claim("gangreclaim", queue())), PreemptionDenied)
    bound = VolcanoTiers([VotingTier(preemptive=[capacity.CapacityPreemptionVote()])])
    assert isinstance(Bundles(bound).preemption_terms(claim("gangreclaim", queue())), PreemptionDenied)
    assert Bundles(bound).preemption_terms(claim("gangreclaim", queue(deserved={GPU: 2}))) == PreemptionTerms(
        VictimScope.OTHER_QUEUES
    )


def test_which_parts_are_spared() -> None:
    found, here = bundles(), queue()
    core, spare = unit(here, {GPU: 1}, core=True), unit(here, {GPU: 1})
    broken = unit(here, {GPU: 1}, core=True, ready=False)
    assert found.protects_victim(claim("gangpreempt-surplus", here), core)
    assert not found.protects_victim(claim("gangpreempt-surplus", here), spare)
    assert not found.protects_victim(claim("gangpreempt-surplus", here), broken)
    assert not found.protects_victim(claim("gangpreempt", here), core)
    assert bundles(gangpreempt={"allowWholeBundle": False}).protects_victim(claim("gangpreempt", here), core)
    equal = unit(here, {GPU: 1}, priority=5)
    assert found.protects_victim(claim("gangpreempt", here), equal)
    assert not found.protects_victim(claim("gangreclaim", here), equal)
    assert not found.protects_victim(claim("preempt", here), equal)


def test_which_queues_are_spared() -> None:
    found, here = bundles(), queue()
    kept, kai = queue("kept", reclaimable=False), queue("kai/x", dialect=Dialect.KAI)
    assert found.protects_queue(claim("gangreclaim", here), kept.path)
    assert not found.protects_queue(claim("gangpreempt", here), kept.path)
    assert found.protects_queue(claim("gangreclaim", here), kai.path)
    assert not found.protects_queue(claim("reclaim", here), kai.path)


def test_the_order_of_parts() -> None:
    found, here = bundles(), queue()
    mine = claim("gangpreempt", here)
    surplus = unit(here, {GPU: 1}, priority=4)
    low = unit(here, {GPU: 1}, core=True, priority=1)
    high = unit(here, {GPU: 1}, core=True, priority=2)
    young = unit(here, {GPU: 1}, core=True, priority=2, created=5.0)
    wasteful = unit(here, {GPU: 4}, core=True, priority=2, created=9.0)
    order = sorted([wasteful, high, young, low, surplus], key=lambda part: found.victim_key(mine, part))
    assert order == [surplus, low, young, high, wasteful]
    assert found.victim_key(claim("preempt", here), low) is None


def test_the_order_of_queues_that_give() -> None:
    found, mine = bundles(), claim("gangreclaim", queue("own"))
    more = queue("more", committed={GPU: 6, "cpu": 9}, fair_share={GPU: 2})
    less = queue("less", committed={GPU: 4}, fair_share={GPU: 2})
    first = queue("first", committed={GPU: 9}, fair_share={GPU: 1}, priority=7)
    keys = {q.name: found.victim_queue_key(mine, q, {}) for q in (more, less, first)}
    assert sorted(keys, key=lambda name: keys[name]) == ["more", "less", "first"]
    assert found.victim_queue_key(mine, more, {GPU: 4}) > keys["less"]
    assert found.victim_queue_key(claim("reclaim", queue()), more, {}) is None


@pytest.mark.parametrize(("taken", "may"), [(0, True), (1, False), (2, False)])
def test_subgroup_is_evicted_only_if_each_of_its_pods_may_be(taken: int, may: bool) -> None:
    """Two of four held GPUs are deserved, so two pods may be evicted, one after the other."""
    rich = queue("rich", committed={GPU: 4}, deserved={GPU: 2}, fair_share={GPU: 2})
    part = unit(rich, {GPU: 1}, tasks=2, core=True)
    mine = claim("gangreclaim", queue("own", deserved={GPU: 2}))
    for found in (bundles(), bundles(capacity.CapacityEvictable())):
        assert found.may_take(mine, part, {"rich": {GPU: taken}}) is may
        assert found.may_take(claim("gangpreempt", rich), part, {"rich": {GPU: 4}})


def test_a_queue_below_its_fair_share_gives_no_part() -> None:
    poor = queue("poor", committed={GPU: 1}, fair_share={GPU: 2})
    assert not bundles().may_take(claim("gangreclaim", queue("own")), unit(poor, {GPU: 1}), {})
