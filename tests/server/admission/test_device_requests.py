"""Admission of requests for device shares and claims: warnings and errors."""

from __future__ import annotations

import copy
from typing import Any

import acceptance_manifests
import pytest
from memory_admission import World

from windlass.api import resources
from windlass.server.admission import claims


@pytest.fixture
def world() -> World:
    found = World()
    found.objects.put(resources.NAMESPACES, {"metadata": {"name": "default"}})
    return found


def pod(limits: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "default"},
        "spec": {"containers": [{"name": "main", "image": "x", "resources": {"limits": limits}}]},
    }


def test_gibibytes_of_a_shared_device_cause_a_warning(world: World) -> None:
    assert world.create(pod({"aliyun.com/gpu-mem": "10"})).warnings == [
        "alias: aliyun.com/gpu-mem 10 -> 10 GiB of the memory of one shared GPU (no vendor device plug-in needed)"
    ]
    two = world.create(pod({"aliyun.com/gpu-mem": "10", "aliyun.com/gpu-count": "2"})).warnings
    assert two == [
        "alias: aliyun.com/gpu-mem 10 -> 10 GiB of the memory of 2 shared GPUs together (no vendor device plug-in "
        "needed)"
    ]


def test_invalid_sharing_requests_cause_a_warning_at_creation(world: World) -> None:
    wrong = pod({})
    wrong["metadata"]["annotations"] = {"gpu-fraction": "2"}
    (told,) = world.create(wrong).warnings
    assert told.startswith("advice: metadata.annotations[gpu-fraction]: Invalid value")
    assert told.endswith("the pod stays pending until it is recreated without it")
    both = world.create(
        pod({"nvidia.com/gpu": "1", "volcano.sh/vgpu-memory": "1", "aliyun.com/gpu-mem": "1"})
    )
    assert any("in the words of Volcano vGPU and aliyun.com" in words for words in both.warnings)


def test_acceptance_file_gets_the_specified_warning(world: World) -> None:
    (document,) = acceptance_manifests.documents(3)
    warnings = world.create(document).warnings
    assert acceptance_manifests.all_there(warnings, acceptance_manifests.expected_warnings(3)), warnings


def test_a_class_inside_a_containers_claim_becomes_a_claim_of_the_pod() -> None:
    obj = pod({})
    obj["spec"]["containers"][0]["resources"] = {
        "claims": [{"name": "gpu-claim", "deviceClassName": "nvidia.com/gpu"}]
    }
    assert claims.rewrite(obj) == [
        "alias: deviceClassName inside a container claim -> pod.spec.resourceClaims entry gpu-claim with a generated "
        "ResourceClaim for 1 device",
        "alias: device class nvidia.com/gpu -> gpu.nvidia.com (a slash is not allowed in a device class name)",
    ]
    assert obj["spec"]["containers"][0]["resources"]["claims"] == [{"name": "gpu-claim"}]
    assert obj["spec"]["resourceClaims"] == [
        {"name": "gpu-claim", "resourceClaimTemplateName": "windlass-class.gpu.nvidia.com"}
    ]
    assert claims.rewrite(obj) == []
    before = copy.deepcopy(obj)
    obj["spec"]["containers"][0]["resources"]["claims"][0]["deviceClassName"] = "nvidia.com/gpu"
    assert len(claims.rewrite(obj)) == 2  # applied once more: told once more, and nothing changes
    assert obj == before


def test_existing_resource_claim_of_the_pod_is_kept() -> None:
    obj = pod({})
    obj["spec"]["resourceClaims"] = [{"name": "g", "resourceClaimName": "mine"}]
    obj["spec"]["containers"][0]["resources"] = {"claims": [{"name": "g", "deviceClassName": "x.com"}]}
    (told,) = claims.rewrite(obj)
    assert "left out, pod.spec.resourceClaims has an entry g" in told
    assert obj["spec"]["resourceClaims"] == [{"name": "g", "resourceClaimName": "mine"}]


@pytest.mark.parametrize(
    "spec",
    [
        None,
        [],
        {"containers": [None]},
        {"containers": [{"resources": []}]},
        {"containers": [{"resources": {"claims": "x"}}]},
    ],
)
def test_malformed_claims_are_left_to_field_review(spec: Any) -> None:
    obj = {"spec": spec}
    assert claims.rewrite(obj) == []
    assert obj == {"spec": spec}
