"""Claims, classes and slices: defaults, what is refused with which words, and what the scheduler reads."""

from __future__ import annotations

from typing import Any

import pytest

from windlass.api import defaults, resources, validation, views

SELECTOR = {"cel": {"expression": "device.driver == 'gpu.nvidia.com'"}}


def claim(*requests: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "c", "namespace": "default", "uid": "u1"},
        "spec": {"devices": {"requests": list(requests)}},
        **more,
    }


def exactly(name: str = "gpu", **fields: Any) -> dict[str, Any]:
    return {"name": name, "exactly": {"deviceClassName": "gpu.nvidia.com", **fields}}


def complaints(obj: dict[str, Any], resource: resources.Resource = resources.RESOURCE_CLAIMS) -> list[str]:
    defaults.apply(resource, obj)
    return [f"{error.field}: {error.message}" for error in validation.validate(resource, obj)]


def test_defaults() -> None:
    found = claim(
        exactly(),
        exactly("all", allocationMode="All"),
        {"name": "any", "firstAvailable": [{"name": "a", "deviceClassName": "x"}]},
    )
    assert complaints(found) == []
    requests = found["spec"]["devices"]["requests"]
    assert requests[0]["exactly"]["allocationMode"] == "ExactCount"
    assert requests[0]["exactly"]["count"] == 1
    assert "count" not in requests[1]["exactly"]
    assert requests[2]["firstAvailable"][0]["count"] == 1
    template = {
        "metadata": {"name": "t", "namespace": "default"},
        "spec": {"spec": {"devices": {"requests": [exactly()]}}},
    }
    assert complaints(template, resources.RESOURCE_CLAIM_TEMPLATES) == []
    assert template["spec"]["spec"]["devices"]["requests"][0]["exactly"]["count"] == 1


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        ({"name": "x"}, "exactly one of `exactly` or `firstAvailable` is required"),
        ({**exactly(), "firstAvailable": [{"name": "a"}]}, "multiple fields are set"),
        ({"name": "Bad", "exactly": {"deviceClassName": "a"}}, "requests[0].name"),
        ({"name": "x", "exactly": {}}, "exactly.deviceClassName: Required value"),
        (exactly(deviceClassName="nvidia.com/gpu"), "exactly.deviceClassName"),
        (exactly(count=-1), "must be greater than zero"),
        (exactly(allocationMode="All", count=2), "must not be specified when allocationMode is 'All'"),
        (exactly(allocationMode="Some"), 'supported values: "All", "ExactCount"'),
        (exactly(selectors=[{}]), "selectors[0].cel: Required value"),
        (exactly(selectors=[{"cel": {"expression": "cel.bind(a, b, c)"}}]), "is not served at character 1"),
        (exactly(selectors=[{"cel": {"expression": ""}}]), "is empty"),
        ({"name": "x", "firstAvailable": [{"name": "a"}]}, "firstAvailable[0].deviceClassName"),
    ],
)
def test_rejected_fields(request_: dict[str, Any], words: str) -> None:
    found = complaints(claim(request_))
    assert len(found) == 1, found
    assert words in found[0]


def test_names_of_requests_are_distinct_and_not_too_many() -> None:
    assert any("Duplicate value" in words for words in complaints(claim(exactly(), exactly())))
    many = complaints(claim(*(exactly(f"r{i}") for i in range(33))))
    assert "at most 32" in many[0]


def test_a_claims_spec_stays_as_it_is() -> None:
    before, after = claim(exactly()), claim(exactly(count=2))
    found = validation.validate(resources.RESOURCE_CLAIMS, after, before)
    assert [error.field for error in found] == ["spec"]


def test_classes_and_slices() -> None:
    gpus = {"metadata": {"name": "g"}, "spec": {"selectors": [SELECTOR]}}
    assert complaints(gpus, resources.DEVICE_CLASSES) == []
    gpus["spec"]["selectors"] = [{"cel": {"expression": "device."}}]  # type: ignore[index]
    assert "ends too early" in complaints(gpus, resources.DEVICE_CLASSES)[0]
    found = {
        "metadata": {"name": "s"},
        "spec": {
            "driver": "gpu.nvidia.com",
            "nodeName": "n",
            "pool": {"name": "n", "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": "gpu-0", "attributes": {"type": {"string": "gpu"}}}],
        },
    }
    assert complaints(found, resources.RESOURCE_SLICES) == []
    spec: dict[str, Any] = found["spec"]  # type: ignore[assignment]
    spec["allNodes"] = True
    assert "multiple fields are set" in complaints(found, resources.RESOURCE_SLICES)[0]
    del spec["allNodes"], spec["nodeName"]
    assert "is required" in complaints(found, resources.RESOURCE_SLICES)[0]
    spec["nodeName"] = "n"
    spec["devices"][0]["attributes"]["type"] = {}
    assert "exactly one value" in complaints(found, resources.RESOURCE_SLICES)[0]


def test_the_scheduler_reads_a_claim() -> None:
    status = {
        "allocation": {
            "devices": {"results": [{"request": "gpu", "driver": "d", "pool": "n", "device": "gpu-3"}]},
            "nodeSelector": {
                "nodeSelectorTerms": [
                    {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}
                ]
            },
        },
        "reservedFor": [{"resource": "pods", "name": "p", "uid": "u9"}],
    }
    obj = claim(
        exactly(selectors=[SELECTOR], count=2),
        {"name": "any", "firstAvailable": [{"name": "a", "deviceClassName": "x", "adminAccess": True}]},
        status=status,
    )
    obj["spec"]["devices"]["constraints"] = [{"matchAttribute": "x.com/y"}]
    found = views.decode_device_claim(views.encode(obj))
    first, second = found.requests
    assert (first.options[0].count, first.options[0].selectors) == (2, (SELECTOR["cel"]["expression"],))
    assert (second.options[0].name, second.options[0].admin) == ("any/a", True)
    assert found.constraints == (views.DeviceConstraint("x.com/y"),)
    assert (found.allocated, found.nodes, found.reserved) == (True, ("n",), ("u9",))
    assert found.results[0].device == "gpu-3"


def test_the_scheduler_reads_a_slice() -> None:
    obj = {
        "metadata": {"name": "s"},
        "spec": {
            "driver": "gpu.nvidia.com",
            "nodeName": "n",
            "pool": {"name": "n", "generation": 2, "resourceSliceCount": 1},
            "devices": [
                {
                    "name": "gpu-0",
                    "attributes": {
                        "type": {"string": "gpu"},
                        "gpu.nvidia.com/index": {"int": 0},
                        "ok": {"bool": False},
                        "cudaComputeCapability": {"version": "9.0.0"},
                    },
                    "capacity": {"memory": {"value": "80Gi"}},
                    "taints": [{"key": "k", "effect": "NoSchedule"}],
                    "consumesCounters": [{"counterSet": "x"}],
                }
            ],
        },
    }
    found = views.decode_resource_slice(views.encode(obj))
    (device,) = found.devices
    assert dict(device.attributes) == {
        "type": "gpu",
        "index": 0,
        "ok": False,
        "cudaComputeCapability": "9.0.0",
    }
    assert (device.versions, device.capacity) == (
        ("cudaComputeCapability",),
        (views.DeviceCapacity("memory", "80Gi"),),
    )
    assert [taint.effect for taint in device.taints] == ["NoSchedule"]
    assert device.draws == ()
