"""``plugins.queues.victims``: Windlass' own rules for taking room."""

from __future__ import annotations

from queue_views import GPU, View, claim, queue, unit

from windlass.api.reasons import Reason
from windlass.plugins.queues.victims import CHECKPOINTED, WindlassPreemptionPolicy, WindlassVictims
from windlass.spi.objects import Dialect, Needs, Task, TaskState
from windlass.spi.victims import (
    FreedResources,
    PreemptionDenied,
    PreemptionTerms,
    RelocationMode,
    VictimScope,
    VictimSet,
)

claims, rules = WindlassPreemptionPolicy(), WindlassVictims()


def own(name: str, **rest: object) -> View:
    return queue(name, dialect=Dialect.VOLCANO, **rest)


def test_terms() -> None:
    leaf = own("q", held=1, fair=2)
    assert claims.preemption_terms(claim("preempt", leaf, priority=3)) == PreemptionTerms(
        VictimScope.OWN_QUEUE, below=3
    )
    assert claims.preemption_terms(claim("reclaim", leaf, 1)) == PreemptionTerms(
        VictimScope.OTHER_QUEUES, RelocationMode.MAY
    )
    denied = claims.preemption_terms(claim("reclaim", leaf, 2))
    assert isinstance(denied, PreemptionDenied)
    assert denied.code is Reason.WAITING_FOR_SHARE
    leaf.committed.clear()
    assert isinstance(claims.preemption_terms(claim("reclaim", leaf, 2)), PreemptionTerms)
    assert isinstance(claims.preemption_terms(claim("reclaim", leaf, 3)), PreemptionDenied)
    assert claims.preemption_terms(claim("consolidation", leaf)) == PreemptionTerms(
        VictimScope.ALL_QUEUES, RelocationMode.MUST, 16
    )
    assert claims.preemption_terms(claim("consolidation", leaf, preemptible=False)) is None
    assert claims.preemption_terms(claim("dance", leaf)) is None
    assert claims.preemption_terms(claim("preempt", queue("k"))) is None


def test_what_is_not_divided_does_not_count() -> None:
    leaf = own("q", held=1, fair=2)
    assert isinstance(
        claims.preemption_terms(claim("reclaim", leaf, request={GPU: 1, "pods": 99})), PreemptionTerms
    )


def test_only_queues_over_their_share_of_what_is_asked_for_give() -> None:
    ours = own("a", fair=4)
    assert not rules.protects_queue(claim("reclaim", ours), own("b", held=3, fair=2).path)
    assert rules.protects_queue(claim("reclaim", ours), own("b", held=2, fair=2).path)
    assert not rules.protects_queue(claim("preempt", ours), own("b", held=2, fair=2).path)
    rich = own("c", held=2, fair=2)
    rich.committed["cpu"], rich.fair_share["cpu"] = 9, 1
    assert rules.protects_queue(claim("reclaim", ours), rich.path)
    assert not rules.protects_queue(claim("reclaim", ours, request={GPU: 1, "cpu": 1}), rich.path)
    idle = own("d", fair=0)
    idle.committed.clear()
    assert rules.protects_queue(claim("reclaim", ours), idle.path)


def test_at_every_level_down_to_the_victim() -> None:
    top = own("top", held=9, fair=2)
    ours = own("a", fair=4)
    modest, greedy = own("m", held=2, fair=2, parent=top), own("g", held=7, fair=2, parent=top)
    asks = claim("reclaim", ours, 1)
    assert not rules.may_take(asks, unit(modest), {})
    assert rules.may_take(asks, unit(greedy), {})
    assert not rules.may_take(asks, unit(greedy), {"g": {GPU: 5}})
    assert not rules.may_take(asks, unit(greedy), {"top": {GPU: 7}})
    assert not rules.may_take(asks, unit(greedy, request={"cpu": 1}), {})
    assert rules.may_take(claim("preempt", ours), unit(modest), {})


def test_the_claimers_queues_stay_within_their_shares_up_to_the_parting() -> None:
    top = own("top", held=4, fair=4)
    ours, cousin = own("a", held=0, fair=4, parent=top), own("c", held=4, fair=1, parent=top)
    stranger = own("s", held=9, fair=1)
    asks = claim("reclaim", ours, 1)
    assert rules.validates(asks, FreedResources([unit(cousin)], {}))
    assert not rules.validates(asks, FreedResources([unit(stranger)], {}))
    assert rules.validates(claim("preempt", ours, 9), FreedResources([unit(stranger)], {}))


def test_the_queue_furthest_over_its_share_first() -> None:
    asks = claim("reclaim", own("a", fair=4))

    def key(view: View, taken: int = 0) -> object:
        return rules.victim_queue_key(asks, view, {GPU: taken})

    twice, thrice = own("b", held=4, fair=2), own("c", held=3, fair=1)
    assert key(thrice) < key(twice)
    assert key(twice) < key(thrice, taken=2)
    assert key(own("d", held=1, fair=0)) < key(thrice)
    assert key(own("e", held=4, fair=2, priority=1)) < key(own("f", held=4, fair=2, priority=2))
    assert rules.victim_queue_key(claim("reclaim", queue("k")), twice, {}) is None
    without = own("w", held=9)
    without.fair_share = {}
    assert key(own("l", held=1, fair=4)) < key(without)


