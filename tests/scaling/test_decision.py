"""One decision from several recommendations: merge, bounds, quota, steps, cool-down."""

from hypothesis import given
from hypothesis import strategies as st

from windlass.scaling.decision import Limits, decide
from windlass.scaling.recommendation import Recommendation, Replicas


def asks(*numbers: int, failing: bool = False) -> list[Recommendation]:
    """Recommendations of these numbers, with one more that has no value."""
    found = [Recommendation(f"r{i}", number, f"r{i} = {number}") for i, number in enumerate(numbers)]
    return [*found, Recommendation("broken", 4, "broken: unchanged", "no value")] if failing else found


def test_growth_is_cut_at_the_maximum_and_told() -> None:
    decision = decide(asks(8), Replicas(4, 1, 6), Limits(), None)
    assert (decision.after, decision.wanted) == (6, 8)
    assert decision.arithmetic == "r0 = 8; at most 6 (maximum): 4 → 6"


def test_the_largest_growth_counts_and_fewer_only_if_all_agree() -> None:
    assert decide(asks(5, 9), Replicas(4, 1, 20), Limits(), None).after == 9
    assert decide(asks(2, 4), Replicas(4, 1, 20), Limits(), None).after == 4
    assert decide(asks(2, 3), Replicas(4, 1, 20), Limits(), None).after == 3


def test_a_recommender_without_a_value_prevents_fewer_but_not_more() -> None:
    assert decide(asks(2, failing=True), Replicas(4, 1, 20), Limits(), None).after == 4
    assert decide(asks(7, failing=True), Replicas(4, 1, 20), Limits(), None).after == 7


def test_fewer_wait_for_the_cool_down_and_more_do_not() -> None:
    limits = Limits(cooldown_seconds=300)
    kept = decide(asks(2), Replicas(4, 1, 20), limits, 100.0)
    assert kept.after == 4
    assert kept.arithmetic == "r0 = 2; not fewer for another 200 s (cool-down): 4 replicas stay"
    assert decide(asks(2), Replicas(4, 1, 20), limits, 300.0).after == 2
    assert decide(asks(8), Replicas(4, 1, 20), limits, 1.0).after == 8


def test_growth_ends_at_the_quota_and_nothing_is_taken_by_it() -> None:
    assert decide(asks(9), Replicas(4, 1, 20), Limits(quota=6), None).after == 6
    assert decide(asks(9), Replicas(8, 1, 20), Limits(quota=6), None).after == 8


def test_replicas_of_a_gang_come_in_whole_gangs() -> None:
    assert decide(asks(7), Replicas(4, 2, 20), Limits(step=4), None).after == 4
    assert decide(asks(9), Replicas(4, 2, 20), Limits(step=4), None).after == 8
    assert decide(asks(2), Replicas(8, 2, 20), Limits(step=4), None).after == 4
    assert decide(asks(1), Replicas(8, 5, 6), Limits(step=4), None).after == 8


@given(
    st.lists(st.integers(0, 300), max_size=4),
    st.integers(0, 50),
    st.integers(0, 50),
    st.integers(0, 120),
    st.one_of(st.none(), st.integers(0, 200)),
    st.one_of(st.none(), st.floats(0, 1000)),
)
def test_a_change_stays_within_every_limit(
    numbers: list[int], minimum: int, width: int, current: int, quota: int | None, since: float | None
) -> None:
    replicas = Replicas(current, minimum, minimum + width)
    decision = decide(asks(*numbers), replicas, Limits(quota=quota), since)
    if decision.changes:
        outside = current != replicas.clamp(current)
        assert replicas.minimum <= decision.after <= replicas.maximum or outside
        assert quota is None or decision.after <= max(quota, current)
    if decision.after < current:
        assert since is None or since >= 300
    assert str(decision.after) in decision.arithmetic
