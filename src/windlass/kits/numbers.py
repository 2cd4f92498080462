"""Parsing of integers as in Kubernetes."""

from __future__ import annotations

import re

_WHOLE = re.compile(r"[+-]?[0-9]{1,63}")
_LEAST, _MOST = -(1 << 63), (1 << 63) - 1


def parse_int64(text: str | None) -> int | None:
    """Parse a 64-bit integer like Go's ``strconv.ParseInt``; ``None`` for other text.

    Python's ``int`` would also accept ``1_000``, surrounding blanks and digits of other
    scripts.
    """
    if text is None or not _WHOLE.fullmatch(text):
        return None
    number = int(text)
    return number if _LEAST <= number <= _MOST else None
