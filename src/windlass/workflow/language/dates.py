"""Dates in the layouts of Go, as templates use them."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

from windlass.kits.timestamps import parse_rfc3339
from windlass.workflow.language.errors import EvaluationError

_LAYOUT = {
    "2006": "%Y", "January": "%B", "Jan": "%b", "Monday": "%A", "Mon": "%a", "MST": "UTC", "Z07:00": "Z",
    "01": "%m", "02": "%d", "15": "%H", "03": "%I", "04": "%M", "05": "%S", "06": "%y", "PM": "%p", "pm": "%p",
}  # fmt: skip
_PART = re.compile("|".join(map(re.escape, _LAYOUT)))


def date(layout: Any, moment: Any) -> str:
    """Return a moment (RFC 3339 or Unix seconds) in UTC, in a layout such as ``2006-01-02``.

    Raises :class:`EvaluationError`.
    """
    try:
        seconds = float(moment) if isinstance(moment, int | float) else parse_rfc3339(str(moment))
        found = datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        raise EvaluationError(f"date(): {moment!r} is not a time") from None
    return _PART.sub(lambda part: found.strftime(_LAYOUT[part[0]]), str(layout))
