"""Loads from Prometheus and Elasticsearch: queries, responses, a real Prometheus."""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest
from kubeobjects import node
from realkube import free_ports
from scheduler_api import SchedulerApi

from windlass.api import views
from windlass.api.errors import WindlassError
from windlass.client.http import HttpTransport
from windlass.client.transport import Request, Response
from windlass.kits.clock import FakeClock
from windlass.scheduler.loads.load_feed import LoadFeed
from windlass.scheduler.loads.sources import (
    CPU_QUERY,
    MEMORY_QUERY,
    Elasticsearch,
    NoLoads,
    Prometheus,
    source_of,
)
from windlass.spi.configuration import measure_interval
from windlass.spi.inputs import NodeLoad


class Answers:
    """A transport that responds by request."""

    def __init__(self, *answers: tuple[int, Any]) -> None:
        self.answers = list(answers)
        self.asked: list[Request] = []
        self.closed = 0

    async def request(self, request: Request) -> Response:
        self.asked.append(request)
        status, body = self.answers.pop(0)
        return Response(status, {}, body if isinstance(body, bytes) else json.dumps(body).encode())

    async def close(self) -> None:
        self.closed += 1


def vector(**values: str) -> tuple[int, Any]:
    result = [
        {"metric": {"instance": name.replace("__", ":")}, "value": [1.0, value]}
        for name, value in values.items()
    ]
    return 200, {"status": "success", "data": {"resultType": "vector", "result": result}}


async def test_one_prometheus_query_covers_all_nodes() -> None:
    transport = Answers(vector(n1="40.5", n2="7", other="1"), vector(n1="60", n3="5"))
    source = Prometheus("http://p", transport)  # type: ignore[arg-type]
    assert await source.measure(["n1", "n2", "n3"], 1000.0) == {"n1": NodeLoad(40.5, 60.0, 1000.0)}
    assert [(r.method, r.path) for r in transport.asked] == [("POST", "/api/v1/query")] * 2
    forms = [parse_qs(r.body.decode()) for r in transport.asked]
    queries = [CPU_QUERY.replace("PERIOD", "10m"), MEMORY_QUERY.replace("PERIOD", "10m")]
    assert [form["query"] for form in forms] == [[query] for query in queries]
    assert forms[0]["time"] == ["1000.000"]
    assert all("[10m:30s]" in query for query in queries)
    await source.close()
    assert transport.closed == 1


async def test_an_instance_may_have_a_port_and_invalid_numbers_are_ignored() -> None:
    answers = vector(n1__9100="40", n2="NaN", n3="5"), vector(n1="50", n2="1", n3="2")
    source = Prometheus("http://p", Answers(*answers))  # type: ignore[arg-type]
    found = await source.measure(["n1", "n2", "n3"], 5.0)
    assert found == {"n1": NodeLoad(40, 50, 5), "n3": NodeLoad(5, 2, 5)}


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ((503, {}), "status 503"),
        ((200, b"<html>"), "invalid response"),
        ((200, {"status": "error", "error": "too many samples"}), "too many samples"),
        ((200, {"status": "success", "data": {"resultType": "scalar", "result": None}}), "no vector"),
    ],
)
async def test_invalid_prometheus_responses(answer: tuple[int, Any], why: str) -> None:
    source = Prometheus("http://p", Answers(answer, answer))  # type: ignore[arg-type]
    with pytest.raises(NoLoads, match=why):
        await source.measure(["n1"], 1.0)


async def test_elasticsearch_is_queried_for_means_by_host() -> None:
    buckets = [
        {"key": "n1", "doc_count": 3, "cpu": {"value": 0.25}, "mem": {"value": 0.5}},
        {"key": "n2", "doc_count": 1, "cpu": {"value": None}, "mem": {"value": 0.5}},
    ]
    transport = Answers((200, {"took": 1, "aggregations": {"hosts": {"buckets": buckets}}}))
    source = Elasticsearch("http://e", transport, "beats-*", "host.name")  # type: ignore[arg-type]
    assert await source.measure(["n2", "n1"], 9.0) == {"n1": NodeLoad(25.0, 50.0, 9.0)}
    (request,) = transport.asked
    assert (request.method, request.path) == ("POST", "/beats-*/_search")
    body = json.loads(request.body)
    assert body["size"] == 0
    assert body["query"]["bool"]["must"] == [
        {"range": {"@timestamp": {"gte": "now-10m", "lt": "now"}}},
        {"terms": {"host.name": ["n1", "n2"]}},
    ]
    assert body["aggs"]["hosts"]["terms"] == {"field": "host.name", "size": 2}
    assert body["aggs"]["hosts"]["aggs"] == {
        "cpu": {"avg": {"field": "host.cpu.usage"}},
        "mem": {"avg": {"field": "system.memory.actual.used.pct"}},
    }
    assert await source.measure([], 9.0) == {}
    await source.close()


