"""A host port is given once per node, and not twice to pods of one gang either."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np

from windlass.api.reasons import Reason
from windlass.spi.nodes import BoolArray, NodeView
from windlass.spi.objects import Needs
from windlass.spi.plugins import Finding

Port = tuple[str, int]


class HostPorts:
    """Ports are (protocol, number); host addresses are not told apart."""

    name = "host-ports"

    def __init__(self) -> None:
        self._ports: dict[int, frozenset[Port]] = {}
        """Class → ports, only for classes that ask for any."""
        self._taken: dict[Port, dict[int, int]] = {}
        """Port → row → holders."""

    def attach(self, nodes: NodeView) -> None:
        return

    def learn(self, number: int, needs: Needs, placed: Iterable[tuple[int, Mapping[int, int]]]) -> None:
        if needs.host_ports:
            self._ports[number] = frozenset(needs.host_ports)

    def forget(self, number: int) -> None:
        self._ports.pop(number, None)

    def add(self, number: int, row: int, count: int) -> None:
        ports = self._ports.get(number)
        if ports is None:
            return
        for port in ports:
            rows = self._taken.setdefault(port, {})
            left = rows.get(row, 0) + count
            if left:
                rows[row] = left
            else:
                del rows[row]
                if not rows:
                    del self._taken[port]

    def constrains(self, number: int) -> bool:
        return number in self._ports

    def verdict(self, number: int, nodes: NodeView) -> BoolArray | None:
        ports = self._ports.get(number)
        return None if ports is None else ~self._blocked(ports, nodes)

    def listens(self, number: int) -> Collection[int]:
        ports = self._ports.get(number)
        if ports is None:
            return ()
        return [other for other, theirs in self._ports.items() if not ports.isdisjoint(theirs)]

    def relabelled(self, placed: Iterable[tuple[int, Mapping[int, int]]]) -> None:
        return

    def findings(self, needs: Needs, nodes: NodeView) -> Sequence[Finding]:
        found = []
        for port in sorted(set(needs.host_ports)):
            blocked = self._blocked((port,), nodes)
            if blocked.any():
                found.append(Finding(Reason.HOST_PORT_TAKEN, blocked, detail=f"{port[1]}/{port[0]}"))
        return found

    def _blocked(self, ports: Iterable[Port], nodes: NodeView) -> BoolArray:
        taken: set[int] = set()
        for port in ports:
            taken.update(self._taken.get(port, ()))
        return np.isin(nodes.rows, list(taken))
