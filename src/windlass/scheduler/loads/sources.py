"""Sources of measured loads other than the cluster's metrics API: Prometheus, Elasticsearch.

The queries are those of Volcano: the mean of the last ten minutes, or of the requested
time. They use node exporter's metrics in Prometheus, with the node's name as label
``instance``, and Metricbeat's documents in Elasticsearch. One query covers all nodes.
Loads are in percent.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Protocol
from urllib.parse import quote, urlencode

import msgspec

from windlass.client.connection import Connection
from windlass.client.http import HttpOptions, HttpTransport
from windlass.client.transport import Request, Transport
from windlass.spi.inputs import MEAN_SECONDS, NodeLoad

TIMEOUT_SECONDS = 10.0
"""Timeout of a request in seconds."""
CPU_QUERY = (
    "avg_over_time(clamp_min(100 - (avg by (instance) "
    '(rate(node_cpu_seconds_total{mode="idle"}[5m])) * 100), 0)[PERIOD:30s])'
)
MEMORY_QUERY = "100*avg_over_time((1-node_memory_MemAvailable_bytes/node_memory_MemTotal_bytes)[PERIOD:30s])"
"""``PERIOD`` stands for the time over which the mean is taken."""
INDEX = "metricbeat-*"
HOST_FIELD = "host.hostname"
CPU_FIELD = "host.cpu.usage"
MEMORY_FIELD = "system.memory.actual.used.pct"
MAX_NODES = 65_000
"""Maximum number of nodes in a query.

