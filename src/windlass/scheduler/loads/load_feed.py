"""Measured loads of nodes, for policies that look at them (Volcano's ``usage`` and ``rescheduling``).

They come from the cluster's metrics API (``metrics.k8s.io``, as metrics-server provides it), or from what the
configuration names (:mod:`windlass.scheduler.loads.sources`), and only while a policy in force takes them.
Where nobody answers the policy goes without.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from windlass.api import resources, views
from windlass.api.errors import StatusError, WindlassError
from windlass.api.quantities import QuantityError, to_units
from windlass.client.client import Client
from windlass.kits.clock import Clock
from windlass.kits.timestamps import parse_rfc3339
from windlass.observe import logs
from windlass.scheduler.loads.sources import LoadSource, NoLoads, source_of
from windlass.spi.configuration import measured_every
from windlass.spi.node_loads import NodeLoad, TakesLoads, mean_seconds_of

log = logs.get("scheduler")


class LoadFeed:
    """``plugins`` gives the policies in force; ``fed`` is called when some of them have got new figures."""

    def __init__(
        self,
        client: Client,
        nodes: Mapping[str, views.NodeObject],
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
        self._metrics: Mapping[str, str] = {}
        self._source: LoadSource | None = None
        self._stale: list[LoadSource] = []
        self._interval = measured_every({})

    def use(self, metrics: Mapping[str, str]) -> None:
        """From the next time on ask whom a configuration's ``metrics`` name, as often as they say."""
        if metrics == self._metrics:
            return
        self._metrics = metrics
        if self._source is not None:
            self._stale.append(self._source)
        self._source = source_of(metrics)
        self._interval = measured_every(metrics)
        self._complained = False

    async def run(self) -> None:
        """Ask every half minute, or as often as the configuration says, until cancelled."""
        try:
            await self._ask_for_ever()
        finally:
            await self._close_stale()
            if self._source is not None:
                await self._source.close()

    async def _ask_for_ever(self) -> None:
        while True:
            await self._close_stale()
            by_mean: dict[float, list[TakesLoads]] = {}
            for plugin in self._plugins():
                if isinstance(plugin, TakesLoads):
                    by_mean.setdefault(mean_seconds_of(plugin), []).append(plugin)
            fed = False
            for seconds, takers in by_mean.items():
                loads = await self._measure(seconds)
                fed |= bool(loads)
                for taker in takers if loads else ():
                    taker.take_loads(loads)
            if fed:
                self._fed()
            await self._clock.sleep(self._interval)

    async def _close_stale(self) -> None:
        while self._stale:
            await self._stale.pop().close()

    async def _measure(self, seconds: float) -> dict[str, NodeLoad]:
        """The loads, averaged over so long where the source can."""
        try:
            if self._source is not None:
                loads = await self._source.measure(self._nodes, self._clock.now(), seconds)
            else:
                loads = await self._of_the_cluster()
        except (StatusError, WindlassError, NoLoads) as error:
            if not self._complained:
                where = self._source.where if self._source is not None else "metrics.k8s.io"
                log.warning("no measured loads", source=where, why=str(error))
            self._complained = True
            return {}
        self._complained = False
        return loads

    async def _of_the_cluster(self) -> dict[str, NodeLoad]:
        found = await self._client.list(resources.NODE_METRICS)
        loads = {}
        for item in found.items:
            name = str(item.get("metadata", {}).get("name", ""))
            load = load_of(item, self._nodes[name]) if name in self._nodes else None
            if load is not None:
                loads[name] = load
        return loads


def load_of(metrics: Mapping[str, Any], node: views.NodeObject) -> NodeLoad | None:
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
