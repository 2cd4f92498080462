"""Moves the wall clock of every Python process that is started with this folder on ``PYTHONPATH``.

``WINDLASS_TEST_CLOCK`` names a file with the seconds by which ``time.time()`` is wrong; it may be written anew
at any time. The monotonic clock is left alone, as it is when somebody sets a machine's clock.
"""

from __future__ import annotations

import os
import time

_FILE = os.environ.get("WINDLASS_TEST_CLOCK", "")
_true_time = time.time


def _wrong_time() -> float:
    try:
        with open(_FILE) as stream:
            return _true_time() + float(stream.read() or 0)
    except OSError:
        return _true_time()


if _FILE:
    time.time = _wrong_time
