"""Protocol of the source of streams into containers, implemented by the node agent's client.

The server checks the request (pod, container, state, options). The source runs commands and opens
connections in the pod.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from windlass.api.errors import StatusError, failure

_REASONS = {400: "BadRequest", 404: "NotFound", 503: "ServiceUnavailable"}


def refused(code: int, message: str) -> StatusError:
    """Return the error for a stream that the source refuses."""
    return failure(code, _REASONS.get(code, "InternalError"), message)


class CommandMessages(Protocol):
    """Messages of one running command: one byte for the channel, then the data."""

    async def send(self, message: bytes) -> None:
        """Send a message to the command. Raises ``OSError`` if the command has ended."""
        ...

    async def receive(self) -> bytes:
        """Return the next message; empty at the end."""
        ...

    def close(self) -> None: ...


class StreamSource(Protocol):
    """Source of streams. All methods raise StatusError."""

    async def execute(
        self, pod: Mapping[str, Any], container: str, command: Sequence[str], *, stdin: bool, tty: bool
    ) -> CommandMessages:
        """Run a command in a running container."""
        ...

    async def attach(
        self, pod: Mapping[str, Any], container: str, streams: Mapping[str, bool]
    ) -> CommandMessages:
        """Attach to a running container that has stdin or a terminal.

        ``streams``: which of ``stdin``, ``stdout`` and ``stderr`` the client wants.
        """
        ...

    async def connect(self, pod: Mapping[str, Any], port: int) -> socket.socket:
        """Return a connected, non-blocking socket to a port of the pod."""
        ...

    async def usage(self) -> Mapping[str, Any]:
        """Return what the node and its containers use now.

        ``{"at": Unix seconds, "window": seconds, "node": {"cpu": nanocores, "memory": bytes},
        "pods": {uid: {container: {"cpu", "memory"}}}}``
        """
        ...
