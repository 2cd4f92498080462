"""Watches: from the state, from a version, bookmarks, ends; nothing left behind."""

from __future__ import annotations

import asyncio
import gc

import pytest
from server_in_process import MAPS, PODS, TABLE, Api, binding, config_map, pod

from windlass.client.transport import Request
from windlass.server.core import ServerOptions
from windlass.server.request.users import ADMIN
from windlass.store.families import StoreOptions

END = {"k8s.io/initial-events-end": "true"}


class TestInitialEvents:
    async def test_the_state_comes_first(self, api: Api) -> None:
        for name in ("b", "a"):
            (await api.post(MAPS, config_map(name))).ok(201)
        watch = await api.watch(MAPS)
        assert await watch.names() == [("ADDED", "a"), ("ADDED", "b")]
        (await api.post(MAPS, config_map("c"))).ok(201)
        assert await watch.names() == [("ADDED", "c")]
        await watch.close()

    async def test_watch_list_ends_the_initial_state_with_a_bookmark(self, api: Api) -> None:
        (await api.post(MAPS, config_map("a"))).ok(201)
        now = str(api.store.rv)
        options = {
            "sendInitialEvents": "true",
            "resourceVersionMatch": "NotOlderThan",
            "allowWatchBookmarks": "true",
        }
        watch = await api.watch(MAPS, **options)
        (kind, _), (mark, obj) = await watch.events()
        assert (kind, mark) == ("ADDED", "BOOKMARK")
        assert obj == {
            "kind": "ConfigMap",
            "apiVersion": "v1",
            "metadata": {"resourceVersion": now, "annotations": END},
        }
        await watch.close()

    @pytest.mark.parametrize(
        ("query", "kinds"),
        [
            ({}, ["ADDED"]),
            ({"resourceVersion": "0"}, ["ADDED"]),
            ({"allowWatchBookmarks": "true"}, ["ADDED", "BOOKMARK"]),
            (
                {
                    "sendInitialEvents": "false",
                    "resourceVersionMatch": "NotOlderThan",
                    "allowWatchBookmarks": "true",
                },
                [],
            ),
            ({"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}, ["ADDED"]),
        ],
    )
    async def test_events_of_a_watch(self, api: Api, query: dict[str, str], kinds: list[str]) -> None:
        (await api.post(MAPS, config_map("a"))).ok(201)
        watch = await api.watch(MAPS, **query)
        assert [kind for kind, _ in await watch.events()] == kinds
        await watch.close()

    @pytest.mark.parametrize(
        "query",
        [
            {"sendInitialEvents": "true"},
            {"sendInitialEvents": "true", "resourceVersionMatch": "Exact"},
            {"resourceVersionMatch": "NotOlderThan", "resourceVersion": "1"},
        ],
    )
    async def test_options_are_checked(self, api: Api, query: dict[str, str]) -> None:
        answer = await api.get(MAPS, watch="1", **query)
        assert (answer.status, answer.json["details"]["kind"]) == (422, "ListOptions")

    async def test_concurrent_changes_follow_the_initial_state(self) -> None:
        async with Api(options=ServerOptions(chunk_objects=2)) as api:
            for name in "abcdef":
                (await api.post(MAPS, config_map(name))).ok(201)
            response = await api.server.handle(Request("GET", MAPS, "watch=1"), ADMIN)
            assert response.stream is not None
            lines = [await anext(response.stream)]
            (await api.delete(f"{MAPS}/f")).ok()
            lines += [await anext(response.stream) for _ in range(3)]
            text = b"".join(lines)
            assert text.count(b'"ADDED"') == 6
            assert text.count(b'"DELETED"') == 1
            assert text.index(b'"DELETED"') > text.rindex(b'"ADDED"')
            await response.stream.aclose()

    async def test_the_first_state_survives_a_ring_that_moves_on(self) -> None:
        store = StoreOptions(ring_events=3)
        async with Api(options=ServerOptions(chunk_objects=1), store=store) as api:
            for name in "abc":
                (await api.post(MAPS, config_map(name))).ok(201)
            response = await api.server.handle(Request("GET", MAPS, "watch=1"), ADMIN)
            assert response.stream is not None
            lines = [await anext(response.stream)]
            for number in range(20):
                (await api.patch(f"{MAPS}/a", {"data": {"n": str(number)}})).ok()
            while sum(line.count(b"\n") for line in lines) < 23:
                lines.append(await anext(response.stream))
            assert b"".join(lines).count(b'"MODIFIED"') == 20
            await response.stream.aclose()


class TestFromAVersion:
    async def test_watch_sends_only_newer_events(self, api: Api) -> None:
        (await api.post(MAPS, config_map("a"))).ok(201)
        since = api.store.rv
        (await api.patch(f"{MAPS}/a", {"data": {"k": "v"}})).ok()
        (await api.delete(f"{MAPS}/a")).ok()
        watch = await api.watch(MAPS, resourceVersion=since)
        assert await watch.names() == [("MODIFIED", "a"), ("DELETED", "a")]
        await watch.close()

    async def test_expired_version_is_reported_in_the_stream(self, api: Api) -> None:
        (await api.post(MAPS, config_map("a"))).ok(201)
        await api.store.compact("main", api.store.rv)
        for accept in ("", TABLE):
            watch = await api.watch(MAPS, accept=accept, resourceVersion=1)
            ((kind, status),) = await watch.events()
            assert kind == "ERROR"
            assert (status["kind"], status["code"], status["reason"]) == ("Status", 410, "Expired")
            assert status["message"] == f"too old resource version: 1 ({api.store.rv})"
            assert watch.ended

    async def test_the_future_is_silent(self, api: Api) -> None:
        watch = await api.watch(MAPS, resourceVersion=api.store.rv + 1)
        (await api.post(MAPS, config_map("a"))).ok(201)
        assert await watch.events() == []
        (await api.post(MAPS, config_map("b"))).ok(201)
        assert await watch.names() == [("ADDED", "b")]
        await watch.close()

    async def test_pods_enter_and_leave_a_selection(self, api: Api) -> None:
        watch = await api.watch(
            "/api/v1/pods", resourceVersion=api.store.rv, fieldSelector="spec.nodeName=n1"
        )
        (await api.post(PODS, pod("p"))).ok(201)
        (await api.post(f"{PODS}/p/binding", binding("p", "n1"))).ok(201)
        assert await watch.names() == [("ADDED", "p")]
        labelled = await api.watch(PODS, resourceVersion=api.store.rv, labelSelector="!gone")
        (await api.patch(f"{PODS}/p", {"metadata": {"labels": {"gone": "yes"}}})).ok()
        ((kind, obj),) = await labelled.events()
        assert kind == "DELETED"
        assert "labels" not in obj["metadata"]
        assert obj["metadata"]["resourceVersion"] == str(api.store.rv)
        await watch.close()
        await labelled.close()

    async def test_one_namespace_and_one_name(self, api: Api) -> None:
        since = api.store.rv
        mine = await api.watch(MAPS, resourceVersion=since, fieldSelector="metadata.name=a")
        old = await api.watch("/api/v1/watch/namespaces/default/configmaps/a", resourceVersion=since)
        everywhere = await api.watch("/api/v1/configmaps", resourceVersion=since)
        for path in (MAPS, MAPS.replace("default", "kube-system")):
            for name in ("a", "b"):
                (await api.post(path, config_map(name))).ok(201)
        assert await mine.names() == [("ADDED", "a")]
        assert await old.names() == [("ADDED", "a")]
        assert len(await everywhere.names()) == 4
        for watch in (mine, old, everywhere):
            await watch.close()

    async def test_watchers_share_the_bytes(self, api: Api) -> None:
        responses = [
            await api.server.handle(
                Request("GET", "/api/v1/configmaps", f"watch=1&resourceVersion={api.store.rv}"), ADMIN
            )
            for _ in range(3)
        ]
        waiting = [asyncio.ensure_future(anext(r.stream)) for r in responses if r.stream is not None]
        await asyncio.sleep(0)
        (await api.post(MAPS, config_map("a"))).ok(201)
        await asyncio.gather(*waiting)
        waiting = [asyncio.ensure_future(anext(r.stream)) for r in responses if r.stream is not None]
        await asyncio.sleep(0)
        (await api.post(MAPS, config_map("b"))).ok(201)
        chunks = await asyncio.gather(*waiting)
        assert chunks[0] is chunks[1] is chunks[2]
        for response in responses:
            assert response.stream is not None
            await response.stream.aclose()


class TestTime:
    async def test_bookmarks_come_every_minute_and_before_the_end(self, api: Api) -> None:
        watch = await api.watch(
            MAPS, resourceVersion=api.store.rv, allowWatchBookmarks="true", timeoutSeconds=150
        )
        assert await watch.events() == []
        await api.clock.advance(59)
        assert await watch.events() == []
        await api.clock.advance(1.1)
        (await api.post(PODS, pod("p"))).ok(201)
        ((kind, obj),) = await watch.events()
        assert kind == "BOOKMARK"
        assert set(obj) == {"kind", "apiVersion", "metadata"}
        await api.clock.advance(60)
        ((_, obj),) = await watch.events()
        assert obj["metadata"] == {"resourceVersion": str(api.store.rv)}
        await api.clock.advance(29)
        assert [kind for kind, _ in await watch.events()] == ["BOOKMARK"]
        assert not watch.ended
        await api.clock.advance(2)
        assert await watch.events() == []
        assert watch.ended

    async def test_bookmarks_are_sent_only_on_request(self, api: Api) -> None:
        watch = await api.watch(MAPS, resourceVersion=api.store.rv, timeoutSeconds=100)
        assert await watch.events() == []
        await api.clock.advance(99)
        assert await watch.events() == []
        await api.clock.advance(2)
        assert await watch.events() == []
        assert watch.ended

    async def test_a_busy_watch_ends_in_time(self, api: Api) -> None:
        watch = await api.watch(MAPS, resourceVersion=api.store.rv, timeoutSeconds=10)
        for number in range(12):
            (await api.post(MAPS, config_map(f"m{number}"))).ok(201)
            await api.clock.advance(1)
        assert len(await watch.events()) == 10
        assert watch.ended

    async def test_the_server_chooses_an_end(self, api: Api) -> None:
        watch = await api.watch(MAPS, resourceVersion=api.store.rv)
        await watch.events()
        await api.clock.advance(1799)
        await watch.events()
        assert not watch.ended
        await api.clock.advance(1802)
        await watch.events()
        assert watch.ended

    async def test_the_server_stops(self, api: Api) -> None:
        watch = await api.watch(MAPS, resourceVersion=api.store.rv)
        await watch.events()
        api.server.stop()
        await watch.events()
        assert watch.ended


class TestNothingIsLeft:
    async def test_closed_watches(self, api: Api) -> None:
        before = len(asyncio.all_tasks())
        watches = [await api.watch(MAPS, allowWatchBookmarks="true") for _ in range(20)]
        for watch in watches:
            await watch.events()
        assert api.server.core.open_watches == 20
        assert api.store.watchers() == {"configmaps": 20}
        for watch in watches:
            await watch.close()
        await asyncio.sleep(0)
        assert api.server.core.open_watches == 0
        assert api.store.watchers() == {}
        assert len(asyncio.all_tasks()) == before

    async def test_abandoned_watches(self, api: Api) -> None:
        before = len(asyncio.all_tasks())
        response = await api.server.handle(Request("GET", MAPS, "watch=1&allowWatchBookmarks=true"), ADMIN)
        assert response.stream is not None
        await anext(response.stream)
        del response
        gc.collect()
        for _ in range(5):
            await asyncio.sleep(0)
        assert api.store.watchers() == {}
        assert len(asyncio.all_tasks()) == before

    async def test_watches_that_never_began(self, api: Api) -> None:
        response = await api.server.handle(Request("GET", MAPS, "watch=1"), ADMIN)
        assert response.stream is not None
        await response.stream.aclose()
        assert api.server.core.open_watches == 0


class TestForms:
    async def test_watch_sends_table_columns_once(self, api: Api) -> None:
        (await api.post(MAPS, config_map("a"))).ok(201)
        watch = await api.watch(MAPS, accept=TABLE)
        (await api.post(MAPS, config_map("b"))).ok(201)
        (_, first), (_, second) = await watch.events()
        assert [column["name"] for column in first["columnDefinitions"]] == ["Name", "Data", "Age"]
        assert second["columnDefinitions"] is None
        await watch.close()

    async def test_metadata_only(self, api: Api) -> None:
        accept = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
        (await api.post(MAPS, config_map("a", k="v"))).ok(201)
        watch = await api.watch(MAPS, accept=accept, allowWatchBookmarks="true")
        (_, obj), (_, mark) = await watch.events()
        assert (obj["kind"], "data" in obj) == ("PartialObjectMetadata", False)
        assert mark["metadata"]["annotations"] == END
        await watch.close()

    async def test_yaml_watch_gets_406(self, api: Api) -> None:
        answer = await api.get(MAPS, watch="1", accept="application/yaml")
        assert answer.status == 406
        assert b"kind: Status" in answer.body
