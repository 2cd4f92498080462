"""Workers of AIGCJobs on simulated nodes: real leases and commits, model time instead of a model.

A pod with the annotation ``windlass.dev/item-seconds`` leases rows from the driver of its job,
waits that time for each row, and commits an output that says it is simulated. One agent serves
all such pods, over a few connections to each driver.
"""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from windlass.api import annotations as names
from windlass.api.errors import StatusError
from windlass.api.fields import aigc
from windlass.api.resources import PODS, SECRETS
from windlass.client.client import Client
from windlass.client.errors import Unreachable
from windlass.kits.clock import Clock
from windlass.node.pods.record import PodRecord

Json = dict[str, Any]
Connect = Callable[[str, int], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]
"""``(namespace/name of a driver's pod, port)`` → connection. Raises ``OSError``."""
CONNECTIONS = 8
"""Maximum number of connections to one driver."""
RETRY_SECONDS = 1.0
"""Interval between two requests of a driver that does not answer (seconds)."""
IDLE_SECONDS = 1.0
"""Interval between two requests of rows while there are none to lease (seconds)."""
LEAVE_SECONDS = 5.0
"""Timeout for returning the rows of a pod that is deleted (seconds)."""
_log = logging.getLogger("windlass.node")


@dataclass(frozen=True, slots=True)
class _Driver:
    """Driver of a job, as the pod of a worker names it. ``prefix``: of the paths for its stage."""

    pod: str
    port: int
    token: str
    prefix: str = ""


@dataclass(slots=True)
class _Pool:
    """Connections to one driver. ``users``: workers that need them."""

    users: int = 0
    slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(CONNECTIONS))
    idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = field(default_factory=list)

    def close(self) -> None:
        for _, writer in self.idle:
            writer.close()
        self.idle.clear()


class DriverRefused(Exception):
    """An answer of the driver other than 200."""


