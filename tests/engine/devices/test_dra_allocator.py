"""Which devices serve claims: against brute force, on nodes and claims at random."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations

from example_counts import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from windlass.engine.devices.dra_allocator import (
    HeldDevice,
    OfferedDevice,
    PickedDevice,
    allocate,
    allocations,
    shared_consumption,
)
from windlass.engine.devices.matching import matches
from windlass.spi.devices import (
    ConsumedCounters,
    DeviceMode,
    DeviceNeed,
    DeviceOption,
    DeviceRule,
    JointDeviceNeed,
)
from windlass.spi.objects import Device

NAMES = tuple(f"d{at}" for at in range(6))
VALUES = ("x", "y", "z")
COUNTERS: tuple[str, ...] = ("c0", "c1")

PART_OF = {name: f"{name}:memory" for name in NAMES}
TOTAL = 4

options = st.builds(
    lambda count, names, every, admin, units: DeviceOption(
        DeviceNeed("r", count, milli=1000, uuids=tuple(sorted(names))),
        every,
        admin and not every,
        tuple((name, ((PART_OF[name], units, TOTAL),)) for name in NAMES),
    ),
    st.integers(1, 3),
    st.sets(st.sampled_from(NAMES), min_size=1),
    st.sampled_from([False, False, False, True]),
    st.sampled_from([False, False, False, True]),
    st.integers(1, 3),
)
requests = st.lists(options, min_size=1, max_size=2).map(tuple)
claims = st.lists(requests, min_size=1, max_size=2).map(tuple)
offers = st.lists(
    st.builds(
        lambda free, draws, shared: (
            free,
            tuple((name, units, TOTAL) for name, units in sorted(draws.items())),
            shared,
        ),
        st.sampled_from([True, True, True, False]),
        st.dictionaries(st.sampled_from(COUNTERS), st.integers(1, 3), max_size=1),
        st.booleans(),
    ),
    min_size=1,
    max_size=len(NAMES),
)


@st.composite
def joints(draw: st.DrawFn) -> JointDeviceNeed:
    found = draw(st.lists(claims, min_size=1, max_size=2).map(tuple))
    rules = []
    for _ in range(draw(st.integers(0, 2))):
        claim = draw(st.integers(0, len(found) - 1))
        places = [(r, o) for r, every in enumerate(found[claim]) for o in range(len(every))]
        chosen = tuple(sorted(draw(st.sets(st.sampled_from(places), min_size=1))))
        values = draw(st.dictionaries(st.sampled_from(NAMES), st.sampled_from(VALUES)))
        rules.append(DeviceRule(claim, chosen, draw(st.booleans()), "a", tuple(sorted(values.items()))))
    return JointDeviceNeed(found, tuple(rules))


Told = tuple[bool, ConsumedCounters, bool]
"""Free, what it draws, shared."""


def offered(told: Sequence[Told]) -> list[OfferedDevice]:
    """Devices; what others have of those that are shared stands in the books alone (:func:`taken`)."""
    return [
        OfferedDevice(
            Device(at, "r", uuid=NAMES[at], mode=DeviceMode.NAMED, draws=draws, shared=shared),
            NAMES[at],
            free or shared,
            in_use=shared and not free,
        )
        for at, (free, draws, shared) in enumerate(told)
    ]


def taken(told: Sequence[Told]) -> dict[str, int]:
    """Of each that is shared and not free somebody has a part."""
    used: dict[str, int] = {}
    for at, (free, draws, shared) in enumerate(told):
        if shared and not free:
            used[PART_OF[NAMES[at]]] = 2
            for name, units, _ in draws:
                used[name] = used.get(name, 0) + units
    return used


def ways(
    joint: JointDeviceNeed, offers: Sequence[OfferedDevice], used: Mapping[str, int]
) -> Iterator[tuple[PickedDevice, ...]]:
    """Every choice of alternatives and of devices, the preferred first, good or not."""
    places = [(c, r) for c, every in enumerate(joint.claims) for r in range(len(every))]

    def after(at: int, picks: tuple[PickedDevice, ...]) -> Iterator[tuple[PickedDevice, ...]]:
        if at == len(places):
            yield picks
            return
        claim, request = places[at]
        for number, option in enumerate(joint.claims[claim][request]):
            serving = [i for i, one in enumerate(offers) if matches(option.need, one.device, one.uuid)]
            if option.every:
                serving = [
                    i
                    for i in serving
                    if not offers[i].device.shared
                    or used.get(PART_OF[NAMES[i]], 0) + option.parts[i][1][0][1] <= TOTAL
                ]
            count = len(serving) if option.every else option.need.count
            for chosen in combinations(serving, count) if count else ():
                more = tuple(PickedDevice(claim, request, number, i, option.admin) for i in chosen)
                yield from after(at + 1, picks + more)

    yield from after(0, ())


def holds(
    joint: JointDeviceNeed,
    offers: Sequence[OfferedDevice],
    before: Mapping[str, int],
    picks: Sequence[PickedDevice],
) -> bool:
    """Whether picks are what the fields of a claim say, one after the other."""
    used = dict(before)
    having: dict[int, set[int]] = {}
    begun = {at for at, one in enumerate(offers) if one.in_use}
    for pick in picks:
        device = offers[pick.position].device
        if device.shared:
            option = joint.claims[pick.claim][pick.request][pick.option]
            name, units, _ = option.share_by_device[offers[pick.position].uuid][0]
            used[name] = used.get(name, 0) + units
            for name, units, _ in () if pick.position in begun else device.draws:
                used[name] = used.get(name, 0) + units
            begun.add(pick.position)
            continue
        others = having.setdefault(pick.position, set())
        if pick.admin and pick.claim in others:
            return False
        if not pick.admin and (others or not offers[pick.position].free):
            return False
        others.add(pick.claim)
        for name, units, _ in () if pick.admin else device.draws:
            used[name] = used.get(name, 0) + units
    for rule in joint.rules:
        concerned = [p for p in picks if p.claim == rule.claim and (p.request, p.option) in rule.options]
        values = [rule.by_device.get(offers[p.position].uuid) for p in concerned]
        if None in values:
            return False
        if len(set(values)) != (len(values) if rule.distinct else min(1, len(values))):
            return False
    return all(units <= TOTAL or units == before.get(name) for name, units in used.items())


@given(joint=joints(), told=offers)
@settings(max_examples=examples(300), deadline=None)
def test_the_first_way_that_holds_is_found_and_only_where_there_is_one(
    joint: JointDeviceNeed, told: Sequence[Told]
) -> None:
    offers, used = offered(told), taken(told)
    best = next((picks for picks in ways(joint, offers, used) if holds(joint, offers, used, picks)), None)
    assert allocate(joint, offers, used) == best


@given(joint=joints(), told=offers)
@settings(max_examples=examples(300), deadline=None)
def test_what_devices_serve_can_be_told_from_the_devices(
    joint: JointDeviceNeed, told: Sequence[Told]
) -> None:
    offers = offered(told)
    picks = allocate(joint, offers, taken(told))
    if picks is not None:
        held = [
            HeldDevice(
                pick.position,
                shared_consumption(joint, pick, offers) if offers[pick.position].device.shared else (),
            )
            for pick in picks
            if not pick.admin
        ]
        again = allocate(joint, [one._replace(in_use=False) for one in offers], {}, held)
        assert again is not None
        assert [pick for pick in again if not pick.admin] == [pick for pick in picks if not pick.admin]
        assert len(again) == len(picks)


@given(joint=joints(), told=offers)
@settings(max_examples=examples(300), deadline=None)
def test_one_search_for_many_pods_gives_what_a_search_for_each_gives(
    joint: JointDeviceNeed, told: Sequence[Told]
) -> None:
    offers, used = offered(told), taken(told)
    expected = []
    while (picks := allocate(joint, offers, used)) is not None:
        expected.append(picks)
        held = [pick for pick in picks if not pick.admin]
        if not held:
            break
        for pick in held:
            shared, at = offers[pick.position].device.shared, pick.position
            draws = () if offers[at].in_use else offers[at].device.draws
            for name, units, _ in (*draws, *(shared_consumption(joint, pick, offers) if shared else ())):
                used[name] = used.get(name, 0) + units
            offers[at] = offers[at]._replace(free=shared, in_use=shared)
    assert list(allocations(joint, offered(told), taken(told))) == expected


@given(told=offers, used=st.integers(0, 4))
@settings(max_examples=100, deadline=None)
def test_what_others_draw_counts(told: Sequence[Told], used: int) -> None:
    offers = offered([(free, draws, False) for free, draws, _ in told])
    joint = JointDeviceNeed((((DeviceOption(DeviceNeed("r", 1, milli=1000, uuids=NAMES)),),),))
    picks = allocate(joint, offers, dict.fromkeys(COUNTERS, used))
    able = [
        at
        for at, one in enumerate(offers)
        if one.free and all(used + units <= total for _, units, total in one.device.draws)
    ]
    assert ([pick.position for pick in picks] if picks else []) == able[:1]


def test_a_search_without_a_solution_ends() -> None:
    """Of devices that are all different, none of which goes with the last request."""
    names = tuple(f"n{at}" for at in range(40))
    offers = [OfferedDevice(Device(at, "r", uuid=name), name, free=True) for at, name in enumerate(names)]
    values = tuple((name, name) for name in names)
    need = DeviceNeed("r", 16, milli=1000)
    two = DeviceOption(DeviceNeed("r", 2, milli=1000))
    joint = JointDeviceNeed(
        (((DeviceOption(need),), (two,)),),
        (
            DeviceRule(0, ((0, 0),), True, "a", values),
            DeviceRule(0, ((1, 0),), False, "a", values),
        ),
    )
    assert allocate(joint, offers, {}) is None
