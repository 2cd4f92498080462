"""The plain renderer."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from windlass.cli.tables import cells, columns_to_drop, pairs, render, shorten

TEXT = st.text(st.characters(codec="utf-8", exclude_categories=("Cs", "Cc")), max_size=30)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(TEXT, TEXT, TEXT), max_size=6), st.integers(1, 120), st.frozensets(st.integers(0, 2))
)
def test_no_line_is_wider_than_asked(rows, width, right):
    text = render(("A", "B", "C"), rows, width=width, right=right)
    assert text.count("\n") == len(rows) + 1
    assert all(cells(line) <= width for line in text.split("\n"))


def test_the_last_column_gives_way_first_then_the_widest_of_texts_and_numbers_stay():
    row = ("n" * 20, "m" * 12, "123456789", "w" * 30)
    assert render("ABCD", [row], width=70, right=frozenset({2})).splitlines()[1] == (
        f"{'n' * 20}  {'m' * 12}  123456789  {'w' * 22}…"
    )
    assert render("ABCD", [row], width=45, right=frozenset({2})).splitlines()[1] == (
        f"{'n' * 10}…  {'m' * 10}…  123456789  {'w' * 7}…"
    )


def test_columns_are_left_out_in_their_order_and_only_as_many_as_must_be():
    header, rows = ("NAME", "ONE", "TWO", "WHY"), [("a" * 10, "1", "2", "y" * 40)]
    spare = ("TWO", "ONE", "UNKNOWN")
    assert columns_to_drop(header, rows, 0, spare) == []
    assert columns_to_drop(header, rows, 30, spare) == []  # 10 + 3 + 3 + 8 and three gaps
    assert columns_to_drop(header, rows, 29, spare) == ["TWO"]
    assert columns_to_drop(header, rows, 24, spare) == ["TWO", "ONE"]
    assert columns_to_drop(header, rows, 24, spare, limits=(4, 0, 0, 0)) == []
    assert columns_to_drop(header, rows, 30, spare, least=9) == ["TWO"]


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
    assert render(("A",), [("x\x1b[31mred\x07\nnext",)]) == "A\nx\\x1b[31mred\\x07 next\n"
