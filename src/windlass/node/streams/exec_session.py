"""Helper process that runs one command inside a running container and serves its streams.

Its stdout is the connection to the API server. It joins the namespaces and the cgroup of the
container's init. The command gets the environment, user, limits, devices and working directory
of the container's own command. The session survives the agent.

Stdin may be closed while output goes on. When the client leaves, the command gets SIGHUP, as from
a terminal that is closed. A command that ignores SIGHUP runs on.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import select
import signal
import socket
from collections.abc import Iterator
from typing import Any, NoReturn

from windlass.kits import monotonic
from windlass.node.runtime import attempt_files, container_init, syscalls
from windlass.node.runtime.console import set_size
from windlass.node.runtime.container_entry import enter_container
from windlass.node.streams import framing
from windlass.node.streams.framing import FrameReader

_BLOCK = 65_536
_MAX_BUFFER_BYTES = 2**20
"""Maximum number of buffered bytes per direction; above it the source is not read."""
_DRAIN_SECONDS = 0.3
"""Timeout for output after the command's end: background processes may hold its pipes open."""
_END_OF_INPUT = b"\x04"
NOT_FOUND = 127
"""Exit code of a command that does not exist (as in a shell)."""
NOT_EXECUTABLE = 126


def main(folder: str) -> int:
    """Serve the command of the first frame. ``folder``: directory of the container's attempt."""
    syscalls.close_inherited()
    syscalls.set_process_name("windlass-exec")
    connection = socket.socket(fileno=os.dup(1))
    connection.setblocking(True)  # the agent's setting is shared
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for descriptor in (0, 1):
        os.dup2(null, descriptor)
    with connection:
        request = _request(connection)
        if request is None:
            return 1
        try:
            session = _Session(connection, folder, request)
            status = session.run()
        except OSError as error:
            status = failure_status(f"error executing command in container: {error}")
        connection.setblocking(True)
        with contextlib.suppress(OSError):  # the client has left
            connection.sendall(framing.encode(bytes([framing.ERROR]) + json.dumps(status).encode()))
    return 0


def _request(connection: socket.socket) -> dict[str, Any] | None:
    """Return the command to run; None if the client has left."""
    data = b""
    wanted = framing.HEADER_BYTES
    while len(data) < wanted:
        block = connection.recv(wanted - len(data))
        if not block:
            return None
        data += block
        if len(data) == framing.HEADER_BYTES:
            wanted += framing.length_of(data)
    return json.loads(data[framing.HEADER_BYTES :])


def success_status() -> dict[str, Any]:
    return {"metadata": {}, "status": "Success"}


def failure_status(message: str) -> dict[str, Any]:
    """Return the Status of a command that could not be run."""
    return {
        "metadata": {},
        "status": "Failure",
        "message": f"Internal error occurred: {message}",
        "reason": "InternalError",
        "details": {"causes": [{"message": message}]},
        "code": 500,
    }


def exit_status(code: int) -> dict[str, Any]:
    """Return the Status of a command that ended with ``code``."""
    if code == 0:
        return success_status()
    return {
        "metadata": {},
        "status": "Failure",
        "message": f"command terminated with non-zero exit code: exit status {code}",
        "reason": "NonZeroExitCode",
        "details": {"causes": [{"reason": "ExitCode", "message": str(code)}]},
    }


