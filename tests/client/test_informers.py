from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import random
import tracemalloc
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from example_counts import examples
from fake_transport import FakeTransport, FedStream, ok, query_of, streaming
from hypothesis import example, given, settings
from hypothesis import strategies as st
from list_watch_server import TinyServer

from windlass.api.errors import expired, failure
from windlass.api.resources import CONFIG_MAPS, PODS
from windlass.client import informers as module
from windlass.client.client import Client
from windlass.client.errors import connect_failed, disconnected
from windlass.client.informers import Informer, SharedInformers
from windlass.client.retries import NEVER
from windlass.client.transport import Request, Response
from windlass.kits.clock import FakeClock

BROKEN = disconnected("x", "reset", processed=True)
REFUSED = connect_failed(ConnectionRefusedError(111, "refused"), "x", unix=False)


class Replayed:
    """What someone who only hears the handlers believes."""

    def __init__(self, informer: Informer[dict[str, Any]]) -> None:
        self.state: dict[str, dict[str, Any]] = {}
        self.calls: list[tuple[str, str]] = []
        informer.add_handler(self.added, self.updated, self.deleted)

    def added(self, obj: dict[str, Any]) -> None:
        name = obj["metadata"]["name"]
        assert name not in self.state, f"{name} was added twice"
        self.state[name] = obj
        self.calls.append(("add", name))

    def updated(self, old: dict[str, Any], new: dict[str, Any]) -> None:
        name = new["metadata"]["name"]
        assert self.state[name] == old
        assert old["metadata"]["uid"] == new["metadata"]["uid"]
        self.state[name] = new
        self.calls.append(("update", name))

    def deleted(self, old: dict[str, Any]) -> None:
        assert self.state.pop(old["metadata"]["name"]) == old
        self.calls.append(("delete", old["metadata"]["name"]))


class Rig:
    """A tiny server, informers on it, and a clock that the test moves."""

    def __init__(self, server: TinyServer | None = None) -> None:
        self.server = server or TinyServer()
        self.clock = FakeClock()
        self.transport = FakeTransport(self.server.handler)
        rng = random.Random(7)
        self.client = Client(self.transport, clock=self.clock, rng=rng, retries=NEVER)
        self.undecodable: list[tuple[str, Exception]] = []
        self.informers = SharedInformers(
            self.client,
            self.clock,
            rng,
            on_undecodable=lambda _, key, error: self.undecodable.append((key, error)),
        )

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.informers.run())
        try:
            await self.settle()
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def settle(self) -> None:
        """Let everything run that can run without time passing."""
        for _ in range(40):
            await asyncio.sleep(0)

    async def pass_time(self, seconds: float) -> None:
        for _ in range(int(seconds)):
            await self.clock.advance(1.0)
            await self.settle()


def names(informer: Informer[Any]) -> list[str]:
    return sorted(informer.items)


@pytest.mark.parametrize("watch_list", [True, False])
async def test_sync_and_follow(watch_list: bool) -> None:
    rig = Rig(TinyServer(watch_list=watch_list))
    rig.server.put("a", n=1)
    rig.server.put("b", n=1)
    pods = rig.informers.informer(CONFIG_MAPS)
    heard = Replayed(pods)
    assert not pods.synced
    async with rig.running():
        await pods.wait_synced()
        assert names(pods) == ["ns/a", "ns/b"]
        rig.server.put("a", n=2)
        rig.server.put("c", n=1)
        rig.server.delete("b")
        await rig.settle()
        assert names(pods) == ["ns/a", "ns/c"]
        assert pods.items["ns/a"]["spec"] == {"n": 2}
        assert heard.calls[2:] == [("update", "a"), ("add", "c"), ("delete", "b")]
        assert heard.state == rig.server.objects
    first = [query_of(request) for request in rig.transport.requests]
    assert first[0]["sendInitialEvents"] == "true"
    assert len(first) == (1 if watch_list else 3)


