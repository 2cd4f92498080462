"""Which devices serve claims: against brute force, on nodes and claims at random."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from windlass.engine.cardwish import suits
from windlass.engine.joint import Offer, Pick, allocate, allocations
from windlass.spi.devices import CardMode, DeviceNeed, DeviceOption, DeviceRule, Joint
from windlass.spi.objects import Device

NAMES = tuple(f"d{at}" for at in range(6))
VALUES = ("x", "y", "z")
COUNTERS: tuple[str, ...] = ("c0", "c1")

options = st.builds(
    lambda count, names, every, admin: DeviceOption(
        DeviceNeed("r", count, milli=1000, uuids=tuple(sorted(names))), every, admin and not every
    ),
    st.integers(1, 3),
    st.sets(st.sampled_from(NAMES), min_size=1),
    st.sampled_from([False, False, False, True]),
    st.sampled_from([False, False, False, True]),
)
requests = st.lists(options, min_size=1, max_size=2).map(tuple)
claims = st.lists(requests, min_size=1, max_size=2).map(tuple)
offers = st.lists(
    st.builds(
        lambda free, draws: (free, tuple((name, units, 4) for name, units in sorted(draws.items()))),
        st.sampled_from([True, True, True, False]),
        st.dictionaries(st.sampled_from(COUNTERS), st.integers(1, 3), max_size=1),
    ),
    min_size=1,
    max_size=len(NAMES),
)


@st.composite
def joints(draw: st.DrawFn) -> Joint:
    found = draw(st.lists(claims, min_size=1, max_size=2).map(tuple))
    rules = []
    for _ in range(draw(st.integers(0, 2))):
        claim = draw(st.integers(0, len(found) - 1))
        places = [(r, o) for r, every in enumerate(found[claim]) for o in range(len(every))]
        chosen = tuple(sorted(draw(st.sets(st.sampled_from(places), min_size=1))))
        values = draw(st.dictionaries(st.sampled_from(NAMES), st.sampled_from(VALUES)))
        rules.append(DeviceRule(claim, chosen, draw(st.booleans()), "a", tuple(sorted(values.items()))))
    return Joint(found, tuple(rules))


def offered(told: Sequence[tuple[bool, tuple[tuple[str, int, int], ...]]]) -> list[Offer]:
    return [
        Offer(Device(at, "r", uuid=NAMES[at], mode=CardMode.NAMED, draws=draws), NAMES[at], free)
        for at, (free, draws) in enumerate(told)
    ]


def ways(joint: Joint, offers: Sequence[Offer]) -> Iterator[tuple[Pick, ...]]:
    """Every choice of alternatives and of devices, the preferred first, good or not."""
    places = [(c, r) for c, every in enumerate(joint.claims) for r in range(len(every))]

    def after(at: int, picks: tuple[Pick, ...]) -> Iterator[tuple[Pick, ...]]:
        if at == len(places):
            yield picks
            return
        claim, request = places[at]
        for number, option in enumerate(joint.claims[claim][request]):
            serving = [i for i, one in enumerate(offers) if suits(option.need, one.device, one.uuid)]
            count = len(serving) if option.every else option.need.count
            for chosen in combinations(serving, count) if count else ():
                more = tuple(Pick(claim, request, number, i, option.admin) for i in chosen)
                yield from after(at + 1, picks + more)

    yield from after(0, ())


def holds(joint: Joint, offers: Sequence[Offer], picks: Sequence[Pick]) -> bool:
    """Whether picks are what the fields of a claim say, one after the other."""
    used = dict.fromkeys(COUNTERS, 0)
    having: dict[int, set[int]] = {}
    for pick in picks:
        others = having.setdefault(pick.at, set())
        if pick.admin and pick.claim in others:
            return False
        if not pick.admin and (others or not offers[pick.at].free):
            return False
        others.add(pick.claim)
        for name, units, _ in () if pick.admin else offers[pick.at].device.draws:
            used[name] += units
    for rule in joint.rules:
        concerned = [p for p in picks if p.claim == rule.claim and (p.request, p.option) in rule.options]
        values = [rule.by_card.get(offers[p.at].uuid) for p in concerned]
        if None in values:
            return False
        if len(set(values)) != (len(values) if rule.distinct else min(1, len(values))):
            return False
    return all(units <= 4 for units in used.values())


@given(joint=joints(), told=offers)
@settings(max_examples=300, deadline=None)
def test_the_first_way_that_holds_is_found_and_only_where_there_is_one(
    joint: Joint, told: Sequence[tuple[bool, tuple[tuple[str, int, int], ...]]]
) -> None:
    offers = offered(told)
    best = next((picks for picks in ways(joint, offers) if holds(joint, offers, picks)), None)
    assert allocate(joint, offers, {}) == best


@given(joint=joints(), told=offers)
@settings(max_examples=300, deadline=None)
def test_what_devices_serve_can_be_told_from_the_devices(
    joint: Joint, told: Sequence[tuple[bool, tuple[tuple[str, int, int], ...]]]
) -> None:
    offers = offered(told)
    picks = allocate(joint, offers, {})
    if picks is not None:
        held = [pick.at for pick in picks if not pick.admin]
        again = allocate(joint, offers, {}, held)
        assert again is not None
        assert [pick for pick in again if not pick.admin] == [pick for pick in picks if not pick.admin]
        assert len(again) == len(picks)


@given(joint=joints(), told=offers)
@settings(max_examples=300, deadline=None)
def test_one_search_for_many_pods_gives_what_a_search_for_each_gives(
    joint: Joint, told: Sequence[tuple[bool, tuple[tuple[str, int, int], ...]]]
) -> None:
    offers, used = offered(told), dict.fromkeys(COUNTERS, 0)
    expected = []
    while (picks := allocate(joint, offers, used)) is not None:
        expected.append(picks)
        held = [pick.at for pick in picks if not pick.admin]
        if not held:
            break
        for at in held:
            for name, units, _ in offers[at].device.draws:
                used[name] += units
            offers[at] = offers[at]._replace(free=False)
    assert list(allocations(joint, offered(told), {})) == expected


@given(told=offers, used=st.integers(0, 4))
@settings(max_examples=100, deadline=None)
def test_what_others_draw_counts(
    told: Sequence[tuple[bool, tuple[tuple[str, int, int], ...]]], used: int
) -> None:
    offers = offered(told)
    joint = Joint((((DeviceOption(DeviceNeed("r", 1, milli=1000, uuids=NAMES)),),),))
    picks = allocate(joint, offers, dict.fromkeys(COUNTERS, used))
    able = [
        at
        for at, one in enumerate(offers)
        if one.free and all(used + units <= total for _, units, total in one.device.draws)
    ]
    assert ([pick.at for pick in picks] if picks else []) == able[:1]


def test_a_search_without_a_solution_ends() -> None:
    """Of devices that are all different, none of which goes with the last request."""
    names = tuple(f"n{at}" for at in range(40))
    offers = [Offer(Device(at, "r", uuid=name), name, free=True) for at, name in enumerate(names)]
    values = tuple((name, name) for name in names)
    need = DeviceNeed("r", 16, milli=1000)
    two = DeviceOption(DeviceNeed("r", 2, milli=1000))
    joint = Joint(
        (((DeviceOption(need),), (two,)),),
        (
            DeviceRule(0, ((0, 0),), True, "a", values),
            DeviceRule(0, ((1, 0),), False, "a", values),
        ),
    )
    assert allocate(joint, offers, {}) is None
