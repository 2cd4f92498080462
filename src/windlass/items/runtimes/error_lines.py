"""Standard error of a command: it is passed on, and its last line is kept for messages."""

from __future__ import annotations

import contextlib
import os
import threading
from typing import IO

MAX_CHARACTERS = 300
"""Maximum length of the line in a message, in characters."""
_KEPT_BYTES = 4096
_END_SECONDS = 1.0
"""Maximum time for the rest of the text after the end of the command, which its own children may hold open."""


class ErrorLines:
    """Passes ``stream`` on to the standard error of this process."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream, self._kept = stream, b""
        self._thread = threading.Thread(target=self._pass_on, name="stderr of the command", daemon=True)
        self._thread.start()

    def last(self) -> str:
        """Return the last line of a command that has ended; empty if it wrote none."""
        self._thread.join(_END_SECONDS)
        lines = [line for line in self._kept.decode(errors="replace").splitlines() if line.strip()]
        return lines[-1].strip()[:MAX_CHARACTERS] if lines else ""

    def _pass_on(self) -> None:
        with self._stream:
            while data := os.read(self._stream.fileno(), 1 << 16):
                self._kept = (self._kept + data)[-_KEPT_BYTES:]
                rest = data
                with contextlib.suppress(OSError):
                    while rest:
                        rest = rest[os.write(2, rest) :]
