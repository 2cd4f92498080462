"""The extender client against a real server on the loopback.

requests, responses, timeouts.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
from kubeobjects import group, node, pod, queue
from threaded_server import Caller, serving

from windlass.api import views
from windlass.engine.decision import Bind
from windlass.kits.clock import FakeClock, SystemClock
from windlass.model.cluster.cluster_model import ClusterModel
from windlass.plugins.volcano import extender as volcano_extender
from windlass.plugins.volcano.extender_votes import ExtenderContext
from windlass.scheduler.extender import client
from windlass.scheduler.extender.client import ExtenderClients, ExtenderConnection, HttpExtender, transport_to
from windlass.scheduler.extender.protocol import ExtenderEncoder
from windlass.spi.extender import (
    ExtenderCall,
    ExtenderEndpoints,
    ExtenderReply,
    ExtenderRequest,
    ExtenderUnavailable,
)

GPU = "nvidia.com/gpu"


def world() -> ClusterModel:
    """One node with a running pod of gang ``low``, and gang ``high`` of two pending
    pods."""
    model = ClusterModel({"volcano"})
    model.objects.upsert_node(views.decode_node(views.encode(node("n1", gpus=2, labels={"zone": "a"}))))
    model.objects.upsert_queue(views.decode_queue(views.encode(queue("research", weight=3, parent="root"))))
    for name, members, place in (("low", 1, "n1"), ("high", 2, "")):
        model.objects.upsert_group(
            views.decode_pod_group(views.encode(group(name, members, queue="research")))
        )
        for index in range(members):
            body = pod(f"{name}-{index}", scheduler="volcano", group=name, node=place, labels={"app": name})
            model.objects.upsert_pod(views.decode_pod(views.encode(body)))
    model.take()
    return model


class Server:
    """Answers every POST by its verb, and records the requests."""

    def __init__(self, **answers: Any) -> None:
        self.answers = answers
        self.asked: list[tuple[str, Any]] = []
        self.go_on = threading.Event()
        """Answers wait for it."""
        self.go_on.set()

    def __call__(self, caller: Caller) -> None:
        while True:
            head, body = caller.request()
            method, path, _ = head.split(" ", 2)
            assert (method, "content-type: application/json" in head.lower()) == ("POST", True)
            verb = path.removeprefix("/at/")
            self.asked.append((verb, json.loads(body)))
            assert self.go_on.wait(30)
            answer = self.answers.get(verb, {})
            if isinstance(answer, int):
                caller.answer({}, status=f"{answer} No")
            else:
                caller.answer(answer)

    @property
    def verbs(self) -> list[str]:
        return [verb for verb, _ in self.asked]


@contextmanager
def open_round(
    server: Callable[[Caller], None], *, clock: Any = None, **arguments: Any
) -> Iterator[HttpExtender]:
    """An open round.

    Verbs are named like their calls, and timeouts suit a busy machine.
    """
    with serving(server) as url:
        verbs = {f"extender.{call}Verb": str(call) for call in ExtenderCall}
        for call in (ExtenderCall.OPEN, ExtenderCall.CLOSE):
            if not arguments.pop("session", False):
                del verbs[f"extender.{call}Verb"]
        told = {f"extender.{name}": value for name, value in {"httpTimeout": "60s", **arguments}.items()}
        endpoints = volcano_extender.endpoints_of({"extender.urlPrefix": f"{url}/at/", **verbs, **told})
        connection = ExtenderConnection(partial(transport_to, endpoints, concurrency=1))
        found = HttpExtender(endpoints, connection, ExtenderEncoder(world()), clock=clock or SystemClock())
        found.open()
        try:
            yield found
            found.close()
        finally:
            connection.close()


# ---------------------------------------------------------------------- what is sent, and how answers are read


@pytest.mark.parametrize("call", [ExtenderCall.PREEMPTABLE, ExtenderCall.RECLAIMABLE])
def test_preemptor_and_victims_are_sent_and_uids_of_victims_are_read(call: ExtenderCall) -> None:
    server = Server(**{call: {"status": 1, "victims": [{"UID": "uid-default-low-0", "Name": "low-0"}]}})
    with open_round(server) as extender:
        found = extender.ask(ExtenderRequest(call, task="default/high-0", others=("default/low-0",)))
    assert found == ExtenderReply(1, named=frozenset({"uid-default-low-0"}))
    ((verb, body),) = server.asked
    assert verb == call
    assert set(body) == {"evictor", "evictees"}
    (evictee,) = body["evictees"]
    told = {name: body["evictor"][name] for name in ("UID", "Job", "Name", "Namespace", "NodeName", "Status")}
    assert told == {
        "UID": "uid-default-high-0",
        "Job": "default/high",
        "Name": "high-0",
        "Namespace": "default",
        "NodeName": "",
        "Status": 1,
    }
    assert body["evictor"]["Resreq"] == {
        "MilliCPU": 0,
        "Memory": 0,
        "ScalarResources": {GPU: 1000},
        "MaxTaskNum": 0,
    }
    assert (evictee["Name"], evictee["NodeName"], evictee["Status"]) == ("low-0", "n1", 32)
    assert evictee["Pod"]["metadata"]["labels"] == {"app": "low"}


def test_a_group_is_sent_with_its_pods_as_decided() -> None:
    server = Server(jobReady={"status": True}, jobEnqueueable={"status": -1}, jobEnqueued={})
    with open_round(server) as extender:
        placements = (("default/high-0", "n1"),)
        assert extender.ask(
            ExtenderRequest(ExtenderCall.READY, group="default/high", placements=placements)
        ) == ExtenderReply(yes=True)
        assert extender.ask(ExtenderRequest(ExtenderCall.ENQUEUEABLE, group="default/high")) == ExtenderReply(
            -1
        )
        assert extender.ask(ExtenderRequest(ExtenderCall.ENQUEUED, group="default/high")) == ExtenderReply()
    job = server.asked[0][1]["job"]
    assert {name: job[name] for name in ("UID", "Name", "Namespace", "Queue", "MinAvailable")} == {
        "UID": "default/high",
        "Name": "high",
        "Namespace": "default",
        "Queue": "research",
        "MinAvailable": 2,
    }
    assert {task["Name"]: (task["Status"], task["NodeName"]) for task in job["Tasks"].values()} == {
        "high-0": (2, "n1"),
        "high-1": (1, ""),
    }
    assert {status: len(tasks) for status, tasks in job["TaskStatusIndex"].items()} == {"2": 1, "1": 1}
    assert job["Allocated"]["ScalarResources"][GPU] == 1000
    assert job["TotalRequest"]["ScalarResources"][GPU] == 2000
    assert job["PodGroup"]["spec"]["minMember"] == 2
    assert job["CreationTimestamp"] == "2026-01-01T12:00:00Z"
    assert server.asked[1][1]["job"]["TaskStatusIndex"].keys() == {"1"}


def test_a_queue_is_sent_with_its_limits() -> None:
    server = Server(queueOverused={"overused": True})
    with open_round(server) as extender:
        assert extender.ask(ExtenderRequest(ExtenderCall.OVERUSED, queue="research")) == ExtenderReply(
            yes=True
        )
        assert extender.ask(ExtenderRequest(ExtenderCall.OVERUSED, queue="unheard-of")) == ExtenderReply(
            yes=True
        )
    told = server.asked[0][1]["queue"]
    assert (told["Name"], told["Weight"], told["Queue"]["spec"]["parent"]) == ("research", 3, "root")
    assert server.asked[1][1] == {"queue": {"UID": "unheard-of", "Name": "unheard-of"}}


def test_placed_and_removed_tasks_are_sent_with_their_nodes() -> None:
    server = Server(allocateFunc={"errorMessage": "no device"})
    with open_round(server) as extender:
        placements = (("default/high-0", "n1"),)
        request = ExtenderRequest(ExtenderCall.ALLOCATE, task="default/high-0", placements=placements)
        assert extender.ask(request) == ExtenderReply(rejection="no device")
        for key in ("default/high-0", "default/low-0"):
            extender.ask(ExtenderRequest(ExtenderCall.DEALLOCATE, task=key, placements=((key, "n1"),)))
        extender.ask(ExtenderRequest(ExtenderCall.DEALLOCATE, task="default/unheard-of"))
    tasks = [body["task"] for _, body in server.asked]
    assert [(task["Name"], task["Status"], task.get("NodeName")) for task in tasks] == [
        ("high-0", 2, "n1"),
        ("high-0", 1, "n1"),
        ("low-0", 64, "n1"),
        ("unheard-of", 512, ""),
    ]
    assert tasks[0]["Pod"]["spec"]["nodeName"] == "n1"


def test_a_session_is_sent_with_the_whole_state() -> None:
    with serving(server := Server()) as url:
        verbs = {ExtenderCall.OPEN: "begin", ExtenderCall.CLOSE: "end", ExtenderCall.OVERUSED: "over"}
        endpoints = ExtenderEndpoints(f"{url}/at", verbs=verbs)
        model = world()
        model.binds.assume(Bind("default/high-0", "uid-default-high-0", "default/high", "n1"))
        context = ExtenderContext(endpoints)
        extender_clients = ExtenderClients(model, clock=SystemClock())
        extender_clients.serve([context, object()])
        context.opened(0.0)
        context.ask(ExtenderRequest(ExtenderCall.OVERUSED, queue="research"))
        context.closed()
        extender_clients.close()
    assert server.verbs == ["begin", "over", "end"]
    told = server.asked[0][1]
    assert set(told) == {"Jobs", "Nodes", "Queues", "NamespaceInfo", "RevocableNodes", "NodeList"}
    assert set(told["Jobs"]) == {"default/low", "default/high"}
    there = told["Nodes"]["n1"]
    assert {task["Name"]: task["Status"] for task in there["Tasks"].values()} == {"low-0": 32, "high-0": 8}
    assert there["Used"]["ScalarResources"][GPU] == 2000
    assert there["Idle"]["ScalarResources"][GPU] == 0
    assert there["Allocatable"]["MilliCPU"] == 64_000
    assert there["Node"]["metadata"]["labels"]["zone"] == "a"
    assert there["State"] == {"Phase": 1, "Reason": ""}
    assert told["NodeList"] == ["n1"]
    assert server.asked[2][1] == {}


# ---------------------------------------------------------------------- what goes wrong


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (500, "status 500"),
        (b"[1", "invalid response"),
        (b"", "invalid response"),
        ([], "invalid response"),
        ({"status": "1"}, "invalid response"),
        ({"status": True}, "status is True"),
        ({"status": 1, "victims": [{"uid": 7}]}, "invalid response"),
    ],
)
def test_an_invalid_response_does_not_end_the_round(answer: Any, why: str) -> None:
    server = Server(preemptable=answer, jobReady={"status": 1}, queueOverused={"Overused": True, "x": None})
    with open_round(server) as extender:
        found = extender.ask(ExtenderRequest(ExtenderCall.PREEMPTABLE, task="default/high-0"))
        assert isinstance(found, ExtenderUnavailable)
        assert why in found.why
        assert not found.later
        said = extender.ask(ExtenderRequest(ExtenderCall.READY, group="default/high"))
        assert isinstance(said, ExtenderUnavailable)
        assert "status is 1" in said.why
        assert extender.ask(ExtenderRequest(ExtenderCall.OVERUSED, queue="research")) == ExtenderReply(
            yes=True
        )


@pytest.mark.parametrize("chunked", [True, False])
def test_a_too_long_response_is_rejected(monkeypatch: pytest.MonkeyPatch, chunked: bool) -> None:
    def answers(caller: Caller) -> None:
        while True:
            caller.request()
            body = json.dumps({"overused": True, "padding": "x" * 50}).encode()
            caller.chunks(body[:20], body[20:]) if chunked else caller.answer(body)

    with open_round(answers) as extender:
        assert extender.ask(ExtenderRequest(ExtenderCall.OVERUSED, queue="research")) == ExtenderReply(
            yes=True
        )
        monkeypatch.setattr(client, "MAX_RESPONSE_BYTES", 50)
        found = extender.ask(ExtenderRequest(ExtenderCall.OVERUSED, queue="research"))
    assert found == ExtenderUnavailable("queueOverused: the answer is longer than 50 bytes")


def test_after_a_timeout_nothing_more_is_sent_in_the_round() -> None:
    server = Server()
    server.go_on.clear()
    with open_round(server, httpTimeout="3s") as extender:
        first = extender.ask(ExtenderRequest(ExtenderCall.OVERUSED, queue="research"))
        assert first == ExtenderUnavailable("queueOverused: no answer within 3 s")
        assert extender.ask(ExtenderRequest(ExtenderCall.READY, group="default/high")) == first
        server.go_on.set()
        extender.open()
        assert extender.ask(ExtenderRequest(ExtenderCall.OVERUSED, queue="research")) == ExtenderReply()
    assert server.verbs == ["queueOverused", "queueOverused"]


def test_a_slow_response_times_out() -> None:
    def trickles(caller: Caller) -> None:
        caller.request()
        for _ in range(500):  # until the client has gone
            caller.chunks(b" ", end=False) if _ == 0 else caller.sock.sendall(b"1\r\n \r\n")
            time.sleep(0.02)

    with open_round(trickles, httpTimeout="100ms") as extender:
        found = extender.ask(ExtenderRequest(ExtenderCall.OVERUSED, queue="research"))
    assert found == ExtenderUnavailable("queueOverused: no answer within 0.1 s")


def test_an_unreachable_extender_is_unavailable() -> None:
    with serving(Server()) as url:
        pass
    endpoints = ExtenderEndpoints(url, verbs={ExtenderCall.OVERUSED: "x"})
    connection = ExtenderConnection(partial(transport_to, endpoints, concurrency=1))
    extender = HttpExtender(endpoints, connection, ExtenderEncoder(world()), clock=SystemClock())
    extender.open()
    found = extender.ask(ExtenderRequest(ExtenderCall.OVERUSED, queue="research"))
    connection.close()
    assert isinstance(found, ExtenderUnavailable)
    assert found.why.startswith("queueOverused: ")


def test_a_round_has_a_timeout(fake_clock: FakeClock) -> None:
    class Slow:
        def __init__(self) -> None:
            self.allowed: list[float] = []

        def request(self, request: Any, seconds: float) -> Any:
            self.allowed.append(seconds)
            fake_clock.jump(1.5)
            return 200, b"{}"

    slow: Any = Slow()
    endpoints = ExtenderEndpoints("http://x", timeout_seconds=2.0, verbs={ExtenderCall.OVERUSED: "x"})
    seen: list[tuple[str, str, float]] = []
    extender = HttpExtender(
        endpoints, slow, ExtenderEncoder(world()), clock=fake_clock, observe=lambda *told: seen.append(told)
    )
    extender.open()
    answers = [extender.ask(ExtenderRequest(ExtenderCall.OVERUSED, queue=name)) for name in "abcd"]
    assert slow.allowed == [2.0, 2.0, 1.0]
    assert [isinstance(answer, ExtenderUnavailable) and answer.later for answer in answers] == [False] * 3 + [
        True
    ]
    assert seen == [("queueOverused", "answered", 1.5)] * 3
    extender.open()
    assert extender.ask(ExtenderRequest(ExtenderCall.OVERUSED, queue="a")) == ExtenderReply()


@pytest.mark.parametrize("ignorable", [True, False])
def test_a_failed_session_makes_the_extender_unavailable(ignorable: bool) -> None:
    with serving(server := Server(begin=500)) as url:
        endpoints = ExtenderEndpoints(
            f"{url}/at",
            verbs={ExtenderCall.OPEN: "begin", ExtenderCall.OVERUSED: "over"},
            ignorable=ignorable,
        )
        connection = ExtenderConnection(partial(transport_to, endpoints, concurrency=1))
        extender = HttpExtender(endpoints, connection, ExtenderEncoder(world()), clock=SystemClock())
        extender.open()
        found = extender.ask(ExtenderRequest(ExtenderCall.OVERUSED, queue="research"))
        connection.close()
    assert isinstance(found, ExtenderUnavailable) is not ignorable
    assert server.verbs == (["begin", "over"] if ignorable else ["begin"])


def test_an_unused_extender_has_no_thread() -> None:
    extender_clients = ExtenderClients(world(), clock=SystemClock())
    extender_clients.serve([object()])
    assert extender_clients._connections == []
    context = ExtenderContext(ExtenderEndpoints("http://x", verbs={ExtenderCall.READY: "x"}))
    extender_clients.serve([context])
    (connection,) = extender_clients._connections
    assert connection._thread is None
    extender_clients.close()
