from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest
from fake_transport import FakeTransport, FedStream, Handler, ok, page, query_of, script, streaming
from hypothesis import given, settings
from hypothesis import strategies as st

from windlass.api.errors import StatusError, expired, failure, not_found
from windlass.api.resources import CONFIG_MAPS, NODES, PODS, QUEUES
from windlass.client import errors, responses
from windlass.client.client import Client
from windlass.client.errors import Unreachable, connect_failed, disconnected
from windlass.client.transport import Request, Response
from windlass.kits.clock import FakeClock

POD = {"metadata": {"name": "p", "namespace": "ns"}, "spec": {}}
LOST = disconnected("x", "reset", processed=True)
UNSENT = disconnected("x", "reset", processed=False)
REFUSED = connect_failed(ConnectionRefusedError(111, "refused"), "x", unix=False)


class Meta(msgspec.Struct):
    name: str


class Pod(msgspec.Struct):
    metadata: Meta


class ImpatientClock(FakeClock):
    """Sleeping passes at once, and is noted."""

    def __init__(self) -> None:
        super().__init__()
        self.slept: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.jump(seconds)


class Rig:
    def __init__(self, handler: Handler) -> None:
        self.transport = FakeTransport(handler)
        self.clock = ImpatientClock()
        self.client = Client(self.transport, user_agent="test-agent", clock=self.clock, rng=random.Random(1))
        self.warnings: list[str] = []
        self.client.on_warning = self.warnings.append

    @property
    def last(self) -> Request:
        return self.transport.requests[-1]

    def body(self) -> Any:
        return msgspec.json.decode(self.last.body)


class TestRequests:
    async def test_create(self) -> None:
        rig = Rig(script(ok(POD, 201)))
        await rig.client.create(PODS, POD, dry_run=True, field_validation="Strict", field_manager="me")
        assert (rig.last.method, rig.last.path) == ("POST", "/api/v1/namespaces/ns/pods")
        assert query_of(rig.last) == {"dryRun": "All", "fieldValidation": "Strict", "fieldManager": "me"}
        assert rig.body() == {"apiVersion": "v1", "kind": "Pod", **POD}
        assert rig.last.headers["content-type"] == "application/json"
        assert rig.last.headers["user-agent"] == "test-agent"

    async def test_the_namespace_is_the_given_one_the_objects_own_or_default(self) -> None:
        rig = Rig(script(ok({}), ok({}), ok({})))
        await rig.client.create(CONFIG_MAPS, POD, "other")
        assert rig.last.path == "/api/v1/namespaces/other/configmaps"
        await rig.client.create(CONFIG_MAPS, {"metadata": {"name": "c"}})
        assert rig.last.path == "/api/v1/namespaces/default/configmaps"
        await rig.client.create(QUEUES, {"metadata": {"name": "q"}})
        assert rig.last.path == "/apis/scheduling.volcano.sh/v1beta1/queues"

    @pytest.mark.parametrize(
        ("kind", "content_type"),
        [
            ("merge", "application/merge-patch+json"),
            ("json", "application/json-patch+json"),
            ("strategic", "application/strategic-merge-patch+json"),
            ("apply", "application/apply-patch+yaml"),
        ],
    )
    async def test_patch(self, kind: Any, content_type: str) -> None:
        rig = Rig(script(ok(POD)))
        await rig.client.patch(
            PODS, "p", [{"op": "test"}], "ns", kind=kind, subresource="status", force=True, field_manager="m"
        )
        assert (rig.last.method, rig.last.path) == ("PATCH", "/api/v1/namespaces/ns/pods/p/status")
        assert rig.last.headers["content-type"] == content_type
        expected = {"fieldManager": "m"} | ({"force": "true"} if kind == "apply" else {})
        assert query_of(rig.last) == expected

    async def test_delete(self) -> None:
        rig = Rig(script(ok({"kind": "Status"})))
        await rig.client.delete(
            PODS, "p", "ns", propagation="Foreground", grace_seconds=0, uid="u", resource_version="7"
        )
        assert (rig.last.method, rig.last.path) == ("DELETE", "/api/v1/namespaces/ns/pods/p")
        assert rig.body() == {
            "kind": "DeleteOptions",
            "apiVersion": "v1",
            "propagationPolicy": "Foreground",
            "gracePeriodSeconds": 0,
            "preconditions": {"uid": "u", "resourceVersion": "7"},
        }

    async def test_bind(self) -> None:
        rig = Rig(script(ok({"kind": "Status"}, 201)))
        await rig.client.bind("ns", "p", "n1", uid="u", annotations={"windlass.dev/devices": "0,1"})
        assert (rig.last.method, rig.last.path) == ("POST", "/api/v1/namespaces/ns/pods/p/binding")
        assert rig.body() == {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {
                "name": "p",
                "namespace": "ns",
                "uid": "u",
                "annotations": {"windlass.dev/devices": "0,1"},
            },
            "target": {"apiVersion": "v1", "kind": "Node", "name": "n1"},
        }

    async def test_a_name_that_is_no_path_is_quoted_and_an_empty_one_refused(self) -> None:
        rig = Rig(script(ok({})))
        await rig.client.get(PODS, "a b?c#d", "ns")
        assert rig.last.path == "/api/v1/namespaces/ns/pods/a%20b%3Fc%23d"
        with pytest.raises(ValueError, match="without a name"):
            await rig.client.get(PODS, "", "ns")

    async def test_update_of_a_subresource(self) -> None:
        rig = Rig(script(ok(POD)))
        await rig.client.update(PODS, POD, subresource="status")
        assert (rig.last.method, rig.last.path) == ("PUT", "/api/v1/namespaces/ns/pods/p/status")


