"""Moments in traces: seconds, or a date and a time."""

from __future__ import annotations

from windlass.kits.timestamps import parse_rfc3339
from windlass.sim.traces.rows import TraceRow

LAST = 253_402_300_799.0
"""The last second of the year 9999: no calendar goes further."""


def moment(row: TraceRow, column: str) -> float:
    """Unix seconds of a cell: a number as it is, ``2020-06-09 18:41:01`` (or with a T, a fraction, a zone) as UTC
    unless it names another zone. Raises :class:`~windlass.sim.traces.rows.TraceError`."""
    text = row.text(column).strip()
    try:
        seconds = float(text)
    except ValueError:
        pass
    else:
        if not 0 <= seconds <= LAST:
            raise row.fail(column, f"{text!r} is no time: seconds are from 0 to {LAST:.0f}")
        return seconds
    stamp = text.replace(" ", "T", 1)
    zoned = stamp.endswith(("Z", "z")) or "+" in stamp[10:] or "-" in stamp[10:]
    try:
        return parse_rfc3339(stamp if zoned else stamp + "Z")
    except (ValueError, OverflowError):
        raise row.fail(column, f"{text!r} is neither seconds nor a time") from None