async def test_changes_missed_during_an_outage_are_told_by_a_relist() -> None:
    rig = Rig()
    for name in "abcd":
        rig.server.put(name)
    pods = rig.informers.informer(CONFIG_MAPS)
    heard = Replayed(pods)
    async with rig.running():
        before = dict(pods.items)
        rig.server.end_watches(BROKEN)
        rig.server.delete("a")
        rig.server.put("b", changed=True)
        rig.server.delete("c")
        rig.server.put("c", again=True)
        rig.server.put("e")
        rig.server.compact()
        heard.calls.clear()
        await rig.settle()
        assert dict(pods.items) == before  # nothing is shown until the new state is whole
        await rig.pass_time(3)
        assert heard.state == rig.server.objects
        assert heard.calls == [
            ("delete", "a"),
            ("update", "b"),
            ("delete", "c"),  # another object by the same name
            ("add", "c"),
            ("add", "e"),
        ]


async def test_a_silent_watch_is_given_up_after_seventy_seconds() -> None:
    rig = Rig()
    pods = rig.informers.informer(CONFIG_MAPS)
    async with rig.running():
        await pods.wait_synced()
        first = rig.server.streams[0]
        for _ in range(3):
            await rig.pass_time(60)
            rig.server.bookmark()
            await rig.settle()
        assert len(rig.transport.requests) == 1
        await rig.pass_time(69)
        assert len(rig.transport.requests) == 1
        await rig.pass_time(2)
        assert first.closed
        assert len(rig.transport.requests) == 2
        query = query_of(rig.transport.requests[1])
        assert query["resourceVersion"] == str(rig.server.rv)
        assert "sendInitialEvents" not in query
        rig.server.put("late")
        await rig.settle()
        assert names(pods) == ["ns/late"]


async def test_a_refused_server_is_tried_again_with_growing_pauses() -> None:
    rig = Rig()
    rig.server.faults = [REFUSED] * 5
    pods = rig.informers.informer(CONFIG_MAPS)
    async with rig.running():
        await rig.pass_time(3)
        assert 2 <= len(rig.transport.requests) <= 3
        await rig.pass_time(60)
        assert pods.synced
        assert len(rig.transport.requests) == 6


async def test_a_server_that_is_back_is_heard_by_all_when_it_is_by_one() -> None:
    """After half a minute without it each would wait for up to another minute, by itself."""
    rig = Rig()
    for name in "abcde":
        rig.informers.informer(CONFIG_MAPS, labels=name)
    rig.server.faults = [REFUSED] * 1000
    async with rig.running():
        await rig.pass_time(30)
        assert 5 * 4 <= len(rig.transport.requests) <= 5 * 7
        rig.server.faults = []
        while len(rig.informers.unsynced()) == 5:
            await rig.pass_time(1)
        await rig.pass_time(1)
        assert rig.informers.unsynced() == []


async def test_a_server_that_says_no_when_it_is_back_is_asked_again_soon() -> None:
    """One that has just started serves a kind a moment later than others, or does not know yet who may what."""
    rig = Rig()
    pods = rig.informers.informer(CONFIG_MAPS)
    rig.server.faults = [REFUSED] * 6 + [failure(403, "Forbidden", "not yet")] * 2
    async with rig.running():
        while rig.server.faults:
            await rig.pass_time(1)
        assert not pods.synced
        await rig.pass_time(2)
        assert pods.synced


async def test_what_a_server_asked_for_is_waited_whoever_is_served() -> None:
    rig = Rig()
    first = rig.informers.informer(CONFIG_MAPS, labels="a")
    slow = failure(429, "TooManyRequests", "wait", headers={"retry-after": "20"})
    rig.server.faults = [slow]
    async with rig.running():
        second = rig.informers.informer(CONFIG_MAPS, labels="b")
        rig.server.faults = [REFUSED]
        await rig.pass_time(18)
        assert second.synced
        assert not first.synced
        await rig.pass_time(25)
        assert first.synced


