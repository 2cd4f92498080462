"""Claims of pods: made, named in the status, given back."""

from __future__ import annotations

from typing import Any

import pytest
from fakeapi import FakeApi

from windlass.api import validation, views
from windlass.api.defaults import apply
from windlass.api.resources import DEVICE_CLASSES, PODS, RESOURCE_CLAIM_TEMPLATES, RESOURCE_CLAIMS
from windlass.controllers.deviceclaims.controller import DeviceClaimController, _claims_of
from windlass.controllers.deviceclaims.reconcile import (
    claim_name,
    reconcile_claim,
    reconcile_class,
    reconcile_pod,
)
from windlass.controllers.effects import NOTHING, Create, Delete, Patch

Json = dict[str, Any]
TEMPLATE: Json = {
    "metadata": {"name": "t", "namespace": "default"},
    "spec": {
        "metadata": {"labels": {"a": "b"}},
        "spec": {
            "devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}]}
        },
    },
}


def pod(*claims: Json, phase: str = "Pending", **status: Any) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "default", "uid": "uid-p"},
        "spec": {"containers": [{"name": "main"}], "resourceClaims": list(claims)},
        "status": {"phase": phase, **status},
    }


OWN = {"name": "g", "resourceClaimTemplateName": "t"}


def test_a_claim_is_made_of_the_template_and_named_in_the_status() -> None:
    subject = pod(OWN)
    effects = reconcile_pod(subject, {"t": TEMPLATE}, {})
    (create,), (patch,) = effects.stages
    assert isinstance(create, Create)
    assert isinstance(patch, Patch)
    name = claim_name(subject, OWN)
    assert create.object["metadata"]["name"] == name
    assert create.object["metadata"]["labels"] == {"a": "b"}
    assert create.object["metadata"]["annotations"] == {"resource.kubernetes.io/pod-claim-name": "g"}
    assert create.object["metadata"]["ownerReferences"][0]["uid"] == "uid-p"
    assert create.object["spec"] == TEMPLATE["spec"]["spec"]
    assert (patch.resource, patch.subresource, patch.uid) == (PODS, "status", "uid-p")
    assert patch.patch == {"status": {"resourceClaimStatuses": [{"name": "g", "resourceClaimName": name}]}}


def test_what_is_made_is_not_made_again() -> None:
    subject = pod(OWN)
    name = claim_name(subject, OWN)
    effects = reconcile_pod(subject, {"t": TEMPLATE}, {name: {}})
    assert effects.creates == []
    assert len(effects.patches) == 1
    named = pod(OWN, resourceClaimStatuses=[{"name": "g", "resourceClaimName": name}])
    assert reconcile_pod(named, {"t": TEMPLATE}, {name: {}}) == reconcile_pod(named, {}, {name: {}})
    assert not list(reconcile_pod(named, {"t": TEMPLATE}, {name: {}}).actions())


def test_one_device_of_a_class_without_a_template() -> None:
    claim = {"name": "gpu-claim", "resourceClaimTemplateName": "windlass-class.gpu.nvidia.com"}
    (create,) = reconcile_pod(pod(claim), {}, {}).creates
    apply(RESOURCE_CLAIMS, create.object)
    assert validation.validate(RESOURCE_CLAIMS, create.object) == []
    (request,) = create.object["spec"]["devices"]["requests"]
    assert request["exactly"] == {
        "deviceClassName": "gpu.nvidia.com",
        "allocationMode": "ExactCount",
        "count": 1,
    }


def test_a_template_that_is_not_there_is_told() -> None:
    effects = reconcile_pod(pod(OWN), {}, {})
    assert not list(effects.actions())
    (event,) = effects.events
    assert (event.reason, event.lasting) == ("FailedResourceClaimCreation", True)
    assert "ResourceClaimTemplate t does not exist" in event.message


def test_a_pod_that_has_ended_gives_its_own_claims_back_and_no_others() -> None:
    mine = {
        "metadata": {
            "name": "c",
            "namespace": "default",
            "uid": "u",
            "ownerReferences": [{"uid": "uid-p", "controller": True}],
        }
    }
    other = {"metadata": {"name": "d", "namespace": "default", "uid": "v"}}
    statuses = [{"name": "g", "resourceClaimName": "c"}, {"name": "h", "resourceClaimName": "d"}]
    subject = pod(OWN, phase="Succeeded", resourceClaimStatuses=statuses)
    effects = reconcile_pod(subject, {}, {"c": mine, "d": other})
    assert effects.deletes == [Delete(RESOURCE_CLAIMS, "c", "default", "u")]


