"""The fragmentation that typical pods see, against its definition taken literally."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from windlass.plugins.devices.fragmentation import (
    NO_PLACE,
    PodDemand,
    WorkloadMix,
    by_model,
    choose,
    descent,
    typical,
)

MODELS = ("A100", "T4", "V100M16")


def literal(mix: WorkloadMix, cpu: int, cards: list[int], model: str) -> Fraction:
    """F(n) by its definition."""
    whole = sum(cards)
    found = Fraction(0)
    for demand, number in mix.kinds:
        fits = sum(free >= demand.milli for free in cards) >= demand.count
        if demand.count == 0 or cpu < demand.cpu or not fits or not demand.allows(model):
            lost = whole
        else:
            lost = sum(free for free in cards if free < demand.milli)
        found += Fraction(number * lost, mix.total)
    return found


def points(gain: Fraction) -> int:
    return math.floor(100 / (1 + math.exp(-gain / 1000)))


demands = st.one_of(
    st.builds(PodDemand, cpu=st.integers(0, 8).map(lambda n: n * 1000)),
    st.builds(
        PodDemand,
        cpu=st.integers(0, 8).map(lambda n: n * 1000),
        milli=st.sampled_from([50, 110, 330, 500, 1000]),
        count=st.just(1),
        models=st.sampled_from([(), ("T4",), ("a100", "V100")]),
        models_not=st.sampled_from([(), ("T4",)]),
    ),
    st.builds(
        PodDemand,
        cpu=st.integers(0, 8).map(lambda n: n * 1000),
        milli=st.sampled_from([400, 1000]),
        count=st.integers(2, 5),
    ),
)
mixes = st.lists(st.tuples(demands, st.integers(1, 50)), min_size=1, max_size=8).map(WorkloadMix)
nodes = st.tuples(
    st.integers(-1, 9).map(lambda n: n * 1000),
    st.lists(st.sampled_from([0, 50, 170, 400, 500, 900, 1000]), min_size=1, max_size=4),
    st.sampled_from(MODELS),
)


def arrays(found: list[tuple[int, list[int], str]], mix: WorkloadMix):
    width = max(len(cards) for _, cards, _ in found)
    free = np.array([cards + [0] * (width - len(cards)) for _, cards, _ in found], dtype=np.int64)
    codes = np.array([MODELS.index(model) for _, _, model in found], dtype=np.int64)
    cpu = np.array([cpu for cpu, _, _ in found], dtype=np.int64)
    return by_model(mix, codes, MODELS), cpu, free


@given(mixes, st.lists(nodes, min_size=1, max_size=5))
@settings(max_examples=150, deadline=None)
def test_fragments_are_the_definition(mix, found):
    groups, cpu, free = arrays(found, mix)
    assert mix.fragments(groups, cpu, free).tolist() == [literal(mix, *node) * mix.total for node in found]


@given(mixes, st.lists(nodes, min_size=1, max_size=5), demands)
@settings(max_examples=150, deadline=None)
def test_the_score_of_each_card_is_the_descent(mix, found, demand):
    groups, cpu, free = arrays(found, mix)
    scores = descent(mix, demand, groups, cpu, free)
    for at, (have, cards, model) in enumerate(found):
        before = literal(mix, have, cards, model)
        if demand.count == 1:
            for slot, r in enumerate(cards):
                after = [x - demand.milli * (i == slot) for i, x in enumerate(cards)]
                expected = points(before - literal(mix, have - demand.cpu, after, model))
                assert scores[at, slot] == (expected if r >= demand.milli else NO_PLACE)
            assert (scores[at, len(cards) :] == NO_PLACE).all()
        elif demand.count == 0:
            assert scores[at, 0] == points(before - literal(mix, have - demand.cpu, cards, model))
        elif sum(r >= demand.milli for r in cards) < demand.count:
            assert scores[at, 0] == NO_PLACE


def test_a_change_of_nothing_is_worth_fifty_points_exactly():
    mix = WorkloadMix([(PodDemand(1000, 300, 1), 7), (PodDemand(2000), 3)])
    assert mix.score(np.array([-1, 0, 1])).tolist() == [49, 50, 50]
    edge = math.ceil(1000 * mix.total * math.log(51 / 49))
    assert mix.score(np.array([edge - 1, edge])).tolist() == [50, 51]


def test_whole_cards_are_the_first_ones_and_shares_the_fullest():
    free = np.array([[500, 1000, 1000, 1000], [900, 400, 1000, 400]])
    fits, taken = choose(free, np.full(free.shape, 1000), 2)
    assert fits.tolist() == [True, False]
    assert taken[0].tolist() == [False, True, True, False]
    fits, taken = choose(free, np.full(free.shape, 400), 2)
    assert fits.tolist() == [True, True]
    assert taken.tolist() == [[True, True, False, False], [False, True, False, True]]


def test_typical_pods_cover_what_they_should():
    pods = {PodDemand(8): 90, PodDemand(4, 500, 1): 5, PodDemand(4, 1000, 1): 5, PodDemand(1): 0}
    assert typical(pods) == ((PodDemand(8), 90), (PodDemand(4, 1000, 1), 5))
    assert typical(pods, 1.0) == ((PodDemand(8), 90), (PodDemand(4, 1000, 1), 5), (PodDemand(4, 500, 1), 5))
    assert typical({}) == ()


@pytest.mark.parametrize(("milli", "expected"), [(400, [NO_PLACE, 50]), (1001, [NO_PLACE, NO_PLACE])])
def test_what_a_card_is_asked_for_may_differ_from_card_to_card(milli, expected):
    mix = WorkloadMix([(PodDemand(0, 100, 1), 1)])
    groups, cpu = np.array([mix.group("T4")]), np.zeros(1, np.int64)
    asked = np.array([[1001, milli]])
    scores = descent(mix, PodDemand(0, 400, 1), groups, cpu, np.array([[1000, 500]]), asked)
    assert scores.tolist() == [expected]
