from __future__ import annotations

import asyncio
import random
from typing import Any

import msgspec
import pytest
from fake_transport import Answer, FakeTransport, ok

from windlass.api.errors import already_exists, failure, not_found
from windlass.api.resources import EVENTS
from windlass.client.client import Client
from windlass.client.errors import disconnected
from windlass.client.event_correlator import Correlated, EventCorrelator, ObjectRef, shorten
from windlass.client.recorder import QUEUE_LIMIT, EventRecorder
from windlass.client.retries import NEVER
from windlass.client.transport import Request
from windlass.kits.clock import FakeClock

REF = ObjectRef("v1", "Pod", "ns", "p", "uid-1")


def observe(
    correlator: EventCorrelator, message: str = "m", reason: str = "R", ref: ObjectRef = REF
) -> Correlated | None:
    return correlator.observe(ref, "Normal", reason, message)


def must(correlated: Correlated | None) -> Correlated:
    assert correlated is not None
    return correlated


class TestCorrelator:
    def test_the_event_object(self, fake_clock: FakeClock) -> None:
        event = must(observe(EventCorrelator("windlass-scheduler", fake_clock, "box"))).event
        name = event["metadata"].pop("name")
        assert name.startswith("p.")
        assert int(name[2:], 16) > 10**18
        assert event == {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"namespace": "ns"},
            "involvedObject": {
                "apiVersion": "v1",
                "kind": "Pod",
                "namespace": "ns",
                "name": "p",
                "uid": "uid-1",
            },
            "reason": "R",
            "message": "m",
            "type": "Normal",
            "source": {"component": "windlass-scheduler", "host": "box"},
            "reportingComponent": "windlass-scheduler",
            "reportingInstance": "box",
            "count": 1,
            "firstTimestamp": "2026-01-01T12:00:00Z",
            "lastTimestamp": "2026-01-01T12:00:00Z",
        }

    def test_cluster_wide_objects_have_their_events_in_default(self, fake_clock: FakeClock) -> None:
        ref = ObjectRef("v1", "Node", "", "n1")
        event = must(observe(EventCorrelator("c", fake_clock), ref=ref)).event
        assert event["metadata"]["namespace"] == "default"
        assert "namespace" not in event["involvedObject"]

    def test_a_repeat_counts_up(self, fake_clock: FakeClock) -> None:
        correlator = EventCorrelator("c", fake_clock)
        first = must(observe(correlator))
        fake_clock.jump(90)
        second = must(observe(correlator))
        assert (first.repeat, second.repeat) == (False, True)
        assert second.event["metadata"]["name"] == first.event["metadata"]["name"]
        assert second.event["count"] == 2
        assert second.event["firstTimestamp"] == "2026-01-01T12:00:00Z"
        assert second.event["lastTimestamp"] == "2026-01-01T12:01:30Z"

    def test_what_makes_another_event(self, fake_clock: FakeClock) -> None:
        correlator = EventCorrelator("c", fake_clock)
        other = ObjectRef("v1", "Pod", "ns", "p", "uid-2")
        seen = [
            must(observe(correlator)),
            must(observe(correlator, message="n")),
            must(observe(correlator, reason="S")),
            must(observe(correlator, ref=other)),
            must(correlator.observe(REF, "Warning", "R", "m")),
        ]
        assert not any(event.repeat for event in seen)
        assert len({event.event["metadata"]["name"] for event in seen}) == 5

    def test_the_tenth_similar_message_starts_a_combined_event(self, fake_clock: FakeClock) -> None:
        correlator = EventCorrelator("c", fake_clock)
        seen = [must(observe(correlator, f"message {index}")) for index in range(12)]
        texts = [event.event["message"] for event in seen]
        assert texts[8] == "message 8"
        assert texts[9] == "(combined from similar events): message 9"
        assert [event.repeat for event in seen[9:]] == [False, True, True]
        assert seen[11].event["count"] == 3
        assert seen[11].event["message"] == "(combined from similar events): message 11"

    def test_similar_events_are_forgotten_after_ten_minutes(self, fake_clock: FakeClock) -> None:
        correlator = EventCorrelator("c", fake_clock)
        for index in range(9):
            observe(correlator, f"message {index}")
        fake_clock.jump(601)
        assert must(observe(correlator, "message 10")).event["message"] == "message 10"

    def test_the_spam_filter(self, fake_clock: FakeClock) -> None:
        correlator = EventCorrelator("c", fake_clock)
        passed = [observe(correlator) is not None for _ in range(40)]
        assert passed == [True] * 25 + [False] * 15
        other = ObjectRef("v1", "Pod", "ns", "other")
        assert observe(correlator, ref=other) is not None
        fake_clock.jump(299)
        assert observe(correlator) is None
        fake_clock.jump(2)
        refilled = must(observe(correlator))
        assert refilled.event["count"] == 42  # what was not written was counted

    def test_a_burst_never_exceeds_its_limit_after_a_long_rest(self, fake_clock: FakeClock) -> None:
        correlator = EventCorrelator("c", fake_clock)
        fake_clock.jump(10**6)
        assert sum(observe(correlator) is not None for _ in range(100)) == 25

    def test_long_messages_are_cut_at_a_character(self) -> None:
        text = shorten("ü" * 600)
        assert len(text.encode()) <= 1024
        assert text.endswith("ü...")

    def test_a_reference_from_an_object(self) -> None:
        obj = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "ns", "uid": "u"}}
        assert ObjectRef.of(obj) == ObjectRef("v1", "Pod", "ns", "p", "u")