async def test_a_server_that_hangs_up_on_all_is_not_asked_faster_for_that() -> None:
    """Each is answered and then cut off, which tells the others that somebody is there."""
    rig = Rig()

    slowness = itertools.cycle((1, 9, 4, 14))

    async def hang_up(_: Request) -> Response:
        for _ in range(next(slowness)):
            await asyncio.sleep(0)
        stream = FedStream()
        stream.end(BROKEN)
        return streaming(stream)

    rig.transport.handler = hang_up
    for name in "abc":
        rig.informers.informer(CONFIG_MAPS, labels=name)
    async with rig.running():
        for second in range(1, 31):
            for _ in range(10):
                await rig.settle()
            assert len(rig.transport.requests) <= 3 * second
            await rig.pass_time(1)


class Slim(msgspec.Struct, gc=False):
    name: str
    n: int


def slim(raw: msgspec.Raw) -> Slim | None:
    obj = msgspec.json.decode(raw)
    if obj["spec"].get("hidden"):
        return None
    return Slim(obj["metadata"]["name"], int(obj["spec"].get("n", 0)))


async def test_two_decoders_share_one_stream_and_change_together() -> None:
    rig = Rig()
    rig.server.put("a", n=1)
    full = rig.informers.informer(CONFIG_MAPS)
    small = rig.informers.informer(CONFIG_MAPS, decode=slim)
    assert rig.informers.informer(CONFIG_MAPS, decode=slim) is small
    seen: list[tuple[int, int]] = []
    full.add_handler(on_update=lambda _, new: seen.append((new["spec"]["n"], small.items["ns/a"].n)))
    async with rig.running():
        rig.server.put("a", n=2)
        await rig.settle()
        assert small.items["ns/a"] == Slim("a", 2)
        assert seen == [(2, 2)]
        assert len(rig.transport.requests) == 1


async def test_a_decoder_may_leave_objects_out_and_take_them_in_again() -> None:
    rig = Rig()
    rig.server.put("a", hidden=True)
    rig.server.put("b", n=1)
    pods = rig.informers.informer(CONFIG_MAPS, decode=slim)
    calls: list[tuple[str, str]] = []
    pods.add_handler(
        lambda new: calls.append(("add", new.name)),
        lambda _, new: calls.append(("update", new.name)),
        lambda old: calls.append(("delete", old.name)),
    )
    async with rig.running():
        rig.server.put("b", hidden=True)
        rig.server.put("a", n=3)
        rig.server.delete("b")
        await rig.settle()
        assert calls == [("add", "b"), ("delete", "b"), ("add", "a")]
        assert names(pods) == ["ns/a"]


async def test_an_object_that_cannot_be_decoded_is_left_out_and_reported() -> None:
    rig = Rig()
    rig.server.put("good", n=1)
    rig.server.put("bad", n="x")
    pods = rig.informers.informer(CONFIG_MAPS, decode=slim)
    async with rig.running():
        assert names(pods) == ["ns/good"]
        assert [key for key, _ in rig.undecodable] == ["ns/bad"]
        heard: list[str] = []
        pods.add_handler(None, lambda *_: heard.append("update"), lambda _: heard.append("delete"))
        rig.server.put("good", n="y")  # it is still there, and has what it had
        await rig.settle()
        assert (names(pods), pods.items["ns/good"].n, heard) == (["ns/good"], 1, [])
        rig.server.put("good", n=2)
        await rig.settle()
        assert (pods.items["ns/good"].n, heard) == (2, ["update"])
        rig.server.delete("good")
        await rig.settle()
        assert (names(pods), heard) == ([], ["update", "delete"])


