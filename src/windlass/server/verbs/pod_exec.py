"""``pods/NAME/exec``: a command in a running container, over a WebSocket."""

from __future__ import annotations

from urllib.parse import parse_qsl

from windlass.api.errors import bad_request
from windlass.client.transport import Response, Upgrade, WebSocket
from windlass.server.core import Call, ServerCore
from windlass.server.request.params import truth
from windlass.server.stream_source import CommandMessages
from windlass.server.verbs import pod_streams

SUBPROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io")
"""The fourth version lacks the message that closes stdin."""
_MAX_COMMAND_BYTES = 1024 * 1024


async def execute(core: ServerCore, call: Call) -> Response:
    """Handle the upgrade of ``exec``. Raises StatusError."""
    pod = pod_streams.stored_pod(core, call)
    container = pod_streams.container_name(pod, call.params.get("container", ""))
    consequence = "no command can run in it"
    pod_streams.check_has_process(core, pod, consequence)
    pod_streams.check_not_mirror(pod, consequence)
    pod_streams.check_running(pod, container)
    command = [
        value for name, value in parse_qsl(call.request.query, keep_blank_values=True) if name == "command"
    ]
    if not command:
        raise bad_request("you must specify at least 1 command for the container")
    if any("\0" in word for word in command) or sum(map(len, command)) > _MAX_COMMAND_BYTES:
        raise bad_request("the command contains a NUL byte, or is longer than 1 MiB")
    streams = {name: bool(truth(call.params, name)) for name in ("stdin", "stdout", "stderr", "tty")}
    if not (streams["stdin"] or streams["stdout"] or streams["stderr"]):
        raise bad_request("you must specify at least 1 of stdin, stdout, stderr")
    protocol = pod_streams.negotiated(call, SUBPROTOCOLS)
    messages = await pod_streams.source_of(core).execute(
        pod, container, command, stdin=streams["stdin"], tty=streams["tty"]
    )
    session = CommandSession(messages)
    return Response(101, upgrade=Upgrade(protocol, session.serve))


class CommandSession:
    """Copies messages between a WebSocket and a command, or a container."""

    def __init__(self, messages: CommandMessages) -> None:
        self._messages = messages

    async def serve(self, socket: WebSocket) -> None:
        try:
            await pod_streams.run_all(self._to_client(socket), self._to_command(socket))
        finally:
            self._messages.close()

    async def _to_client(self, socket: WebSocket) -> None:
        while message := await self._messages.receive():
            await socket.send(message)

    async def _to_command(self, socket: WebSocket) -> None:
        while (message := await socket.receive()) is not None:
            try:
                await self._messages.send(message)
            except OSError:  # the command has ended: its last messages are still to be read
                break
        else:
            return
        while await socket.receive() is not None:
            pass
