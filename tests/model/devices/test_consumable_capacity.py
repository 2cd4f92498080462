"""Consumption of device capacities by shares."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.api.views import DeviceCapacity
from windlass.model.devices.consumable_capacity import consumed, share_of, units

SPAN = DeviceCapacity("m", "80Gi", default="5Gi", least="1Gi", most="41Gi", step="2Gi")
VALUES = DeviceCapacity("m", "80Gi", default="10Gi", values=("10Gi", "20Gi", "40Gi"))


@pytest.mark.parametrize(
    ("told", "asked", "taken"),
    [
        (DeviceCapacity("m", "80Gi"), None, "80Gi"),
        (DeviceCapacity("m", "80Gi"), "3G", "3G"),
        (DeviceCapacity("m", "80Gi"), "81Gi", None),
        (DeviceCapacity("m", "80Gi", default="8Gi"), None, "8Gi"),
        (DeviceCapacity("m", "80Gi", default="8Gi"), "9Gi", "9Gi"),
        (SPAN, None, "5Gi"),
        (SPAN, "1", "1Gi"),
        (SPAN, "1Gi", "1Gi"),
        (SPAN, "2Gi", "3Gi"),
        (SPAN, "40500Mi", "41Gi"),
        (SPAN, "42Gi", None),
        (DeviceCapacity("m", "9", default="1", least="1", step="3"), "1500m", "4"),
        (DeviceCapacity("m", "9", default="1", least="1"), "1500m", "1500m"),
        (DeviceCapacity("m", "9", default="1", least="1", step="3"), "8", None),
        (VALUES, None, "10Gi"),
        (VALUES, "1M", "10Gi"),
        (VALUES, "15Gi", "20Gi"),
        (VALUES, "41Gi", None),
    ],
)
def test_requested_amount_is_rounded_to_an_allowed_one(
    told: DeviceCapacity, asked: str | None, taken: str | None
) -> None:
    found = consumed([("m", asked)] if asked else [], [told])
    assert found == (None if taken is None else (("m", taken),))


def test_missing_capacity_cannot_be_requested() -> None:
    assert consumed([("x", "1")], [SPAN]) is None
    assert consumed([], []) == ()


@given(st.integers(0, 60), st.integers(0, 8), st.integers(1, 8), st.integers(0, 60))
def test_amount_is_rounded_up_to_the_next_step(asked: int, least: int, step: int, most: int) -> None:
    told = DeviceCapacity("m", "60", default=str(least), least=str(least), most=str(most), step=str(step))
    able = [n for n in range(least, most + 1, step) if n >= asked]
    found = consumed([("m", str(asked))], [told])
    if not able and asked > least:
        assert found is None
    elif able:
        assert found is not None
        assert units(found[0][1]) == units(str(able[0]))


def test_largest_share_counts_rounded_up() -> None:
    assert share_of([("a", 1, 3), ("b", 1, 4), ("c", 5, 0)]) == 334
    assert share_of([]) == 0
