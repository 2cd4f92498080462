"""Console of a container with stdin or a terminal: its input, and the clients attached to it.

The shim owns the console, so that neither input nor clients are lost when the agent restarts. The
agent passes the connection of a client as a datagram to the socket ``attach.sock`` in the directory
of the attempt. From then on, shim and API server exchange the frames of
:mod:`windlass.node.streams.framing`.

A container with ``stdinOnce`` gets the end of its input when the first client that sends input has
ended it. Other containers wait for the next client, as with the container runtimes. The first
client also gets the output so far, since it cannot attach before the start of the container.

The shim imports this module only for containers that have a console.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import socket
import struct
import termios
from collections.abc import Iterator
from typing import Any

from windlass.kits import monotonic
from windlass.node.streams import framing
from windlass.node.streams.framing import BadFrame, FrameReader

SOCKET = "attach.sock"
_MAX_BUFFER_BYTES = 2**20
"""Maximum number of buffered bytes per direction; above it the source is not read."""
_MAX_HISTORY_BYTES = 256 * 1024
"""Maximum output that is kept for the first client, in bytes."""
_MAX_REQUEST_BYTES = 4096
_FLUSH_SECONDS = 5.0
"""Maximum time in which clients receive the output that is left after the container's end."""
_BLOCK = 65_536
_SUCCESS = framing.encode(bytes([framing.ERROR]) + json.dumps({"metadata": {}, "status": "Success"}).encode())


def set_size(terminal: int, message: bytes) -> None:
    """Set the size of a terminal, as a resize message says it. Other messages change nothing."""
    try:
        size = json.loads(message)
        packed = struct.pack("HHHH", int(size["Height"]), int(size["Width"]), 0, 0)
    except (ValueError, KeyError, TypeError, struct.error):
        return  # as the kubelet: a size that cannot be read changes nothing
    with contextlib.suppress(OSError):  # the terminal was closed
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, packed)


def pass_connection(directory: str, request: dict[str, Any], connection: int) -> None:
    """Attach the client behind ``connection`` to the attempt in ``directory``. Raises ``OSError``.

    ``request``: which of ``stdin``, ``stdout`` and ``stderr`` the client wants.
    """
    folder = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.connect(_address(folder))
            socket.send_fds(sender, [json.dumps(request).encode()], [connection])
    finally:
        os.close(folder)


def _address(folder: int) -> str:
    """Return a short path of the socket: that of the directory may exceed the limit of 107 bytes."""
    return f"/proc/self/fd/{folder}/{SOCKET}"


class _Client:
    __slots__ = ("channels", "connection", "is_over", "outgoing", "reader", "stdin")

    def __init__(self, connection: socket.socket, stdin: bool, channels: frozenset[int]) -> None:
        self.connection = connection
        self.stdin = stdin
        self.channels = channels
        self.reader = FrameReader()
        self.outgoing = bytearray()
        self.is_over = False
        """True once the client gets no more output: it leaves when its buffer is empty."""


