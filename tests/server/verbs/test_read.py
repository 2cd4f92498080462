"""Reading one object and many."""

from __future__ import annotations

import asyncio
import base64
import json

import pytest
from server_in_process import GROUPS, MAPS, PODS, TABLE, Api, binding, config_map, pod
from volcanoobjects import group

from windlass.server.core import ServerOptions
from windlass.store.families import StoreOptions

METADATA_LIST = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"


def names(body: dict) -> list[str]:
    return [item["metadata"]["name"] for item in body["items"]]


async def fill(api: Api, count: int) -> None:
    for number in range(count):
        (await api.post(MAPS, config_map(f"m{number:03}"))).ok(201)


class TestPlain:
    async def test_shape(self, api: Api) -> None:
        (await api.post(MAPS, config_map("m"))).ok(201)
        (await api.post(GROUPS, group("g"))).ok(201)
        listed = (await api.get(MAPS)).ok()
        assert (listed["kind"], listed["apiVersion"]) == ("ConfigMapList", "v1")
        assert listed["metadata"] == {"resourceVersion": str(api.store.rv)}
        assert "kind" not in listed["items"][0]
        custom = (await api.get(GROUPS)).ok()
        assert custom["metadata"] == {"continue": "", "resourceVersion": str(api.store.rv)}
        assert custom["items"][0]["kind"] == "PodGroup"

    async def test_empty_collection_is_an_empty_list(self, api: Api) -> None:
        assert (await api.get(PODS)).ok()["items"] == []
        assert (await api.get("/api/v1/namespaces/none/pods")).ok()["items"] == []

    async def test_long_lists_come_in_pieces(self) -> None:
        async with Api(options=ServerOptions(chunk_objects=7)) as api:
            await fill(api, 50)
            whole = (await api.get(MAPS)).ok()
            assert names(whole) == [f"m{number:03}" for number in range(50)]
            some = (await api.get(MAPS, fieldSelector="metadata.name!=m003")).ok()
            assert len(some["items"]) == 49
            none = (await api.get(MAPS, labelSelector="a=b")).ok()
            assert none["items"] == []
            groups = [(await api.post(GROUPS, group(f"g{n:02}"))).ok(201) for n in range(20)]
            assert names((await api.get(GROUPS)).ok()) == [g["metadata"]["name"] for g in groups]
            table = (await api.get(MAPS, accept=TABLE)).ok()
            assert len(table["rows"]) == 50

    async def test_long_list_is_a_snapshot_of_one_version(self) -> None:
        from windlass.client.transport import Request
        from windlass.server.request.users import ADMIN

        async with Api(options=ServerOptions(chunk_objects=5)) as api:
            await fill(api, 30)
            response = await api.server.handle(Request("GET", MAPS), ADMIN)
            assert response.stream is not None
            data = b""
            async for chunk in response.stream:
                if not data:
                    (await api.delete(MAPS)).ok()
                data += chunk
            assert len(json.loads(data)["items"]) == 30

    async def test_metadata_only(self, api: Api) -> None:
        (await api.post(MAPS, config_map("m", a="b"))).ok(201)
        listed = (await api.get(MAPS, accept=METADATA_LIST)).ok()
        assert listed["kind"] == "PartialObjectMetadataList"
        (item,) = listed["items"]
        assert set(item) == {"kind", "apiVersion", "metadata"}
        single = METADATA_LIST.replace("List", "")
        assert (await api.get(f"{MAPS}/m", accept=single)).ok()["kind"] == "PartialObjectMetadata"

    async def test_yaml(self, api: Api) -> None:
        (await api.post(MAPS, config_map("m", a="b"))).ok(201)
        answer = await api.get(MAPS, accept="application/yaml")
        assert answer.headers["content-type"] == "application/yaml"
        assert answer.body.startswith(b"apiVersion: v1\nitems:\n- data:\n    a: b\n")

    @pytest.mark.parametrize(
        ("accept", "status"),
        [
            ("", 200),
            ("*/*", 200),
            ("application/*", 200),
            ("application/vnd.kubernetes.protobuf, */*", 200),
            ("application/vnd.kubernetes.protobuf,application/json", 200),
            ("application/json;q=0.5, text/html", 200),
            ("text/html", 406),
            ("application/vnd.kubernetes.protobuf", 406),
            ("application/json;as=Chart;g=meta.k8s.io;v=v1", 406),
            ("application/json;as=Table;g=other;v=v1", 406),
        ],
    )
    async def test_accepted_media_types(self, api: Api, accept: str, status: int) -> None:
        assert (await api.get(PODS, accept=accept)).status == status