@pytest.mark.parametrize(
    "subject",
    [
        pod(),
        pod({"name": "g", "resourceClaimName": "c"}),
        {**pod(OWN), "metadata": {"name": "p", "namespace": "default", "deletionTimestamp": "x"}},
    ],
)
def test_pods_for_which_nothing_is_made(subject: Json) -> None:
    assert reconcile_pod(subject, {"t": TEMPLATE}, {}) == NOTHING


def claim(*uids: str) -> Json:
    return {
        "metadata": {"name": "c", "namespace": "default", "uid": "u", "resourceVersion": "9"},
        "status": {
            "allocation": {"devices": {}},
            "reservedFor": [{"resource": "pods", "name": uid, "uid": uid} for uid in uids],
        },
    }


def test_a_claim_is_given_back_when_its_last_pod_has_ended() -> None:
    assert reconcile_claim(claim("a", "b"), {"a": True, "b": True}) == NOTHING
    (patch,) = reconcile_claim(claim("a", "b"), {"a": True, "b": False}).patches
    assert patch.patch == {"status": {"reservedFor": [{"resource": "pods", "name": "a", "uid": "a"}]}}
    assert patch.resource_version == "9"
    (patch,) = reconcile_claim(claim("a", "b"), {"a": False}).patches
    assert patch.patch == {"status": {"reservedFor": None, "allocation": None}}
    other = claim("a")
    other["status"]["reservedFor"][0]["resource"] = "jobs"
    assert reconcile_claim(other, {}) == NOTHING


def test_a_claim_is_kept_from_being_deleted_as_long_as_it_is_used() -> None:
    guarded = claim("a")
    guarded["metadata"]["finalizers"] = ["example.com/x", "resource.kubernetes.io/delete-protection"]
    assert reconcile_claim(guarded, {"a": True}) == NOTHING
    status, kept = reconcile_claim(guarded, {"a": False}).patches
    assert status.patch == {"status": {"reservedFor": None, "allocation": None}}
    assert kept.patch == {"metadata": {"finalizers": ["example.com/x"]}}
    guarded["metadata"]["deletionTimestamp"] = "2026-01-01T12:00:00Z"
    assert reconcile_claim(guarded, {"a": True}) == NOTHING
    guarded["status"]["reservedFor"] = []  # allocated for a binding that never came
    status, kept = reconcile_claim(guarded, {}).patches
    assert status.patch["status"]["allocation"] is None
    assert kept.patch == {"metadata": {"finalizers": ["example.com/x"]}}


def test_the_class_of_gpus_is_shipped() -> None:
    assert reconcile_class(True) == NOTHING
    (create,) = reconcile_class(False).creates
    assert validation.validate(DEVICE_CLASSES, create.object) == []


def test_which_claims_a_pod_uses() -> None:
    subject = pod(
        OWN,
        {"name": "h", "resourceClaimName": "shared"},
        resourceClaimStatuses=[{"name": "g", "resourceClaimName": "made"}],
    )
    view = views.decode_pod(views.encode(subject))
    assert list(_claims_of(view)) == ["default/made", "default/shared"]


async def test_the_controller_looks_at_the_claims_and_pods_of_one_namespace() -> None:
    api = FakeApi()
    controller = DeviceClaimController(api, api)  # type: ignore[arg-type]
    api.put(PODS, pod(OWN))
    api.put(PODS, {**pod(OWN, phase="Succeeded"), "metadata": {"name": "q", "uid": "uid-q"}})
    reserved = [{"resource": "pods", "name": name, "uid": f"uid-{name}"} for name in ("p", "q", "gone")]
    api.put(
        RESOURCE_CLAIMS,
        {"metadata": {"name": "c"}, "status": {"allocation": {"devices": {}}, "reservedFor": reserved}},
    )
    (patch,) = (await controller.reconcile("claim:default/c")).patches
    assert [one["name"] for one in patch.patch["status"]["reservedFor"]] == ["p"]
    elsewhere = {**TEMPLATE, "metadata": {"name": "t", "namespace": "elsewhere"}}
    api.put(RESOURCE_CLAIM_TEMPLATES, elsewhere)
    assert (await controller.reconcile("pod:default/p")).creates == []
    api.put(RESOURCE_CLAIM_TEMPLATES, TEMPLATE)
    assert len((await controller.reconcile("pod:default/p")).creates) == 1