class TestAnswers:
    async def test_a_status_is_raised_with_all_it_says(self) -> None:
        rig = Rig(script(not_found(PODS, "p")))
        with pytest.raises(StatusError) as caught:
            await rig.client.get(PODS, "p", "ns")
        assert (caught.value.code, caught.value.reason) == (404, "NotFound")
        assert caught.value.details == {"name": "p", "kind": "pods"}

    async def test_an_error_that_is_no_status_keeps_its_text(self) -> None:
        rig = Rig(script(Response(404, {"content-type": "text/plain"}, b"404 page not found\n")))
        with pytest.raises(StatusError) as caught:
            await rig.client.get(PODS, "p", "ns")
        assert (caught.value.code, caught.value.reason) == (404, "NotFound")
        assert caught.value.message == "404 page not found"

    async def test_find_tells_absent_objects_from_absent_kinds(self) -> None:
        unknown = failure(404, "NotFound", "the server could not find the requested resource", {})
        rig = Rig(script(not_found(PODS, "p"), unknown, ok(POD)))
        assert await rig.client.find(PODS, "p", "ns") is None
        with pytest.raises(StatusError):
            await rig.client.find(PODS, "p", "ns")
        assert await rig.client.find(PODS, "p", "ns") == POD

    async def test_warnings_are_handed_on_for_success_and_failure(self) -> None:
        header = {"warning": '299 - "unknown field \\"spec.x\\"", 299 - "deprecated, really"'}
        error = failure(422, "Invalid", "no", headers={"warning": '299 - "third"'})
        rig = Rig(script(ok(POD, headers=header), error))
        await rig.client.create(PODS, POD)
        assert rig.warnings == ['unknown field "spec.x"', "deprecated, really"]
        with pytest.raises(StatusError):
            await rig.client.create(PODS, POD)
        assert rig.warnings[2:] == ["third"]

    async def test_typed(self) -> None:
        rig = Rig(script(ok(POD), page([POD, POD], "7")))
        assert (await rig.client.get(PODS, "p", "ns", type=Pod)).metadata.name == "p"
        result = await rig.client.list(PODS, "ns", type=Pod)
        assert [pod.metadata.name for pod in result.items] == ["p", "p"]

    async def test_a_chunked_answer_is_collected(self) -> None:
        stream = FedStream()
        stream.feed(b'{"metadata":')
        stream.feed(b'{"name":"p"}}')
        stream.end()
        rig = Rig(script(streaming(stream)))
        assert await rig.client.get(PODS, "p", "ns") == {"metadata": {"name": "p"}}
        assert stream.closed


