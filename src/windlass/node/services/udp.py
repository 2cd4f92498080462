"""UDP port of a Service: datagrams of one client go to one backend, and its answers back."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any, cast

from windlass.node.services.balancer import Backend, Balancer

_IDLE_SECONDS = 60.0
"""Time in seconds after which a client without datagrams is forgotten."""
_MAX_WAITING = 64
"""Maximum number of datagrams that wait for the socket to a backend."""
Peer = tuple[str, int]


class UdpListener(asyncio.DatagramProtocol):
    """Listener of one address and port. ``reachable``: whether this process reaches a backend."""

    def __init__(self, balancer: Balancer, reachable: Callable[[Backend], bool]) -> None:
        self._balancer = balancer
        self._reachable = reachable
        self._flows: dict[Peer, _Flow] = {}
        self._transport: asyncio.DatagramTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.DatagramTransport, transport)

    def datagram_received(self, data: bytes, addr: Any) -> None:
        now = asyncio.get_running_loop().time()
        flow = self._flows.get(addr)
        if flow is not None and flow.backend not in self._balancer.backends:
            flow.close()
            flow = None
        if flow is None:
            order = [one for one in self._balancer.order(addr[0], now) if self._reachable(one)]
            if not order:
                return
            self._balancer.connected(addr[0], order[0], now)
            flow = self._flows[addr] = _Flow(self, addr, order[0])
        flow.send(data, now)

    def answer(self, data: bytes, peer: Peer) -> None:
        if self._transport is not None:
            self._transport.sendto(data, peer)

    def forget(self, flow: _Flow) -> None:
        if self._flows.get(flow.peer) is flow:
            del self._flows[flow.peer]

    def close(self) -> None:
        for flow in tuple(self._flows.values()):
            flow.close()
        if self._transport is not None:
            self._transport.close()


class _Flow(asyncio.DatagramProtocol):
    """Socket to the backend of one client."""

    def __init__(self, listener: UdpListener, peer: Peer, backend: Backend) -> None:
        self.peer = peer
        self.backend = backend
        self._listener = listener
        self._transport: asyncio.DatagramTransport | None = None
        self._waiting: list[bytes] = []
        self._used_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._opening = asyncio.ensure_future(self._open())

    async def _open(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            await loop.create_datagram_endpoint(lambda: self, remote_addr=self.backend)
        except OSError:
            self.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.DatagramTransport, transport)
        for data in self._waiting:
            self._transport.sendto(data)
        self._waiting.clear()
        self._expire()

    def send(self, data: bytes, now: float) -> None:
        self._used_at = now
        if self._transport is not None:
            self._transport.sendto(data)
        elif len(self._waiting) < _MAX_WAITING:
            self._waiting.append(data)

    def datagram_received(self, data: bytes, addr: Any) -> None:
        self._used_at = asyncio.get_running_loop().time()
        self._listener.answer(data, self.peer)

    def _expire(self) -> None:
        loop = asyncio.get_running_loop()
        left = self._used_at + _IDLE_SECONDS - loop.time()
        if left <= 0:
            self.close()
        else:
            self._timer = loop.call_later(left, self._expire)

    def close(self) -> None:
        self._listener.forget(self)
        if self._timer is not None:
            self._timer.cancel()
        with contextlib.suppress(RuntimeError):
            self._opening.cancel()
        if self._transport is not None:
            self._transport.close()
