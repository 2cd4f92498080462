"""``pods/NAME/attach``: input and output of a running container, over a WebSocket.

A container with ``stdin`` or ``tty`` is served by its console. The output of any other one is that
of its log, from now on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec

from windlass.api.errors import bad_request, failure
from windlass.client.transport import Response, Upgrade, WebSocket
from windlass.server.core import Call, ServerCore
from windlass.server.log_source import LogMissing, LogOptions, LogSource
from windlass.server.request.params import truth
from windlass.server.verbs import pod_streams
from windlass.server.verbs.pod_exec import SUBPROTOCOLS, CommandSession

_STDOUT, _STDERR, _ERROR = 1, 2, 3
_OUTPUTS = ((_STDOUT, "stdout"), (_STDERR, "stderr"))
_SUCCESS = bytes([_ERROR]) + msgspec.json.encode({"metadata": {}, "status": "Success"})


async def attach(core: ServerCore, call: Call) -> Response:
    """Handle the upgrade of ``attach``. Raises StatusError."""
    pod = pod_streams.stored_pod(core, call)
    container = pod_streams.container_name(pod, call.params.get("container", ""))
    pod_streams.check_has_process(core, pod, "no output of it can be shown")
    pod_streams.check_running(pod, container)
    streams = {name: bool(truth(call.params, name)) for name in ("stdin", "stdout", "stderr")}
    if not any(streams.values()):
        raise bad_request("you must specify at least 1 of stdin, stdout, stderr")
    definition = pod_streams.definition(pod, container)
    if definition.get("stdin") or definition.get("tty"):
        if call.request.subprotocols is None:
            await _check_is_attachable(core, pod, container)
        protocol = pod_streams.negotiated(call, SUBPROTOCOLS)
        messages = await pod_streams.source_of(core).attach(pod, container, streams)
        return Response(101, upgrade=Upgrade(protocol, CommandSession(messages).serve))
    if streams["stdin"]:
        name = pod["metadata"]["name"]
        raise bad_request(
            f'container "{container}" of pod "{name}" has no stdin: its manifest lacks "stdin: true". Attach '
            f"without -i, or run a command in it: kubectl exec -it {name} -c {container} -- sh"
        )
    if core.logs is None:
        raise failure(
            503, "ServiceUnavailable", "no node agent serves logs to this server", {"retryAfterSeconds": 5}
        )
    wanted = [(channel, name) for channel, name in _OUTPUTS if streams[name]]
    protocol = pod_streams.negotiated(call, SUBPROTOCOLS)
    session = _AttachSession(core.logs, pod, container, wanted)
    return Response(101, upgrade=Upgrade(protocol, session.serve))


async def _check_is_attachable(core: ServerCore, pod: Mapping[str, Any], container: str) -> None:
    """Raise the refusal of the node agent, if it has one, for a request without WebSocket.

    kubectl repeats a refused request by SPDY. The status may still show a container as running that
    has just ended, and then the user has to read of the end, and not of SPDY.
    """
    messages = await pod_streams.source_of(core).attach(pod, container, {"stdout": True})
    messages.close()


class _AttachSession:
    """Copies the output of a container to a WebSocket until the container ends or the client leaves."""

    def __init__(
        self, logs: LogSource, pod: Mapping[str, Any], container: str, wanted: list[tuple[int, str]]
    ) -> None:
        self._logs = logs
        self._pod = pod
        self._container = container
        self._wanted = wanted

    async def serve(self, socket: WebSocket) -> None:
        await pod_streams.run_all(self._copy_all(socket), _until_left(socket))

    async def _copy_all(self, socket: WebSocket) -> None:
        await asyncio.gather(*(self._copy(socket, channel, name) for channel, name in self._wanted))
        await socket.send(_SUCCESS)

    async def _copy(self, socket: WebSocket, channel: int, name: str) -> None:
        options = LogOptions(self._container, follow=True, tail_lines=0, stream=name)
        chunks: Any = self._logs.open(self._pod, options)
        try:
            async for chunk in chunks:
                await socket.send(bytes([channel]) + chunk)
        except LogMissing:
            return
        finally:
            await chunks.aclose()


async def _until_left(socket: WebSocket) -> None:
    while await socket.receive() is not None:
        pass
