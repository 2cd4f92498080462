"""Reading the arguments of a plugin: YAML gives numbers, booleans or text for the same thing."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

Arguments = Mapping[str, Any]

MOST = 1 << 53
_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9, "d": 86400.0}
_BOOLEANS = {"1": True, "t": True, "true": True, "0": False, "f": False, "false": False}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|us|µs|ns|h|m|s|d)")


def number(arguments: Arguments, name: str, default: float) -> float:
    """A number; what is none (:func:`as_number`) counts as not given, as in Volcano."""
    found = as_number(arguments.get(name, default))
    return default if found is None else found


def as_number(value: object) -> float | None:
    """A number, also written as text; ``None`` for anything else, also for what cannot be reckoned with: infinite, no
    number, or greater than whole numbers are told apart."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    try:
        found = float(value)
    except (ValueError, OverflowError):
        return None
    return found if abs(found) <= MOST else None


def boolean(arguments: Arguments, name: str, default: bool) -> bool:
    """True or false; what is neither (:func:`as_boolean`) counts as not given."""
    found = as_boolean(arguments.get(name, default))
    return default if found is None else found


def as_boolean(value: object) -> bool | None:
    """True or false, also as text or as 1 and 0; ``None`` for anything else."""
    return _BOOLEANS.get(str(value).strip().lower())


def duration(text: object) -> float | None:
    """Seconds of a Go duration (``1h30m``, ``90s``), days allowed; ``None`` if it is none."""
    found = str(text).strip()
    parts = _PART.findall(found)
    if not parts or "".join(amount + unit for amount, unit in parts) != found:
        return None
    return sum(float(amount) * _UNITS[unit] for amount, unit in parts)