class Server:
    """Keeps events; refuses as told."""

    def __init__(self) -> None:
        self.events: dict[str, dict[str, Any]] = {}
        self.troubles: list[Exception] = []
        self.fails_at = ""
        """An object whose events it answers with 500."""
        self.hold: asyncio.Event | None = None

    async def handler(self, request: Request) -> Answer:
        if self.hold is not None:
            await self.hold.wait()
        if self.troubles:
            return self.troubles.pop(0)
        body = msgspec.json.decode(request.body)
        if self.fails_at and body["involvedObject"]["name"] == self.fails_at:
            return failure(500, "InternalError", "a webhook does not answer")
        if request.method == "POST":
            self.events[body["metadata"]["name"]] = body
            return ok(body, 201)
        name = request.path.rpartition("/")[2]
        if name not in self.events:
            return not_found(EVENTS, name)
        self.events[name].update(body)
        return ok(self.events[name])


class Rig:
    def __init__(self) -> None:
        self.server = Server()
        self.clock = FakeClock()
        self.transport = FakeTransport(self.server.handler)
        client = Client(self.transport, clock=self.clock, rng=random.Random(1), retries=NEVER)
        self.recorder = EventRecorder(client, "c", self.clock, random.Random(1))

    def methods(self) -> list[str]:
        return [request.method for request in self.transport.requests]

    async def __aenter__(self) -> Rig:
        self._task = asyncio.create_task(self.recorder.run())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def drain(self, seconds: float = 0) -> None:
        waiting = asyncio.create_task(self.recorder.drain())
        while not waiting.done():
            await asyncio.sleep(0)
            if seconds:
                await self.clock.advance(seconds)
        await waiting


async def test_written_once_and_counted_up() -> None:
    async with Rig() as rig:
        rig.recorder.event(REF, "Normal", "R", "m")
        await rig.drain()
        rig.recorder.event(REF, "Normal", "R", "m")
        await rig.drain()
        assert rig.methods() == ["POST", "PATCH"]
        (event,) = rig.server.events.values()
        assert event["count"] == 2


async def test_repeats_in_the_queue_are_one_request() -> None:
    async with Rig() as rig:
        for _ in range(10):
            rig.recorder.event(REF, "Normal", "R", "m")
        await rig.drain()
        assert rig.methods() == ["POST"]
        (event,) = rig.server.events.values()
        assert event["count"] == 10


async def test_a_repeat_of_an_event_that_expired_makes_it_anew() -> None:
    async with Rig() as rig:
        rig.recorder.event(REF, "Normal", "R", "m")
        await rig.drain()
        rig.server.events.clear()
        rig.recorder.event(REF, "Normal", "R", "m")
        await rig.drain()
        assert rig.methods() == ["POST", "PATCH", "POST"]
        (event,) = rig.server.events.values()
        assert event["count"] == 2


async def test_an_unreachable_server_is_tried_again_and_given_up_in_the_end() -> None:
    lost = disconnected("x", "reset", processed=True)
    async with Rig() as rig:
        rig.server.troubles = [lost] * 3
        rig.recorder.event(REF, "Normal", "R", "m")
        await rig.drain(10)
        assert (rig.recorder.written, rig.recorder.dropped) == (1, 0)
        rig.server.troubles = [lost] * 12
        rig.recorder.event(REF, "Normal", "R2", "m")
        await rig.drain(10)
        assert (rig.recorder.written, rig.recorder.dropped) == (1, 1)


