"""JSON patch, merge patch, strategic merge patch, apply; on objects and on subresources."""

from __future__ import annotations

from typing import Any

import pytest
from clusters import APPLY, JSON_PATCH, MERGE, STRATEGIC, Cluster, config_map, pod, status_of
from server_deviations import deviates
from volcanoobjects import group

GROUPS = "/apis/scheduling.volcano.sh/v1beta1/namespaces/{}/podgroups"


class TestMerge:
    def test_null_removes_and_lists_are_replaced(self, api: Cluster, maps: str) -> None:
        api.post(maps, config_map("a", {"x": "1", "y": "2"}, finalizers=["ex.io/a", "ex.io/b"])).ok(201)
        body = {"data": {"x": None, "z": "3"}, "metadata": {"finalizers": ["ex.io/c"]}}
        changed = api.patch(f"{maps}/a", body).ok()
        assert changed["data"] == {"y": "2", "z": "3"}
        assert changed["metadata"]["finalizers"] == ["ex.io/c"]
        api.patch(f"{maps}/a", {"metadata": {"finalizers": None}}).ok()

    def test_no_object(self, api: Cluster, maps: str) -> None:
        api.post(maps, config_map("a")).ok(201)
        answer = api.patch(f"{maps}/a", [1])
        assert (answer.status, answer.json["reason"]) == (400, "BadRequest")
        assert "cannot unmarshal array into Go value of type map[string]interface {}" in answer.text

    def test_versions(self, api: Cluster, maps: str) -> None:
        made = api.post(maps, config_map("a")).ok(201)
        api.patch(f"{maps}/a", {"data": {"k": "1"}}).ok()
        old = {"metadata": {"resourceVersion": made["metadata"]["resourceVersion"]}, "data": {"k": "2"}}
        answer = api.patch(f"{maps}/a", old)
        assert (answer.status, answer.json["reason"]) == (409, "Conflict")
        assert "the object has been modified" in answer.json["message"]

    def test_absent(self, api: Cluster, maps: str) -> None:
        answer = api.patch(f"{maps}/none", {})
        expected = status_of(
            404, "NotFound", 'configmaps "none" not found', {"name": "none", "kind": "configmaps"}
        )
        assert (answer.status, answer.json) == (404, expected)

    def test_dry_run(self, api: Cluster, maps: str) -> None:
        api.post(maps, config_map("a", {"k": "1"})).ok(201)
        assert api.patch(f"{maps}/a", {"data": {"k": "2"}}, query="dryRun=All").ok()["data"] == {"k": "2"}
        assert api.get(f"{maps}/a").ok()["data"] == {"k": "1"}

    def test_a_name_cannot_be_changed(self, api: Cluster, maps: str) -> None:
        api.post(maps, config_map("a")).ok(201)
        answer = api.patch(f"{maps}/a", {"metadata": {"name": "b"}})
        assert answer.status == 400
        assert "the name of the object (b) does not match the name on the URL (a)" in answer.json["message"]


class TestJson:
    def test_operations(self, api: Cluster, maps: str) -> None:
        api.post(maps, config_map("a", {"x": "1", "y": "2"})).ok(201)
        operations = [
            {"op": "test", "path": "/data/x", "value": "1"},
            {"op": "replace", "path": "/data/x", "value": "9"},
            {"op": "move", "from": "/data/y", "path": "/data/z"},
            {"op": "copy", "from": "/data/x", "path": "/data/w"},
            {"op": "add", "path": "/metadata/labels", "value": {"a/b~c": "d"}},
            {"op": "remove", "path": "/metadata/labels/a~1b~0c"},
            {"op": "add", "path": "/metadata/labels/e", "value": "f"},
            {"op": "replace", "path": "/data/new", "value": "n"},
        ]
        changed = api.patch(f"{maps}/a", operations, JSON_PATCH).ok()
        assert changed["data"] == {"x": "9", "z": "2", "w": "9", "new": "n"}
        assert changed["metadata"]["labels"] == {"e": "f"}

    @pytest.mark.parametrize(
        "operation",
        [
            {"op": "test", "path": "/data/x", "value": "other"},
            {"op": "remove", "path": "/data/none"},
        ],
    )
    def test_what_cannot_be_applied(self, api: Cluster, maps: str, operation: dict[str, Any]) -> None:
        api.post(maps, config_map("a", {"x": "1"})).ok(201)
        answer = api.patch(f"{maps}/a", [operation], JSON_PATCH)
        expected = status_of(
            422, "Invalid", "the server rejected our request due to an error in our request", {}
        )
        assert (answer.status, answer.json) == (422, expected)
        assert api.get(f"{maps}/a").ok()["data"] == {"x": "1"}

    def test_no_list(self, api: Cluster, maps: str) -> None:
        api.post(maps, config_map("a")).ok(201)
        assert api.patch(f"{maps}/a", {"op": "add"}, JSON_PATCH).status == 400


