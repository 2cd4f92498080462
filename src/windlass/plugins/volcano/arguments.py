"""Reading the arguments of a plugin: YAML gives numbers, booleans or text for the same thing."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

Arguments = Mapping[str, Any]

MOST = 1 << 53
_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9, "d": 86400.0}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|us|µs|ns|h|m|s|d)")


def number(arguments: Arguments, name: str, default: float) -> float:
    """A number, also written as text; anything else counts as not given (as in Volcano), also what cannot be reckoned
    with: infinite, no number, or greater than whole numbers are told apart."""
    value = arguments.get(name, default)
    if isinstance(value, bool):
        return default
    try:
        found = float(value)
    except (TypeError, ValueError, OverflowError):
        return default
    return found if abs(found) <= MOST else default


def boolean(arguments: Arguments, name: str, default: bool) -> bool:
    value = arguments.get(name, default)
    if isinstance(value, bool):
        return value
    text = str(value).strip().lower()
    if text in ("1", "t", "true"):
        return True
    return False if text in ("0", "f", "false") else default


def duration(text: object) -> float | None:
    """Seconds of a Go duration (``1h30m``, ``90s``), days allowed; ``None`` if it is none."""
    found = str(text).strip()
    parts = _PART.findall(found)
    if not parts or "".join(amount + unit for amount, unit in parts) != found:
        return None
    return sum(float(amount) * _UNITS[unit] for amount, unit in parts)