async def test_a_vital_event_outlives_a_long_outage_and_an_overloaded_server() -> None:
    troubles: list[Exception] = [disconnected("x", "reset", processed=True)] * 30
    troubles += [failure(429, "TooManyRequests", "later"), failure(500, "InternalError", "etcd")] * 8
    async with Rig() as rig:
        rig.server.troubles = list(troubles)
        rig.recorder.event(REF, "Normal", "Scheduled", "m", vital=True)
        await rig.drain(10)
        assert (rig.recorder.written, rig.recorder.dropped) == (1, 0)
        assert [event["reason"] for event in rig.server.events.values()] == ["Scheduled"]


async def test_an_event_whose_answer_was_lost_is_written() -> None:
    async with Rig() as rig:
        rig.server.troubles = [disconnected("x", "reset", processed=True), already_exists(EVENTS, "p.1")]
        rig.recorder.event(REF, "Normal", "R", "m")
        await rig.drain(10)
        assert (rig.recorder.written, rig.recorder.dropped) == (1, 0)


async def test_vital_events_pass_the_spam_filter_and_a_full_queue() -> None:
    async with Rig() as rig:
        rig.server.hold = asyncio.Event()
        for index in range(40):  # a pod that has waited for long has used up its events
            rig.recorder.event(REF, "Warning", "FailedScheduling", f"m{index}")
        for index in range(QUEUE_LIMIT):
            rig.recorder.event(ObjectRef("v1", "Pod", "ns", f"p{index}"), "Normal", "R", "m")
        dropped = rig.recorder.dropped
        assert dropped > 15
        rig.recorder.event(REF, "Normal", "Scheduled", "m", vital=True)
        assert rig.recorder.dropped == dropped
        rig.server.hold.set()
        await rig.drain()
        assert sum(event["reason"] == "Scheduled" for event in rig.server.events.values()) == 1


@pytest.mark.parametrize("code", [401, 409, 410, 502])
async def test_a_stray_no_is_not_final(code: int) -> None:
    async with Rig() as rig:
        rig.server.troubles = [failure(code, "", "try again")] * 2
        rig.recorder.event(REF, "Normal", "Scheduled", "m", vital=True)
        await rig.drain(10)
        assert (rig.recorder.written, rig.recorder.dropped) == (1, 0)


async def test_a_refusal_is_final() -> None:
    async with Rig() as rig:
        rig.server.troubles = [failure(403, "Forbidden", "the namespace is being terminated")]
        rig.recorder.event(REF, "Normal", "R", "m")
        await rig.drain()
        assert (rig.recorder.written, rig.recorder.dropped) == (0, 1)


async def test_a_full_queue_drops_and_counts() -> None:
    async with Rig() as rig:
        rig.server.hold = asyncio.Event()
        for index in range(QUEUE_LIMIT + 50):
            rig.recorder.event(ObjectRef("v1", "Pod", "ns", f"p{index}"), "Normal", "R", "m")
        assert rig.recorder.dropped == 50
        rig.server.hold.set()
        await rig.drain()
        assert rig.recorder.written == QUEUE_LIMIT


async def test_events_of_one_object_keep_their_order() -> None:
    async with Rig() as rig:
        for index in range(8):
            for name in "abcdefgh":
                rig.recorder.event(ObjectRef("v1", "Pod", "ns", name), "Normal", f"R{index}", "m")
        await rig.drain()
        order: dict[str, list[str]] = {}
        for request in rig.transport.requests:
            event = msgspec.json.decode(request.body)
            order.setdefault(event["involvedObject"]["name"], []).append(event["reason"])
        assert all(reasons == [f"R{index}" for index in range(8)] for reasons in order.values())
        assert len(order) == 8


async def test_what_the_server_fails_at_holds_up_nobody_else_and_is_given_up_in_the_end() -> None:
    async with Rig() as rig:
        rig.server.fails_at = "p"
        for index in range(3):
            rig.recorder.event(REF, "Normal", f"R{index}", "m", vital=True)
        for index in range(40):  # in every lane
            rig.recorder.event(ObjectRef("v1", "Pod", "ns", f"p{index}"), "Normal", "R", "m", vital=True)
        for _ in range(60):
            await rig.clock.advance(1)
        assert rig.recorder.written == 40
        assert rig.recorder.waiting == 3
        rig.server.fails_at = ""
        await rig.drain(10)
        seen = [event["reason"] for event in rig.server.events.values()]
        assert seen[-3:] == ["R0", "R1", "R2"]  # in their order
        rig.server.fails_at = "p"
        rig.recorder.event(REF, "Normal", "last", "m", vital=True)
        await rig.drain(100)
        assert (rig.recorder.written, rig.recorder.dropped) == (43, 1)
