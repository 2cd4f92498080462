from __future__ import annotations

import pytest

from windlass.kits import durations


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("10m", 600),
        ("1h30m", 5400),
        ("1.5s", 1.5),
        ("300ms", 0.3),
        ("0", 0),
        ("0s", 0),
        ("-5s", -5),
        ("+5s", 5),
    ],
)
def test_parse(text: str, seconds: float) -> None:
    assert durations.parse(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text", ["", "5", "m", "5x", "1h 2m", "-", "--5s", "+-5s", "9" * 400 + "h", "3000000h"]
)
def test_nonsense_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        durations.parse(text)


@pytest.mark.parametrize(
    ("text", "seconds"), [("30d", 2_592_000), ("1d12h", 129_600), ("0.5d", 43_200), ("90s", 90)]
)
def test_long_ones_may_have_days(text: str, seconds: float) -> None:
    assert durations.parse_long(text) == seconds


@pytest.mark.parametrize("text", ["d", "-3d", "1d-2h", "1d2", "2h1d", "9" * 400 + "d", "200000d"])
def test_long_ones_are_refused_where_they_make_no_sense(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        durations.parse_long(text)


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0s"), (45, "45s"), (90, "1m30s"), (3605, "1h0m5s"), (-3, "0s"), (59.9, "59s")]
)
def test_write(seconds: float, text: str) -> None:
    assert durations.write(seconds) == text
