"""How fast the machine lets those work who have something to do."""

from __future__ import annotations

import threading
import time


class Pace(threading.Thread):
    """``start()`` … ``stop()``. Every tenth of a second it works for two milliseconds and looks how long that took."""

    _PAUSE, _WORK = 0.1, 0.002

    def __init__(self) -> None:
        super().__init__(name="pace", daemon=True)
        self._took = self._worked = 0.0
        self._stopped = threading.Event()

    @property
    def slowness(self) -> float:
        """So many times as long as on a machine of its own takes what is done here; at least 1."""
        return max(1.0, self._took / self._worked) if self._worked else 1.0

    def run(self) -> None:
        while not self._stopped.wait(self._PAUSE):
            begun, used = time.monotonic(), time.thread_time()
            while time.thread_time() - used < self._WORK:
                pass
            self._worked += time.thread_time() - used
            self._took += time.monotonic() - begun

    def stop(self) -> None:
        self._stopped.set()
        self.join(30)
