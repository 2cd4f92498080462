"""Data that waits on standard input for a job, which has none: told, since nobody would miss it otherwise."""

from __future__ import annotations

import fcntl
import os
import stat
import struct
import sys
import termios

from windlass.cli.invocation import Invocation

_WORDS = (
    "a job has no standard input, and nobody reads what is piped here; "
    "have it read a file: sh -c 'COMMAND < FILE'"
)


def tell(invocation: Invocation) -> None:
    """Once a command, where something waits."""
    if _waits():
        invocation.warn(_WORDS)


def _waits() -> bool:
    """Whether something stands on standard input now: a file from its beginning on, or bytes in a pipe. A file that was
    read in part belongs to a loop of the caller; a terminal waits for a person."""
    try:
        number = sys.stdin.fileno()
        kind = os.fstat(number)
        if stat.S_ISREG(kind.st_mode):
            return kind.st_size > 0 and os.lseek(number, 0, os.SEEK_CUR) == 0
        if not (stat.S_ISFIFO(kind.st_mode) or stat.S_ISSOCK(kind.st_mode)):
            return False
        (ready,) = struct.unpack("i", fcntl.ioctl(number, termios.FIONREAD, bytes(4)))
        return ready > 0
    except (OSError, ValueError, AttributeError):  # closed, or none at all
        return False