class TestStrategic:
    def test_lists_with_keys_are_merged(self, api: Cluster, pods: str) -> None:
        body = pod("p")
        body["spec"]["tolerations"] = [{"key": "a", "operator": "Exists", "effect": "NoSchedule"}]
        api.post(pods, body).ok(201)
        patch = {"spec": {"containers": [{"name": "main", "image": "other"}]}}
        changed = api.patch(f"{pods}/p", patch, STRATEGIC).ok()
        assert changed["spec"]["containers"][0]["image"] == "other"
        assert changed["spec"]["containers"][0]["command"] == ["sleep", "1"]

    def test_directives(self, api: Cluster, ns: str) -> None:
        path = f"/api/v1/namespaces/{ns}/services"
        ports = [{"name": "a", "port": 1}, {"name": "b", "port": 2}]
        body = {"metadata": {"name": "s"}, "spec": {"ports": ports, "selector": {"x": "1", "y": "2"}}}
        api.post(path, body).ok(201)
        patch = {
            "metadata": {"finalizers": ["ex.io/a"]},
            "spec": {
                "$setElementOrder/ports": [{"port": 3}, {"port": 1}],
                "ports": [{"port": 3, "name": "c"}, {"port": 2, "$patch": "delete"}],
                "selector": {"$patch": "replace", "z": "3"},
            },
        }
        changed = api.patch(f"{path}/s", patch, STRATEGIC).ok()
        assert [port["port"] for port in changed["spec"]["ports"]] == [3, 1]
        assert changed["spec"]["selector"] == {"z": "3"}
        patch = {"metadata": {"$deleteFromPrimitiveList/finalizers": ["ex.io/a"]}}
        changed = api.patch(f"{path}/s", patch, STRATEGIC).ok()
        assert "finalizers" not in changed["metadata"]

    def test_finalizers_are_united(self, api: Cluster, maps: str) -> None:
        api.post(maps, config_map("a", finalizers=["ex.io/a"])).ok(201)
        changed = api.patch(f"{maps}/a", {"metadata": {"finalizers": ["ex.io/b"]}}, STRATEGIC).ok()
        assert sorted(changed["metadata"]["finalizers"]) == ["ex.io/a", "ex.io/b"]
        api.patch(f"{maps}/a", {"metadata": {"finalizers": None}}).ok()

    def test_taints_of_a_node(self, api: Cluster, ns: str) -> None:
        name = f"node-{ns}"
        api.post("/api/v1/nodes", {"metadata": {"name": name}}).ok(201)
        taint = {"key": "gpu", "value": "broken", "effect": "NoSchedule"}
        changed = api.patch(f"/api/v1/nodes/{name}", {"spec": {"taints": [taint]}}, STRATEGIC).ok()
        assert taint in changed["spec"]["taints"]
        changed = api.patch(f"/api/v1/nodes/{name}", {"spec": {"unschedulable": True}}, STRATEGIC).ok()
        assert changed["spec"]["unschedulable"] is True
        api.delete(f"/api/v1/nodes/{name}").ok()

    def test_conditions_in_status_merge_by_type(self, api: Cluster, pods: str) -> None:
        api.post(pods, pod("p")).ok(201)
        for kind, value in (("A", "True"), ("B", "True"), ("A", "False")):
            patch = {"status": {"conditions": [{"type": kind, "status": value}]}}
            changed = api.patch(f"{pods}/p/status", patch, STRATEGIC).ok()
        found = {c["type"]: c["status"] for c in changed["status"]["conditions"]}
        assert found == {"A": "False", "B": "True"}

    def test_custom_kinds_do_not_have_it(self, api: Cluster, ns: str) -> None:
        path = GROUPS.format(ns)
        api.post(path, group("g")).ok(201)
        answer = api.patch(f"{path}/g", {"spec": {"minMember": 2}}, STRATEGIC)
        assert (answer.status, answer.json["reason"]) == (415, "UnsupportedMediaType")
        apply = "" if deviates(api, "server-side apply") else ", application/apply-patch+yaml"
        assert answer.json["message"] == (
            "the body of the request was in an unknown format - accepted media types include: "
            f"application/json-patch+json, application/merge-patch+json{apply}"
        )

    def test_a_patch_without_its_type(self, api: Cluster, maps: str) -> None:
        api.post(maps, config_map("a")).ok(201)
        answer = api.patch(f"{maps}/a", {}, "application/json")
        assert (answer.status, answer.json["reason"]) == (415, "UnsupportedMediaType")