class SimulatedWorkers:
    """Workers of the simulated nodes. ``ended(pod)`` is called when a worker has nothing left to do."""

    def __init__(
        self, client: Client, clock: Clock, connect: Connect, ended: Callable[[PodRecord], None]
    ) -> None:
        self._client, self._clock, self._connect, self._ended = client, clock, connect, ended
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._pools: dict[_Driver, _Pool] = {}

    def start(self, pod: PodRecord) -> None:
        """Let a pod that runs work on rows. A pod without the annotation does nothing."""
        if pod.item_seconds is not None and pod.uid not in self._tasks:
            self._tasks[pod.uid] = asyncio.get_running_loop().create_task(
                self._run(pod), name=f"simulated worker {pod.key}"
            )

    def stop(self, uid: str) -> None:
        """End the worker of a pod that is deleted. It returns its rows."""
        task = self._tasks.pop(uid, None)
        if task is not None:
            task.cancel()

    def close(self) -> None:
        """End all workers without a word to their drivers, as by a crash of their nodes."""
        tasks, self._tasks = tuple(self._tasks.values()), {}
        for task in tasks:
            task.cancel()
        for pool in self._pools.values():
            pool.close()
        self._pools.clear()

    # Work.

    async def _run(self, pod: PodRecord) -> None:
        driver = await self._driver(pod)
        if driver is None:
            return
        pool = self._pools.setdefault(driver, _Pool())
        pool.users += 1
        try:
            ended = await self._work(driver, pod)
        finally:
            pool.users -= 1
            if not pool.users:
                self._pools.pop(driver, None)
                pool.close()
        if ended:
            self._tasks.pop(pod.uid, None)
            self._ended(pod)

    async def _work(self, driver: _Driver, pod: PodRecord) -> bool:
        """Work until there is nothing left; ``False``: the driver refuses this worker."""
        try:
            registered = await self._until_answered(driver, pod, "/v1/register")
            pulse = float(registered["heartbeatSeconds"])
            while True:
                lease = await self._until_answered(driver, pod, "/v1/lease")
                if lease["finished"]:
                    return True
                if lease["lease"]:
                    await self._process(driver, pod, lease, pulse)
                else:
                    await self._clock.sleep(IDLE_SECONDS)
        except asyncio.CancelledError:
            if pod.uid not in self._tasks and self._pools:
                await self._leave(driver, pod)
            raise
        except DriverRefused as problem:
            _log.warning("simulated worker %s: %s", pod.key, problem)
            return False

    async def _process(self, driver: _Driver, pod: PodRecord, lease: Json, pulse: float) -> None:
        """Wait for the time of the rows; commit those that are over at each heartbeat."""
        each, name = pod.item_seconds or 0.0, lease["lease"]
        due = committed = self._clock.monotonic()
        revoked: set[int] = set()
        results: list[Json] = []
        for row in lease["items"]:
            if row["n"] in revoked:
                continue
            if results and due + each - committed >= pulse:
                revoked |= await self._commit(driver, pod, name, results, due - committed)
                results, committed = [], due
            due += each
            await self._wait(driver, pod, name, due, pulse)
            results.append({"n": row["n"], "seconds": each, "row": _output(row["row"])})
        if results:
            await self._commit(driver, pod, name, results, due - committed)

    async def _wait(self, driver: _Driver, pod: PodRecord, lease: str, due: float, pulse: float) -> None:
        """Wait until a row is over. A row that takes longer than the interval needs heartbeats."""
        while (left := due - self._clock.monotonic()) > 0:
            await self._clock.sleep(min(left, pulse))
            if left > pulse:
                await self._until_answered(driver, pod, "/v1/heartbeat", leases=[lease])

    async def _commit(
        self, driver: _Driver, pod: PodRecord, lease: str, results: list[Json], seconds: float
    ) -> set[int]:
        """Commit results and return the numbers of rows that another worker has."""
        given = {"lease": lease, "results": results, "seconds": round(seconds, 6)}
        return set((await self._until_answered(driver, pod, "/v1/commit", **given))["revoked"])

    async def _leave(self, driver: _Driver, pod: PodRecord) -> None:
        try:
            async with asyncio.timeout(LEAVE_SECONDS):
                await self._ask(driver, pod, "/v1/fail", {"leave": True, "reason": "Stopped"})
        except (OSError, TimeoutError, DriverRefused):
            pass  # the lease runs out

    # Requests.

    async def _driver(self, pod: PodRecord) -> _Driver | None:
        """Read from the pod and its Secret where the driver is; ``None`` for a pod of another kind."""
        while True:
            try:
                whole = await self._client.get(PODS, pod.name, pod.namespace)
                job = (whole["metadata"].get("labels") or {}).get(aigc.JOB_NAME)
                given = {one["name"]: one for one in whole["spec"]["containers"][0].get("env") or ()}
                if not job or "WINDLASS_BATCH_DRIVER" not in given:
                    _log.warning("%s has %s and is no worker of an AIGCJob", pod.key, names.ITEM_SECONDS)
                    return None
                url = str(given["WINDLASS_BATCH_DRIVER"]["value"])
                secret = await self._client.get(SECRETS, f"{job}-batch", pod.namespace)
                token = base64.b64decode(secret["data"]["token"]).decode()
                stage = given.get("WINDLASS_BATCH_STAGE", {}).get("value")
                prefix = f"/stages/{stage}" if stage else ""
                return _Driver(f"{pod.namespace}/{job}-driver", int(url.rpartition(":")[2]), token, prefix)
            except (StatusError, Unreachable) as error:
                if isinstance(error, StatusError) and error.code == 404:
                    return None
                await self._clock.sleep(RETRY_SECONDS)

    async def _until_answered(self, driver: _Driver, pod: PodRecord, path: str, **body: Any) -> Json:
        """Send a request until it is answered: a driver may be started again."""
        while True:
            try:
                return await self._ask(driver, pod, path, body)
            except OSError as problem:
                _log.debug("simulated worker %s: %s", pod.key, problem)
                await self._clock.sleep(RETRY_SECONDS)

    async def _ask(self, driver: _Driver, pod: PodRecord, path: str, body: Mapping[str, Any]) -> Json:
        pool = self._pools[driver]
        async with pool.slots:
            connection = pool.idle.pop() if pool.idle else await self._connect(driver.pod, driver.port)
            done = False
            try:
                data = msgspec.json.encode({"worker": pod.name, "instance": pod.uid, **body})
                status, answer = await _exchange(connection, driver.token, driver.prefix + path, data)
                done = True
            finally:
                if done:
                    pool.idle.append(connection)
                else:  # the answer of this request must not be taken for that of another
                    connection[1].close()
        if status == 503:
            raise ConnectionError("the driver is not ready")
        if status != 200:
            raise DriverRefused(f"the driver answered {path} with {status}: {answer[:300]!r}")
        return msgspec.json.decode(answer)


def _output(row: object) -> Json:
    identity = row.get("id") if isinstance(row, Mapping) else None
    return {"simulated": True} if identity is None else {"id": identity, "simulated": True}


async def _exchange(
    connection: tuple[asyncio.StreamReader, asyncio.StreamWriter], token: str, path: str, data: bytes
) -> tuple[int, bytes]:
    """Send a request and return status and body. All errors are ``OSError``."""
    reader, writer = connection
    head = (
        f"POST {path} HTTP/1.1\r\nHost: driver\r\nAuthorization: Bearer {token}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
    )
    writer.write(head.encode() + data)
    try:
        top = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        found = dict(line.lower().split(":", 1) for line in top[1:] if ":" in line)
        return int(top[0].split(" ")[1]), await reader.readexactly(int(found["content-length"]))
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, KeyError, ValueError) as error:
        raise ConnectionError(f"the driver's answer cannot be read: {error}") from None
