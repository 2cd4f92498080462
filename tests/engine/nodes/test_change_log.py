"""``engine.nodes.table.ChangeLog``: one log, many readers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from windlass.engine.nodes.table import ChangeLog


def test_a_reader_sees_what_came_after_its_mark() -> None:
    log = ChangeLog()
    log.add(3)
    mark = log.mark
    log.add(5)
    log.add(5)
    assert log.since(mark) == [5]
    assert log.since(log.mark) == []
    assert log.since(0) == [5, 3]


def test_a_row_that_changes_again_is_read_again_and_once() -> None:
    log = ChangeLog()
    for row in (1, 2, 1):
        log.add(row)
    mark = log.mark
    assert log.since(0) == [1, 2]
    log.add(1)
    assert log.since(mark) == [1]
    assert log.since(0) == [1, 2]
    assert log.stamps == {2: 2, 1: 4}


@given(st.lists(st.integers(0, 5)), st.integers(0, 30))
def test_every_reader_sees_the_rows_that_changed_after_its_mark(rows: list[int], at: int) -> None:
    log = ChangeLog()
    for row in rows:
        log.add(row)
    late = rows[at:]
    found = log.since(at)
    assert set(found) == set(late)
    assert found == sorted(set(late), key=lambda row: late[::-1].index(row))
