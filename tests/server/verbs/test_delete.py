"""Deleting: at once, gracefully, with finalizers, by collection; namespaces."""

from __future__ import annotations

from typing import Any

import pytest
from server_in_process import GROUPS, MAPS, PODS, Api, binding, config_map, pod
from volcanoobjects import group

NAMESPACES = "/api/v1/namespaces"


async def bound(api: Api, name: str = "p", **members: Any) -> dict[str, Any]:
    (await api.post(PODS, pod(name, **members))).ok(201)
    (await api.post(f"{PODS}/{name}/binding", binding(name, "n1"))).ok(201)
    return (await api.get(f"{PODS}/{name}")).ok()


class TestAtOnce:
    async def test_delete_response_is_a_status(self, api: Api) -> None:
        made = (await api.post(MAPS, config_map("m"))).ok(201)
        gone = (await api.delete(f"{MAPS}/m")).ok()
        assert gone == {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Success",
            "details": {"name": "m", "kind": "configmaps", "uid": made["metadata"]["uid"]},
        }
        assert (await api.get(f"{MAPS}/m")).status == 404
        assert (await api.delete(f"{MAPS}/m")).status == 404

    async def test_deletion_response_names_the_group(self, api: Api) -> None:
        (await api.post(GROUPS, group("g"))).ok(201)
        assert (await api.delete(f"{GROUPS}/g")).ok()["details"]["group"] == "scheduling.volcano.sh"

    async def test_preconditions(self, api: Api) -> None:
        made = (await api.post(MAPS, config_map("m"))).ok(201)
        metadata = made["metadata"]
        answer = await api.delete(f"{MAPS}/m", {"preconditions": {"uid": "x"}})
        assert answer.status == 409
        assert answer.json["details"] == {"name": "m", "kind": "ConfigMap"}
        assert answer.message.startswith('Operation cannot be fulfilled on ConfigMap "m": the UID in the')
        answer = await api.delete(f"{MAPS}/m", {"preconditions": {"resourceVersion": "1"}})
        assert "the ResourceVersion in the precondition (1)" in answer.message
        right = {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]}
        (await api.delete(f"{MAPS}/m", {"preconditions": right})).ok()

    async def test_options_are_checked(self, api: Api) -> None:
        (await api.post(MAPS, config_map("m"))).ok(201)
        assert (await api.delete(f"{MAPS}/m", {"propagationPolicy": "Sideways"})).status == 422
        both = {"propagationPolicy": "Orphan", "orphanDependents": True}
        assert (await api.delete(f"{MAPS}/m", both)).status == 422
        assert (await api.delete(f"{MAPS}/m", gracePeriodSeconds="soon")).status == 400
        assert (await api.delete(f"{MAPS}/m", dryRun="Some")).status == 422
        (await api.get(f"{MAPS}/m")).ok()

    async def test_dry_run(self, api: Api) -> None:
        (await api.post(MAPS, config_map("m"))).ok(201)
        assert (await api.delete(f"{MAPS}/m", dryRun="All")).ok()["status"] == "Success"
        assert (await api.delete(f"{MAPS}/m", {"dryRun": ["All"]})).ok()["status"] == "Success"
        (await api.get(f"{MAPS}/m")).ok()