async def test_invalid_elasticsearch_responses() -> None:
    source = Elasticsearch("http://e", Answers((404, {}), (200, {"took": 1})))  # type: ignore[arg-type]
    with pytest.raises(NoLoads, match="status 404"):
        await source.measure(["n1"], 1.0)
    with pytest.raises(NoLoads, match="no aggregations"):
        await source.measure(["n1"], 1.0)


async def test_the_configuration_names_the_source() -> None:
    for metrics in ({}, {"type": "prometheus"}, {"type": "prometheus_adaptor", "address": "http://x"}):
        assert source_of(metrics) is None
    found = source_of({"type": "prometheus", "address": "http://p:9090/sub/"})
    assert isinstance(found, Prometheus)
    assert found.address == "http://p:9090/sub/"
    await found.close()
    secrets = {"elasticsearch.username": "u", "elasticsearch.password": "p", "tls.insecureSkipVerify": "true"}
    found = source_of({"type": "elasticsearch", "address": "https://e", **secrets})
    assert isinstance(found, Elasticsearch)
    assert isinstance(found._transport, HttpTransport)
    await found.close()


@pytest.mark.parametrize(
    ("text", "seconds"),
    [(None, 30.0), ("15s", 15.0), ("1m", 60.0), ("soon", 30.0), ("0s", 30.0), ("-5s", 30.0)],
)
def test_the_configuration_sets_the_interval(text: str | None, seconds: float) -> None:
    assert measure_interval({} if text is None else {"interval": text}) == seconds


# ---------------------------------------------------------------------- the feed


class Taker:
    def __init__(self) -> None:
        self.got: list[Any] = []

    def take_loads(self, loads: Any) -> None:
        self.got.append(loads)


class Source:
    address = "there"

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.closed = False
        self.means: list[float] = []

    async def measure(self, nodes: Any, now: float, mean_seconds: float) -> Any:
        self.means.append(mean_seconds)
        found = self.answers.pop(0)
        if isinstance(found, Exception):
            raise found
        return {name: NodeLoad(found, found, now) for name in nodes}

    async def close(self) -> None:
        self.closed = True


async def test_the_feed_uses_the_configured_source(fake_clock: FakeClock, monkeypatch: Any) -> None:
    first, second = Source(NoLoads("silent"), WindlassError("WL-X-1", "gone"), 40.0), Source(7.0)
    sources = {"a": first, "b": second}
    monkeypatch.setattr(
        "windlass.scheduler.loads.load_feed.source_of", lambda metrics: sources[metrics["address"]]
    )
    taker, fed = Taker(), []
    place = views.decode_node(views.encode(node("n1")))
    feed = LoadFeed(
        SchedulerApi(fake_clock),  # type: ignore[arg-type]
        {"n1": place},
        lambda: [taker],
        lambda: fed.append(1),
        clock=fake_clock,
    )
    metrics = {"address": "a", "interval": "10s"}
    feed.use(metrics)
    feed.use(dict(metrics))
    task = asyncio.create_task(feed.run())
    for _ in range(3):
        await fake_clock.advance(10)
    assert [loads["n1"].cpu_percent for loads in taker.got] == [40.0]
    assert fed == [1]
    feed.use({"address": "b"})
    assert not first.closed
    await fake_clock.advance(10)
    assert first.closed
    assert [loads["n1"].cpu_percent for loads in taker.got] == [40.0, 7.0]
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert second.closed


