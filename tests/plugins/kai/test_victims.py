"""``plugins.kai.victims``: KAI's rules for taking room, each by itself."""

from __future__ import annotations

import pytest
from queue_views import GPU, claim, queue, unit

from windlass.api.reasons import Reason
from windlass.plugins.kai.victims import KaiPreemptionPolicy, KaiVictims
from windlass.spi.objects import Dialect
from windlass.spi.victims import (
    FreedResources,
    PreemptionDenied,
    PreemptionTerms,
    RelocationMode,
    VictimScope,
)

claims, rules = KaiPreemptionPolicy(), KaiVictims()


def test_reclaim_stays_within_the_leafs_fair_share() -> None:
    leaf = queue("q", held=1, fair=2)
    assert claims.preemption_terms(claim("reclaim", leaf, 1)) == PreemptionTerms(
        VictimScope.OTHER_QUEUES, RelocationMode.MAY
    )
    denied = claims.preemption_terms(claim("reclaim", leaf, 2))
    assert isinstance(denied, PreemptionDenied)
    assert denied.code is Reason.WAITING_FOR_SHARE


def test_a_leaf_that_holds_nothing_may_have_its_fair_share() -> None:
    leaf = queue("q", fair=2)
    leaf.committed.clear()
    assert isinstance(claims.preemption_terms(claim("reclaim", leaf, 2)), PreemptionTerms)
    assert isinstance(claims.preemption_terms(claim("reclaim", leaf, 3)), PreemptionDenied)


def test_a_share_of_what_is_not_asked_for_counts_too() -> None:
    leaf = queue("q", held=1, fair=2)
    leaf.committed["cpu"], leaf.fair_share["cpu"] = 5, 4
    assert isinstance(claims.preemption_terms(claim("reclaim", leaf, 1)), PreemptionDenied)


@pytest.mark.parametrize("action", ["reclaim", "preempt"])
def test_what_may_not_be_preempted_stays_within_quota_at_every_level(action: str) -> None:
    top = queue("top", fair=9, deserved=2, firm=2)
    leaf = queue("q", fair=9, deserved=9, parent=top)
    assert isinstance(claims.preemption_terms(claim(action, leaf, preemptible=False)), PreemptionDenied)
    assert isinstance(claims.preemption_terms(claim(action, leaf, preemptible=True)), PreemptionTerms)
    top.allocated_nonpreemptible[GPU] = 3  # of GPUs, which are not asked for
    leaf.fair_share["cpu"] = 1
    assert isinstance(
        claims.preemption_terms(claim(action, leaf, request={"cpu": 1}, preemptible=False)), PreemptionTerms
    )
    top.allocated_nonpreemptible[GPU] = 1
    assert isinstance(claims.preemption_terms(claim(action, leaf, preemptible=False)), PreemptionTerms)


def test_preemption_looks_inside_the_queue_and_consolidation_everywhere() -> None:
    leaf = queue("q")
    assert claims.preemption_terms(claim("preempt", leaf, priority=7)) == PreemptionTerms(
        VictimScope.OWN_QUEUE, below=7
    )
    assert claims.preemption_terms(claim("consolidation", leaf)) == PreemptionTerms(
        VictimScope.ALL_QUEUES, RelocationMode.MUST, 17
    )
    assert isinstance(
        claims.preemption_terms(claim("consolidation", leaf, preemptible=False)), PreemptionDenied
    )
    assert claims.preemption_terms(claim("dance", leaf)) is None


def test_other_apis_are_none_of_its_business() -> None:
    leaf, other = queue("q", dialect=Dialect.VOLCANO), queue("o", held=5)
    foreign = claim("reclaim", leaf)
    assert claims.preemption_terms(foreign) is None
    assert not rules.protects_queue(foreign, other.path)
    assert not rules.protects_victim(claim("preempt", leaf), unit(other))
    assert rules.victim_queue_key(foreign, other, {}) is None
    assert rules.victim_key(foreign, unit(other)) is None
    assert rules.may_take(foreign, unit(other), {})
    assert rules.validates(foreign, FreedResources())


# ---------------------------------------------------------------------- protection