class TestGrace:
    async def test_unscheduled_pod_is_deleted_at_once(self, api: Api) -> None:
        (await api.post(PODS, pod("p"))).ok(201)
        gone = (await api.delete(f"{PODS}/p")).ok()
        assert gone["kind"] == "Pod"
        assert gone["metadata"]["deletionGracePeriodSeconds"] == 0
        assert (await api.get(f"{PODS}/p")).status == 404

    async def test_a_bound_pod_gets_its_grace(self, api: Api) -> None:
        before = await bound(api)
        going = (await api.delete(f"{PODS}/p")).ok()
        metadata = going["metadata"]
        assert metadata["deletionTimestamp"] == "2026-01-01T12:00:30Z"
        assert metadata["deletionGracePeriodSeconds"] == 30
        assert metadata["generation"] == before["metadata"]["generation"] + 1
        again = (await api.delete(f"{PODS}/p")).ok()
        assert again == going

    async def test_grace_can_only_be_shortened(self, api: Api) -> None:
        await bound(api)
        (await api.delete(f"{PODS}/p", {"gracePeriodSeconds": 20})).ok()
        same = (await api.delete(f"{PODS}/p", {"gracePeriodSeconds": 25})).ok()
        assert same["metadata"]["deletionGracePeriodSeconds"] == 20
        shorter = (await api.delete(f"{PODS}/p", {"gracePeriodSeconds": 5})).ok()
        assert shorter["metadata"]["deletionGracePeriodSeconds"] == 5
        assert shorter["metadata"]["deletionTimestamp"] == "2026-01-01T12:00:05Z"
        (await api.delete(f"{PODS}/p", {"gracePeriodSeconds": 0})).ok()
        assert (await api.get(f"{PODS}/p")).status == 404

    @pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
    async def test_finished_pod_is_deleted_at_once(self, api: Api, phase: str) -> None:
        await bound(api)
        (await api.patch(f"{PODS}/p/status", {"status": {"phase": phase}})).ok()
        (await api.delete(f"{PODS}/p")).ok()
        assert (await api.get(f"{PODS}/p")).status == 404

    async def test_finalizers_outlast_the_grace(self, api: Api) -> None:
        await bound(api, metadata={"finalizers": ["ex.io/wait"]})
        (await api.delete(f"{PODS}/p")).ok()
        (await api.delete(f"{PODS}/p", {"gracePeriodSeconds": 0})).ok()
        kept = (await api.get(f"{PODS}/p")).ok()
        assert kept["metadata"]["deletionGracePeriodSeconds"] == 0
        (await api.patch(f"{PODS}/p", {"metadata": {"finalizers": None}})).ok()
        assert (await api.get(f"{PODS}/p")).status == 404

    async def test_removing_the_finalizer_does_not_shorten_the_grace(self, api: Api) -> None:
        await bound(api, metadata={"finalizers": ["ex.io/wait"]})
        (await api.delete(f"{PODS}/p")).ok()
        (await api.patch(f"{PODS}/p", {"metadata": {"finalizers": None}})).ok()
        (await api.get(f"{PODS}/p")).ok()


class TestFinalizers:
    async def test_an_object_waits_for_its_finalizers(self, api: Api) -> None:
        body = group("g")
        body["metadata"]["finalizers"] = ["ex.io/a", "ex.io/b"]
        (await api.post(GROUPS, body)).ok(201)
        watch = await api.watch(GROUPS, resourceVersion=api.store.rv)
        going = (await api.delete(f"{GROUPS}/g")).ok()
        assert going["metadata"]["deletionTimestamp"] == "2026-01-01T12:00:00Z"
        assert going["metadata"]["deletionGracePeriodSeconds"] == 0
        assert going["metadata"]["generation"] == 2
        assert (await api.delete(f"{GROUPS}/g")).ok() == going
        (await api.patch(f"{GROUPS}/g", {"metadata": {"finalizers": ["ex.io/b"]}})).ok()
        last = (await api.patch(f"{GROUPS}/g", {"metadata": {"finalizers": []}})).ok()
        assert "deletionTimestamp" in last["metadata"]
        assert (await api.get(f"{GROUPS}/g")).status == 404
        assert [kind for kind, _ in await watch.names()] == ["MODIFIED", "MODIFIED", "DELETED"]
        await watch.close()

    async def test_terminating_object_gets_no_new_finalizer(self, api: Api) -> None:
        body = config_map("m")
        body["metadata"]["finalizers"] = ["ex.io/a"]
        (await api.post(MAPS, body)).ok(201)
        (await api.delete(f"{MAPS}/m")).ok()
        answer = await api.patch(f"{MAPS}/m", {"metadata": {"finalizers": ["ex.io/a", "ex.io/b"]}})
        assert answer.status == 422
        assert 'found new finalizers []string{"ex.io/b"}' in answer.message

    @pytest.mark.parametrize(
        ("policy", "finalizer"), [("Foreground", "foregroundDeletion"), ("Orphan", "orphan")]
    )
    async def test_propagation_by_finalizer(self, api: Api, policy: str, finalizer: str) -> None:
        (await api.post(MAPS, config_map("m"))).ok(201)
        going = (await api.delete(f"{MAPS}/m", {"propagationPolicy": policy})).ok()
        assert going["metadata"]["finalizers"] == [finalizer]
        (await api.delete(f"{MAPS}/m", {"propagationPolicy": "Background"})).ok()
        assert (await api.get(f"{MAPS}/m")).status == 404

    async def test_the_old_option(self, api: Api) -> None:
        (await api.post(MAPS, config_map("m"))).ok(201)
        going = (await api.delete(f"{MAPS}/m", {"orphanDependents": True})).ok()
        assert going["metadata"]["finalizers"] == ["orphan"]

    async def test_status_202_by_the_old_option(self, api: Api) -> None:
        body = config_map("m")
        body["metadata"]["finalizers"] = ["ex.io/a"]
        (await api.post(MAPS, body)).ok(201)
        (await api.delete(f"{MAPS}/m", {"orphanDependents": False})).ok(202)