Elasticsearch creates at most 65 536 buckets by default.
"""


class NoLoads(Exception):
    """The response has no loads. The message says why."""


class LoadSource(Protocol):
    """Source of loads. ``address``: for messages."""

    address: str

    async def measure(
        self, nodes: Iterable[str], now: float, mean_seconds: float = MEAN_SECONDS
    ) -> dict[str, NodeLoad]:
        """Return the known loads of nodes, averaged over ``mean_seconds``.

        Raises :class:`NoLoads`, and ``WindlassError`` if the source is unreachable.
        """
        ...

    async def close(self) -> None: ...


class _Sample(msgspec.Struct):
    metric: dict[str, str]
    value: tuple[float, str]


class _Vector(msgspec.Struct, rename="camel"):
    result_type: str = ""
    result: list[_Sample] | None = None


class _Response(msgspec.Struct, rename="camel"):
    status: str = ""
    data: _Vector | None = None
    error: str = ""


class Prometheus:
    """Node exporter's metrics, read by Prometheus' HTTP API."""

    def __init__(self, address: str, transport: Transport) -> None:
        self.address = address
        self._transport = transport

    async def measure(
        self, nodes: Iterable[str], now: float, mean_seconds: float = MEAN_SECONDS
    ) -> dict[str, NodeLoad]:
        wanted, period = set(nodes), _period(mean_seconds)
        cpu, memory = await asyncio.gather(
            *(
                self._query(query.replace("PERIOD", period), wanted, now)
                for query in (CPU_QUERY, MEMORY_QUERY)
            )
        )
        return {name: NodeLoad(cpu[name], memory[name], now) for name in sorted(cpu.keys() & memory.keys())}

    async def _query(self, query: str, wanted: set[str], now: float) -> dict[str, float]:
        """Return the values by node.

        Of several instances on a node, the first by name counts.
        """
        form = urlencode({"query": query, "time": f"{now:.3f}"}).encode()
        headers = {"content-type": "application/x-www-form-urlencoded", "accept": "application/json"}
        response = await _request(
            self._transport, Request("POST", "/api/v1/query", "", headers, form), _Response
        )
        if response.status != "success" or response.data is None or response.data.result_type != "vector":
            raise NoLoads(f"{self.address}: {response.error or 'no vector'}")
        values: dict[str, float] = {}
        for sample in sorted(
            response.data.result or (), key=lambda sample: sample.metric.get("instance", "")
        ):
            instance = sample.metric.get("instance", "")
            name = instance if instance in wanted else instance.rpartition(":")[0]
            value = float(sample.value[1])
            if name in wanted and math.isfinite(value):
                values.setdefault(name, value)
        return values

    async def close(self) -> None:
        await self._transport.close()


class _Mean(msgspec.Struct):
    value: float | None = None


class _Bucket(msgspec.Struct):
    key: str
    cpu: _Mean
    mem: _Mean


class _Hosts(msgspec.Struct):
    buckets: list[_Bucket]


class _Aggregations(msgspec.Struct):
    hosts: _Hosts


class _SearchResponse(msgspec.Struct):
    aggregations: _Aggregations | None = None


class Elasticsearch:
    """Metricbeat's documents, read by Elasticsearch's search.

    Their values are fractions of 1.
    """

    def __init__(
        self, address: str, transport: Transport, index: str = INDEX, host_field: str = HOST_FIELD
    ) -> None:
        self.address = address
        self._transport = transport
        self._index = index or INDEX
        self._host_field = host_field or HOST_FIELD

    async def measure(
        self, nodes: Iterable[str], now: float, mean_seconds: float = MEAN_SECONDS
    ) -> dict[str, NodeLoad]:
        wanted = sorted(nodes)[:MAX_NODES]
        if not wanted:
            return {}
        headers = {"content-type": "application/json", "accept": "application/json"}
        body = msgspec.json.encode(self._search(wanted, _period(mean_seconds)))
        path = f"/{quote(self._index, safe='*,')}/_search"
        response = await _request(self._transport, Request("POST", path, "", headers, body), _SearchResponse)
        if response.aggregations is None:
            raise NoLoads(f"{self.address}: no aggregations")
        values = {}
        for bucket in response.aggregations.hosts.buckets:
            cpu, memory = bucket.cpu.value, bucket.mem.value
            if cpu is not None and memory is not None:
                values[bucket.key] = NodeLoad(100.0 * cpu, 100.0 * memory, now)
        return values

    def _search(self, wanted: list[str], period: str) -> dict[str, Any]:
        recent = {"range": {"@timestamp": {"gte": f"now-{period}", "lt": "now"}}}
        means = {"cpu": {"avg": {"field": CPU_FIELD}}, "mem": {"avg": {"field": MEMORY_FIELD}}}
        by_host = {"terms": {"field": self._host_field, "size": len(wanted)}, "aggs": means}
        return {
            "size": 0,
            "query": {"bool": {"must": [recent, {"terms": {self._host_field: wanted}}]}},
            "aggs": {"hosts": by_host},
        }

    async def close(self) -> None:
        await self._transport.close()


def _period(seconds: float) -> str:
    """Return a duration in the format of both sources: ``10m``, ``90s``."""
    whole_seconds = max(1, round(seconds))
    return f"{whole_seconds}s" if whole_seconds % 60 else f"{whole_seconds // 60}m"


def source_of(metrics: Mapping[str, str]) -> LoadSource | None:
    """Return the source that a configuration's ``metrics`` names.

    ``None``: the cluster's metrics API.
    """
    kind, address = metrics.get("type", ""), metrics.get("address", "")
    if not address or kind not in ("prometheus", "elasticsearch"):
        return None
    connection = Connection(
        server=address.rstrip("/"),
        username=metrics.get("elasticsearch.username", ""),
        password=metrics.get("elasticsearch.password", ""),
        insecure=metrics.get("tls.insecureSkipVerify") == "true",
        source="metrics of the scheduler's configuration",
    )
    options = replace(
        HttpOptions(), limit=2, connect_seconds=TIMEOUT_SECONDS, response_seconds=TIMEOUT_SECONDS
    )
    transport = HttpTransport(connection, options=options)
    if kind == "prometheus":
        return Prometheus(address, transport)
    index, host = metrics.get("elasticsearch.index", ""), metrics.get("elasticsearch.hostnameFieldName", "")
    return Elasticsearch(address, transport, index, host)


async def _request(transport: Transport, request: Request, kind: type[Any]) -> Any:
    response = await transport.request(request)
    if response.status != 200:
        raise NoLoads(f"{request.path}: status {response.status}")
    try:
        return msgspec.json.decode(response.body, type=kind)
    except msgspec.MsgspecError as error:
        raise NoLoads(f"{request.path}: invalid response: {error}") from error
