"""Numbers of pods that are written as a number or as a percentage."""

from __future__ import annotations

from typing import Any


def scaled(value: Any, total: int, *, up: bool) -> int:
    """Return a number, or a percentage of ``total`` rounded up or down.

    Anything else counts as 0.
    """
    if isinstance(value, int):
        return value
    digits = str(value or "").removesuffix("%")
    if not (digits.isascii() and digits.isdigit()):
        return 0
    part = int(digits) * total
    return -(-part // 100) if up else part // 100


def rolling_limits(surge: Any, unavailable: Any, desired: int) -> tuple[int, int]:
    """Return the pods that may exist in addition, and those that may be unavailable.

    If both are 0, one pod may be unavailable: otherwise nothing could be replaced.
    """
    more, less = scaled(surge, desired, up=True), scaled(unavailable, desired, up=False)
    return (0, 1) if more == 0 and less == 0 else (more, less)