def test_one_made_anew_that_cannot_be_read_is_not_what_it_was() -> None:
    """Also where a list shows it."""
    rig = Rig()
    pods = rig.informers.informer(CONFIG_MAPS, decode=slim)
    (stream,) = rig.informers._streams

    def made(uid: str, version: int, n: Any) -> msgspec.Raw:
        metadata = {"name": "a", "namespace": "ns", "uid": uid, "resourceVersion": str(version)}
        return msgspec.Raw(msgspec.json.encode({"metadata": metadata, "spec": {"n": n}}))

    def listed(obj: msgspec.Raw) -> list[str]:
        stream.begin()
        stream.stage(obj)
        stream.swap("9")
        return names(pods)

    assert listed(made("u1", 1, 1)) == ["ns/a"]
    assert listed(made("u1", 2, "x")) == ["ns/a"]
    assert listed(made("u2", 3, "x")) == []
    stream.upsert(made("u2", 4, 1))
    assert names(pods) == ["ns/a"]
    stream.upsert(made("u3", 5, "x"))
    assert names(pods) == []


async def test_what_is_no_object_is_passed_over() -> None:
    rig = Rig()
    rig.server.put("a")
    pods = rig.informers.informer(CONFIG_MAPS)
    async with rig.running():
        (stream,) = rig.server.streams
        for kind in ("ADDED", "MODIFIED", "DELETED", "BOOKMARK"):
            stream.event(kind, {"metadata": "nothing"})
            stream.event(kind, [1])
        rig.server.put("b")
        await rig.settle()
        assert names(pods) == ["ns/a", "ns/b"]
        assert [key for key, _ in rig.undecodable] == [""] * 6
        assert len(rig.transport.requests) == 1


async def test_answers_that_are_no_kubernetes_are_faults_like_others() -> None:
    rig = Rig(TinyServer(watch_list=False))
    rig.server.faults = [failure(422, "Invalid", "no"), Response(200, {}, b"<html>"), ok({"no": "list"})]
    rig.server.put("a")
    pods = rig.informers.informer(CONFIG_MAPS)
    async with rig.running():
        await rig.pass_time(10)
        assert names(pods) == ["ns/a"]


async def test_selectors_make_streams_of_their_own() -> None:
    rig = Rig()
    rig.informers.informer(CONFIG_MAPS)
    rig.informers.informer(CONFIG_MAPS, namespace="ns", labels="a=b", fields="spec.nodeName=n1")
    async with rig.running():
        paths = [(request.path, query_of(request).get("labelSelector")) for request in rig.transport.requests]
        assert paths == [("/api/v1/configmaps", None), ("/api/v1/namespaces/ns/configmaps", "a=b")]
        assert query_of(rig.transport.requests[1])["fieldSelector"] == "spec.nodeName=n1"


async def test_an_informer_may_come_while_running() -> None:
    rig = Rig()
    rig.server.put("a", n=1)
    rig.informers.informer(CONFIG_MAPS)
    async with rig.running():
        late = rig.informers.informer(CONFIG_MAPS, decode=slim)
        await rig.settle()
        assert names(late) == ["ns/a"]
        assert len(rig.transport.requests) == 2


async def test_a_late_handler_hears_what_is_there() -> None:
    rig = Rig()
    rig.server.put("a")
    pods = rig.informers.informer(CONFIG_MAPS)
    async with rig.running():
        assert Replayed(pods).state == rig.server.objects


async def test_a_failing_handler_ends_the_run() -> None:
    rig = Rig()
    rig.server.put("a")
    pods = rig.informers.informer(CONFIG_MAPS)

    def fail(_: Any) -> None:
        raise LookupError("a bug")

    pods.add_handler(fail)
    with pytest.raises(ExceptionGroup) as caught:
        await rig.informers.run()
    assert caught.group_contains(LookupError, match="a bug")


async def test_leaving_closes_the_stream() -> None:
    rig = Rig()
    rig.informers.informer(CONFIG_MAPS)
    async with rig.running():
        stream = rig.server.streams[0]
        assert not stream.closed
    assert stream.closed


OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.sampled_from("abcdef"), st.integers(0, 3)),
        st.tuples(st.just("delete"), st.sampled_from("abcdef"), st.just(0)),
        st.tuples(st.just("compact"), st.just(""), st.just(0)),
        st.tuples(st.just("bookmark"), st.just(""), st.just(0)),
        st.tuples(st.just("end"), st.just(""), st.integers(0, 5)),
        st.tuples(st.just("fault"), st.just(""), st.integers(0, 4)),
        st.tuples(st.just("wait"), st.just(""), st.sampled_from([0, 1, 80])),
    ),
    max_size=40,
)
ENDINGS: list[Exception | None] = [
    None,
    BROKEN,
    expired("too old resource version"),
    failure(500, "InternalError", "oops"),
    failure(429, "TooManyRequests", "busy"),
    failure(403, "Forbidden", "no"),
]
FAULTS = [
    BROKEN,
    REFUSED,
    failure(500, "InternalError", "oops"),
    failure(429, "TooManyRequests", "busy"),
    expired(),
]


@example([("end", "", 3), *[("fault", "", 0)] * 4, ("wait", "", 80), ("put", "a", 0), ("end", "", 4),
          ("delete", "a", 0), ("compact", "", 0)], False, 1, False)  # fmt: skip
@given(OPERATIONS, st.booleans(), st.integers(1, 4), st.booleans())
@settings(max_examples=examples(60), deadline=None)
def test_whatever_happens_the_cache_ends_up_as_the_server(
    operations: list[tuple[str, str, int]], watch_list: bool, page_size: int, early: bool
) -> None:
    async def play() -> None:
        rig = Rig(TinyServer(watch_list=watch_list))
        pods = rig.informers.informer(CONFIG_MAPS, early=early)
        heard = Replayed(pods)
        async with rig.running():
            for operation, name, number in operations:
                await perform(rig, operation, name, number)
            rig.server.faults.clear()
            await rig.pass_time(200)  # three pauses of the longest kind, a minute each, and some
            assert {key.removeprefix("ns/"): obj for key, obj in pods.items.items()} == rig.server.objects
            assert heard.state == rig.server.objects

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("windlass.client.reflector.PAGE", page_size)
        asyncio.run(play())


async def perform(rig: Rig, operation: str, name: str, number: int) -> None:
    server = rig.server
    if operation == "put":
        server.put(name, n=number)
    elif operation == "delete" and name in server.objects:
        server.delete(name)
    elif operation == "compact":
        server.compact()
    elif operation == "bookmark":
        server.bookmark()
    elif operation == "end":
        server.end_watches(ENDINGS[number])
    elif operation == "fault":
        server.faults.append(FAULTS[number])
    elif operation == "wait":
        await (rig.pass_time(number) if number else rig.settle())


def added(name: str, uid: str, version: int) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "ns", "uid": uid, "resourceVersion": str(version)}
    return {"metadata": metadata, "spec": {"n": version}}


async def test_an_early_informer_shows_the_first_state_while_it_comes_in() -> None:
    """A list that breaks off and begins anew changes only what differs."""
    rig = Rig()
    pods = rig.informers.informer(CONFIG_MAPS, early=True)
    heard = Replayed(pods)
    first = FedStream()
    rig.server.faults.append(streaming(first))
    async with rig.running():
        for name in "abc":
            first.event("ADDED", added(name, f"old-{name}", 5))
        await rig.settle()
        assert names(pods) == ["ns/a", "ns/b", "ns/c"]
        assert not pods.synced
        first.event("DELETED", added("b", "old-b", 6))
        await rig.settle()
        assert names(pods) == ["ns/a", "ns/c"]
        second = FedStream()
        rig.server.faults.append(streaming(second))
        first.end(BROKEN)
        await rig.pass_time(2)
        for made in (added("a", "old-a", 5), added("c", "new-c", 7), added("d", "d", 8)):
            second.event("ADDED", made)
        metadata = {"resourceVersion": "9", "annotations": {"k8s.io/initial-events-end": "true"}}
        second.event("BOOKMARK", {"metadata": metadata})
        await pods.wait_synced()
        assert names(pods) == ["ns/a", "ns/c", "ns/d"]
        assert [call for call in heard.calls if call[0] != "update"] == [
            ("add", "a"),
            ("add", "b"),
            ("add", "c"),
            ("delete", "b"),
            ("delete", "c"),
            ("add", "c"),
            ("add", "d"),
        ]
        second.event("DELETED", added("a", "old-a", 10))
        await rig.settle()
        assert names(pods) == ["ns/c", "ns/d"]