class TestStatus:
    def test_status_and_spec_are_apart(self, api: Cluster, pods: str) -> None:
        made = api.post(pods, pod("p")).ok(201)
        patch = {"status": {"phase": "Running"}, "metadata": {"labels": {"x": "1"}}}
        changed = api.patch(f"{pods}/p/status", {**patch, "spec": {"activeDeadlineSeconds": 5}}).ok()
        assert changed["status"]["phase"] == "Running"
        assert "activeDeadlineSeconds" not in changed["spec"]
        assert changed["metadata"]["generation"] == made["metadata"]["generation"]
        changed = api.patch(f"{pods}/p", {"status": {"phase": "Failed"}}).ok()
        assert changed["status"]["phase"] == "Running"

    def test_custom_kinds(self, api: Cluster, ns: str) -> None:
        path = GROUPS.format(ns)
        made = api.post(path, group("g")).ok(201)
        assert made["metadata"]["generation"] == 1
        changed = api.patch(
            f"{path}/g/status", {"status": {"phase": "Inqueue"}, "spec": {"minMember": 5}}
        ).ok()
        assert (changed["status"]["phase"], changed["spec"]["minMember"]) == ("Inqueue", 1)
        assert changed["metadata"]["generation"] == 1
        changed = api.patch(f"{path}/g", {"status": {"phase": "Running"}, "spec": {"minMember": 5}}).ok()
        assert (changed["status"]["phase"], changed["spec"]["minMember"]) == ("Inqueue", 5)
        assert changed["metadata"]["generation"] == 2
        api.patch(f"{path}/g", {"metadata": {"labels": {"a": "b"}}}).ok()
        read = api.get(f"{path}/g/status").ok()
        assert (read["kind"], read["metadata"]["generation"]) == ("PodGroup", 2)

    def test_replaced(self, api: Cluster, ns: str) -> None:
        path = GROUPS.format(ns)
        made = api.post(path, group("g")).ok(201)
        made["status"] = {"phase": "Running"}
        made["spec"]["minMember"] = 9
        changed = api.put(f"{path}/g/status", made).ok()
        assert (changed["status"]["phase"], changed["spec"]["minMember"]) == ("Running", 1)


class TestApply:
    """Server-side apply. What is asserted holds without conflicts between managers."""

    def test_creates_and_changes(self, api: Cluster, maps: str) -> None:
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "1"}}
        query = "fieldManager=me"
        if deviates(api, "server-side apply"):
            answer = api.patch(f"{maps}/a", body, APPLY, query)
            assert (answer.status, answer.json["reason"]) == (415, "UnsupportedMediaType")
            return
        made = api.patch(f"{maps}/a", body, APPLY, query).ok(201)
        assert made["data"] == {"k": "1"}
        changed = api.patch(f"{maps}/a", {**body, "data": {"k": "2"}}, APPLY, query).ok()
        assert changed["data"] == {"k": "2"}

    def test_a_manager_is_needed(self, api: Cluster, maps: str) -> None:
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}
        answer = api.patch(f"{maps}/a", body, APPLY)
        if deviates(api, "server-side apply"):
            assert answer.status == 415
            return
        assert (answer.status, answer.json["reason"]) == (422, "Invalid")
        assert answer.json["details"]["causes"][0]["field"] == "fieldManager"

    def test_a_body_without_kind(self, api: Cluster, maps: str) -> None:
        answer = api.patch(f"{maps}/a", {"metadata": {"name": "a"}}, APPLY, "fieldManager=me")
        assert answer.status == (415 if deviates(api, "server-side apply") else 400)

    def test_force_is_for_apply_only(self, api: Cluster, maps: str) -> None:
        api.post(maps, config_map("a")).ok(201)
        answer = api.patch(f"{maps}/a", {"data": {"k": "1"}}, MERGE, "force=true")
        assert (answer.status, answer.json["reason"]) == (422, "Invalid")