def test_units_that_lose_least_work_first() -> None:
    leaf = own("q")
    asks = claim("preempt", leaf, now=1000.0, priority=9)
    saved = {CHECKPOINTED: "1970-01-01T00:16:30Z"}  # 990
    ordered = [
        unit(leaf, priority=1, started=0.0),
        unit(leaf, priority=2, started=0.0, core=False, spare=1),
        unit(leaf, priority=2, started=500.0, annotations=saved),
        unit(leaf, priority=2, started=900.0),
        unit(leaf, priority=2, started=500.0, annotations={CHECKPOINTED: "lately"}),
        unit(leaf, priority=2, created=300.0),
        unit(leaf, priority=2, created=200.0),
    ]
    keys = [rules.victim_key(asks, one) for one in ordered]
    assert keys == sorted(keys)
    assert len(set(keys)) == len(keys)
    assert rules.victim_key(claim("preempt", queue("k")), ordered[0]) is None
    future = unit(leaf, started=2000.0)
    recent = unit(leaf, started=999.0)
    assert rules.victim_key(asks, future) < rules.victim_key(asks, recent)  # it lost nothing yet


def test_what_has_more_than_is_asked_for_loses_all_its_work() -> None:
    leaf = own("q")
    small = unit(leaf, started=0.0, request={GPU: 1000, "cpu": 1000})
    twice = unit(leaf, started=400.0, request={GPU: 2000, "cpu": 64_000})
    gang = unit(leaf, started=900.0, request={GPU: 16_000})

    def order(gpus: int, now: float = 1200.0) -> list[VictimSet]:
        asks = claim("reclaim", own("a", fair=4), now=now, request={GPU: gpus * 1000, "cpu": 1000})
        return sorted([small, twice, gang], key=lambda one: rules.victim_key(asks, one))

    assert order(1) == [small, twice, gang]  # 1200, 1600 and 4800 s of one GPU
    assert order(2) == [twice, small, gang]  # 800, 1200 and 2400 s of two
    assert order(16) == [gang, twice, small]
    assert order(3) == order(4)  # the loss of a part of a GPU's work is negligible
    assert order(1, 100_000.0) == [small, twice, gang]
    assert order(16, 930.0) == [gang, twice, small]  # 0, 500 and 900 s
    young = [unit(leaf, started=at, request={GPU: gpus * 1000}) for gpus, at in ((1, 901.0), (16, 929.0))]
    asks = claim("reclaim", own("a", fair=4), now=930.0, request={GPU: 1000})
    assert rules.victim_key(asks, young[0]) < rules.victim_key(asks, young[1])


def test_without_devices_it_is_cpu_that_is_lost() -> None:
    leaf = own("q")
    asks = claim("preempt", leaf, now=1000.0, request={"cpu": 2000})
    large = unit(leaf, started=500.0, request={"cpu": 64_000})
    small = unit(leaf, started=0.0, request={"cpu": 2000})
    assert rules.victim_key(asks, small) < rules.victim_key(asks, large)
    for nothing in ({}, {"memory": 1 << 30}):
        asks = claim("preempt", leaf, now=1000.0, request=nothing)
        assert rules.victim_key(asks, large) < rules.victim_key(asks, small)


def test_the_order_is_kept_for_claims_of_about_the_same_size_for_a_minute() -> None:
    leaf = own("q")

    def kind(gpus: int, now: float) -> object:
        return rules.victim_key_inputs(claim("preempt", leaf, now=now, request={GPU: gpus, "cpu": gpus}))

    assert kind(3, 1200.0) == kind(4, 1259.9)
    assert len({kind(4, 1200.0), kind(5, 1200.0), kind(4, 1260.0)}) == 3
    assert rules.victim_key_inputs(claim("preempt", queue("k"))) is None


def test_what_has_only_been_bound_loses_nothing() -> None:
    """Whenever its group came: it is asked to go before what has run for a second."""
    leaf = own("q")
    asks = claim("reclaim", leaf, now=1000.0)

    def pods(first: TaskState, second: TaskState, started: float | None = None) -> VictimSet:
        told = (
            Task("ns/p-0", "u0", "ns/victim", Needs(()), state=first),
            Task("ns/p-1", "u1", "ns/victim", Needs(()), state=second, started=started),
        )
        return unit(leaf, tasks=told, started=started, created=100.0)

    bound = rules.victim_key(asks, pods(TaskState.BOUND, TaskState.BOUND))
    assert bound < rules.victim_key(asks, pods(TaskState.BOUND, TaskState.RUNNING, 999.0))
    assert bound < rules.victim_key(asks, unit(leaf, started=999.0, created=900.0))
    unknown = rules.victim_key(asks, pods(TaskState.RUNNING, TaskState.RUNNING))
    assert unknown == rules.victim_key(asks, unit(leaf, created=100.0)), "since when it runs is not known"


def test_preemption_takes_strictly_lower_priorities() -> None:
    leaf = own("q")
    assert rules.protects_victim(claim("preempt", leaf, priority=5), unit(leaf, priority=5))
    assert not rules.protects_victim(claim("preempt", leaf, priority=5), unit(leaf, priority=4))
    assert not rules.protects_victim(claim("reclaim", leaf, priority=5), unit(leaf, priority=9))
    assert not rules.protects_victim(claim("preempt", queue("k"), priority=5), unit(leaf, priority=5))
