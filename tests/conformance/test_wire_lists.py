"""Collections: lists, pages, selectors, versions, tables, metadata only."""

from __future__ import annotations

import base64
import json
from typing import Any
from urllib.parse import quote

import pytest
from clusters import Cluster, config_map, pod, status_of

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
PARTIAL = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io,application/json"
PARTIAL_LIST = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json"


def names(collection: dict[str, Any]) -> list[str]:
    found = [item["metadata"]["name"] for item in collection["items"]]
    return [name for name in found if name != "kube-root-ca.crt"]


@pytest.fixture
def five(api: Cluster, pods: str) -> str:
    """A collection of the pods a … e."""
    for index, name in enumerate("abcde"):
        labels = {"n": str(index), "odd": "yes"} if index % 2 else {"n": str(index)}
        api.post(pods, pod(name, metadata={"labels": labels})).ok(201)
    return pods


class TestList:
    def test_shape_and_order(self, api: Cluster, five: str) -> None:
        answer = api.get(five)
        listed = answer.ok()
        assert (listed["kind"], listed["apiVersion"]) == ("PodList", "v1")
        assert int(listed["metadata"]["resourceVersion"]) > 0
        assert "continue" not in listed["metadata"]
        assert names(listed) == list("abcde")
        assert "kind" not in listed["items"][0]
        assert answer.headers["content-type"] == "application/json"
        assert answer.headers["cache-control"] == "no-cache, private"
        assert answer.headers["audit-id"]

    def test_empty(self, api: Cluster, pods: str) -> None:
        assert api.get(pods).ok()["items"] == []
        assert api.get("/api/v1/namespaces/no-such-namespace/pods").ok()["items"] == []

    def test_all_namespaces(self, api: Cluster, five: str, ns: str) -> None:
        listed = api.get("/api/v1/pods", "fieldSelector=" + quote(f"metadata.namespace={ns}")).ok()
        assert names(listed) == list("abcde")

    @pytest.mark.parametrize(
        ("selector", "expected"),
        [
            ("n=1", "b"),
            ("n==1", "b"),
            ("n!=1", "acde"),
            ("n in (1,2)", "bc"),
            ("n notin (1, 2)", "ade"),
            ("odd", "bd"),
            ("!odd", "ace"),
            ("odd,n!=1", "d"),
            ("n=9", ""),
        ],
    )
    def test_label_selectors(self, api: Cluster, five: str, selector: str, expected: str) -> None:
        listed = api.get(five, f"labelSelector={quote(selector)}").ok()
        assert "".join(names(listed)) == expected

    @pytest.mark.parametrize(
        ("selector", "expected"),
        [
            ("metadata.name=b", "b"),
            ("metadata.name!=b", "acde"),
            ("spec.nodeName=", "abcde"),
            ("spec.schedulerName=nobody,status.phase!=Running", "abcde"),
            ("status.phase=Running", ""),
            ("spec.restartPolicy=Never,metadata.name=c", "c"),
        ],
    )
    def test_field_selectors(self, api: Cluster, five: str, selector: str, expected: str) -> None:
        listed = api.get(five, f"fieldSelector={quote(selector)}").ok()
        assert "".join(names(listed)) == expected

    @pytest.mark.parametrize(
        ("path", "query", "message"),
        [
            ("pods", "fieldSelector=spec.x%3D1", "field label not supported: spec.x"),
            (
                "configmaps",
                "fieldSelector=data.x%3D1",
                '"data.x" is not a known field selector: only "metadata.name", "metadata.namespace"',
            ),
            ("pods", "fieldSelector=a%3E%3E1", "invalid selector: 'a>>1'; can't understand 'a>>1'"),
        ],
    )
    def test_bad_field_selectors(self, api: Cluster, path: str, query: str, message: str) -> None:
        answer = api.get(f"/api/v1/{path}", query)
        assert (answer.status, answer.json["reason"]) == (400, "BadRequest")
        assert message in answer.json["message"]

    def test_a_bad_label_selector(self, api: Cluster) -> None:
        answer = api.get("/api/v1/pods", "labelSelector=a%3D%3D%3Db")
        assert (answer.status, answer.json["reason"]) == (400, "BadRequest")
        assert "unable to parse requirement: found '=', expected: identifier" in answer.json["message"]


