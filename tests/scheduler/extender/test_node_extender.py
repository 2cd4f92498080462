"""Node extender.

one request per kind of pod and node, with verdicts that hold until they change.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from cluster_dsl import GPU, Cluster, needs
from kubeobjects import node

from windlass.api import views
from windlass.client import errors as client_errors
from windlass.client.transport import Request, Response
from windlass.kits.clock import FakeClock
from windlass.plugins.defaults import default_plugins
from windlass.plugins.volcano import extender
from windlass.scheduler.extender import protocol
from windlass.scheduler.extender.node_extender import HttpNodeExtender, NodeExtenders
from windlass.spi.extender import ExtenderCall, ExtenderEndpoints, NodeVerdict, TakesNodeExtender
from windlass.spi.objects import Dialect, Needs

WANTS = needs("gpu=1 cpu=2 fpga=3", dialect=Dialect.VOLCANO, node_selector={"zone": "a"}).node_part()


def views_of(*names: str) -> dict[str, views.NodeObject]:
    return {name: views.decode_node(views.encode(node(name))) for name in names}


class Server:
    """Rejects the configured nodes, and gives scores."""

    def __init__(self) -> None:
        self.refused: dict[str, str] = {}
        self.points: dict[str, float] = {}
        self.broken = ""
        self.asked: list[tuple[str, Any]] = []
        self.closed = False

    async def request(self, request: Request) -> Response:
        body = json.loads(request.body)
        self.asked.append((request.path, body))
        if self.broken == "unreachable":
            raise client_errors.Unreachable("no server there", "http://judge")
        if self.broken == "garbled":
            return Response(200, body=b"[1")
        if self.broken:
            return Response(int(self.broken))
        if request.path == "/predicate":
            return Response(
                200, body=json.dumps({"status": self.refused.get(body["node"]["Name"], "")}).encode()
            )
        return Response(200, body=json.dumps({"nodeScore": self.points}).encode())

    async def close(self) -> None:
        self.closed = True


@asynccontextmanager
async def judging(
    clock: FakeClock, server: Server, **endpoints: Any
) -> AsyncIterator[tuple[HttpNodeExtender, list[int]]]:
    news: list[int] = []
    settings = ExtenderEndpoints(
        "http://judge", **{"predicate": "predicate", "prioritize": "prioritize", **endpoints}
    )
    extender = HttpNodeExtender(settings, server, views_of("n1", "n2"), lambda: news.append(1), clock=clock)
    task = asyncio.create_task(extender.run())
    await clock.advance(0)
    yield extender, news
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert server.closed


async def settle(clock: FakeClock, seconds: float = 0.0) -> None:
    await clock.advance(seconds)
    for _ in range(20):
        await asyncio.sleep(0)


async def test_unknown_verdicts_are_requested_and_then_hold(fake_clock: FakeClock) -> None:
    server = Server()
    server.refused, server.points = {"n2": "too hot"}, {"n1": 70.0}
    async with judging(fake_clock, server) as (extender, news):
        assert extender.verdicts(WANTS, ["n1", "n2"]) == {}
        assert not extender.has_news()
        await settle(fake_clock)
        assert extender.verdicts(WANTS, ["n1", "n2"]) == {
            "n1": NodeVerdict("", 70.0),
            "n2": NodeVerdict("too hot"),
        }
        assert (extender.has_news(), extender.has_news(), news) == (True, False, [1])
        assert [path for path, _ in server.asked] == ["/predicate", "/predicate", "/prioritize"]
        assert server.asked[0][1]["task"] == protocol.kind_of_task(WANTS)
        server.refused = {}
        await settle(fake_clock, 61)
        assert extender.verdicts(WANTS, ["n2"])["n2"] == NodeVerdict()
        assert extender.has_news()
        await settle(fake_clock, 61)
        assert not extender.has_news()  # the same again is no news


async def test_responses_are_decoded_like_go_does(
    fake_clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Field names in any case, and nulls left out.

    Names of nodes are case-sensitive.
    """
    bodies = {
        "n1": b'{"Status": "too hot", "CODE": 3}',
        "n2": b'{"status": null, "code": null}',
    }

    async def request(self: Server, request: Request) -> Response:
        if request.path == "/prioritize":
            return Response(200, body=b'{"NodeScore": {"n2": 40, "N1": 9}, "ErrorMessage": null}')
        return Response(200, body=bodies[json.loads(request.body)["node"]["Name"]])

    monkeypatch.setattr(Server, "request", request)
    async with judging(fake_clock, Server()) as (extender, _):
        extender.verdicts(WANTS, ["n1", "n2"])
        await settle(fake_clock)
        assert extender.verdicts(WANTS, ["n1", "n2"]) == {
            "n1": NodeVerdict("too hot"),
            "n2": NodeVerdict("", 40.0),
        }


async def test_unused_verdicts_are_not_renewed(fake_clock: FakeClock) -> None:
    server = Server()
    async with judging(fake_clock, server) as (extender, _):
        extender.verdicts(WANTS, ["n1"])
        await settle(fake_clock)
        for _ in range(12):
            await settle(fake_clock, 61)
        before = len(server.asked)
        await settle(fake_clock, 61)
        assert len(server.asked) == before


