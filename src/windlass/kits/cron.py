"""Schedules in cron format, as Kubernetes reads them (``robfig/cron`` v3, ``ParseStandard``).

Five fields: minute, hour, day of month, month, day of week. Each is a list of values,
ranges and steps (``1,15``, ``9-17``, ``*/5``); ``?`` is ``*``. Months and days of the
week may be names of three letters. If both kinds of day are restricted, a day that
matches one of them is enough. ``@hourly``, ``@daily`` (``@midnight``), ``@weekly``,
``@monthly``, ``@yearly`` (``@annually``) and ``@every 90m`` are understood, too.

Times of the day that a change of the clock skips are left out, and those that it
repeats come twice, as in Kubernetes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, tzinfo
from typing import Protocol
from zoneinfo import ZoneInfo

from windlass.kits import durations

_YEARS = 5
"""Number of years in which a matching day is searched."""
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_NAMED = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_EVERY = "@every "


class Schedule(Protocol):
    def next_after(self, moment: float) -> float | None:
        """Return the first time of the schedule after ``moment`` (Unix seconds); ``None`` if there is none."""
        ...


@dataclass(frozen=True, slots=True)
class _Field:
    name: str
    low: int
    high: int
    words: Sequence[str] = ()
    first_word: int = 0

    def parse(self, text: str) -> tuple[frozenset[int], bool]:
        """Return the values, and whether all are meant (``*`` or ``?``)."""
        values: set[int] = set()
        every = False
        for part in text.split(","):
            found, star = self._part(part)
            values |= found
            every = every or star
        return frozenset(values), every

    def _part(self, part: str) -> tuple[set[int], bool]:
        span, slash, step_text = part.partition("/")
        low_text, dash, high_text = span.partition("-")
        star = low_text in ("*", "?")
        if star and dash:
            raise self._error(part, "a range has a number on both sides of the dash")
        low, high = (self.low, self.high) if star else (self._value(low_text, part),) * 2
        if dash:
            high = self._value(high_text, part)
        step = 1
        if slash:
            if not step_text.isdecimal() or not step_text.isascii() or int(step_text) == 0:
                raise self._error(part, "the step after / is a number from 1")
            step = int(step_text)
            if not dash:
                high = self.high
        if not self.low <= low <= self.high or not self.low <= high <= self.high:
            raise self._error(part, f"values are from {self.low} to {self.high}")
        if low > high:
            raise self._error(part, "a range begins with its smaller value")
        return set(range(low, high + 1, step)), star and step == 1

    def _value(self, text: str, part: str) -> int:
        if text.lower() in self.words:
            return self.words.index(text.lower()) + self.first_word
        if not text.isdecimal() or not text.isascii():
            example = f", or names such as {self.words[1]}" if self.words else ""
            raise self._error(part, f"values are numbers from {self.low} to {self.high}{example}")
        return int(text)

    def _error(self, part: str, why: str) -> ValueError:
        return ValueError(f'{self.name} "{part}": {why}')


_FIELDS = (
    _Field("minute", 0, 59),
    _Field("hour", 0, 23),
    _Field("day of month", 1, 31),
    _Field("month", 1, 12, _MONTHS, 1),
    _Field("day of week", 0, 6, _DAYS),
)


@dataclass(frozen=True, slots=True)
class CronSchedule:
    """Schedule by the calendar of a time zone."""

    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    both_days: bool
    """Day of month and day of week must both match, because one of them is ``*``."""
    zone: tzinfo

    def next_after(self, moment: float) -> float | None:
        first = datetime.fromtimestamp(moment, self.zone).date()
        last_year = first.year + _YEARS
        day = first
        while day.year <= last_year:
            if day.month not in self.months:
                day = (day.replace(day=1) + timedelta(days=32)).replace(day=1)
                continue
            if self._matches(day):
                found = self._first_of_day(day, moment)
                if found is not None:
                    return found
            day += timedelta(days=1)
        return None

    def _matches(self, day: date) -> bool:
        by_month = day.day in self.days
        by_week = (day.weekday() + 1) % 7 in self.weekdays
        return by_month and by_week if self.both_days else by_month or by_week

    def _first_of_day(self, day: date, moment: float) -> float | None:
        start = datetime(day.year, day.month, day.day, tzinfo=self.zone)
        midnight, following = start.timestamp(), (start + timedelta(days=1)).timestamp()
        if following - midnight == 86_400.0:  # no change of the clock
            seconds = (
                midnight + 60.0 * (60 * hour + minute) for hour in self.hours for minute in self.minutes
            )
            if midnight + 60.0 * (60 * self.hours[-1] + self.minutes[-1]) <= moment:
                return None
            return next(found for found in seconds if found > moment)
        return min((found for found in self._with_changes(day) if found > moment), default=None)

    def _with_changes(self, day: date) -> Iterator[float]:
        """Yield the times of a day on which the clock changes."""
        for hour in self.hours:
            for minute in self.minutes:
                for fold in (0, 1):
                    local = datetime(day.year, day.month, day.day, hour, minute, tzinfo=self.zone, fold=fold)
                    seconds = local.timestamp()
                    shown = datetime.fromtimestamp(seconds, self.zone)
                    if (shown.hour, shown.minute) == (hour, minute):
                        yield seconds


@dataclass(frozen=True, slots=True)
class EverySchedule:
    """Schedule with a fixed interval in seconds."""

    seconds: int

    def next_after(self, moment: float) -> float:
        return math.floor(moment) + self.seconds


def parse_cron(text: str, zone: str = "") -> Schedule:
    """Parse a schedule. ``zone``: name of its time zone; UTC if empty.

    A schedule may begin with ``TZ=ZONE`` or ``CRON_TZ=ZONE``. Raises ``ValueError``.
    """
    words = text.split()
    if words and words[0].startswith(("TZ=", "CRON_TZ=")):
        zone = words.pop(0).partition("=")[2]
    location = time_zone(zone)
    rest = " ".join(words)
    if rest.startswith(_EVERY):
        return EverySchedule(max(1, math.floor(durations.parse(rest.removeprefix(_EVERY)))))
    if rest.startswith("@") and rest not in _NAMED:
        raise ValueError(f'"{rest}" is not a schedule: use one of {", ".join(_NAMED)}, or @every 90m')
    fields = _NAMED.get(rest, rest).split()
    if len(fields) != len(_FIELDS):
        raise ValueError(
            f"{len(fields)} fields, and a schedule has 5: minute, hour, day of month, month, day of week "
            "(0 3 * * 1 is Mondays at 03:00)"
        )
    (minutes, _), (hours, _), (days, any_day), (months, _), (weekdays, any_weekday) = (
        field.parse(part) for field, part in zip(_FIELDS, fields, strict=True)
    )
    return CronSchedule(
        tuple(sorted(minutes)),
        tuple(sorted(hours)),
        days,
        months,
        weekdays,
        any_day or any_weekday,
        location,
    )


def time_zone(name: str) -> tzinfo:
    """Return a time zone of the IANA database; UTC for an empty name. Raises ``ValueError``."""
    if name in ("", "UTC"):
        return UTC
    try:
        return ZoneInfo(name)
    except (OSError, KeyError, ValueError):
        raise ValueError(
            f'time zone "{name}" does not exist: write one such as Europe/Berlin or Etc/UTC'
        ) from None


MANY_MISSED = 100
"""Number of missed times above which a controller warns."""


def last_due(schedule: Schedule, earliest: float, now: float) -> tuple[float | None, int]:
    """Return the latest time after ``earliest`` that is not after ``now``, and how many there are about.

    Kubernetes estimates the number from the first interval; so does this function.
    Raises ``ValueError`` if the schedule has two equal times.
    """
    first = schedule.next_after(earliest)
    if first is None or first > now:
        return None, 0
    second = schedule.next_after(first)
    if second is None or second > now:
        return first, 1
    between = round(second - first)
    if between < 1:
        raise ValueError("the schedule has less than a second between two times")
    missed = int((now - first) // between) + 1
    steps = max(0, missed - 2)
    while steps and (schedule.next_after(first + steps * between) or math.inf) > now:
        steps //= 2  # the intervals differ, and the estimate is behind the last time
    latest, following = first, schedule.next_after(first + steps * between)
    while following is not None and following <= now:
        latest, following = following, schedule.next_after(following)
    return latest, missed