class TestSelectors:
    async def test_fields_of_pods(self, api: Api) -> None:
        for name in ("a", "b"):
            (await api.post(PODS, pod(name))).ok(201)
        (await api.post(f"{PODS}/a/binding", binding("a", "n1"))).ok(201)
        (await api.patch(f"{PODS}/a/status", {"status": {"phase": "Running", "podIP": "10.0.0.7"}})).ok()

        async def found(selector: str) -> list[str]:
            return names((await api.get("/api/v1/pods", fieldSelector=selector)).ok())

        assert await found("spec.nodeName=n1") == ["a"]
        assert await found("spec.nodeName=") == ["b"]
        assert await found("status.phase!=Pending") == ["a"]
        assert await found("status.podIP=10.0.0.7") == ["a"]
        assert await found("status.podIPs=10.0.0.7") == ["a"]
        assert await found("metadata.name=b,metadata.namespace=default") == ["b"]
        assert await found("spec.schedulerName=default-scheduler") == ["a", "b"]
        assert await found("spec.hostNetwork=true") == []

    @pytest.mark.parametrize(
        ("path", "selector", "message"),
        [
            ("/api/v1/pods", "spec.color=red", "field label not supported: spec.color"),
            (
                "/api/v1/configmaps",
                "data.a=b",
                '"data.a" is not a known field selector: only "metadata.name", "metadata.namespace"',
            ),
            (GROUPS, "spec.queue=q", "field label not supported: spec.queue"),
            ("/api/v1/pods", "a>>1", "invalid selector: 'a>>1'; can't understand 'a>>1'"),
        ],
    )
    async def test_fields_that_are_not_selectable(
        self, api: Api, path: str, selector: str, message: str
    ) -> None:
        answer = await api.get(path, fieldSelector=selector)
        assert (answer.status, answer.message) == (400, message)


