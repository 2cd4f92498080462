"""Whole numbers in text, as Kubernetes reads them."""

from __future__ import annotations

import re

_WHOLE = re.compile(r"[+-]?[0-9]{1,63}")
_LEAST, _MOST = -(1 << 63), (1 << 63) - 1


def whole(text: str | None) -> int | None:
    """A number of 64 bits as Go's ``strconv.ParseInt`` reads one; ``None`` for anything else. Python's ``int`` alone
    would also take ``1_000``, blanks round a number and digits of other scripts."""
    if text is None or not _WHOLE.fullmatch(text):
        return None
    number = int(text)
    return number if _LEAST <= number <= _MOST else None
