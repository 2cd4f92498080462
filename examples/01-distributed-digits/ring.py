"""A ring all-reduce over TCP: each rank talks to its right-hand neighbour only.

The sum of one vector over n ranks takes 2·(n − 1) steps in which every rank sends one n-th of it
(reduce-scatter, then all-gather), the algorithm that NCCL and Horovod made the standard.
"""

from __future__ import annotations

import selectors
import socket
import struct
import time

import numpy as np

HELLO = struct.Struct("!i")


class Ring:
    """The ranks ``hosts[0..n-1]`` in a circle. Raises ``ConnectionError`` when a neighbour is lost."""

    def __init__(
        self, rank: int, hosts: list[str], port: int = 29_500, patience_seconds: float = 60.0
    ) -> None:
        self.rank, self.size = rank, len(hosts)
        own, right = hosts[rank], hosts[(rank + 1) % self.size]
        deadline = time.monotonic() + patience_seconds
        listener = socket.create_server((resolve(own, deadline), port + rank))
        listener.settimeout(patience_seconds)
        self.right = _connect(right, port + (rank + 1) % self.size, deadline)
        self.right.sendall(HELLO.pack(rank))
        self.left, self.left_address = listener.accept()
        listener.close()
        (claimed,) = HELLO.unpack(_read_exactly(self.left, HELLO.size))
        expected = (rank - 1) % self.size
        if claimed != expected:
            raise ConnectionError(f"rank {claimed} called where rank {expected} was expected")
        for peer in (self.left, self.right):
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            peer.setblocking(False)

    def all_reduce(self, vector: np.ndarray) -> np.ndarray:
        """The element-wise sum over all ranks; every rank gets bit for bit the same result."""
        total = np.array(vector, dtype=np.float64)
        parts = np.array_split(total, self.size)  # views
        for step in range(self.size - 1):
            parts[(self.rank - step - 1) % self.size] += self._exchange(
                parts[(self.rank - step) % self.size], parts[(self.rank - step - 1) % self.size].size
            )
        for step in range(self.size - 1):
            parts[(self.rank - step) % self.size][:] = self._exchange(
                parts[(self.rank - step + 1) % self.size], parts[(self.rank - step) % self.size].size
            )
        return total

    def _exchange(self, outgoing: np.ndarray, expected: int) -> np.ndarray:
        """Send to the right while receiving from the left, so that full socket buffers cannot deadlock."""
        pending = memoryview(np.ascontiguousarray(outgoing)).cast("B")
        incoming = np.empty(expected, dtype=np.float64)
        room = memoryview(incoming).cast("B")
        with selectors.DefaultSelector() as ready:
            if pending:
                ready.register(self.right, selectors.EVENT_WRITE)
            if room:
                ready.register(self.left, selectors.EVENT_READ)
            while ready.get_map():
                for key, _ in ready.select():
                    if key.fileobj is self.right:
                        pending = pending[self.right.send(pending) :]
                        if not pending:
                            ready.unregister(self.right)
                    else:
                        count = self.left.recv_into(room)
                        if count == 0:
                            raise ConnectionError(f"rank {(self.rank - 1) % self.size} is gone")
                        room = room[count:]
                        if not room:
                            ready.unregister(self.left)
        return incoming


def resolve(host: str, deadline: float) -> str:
    """The address of ``host``; its name may appear a moment after this process."""
    while True:
        try:
            return socket.gethostbyname(host)
        except OSError as error:
            if time.monotonic() > deadline:
                raise ConnectionError(f"{host} has no address: {error}") from None
            time.sleep(0.05)


def _connect(host: str, port: int, deadline: float) -> socket.socket:
    while True:
        try:
            return socket.create_connection((resolve(host, deadline), port), timeout=5)
        except OSError as error:
            if time.monotonic() > deadline:
                raise ConnectionError(f"{host}:{port} does not answer: {error}") from None
            time.sleep(0.05)


def _read_exactly(peer: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        piece = peer.recv(count - len(data))
        if not piece:
            raise ConnectionError("the neighbour closed the connection")
        data += piece
    return data