class TestPages:
    async def test_pages_of_a_list_show_one_version(self, api: Api) -> None:
        await fill(api, 10)
        first = (await api.get(MAPS, limit=4)).ok()
        assert names(first) == ["m000", "m001", "m002", "m003"]
        assert first["metadata"]["remainingItemCount"] == 6
        (await api.delete(f"{MAPS}/m005")).ok()
        (await api.post(MAPS, config_map("m0041"))).ok(201)
        (await api.patch(f"{MAPS}/m006", {"data": {"a": "changed"}})).ok()
        token = first["metadata"]["continue"]
        second = (await api.get(MAPS, limit=4, **{"continue": token})).ok()
        assert names(second) == ["m004", "m005", "m006", "m007"]
        assert second["items"][2].get("data") is None
        assert second["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
        third = (await api.get(MAPS, limit=4, **{"continue": second["metadata"]["continue"]})).ok()
        assert names(third) == ["m008", "m009"]
        assert "continue" not in third["metadata"]
        rest = (await api.get(MAPS, **{"continue": token})).ok()
        assert names(rest) == [f"m{n:03}" for n in range(4, 10)]

    async def test_a_selector_hides_the_count(self, api: Api) -> None:
        await fill(api, 6)
        page = (await api.get(MAPS, limit=2, fieldSelector="metadata.name!=m001")).ok()
        assert names(page) == ["m000", "m002"]
        assert "remainingItemCount" not in page["metadata"]
        assert page["metadata"]["continue"]

    async def test_across_namespaces(self, api: Api) -> None:
        for namespace in ("default", "kube-public", "kube-system"):
            (await api.post(f"/api/v1/namespaces/{namespace}/configmaps", config_map("m"))).ok(201)
        seen, token = [], ""
        for _ in range(3):
            page = (await api.get("/api/v1/configmaps", limit=1, **{"continue": token})).ok()
            seen += [item["metadata"]["namespace"] for item in page["items"]]
            token = page["metadata"].get("continue", "")
        assert seen == ["default", "kube-public", "kube-system"]
        assert token == ""

    async def test_a_token_that_is_too_old_offers_another(self) -> None:
        async with Api(store=StoreOptions(ring_events=4)) as api:
            await fill(api, 6)
            first = (await api.get(MAPS, limit=2)).ok()
            for number in range(10):
                (await api.patch(f"{MAPS}/m004", {"data": {"n": str(number)}})).ok()
            answer = await api.get(MAPS, limit=2, **{"continue": first["metadata"]["continue"]})
            assert (answer.status, answer.reason) == (410, "Expired")
            fresh = answer.json["metadata"]["continue"]
            rest = (await api.get(MAPS, **{"continue": fresh})).ok()
            assert names(rest) == ["m002", "m003", "m004", "m005"]
            assert rest["items"][2]["data"] == {"n": "9"}

    @pytest.mark.parametrize(
        "token",
        [
            "abc",
            "%%%",
            base64.urlsafe_b64encode(b'{"v":"v9","rv":1,"start":"a"}').decode(),
            base64.urlsafe_b64encode(b'{"v":"meta.k8s.io/v1","rv":0,"start":"a"}').decode(),
            base64.urlsafe_b64encode(b'{"v":"meta.k8s.io/v1","rv":1,"start":""}').decode(),
        ],
    )
    async def test_broken_tokens(self, api: Api, token: str) -> None:
        answer = await api.get(MAPS, **{"continue": token})
        assert answer.status == 400
        assert "continue key is not valid" in answer.message

    async def test_tokens_and_versions_exclude_one_another(self, api: Api) -> None:
        await fill(api, 3)
        token = (await api.get(MAPS, limit=1)).ok()["metadata"]["continue"]
        answer = await api.get(MAPS, resourceVersion="5", **{"continue": token})
        assert answer.message == "specifying resource version is not allowed when using continue"

    async def test_version_zero_ignores_the_limit(self, api: Api) -> None:
        await fill(api, 5)
        listed = (await api.get(MAPS, limit=2, resourceVersion="0")).ok()
        assert len(listed["items"]) == 5


class TestVersions:
    async def test_exact_version(self, api: Api) -> None:
        await fill(api, 2)
        then = str(api.store.rv)
        (await api.delete(f"{MAPS}/m000")).ok()
        exact = (await api.get(MAPS, resourceVersion=then, resourceVersionMatch="Exact")).ok()
        assert (names(exact), exact["metadata"]["resourceVersion"]) == (["m000", "m001"], then)
        limited = (await api.get(MAPS, resourceVersion=then, limit=5)).ok()
        assert names(limited) == ["m000", "m001"]
        newer = (await api.get(MAPS, resourceVersion=then)).ok()
        assert names(newer) == ["m001"]
        await api.store.compact("main", api.store.rv)
        answer = await api.get(MAPS, resourceVersion=then, resourceVersionMatch="Exact")
        assert (answer.status, answer.reason) == (410, "Expired")

    @pytest.mark.parametrize(
        ("text", "why"),
        [("1e3", "invalid syntax"), ("9" * 20, "value out of range"), ("9" * 5000, "out of range")],
    )
    async def test_no_versions(self, api: Api, text: str, why: str) -> None:
        answer = await api.get(MAPS, resourceVersion=text)
        assert (answer.status, answer.reason) == (400, "BadRequest")
        assert answer.message.endswith(why)

    async def test_read_waits_for_a_future_version(self, api: Api) -> None:
        wanted = str(api.store.rv + 1)
        waiting = asyncio.ensure_future(api.get(MAPS, resourceVersion=wanted))
        await asyncio.sleep(0.01)
        assert not waiting.done()
        (await api.post(MAPS, config_map("m"))).ok(201)
        assert names((await waiting).ok()) == ["m"]

    @pytest.mark.parametrize("path", [MAPS, f"{MAPS}/m"])
    async def test_read_of_a_future_version_times_out(self, api: Api, path: str) -> None:
        (await api.post(MAPS, config_map("m"))).ok(201)
        now = api.store.rv
        waiting = asyncio.ensure_future(api.get(path, resourceVersion="99999999"))
        await api.asleep()
        await api.clock.advance(2.9)
        assert not waiting.done()
        await api.clock.advance(0.2)
        answer = await waiting
        assert answer.status == 504
        assert answer.headers["retry-after"] == "1"
        assert answer.message == f"Timeout: Too large resource version: 99999999, current: {now}"
        assert answer.json["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"

    @pytest.mark.parametrize(
        ("query", "status"),
        [
            ({"resourceVersionMatch": "Exact"}, 422),
            ({"resourceVersionMatch": "Exact", "resourceVersion": "0"}, 422),
            ({"resourceVersionMatch": "Sometime", "resourceVersion": "1"}, 422),
            ({"sendInitialEvents": "true"}, 422),
            ({"resourceVersion": "abc"}, 400),
            ({"limit": "abc"}, 400),
            ({"limit": "-3"}, 200),
            ({"resourceVersionMatch": "NotOlderThan", "resourceVersion": "1"}, 200),
        ],
    )
    async def test_options_are_checked(self, api: Api, query: dict[str, str], status: int) -> None:
        answer = await api.get(MAPS, **query)
        assert answer.status == status
        if status == 422:
            assert answer.json["details"]["kind"] == "ListOptions"
