"""The division of one resource: known tables, and properties against a plain restatement in fractions."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import floor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from windlass.plugins.kai.surplus_division import USAGE_SCALE, ShareClaim, divide


def claim(
    deserved: int | None, demand: int, weight: float = 1, limit: int | None = None, **rest: int
) -> ShareClaim:
    at = rest.pop("at", 0)
    requestable = demand if limit is None else min(demand, limit)
    exact = Fraction(str(weight))
    return ShareClaim(f"q{at}", deserved, requestable, exact, created=float(at), **rest)


@pytest.mark.parametrize(
    ("total", "queues", "shares"),
    [
        (10, [dict(deserved=1, demand=1)], [1]),
        (2500, [dict(deserved=200, demand=500), dict(deserved=200, demand=500)], [500, 500]),
        (3000, [dict(deserved=2000, demand=3000)] * 2, [2000, 2000]),  # not scaled down
        (1000, [dict(deserved=250, demand=5000), dict(deserved=150, demand=5000, weight=2)], [450, 550]),
        (9999, [dict(deserved=1000, demand=10000)] * 3, [3333] * 3),
        (5, [dict(deserved=2, demand=3, weight=2)] * 2, [3, 2]),  # the older gets the rest
        (15, [dict(deserved=2, demand=6, weight=2)] * 2, [6, 6]),
        (12, [dict(deserved=2, demand=6, weight=2, limit=5), dict(deserved=2, demand=6, weight=2)], [5, 6]),
        (11, [dict(deserved=2, demand=6, weight=2)] * 2, [6, 5]),
        (
            6,
            [dict(deserved=2, demand=6, weight=100, priority=1), dict(deserved=2, demand=6, priority=2)],
            [2, 4],
        ),
        (8, [dict(deserved=None, demand=5), dict(deserved=4, demand=9)], [5, 4]),
        (1, [dict(deserved=0, demand=1, weight=2), dict(deserved=0, demand=1)], [1, 0]),
        (10, [dict(deserved=0, demand=9, weight=w) for w in (3, 3, 1)], [4, 4, 2]),  # 2/7, 2/7, 3/7 cut off
        (8, [dict(deserved=2, demand=9, weight=0), dict(deserved=2, demand=3)], [2, 3]),
    ],
)
def test_known_tables(total: int, queues: list[dict[str, int]], shares: list[int]) -> None:
    claims = [claim(**one, at=at) for at, one in enumerate(queues)]
    divide(total, 1, claims)
    assert [c.share for c in claims] == shares


def test_devices_are_handed_out_whole_and_parts_of_them_stay_parts() -> None:
    claims = [claim(1500, 8000, at=0), claim(0, 8000, at=1)]
    divide(8000, 1000, claims)
    assert [(c.given, c.surplus, c.rounding) for c in claims] == [(1500, 3000, 500), (0, 3000, 0)]


def test_past_usage_bends_the_surplus_only() -> None:
    claims = [
        claim(1000, 9000, usage=USAGE_SCALE * 3 // 4, at=0),
        claim(1000, 9000, usage=USAGE_SCALE // 4, at=1),
    ]
    divide(10_000, 1000, claims, 1)
    assert [c.share for c in claims] == [3000, 7000]  # 1/2 - 1/4 against 1/2 + 1/4 of 8
    claims = [claim(1000, 9000, usage=USAGE_SCALE, at=0), claim(1000, 9000, at=1)]
    divide(10_000, 1000, claims, 5)
    assert [c.share for c in claims] == [1000, 9000]


# ---------------------------------------------------------------------- the restatement


@dataclass
class Naive:
    """A queue of the restatement."""

    deserved: int | None
    requestable: int
    weight: Fraction
    priority: int
    order: int
    share: Fraction = Fraction(0)
    fraction: Fraction = Fraction(0)


def restated(total: int, unit: int, queues: list[Naive]) -> list[Fraction]:
    for q in queues:
        q.share = Fraction(min(total if q.deserved is None else q.deserved, q.requestable))
    remaining = total - sum(q.share for q in queues)
    if remaining <= 0:
        return [q.share for q in queues]
    priorities = sorted({q.priority for q in queues}, reverse=True)
    left = {}
    for priority in priorities:
        members = [q for q in queues if q.priority == priority and q.weight > 0 and q.share < q.requestable]
        while members:
            claims = {id(q): remaining * q.weight / sum(m.weight for m in members) for q in members}
            strict = any(q.requestable - q.share < claims[id(q)] for q in members)
            for q in members:
                gain = min(q.requestable - q.share, claims[id(q)])
                if gain < q.requestable - q.share:
                    gain = Fraction(floor(gain / unit) * unit)
                    q.fraction = claims[id(q)] - gain
                q.share += gain
                remaining -= gain
            members = [q for q in members if q.share < q.requestable]
            if not strict:
                break
        left[priority] = members
    for priority in priorities:
        for q in sorted(left[priority], key=lambda q: (-q.fraction, q.order)):
            more = min(Fraction(unit), remaining)
            q.share += more
            remaining -= more
    return [q.share for q in queues]


amounts = st.integers(0, 12_000)
queues = st.lists(
    st.tuples(
        st.one_of(st.none(), amounts),
        amounts,
        st.sampled_from([0, 1, 2, 3, 7, 0.5, 0.1, 1.5]),
        st.one_of(st.none(), amounts),
        st.integers(0, 2),
    ),
    min_size=1,
    max_size=7,
)


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 40_000), st.sampled_from([1, 1000]), queues)
def test_it_is_the_rule_as_stated(total: int, unit: int, table: list[tuple]) -> None:
    claims = [claim(d, r, w, limit, priority=p, at=at) for at, (d, r, w, limit, p) in enumerate(table)]
    naive = [
        Naive(c.deserved, c.requestable, Fraction(c.weight), c.priority, at) for at, c in enumerate(claims)
    ]
    divide(total, unit, claims)
    assert [c.share for c in claims] == restated(total, unit, naive)


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 40_000), st.sampled_from([1, 1000]), queues)
def test_nothing_is_given_twice_and_nothing_is_left_while_someone_wants_it(
    total: int, unit: int, table: list[tuple]
) -> None:
    claims = [claim(d, r, w, limit, priority=p, at=at) for at, (d, r, w, limit, p) in enumerate(table)]
    divide(total, unit, claims)
    stated = sum(c.given for c in claims)
    assert sum(c.share for c in claims) <= max(total, stated)
    for c in claims:
        due = total if c.deserved is None else c.deserved
        assert c.share >= min(due, c.requestable)
        assert c.share < c.requestable + unit  # rounding lifts it by less than a whole
    wanting = [c for c in claims if c.weight > 0 and c.share < c.requestable]
    if wanting:
        assert total - sum(c.share for c in claims) <= 0
    elif any(c.weight > 0 for c in claims):
        assert all(c.share >= c.requestable for c in claims if c.weight > 0)


@settings(max_examples=80, deadline=None)
@given(st.integers(0, 40_000), queues, st.randoms(use_true_random=False))
def test_the_order_in_which_queues_are_named_does_not_matter(total: int, table: list[tuple], random) -> None:
    def shares(order: list[int]) -> dict[str, int]:
        claims = [
            claim(*table[at][:2], table[at][2], table[at][3], priority=table[at][4], at=at) for at in order
        ]
        divide(total, 1000, claims)
        return {c.name: c.share for c in claims}

    order = list(range(len(table)))
    shuffled = order[:]
    random.shuffle(shuffled)
    assert shares(order) == shares(shuffled)
