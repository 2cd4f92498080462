"""``model.records.attained_service``: what a group attained, as its object says, and what cannot be true."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.api import annotations as names
from windlass.model.records import attained_service
from windlass.spi.objects import AttainedService

CREATED = 1_767_225_600.0  # 2026-01-01T00:00:00Z
SAID = {
    "windlass.dev/attained": "2h0m0s",
    "windlass.dev/attained-at": "2026-01-01T03:00:00Z",
    "windlass.dev/suspensions": "2",
}


@given(st.floats(0, 1e7), st.floats(0, 1e7), st.integers(0, 1000))
def test_record_round_trip_loses_at_most_a_second(attained: float, more: float, times: int) -> None:
    past = AttainedService(attained, CREATED + attained + more, times)
    notes = {name: text or "" for name, text in attained_service.written(past).items()}
    found = attained_service.attained_service_of(notes, CREATED)
    assert found is not None
    assert 0 <= past.attained - found.attained < 1
    assert 0 <= past.at - found.at < 1
    assert found.suspensions == times
    assert attained_service.problem(notes, CREATED) == ""
    assert attained_service.written(found) == notes  # written again it is the same


@pytest.mark.parametrize(
    ("notes", "words"),
    [
        ({"attained": "long"}, "attained: 'long' is not a duration"),
        ({"attained": "-1h"}, "attained: -1h is negative"),
        (
            {"attained": "3h2m"},
            "longer than the object existed by 2026-01-01T03:00:00Z (since 2026-01-01T00",
        ),
        ({"attained-at": "yesterday"}, "attained-at: "),
        ({"attained-at": ""}, "attained-at is missing"),
        ({"attained-at": "2025-12-31T03:00:00Z"}, "is before the object was created"),
        ({"suspensions": "-1"}, "suspensions: -1 is negative"),
        ({"suspensions": "often"}, "suspensions: invalid literal"),
    ],
)
def test_impossible_record_is_reported_and_ignored(notes: dict[str, str], words: str) -> None:
    said = {**SAID, **{f"windlass.dev/{name}": text for name, text in notes.items()}}
    assert words in attained_service.problem(said, CREATED)
    assert attained_service.attained_service_of(said, CREATED) is None


def test_missing_record_is_none() -> None:
    assert attained_service.attained_service_of({"windlass.dev/suspensions": "3"}, CREATED) is None
    assert attained_service.problem({}, CREATED) == ""
    assert attained_service.attained_service_of(SAID, CREATED) == AttainedService(7200.0, CREATED + 10_800, 2)


def test_carried_record_counts_from_the_first_object() -> None:
    first = attained_service.carried(SAID | {"other": "x"}, "2026-01-01T00:00:00Z")
    assert first == SAID | {"windlass.dev/attained-since": "2026-01-01T00:00:00Z"}
    assert attained_service.carried(first, "2026-01-02T00:00:00Z") == first
    made_anew = CREATED + 86_400
    assert attained_service.attained_service_of(SAID, made_anew) is None
    assert attained_service.attained_service_of(first, made_anew) == AttainedService(
        7200.0, CREATED + 10_800, 2, CREATED
    )
    assert attained_service.carried({"other": "x"}, "2026-01-01T00:00:00Z") == {}
    assert "attained-since" in attained_service.problem(
        first | {"windlass.dev/attained-since": "then"}, CREATED
    )


def test_successor_of_an_evicted_group_keeps_its_place_in_the_queue() -> None:
    first = attained_service.carried({names.EVICTED_FOR: "{}"}, "2026-01-01T00:00:00Z")
    assert first[names.QUEUED_SINCE] == "2026-01-01T00:00:00Z"
    assert attained_service.carried(first, "2026-01-02T00:00:00Z") == first
