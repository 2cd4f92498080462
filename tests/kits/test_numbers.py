"""Whole numbers in text."""

from __future__ import annotations

import pytest

from windlass.kits.numbers import parse_int64


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("5", 5),
        ("-05", -5),
        ("+7", 7),
        (str((1 << 63) - 1), (1 << 63) - 1),
        (str(1 << 63), None),
        (str(-(1 << 63)), -(1 << 63)),
        ("1_000", None),
        (" 5", None),
        ("5\n", None),
        ("٣", None),
        ("1.0", None),
        ("", None),
        ("9" * 5000, None),
        (None, None),
    ],
)
def test_what_is_a_whole_number(text: str | None, number: int | None) -> None:
    assert parse_int64(text) == number
