"""Measured loads of nodes, for plugins such as Volcano's ``usage`` and ``rescheduling``.

They come from the cluster's metrics API (``metrics.k8s.io``, served by metrics-server),
or from the source that the configuration names
(:mod:`windlass.scheduler.loads.sources`). They are measured only while a plugin in
force takes them. Without an answer, the plugin works without.
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
from windlass.spi.configuration import measure_interval
from windlass.spi.inputs import NodeLoad, TakesLoads, mean_seconds_of

log = logs.get("scheduler")


class LoadFeed:
    """Measures loads, and gives them to the plugins.

    ``plugins()`` returns the plugins in force. ``updated()`` is called when some of
    them have got new loads.
    """

    def __init__(
        self,
        client: Client,
        nodes: Mapping[str, views.NodeObject],
        plugins: Callable[[], Iterable[object]],
        updated: Callable[[], None],
        *,
        clock: Clock,
    ) -> None:
        self._client = client
        self._nodes = nodes
        self._plugins = plugins
        self._updated = updated
        self._clock = clock
        self._warned = False
        self._metrics: Mapping[str, str] = {}
        self._source: LoadSource | None = None
        self._stale: list[LoadSource] = []
        self._interval = measure_interval({})

    def use(self, metrics: Mapping[str, str]) -> None:
        """Use the source and interval of a configuration's ``metrics`` from now on."""
        if metrics == self._metrics:
            return
        self._metrics = metrics
        if self._source is not None:
            self._stale.append(self._source)
        self._source = source_of(metrics)
        self._interval = measure_interval(metrics)
        self._warned = False

    async def run(self) -> None:
        """Measure every half minute, or at the configured interval, until cancelled."""
        try:
            await self._measure_repeatedly()
        finally:
            await self._close_stale()
            if self._source is not None:
                await self._source.close()

    async def _measure_repeatedly(self) -> None:
        while True:
            await self._close_stale()
            by_mean: dict[float, list[TakesLoads]] = {}
            for plugin in self._plugins():
                if isinstance(plugin, TakesLoads):
                    by_mean.setdefault(mean_seconds_of(plugin), []).append(plugin)
            updated = False
            for seconds, takers in by_mean.items():
                loads = await self._measure(seconds)
                updated |= bool(loads)
                for taker in takers if loads else ():
                    taker.take_loads(loads)
            if updated:
                self._updated()
            await self._clock.sleep(self._interval)

    async def _close_stale(self) -> None:
        while self._stale:
            await self._stale.pop().close()

    async def _measure(self, seconds: float) -> dict[str, NodeLoad]:
        """Return the loads, averaged over ``seconds`` if the source can do that."""
        try:
            if self._source is not None:
                loads = await self._source.measure(self._nodes, self._clock.now(), seconds)
            else:
                loads = await self._cluster_loads()
        except (StatusError, WindlassError, NoLoads) as error:
            if not self._warned:
                source = self._source.address if self._source is not None else "metrics.k8s.io"
                log.warning("no measured loads", source=source, why=str(error))
            self._warned = True
            return {}
        self._warned = False
        return loads

    async def _cluster_loads(self) -> dict[str, NodeLoad]:
        listed = await self._client.list(resources.NODE_METRICS)
        loads = {}
        for item in listed.items:
            name = str(item.get("metadata", {}).get("name", ""))
            load = load_of(item, self._nodes[name]) if name in self._nodes else None
            if load is not None:
                loads[name] = load
        return loads


def load_of(metrics: Mapping[str, Any], node: views.NodeObject) -> NodeLoad | None:
    """Return the load in a ``NodeMetrics``, in percent of what is allocatable.

    ``None``: it is invalid.
    """
    usage = metrics.get("usage")
    if not isinstance(usage, Mapping):
        return None
    percentages = []
    for resource in ("cpu", "memory"):
        allocatable = node.allocatable.get(resource, 0)
        try:
            used = to_units(resource, usage.get(resource, ""))
        except (QuantityError, TypeError):
            return None
        percentages.append(100.0 * used / allocatable if allocatable > 0 else 0.0)
    try:
        measured = parse_rfc3339(str(metrics.get("timestamp", "")))
    except (ValueError, OverflowError):
        return None
    return NodeLoad(percentages[0], percentages[1], measured)
