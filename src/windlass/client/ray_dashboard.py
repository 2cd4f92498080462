"""Jobs and Serve applications in the dashboard of a Ray cluster (``/api/jobs/``, ``/api/serve/applications/``)."""

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
"""Timeout of a request in seconds."""
PROXY_SECONDS = 2.0
"""Timeout of a request to a proxy of Ray Serve in seconds."""
DEPLOY_SECONDS = 20.0
"""Timeout of a submission of applications in seconds. The first one starts Ray Serve."""


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

    async def serve_applications(self) -> dict[str, dict[str, Any]]:
        """Return the applications of Ray Serve by name, as a RayService shows them. Raises :class:`Unreachable`."""
        status, body = await self._call("GET", "/api/serve/applications/", query="api_type=declarative")
        if status != 200:
            raise self._refused(status, body)
        found = msgspec.json.decode(body).get("applications") or {}
        return {name or "default": _application(shown) for name, shown in found.items()}

    async def deploy_applications(self, config: Mapping[str, Any]) -> None:
        """Submit applications (``ServeDeploySchema``). Raises :class:`Unreachable`, also where Ray refuses them."""
        body = msgspec.json.encode(config)
        status, answer = await self._call("PUT", "/api/serve/applications/", body, timeout=DEPLOY_SECONDS)
        if not 200 <= status <= 299:
            raise self._refused(status, answer)

    async def serve_proxy_answers(self) -> bool:
        """Return whether a proxy of Ray Serve listens at the address and is healthy."""
        try:
            return (await self._call("GET", "/-/healthz", timeout=PROXY_SECONDS))[0] == 200
        except Unreachable:
            return False

    async def _call(
        self, method: str, path: str, body: bytes = b"", *, query: str = "", timeout: float = TIMEOUT_SECONDS
    ) -> tuple[int, bytes]:
        headers = {"accept": "application/json", "content-type": "application/json"}
        try:
            async with asyncio.timeout(timeout):
                response: Response = await self._transport.request(
                    Request(method, path, query, headers, body)
                )
                return response.status, await whole(response)
        except TimeoutError:
            raise timed_out(self._transport.where, "an answer", timeout, processed=True) from None

    def _refused(self, status: int, body: bytes) -> Unreachable:
        text = body.decode(errors="replace").strip().splitlines()
        return disconnected(
            self._transport.where, f"HTTP {status}: {text[-1] if text else ''}", processed=True
        )


def _application(shown: Mapping[str, Any]) -> dict[str, Any]:
    """Return status and message of an application and of its deployments."""
    deployments = {name: _state(found) for name, found in (shown.get("deployments") or {}).items()}
    return {**_state(shown), **({"serveDeploymentStatuses": deployments} if deployments else {})}


def _state(shown: Mapping[str, Any]) -> dict[str, str]:
    return {key: str(shown[key]) for key in ("status", "message") if shown.get(key)}