async def test_the_first_state_is_swapped_in_at_once_where_not_all_want_it_early() -> None:
    rig = Rig()
    eager = rig.informers.informer(CONFIG_MAPS, early=True)
    plain = rig.informers.informer(CONFIG_MAPS, decode=lambda raw: msgspec.json.decode(raw)["spec"]["n"])
    stream = FedStream()
    rig.server.faults.append(streaming(stream))
    async with rig.running():
        stream.event("ADDED", added("a", "a", 5))
        await rig.settle()
        assert (names(eager), names(plain)) == ([], [])
        metadata = {"resourceVersion": "9", "annotations": {"k8s.io/initial-events-end": "true"}}
        stream.event("BOOKMARK", {"metadata": metadata})
        await plain.wait_synced()
        assert (names(eager), dict(plain.items)) == (["ns/a"], {"ns/a": 5})


def listed(pods: range, rv: int, token: str = "", more: int = 0) -> bytes:
    """A page of pods. ``more``: bytes in each of them."""
    items = [
        {"metadata": {"name": f"p-{i}", "uid": f"u-{i}", "resourceVersion": "5"}, "spec": "x" * more}
        for i in pods
    ]
    return msgspec.json.encode(
        {"kind": "PodList", "metadata": {"resourceVersion": str(rv), "continue": token}, "items": items}
    )


async def test_pods_are_listed_in_pages_and_watched_from_there() -> None:
    rig = Rig()
    pods = rig.informers.informer(PODS)
    first, second = FedStream(), FedStream()
    rig.server.faults += [streaming(first), streaming(second)]
    async with rig.running():
        first.feed(listed(range(3), 70, "more"))
        first.end()
        await rig.settle()
        assert (pods.synced, dict(pods.items)) == (False, {})
        second.feed(listed(range(3, 5), 70))
        second.end()
        await rig.settle()
        assert names(pods) == [f"p-{i}" for i in range(5)]
    asked = [query_of(request) for request in rig.transport.requests]
    assert asked[0] == {"limit": "5000"}
    assert asked[1] == {"limit": "5000", "continue": "more"}
    assert (asked[2]["watch"], asked[2]["resourceVersion"]) == ("true", "70")
    assert len(asked) == 3
    assert first.closed
    assert second.closed


async def test_pods_of_a_page_are_shown_early_while_it_comes_in() -> None:
    rig = Rig()
    pods = rig.informers.informer(PODS, early=True)
    broken, whole = FedStream(), FedStream()
    rig.server.faults += [streaming(broken), streaming(whole)]
    async with rig.running():
        data = listed(range(10), 70, more=100_000)
        broken.feed(data[:600_000])
        await rig.settle()
        shown = len(pods.items)
        assert 3 <= shown < 6
        broken.end(BROKEN)
        await rig.pass_time(4)
        assert (len(pods.items), pods.synced) == (shown, False)
        whole.feed(listed(range(1, 10), 71))
        whole.end()
        await rig.settle()
        assert names(pods) == [f"p-{i}" for i in range(1, 10)]  # the first one has gone meanwhile
        assert pods.synced


