"""Device assignments as annotations, in both directions."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from windlass.api.devices.assignment_annotations import (
    DEVICES,
    SHARES,
    SLICES,
    AssignmentError,
    DeviceAssignment,
    from_annotations,
    to_annotations,
)


def test_annotations_of_each_kind() -> None:
    parts = [
        DeviceAssignment(3),
        DeviceAssignment(0, 500, 10240),
        DeviceAssignment(1, 0, 0, "1g.10gb", 6),
        DeviceAssignment(1, 0, 0, "1g.10gb+me", 5),
    ]
    assert to_annotations(parts) == {
        DEVICES: "0,1,3",
        SHARES: "0:500/10240",
        SLICES: "1:1g.10gb@6,1:1g.10gb+me@5",
    }
    assert to_annotations([]) == {}
    assert from_annotations({}) == ()


def test_order_of_the_devices_is_preserved() -> None:
    assert [part.index for part in from_annotations({DEVICES: "3, 1"})] == [3, 1]


@pytest.mark.parametrize(
    ("annotations", "words"),
    [
        ({DEVICES: "x"}, "by number"),
        ({DEVICES: "1,1"}, "twice"),
        ({DEVICES: "-1"}, "by number"),
        ({DEVICES: "0", SHARES: "0:50%"}, "0:500/10240"),
        ({DEVICES: "0", SHARES: "1:500/0"}, "does not name device 1"),
        ({SLICES: "0:1g.5gb@0"}, "does not name device 0"),
        ({DEVICES: "0", SHARES: "0:1001/0"}, "more than a whole"),
        ({DEVICES: "0", SLICES: "0:1g.5gb"}, "1g.10gb@6"),
    ],
)
def test_invalid_annotations(annotations: dict[str, str], words: str) -> None:
    with pytest.raises(AssignmentError, match=words):
        from_annotations(annotations)


PARTS = st.one_of(
    st.builds(DeviceAssignment, st.integers(0, 9)),
    st.builds(DeviceAssignment, st.integers(10, 19), st.integers(0, 999), st.integers(0, 90000)),
    st.builds(
        DeviceAssignment,
        st.integers(20, 29),
        st.just(0),
        st.just(0),
        st.sampled_from(["1g.10gb", "1g.10gb+me", "3g.40gb"]),
        st.integers(0, 7),
    ),
)


@settings(max_examples=80, deadline=None)
@given(st.lists(PARTS, max_size=8, unique_by=lambda part: (part.index, part.profile, part.start)))
def test_there_and_back(parts: list[DeviceAssignment]) -> None:
    assert sorted(from_annotations(to_annotations(parts))) == sorted(parts)
