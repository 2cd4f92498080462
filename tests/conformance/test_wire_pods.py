"""Pods: binding, eviction, logs, gates."""

from __future__ import annotations

from typing import Any

from clusters import Cluster, pod, status_of


def binding(name: str, node: str = "n1", **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name, **metadata},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }


def conditions(obj: dict[str, Any]) -> dict[str, str]:
    return {c["type"]: c["status"] for c in obj["status"].get("conditions", ())}


class TestBinding:
    def test_bind(self, api: Cluster, pods: str) -> None:
        made = api.post(pods, pod("p", metadata={"annotations": {"kept": "yes"}})).ok(201)
        body = binding("p", uid=made["metadata"]["uid"], annotations={"windlass.dev/devices": "0,1"})
        assert api.post(f"{pods}/p/binding", body).ok(201) == {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Success",
            "code": 201,
        }
        bound = api.get(f"{pods}/p").ok()
        assert bound["spec"]["nodeName"] == "n1"
        assert conditions(bound)["PodScheduled"] == "True"
        assert bound["metadata"]["annotations"] == {"kept": "yes", "windlass.dev/devices": "0,1"}
        assert bound["metadata"]["generation"] == made["metadata"]["generation"]

    def test_twice(self, api: Cluster, pods: str) -> None:
        api.post(pods, pod("p")).ok(201)
        api.post(f"{pods}/p/binding", binding("p")).ok(201)
        for node in ("n1", "n2"):
            answer = api.post(f"{pods}/p/binding", binding("p", node))
            assert (answer.status, answer.json["reason"]) == (409, "Conflict")
            assert answer.json["details"] == {"name": "p", "kind": "pods/binding"}
            assert answer.json["message"] == (
                'Operation cannot be fulfilled on pods/binding "p": pod p is already assigned to node "n1"'
            )

    def test_by_the_collection(self, api: Cluster, ns: str, pods: str) -> None:
        api.post(pods, pod("p")).ok(201)
        api.post(f"/api/v1/namespaces/{ns}/bindings", binding("p")).ok(201)
        assert api.get(f"{pods}/p").ok()["spec"]["nodeName"] == "n1"

    def test_another_pod_by_the_same_name(self, api: Cluster, pods: str) -> None:
        api.post(pods, pod("p")).ok(201)
        answer = api.post(f"{pods}/p/binding", binding("p", uid="00000000-0000-4000-8000-000000000000"))
        assert (answer.status, answer.json["reason"]) == (409, "Conflict")
        assert "UID in precondition: 00000000-0000-4000-8000-000000000000" in answer.json["message"]
        assert "nodeName" not in api.get(f"{pods}/p").ok()["spec"]

    def test_gated(self, api: Cluster, pods: str) -> None:
        api.post(pods, pod("p", spec={"schedulingGates": [{"name": "ex.io/wait"}]})).ok(201)
        answer = api.post(f"{pods}/p/binding", binding("p"))
        assert (answer.status, answer.json["reason"]) == (409, "Conflict")
        assert "has non-empty .spec.schedulingGates" in answer.json["message"]
        api.patch(f"{pods}/p", {"spec": {"schedulingGates": []}}).ok()
        api.post(f"{pods}/p/binding", binding("p")).ok(201)

    def test_deleting(self, api: Cluster, pods: str) -> None:
        api.post(pods, pod("p", metadata={"finalizers": ["ex.io/hold"]})).ok(201)
        api.delete(f"{pods}/p").ok()
        answer = api.post(f"{pods}/p/binding", binding("p"))
        assert (answer.status, answer.json["reason"]) == (409, "Conflict")
        assert "is being deleted, cannot be assigned to a host" in answer.json["message"]
        api.patch(f"{pods}/p", {"metadata": {"finalizers": None}}).ok()

    def test_absent_and_ill_formed(self, api: Cluster, pods: str) -> None:
        answer = api.post(f"{pods}/none/binding", binding("none"))
        expected = status_of(404, "NotFound", 'pods "none" not found', {"name": "none", "kind": "pods"})
        assert (answer.status, answer.json) == (404, expected)
        api.post(pods, pod("p")).ok(201)
        assert api.post(f"{pods}/p/binding", binding("q")).status == 400
        assert api.post(f"{pods}/p/binding", binding("p", "")).status in (400, 422, 500)
        assert "nodeName" not in api.get(f"{pods}/p").ok()["spec"]