class Console:
    """Input and clients of one attempt.

    ``child_stdin``: the stdin of the command, until :meth:`close_child_ends`. ``terminal``: master
    and slave of the terminal, if the container has one.
    """

    def __init__(self, directory: str, *, stdin: bool, stdin_once: bool, tty: bool) -> None:
        self._listener = _listen(directory)
        self._has_input = stdin
        self._stdin_once = stdin_once and not tty
        self.terminal: tuple[int, int] | None = os.openpty() if tty else None
        if self.terminal is not None:
            self._input, self.child_stdin = self.terminal
            set_size(self._input, b'{"Width": 80, "Height": 24}')
        elif stdin:
            self.child_stdin, self._input = os.pipe2(os.O_CLOEXEC)
        else:
            raise ValueError("a console needs stdin or a terminal")
        os.set_blocking(self._input, False)
        self._incoming = bytearray()
        """Input that the command has not taken yet."""
        self._input_ended = False
        self._clients: dict[int, _Client] = {}
        self._history: list[tuple[int, bytes]] | None = []
        self._history_bytes = 0

    # -- descriptors ---------------------------------------------------------------------------

    def close_child_ends(self) -> None:
        """Close the descriptors of the command, in the shim."""
        os.close(self.child_stdin)

    def close_own_ends(self) -> None:
        """Close the descriptors of the shim, in the container's init."""
        self._listener.close()
        os.close(self._input)

    @property
    def is_congested(self) -> bool:
        """True if a client is behind: the output of the container must wait."""
        return any(len(client.outgoing) >= _MAX_BUFFER_BYTES for client in self._clients.values())

    def interests(self) -> Iterator[tuple[int, int]]:
        """Yield the descriptors to poll, with their events. The terminal's output is not among them."""
        yield self._listener.fileno(), select.POLLIN
        for number, client in self._clients.items():
            events = select.POLLOUT if client.outgoing else 0
            if len(self._incoming) < _MAX_BUFFER_BYTES:
                events |= select.POLLIN
            yield number, events
        if self._incoming and self._input >= 0 and self.terminal is None:
            yield self._input, select.POLLOUT

    @property
    def waits_for_terminal(self) -> bool:
        """True if the terminal is to be polled for space: its master is also an output."""
        return bool(self._incoming) and self.terminal is not None

    def serve(self, descriptor: int, event: int) -> None:
        """Handle an event of one of the descriptors of :meth:`interests`."""
        if descriptor == self._listener.fileno():
            self._accept()
        elif (client := self._clients.get(descriptor)) is not None:
            if event & (select.POLLIN | select.POLLHUP | select.POLLERR):
                self._receive(client)
            if event & select.POLLOUT and descriptor in self._clients:
                self._write_out(client)
        self.feed_input()

    # -- clients -------------------------------------------------------------------------------

    def _accept(self) -> None:
        try:
            request, descriptors, _, _ = socket.recv_fds(self._listener, _MAX_REQUEST_BYTES, 1)
        except OSError:
            return
        if not descriptors:
            return
        connection = socket.socket(fileno=descriptors[0])
        connection.setblocking(False)
        wanted = json.loads(request)
        names = {"stdout": framing.STDOUT, "stderr": framing.STDERR}
        channels = frozenset(channel for name, channel in names.items() if wanted.get(name))
        client = _Client(connection, bool(wanted.get("stdin")), channels)
        self._clients[connection.fileno()] = client
        for channel, data in self._history or ():
            self._queue(client, channel, data)
        self._history = None

    def _receive(self, client: _Client) -> None:
        try:
            data = client.connection.recv(_BLOCK)
            messages = client.reader.feed(data)
        except BlockingIOError:
            return
        except (OSError, BadFrame):
            data, messages = b"", []
        for message in messages:
            self._on_message(client, message[:1], message[1:])
        if not data:
            self._on_left(client)

    def _on_message(self, client: _Client, channel: bytes, data: bytes) -> None:
        if channel == bytes([framing.STDIN]) and client.stdin and self._has_input and not self._input_ended:
            self._incoming += data
        elif channel == bytes([framing.RESIZE]) and self.terminal is not None:
            set_size(self.terminal[0], data)
        elif channel == bytes([framing.CLOSE]) and data[:1] == bytes([framing.STDIN]):
            self._on_input_ended(client)

    def _on_input_ended(self, client: _Client) -> None:
        if not client.stdin:
            return
        client.stdin = False
        if self._stdin_once:
            self._input_ended = True
        else:
            self._end(client)  # as the runtimes: the client ends with its input

    def _on_left(self, client: _Client) -> None:
        self._on_input_ended(client)
        self._forget(client)

    def _end(self, client: _Client) -> None:
        """Let the client end once it has received its output."""
        client.is_over = True
        client.outgoing += _SUCCESS
        self._write_out(client)

    def _forget(self, client: _Client) -> None:
        if self._clients.pop(client.connection.fileno(), None) is not None:
            client.connection.close()

    def _queue(self, client: _Client, channel: int, data: bytes) -> None:
        if channel in client.channels and not client.is_over:
            client.outgoing += framing.encode(bytes([channel]) + data)

    def _write_out(self, client: _Client) -> None:
        try:
            sent = client.connection.send(client.outgoing) if client.outgoing else 0
        except BlockingIOError:
            return
        except OSError:
            self._on_left(client)
            return
        del client.outgoing[:sent]
        if client.is_over and not client.outgoing:
            self._forget(client)

    # -- streams of the container --------------------------------------------------------------

    def feed_input(self) -> None:
        """Write buffered input to the command, and close its stdin after the last byte."""
        while self._incoming and self._input >= 0:
            try:
                written = os.write(self._input, self._incoming[:_BLOCK])
            except BlockingIOError:
                return
            except OSError:  # the command has closed its stdin
                self._incoming.clear()
                break
            del self._incoming[:written]
        if self._input_ended and self._input >= 0:
            os.close(self._input)
            self._input = -1

    def on_output(self, stream: str, data: bytes) -> None:
        """Send output to the clients. Before the first one it is kept."""
        channel = framing.STDERR if stream == "stderr" else framing.STDOUT
        if self._history is not None:
            self._history.append((channel, data))
            self._history_bytes += len(data)
            while self._history_bytes > _MAX_HISTORY_BYTES and len(self._history) > 1:
                self._history_bytes -= len(self._history.pop(0)[1])
        for client in tuple(self._clients.values()):
            self._queue(client, channel, data)
            self._write_out(client)

    def finish(self) -> None:
        """Tell the clients that the container has ended, and wait for a short time until they know."""
        self._listener.close()
        deadline = monotonic.monotonic() + _FLUSH_SECONDS
        for client in tuple(self._clients.values()):
            client.is_over = True
            client.outgoing += _SUCCESS
            client.connection.settimeout(max(0.01, deadline - monotonic.monotonic()))
            with contextlib.suppress(OSError):  # it has left, or does not read
                client.connection.sendall(client.outgoing)
            self._forget(client)


def _listen(directory: str) -> socket.socket:
    """Return the socket on which the agent passes clients. Raises ``OSError``."""
    folder = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        listener.bind(_address(folder))
        os.chmod(_address(folder), 0o600)
    except OSError:
        listener.close()
        raise
    finally:
        os.close(folder)
    listener.setblocking(False)
    return listener
