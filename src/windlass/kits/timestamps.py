"""RFC 3339 time stamps as Kubernetes writes them."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime
from functools import lru_cache

_FRACTION = re.compile(r"[.,]([0-9]+)")


def rfc3339(seconds: float) -> str:
    """``metav1.Time``: whole seconds, UTC, ``Z``."""
    return _whole(int(seconds))


@lru_cache(maxsize=256)
def _whole(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def rfc3339_micro(seconds: float) -> str:
    """``metav1.MicroTime``: six digits."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def parse_rfc3339(text: str) -> float:
    """Return Unix seconds. Raises ``ValueError`` unless ``text`` is RFC 3339 with a zone."""
    timestamp = datetime.fromisoformat(text)
    if timestamp.tzinfo is None:
        raise ValueError(f"time {text!r} has no zone")
    return timestamp.timestamp()


def stored_time(text: object) -> float:
    """Return Unix seconds of a time in a stored object; 0 if it is absent or no time."""
    try:
        return parse_rfc3339(text) if isinstance(text, str) and text else 0.0
    except ValueError:
        return 0.0


def utc_text(text: str) -> str:
    """Return an RFC 3339 time in UTC without zone, with up to nine digits of its fraction.

    Such texts can be compared without a loss of precision. Raises ``ValueError`` for other text.
    """
    seconds = parse_rfc3339(text)
    fraction = _FRACTION.search(text)
    return _whole(math.floor(seconds))[:-1] + (f".{fraction[1][:9]}" if fraction else "")


def age(seconds: float) -> str:
    """Format a duration as in kubectl's AGE column (apimachinery's ``duration.HumanDuration``)."""
    if seconds < 0:
        return "0s" if seconds > -2 else "<invalid>"
    total = int(seconds)
    if total < 120:
        return f"{total}s"
    minutes = total // 60
    if minutes < 10:
        rest = total % 60
        return f"{minutes}m{rest}s" if rest else f"{minutes}m"
    if minutes < 180:
        return f"{minutes}m"
    hours = total // 3600
    if hours < 8:
        rest = (total // 60) % 60
        return f"{hours}h{rest}m" if rest else f"{hours}h"
    if hours < 48:
        return f"{hours}h"
    days = hours // 24
    if hours < 192:
        rest = hours % 24
        return f"{days}d{rest}h" if rest else f"{days}d"
    if hours < 24 * 365 * 2:
        return f"{days}d"
    years = hours // (24 * 365)
    if hours < 24 * 365 * 8:
        rest = days % 365
        return f"{years}y{rest}d" if rest else f"{years}y"
    return f"{years}y"
