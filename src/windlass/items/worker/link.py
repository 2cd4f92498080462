"""Link from a worker to the driver of its batch."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from windlass.items.spec import DRIVER, DRIVER_FILE, STAGE, TOKEN
from windlass.items.worker.wire import DriverConnection
from windlass.kits.clock import SystemClock

REQUEST_SECONDS = 60.0
"""Timeout of one request (seconds). It exceeds the time that a request of items may wait."""
PATIENCE_SECONDS = 600.0
"""Maximum time without an answer of the driver (seconds)."""
MAX_DELAY_SECONDS = 2.0
"""Maximum delay between two attempts (seconds)."""


class DriverGone(RuntimeError):
    """A driver that has not answered for a long time, or that refuses this worker."""


class DriverLink:
    """Client of the driver, for one thread."""

    def __init__(self, environment: Mapping[str, str], worker: str, instance: str) -> None:
        self.worker, self.instance = worker, instance
        self._environment = environment
        token = environment.get(TOKEN, "")
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._client: DriverConnection | None = None
        self._clock = SystemClock()

    def url(self) -> str:
        """Return the URL of the driver, which may change when the driver is started again."""
        stage = self._environment.get(STAGE)
        found = self._address()
        return f"{found.rstrip('/')}/stages/{stage}" if stage and found else found

    def _address(self) -> str:
        path = self._environment.get(DRIVER_FILE)
        if path:
            try:
                with open(path) as stream:
                    text = stream.read().strip()
                if text:
                    return f"http://127.0.0.1:{text}" if text.isdigit() else text
            except OSError:
                pass
        return self._environment.get(DRIVER, "")

    def call(
        self,
        path: str,
        *,
        patience: float = PATIENCE_SECONDS,
        stopped: Callable[[], bool] = lambda: False,
        results: str = "",
        **body: Any,
    ) -> dict[str, Any]:
        """Send a request until it is answered. Raises :class:`DriverGone`.

        ``stopped``: give up as soon as it returns true.
        ``results``: field of the body that is JSON already.
        """
        text = json.dumps({"worker": self.worker, "instance": self.instance, **body})
        if results:
            text = f'{text[:-1]}, "results": {results}}}'
        data = text.encode()
        deadline = self._clock.monotonic() + patience
        delay = 0.05
        while True:
            try:
                if self._client is None:
                    self._client = DriverConnection(self.url(), self._headers, REQUEST_SECONDS)
                status, answer = self._client.post(path, data)
                if status == 200:
                    return json.loads(answer)
                text = answer[:300].decode(errors="replace")
                if status < 500:
                    raise DriverGone(f"the driver answered {path} with {status}: {text}")
                problem = f"it answered {status}: {text}"
            except (OSError, ValueError) as error:
                self.close()
                problem = str(error)
            if self._clock.monotonic() + delay > deadline or stopped():
                raise DriverGone(f"the driver at {self.url()} cannot be reached: {problem}")
            self._clock.pause(delay)
            delay = min(MAX_DELAY_SECONDS, delay * 2)

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None
