"""Process of the driver: ``python -m windlass.items.driver``.

Exit code 0: all items have an end. 1: the batch failed. 143: it was told to end, and goes
on when it is started again.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from windlass.items.driver.api import DriverApi
from windlass.items.driver.service import Driver
from windlass.items.spec import (
    BATCH_FILE,
    LINGER,
    LISTEN,
    PORT_FILE,
    TOKEN,
    BatchSpec,
    SpecError,
    parse_batch,
)
from windlass.items.stages.driver import StagedDriver
from windlass.kits.clock import SystemClock
from windlass.kits.files import write_atomic
from windlass.observe.http_server import HttpServer, ServerLimits, bind

TERMINATION_LOG = "/dev/termination-log"
UNREAD_SECONDS = 600.0
"""Time for which a final status that cannot be stored waits for a reader (seconds)."""
"""File that the kubelet reads the last message of a container from."""
MAX_TERMINATION_BYTES = 4000
"""Maximum size of that message in bytes."""
END_SECONDS = 3600.0
"""Maximum time in seconds to write the rows of a job that has failed. Its pod has less: the grace period."""
_log = logging.getLogger("windlass.items.driver")


def main() -> int:
    """Run the driver of the batch that the environment names."""
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(levelname).1s %(message)s")
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
    try:
        batch = load_batch(os.environ)
    except (OSError, ValueError) as error:
        message = "; ".join(f"{path}: {text}" for path, text in problems_of(error))
        _log.error("the batch cannot be read: %s", message)
        _terminate({"finished": True, "failure": {"reason": "InvalidSpec", "message": message}})
        return 1
    return asyncio.run(serve(batch, os.environ))


def load_batch(environment: Mapping[str, str]) -> BatchSpec:
    """Return the batch. Raises ``OSError`` or ``ValueError``."""
    path = environment.get(BATCH_FILE)
    if not path:
        raise ValueError(f"the environment variable {BATCH_FILE} is not set")
    return parse_batch(json.loads(Path(path).read_text()))


def problems_of(error: Exception) -> list[tuple[str, str]]:
    return error.problems if isinstance(error, SpecError) else [(BATCH_FILE, str(error))]


async def serve(batch: BatchSpec, environment: Mapping[str, str]) -> int:
    """Serve the API until the batch has ended, and a while longer for its last readers."""
    clock = SystemClock()
    driver = StagedDriver(batch, environment, clock) if batch.stages else Driver(batch, environment, clock)
    host, _, port = environment.get(LISTEN, "127.0.0.1:0").rpartition(":")
    listeners = bind(host.strip("[]"), int(port or 0))
    server = HttpServer(ServerLimits(idle=300, drain=2))
    await server.listen(DriverApi(driver, environment.get(TOKEN, "")), listeners)
    number = listeners[0].getsockname()[1]
    if environment.get(PORT_FILE):
        write_atomic(Path(environment[PORT_FILE]), f"{number}\n", 0o644)
    _log.info("listening on port %d", number)
    stopped = asyncio.Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(name, stopped.set)
    work = asyncio.create_task(driver.run())
    stop = asyncio.create_task(stopped.wait())
    await asyncio.wait({work, stop}, return_when=asyncio.FIRST_COMPLETED)
    if driver.stopped is not None:
        await asyncio.wait({work}, timeout=END_SECONDS)
    if not work.done():
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
        await driver.scaler.close()
        await server.close()
        return 143
    code = work.result()
    if driver.final is not None:
        _terminate(driver.final)
        _log.info("ended: %s", json.dumps(driver.final.get("items") or driver.final.get("failure")))
    await _linger(driver, stopped, _linger_seconds(environment), clock)
    stop.cancel()
    await driver.scaler.close()
    await server.close()
    return code


def _linger_seconds(environment: Mapping[str, str]) -> float:
    """Return how long the final status is served at most.

    Without a termination message it would be lost with the driver, such as while the control
    plane of a box is started again.
    """
    if environment.get(LINGER):
        return float(environment[LINGER])
    return 5.0 if os.path.exists(TERMINATION_LOG) else UNREAD_SECONDS


async def _linger(driver: Driver, stopped: asyncio.Event, seconds: float, clock: SystemClock) -> None:
    """Serve the final status until workers and one reader know it, at most ``seconds``."""
    deadline = clock.monotonic() + seconds
    while clock.monotonic() < deadline and not stopped.is_set():
        if driver.all_told() and driver.status_read:
            return
        await clock.sleep(0.05)


def _terminate(status: dict[str, Any]) -> None:
    """Write the last status to where the kubelet reads it."""
    text = json.dumps(status)
    if len(text) > MAX_TERMINATION_BYTES:
        text = json.dumps({name: value for name, value in status.items() if name != "groups"})
    try:
        if os.path.exists(TERMINATION_LOG):
            with open(TERMINATION_LOG, "w") as stream:
                stream.write(text[:MAX_TERMINATION_BYTES])
    except OSError:
        _log.info("%s cannot be written", TERMINATION_LOG)


if __name__ == "__main__":
    sys.exit(main())