class TestLists:
    async def test_pages_are_put_together(self) -> None:
        rig = Rig(script(page([POD], "7", "t/1=="), page([POD, POD], "7")))
        result = await rig.client.list(PODS, labels="a=b,c in (d)", fields="spec.nodeName=n")
        assert (len(result.items), result.resource_version, result.continue_token) == (3, "7", "")
        assert result.items[0]["kind"] == "Pod"
        first, second = (query_of(request) for request in rig.transport.requests)
        assert first == {"labelSelector": "a=b,c in (d)", "fieldSelector": "spec.nodeName=n", "limit": "5000"}
        assert second == first | {"continue": "t/1=="}

    async def test_an_expired_page_begins_the_list_anew(self) -> None:
        rig = Rig(script(page([POD], "7", "t"), expired(), page([POD, POD], "9", "u"), page([POD], "9")))
        result = await rig.client.list(PODS)
        assert (len(result.items), result.resource_version) == (3, "9")

    async def test_a_list_that_expires_for_ever_is_given_up(self) -> None:
        answers_ = [page([POD], "7", "t"), expired()] * 4
        rig = Rig(script(*answers_))
        with pytest.raises(StatusError):
            await rig.client.list(PODS)

    async def test_limit(self) -> None:
        rig = Rig(script(page([POD], "7", "t")))
        result = await rig.client.list(NODES, limit=1)
        assert (len(result.items), result.continue_token) == (1, "t")

    async def test_no_list(self) -> None:
        rig = Rig(script(Response(200, {}, b"<html>")))
        with pytest.raises(Unreachable) as caught:
            await rig.client.list(PODS)
        assert caught.value.code == errors.PROTOCOL

    async def test_a_page_of_a_proxy_is_no_object(self) -> None:
        rig = Rig(script(*[Response(200, {}, b"<html>")] * 3))
        for call in (
            rig.client.get(PODS, "p", "ns"),
            rig.client.get(PODS, "p", "ns", type=Pod),
            rig.client.patch(PODS, "p", {}, "ns"),
        ):
            with pytest.raises(Unreachable) as caught:
                await call
            assert caught.value.code == errors.PROTOCOL

    async def test_a_redirect_is_no_success(self) -> None:
        rig = Rig(script(*[Response(302, {"location": "https://login"}, b"")] * 2))
        for call in (rig.client.evict("ns", "p", uid="u"), rig.client.bind("ns", "p", "n", uid="u")):
            with pytest.raises(StatusError) as told:
                await call
            assert told.value.code == 302
            assert responses.may_pass(told.value)

    async def test_null_items(self) -> None:
        rig = Rig(script(ok({"metadata": {"resourceVersion": "5"}, "items": None})))
        assert (await rig.client.list(PODS)).items == []


