"""Custom kinds: the project's CRDs on a real server, built in on the embedded one; the same answers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from clusters import APPLY, Cluster, eventually
from coschedulingobjects import coscheduling_group
from realkube import CRDS
from server_deviations import deviates
from volcanoobjects import group, queue

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
QUEUES = "/apis/scheduling.volcano.sh/v1beta1/queues"


def job(name: str, **spec: Any) -> dict[str, Any]:
    container = {"name": "main", "image": "busybox", "command": ["true"]}
    template = {"spec": {"containers": [container], "restartPolicy": "Never"}}
    task = {"name": "worker", "replicas": 1, "template": template}
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"minAvailable": 1, "schedulerName": "nobody", "queue": "default", "tasks": [task], **spec},
    }


@pytest.fixture
def groups(ns: str) -> str:
    return f"/apis/scheduling.volcano.sh/v1beta1/namespaces/{ns}/podgroups"


class TestObjects:
    def test_items_of_a_list_carry_their_kind(self, api: Cluster, groups: str) -> None:
        api.post(groups, group("g")).ok(201)
        listed = api.get(groups).ok()
        assert listed["kind"] == "PodGroupList"
        assert listed["items"][0]["kind"] == "PodGroup"
        assert listed["metadata"]["continue"] == ""

    def test_replacing_needs_a_version(self, api: Cluster, groups: str) -> None:
        api.post(groups, group("g")).ok(201)
        answer = api.put(f"{groups}/g", group("g", minMember=2))
        assert (answer.status, answer.json["reason"]) == (422, "Invalid")
        (cause,) = answer.json["details"]["causes"]
        assert cause["field"] == "metadata.resourceVersion"
        assert "must be specified for an update" in cause["message"]

    def test_an_absent_one_is_not_created_by_put(self, api: Cluster, groups: str) -> None:
        body = group("none")
        body["metadata"]["resourceVersion"] = "1"
        answer = api.put(f"{groups}/none", body)
        assert (answer.status, answer.json["reason"]) == (404, "NotFound")
        assert answer.json["details"] == {
            "name": "none",
            "group": "scheduling.volcano.sh",
            "kind": "podgroups",
        }
        assert answer.json["message"] == 'podgroups.scheduling.volcano.sh "none" not found'

    def test_wrong_types_are_named(self, api: Cluster, groups: str) -> None:
        answer = api.post(groups, group("g", minMember="three"))
        assert (answer.status, answer.json["reason"]) == (422, "Invalid")
        assert answer.json["message"].startswith('PodGroup.scheduling.volcano.sh "g" is invalid: ')
        causes = {cause["field"]: cause for cause in answer.json["details"]["causes"]}
        assert causes["spec.minMember"]["reason"] == "FieldValueTypeInvalid"
        assert "must be of type integer" in causes["spec.minMember"]["message"]

    def test_integers_beyond_their_format(self, api: Cluster, groups: str) -> None:
        answer = api.post(groups, group("g", minMember=1 << 40))
        assert answer.status == 422

    def test_whole_floating_point_numbers_become_integers(self, api: Cluster, groups: str) -> None:
        api.post(groups, group("g", minMember=2.0)).ok(201)
        stored = api.get(f"{groups}/g").ok()["spec"]["minMember"]
        assert (stored, type(stored)) == (2, int)
        api.patch(f"{groups}/g", {"spec": {"minMember": 1e1}}).ok()
        stored = api.get(f"{groups}/g").ok()["spec"]["minMember"]
        assert (stored, type(stored)) == (10, int)

    def test_limit_of_a_deleted_collection(self, api: Cluster, groups: str) -> None:
        for number in range(4):
            api.post(groups, group(f"g{number}")).ok(201)
        assert len(api.send("DELETE", groups, query="limit=3").ok()["items"]) == 3
        assert len(api.get(groups).ok()["items"]) == 1

    def test_create_of_an_object_under_deletion(self, api: Cluster, groups: str) -> None:
        body = group("g")
        body["metadata"]["finalizers"] = ["example.com/wait"]
        api.post(groups, body).ok(201)
        api.delete(f"{groups}/g").ok()
        answer = api.post(groups, body)
        assert (answer.status, answer.json["reason"]) == (409, "AlreadyExists")
        told = 'object is being deleted: podgroups.scheduling.volcano.sh "g" already exists'
        assert answer.json["message"] == told
        api.patch(f"{groups}/g", {"metadata": {"finalizers": None}}).ok()

    def test_service_that_begins_with_a_digit(self, api: Cluster, ns: str) -> None:
        spec = {"clusterIP": "None", "ports": [{"port": 80}]}
        body = {"metadata": {"name": "7b-pretrain"}, "spec": spec}
        api.post(f"/api/v1/namespaces/{ns}/services", body).ok(201)

    def test_nothing_changed_is_no_new_version(self, api: Cluster, groups: str) -> None:
        made = api.post(groups, group("g")).ok(201)
        assert api.put(f"{groups}/g", made).ok() == made
        assert api.patch(f"{groups}/g", {"spec": {"minMember": 1}}).ok() == made

    def test_status_is_not_taken_at_creation(self, api: Cluster, groups: str) -> None:
        made = api.post(groups, {**group("g"), "status": {"phase": "Running"}}).ok(201)
        assert made.get("status", {}).get("phase") != "Running"

    def test_deletion(self, api: Cluster, groups: str) -> None:
        made = api.post(groups, group("g")).ok(201)
        assert api.delete(f"{groups}/g").ok()["details"] == {
            "name": "g",
            "group": "scheduling.volcano.sh",
            "kind": "podgroups",
            "uid": made["metadata"]["uid"],
        }

    def test_applied(self, api: Cluster, groups: str) -> None:
        if deviates(api, "server-side apply"):
            assert api.patch(f"{groups}/g", group("g"), APPLY, "fieldManager=me").status == 415
            return
        made = api.patch(f"{groups}/g", group("g"), APPLY, "fieldManager=me").ok(201)
        assert made["spec"]["minMember"] == 1
        changed = api.patch(f"{groups}/g", group("g", minMember=2), APPLY, "fieldManager=me").ok()
        assert (changed["spec"]["minMember"], changed["metadata"]["generation"]) == (2, 2)

    def test_selectors(self, api: Cluster, groups: str) -> None:
        api.post(groups, group("g")).ok(201)
        answer = api.get(groups, "fieldSelector=spec.minMember%3D1")
        assert (answer.status, answer.json["reason"]) == (400, "BadRequest")
        assert "field label not supported: spec.minMember" in answer.json["message"]
        assert len(api.get(groups, "fieldSelector=metadata.name%3Dg").ok()["items"]) == 1


class TestJobs:
    def test_a_job_keeps_its_pod_template(self, api: Cluster, ns: str) -> None:
        path = f"/apis/batch.volcano.sh/v1alpha1/namespaces/{ns}/jobs"
        body = job("j")
        spec = body["spec"]["tasks"][0]["template"]["spec"]
        spec["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": 1, "memory": "1Gi"}}
        made = api.post(path, body).ok(201)
        kept = made["spec"]["tasks"][0]["template"]["spec"]["containers"][0]
        assert kept["command"] == ["true"]
        assert str(kept["resources"]["limits"]["nvidia.com/gpu"]) == "1"

    def test_unknown_fields_deep_inside(self, api: Cluster, ns: str) -> None:
        path = f"/apis/batch.volcano.sh/v1alpha1/namespaces/{ns}/jobs"
        body = job("j", nonsense=1)
        answer = api.post(path, body, "fieldValidation=Strict")
        assert (answer.status, answer.json["reason"]) == (400, "BadRequest")
        assert 'unknown field "spec.nonsense"' in answer.json["message"]


class TestQueues:
    def test_cluster_wide(self, api: Cluster, ns: str) -> None:
        name = f"q-{ns}"
        made = api.post(QUEUES, queue(name, capability={"nvidia.com/gpu": 8})).ok(201)
        assert "namespace" not in made["metadata"]
        assert str(made["spec"]["capability"]["nvidia.com/gpu"]) == "8"
        api.patch(f"{QUEUES}/{name}", {"spec": {"weight": 5}}).ok()
        api.delete(f"{QUEUES}/{name}").ok()

    def test_columns(self, api: Cluster, ns: str) -> None:
        name = f"q-{ns}"
        api.post(QUEUES, queue(name)).ok(201)
        table = api.get(f"{QUEUES}/{name}", accept=TABLE).ok()
        assert table["columnDefinitions"][0]["name"] == "Name"
        assert table["rows"][0]["cells"][0] == name
        api.delete(f"{QUEUES}/{name}").ok()


class TestGangsOfTheCoschedulingPlugIn:
    """As its published CustomResourceDefinition has them: the kind is not the project's own."""

    @pytest.fixture
    def gangs(self, api: Cluster, ns: str, request: pytest.FixtureRequest) -> Iterator[str]:
        crd = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/podgroups.scheduling.x-k8s.io"
        if not api.embedded:
            request.getfixturevalue("real_kube").install_crds(CRDS / "coscheduling")
        yield f"/apis/scheduling.x-k8s.io/v1alpha1/namespaces/{ns}/podgroups"
        if not api.embedded:
            api.delete(crd).ok()
            eventually(lambda: api.get(crd).status == 404)

    def test_as_kubeflow_trainer_writes_them(self, api: Cluster, gangs: str) -> None:
        whole = coscheduling_group("g", 2, needs={"cpu": "1500m", "memory": 1024})
        whole["metadata"] = {"name": "g"}
        made = api.post(gangs, whole).ok(201)
        assert made["spec"] == {
            "minMember": 2,
            "minResources": {"cpu": "1500m", "memory": 1024},
            "scheduleTimeoutSeconds": 60,
        }
        table = api.get(gangs, accept=TABLE).ok()
        names = [column["name"] for column in table["columnDefinitions"]]
        assert names == ["Name", "Phase", "MinMember", "Running", "Succeeded", "Failed", "Age"]
        assert table["rows"][0]["cells"][2] == 2

        told = {"phase": "Running", "occupiedBy": "default/g-node-0", "running": 2}
        assert api.patch(f"{gangs}/g", {"status": told}).ok().get("status") is None
        assert api.patch(f"{gangs}/g/status", {"status": told}).ok()["status"] == told

        for wrong, field in (
            ({"minMember": 0}, "spec.minMember"),
            ({"minMember": 1, "minResources": {"cpu": "much"}}, "spec.minResources.cpu"),
            ({"scheduleTimeoutSeconds": "60"}, "spec.scheduleTimeoutSeconds"),
        ):
            answer = api.post(gangs, {**whole, "metadata": {"name": "w"}, "spec": wrong})
            assert (answer.status, answer.json["reason"]) == (422, "Invalid"), answer.text
            assert field in {cause["field"] for cause in answer.json["details"]["causes"]}