@pytest.mark.parametrize("broken", ["unreachable", "garbled", "500"])
@pytest.mark.parametrize("ignorable", [True, False])
async def test_a_failing_extender_rejects_unless_it_is_ignorable(
    fake_clock: FakeClock, broken: str, ignorable: bool
) -> None:
    server = Server()
    server.broken = broken
    async with judging(fake_clock, server, ignorable=ignorable) as (extender, _):
        extender.verdicts(WANTS, ["n1"])
        await settle(fake_clock)
        refusal = extender.verdicts(WANTS, ["n1"])["n1"].rejection
        assert refusal.startswith("it failed: predicate") is not ignorable
        assert bool(refusal) is not ignorable


def test_a_task_has_volcanos_field_names() -> None:
    asked = {
        "MilliCPU": 2000,
        "Memory": 0,
        "ScalarResources": {GPU: 1000, "example.com/fpga": 3000},
        "MaxTaskNum": 0,
    }
    assert protocol.kind_of_task(WANTS) == {
        "Resreq": asked,
        "InitResreq": asked,
        "Pod": {"spec": {"nodeSelector": {"zone": "a"}}},
    }


@pytest.mark.parametrize("ignorable", [True, False])
@pytest.mark.parametrize("broken", ["", "500"])
async def test_a_round_of_requests_is_a_session(fake_clock: FakeClock, broken: str, ignorable: bool) -> None:
    server = Server()
    server.broken = broken
    verbs = {ExtenderCall.OPEN: "begin", ExtenderCall.CLOSE: "end"}
    async with judging(fake_clock, server, verbs=verbs, ignorable=ignorable) as (extender, _):
        extender._session = lambda: {"Nodes": {}}
        extender.verdicts(WANTS, ["n1"])
        await settle(fake_clock)
        refusal = extender.verdicts(WANTS, ["n1"])["n1"].rejection
    paths = [path for path, _ in server.asked]
    assert (paths[0], paths[-1], server.asked[0][1]) == ("/begin", "/end", {"Nodes": {}})
    assert ("/predicate" in paths) is (not broken or ignorable)
    assert bool(refusal) is (bool(broken) and not ignorable)


class Known:
    def __init__(self) -> None:
        self.said: dict[str, NodeVerdict] = {}
        self.news = False

    def verdicts(self, needs: Needs, nodes: Any) -> dict[str, NodeVerdict]:
        assert needs == needs.node_part()
        return self.said

    def has_news(self) -> bool:
        news, self.news = self.news, False
        return news


def test_nodes_are_rejected_until_their_verdict_is_known() -> None:
    arguments = {
        "extender.urlPrefix": "http://judge/",
        "extender.predicateVerb": "predicate",
        "extender.prioritizeVerb": "prioritize",
        "extender.httpTimeout": "100ms",
        "extender.ignorable": "true",
    }
    (plugin,) = extender.build(arguments)
    assert plugin.endpoints == ExtenderEndpoints("http://judge", "predicate", "prioritize", 0.1, True)
    assert isinstance(plugin, TakesNodeExtender)
    verdicts = Known()
    plugin.take_node_extender(verdicts)
    c = Cluster(plugins=[*default_plugins(own_for_volcano=False), plugin]).queues("default")
    c.nodes("n1 gpu=1", "n2 gpu=1", "n3 gpu=1")
    c.gang("g", 1, needs("gpu=1", dialect=Dialect.VOLCANO)).gang("own", 1, needs("gpu=1"))
    assert {bind.task: bind.node for bind in c.cycle().binds} == {"ns/own-0": "n1"}
    assert "it has not answered yet" in str(c.explain("g").blockers)
    c.remove("own")
    verdicts.said = {"n1": NodeVerdict("no"), "n2": NodeVerdict("", 10.0), "n3": NodeVerdict("", 1000.0)}
    verdicts.news = True
    c.cycle()
    assert c.where("g") == {"n3": 1}
    c.gang("h", 2, needs("gpu=1", dialect=Dialect.VOLCANO), min=1)
    c.cycle()
    assert c.where("h") == {"n2": 1}
    blockers = {blocker.detail: blocker.nodes for blocker in c.explain("h").blockers}
    assert blockers["no"] == 1


def test_without_an_address_or_a_verb_there_is_no_extender() -> None:
    assert extender.build({"extender.predicateVerb": "x"}) == []
    assert extender.build({"extender.urlPrefix": "http://x"}) == []


async def test_plugins_in_force_get_an_extender_and_former_ones_end(fake_clock: FakeClock) -> None:
    (plugin,) = extender.build({"extender.urlPrefix": "http://127.0.0.1:9", "extender.predicateVerb": "p"})
    node_extenders = NodeExtenders(views_of("n1"), lambda: None, clock=fake_clock)
    started: list[asyncio.Task[None]] = []

    def start(work: Any, name: str) -> asyncio.Task[None]:
        started.append(asyncio.create_task(work))
        return started[-1]

    node_extenders.serve([plugin, object()], start)
    await settle(fake_clock)
    assert len(started) == 1
    node_extenders.serve([], start)
    await settle(fake_clock)
    assert started[0].cancelled()
