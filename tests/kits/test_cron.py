"""Schedules in cron format: fields, days, time zones, and times that were missed."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import pytest

from windlass.kits.cron import last_due, parse_cron


def at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def times(schedule: str, start: str, count: int, zone: str = "") -> list[str]:
    found, moment = [], at(start)
    for _ in range(count):
        following = parse_cron(schedule, zone).next_after(moment)
        assert following is not None
        moment = following
        found.append(datetime.fromtimestamp(moment, UTC).strftime("%a %m-%d %H:%M"))
    return found


def test_next_times() -> None:
    for schedule, start, expected in (
        ("*/20 * * * *", "2026-01-01 00:20", ["Thu 01-01 00:40", "Thu 01-01 01:00"]),
        ("5,10-11 3 * * *", "2026-01-01 03:05", ["Thu 01-01 03:10", "Thu 01-01 03:11", "Fri 01-02 03:05"]),
        ("30 6-16/4 * * 1-5", "2026-01-02 14:30", ["Mon 01-05 06:30", "Mon 01-05 10:30"]),
        ("0 0 13 * fri", "2026-01-01 00:00", ["Fri 01-02 00:00", "Fri 01-09 00:00", "Tue 01-13 00:00"]),
        ("0 0 */2 * sun", "2026-01-01 00:00", ["Sat 01-03 00:00", "Sun 01-04 00:00", "Mon 01-05 00:00"]),
        ("0 0 ? FEB,mar ?", "2026-01-15 00:00", ["Sun 02-01 00:00", "Mon 02-02 00:00"]),
        ("0 12 29 2 *", "2026-01-01 00:00", ["Tue 02-29 12:00"]),
        ("@hourly", "2026-01-01 00:00", ["Thu 01-01 01:00"]),
        ("@weekly", "2026-01-01 00:00", ["Sun 01-04 00:00"]),
        ("@monthly", "2026-01-31 00:00", ["Sun 02-01 00:00"]),
        ("@every 90m", "2026-01-01 00:10", ["Thu 01-01 01:40", "Thu 01-01 03:10"]),
        ("10/25 * * * *", "2026-01-01 00:00", ["Thu 01-01 00:10", "Thu 01-01 00:35", "Thu 01-01 01:10"]),
    ):
        assert times(schedule, start, len(expected)) == expected, schedule
    assert parse_cron("59 23 31 2 *").next_after(0.0) is None


def test_time_zones_and_changes_of_the_clock() -> None:
    berlin = "Europe/Berlin"
    assert times("0 3 * * *", "2026-01-01 00:00", 1, berlin) == ["Thu 01-01 02:00"]
    assert times("TZ=America/New_York 0 3 * * *", "2026-01-01 00:00", 1) == ["Thu 01-01 08:00"]
    # 29 March: 02:00 to 03:00 is skipped. 25 October: it comes twice.
    assert times("30 2 * * *", "2026-03-28 00:00", 2, berlin) == ["Sat 03-28 01:30", "Mon 03-30 00:30"]
    assert times("30 2 * * *", "2026-10-24 12:00", 3, berlin) == [
        "Sun 10-25 00:30",
        "Sun 10-25 01:30",
        "Mon 10-26 01:30",
    ]


@pytest.mark.parametrize(
    ("schedule", "words"),
    [
        ("* * * *", "4 fields, and a schedule has 5"),
        ("60 * * * *", 'minute "60": values are from 0 to 59'),
        ("* * * * 7", 'day of week "7": values are from 0 to 6'),
        ("* * * * monday", "values are numbers from 0 to 6, or names such as mon"),
        ("5-1 * * * *", "a range begins with its smaller value"),
        ("*/0 * * * *", "the step after / is a number from 1"),
        ("*-5 * * * *", "a range has a number on both sides"),
        ("@never", '"@never" is not a schedule'),
        ("@every soon", "is not a duration"),
        ("TZ=Mars/Base * * * * *", 'time zone "Mars/Base" does not exist'),
    ],
)
def test_mistakes(schedule: str, words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        parse_cron(schedule)


def test_missed_times() -> None:
    def due(schedule: str, earliest: str, now: str) -> tuple[str, int]:
        found, missed = last_due(parse_cron(schedule), at(earliest), at(now))
        return (datetime.fromtimestamp(found, UTC).strftime("%m-%d %H:%M") if found else "", missed)

    assert due("0 * * * *", "2026-01-01 00:00", "2026-01-01 00:59") == ("", 0)
    assert due("0 * * * *", "2026-01-01 00:00", "2026-01-01 01:00") == ("01-01 01:00", 1)
    assert due("0 * * * *", "2026-01-01 00:00", "2026-01-01 05:30") == ("01-01 05:00", 5)
    assert due("0 * * * *", "2026-01-01 00:00", "2026-01-09 05:30")[1] > 100
    # The first interval is a minute, the others are hours: the estimate is too high.
    assert due("0,1 8 * * *", "2026-01-01 00:00", "2026-01-03 12:00")[0] == "01-03 08:01"
    assert due("30 6-16/4 * * 1-5", "2026-01-02 00:00", "2026-01-04 12:00")[0] == "01-02 14:30"
    assert due("59 23 31 2 *", "2026-01-01 00:00", "2026-01-09 00:00") == ("", 0)
