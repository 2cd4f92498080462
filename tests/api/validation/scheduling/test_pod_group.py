"""Times in the annotations of a PodGroup."""

from __future__ import annotations

import pytest

from windlass.api import annotations as names
from windlass.api.resources import POD_GROUPS
from windlass.api.validation import validate


def group(start: str) -> dict[str, object]:
    return {
        "apiVersion": POD_GROUPS.api_version,
        "kind": "PodGroup",
        "metadata": {"name": "train", "namespace": "default", "annotations": {names.EARLIEST_START: start}},
        "spec": {"minMember": 1, "queue": "default"},
    }


@pytest.mark.parametrize("start", ["tomorrow", "2027-01-31T08:30:00", "10m"])
def test_earliest_start_that_is_not_a_time_is_rejected(start):
    (error,) = validate(POD_GROUPS, group(start))
    assert f"metadata.annotations[{names.EARLIEST_START}]" in str(error)
    assert "write a time with zone: 2027-01-31T08:30:00Z" in str(error)
    assert validate(POD_GROUPS, group(start), group(start)) == []  # stored before it was checked


def test_times_with_a_zone_are_accepted():
    for start in ("2027-01-31T08:30:00Z", "2027-01-31T08:30:00.123456Z", "2027-01-31T08:30:00+01:00"):
        assert validate(POD_GROUPS, group(start)) == []
