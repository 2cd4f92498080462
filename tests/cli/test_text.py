"""Words that commands share."""

from __future__ import annotations

import pytest

from windlass.cli.text import approximate_duration, name_ranges

MINUTE, HOUR, DAY = 60, 3600, 86_400


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0, "~1s"),
        (119, "~119s"),
        (3 * MINUTE + 10, "~3m"),
        (HOUR, "~1h"),
        (90 * MINUTE, "~1h30m"),
        (2.5 * HOUR - 60, "~2h30m"),
        (2 * HOUR - 60, "~2h"),
        (12.6 * HOUR, "~13h"),
        (1.5 * DAY, "~1d12h"),
        (2 * DAY - 60, "~2d"),
        (30 * DAY, "~30d"),
    ],
)
def test_an_estimate_is_told_to_a_few_percent(seconds: float, said: str) -> None:
    assert approximate_duration(seconds) == said


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ([], ""),
        (["box"], "box"),
        (["a-0", "a-1"], "a-0, a-1"),
        (["a-0", "a-1", "a-2", "b", "b-3"], "a-0 … a-2, b, b-3"),
        (["n08", "n09", "n10"], "n08 … n10"),
        (["n8", "n09", "n10"], "n8, n09, n10"),
    ],
)
def test_consecutive_names_are_a_range(names: list[str], text: str) -> None:
    assert name_ranges(names) == text
