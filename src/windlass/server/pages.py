"""Paths without a resource: health, version, metrics, discovery, OpenAPI."""

from __future__ import annotations

import platform
from pathlib import Path

from windlass.client.errors import Unreachable
from windlass.client.transport import Request, Response
from windlass.server.core import ServerCore
from windlass.server.custom_kinds import ServedKinds
from windlass.server.presentation import responses
from windlass.server.telemetry import Telemetry

_CONTROL_SECONDS = 5.0
_HEALTH = ("/healthz", "/livez", "/readyz")


def health(core: ServerCore, path: str) -> Response | None:
    """Return the response for a health page; ``None`` for other paths.

    It fails after a failure of the store, and ``/readyz`` also during shutdown.
    """
    page = next((page for page in _HEALTH if path == page or path.startswith(f"{page}/")), None)
    if page is None:
        return None
    failure = core.store.failure
    if failure is not None:
        return responses.text(500, f"[-]store failed: {failure.message}\n{page.lstrip('/')} check failed\n")
    if page == "/readyz" and core.stopping:
        return responses.text(500, "[-]shutdown failed: the server is stopping\nreadyz check failed\n")
    return responses.text(200, "ok")


def version(core: ServerCore) -> Response:
    git = core.options.git_version
    major, minor, *_ = git.lstrip("v").split(".")
    return responses.json(
        200,
        {
            "major": major,
            "minor": minor,
            "gitVersion": git,
            "gitCommit": "",
            "gitTreeState": "clean",
            "buildDate": "1970-01-01T00:00:00Z",
            "goVersion": "",
            "compiler": "cpython",
            "platform": f"linux/{_machine()}",
        },
    )


def _machine() -> str:
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())


def metrics(telemetry: Telemetry) -> Response:
    content_type, body = telemetry.text()
    return Response(200, {"content-type": content_type}, body)


async def control_metrics(socket: Path | None) -> Response:
    """Return metrics of scheduler and controllers, read from their socket.

    503 if the socket does not respond.
    """
    from windlass.client.connection import Connection
    from windlass.client.http import HttpOptions, HttpTransport

    response = None
    if socket is not None:
        limits = HttpOptions(connect_seconds=_CONTROL_SECONDS, response_seconds=_CONTROL_SECONDS)
        transport = HttpTransport(Connection(unix_socket=str(socket)), options=limits)
        try:
            response = await transport.request(Request("GET", "/metrics"))
        except Unreachable:
            pass
        finally:
            await transport.close()
    if response is None or response.status != 200:
        return responses.text(503, "the scheduler and the controllers do not answer\n")
    return Response(200, {"content-type": response.headers["content-type"]}, response.body)


def api_description(request: Request, kinds: ServedKinds) -> Response | None:
    """Return the response for discovery and OpenAPI; ``None`` for other paths.

    Raises StatusError.
    """
    from windlass.server.presentation import (  # these modules read type data that other requests do not need
        discovery,
        openapi,
    )

    return discovery.answer(request, kinds) or openapi.answer(request, kinds)
