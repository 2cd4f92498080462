"""``engine.devices.whole_device_table``: exact indices, lowest first, never twice."""

from __future__ import annotations

import pytest
from cluster_dsl import GPU
from hypothesis import given, settings
from hypothesis import strategies as st

from windlass.engine.decision import DeviceShare
from windlass.engine.devices.whole_device_table import Slots, WholeDeviceTable, bits, slots_of
from windlass.spi.objects import Device, Node


@pytest.mark.parametrize(("mask", "indices"), [(0, []), (1, [0]), (0b1010, [1, 3]), (1 << 70, [70])])
def test_bits(mask: int, indices: list[int]) -> None:
    assert bits(mask) == indices


@pytest.mark.parametrize(
    ("free", "count", "picked"),
    [(0b1111, 1, 0b1), (0b1100, 1, 0b100), (0b1010, 2, 0b1010), (0b1010, 3, 0), (0, 1, 0), (0b111, 2, 0b11)],
)
def test_the_lowest_free_devices_are_picked_or_none(free: int, count: int, picked: int) -> None:
    assert Slots(known=15, healthy=15, free=free).pick(count) == picked


def test_anonymous_devices_are_numbered_from_zero() -> None:
    slots = slots_of(Node("n", {GPU: 4000, "cpu": 8000, "huawei.com/npu": 500}))
    assert list(slots) == [GPU]
    assert bits(slots[GPU].free) == [0, 1, 2, 3]


def test_listed_devices_are_those_and_unhealthy_ones_are_not_free() -> None:
    devices = (Device(2, GPU), Device(5, GPU, healthy=False), Device(7, "huawei.com/npu"))
    slots = slots_of(Node("n", {GPU: 8000, "huawei.com/npu": 1000}, devices=devices))
    assert bits(slots[GPU].known) == [2, 5]
    assert bits(slots[GPU].free) == [2]
    assert slots[GPU].unusable == 1
    assert bits(slots["huawei.com/npu"].free) == [7]


def test_an_unhealthy_device_in_use_is_not_unusable_and_not_free_afterwards() -> None:
    slots = Slots(known=3, healthy=1, free=1)
    slots.take(2)
    assert (slots.unusable, slots.free) == (0, 1)
    slots.give(2)
    assert (slots.unusable, slots.free) == (1, 1)


def test_a_device_claimed_twice_is_free_only_after_both_have_gone() -> None:
    slots = Slots(known=3, healthy=3, free=3)
    slots.take(0b01)
    slots.take(0b11)
    assert slots.surplus == {0: 1}
    slots.give(0b11)
    assert (bits(slots.free), slots.surplus) == ([1], {})
    slots.give(0b01)
    assert bits(slots.free) == [0, 1]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 255)), max_size=30))
def test_free_is_what_nobody_holds(moves: list[tuple[bool, int]]) -> None:
    slots = Slots(known=255, healthy=0b11011011, free=0b11011011)
    held: list[int] = []
    for take, mask in moves:
        if take:
            slots.take(mask)
            held.append(mask)
        elif held:
            slots.give(held.pop(mask % len(held)))
        union = 0
        for mask_held in held:
            union |= mask_held
        assert slots.taken == union
        assert slots.free == slots.healthy & ~union
        for index in range(8):
            holders = sum(mask_held >> index & 1 for mask_held in held)
            assert slots.surplus.get(index, 0) == max(0, holders - 1)


def table(*nodes: dict[str, Slots]) -> WholeDeviceTable:
    devices = WholeDeviceTable()
    devices.resize(len(nodes))
    for row, slots in enumerate(nodes):
        devices.rows[row] = slots
    return devices


def test_shares_are_tuples_of_whole_devices_and_shared() -> None:
    devices = table()
    held, shares = devices.holding(GPU, 0b101)
    assert held == ((GPU, 0b101),)
    assert shares == (DeviceShare(0, GPU, 1000), DeviceShare(2, GPU, 1000))
    assert devices.holding(GPU, 0b101)[1] is shares


def test_reported_indices_are_sorted_under_the_resources_that_have_them() -> None:
    npu = "huawei.com/npu"
    devices = table({GPU: Slots(known=0b0011), npu: Slots(known=0b1100)})
    wanted = ((GPU, 1), (npu, 1))
    assert devices.locate(0, wanted, (1, 0)) == ((GPU, 0b10), (npu, 0b01))  # complete: in order
    assert devices.locate(0, wanted, (2,)) == ((npu, 0b100),)  # not: by who has it
    assert devices.locate(0, wanted, (9,)) == ((GPU, 1 << 9),)  # unknown: under the first
    assert devices.locate(0, (), (1,)) == ()


def test_taking_from_a_node_that_lists_nothing_is_booked_all_the_same() -> None:
    devices = table({})
    devices.take(0, ((GPU, 1),))
    assert devices.rows[0][GPU].taken == 1
    devices.give(0, ((GPU, 1),))
    assert devices.rows[0][GPU].taken == 0