async def test_each_plugin_gets_means_over_its_own_time(fake_clock: FakeClock, monkeypatch: Any) -> None:
    source = Source(40.0, 7.0)
    monkeypatch.setattr("windlass.scheduler.loads.load_feed.source_of", lambda metrics: source)
    usual, short, fed = Taker(), Taker(), []
    short.mean_seconds = 90.0  # type: ignore[attr-defined]
    feed = LoadFeed(
        SchedulerApi(fake_clock),  # type: ignore[arg-type]
        {"n1": views.decode_node(views.encode(node("n1")))},
        lambda: [usual, short],
        lambda: fed.append(1),
        clock=fake_clock,
    )
    feed.use({"address": "a"})
    task = asyncio.create_task(feed.run())
    await fake_clock.advance(1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert source.means == [600.0, 90.0]
    assert [taker.got[0]["n1"].cpu_percent for taker in (usual, short)] == [40.0, 7.0]
    assert fed == [1]


async def test_both_sources_are_queried_for_means_over_that_time() -> None:
    transport = Answers(vector(n1="40.5"), vector(n1="60"))
    await Prometheus("http://p", transport).measure(["n1"], 1000.0, 300.0)  # type: ignore[arg-type]
    assert all("[5m:30s]" in parse_qs(r.body.decode())["query"][0] for r in transport.asked)
    transport = Answers((200, {"aggregations": {"hosts": {"buckets": []}}}))
    await Elasticsearch("http://e", transport).measure(["n1"], 9.0, 90.0)  # type: ignore[arg-type]
    (request,) = transport.asked
    assert json.loads(request.body)["query"]["bool"]["must"][0]["range"]["@timestamp"]["gte"] == "now-90s"


# ---------------------------------------------------------------------- a real one


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Debian's Prometheus with a quarter of an hour of metrics of two nodes.

    Skipped if it is missing.
    """
    binaries = [shutil.which("prometheus"), shutil.which("promtool")]
    if None in binaries:
        pytest.skip("no prometheus: install Debian's package of that name")
    folder = tmp_path_factory.mktemp("prometheus")
    history(folder / "history", time.time())
    blocks = ["tsdb", "create-blocks-from", "openmetrics", str(folder / "history"), str(folder / "data")]
    subprocess.run([str(binaries[1]), *blocks], check=True, capture_output=True, timeout=60)
    (folder / "prometheus.yml").write_text("global: {}\n")
    (port,) = free_ports(1)
    process = subprocess.Popen(
        [
            str(binaries[0]),
            f"--config.file={folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        for _ in range(1200):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(90)


def history(path: Path, now: float) -> None:
    """Node ``n1`` is idle three quarters of its time and uses 40 % of its memory.

    ``n2`` is never idle.
    """
    moments = [now - 1000 + 15 * step for step in range(67)]
    lines = ["# TYPE node_cpu_seconds counter"]
    for name, share in (("n1", 0.75), ("n2", 0.0)):
        for cpu in ("0", "1"):
            labels = f'{{instance="{name}",cpu="{cpu}",mode="idle"}}'
            lines += [f"node_cpu_seconds_total{labels} {1e4 + share * m:.3f} {m:.3f}" for m in moments]
    for metric, amounts in (("MemAvailable", {"n1": 60, "n2": 10}), ("MemTotal", {"n1": 100, "n2": 100})):
        lines.append(f"# TYPE node_memory_{metric}_bytes gauge")
        for name, amount in amounts.items():
            labels = f'{{instance="{name}"}}'
            lines += [f"node_memory_{metric}_bytes{labels} {amount} {m:.3f}" for m in moments]
    path.write_text("\n".join([*lines, "# EOF", ""]))


async def test_a_real_prometheus_answers(prometheus: str) -> None:
    source = source_of({"type": "prometheus", "address": prometheus})
    assert source is not None
    now = time.time()
    for _ in range(300):
        try:
            found = await source.measure(["n1", "n2", "n3"], now)
        except (NoLoads, WindlassError):
            found = {}
        if found:
            break
        await asyncio.sleep(0.2)
    await source.close()
    assert sorted(found) == ["n1", "n2"]
    assert found["n1"].cpu_percent == pytest.approx(25.0, abs=0.5)
    assert found["n1"].memory_percent == pytest.approx(40.0, abs=0.01)
    assert found["n2"].cpu_percent == pytest.approx(100.0, abs=0.5)
    assert found["n2"].memory_percent == pytest.approx(90.0, abs=0.01)
