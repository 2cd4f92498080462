"""Canonical quantities and times, in Go's words where there is none."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from windlass.api import quantities
from windlass.api.wire import field_values
from windlass.api.wire.field_values import canonical_quantity, canonical_time


@pytest.mark.parametrize(
    ("written", "canonical"),
    [
        (4, "4"),
        (0.5, "500m"),
        ("1000m", "1"),
        ("0.5", "500m"),
        ("1.50", "1500m"),
        ("1024Mi", "1Gi"),
        ("1536Mi", "1536Mi"),
        ("0.5Gi", "512Mi"),
        ("500G", "500G"),
        ("1000k", "1M"),
        ("1000", "1k"),
        ("1024", "1024"),
        ("100Ki", "100Ki"),
        ("10e2", "1e3"),
        ("1E3", "1E3"),
        ("5.", "5."),
        ("0.0", "0"),
        ("-0", "0"),
        ("0.1n", "1n"),
        ("1.5Ki", "1536"),
        ("0.1Ki", "102400m"),
    ],
)
def test_quantities(written: str | int | float, canonical: str) -> None:
    assert canonical_quantity(written) == canonical


def test_amounts_of_a_resource_list_are_rounded_up_to_thousandths() -> None:
    assert canonical_quantity("100n", milli=True) == "1m"
    assert canonical_quantity("1.0001", milli=True) == "1001m"
    assert canonical_quantity("-1.0001", milli=True) == "-1001m"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x1", field_values.FORMAT_WRONG),
        ("", field_values.FORMAT_WRONG),
        ("1x", field_values.FORMAT_WRONG),
        ("1mi", field_values.SUFFIX_WRONG),
        ("1..5", field_values.NUMBER_WRONG),
    ],
)
def test_no_quantities(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=r"^" + words[:20].replace("(", r"\(")) as caught:
        canonical_quantity(text)
    assert str(caught.value) == words


@settings(max_examples=200, deadline=None)
@given(
    st.integers(0, 10**9), st.integers(0, 999), st.sampled_from(["", "m", "k", "Ki", "M", "Mi", "Gi", "e3"])
)
def test_the_canonical_text_means_the_same_and_stays(whole: int, fraction: int, suffix: str) -> None:
    text = f"{whole}.{fraction}{suffix}" if fraction else f"{whole}{suffix}"
    canonical = canonical_quantity(text)
    exact, shown = quantities.parse(text), quantities.parse(canonical)
    assert 0 <= shown - exact < quantities.parse("1n")
    assert canonical_quantity(canonical) == canonical


@pytest.mark.parametrize(
    ("written", "canonical"),
    [
        ("2026-01-01T12:00:00Z", "2026-01-01T12:00:00Z"),
        ("2026-01-01T14:00:00+02:00", "2026-01-01T12:00:00Z"),
        ("2026-01-01T12:00:00.987654321Z", "2026-01-01T12:00:00Z"),
    ],
)
def test_times(written: str, canonical: str) -> None:
    assert canonical_time(written) == canonical


def test_micro_times_have_six_digits() -> None:
    assert canonical_time("2026-01-01T14:00:00.000001+02:00", micro=True) == "2026-01-01T12:00:00.000001Z"
    with pytest.raises(ValueError, match=r'cannot parse "Z" as "\.000000"'):
        canonical_time("2026-01-01T12:00:00Z", micro=True)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x", 'cannot parse "x" as "2006"'),
        ("2026-13-01T00:00:00Z", "out of range"),
        ("2026-01-01", 'cannot parse "" as "T"'),
        ("2026-01-01T00:00:00", 'cannot parse "" as "Z07:00"'),
    ],
)
def test_no_times(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        canonical_time(text)


@pytest.mark.parametrize(("text", "position"), [("&&", 0), ("aaa&", 3), ("aaaaa", 4)])
def test_no_base64(text: str, position: int) -> None:
    with pytest.raises(ValueError, match=f"illegal base64 data at input byte {position}"):
        field_values.check_base64(text)


def test_base64() -> None:
    field_values.check_base64("aGVs\nbG8=")
    field_values.check_base64("")
