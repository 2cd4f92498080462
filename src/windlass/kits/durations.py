"""Durations in Go's notation (``metav1.Duration``): ``10m``, ``1h30m``, ``1.5s``."""

from __future__ import annotations

import re

LONGEST = float((1 << 63) - 1) / 1e9
"""Maximum duration (seconds): Go counts nanoseconds in 64 bits, about 292 years."""
_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_PART = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)")
_DAYS = re.compile(r"([0-9]+(?:\.[0-9]+)?)d((?![+-]).*)")


def parse(text: str) -> float:
    """Parse a duration into seconds. Raises ``ValueError`` like Go's ``time.ParseDuration``."""
    body = text[1:] if text[:1] in ("+", "-") else text
    if body == "0":
        return 0.0
    total = 0.0
    position = 0
    while position < len(body):
        match = _PART.match(body, position)
        if match is None:
            break
        total += float(match[1]) * _UNITS[match[2]]
        position = match.end()
    if not body or position != len(body) or total > LONGEST:
        raise ValueError(f"{text!r} is not a duration: write 30s, 10m or 1h30m")
    return -total if text.startswith("-") else total


def parse_long(text: str) -> float:
    """Parse a duration, optionally with days (``30d``, ``1d12h``), into seconds.

    Raises ``ValueError``.
    """
    days = _DAYS.fullmatch(text)
    try:
        if days is None:
            return parse(text)
        seconds = 86_400.0 * float(days[1]) + (parse(days[2]) if days[2] else 0.0)
        if seconds > LONGEST:
            raise ValueError(text)
        return seconds
    except ValueError:
        raise ValueError(f"{text!r} is not a duration: write 90s, 30m, 1h30m or 30d") from None


def write(seconds: float) -> str:
    """Whole seconds as ``Duration.String`` writes them: ``1h0m5s``, ``45s``, ``0s``."""
    total = max(0, int(seconds))
    hours, rest = divmod(total, 3600)
    minutes, left = divmod(rest, 60)
    if hours:
        return f"{hours}h{minutes}m{left}s"
    return f"{minutes}m{left}s" if minutes else f"{left}s"