class TestPages:
    def test_pages_show_one_moment(self, api: Cluster, five: str) -> None:
        first = api.get(five, "limit=2").ok()
        assert names(first) == ["a", "b"]
        assert first["metadata"]["remainingItemCount"] == 3
        rv = first["metadata"]["resourceVersion"]
        api.post(five, pod("bb")).ok(201)
        api.delete(f"{five}/e").ok()
        second = api.get(five, f"limit=2&continue={quote(first['metadata']['continue'])}").ok()
        assert (names(second), second["metadata"]["resourceVersion"]) == (["c", "d"], rv)
        third = api.get(five, f"limit=2&continue={quote(second['metadata']['continue'])}").ok()
        assert names(third) == ["e"]
        assert "continue" not in third["metadata"]
        assert "remainingItemCount" not in third["metadata"]

    def test_the_token(self, api: Cluster, five: str) -> None:
        token = api.get(five, "limit=2").ok()["metadata"]["continue"]
        decoded = json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
        assert decoded["v"] == "meta.k8s.io/v1"
        assert decoded["start"].removeprefix("/") == "b\x00"
        assert isinstance(decoded["rv"], int)

    def test_with_a_selector_nothing_is_said_about_the_rest(self, api: Cluster, five: str) -> None:
        page = api.get(five, "limit=1&labelSelector=odd").ok()
        assert names(page) == ["b"]
        assert "remainingItemCount" not in page["metadata"]
        rest = api.get(five, f"limit=9&labelSelector=odd&continue={quote(page['metadata']['continue'])}").ok()
        assert names(rest) == ["d"]

    def test_limits_that_are_none(self, api: Cluster, five: str) -> None:
        assert len(names(api.get(five, "limit=-1").ok())) == 5
        assert len(names(api.get(five, "limit=0").ok())) == 5
        assert len(names(api.get(five, "limit=2&resourceVersion=0").ok())) == 5
        assert api.get(five, "limit=abc").status == 400

    def test_bad_tokens(self, api: Cluster, five: str) -> None:
        answer = api.get(five, "limit=2&continue=garbage")
        assert (answer.status, answer.json["reason"]) == (400, "BadRequest")
        token = api.get(five, "limit=2").ok()["metadata"]["continue"]
        answer = api.get(five, f"limit=2&resourceVersion=5&continue={quote(token)}")
        assert answer.status in (400, 422)
        assert "specifying resource version is not allowed when using continue" in answer.json["message"]


class TestVersions:
    def test_any_version_and_at_least(self, api: Cluster, five: str) -> None:
        rv = api.get(five).ok()["metadata"]["resourceVersion"]
        assert len(names(api.get(five, "resourceVersion=0").ok())) == 5
        for query in (f"resourceVersion={rv}", f"resourceVersion={rv}&resourceVersionMatch=NotOlderThan"):
            listed = api.get(five, query).ok()
            assert len(names(listed)) == 5
            assert int(listed["metadata"]["resourceVersion"]) >= int(rv)

    def test_exactly(self, api: Cluster, five: str) -> None:
        rv = api.get(five).ok()["metadata"]["resourceVersion"]
        api.delete(f"{five}/a").ok()
        listed = api.get(five, f"resourceVersion={rv}&resourceVersionMatch=Exact").ok()
        assert names(listed) == list("abcde")
        assert listed["metadata"]["resourceVersion"] == rv

    @pytest.mark.parametrize("path", ["", "/a"])
    def test_a_version_of_the_future(self, api: Cluster, five: str, path: str) -> None:
        answer = api.get(five + path, "resourceVersion=99999999")
        assert answer.status == 504
        body = answer.json
        assert body["reason"] == "Timeout"
        assert body["message"].startswith("Timeout: Too large resource version: 99999999, current: ")
        assert body["details"] == {
            "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
            "retryAfterSeconds": 1,
        }
        assert answer.headers["retry-after"] == "1"

    @pytest.mark.parametrize(
        "query",
        [
            "resourceVersionMatch=Exact",
            "resourceVersion=0&resourceVersionMatch=Exact",
            "resourceVersion=5&resourceVersionMatch=Nearly",
        ],
    )
    def test_bad_matches(self, api: Cluster, five: str, query: str) -> None:
        answer = api.get(five, query)
        assert (answer.status, answer.json["reason"]) == (422, "Invalid")
        details = answer.json["details"]
        assert (details["kind"], details["group"]) == ("ListOptions", "meta.k8s.io")

    def test_no_number(self, api: Cluster, five: str) -> None:
        assert api.get(five, "resourceVersion=abc").status == 400


