"""How much memory this process takes."""

from __future__ import annotations

import resource
import sys


def peak_bytes() -> int:
    """The most bytes that this process has had resident."""
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024