class _Session:
    """Streams of one command."""

    def __init__(self, connection: socket.socket, folder: str, request: dict[str, Any]) -> None:
        self.connection = connection
        self.folder = folder
        self.argv: list[str] = request["argv"]
        self.tty: bool = request["tty"]
        self.wants_stdin: bool = request["stdin"]
        self.reader = FrameReader()
        self.outgoing = bytearray()
        self.incoming = bytearray()
        """Input for the command that its stdin has not taken yet."""
        self.input_ended = False
        self.client_left = False
        self.stdin = -1
        self.outputs: dict[int, int] = {}
        """Descriptor → channel."""
        self.terminal = -1
        self.child = 0
        self.container = -1
        """Descriptor that is readable once the container's init has ended."""

    def run(self) -> dict[str, Any]:
        """Run the command to its end; return its Status. Raises ``OSError``."""
        spec = attempt_files.read(self.folder, attempt_files.SPEC)
        init = attempt_files.read(self.folder, attempt_files.PROCESS)
        if spec is None or init is None or not attempt_files.is_running(init):
            return failure_status("the container has ended")
        with contextlib.suppress(OSError):  # a kernel without pidfd
            self.container = os.pidfd_open(init["pid"])
        wake, wake_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        refusal = self._start(spec, init)
        if refusal is not None:
            return self._refused(refusal)
        self.connection.setblocking(False)
        code = self._pump(wake)
        self._drain()
        self._flush()
        return exit_status(code)

    # -- starting ------------------------------------------------------------------------------

    def _start(self, spec: dict[str, Any], init: dict[str, Any]) -> dict[str, Any] | None:
        """Start the command. Return the failure of a step before exec, if any."""
        ours, theirs = self._open_streams(spec)
        enter_container(spec, init)
        errors, errors_write = os.pipe2(os.O_CLOEXEC)
        parent = 0 if spec.get("pid_namespace") else os.getpid()  # as the command sees it
        environment = {**spec["env"], "TERM": spec["env"].get("TERM", "xterm")} if self.tty else spec["env"]
        command = {**spec, "argv": self.argv, "env": environment, "tty": self.tty}
        self.child = os.fork()
        if self.child == 0:
            self._become(command, theirs, errors_write, parent)
        os.close(errors_write)
        for descriptor in set(theirs):
            os.close(descriptor)
        refusal = b""
        while block := os.read(errors, _BLOCK):
            refusal += block
        os.close(errors)
        if refusal:
            os.waitpid(self.child, 0)
            return json.loads(refusal)
        for descriptor in ours:
            os.set_blocking(descriptor, False)
        return None

    def _open_streams(self, spec: dict[str, Any]) -> tuple[list[int], tuple[int, int, int]]:
        """Return our descriptors, and stdin, stdout and stderr of the command."""
        if self.tty:
            master, slave = os.openpty()
            if spec.get("uid") is not None:
                os.fchown(slave, spec["uid"], spec.get("gid", -1))
            self.terminal = self.stdin = master
            self.outputs = {master: framing.STDOUT}
            return [master], (slave, slave, slave)
        out, out_write = os.pipe2(os.O_CLOEXEC)
        errors, errors_write = os.pipe2(os.O_CLOEXEC)
        self.outputs = {out: framing.STDOUT, errors: framing.STDERR}
        if not self.wants_stdin:
            return [out, errors], (os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC), out_write, errors_write)
        stdin, self.stdin = os.pipe2(os.O_CLOEXEC)
        return [out, errors, self.stdin], (stdin, out_write, errors_write)

    def _become(
        self, command: dict[str, Any], streams: tuple[int, int, int], errors: int, parent: int
    ) -> NoReturn:
        signal.set_wakeup_fd(-1)
        for number, descriptor in enumerate(streams):
            os.dup2(descriptor, number)
        container_init.become(command, errors, parent)

    def _refused(self, refusal: dict[str, Any]) -> dict[str, Any]:
        """Report a command that could not be executed, as a shell does: in words and by exit code."""
        name = self.argv[0]
        if refusal["stage"] != "exec":
            where = refusal["path"] or name
            return failure_status(
                f"error executing command in container: {refusal['stage']} {where}: {refusal['message']}"
            )
        missing = refusal["errno"] in (errno.ENOENT, errno.ENOTDIR)
        if missing and "/" not in name:
            why = (
                f'exec: "{name}": executable file not found in $PATH: pods run with the programs of this '
                "machine, windlass doctor lists what it has"
            )
        else:
            why = f'exec: "{name}": {refusal["message"]}'
        self._send(framing.STDERR, f"{why}\n".encode())
        self._flush()
        return exit_status(NOT_FOUND if missing else NOT_EXECUTABLE)

    # -- running -------------------------------------------------------------------------------

    def _pump(self, wake: int) -> int:
        """Copy streams until the command ends. Return its exit code."""
        while True:
            for descriptor, event in self._ready(wake):
                if descriptor == wake:
                    os.read(wake, 512)
                elif descriptor == self.container:
                    self._on_container_ended()
                elif descriptor == self.connection.fileno():
                    self._serve_connection(event)
                elif descriptor in self.outputs and event & (select.POLLIN | select.POLLHUP | select.POLLERR):
                    self._copy(descriptor)
            self._feed_input()
            ended, raw = os.waitpid(self.child, os.WNOHANG)
            if ended:
                code = os.waitstatus_to_exitcode(raw)
                return 128 - code if code < 0 else code

    def _ready(self, wake: int) -> Iterator[tuple[int, int]]:
        poller = select.poll()
        poller.register(wake, select.POLLIN)
        if self.container >= 0:
            poller.register(self.container, select.POLLIN)
        if not self.client_left:
            events = select.POLLOUT if self.outgoing else 0
            if len(self.incoming) < _MAX_BUFFER_BYTES:
                events |= select.POLLIN
            poller.register(self.connection.fileno(), events)
        if len(self.outgoing) < _MAX_BUFFER_BYTES:
            for descriptor in self.outputs:
                poller.register(descriptor, select.POLLIN)
        if self.incoming and self.stdin >= 0:
            events = select.POLLOUT | (select.POLLIN if self.stdin in self.outputs else 0)
            poller.register(self.stdin, events)
        yield from poller.poll(None)

    def _serve_connection(self, event: int) -> None:
        if event & (select.POLLIN | select.POLLHUP | select.POLLERR):
            self._receive()
        if event & select.POLLOUT and not self.client_left:
            self._write_out()

    def _receive(self) -> None:
        try:
            data = self.connection.recv(_BLOCK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._on_client_left()
            return
        for message in self.reader.feed(data):
            self._on_message(message[0], message[1:]) if message else None

    def _on_message(self, channel: int, data: bytes) -> None:
        if channel == framing.STDIN and self.wants_stdin:
            self.incoming += data
        elif channel == framing.RESIZE and self.tty:
            set_size(self.terminal, data)
        elif channel == framing.CLOSE and data[:1] == bytes([framing.STDIN]):
            self._end_input()

    def _end_input(self) -> None:
        if self.input_ended:
            return
        self.input_ended = True
        if self.tty:
            self.incoming += _END_OF_INPUT

    def _on_client_left(self) -> None:
        self.client_left = True
        self.outgoing.clear()
        self.input_ended = True
        self.incoming.clear()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.child, signal.SIGHUP)
        if self.tty:  # hangs up: the kernel tells the foreground processes
            self.outputs.clear()
            os.close(self.terminal)
            self.stdin = self.terminal = -1

    def _on_container_ended(self) -> None:
        """End the command with its container, as a pid namespace does."""
        os.close(self.container)
        self.container = -1
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.child, signal.SIGKILL)

    def _feed_input(self) -> None:
        """Write buffered input to the command, and close its stdin after the last byte."""
        if self.stdin < 0:
            self.incoming.clear()
            return
        while self.incoming:
            try:
                written = os.write(self.stdin, self.incoming[:_BLOCK])
            except BlockingIOError:
                return
            except OSError:  # the command has closed its stdin
                self.incoming.clear()
                break
            del self.incoming[:written]
        if self.input_ended and not self.tty:
            os.close(self.stdin)
            self.stdin = -1

    def _copy(self, descriptor: int) -> None:
        try:
            data = os.read(descriptor, _BLOCK)
        except BlockingIOError:
            return
        except OSError:  # a terminal without processes
            data = b""
        if data:
            self._send(self.outputs[descriptor], data)
            return
        del self.outputs[descriptor]
        if descriptor != self.terminal:
            os.close(descriptor)

    def _send(self, channel: int, data: bytes) -> None:
        if not self.client_left:
            self.outgoing += framing.encode(bytes([channel]) + data)

    def _write_out(self) -> None:
        try:
            sent = self.connection.send(self.outgoing)
        except BlockingIOError:
            return
        except OSError:
            self._on_client_left()
            return
        del self.outgoing[:sent]

    # -- the end -------------------------------------------------------------------------------

    def _drain(self) -> None:
        """Read the output that is left, until its end or for a short time."""
        deadline = monotonic.monotonic() + _DRAIN_SECONDS
        while self.outputs and not self.client_left:
            left = deadline - monotonic.monotonic()
            if left <= 0:
                return
            poller = select.poll()
            for descriptor in self.outputs:
                poller.register(descriptor, select.POLLIN)
            ready = poller.poll(left * 1000)
            for descriptor, _ in ready:
                self._copy(descriptor)
            if len(self.outgoing) >= _MAX_BUFFER_BYTES:
                self._flush()
                deadline = monotonic.monotonic() + _DRAIN_SECONDS

    def _flush(self) -> None:
        self.connection.setblocking(True)
        try:
            self.connection.sendall(self.outgoing)
        except OSError:
            self.client_left = True
        self.outgoing.clear()