class TestTable:
    def test_pods(self, api: Cluster, five: str) -> None:
        table = api.get(five, accept=TABLE).ok()
        assert (table["kind"], table["apiVersion"]) == ("Table", "meta.k8s.io/v1")
        columns = table["columnDefinitions"]
        assert [column["name"] for column in columns] == [
            "Name",
            "Ready",
            "Status",
            "Restarts",
            "Age",
            "IP",
            "Node",
            "Nominated Node",
            "Readiness Gates",
        ]
        assert [column["priority"] for column in columns] == [0, 0, 0, 0, 0, 1, 1, 1, 1]
        assert (columns[0]["type"], columns[0]["format"]) == ("string", "name")
        row = table["rows"][0]
        assert row["cells"][:4] == ["a", "0/1", "Pending", "0"]
        assert row["cells"][5:] == ["<none>"] * 4
        assert row["object"]["kind"] == "PartialObjectMetadata"
        assert row["object"]["metadata"]["name"] == "a"
        assert "spec" not in row["object"]
        assert table["metadata"]["resourceVersion"]

    def test_pages(self, api: Cluster, five: str) -> None:
        table = api.get(five, "limit=2", accept=TABLE).ok()
        assert len(table["rows"]) == 2
        assert table["metadata"]["remainingItemCount"] == 3
        rest = api.get(five, f"limit=5&continue={quote(table['metadata']['continue'])}", accept=TABLE).ok()
        assert [row["cells"][0] for row in rest["rows"]] == ["c", "d", "e"]

    def test_one_object(self, api: Cluster, five: str) -> None:
        table = api.get(f"{five}/b", accept=TABLE).ok()
        assert [row["cells"][0] for row in table["rows"]] == ["b"]

    @pytest.mark.parametrize(
        ("include", "present", "spec"),
        [("None", False, False), ("Metadata", True, False), ("Object", True, True)],
    )
    def test_what_is_included(self, api: Cluster, five: str, include: str, present: bool, spec: bool) -> None:
        row = api.get(five, f"includeObject={include}", accept=TABLE).ok()["rows"][0]
        assert (row.get("object") is not None) == present
        if present:
            assert ("spec" in row["object"]) == spec

    def test_an_empty_table(self, api: Cluster, pods: str) -> None:
        assert not api.get(pods, accept=TABLE).ok().get("rows")

    def test_config_maps_and_namespaces(self, api: Cluster, maps: str, ns: str) -> None:
        api.post(maps, config_map("a", {"x": "1", "y": "2"})).ok(201)
        table = api.get(f"{maps}/a", accept=TABLE).ok()
        assert [column["name"] for column in table["columnDefinitions"]] == ["Name", "Data", "Age"]
        assert table["rows"][0]["cells"][:2] == ["a", 2]
        table = api.get(f"/api/v1/namespaces/{ns}", accept=TABLE).ok()
        assert [column["name"] for column in table["columnDefinitions"]] == ["Name", "Status", "Age"]
        assert table["rows"][0]["cells"][:2] == [ns, "Active"]

    def test_an_error_is_a_status(self, api: Cluster, pods: str) -> None:
        answer = api.get(f"{pods}/none", accept=TABLE)
        expected = status_of(404, "NotFound", 'pods "none" not found', {"name": "none", "kind": "pods"})
        assert (answer.status, answer.json) == (404, expected)


class TestPartial:
    def test_list(self, api: Cluster, five: str) -> None:
        listed = api.get(five, accept=PARTIAL_LIST).ok()
        assert (listed["kind"], listed["apiVersion"]) == ("PartialObjectMetadataList", "meta.k8s.io/v1")
        item = listed["items"][1]
        assert (item["kind"], item["apiVersion"]) == ("PartialObjectMetadata", "meta.k8s.io/v1")
        assert item["metadata"]["labels"] == {"n": "1", "odd": "yes"}
        assert set(item) == {"kind", "apiVersion", "metadata"}

    def test_object(self, api: Cluster, five: str) -> None:
        item = api.get(f"{five}/b", accept=PARTIAL).ok()
        assert (item["kind"], item["metadata"]["name"]) == ("PartialObjectMetadata", "b")


class TestNegotiation:
    def test_unknown_forms(self, api: Cluster, pods: str) -> None:
        answer = api.get(pods, accept="text/html")
        assert answer.status == 406
        answer = api.get(pods, accept="application/json;as=Novel;v=v1;g=meta.k8s.io")
        assert answer.status == 406
        assert answer.json["message"].startswith(
            "only the following media types are accepted: application/json"
        )

    @pytest.mark.parametrize("accept", ["*/*", "application/json, */*", "application/json;q=0.5"])
    def test_json_is_what_anything_means(self, api: Cluster, pods: str, accept: str) -> None:
        answer = api.get(pods, accept=accept)
        assert (answer.status, answer.headers["content-type"]) == (200, "application/json")

    def test_json_for_those_who_would_rather_have_protobuf(self, api: Cluster, ns: str) -> None:
        """On custom kinds, where the real server has no protobuf either."""
        path = f"/apis/scheduling.volcano.sh/v1beta1/namespaces/{ns}/podgroups"
        answer = api.get(path, accept="application/vnd.kubernetes.protobuf,application/json")
        assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
