"""What the tests of ``kits.process_pool`` have done in processes: found there by its name."""

from __future__ import annotations

import signal
from pathlib import Path
from time import sleep

from windlass.kits.process_pool import report_progress


def square(number: int) -> int:
    return number * number


def goes_on(file: str) -> str:
    """Gets as far as three, and waits there until there is such a file."""
    report_progress(3)
    return awaits(file)


def hearing(_: int) -> str:
    """What becomes of Ctrl-C."""
    return signal.getsignal(signal.SIGINT).name  # type: ignore[union-attr]


def awaits(file: str) -> str:
    """Until there is such a file; fails for none."""
    if not file:
        raise ValueError("it fails")
    while not Path(file).exists():
        sleep(0.01)
    return file