def test_beyond_its_quota_a_claimer_takes_only_from_queues_over_their_allocatable_share() -> None:
    ours = queue("a", held=2, fair=4, deserved=2)
    asks = claim("reclaim", ours, 1)
    assert rules.protects_queue(asks, queue("b", held=4, fair=4, deserved=2).path)
    assert not rules.protects_queue(asks, queue("c", held=5, fair=4, deserved=2).path)
    assert rules.protects_queue(asks, queue("d", held=3, fair=2, deserved=4).path)
    assert not rules.protects_queue(asks, queue("e", held=3, fair=2, deserved=2, limit=2).path)
    # A limit below the quota bounds what starts, not what runs.
    assert rules.protects_queue(asks, queue("g", held=3, fair=2, deserved=9, limit=2).path)
    assert rules.protects_queue(asks, queue("f", held=99, fair=1, deserved=None).path)


def test_within_its_quota_it_takes_from_queues_over_theirs_or_not_below_it() -> None:
    ours = queue("a", held=0, fair=4, deserved=2)
    asks = claim("reclaim", ours, 2)
    assert not rules.protects_queue(asks, queue("b", held=3, fair=4, deserved=2).path)
    assert not rules.protects_queue(asks, queue("c", held=2, fair=4, deserved=2).path)
    assert rules.protects_queue(asks, queue("d", held=1, fair=4, deserved=2).path)
    assert not rules.protects_queue(asks, queue("e", held=1, fair=4, deserved=None).path)


def test_a_queue_that_holds_nothing_is_below_its_quota() -> None:
    ours, theirs = queue("a", fair=4, deserved=2), queue("b", deserved=1)
    theirs.committed.clear()
    assert rules.protects_queue(claim("reclaim", ours), theirs.path)


def test_queues_are_compared_where_their_paths_part() -> None:
    d1, d2 = queue("d1", held=1, fair=2, deserved=2), queue("d2", held=5, fair=2, deserved=2)
    ours = queue("a", held=1, fair=2, deserved=0, parent=d1)
    theirs = queue("b", held=1, fair=9, deserved=9, parent=d2)
    assert not rules.protects_queue(claim("reclaim", ours, 1), theirs.path)


def test_preemption_takes_strictly_lower_priorities() -> None:
    leaf = queue("q")
    asks = claim("preempt", leaf, priority=50)
    assert rules.protects_victim(asks, unit(leaf, priority=50))
    assert not rules.protects_victim(asks, unit(leaf, priority=49))
    assert not rules.protects_victim(claim("reclaim", leaf, priority=50), unit(leaf, priority=90))


# ---------------------------------------------------------------------- the order


def test_the_order_of_queues_is_that_of_service_turned_round() -> None:
    asks = claim("reclaim", queue("a"))

    def key(name: str, taken: int = 0, **rest: int) -> object:
        view = queue(name, **rest)
        view.committed |= {"cpu": 5, "memory": 5}
        return rules.victim_queue_key(asks, view, {GPU: taken})

    over, under = key("o", held=5, fair=4, deserved=4), key("u", held=4, fair=4, deserved=4)
    assert over < under
    assert key("o", held=5, fair=4, deserved=4, taken=1) == under
    assert key("b", held=5, fair=8, deserved=4) < key("c", held=4, fair=8, deserved=4)
    assert key("b", held=5, fair=8, deserved=4, priority=2) < key("c", held=4, fair=8, deserved=4, priority=1)
    low, high = key("l", held=5, fair=4, priority=1), key("h", held=9, fair=4, priority=2)
    assert low < high
    assert key("m", held=6, fair=4) < key("n", held=5, fair=4)
    assert key("r", held=5, fair=4, priority=2) < key("p", held=3, fair=4, priority=1)
    nowhere, everywhere = queue("y", held=5, deserved=None), queue("y", held=100, deserved=None)
    nowhere.cluster, everywhere.cluster = {}, {GPU: 1}
    assert rules.victim_queue_key(asks, nowhere, {}) < rules.victim_queue_key(asks, everywhere, {})
    bare, zero = queue("x", fair=4), queue("z", fair=4)
    bare.committed, zero.committed = {}, {GPU: 0, "cpu": 0, "memory": 0}
    assert rules.victim_queue_key(asks, bare, {}) == rules.victim_queue_key(asks, zero, {})
    assert key("w", held=0, fair=8) < key("t", held=0, fair=4)  # the larger allocatable share


def test_units_of_low_priority_then_extras_then_the_youngest() -> None:
    leaf = queue("q")
    asks = claim("reclaim", leaf)
    ordered = [
        unit(leaf, priority=1, created=1.0, spare=0),
        unit(leaf, priority=2, created=2.0, core=False, spare=1),
        unit(leaf, priority=2, created=1.0, core=False, spare=2),
        unit(leaf, priority=2, created=9.0),
        unit(leaf, priority=2, created=1.0),
        unit(leaf, priority=2, created=9.0, ready=False),
    ]
    keys = [rules.victim_key(asks, one) for one in ordered]
    assert keys == sorted(keys)
    assert len(set(keys)) == len(keys)


