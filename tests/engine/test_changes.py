"""``engine.changes``: one log, many readers."""

from __future__ import annotations

from windlass.engine.changes import ChangeLog


def test_a_reader_sees_what_came_after_its_mark() -> None:
    log = ChangeLog()
    log.add(3)
    mark = log.mark
    log.add(5)
    log.add(5)
    assert log.since(mark) == [5, 5]
    assert log.since(log.mark) == []
    assert log.since(0) == [3, 5, 5]


def test_a_reader_that_lags_behind_dropped_entries_is_told() -> None:
    log = ChangeLog(limit=4)
    for row in range(5):
        log.add(row)
    mark = log.mark
    log.trim()
    assert log.base == 2
    assert log.since(0) is None
    assert log.since(1) is None
    assert log.since(2) == [2, 3, 4]
    assert log.mark == mark


def test_a_short_log_is_not_trimmed() -> None:
    log = ChangeLog(limit=4)
    for row in range(4):
        log.add(row)
    log.trim()
    assert log.since(0) == [0, 1, 2, 3]
