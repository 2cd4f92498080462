"""Jobs in the dashboard of a Ray cluster (``/api/jobs/``)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import msgspec

from windlass.client.connection import Connection
from windlass.client.errors import Unreachable, disconnected, timed_out
from windlass.client.http import HttpTransport
from windlass.client.transport import Request, Response, whole

TIMEOUT_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class RayJobInfo:
    """Job as Ray's dashboard shows it. Times are Unix seconds, 0: not yet."""

    status: str
    message: str
    started: float = 0.0
    ended: float = 0.0


class RayDashboard:
    """Dashboard at ``http://host:port``. Use it as an asynchronous context manager."""

    def __init__(self, address: str) -> None:
        self._transport = HttpTransport(Connection(server=address))

    async def __aenter__(self) -> RayDashboard:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._transport.close()

    async def job(self, job_id: str) -> RayJobInfo | None:
        """Return a job; ``None`` if it was not submitted yet. Raises :class:`Unreachable`."""
        status, body = await self._call("GET", f"/api/jobs/{quote(job_id, safe='')}")
        if status in (400, 404):
            return None
        if status != 200:
            raise self._refused(status, body)
        found = msgspec.json.decode(body)
        return RayJobInfo(
            status=str(found.get("status") or ""),
            message=str(found.get("message") or ""),
            started=float(found.get("start_time") or 0) / 1000,
            ended=float(found.get("end_time") or 0) / 1000,
        )

    async def submit(self, job: Mapping[str, Any]) -> None:
        """Submit a job (``JobSubmitRequest``). Raises :class:`Unreachable`, also where Ray refuses it."""
        status, body = await self._call("POST", "/api/jobs/", msgspec.json.encode(job))
        if status != 200:
            raise self._refused(status, body)

    async def stop(self, job_id: str) -> None:
        """Stop a job. Raises :class:`Unreachable`."""
        await self._call("POST", f"/api/jobs/{quote(job_id, safe='')}/stop")

    async def _call(self, method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
        headers = {"accept": "application/json", "content-type": "application/json"}
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                response: Response = await self._transport.request(Request(method, path, "", headers, body))
                return response.status, await whole(response)
        except TimeoutError:
            raise timed_out(self._transport.where, "an answer", TIMEOUT_SECONDS, processed=True) from None

    def _refused(self, status: int, body: bytes) -> Unreachable:
        text = body.decode(errors="replace").strip().splitlines()
        return disconnected(
            self._transport.where, f"HTTP {status}: {text[-1] if text else ''}", processed=True
        )
