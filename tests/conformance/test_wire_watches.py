"""Watches: from a version, from now, WatchList, bookmarks, selectors, tables, 410."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import pytest
from clusters import Cluster, pod

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"


@pytest.fixture
def secrets(ns: str) -> str:
    """The path of the secrets in a fresh namespace: nobody else writes any (a real cluster puts a config map)."""
    return f"/api/v1/namespaces/{ns}/secrets"


def secret(name: str, data: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Values of ``data`` are base64."""
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": dict(data or {})}


def brief(events: list[tuple[str, Any]]) -> list[tuple[str, str]]:
    """(type, name) without bookmarks."""
    return [(kind, obj["metadata"]["name"]) for kind, obj in events if kind != "BOOKMARK"]


def now(api: Cluster, path: str) -> str:
    return api.get(path).ok()["metadata"]["resourceVersion"]


class TestFromAVersion:
    def test_every_change_after_it_in_order(self, api: Cluster, secrets: str) -> None:
        api.post(secrets, secret("before")).ok(201)
        rv = now(api, secrets)
        api.post(secrets, secret("a", {"k": "AAAA"})).ok(201)
        api.patch(f"{secrets}/a", {"data": {"k": "BBBB"}}).ok()
        last = api.get(f"{secrets}/a").ok()
        api.delete(f"{secrets}/a").ok()
        events = api.watch(secrets, f"resourceVersion={rv}", count=3)
        assert brief(events) == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]
        versions = [int(obj["metadata"]["resourceVersion"]) for _, obj in events]
        assert versions == sorted(set(versions))
        assert versions[0] > int(rv)
        gone = events[2][1]
        assert (gone["kind"], gone["apiVersion"], gone["data"]) == ("Secret", "v1", {"k": "BBBB"})
        assert int(gone["metadata"]["resourceVersion"]) > int(last["metadata"]["resourceVersion"])

    def test_live(self, api: Cluster, secrets: str) -> None:
        watch = api.watching(secrets, f"resourceVersion={now(api, secrets)}")
        api.post(secrets, secret("a")).ok(201)
        kind, obj = next(watch)
        assert (kind, obj["metadata"]["name"]) == ("ADDED", "a")
        api.delete(f"{secrets}/a").ok()
        assert next(watch)[0] == "DELETED"
        watch.close()  # type: ignore[attr-defined]

    def test_one_object_by_name(self, api: Cluster, secrets: str) -> None:
        rv = now(api, secrets)
        for name in "abc":
            api.post(secrets, secret(name)).ok(201)
        query = f"resourceVersion={rv}&fieldSelector={quote('metadata.name=b')}"
        assert brief(api.watch(secrets, query, count=1)) == [("ADDED", "b")]

    def test_other_namespaces_are_not_seen(self, api: Cluster, secrets: str) -> None:
        other = f"/api/v1/namespaces/{api.new_namespace()}/secrets"
        rv = now(api, secrets)
        api.post(other, secret("other")).ok(201)
        api.post(secrets, secret("mine")).ok(201)
        names = [name for _, name in brief(api.watch(secrets, f"resourceVersion={rv}", count=1))]
        assert names == ["mine"]

    def test_a_watch_ends_by_its_time_with_a_plain_end(self, api: Cluster, secrets: str) -> None:
        assert list(api.watching(secrets, f"resourceVersion={now(api, secrets)}", seconds=1)) == []

    def test_headers(self, api: Cluster, secrets: str) -> None:
        answer = api.get(secrets, f"watch=true&timeoutSeconds=1&resourceVersion={now(api, secrets)}")
        assert answer.status == 200
        assert answer.headers["content-type"] == "application/json"
        assert answer.headers["transfer-encoding"] == "chunked"

    def test_a_version_that_is_forgotten(self, api: Cluster, secrets: str) -> None:
        old = now(api, secrets)
        for number in range(3):
            api.post(secrets, secret(f"c{number}")).ok(201)
        api.forget_history()
        events = list(api.watching(secrets, f"resourceVersion={old}"))
        ((kind, status),) = events
        assert kind == "ERROR"
        assert (status["kind"], status["code"], status["reason"]) == ("Status", 410, "Expired")
        assert status["message"].startswith(f"too old resource version: {old} (")
        exact = api.get(secrets, f"resourceVersion={old}&resourceVersionMatch=Exact")
        assert (exact.status, exact.json["reason"]) == (410, "Expired")
        assert exact.json["message"] == "The resourceVersion for the provided list is too old."
        assert api.watch(secrets, f"resourceVersion={now(api, secrets)}", count=0) == []

    def test_a_version_of_the_future_is_silent(self, api: Cluster, secrets: str) -> None:
        assert api.watch(secrets, "resourceVersion=99999999", count=0) == []


