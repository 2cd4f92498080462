"""Measured loads of nodes, for policies that look at them (Volcano's ``usage``).

They come from the cluster's metrics API (``metrics.k8s.io``, as metrics-server provides it), and only
while a policy in force takes them. Where the API is missing or silent the policy goes without.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from windlass.api import resources, views
from windlass.api.errors import StatusError
from windlass.api.quantities import QuantityError, to_units
from windlass.client.client import Client
from windlass.client.errors import Unreachable
from windlass.kits.clock import Clock
from windlass.kits.timestamps import parse_rfc3339
from windlass.observe import logs
from windlass.spi.loads import NodeLoad, TakesLoads

INTERVAL_SECONDS = 30.0
log = logs.get("scheduler")


class LoadFeed:
    """``plugins`` gives the policies in force; ``fed`` is called when some of them have got new figures."""

    def __init__(
        self,
        client: Client,
        nodes: Mapping[str, views.Node],
        plugins: Callable[[], Iterable[object]],
        fed: Callable[[], None],
        *,
        clock: Clock,
    ) -> None:
        self._client = client
        self._nodes = nodes
        self._plugins = plugins
        self._fed = fed
        self._clock = clock
        self._complained = False

    async def run(self) -> None:
        """Ask every half minute, until cancelled."""
        while True:
            takers = [plugin for plugin in self._plugins() if isinstance(plugin, TakesLoads)]
            loads = await self._measure() if takers else {}
            for taker in takers:
                if loads:
                    taker.take_loads(loads)
            if loads:
                self._fed()
            await self._clock.sleep(INTERVAL_SECONDS)

    async def _measure(self) -> dict[str, NodeLoad]:
        try:
            found = await self._client.list(resources.NODE_METRICS)
        except (StatusError, Unreachable) as error:
            if not self._complained:
                log.warning("no measured loads", why=error.message)
            self._complained = True
            return {}
        self._complained = False
        loads = {}
        for item in found.items:
            name = str(item.get("metadata", {}).get("name", ""))
            load = load_of(item, self._nodes[name]) if name in self._nodes else None
            if load is not None:
                loads[name] = load
        return loads


def load_of(metrics: Mapping[str, Any], node: views.Node) -> NodeLoad | None:
    """The load that a ``NodeMetrics`` tells of, in percent of what the node offers; ``None`` if it cannot
    be read."""
    usage = metrics.get("usage")
    if not isinstance(usage, Mapping):
        return None
    shares = []
    for resource in ("cpu", "memory"):
        whole = node.allocatable.get(resource, 0)
        try:
            used = to_units(resource, usage.get(resource, ""))
        except (QuantityError, TypeError):
            return None
        shares.append(100.0 * used / whole if whole > 0 else 0.0)
    try:
        measured = parse_rfc3339(str(metrics.get("timestamp", "")))
    except (ValueError, OverflowError):
        return None
    return NodeLoad(shares[0], shares[1], measured)
