"""Conversion of plugin arguments: YAML yields numbers, booleans or text for the same value."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

Arguments = Mapping[str, Any]

MOST = 1 << 53
_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9, "d": 86400.0}
_BOOLEANS = {"1": True, "t": True, "true": True, "0": False, "f": False, "false": False}
_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|us|µs|ns|h|m|s|d)")


def number(arguments: Arguments, name: str, default: float) -> float:
    """Return a number; an invalid one (:func:`as_number`) counts as missing, as in Volcano."""
    value = as_number(arguments.get(name, default))
    return default if value is None else value


def as_number(value: object) -> float | None:
    """Return a number, also from text; ``None`` for anything else.

    Infinite values, NaN and integers that a float cannot represent exactly are invalid,
    too.
    """
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    if isinstance(value, str) and not value.isascii():
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if abs(number) <= MOST else None


def boolean(arguments: Arguments, name: str, default: bool) -> bool:
    """Return a boolean; an invalid one (:func:`as_boolean`) counts as missing."""
    value = as_boolean(arguments.get(name, default))
    return default if value is None else value


def as_boolean(value: object) -> bool | None:
    """Return a boolean, also from text or from 1 and 0; ``None`` for anything else."""
    return _BOOLEANS.get(str(value).strip().lower())


def duration(text: object) -> float | None:
    """Return the seconds of a Go duration (``1h30m``, ``90s``, also days); ``None`` if
    it is invalid."""
    stripped = str(text).strip()
    parts = _PART.findall(stripped)
    if not parts or "".join(amount + unit for amount, unit in parts) != stripped:
        return None
    return sum(float(amount) * _UNITS[unit] for amount, unit in parts)