class TestFromNow:
    @pytest.mark.parametrize("query", ["", "resourceVersion=0"])
    def test_what_is_there_comes_first(self, api: Cluster, pods: str, query: str) -> None:
        for name in "ba":
            api.post(pods, pod(name)).ok(201)
        assert sorted(brief(api.watch(pods, query, count=2))) == [("ADDED", "a"), ("ADDED", "b")]


class TestWatchList:
    QUERY = "sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan"

    def test_objects_then_the_marked_bookmark_then_changes(self, api: Cluster, pods: str) -> None:
        for name in "ab":
            api.post(pods, pod(name)).ok(201)
        rv = now(api, pods)
        watch = api.watching(pods, self.QUERY)
        first = [next(watch), next(watch)]
        assert brief(first) == [("ADDED", "a"), ("ADDED", "b")]
        kind, bookmark = next(watch)
        assert kind == "BOOKMARK"
        assert (bookmark["kind"], bookmark["apiVersion"]) == ("Pod", "v1")
        assert bookmark["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
        assert int(bookmark["metadata"]["resourceVersion"]) >= int(rv)
        api.post(pods, pod("c")).ok(201)
        kind, obj = next(watch)
        assert (kind, obj["metadata"]["name"]) == ("ADDED", "c")
        watch.close()  # type: ignore[attr-defined]

    def test_at_least_a_version(self, api: Cluster, pods: str) -> None:
        api.post(pods, pod("a")).ok(201)
        events = api.watch(pods, f"{self.QUERY}&resourceVersion={now(api, pods)}", count=1, bookmarks=1)
        assert brief(events) == [("ADDED", "a")]

    def test_an_empty_collection(self, api: Cluster, pods: str) -> None:
        kind, bookmark = next(api.watching(pods, self.QUERY))
        assert (kind, bookmark["metadata"]["annotations"]) == (
            "BOOKMARK",
            {"k8s.io/initial-events-end": "true"},
        )

    def test_selectors(self, api: Cluster, pods: str) -> None:
        api.post(pods, pod("a", metadata={"labels": {"x": "1"}})).ok(201)
        api.post(pods, pod("b")).ok(201)
        assert brief(api.watch(pods, f"{self.QUERY}&labelSelector=x", count=1)) == [("ADDED", "a")]

    @pytest.mark.parametrize(
        "query",
        [
            "sendInitialEvents=true&allowWatchBookmarks=true",
            "sendInitialEvents=true&resourceVersionMatch=Exact&resourceVersion=1",
        ],
    )
    def test_the_parameters_belong_together(self, api: Cluster, pods: str, query: str) -> None:
        answer = api.get(pods, f"watch=true&timeoutSeconds=1&{query}")
        assert (answer.status, answer.json["reason"]) == (422, "Invalid")
        assert answer.json["details"]["kind"] == "ListOptions"

    def test_custom_kinds(self, api: Cluster, ns: str) -> None:
        path = f"/apis/scheduling.volcano.sh/v1beta1/namespaces/{ns}/podgroups"
        group = {
            "apiVersion": "scheduling.volcano.sh/v1beta1",
            "kind": "PodGroup",
            "metadata": {"name": "g"},
            "spec": {"minMember": 1},
        }
        api.post(path, group).ok(201)
        events = api.watch(path, self.QUERY, count=1, bookmarks=1)
        assert [(kind, obj["kind"]) for kind, obj in events[:2]] == [
            ("ADDED", "PodGroup"),
            ("BOOKMARK", "PodGroup"),
        ]


class TestBookmarks:
    def test_before_the_end(self, api: Cluster, secrets: str) -> None:
        """Shortly before its time is over a watch says how far it came."""
        rv = now(api, secrets)
        api.post(secrets, secret("a")).ok(201)
        api.delete(f"{secrets}/a").ok()
        other = f"/api/v1/namespaces/{api.new_namespace()}/secrets"
        watch = api.watching(secrets, f"resourceVersion={rv}&allowWatchBookmarks=true", seconds=8)
        events = [next(watch), next(watch)]
        api.post(other, secret("elsewhere")).ok(201)  # a real server repeats no version it has sent
        kind, bookmark = list(watch)[-1]
        assert kind == "BOOKMARK"
        assert set(bookmark) == {"kind", "apiVersion", "metadata"}
        assert set(bookmark["metadata"]) - {"creationTimestamp"} == {"resourceVersion"}
        assert int(bookmark["metadata"]["resourceVersion"]) >= int(
            events[1][1]["metadata"]["resourceVersion"]
        )

    def test_none_unless_asked_for(self, api: Cluster, secrets: str) -> None:
        rv = now(api, secrets)
        api.post(secrets, secret("a")).ok(201)
        events = list(api.watching(secrets, f"resourceVersion={rv}", seconds=3))
        assert [kind for kind, _ in events] == ["ADDED"]


class TestSelection:
    def test_an_object_that_enters_and_leaves_a_selection(self, api: Cluster, secrets: str) -> None:
        rv = now(api, secrets)
        api.post(secrets, secret("a")).ok(201)
        api.patch(f"{secrets}/a", {"metadata": {"labels": {"x": "1"}}}).ok()
        api.patch(f"{secrets}/a", {"data": {"k": "CCCC"}}).ok()
        left = api.patch(f"{secrets}/a", {"metadata": {"labels": {"x": None}}}).ok()
        api.delete(f"{secrets}/a").ok()
        events = api.watch(secrets, f"resourceVersion={rv}&labelSelector=x", count=3)
        assert brief(events) == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]
        gone = events[2][1]
        assert gone["metadata"]["labels"] == {"x": "1"}
        assert gone["metadata"]["resourceVersion"] == left["metadata"]["resourceVersion"]

    def test_fields(self, api: Cluster, pods: str) -> None:
        rv = now(api, pods)
        api.post(pods, pod("a")).ok(201)
        api.post(f"{pods}/a/binding", {"target": {"kind": "Node", "name": "n9"}, "metadata": {"name": "a"}})
        events = api.watch(pods, f"resourceVersion={rv}&fieldSelector=spec.nodeName%3Dn9", count=1)
        assert brief(events) == [("ADDED", "a")]
        events = api.watch(pods, f"resourceVersion={rv}&fieldSelector=spec.nodeName%3D", count=2)
        assert brief(events) == [("ADDED", "a"), ("DELETED", "a")]