class TestGates:
    def test_gated_pods_say_so(self, api: Cluster, pods: str) -> None:
        made = api.post(pods, pod("p", spec={"schedulingGates": [{"name": "ex.io/wait"}]})).ok(201)
        (condition,) = made["status"]["conditions"]
        assert (condition["type"], condition["status"], condition["reason"]) == (
            "PodScheduled",
            "False",
            "SchedulingGated",
        )

    def test_gates_can_only_be_removed(self, api: Cluster, pods: str) -> None:
        api.post(pods, pod("p", spec={"schedulingGates": [{"name": "ex.io/a"}]})).ok(201)
        gates = [{"name": "ex.io/a"}, {"name": "ex.io/b"}]
        answer = api.patch(f"{pods}/p", {"spec": {"schedulingGates": gates}})
        assert (answer.status, answer.json["reason"]) == (422, "Invalid")


class TestEviction:
    def body(self, name: str, **extra: Any) -> dict[str, Any]:
        return {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}, **extra}

    def test_evict(self, api: Cluster, pods: str) -> None:
        api.post(pods, pod("p", spec={"nodeName": "n1"})).ok(201)
        answer = api.post(f"{pods}/p/eviction", self.body("p")).ok(201)
        assert (answer["kind"], answer["status"]) == ("Status", "Success")
        evicted = api.get(f"{pods}/p").ok()
        assert evicted["metadata"]["deletionTimestamp"]
        (condition,) = [c for c in evicted["status"]["conditions"] if c["type"] == "DisruptionTarget"]
        assert condition["reason"] == "EvictionByEvictionAPI"
        api.delete(f"{pods}/p", {"gracePeriodSeconds": 0}).ok()

    def test_dry_run(self, api: Cluster, pods: str) -> None:
        api.post(pods, pod("p", spec={"nodeName": "n1"})).ok(201)
        api.post(f"{pods}/p/eviction", self.body("p", deleteOptions={"dryRun": ["All"]})).ok(201)
        assert "deletionTimestamp" not in api.get(f"{pods}/p").ok()["metadata"]
        api.delete(f"{pods}/p", {"gracePeriodSeconds": 0}).ok()

    def test_absent(self, api: Cluster, pods: str) -> None:
        assert api.post(f"{pods}/none/eviction", self.body("none")).status == 404


class TestLogs:
    def test_a_pod_without_a_node_has_none(self, api: Cluster, pods: str) -> None:
        api.post(pods, pod("p")).ok(201)
        answer = api.get(f"{pods}/p/log", accept="*/*")
        assert (answer.status, answer.body) == (204, b"")

    def test_absent_pods_and_containers(self, api: Cluster, pods: str) -> None:
        assert api.get(f"{pods}/none/log").status == 404
        api.post(pods, pod("p")).ok(201)
        answer = api.get(f"{pods}/p/log", "container=none")
        assert (answer.status, answer.json["reason"]) == (400, "BadRequest")
        assert "container none is not valid for pod p" in answer.json["message"]


class TestValidation:
    def test_causes_name_the_fields(self, api: Cluster, pods: str) -> None:
        answer = api.post(pods, {"metadata": {"name": "p2"}, "spec": {"containers": []}})
        message = 'Pod "p2" is invalid: spec.containers: Required value'
        cause = {"reason": "FieldValueRequired", "message": "Required value", "field": "spec.containers"}
        expected = status_of(422, "Invalid", message, {"name": "p2", "kind": "Pod", "causes": [cause]})
        assert (answer.status, answer.json) == (422, expected)

    def test_several(self, api: Cluster, pods: str) -> None:
        body = pod("Upper_Case", spec={"restartPolicy": "Sometimes"})
        body["spec"]["containers"][0]["name"] = "not valid"
        answer = api.post(pods, body)
        assert answer.status == 422
        found = {cause["field"] for cause in answer.json["details"]["causes"]}
        assert {"metadata.name", "spec.restartPolicy", "spec.containers[0].name"} <= found

    def test_devices(self, api: Cluster, pods: str) -> None:
        for resources, text in (
            ({"limits": {"nvidia.com/gpu": "0.5"}}, "must be an integer"),
            ({"requests": {"nvidia.com/gpu": 1}}, "Limit must be set for non overcommitable resources"),
        ):
            body = pod("p")
            body["spec"]["containers"][0]["resources"] = resources
            answer = api.post(pods, body)
            assert (answer.status, answer.json["reason"]) == (422, "Invalid")
            assert text in answer.json["message"]

    def test_a_request_above_its_limit(self, api: Cluster, pods: str) -> None:
        body = pod("p")
        body["spec"]["containers"][0]["resources"] = {"requests": {"cpu": 2}, "limits": {"cpu": 1}}
        answer = api.post(pods, body)
        assert answer.status == 422
        assert "must be less than or equal to cpu limit" in answer.json["message"]

    def test_a_broken_quantity(self, api: Cluster, pods: str) -> None:
        body = pod("p")
        body["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "much"}}
        answer = api.post(pods, body)
        assert (answer.status, answer.json["reason"]) == (400, "BadRequest")
        assert "quantities must match the regular expression" in answer.json["message"]