# ---------------------------------------------------------------------- the rules


def test_a_unit_may_go_while_its_queue_is_over_its_share() -> None:
    ours, theirs = queue("a", held=4, fair=9, deserved=4), queue("b", held=6, fair=4, deserved=2)
    asks = claim("reclaim", ours, 1)  # beyond its quota
    one = unit(theirs, 1)
    assert rules.may_take(asks, one, {})
    assert rules.may_take(asks, one, {"b": {GPU: 1}})
    assert not rules.may_take(asks, one, {"b": {GPU: 2}})


def test_or_down_to_its_quota_for_a_claimer_within_its_own() -> None:
    ours, theirs = queue("a", held=3, fair=9, deserved=4), queue("b", held=6, fair=4, deserved=2)
    asks = claim("reclaim", ours, 1)
    assert rules.may_take(asks, unit(theirs), {"b": {GPU: 3}})
    assert not rules.may_take(asks, unit(theirs), {"b": {GPU: 4}})
    assert rules.may_take(claim("preempt", ours), unit(theirs), {"b": {GPU: 9}})


def test_no_queue_ends_up_further_over_its_share_than_one_that_gave() -> None:
    top1, top2 = queue("t1", held=4, fair=4), queue("t2", held=9, fair=4)
    ours, theirs = queue("a", held=0, fair=9, parent=top1), queue("b", held=9, fair=1, parent=top2)
    asks = claim("reclaim", ours, 2)

    def allowed(gives: int) -> bool:
        one = unit(theirs, gives)
        return rules.validates(asks, FreedResources([one], {"b": {GPU: gives}, "t2": {GPU: gives}}))

    assert allowed(2)  # 6/4 against 7/4
    assert not allowed(3)  # 6/4 against 6/4
    top1.fair_share[GPU] = 6
    asks = claim("reclaim", ours, 2)
    assert allowed(8)
    top1.fair_share[GPU], top2.fair_share[GPU] = 4, 0
    asks = claim("reclaim", ours, 2)
    assert allowed(8)
    assert rules.validates(claim("preempt", ours, 2), FreedResources([unit(theirs, 9)], {}))


@pytest.mark.parametrize(
    ("held", "asks_for", "may"), [(5, 2, True), (4, 2, False), (3, 2, False), (3, 1, True)]
)
def test_of_two_queues_without_a_share_neither_ends_up_with_more(held: int, asks_for: int, may: bool) -> None:
    """Leaves may deserve what their parents do not: each could take from the other without end."""
    top1, top2 = queue("t1", fair=0), queue("t2", held=held, fair=0)
    ours, theirs = queue("a", fair=9, parent=top1), queue("b", held=held, fair=9, parent=top2)
    freed = FreedResources([unit(theirs, asks_for)], {"b": {GPU: asks_for}, "t2": {GPU: asks_for}})
    assert rules.validates(claim("reclaim", ours, asks_for), freed) is may


def test_only_siblings_are_compared() -> None:
    top1, top2 = queue("t1", fair=9), queue("t2", held=9, fair=9)
    ours, cousin = queue("a", fair=1, parent=top1), queue("b", held=9, fair=9, parent=top2)
    taken = {"b": {GPU: 2}, "t2": {GPU: 2}}
    assert rules.validates(claim("reclaim", ours, 2), FreedResources([unit(cousin, 2)], taken))


def test_a_queue_that_held_nothing_counts_what_it_asks_for() -> None:
    ours, theirs = queue("a", fair=4), queue("b", held=9, fair=8)
    ours.committed.clear()
    freed = FreedResources([unit(theirs, 3)], {"b": {GPU: 3}})
    assert rules.validates(claim("reclaim", ours, 4), freed)
    assert not rules.validates(claim("reclaim", ours, 5), freed)
    six = queue("c", held=6, fair=4)  # gives other things: still 6/4 against 5/4
    assert rules.validates(
        claim("reclaim", ours, 5), FreedResources([unit(six, request={"cpu": 1})], {"c": {"cpu": 1}})
    )
    theirs.committed["cpu"], theirs.fair_share["cpu"] = 9, 5
    freed = FreedResources([unit(theirs, request={GPU: 3, "cpu": 1})], {"b": {GPU: 3, "cpu": 1}})
    assert rules.validates(claim("reclaim", ours, 4), freed)