def test_memory_per_object_is_the_record_and_little_more() -> None:
    """Beside the record itself: its key, a stamp, two dictionary slots. No JSON is kept."""
    count = 5000
    rig = Rig()
    padding = "x" * 3000

    class Constant(msgspec.Struct, gc=False):
        value: int

    one = Constant(1)
    stream = module._Stream(rig.informers, CONFIG_MAPS, ("", "", ""))
    stream.views.append(Informer(CONFIG_MAPS, lambda _: one))
    gc.collect()
    tracemalloc.start()
    stream.begin()
    for index in range(count):
        metadata = {
            "name": f"pod-{index:06}",
            "namespace": "team",
            "uid": f"{index:036}",
            "resourceVersion": str(10_000_000 + index),
        }
        stream.stage(msgspec.Raw(msgspec.json.encode({"metadata": metadata, "spec": padding})))
    stream.swap("1")
    gc.collect()
    held, peak = tracemalloc.get_traced_memory()
    assert len(stream.views[0].items) == count
    del rig, stream
    gc.collect()
    freed = held - tracemalloc.get_traced_memory()[0]  # other threads of this process allocate meanwhile too
    tracemalloc.stop()
    assert 50 < freed / count < 400
    assert peak / count < 2000, "the JSON of an object has 3 000 bytes"


@given(
    history=st.lists(st.tuples(st.sampled_from("ab"), st.booleans()), min_size=1, max_size=12),
    disorder=st.randoms(use_true_random=False),
)
@example(history=[("a", True), ("a", False), ("a", True), ("a", False)], disorder=random.Random(0)).via(
    "an older end of it came after a newer one"
)
@settings(max_examples=examples(150))
def test_events_that_come_twice_or_out_of_order_do_not_bring_the_past_back(
    history: list[tuple[str, bool]], disorder: random.Random
) -> None:
    """``history``: an object is changed (or made), or deleted; as the server has it, and as it is told."""
    informers = Rig().informers
    pods = informers.informer(CONFIG_MAPS)
    heard = Replayed(pods)
    (stream,) = informers._streams
    there: dict[str, dict[str, Any]] = {}
    events: list[tuple[bool, dict[str, Any]]] = []
    for version, (name, lives) in enumerate(history, 9):  # 9, 10: they are compared as numbers
        uid = there[name]["metadata"]["uid"] if name in there else f"{name}-{version}"
        made = {
            "metadata": {"name": name, "namespace": "ns", "uid": uid, "resourceVersion": str(version)},
            "spec": {"n": version},
        }
        if lives:
            there[name] = made
        elif there.pop(name, None) is None:
            continue
        events.append((lives, made))
    for i in range(len(events) - 1):
        if disorder.random() < 0.5:
            events[i], events[i + 1] = events[i + 1], events[i]
    for i in range(len(events)):
        told = [events[i], *disorder.sample(events[: i + 1], disorder.randint(0, 1))]
        for lives, made in told:
            (stream.upsert if lives else stream.remove)(msgspec.Raw(msgspec.json.encode(made)))
    assert {item["metadata"]["name"]: item["spec"] for item in pods.items.values()} == {
        name: made["spec"] for name, made in there.items()
    }
    assert {f"ns/{name}" for name in heard.state} == set(pods.items)


def test_a_first_state_that_is_told_twice_is_the_newest() -> None:
    """Of each object, whatever comes late within the events that a WatchList begins with."""
    informers = Rig().informers
    maps = informers.informer(CONFIG_MAPS)
    (stream,) = informers._streams
    stream.begin()
    for version in (1, 3, 2):
        metadata = {"name": "a", "namespace": "ns", "uid": "u", "resourceVersion": str(version)}
        stream.stage(msgspec.Raw(msgspec.json.encode({"metadata": metadata, "spec": {"n": version}})))
    stream.swap("3")
    assert [item["spec"] for item in maps.items.values()] == [{"n": 3}]


def test_where_nobody_listens_the_log_tells_once(caplog: pytest.LogCaptureFixture) -> None:
    """A bound pod that is left out without a word would have its room given away."""
    rig = Rig()
    informers = SharedInformers(rig.client, rig.clock, random.Random(1))
    for _ in range(3):
        informers.undecodable(PODS, "ns/bad", ValueError("no phase"))
    (told,) = caplog.records
    assert told.fields == {"kind": "pods", "object": "ns/bad", "why": "no phase"}  # type: ignore[attr-defined]
