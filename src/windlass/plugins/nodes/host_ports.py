"""Filter of nodes on which a host port is taken, also by another pod of the same gang.

Ports differ by protocol, number and address. As in Kubernetes, a port without an
address is bound to all addresses, so it conflicts with every other port of the same
number (``0.0.0.0`` and ``::`` count as no address).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np

from windlass.api.reasons import Reason
from windlass.spi.nodes import BoolArray, NodeView
from windlass.spi.objects import HostPort, Needs
from windlass.spi.plugins import NodeBlocker

Number = tuple[str, int]


class HostPorts:
    """Filter of nodes with conflicting host ports.

    Pods that hold a port are indexed by its number first, because few ports share a
    number.
    """

    name = "host-ports"

    def __init__(self) -> None:
        self._ports: dict[int, frozenset[HostPort]] = {}
        """Class → ports, only for classes that request any."""
        self._asking: dict[Number, dict[int, None]] = {}
        """(protocol, number) → the classes that request it."""
        self._taken: dict[Number, dict[HostPort, dict[int, int]]] = {}
        """(protocol, number) → port → row → number of pods that hold it."""

    def attach(self, nodes: NodeView) -> None:
        return

    def learn(self, number: int, needs: Needs, placed: Iterable[tuple[int, Mapping[int, int]]]) -> None:
        if needs.host_ports:
            self._ports[number] = frozenset(needs.host_ports)
            for port in self._ports[number]:
                self._asking.setdefault((port.protocol, port.number), {})[number] = None

    def forget(self, number: int) -> None:
        for key in {(port.protocol, port.number) for port in self._ports.pop(number, ())}:
            del self._asking[key][number]
            if not self._asking[key]:
                del self._asking[key]

    def add(self, number: int, row: int, count: int) -> None:
        ports = self._ports.get(number)
        if ports is None:
            return
        for port in ports:
            holders = self._taken.setdefault((port.protocol, port.number), {})
            rows = holders.setdefault(port, {})
            left = rows.get(row, 0) + count
            if left:
                rows[row] = left
                continue
            del rows[row]
            if not rows:
                del holders[port]
                if not holders:
                    del self._taken[port.protocol, port.number]

    def is_interested(self, number: int) -> bool:
        return number in self._ports

    def constrains(self, number: int) -> bool:
        return number in self._ports

    def verdict(self, number: int, nodes: NodeView) -> BoolArray | None:
        ports = self._ports.get(number)
        return None if ports is None else ~self._blocked(ports, nodes)

    def touched(self, number: int, row: int) -> Sequence[tuple[str, int]] | None:
        return [("", row)] if number in self._ports else []

    def listens_to(self, number: int) -> Collection[int]:
        return self.listeners(number)

    def listeners(self, number: int) -> Collection[int]:
        mine = self._ports.get(number, frozenset())
        near = {other for port in mine for other in self._asking[port.protocol, port.number]}
        return [
            other
            for other in sorted(near)
            if any(collide(port, theirs) for port in mine for theirs in self._ports[other])
        ]

    def relabelled(self, placed: Iterable[tuple[int, Mapping[int, int]]]) -> None:
        return

    def blockers(self, needs: Needs, nodes: NodeView) -> Sequence[NodeBlocker]:
        blockers = []
        for port in sorted(set(needs.host_ports)):
            blocked = self._blocked((port,), nodes)
            if blocked.any():
                address = f" on {port.address}" if port.address else ""
                detail = f"{port.number}/{port.protocol}{address}"
                blockers.append(NodeBlocker(Reason.HOST_PORT_TAKEN, blocked, detail=detail))
        return blockers

    def _blocked(self, ports: Iterable[HostPort], nodes: NodeView) -> BoolArray:
        taken: set[int] = set()
        for port in ports:
            for other, rows in self._taken.get((port.protocol, port.number), {}).items():
                if collide(port, other):
                    taken.update(rows)
        return np.isin(nodes.rows, list(taken))


def collide(one: HostPort, other: HostPort) -> bool:
    """Return whether one node cannot serve both ports."""
    if (one.protocol, one.number) != (other.protocol, other.number):
        return False
    return not one.address or not other.address or one.address == other.address