class TestTables:
    def test_rows_in_events(self, api: Cluster, pods: str) -> None:
        rv = now(api, pods)
        api.post(pods, pod("a")).ok(201)
        api.patch(f"{pods}/a", {"metadata": {"labels": {"x": "1"}}}).ok()
        events = api.watch(pods, f"resourceVersion={rv}", accept=TABLE, count=2)
        kinds = [(kind, table["kind"]) for kind, table in events]
        assert kinds == [("ADDED", "Table"), ("MODIFIED", "Table")]
        first, second = (table for _, table in events)
        assert [column["name"] for column in first["columnDefinitions"]][:3] == ["Name", "Ready", "Status"]
        assert second["columnDefinitions"] is None
        assert first["rows"][0]["cells"][0] == "a"
        assert first["rows"][0]["object"]["kind"] == "PartialObjectMetadata"

    def test_an_error_is_a_status(self, api: Cluster, secrets: str) -> None:
        old = now(api, secrets)
        api.post(secrets, secret("a")).ok(201)
        api.forget_history()
        ((kind, status),) = api.watching(secrets, f"resourceVersion={old}", accept=TABLE)
        assert (kind, status["kind"], status["code"]) == ("ERROR", "Status", 410)


class TestOldForms:
    def test_the_old_prefix_still_streams(self, api: Cluster, secrets: str, ns: str) -> None:
        rv = now(api, secrets)
        api.post(secrets, secret("a")).ok(201)
        path = f"/api/v1/watch/namespaces/{ns}/secrets"
        answer = api.get(path, f"timeoutSeconds=3&resourceVersion={rv}")
        assert answer.status == 200
        assert b'"type":"ADDED"' in answer.body

    def test_watch_on_one_object_is_a_plain_get(self, api: Cluster, secrets: str) -> None:
        api.post(secrets, secret("a")).ok(201)
        assert api.get(f"{secrets}/a", "watch=1").ok()["kind"] == "Secret"
