"""The plain renderer."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from windlass.cli.tables import cells, pairs, render, shorten

TEXT = st.text(st.characters(codec="utf-8", exclude_categories=("Cs", "Cc")), max_size=30)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(TEXT, TEXT, TEXT), max_size=6), st.integers(40, 120))
def test_no_line_is_wider_than_asked_unless_the_first_columns_are(rows, width):
    text = render(("A", "B", "C"), rows, width=width)
    fixed = sum(max([1, *(cells(row[at]) for row in rows)]) for at in (0, 1)) + 4
    assert all(cells(line) <= max(width, fixed + 8) for line in text.split("\n"))


@settings(max_examples=60, deadline=None)
@given(TEXT, st.integers(1, 40))
def test_a_shortened_text_fits_and_keeps_its_beginning(text, width):
    short = shorten(text, width)
    assert cells(short) <= width
    if short != text:
        assert short.endswith("…")
        assert text.startswith(short[:-1])


def test_columns_are_two_apart_and_lines_have_no_blanks_at_their_end():
    assert render(("A", "LONG"), [("1", "x"), ("22", "")]) == "A   LONG\n1   x\n22\n"


def test_numbers_stand_flush_right():
    assert render(("N",), [("1",), ("22",)], right=frozenset({0})) == " N\n 1\n22\n"


def test_wide_characters_take_two_cells():
    assert cells("数据") == 4
    assert render(("A", "B"), [("数据", "x"), ("ab", "y")]) == "A     B\n数据  x\nab    y\n"


def test_a_line_break_in_a_cell_does_not_break_the_table():
    assert render(("A", "B"), [("x\ny", "z")]) == "A    B\nx y  z\n"


def test_pairs_align_and_leave_out_what_is_empty():
    assert pairs([("One", "1"), ("Longer", "a\nb"), ("None", "")]) == "One:     1\nLonger:  a\n         b\n"


def test_no_control_character_reaches_the_terminal():
    assert render(("A",), [("x\x1b[31mred\x07\nnext",)]) == "A\nx?[31mred? next\n"