class TestRetries:
    async def test_retry_after_is_obeyed_for_every_method(self) -> None:
        busy = failure(429, "TooManyRequests", "slow", {"retryAfterSeconds": 3}, {"retry-after": "3"})
        rig = Rig(script(busy, busy, ok(POD, 201)))
        await rig.client.create(PODS, POD)
        assert [int(seconds) for seconds in rig.clock.slept] == [3, 3]

    async def test_a_disruption_budgets_no_is_final(self) -> None:
        rig = Rig(script(failure(429, "TooManyRequests", "Cannot evict pod")))
        with pytest.raises(StatusError, match="Cannot evict"):
            await rig.client.evict("ns", "p")

    async def test_a_budgets_no_is_final_also_when_it_says_when_to_ask_again(self) -> None:
        """As kube-apiserver answers while no controller has counted the budget's pods."""
        causes = [
            {"reason": "DisruptionBudget", "message": "budget b is still being processed by the server."}
        ]
        details = {"causes": causes, "retryAfterSeconds": 10}
        rig = Rig(script(failure(429, "TooManyRequests", "Cannot evict pod", details, {"retry-after": "10"})))
        with pytest.raises(StatusError) as told:
            await rig.client.evict("ns", "p")
        assert responses.refusal_by_budget(told.value) == "budget b is still being processed by the server."
        assert rig.clock.slept == []

    @pytest.mark.parametrize("trouble", [LOST, UNSENT, REFUSED, failure(503, "ServiceUnavailable", "x")])
    async def test_reading_is_repeated(self, trouble: Exception) -> None:
        rig = Rig(script(trouble, trouble, ok(POD)))
        await rig.client.get(PODS, "p", "ns")
        assert len(rig.clock.slept) == 2
        assert rig.clock.slept[0] < rig.clock.slept[1]

    @pytest.mark.parametrize(("trouble", "repeated"), [(LOST, False), (UNSENT, True), (REFUSED, True)])
    async def test_a_creation_that_may_have_happened_is_not_repeated(
        self, trouble: Exception, repeated: bool
    ) -> None:
        rig = Rig(script(trouble, ok(POD)))
        if repeated:
            await rig.client.create(PODS, POD)
            return
        with pytest.raises(Unreachable):
            await rig.client.create(PODS, POD)

    @pytest.mark.parametrize(("kind", "repeated"), [("merge", True), ("json", False)])
    async def test_patches(self, kind: Any, repeated: bool) -> None:
        rig = Rig(script(LOST, ok(POD)))
        if repeated:
            await rig.client.patch(PODS, "p", {}, "ns", kind=kind)
            return
        with pytest.raises(Unreachable):
            await rig.client.patch(PODS, "p", [], "ns", kind=kind)

    async def test_it_gives_up(self) -> None:
        rig = Rig(lambda _: REFUSED)
        with pytest.raises(Unreachable):
            await rig.client.get(PODS, "p", "ns")
        assert len(rig.transport.requests) == 6
        assert sum(rig.clock.slept) < 10

    @pytest.mark.parametrize("code", [400, 401, 403, 404, 409, 410, 422, 500, 504])
    async def test_other_errors_are_final(self, code: int) -> None:
        rig = Rig(script(failure(code, "X", "x", headers={"retry-after": "1"})))
        with pytest.raises(StatusError):
            await rig.client.get(PODS, "p", "ns")


class TestWatch:
    async def test_events(self) -> None:
        stream = FedStream()
        rig = Rig(script(streaming(stream)))
        stream.event("ADDED", POD)
        stream.event("BOOKMARK", {"metadata": {"resourceVersion": "9"}})
        stream.event("ERROR", expired("too old").status)
        async with rig.client.watch(PODS, "ns", resource_version="7", timeout_seconds=60) as watch:
            objects = watch.objects()
            assert await anext(objects) == ("ADDED", POD)
            assert (await anext(objects))[0] == "BOOKMARK"
            with pytest.raises(StatusError, match="too old"):
                await anext(objects)
        assert stream.closed
        assert query_of(rig.last) == {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": "7",
            "timeoutSeconds": "60",
        }

    async def test_a_refused_watch(self) -> None:
        rig = Rig(script(expired()))
        with pytest.raises(StatusError):
            async with rig.client.watch(PODS):
                pass

    async def test_no_json(self) -> None:
        stream = FedStream()
        stream.feed(b"<html>\n")
        rig = Rig(script(streaming(stream)))
        async with rig.client.watch(PODS) as watch:
            with pytest.raises(Unreachable):
                await anext(watch)


@given(st.integers(1, 6), st.data())
@settings(max_examples=80, deadline=None)
def test_any_cut_of_a_watch_gives_the_same_events(count: int, data: st.DataObject) -> None:
    lines = [
        msgspec.json.encode({"type": "ADDED", "object": {"n": index, "text": "x\ny" * index}}) + b"\n"
        for index in range(count)
    ]
    whole = b"".join(lines) + b'{"type":"ADD'
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=8)))
    splitter = responses.LineSplitter()
    seen = []
    for start, end in zip([0, *cuts], [*cuts, len(whole)], strict=True):
        seen += [
            (event.type, responses.decode_any(event.object)["n"]) for event in splitter.feed(whole[start:end])
        ]
    assert seen == [("ADDED", index) for index in range(count)]
    assert splitter.rest == 12