class TestCollections:
    async def test_delete_collection_removes_matching_objects(self, api: Api) -> None:
        for name, app in (("a", "x"), ("b", "y"), ("c", "x")):
            body = config_map(name)
            body["metadata"]["labels"] = {"app": app}
            (await api.post(MAPS, body)).ok(201)
        gone = (await api.delete(MAPS, labelSelector="app=x")).ok()
        assert (gone["kind"], [item["metadata"]["name"] for item in gone["items"]]) == (
            "ConfigMapList",
            ["a", "c"],
        )
        left = (await api.get(MAPS)).ok()
        assert [item["metadata"]["name"] for item in left["items"]] == ["b"]

    async def test_many_at_once(self, api: Api) -> None:
        for number in range(450):
            (await api.post(MAPS, config_map(f"m{number}"))).ok(201)
        assert len((await api.delete(MAPS)).ok()["items"]) == 450
        assert api.store.count("configmaps") == 0

    async def test_dry_run(self, api: Api) -> None:
        (await api.post(MAPS, config_map("m"))).ok(201)
        assert len((await api.delete(MAPS, dryRun="All")).ok()["items"]) == 1
        assert api.store.count("configmaps") == 1

    async def test_a_limit_deletes_one_page(self, api: Api) -> None:
        for number in range(10):
            body = config_map(f"m{number}")
            body["metadata"]["labels"] = {"even": "no" if number % 2 else "yes"}
            (await api.post(MAPS, body)).ok(201)
        first = (await api.delete(MAPS, labelSelector="even=yes", limit="3")).ok()
        assert [item["metadata"]["name"] for item in first["items"]] == ["m0", "m2", "m4"]
        assert api.store.count("configmaps") == 7
        token = first["metadata"]["continue"]
        rest = (await api.delete(MAPS, labelSelector="even=yes", limit="3", **{"continue": token})).ok()
        assert [item["metadata"]["name"] for item in rest["items"]] == ["m6", "m8"]
        assert "continue" not in rest["metadata"] or not rest["metadata"]["continue"]
        assert api.store.count("configmaps") == 5

    async def test_a_collection_across_namespaces_is_not_deleted(self, api: Api) -> None:
        assert (await api.delete("/api/v1/configmaps")).status == 405


class TestNamespaces:
    async def test_a_namespace_terminates(self, api: Api) -> None:
        (await api.post(NAMESPACES, {"metadata": {"name": "team"}})).ok(201)
        path = f"{NAMESPACES}/team"
        going = (await api.delete(path)).ok()
        assert going["status"]["phase"] == "Terminating"
        assert going["metadata"]["deletionTimestamp"]
        assert (await api.delete(path)).ok() == going
        answer = await api.post(f"{path}/configmaps", config_map("m"))
        assert answer.status == 403
        assert answer.json["details"]["causes"][0]["reason"] == "NamespaceTerminating"
        finalized = (await api.put(f"{path}/finalize", {**going, "spec": {"finalizers": []}})).ok()
        assert "finalizers" not in finalized["spec"]
        assert (await api.get(path)).status == 404

    async def test_finalizers_are_set_by_finalize_only(self, api: Api) -> None:
        made = (await api.post(NAMESPACES, {"metadata": {"name": "team"}})).ok(201)
        path = f"{NAMESPACES}/team"
        kept = (await api.put(path, {**made, "spec": {"finalizers": []}})).ok()
        assert kept["spec"]["finalizers"] == ["kubernetes"]
        extra = {**kept, "spec": {"finalizers": ["kubernetes", "ex.io/x"]}}
        assert (await api.put(f"{path}/finalize", extra)).ok()["spec"]["finalizers"] == [
            "kubernetes",
            "ex.io/x",
        ]
        (await api.get(path)).ok()

    @pytest.mark.parametrize("name", ["default", "kube-system", "kube-public"])
    async def test_default_queues_are_not_deleted(self, api: Api, name: str) -> None:
        answer = await api.delete(f"{NAMESPACES}/{name}")
        assert (answer.status, answer.reason) == (403, "Forbidden")
        assert "this namespace may not be deleted" in answer.message
