import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.kits.timestamps import age, parse_rfc3339, rfc3339, rfc3339_micro

YEAR = 365 * 24 * 3600


@given(st.integers(0, 4_000_000_000))
def test_whole_seconds_survive_the_round_trip(seconds: int):
    assert parse_rfc3339(rfc3339(seconds)) == seconds


@given(st.integers(0, 4_000_000_000), st.integers(0, 999_999))
def test_microseconds_survive_the_round_trip(seconds: int, micros: int):
    assert parse_rfc3339(rfc3339_micro(seconds + micros / 1e6)) == pytest.approx(
        seconds + micros / 1e6, abs=2e-6
    )


def test_a_time_without_a_zone_is_refused():
    with pytest.raises(ValueError, match="no zone"):
        parse_rfc3339("2026-01-01T12:00:00")


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (-5, "<invalid>"), (-1, "0s"), (0, "0s"), (119, "119s"), (120, "2m"), (185, "3m5s"), (599, "9m59s"),
        (600, "10m"), (3 * 3600 - 1, "179m"), (3 * 3600, "3h"), (3 * 3600 + 300, "3h5m"), (8 * 3600, "8h"),
        (47 * 3600, "47h"), (48 * 3600, "2d"), (50 * 3600, "2d2h"), (9 * 86400, "9d"), (2 * YEAR, "2y"),
        (2 * YEAR + 3 * 86400, "2y3d"), (9 * YEAR, "9y"),
    ],
)  # fmt: skip
def test_age_reads_as_kubectl_shows_it(seconds: int, shown: str):
    assert age(seconds) == shown
