"""Claims for devices, pods that name them, and nodes with GPUs, as the API has them."""

from __future__ import annotations

from typing import Any

from kubeobjects import node, pod

GPU = "nvidia.com/gpu"
NVIDIA = {
    "metadata": {"name": "gpu.nvidia.com"},
    "spec": {
        "selectors": [
            {
                "cel": {
                    "expression": "device.driver == 'gpu.nvidia.com' && "
                    "device.attributes['gpu.nvidia.com'].type == 'gpu'"
                }
            }
        ]
    },
}


def claim(name: str, *requests: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}", "resourceVersion": "7"},
        "spec": {"devices": {"requests": list(requests), **spec}},
    }


def exactly(name: str = "gpu", device_class: str = "gpu.nvidia.com", **fields: Any) -> dict[str, Any]:
    return {"name": name, "exactly": {"deviceClassName": device_class, **fields}}


def selector(expression: str) -> list[dict[str, Any]]:
    return [{"cel": {"expression": expression}}]


def gpu_node(
    name: str, gpus: int = 8, product: str = "NVIDIA-H100-80GB-HBM3", mib: int = 81559
) -> dict[str, Any]:
    obj = node(name, gpus=gpus)
    obj["metadata"].setdefault("labels", {})
    obj["metadata"]["labels"] |= {
        "nvidia.com/gpu.product": product,
        "nvidia.com/gpu.memory": str(mib),
        "nvidia.com/gpu.compute.major": "9",
        "nvidia.com/gpu.compute.minor": "0",
    }
    return obj


def claimer(name: str = "a", *, claim: str = "", template: str = "", **fields: Any) -> dict[str, Any]:
    entry = (
        {"name": "g", "resourceClaimName": claim}
        if claim
        else {"name": "g", "resourceClaimTemplateName": template}
    )
    obj = pod(name, requests={"cpu": "1"}, **fields)
    obj["spec"]["resourceClaims"] = [entry]
    obj["spec"]["containers"][0]["resources"]["claims"] = [{"name": "g"}]
    return obj


def resource_claim(name: str, *requests: dict[str, Any], **spec: Any) -> dict[str, Any]:
    """A claim as an object of its own in a file."""
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", **claim(name, *requests, **spec)}


def device(name: str, attributes: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    """``attributes``: by name, plain values."""
    kinds = {str: "string", int: "int", bool: "bool"}
    told = {key: {kinds[type(value)]: value} for key, value in (attributes or {}).items()}
    return {"name": name, "attributes": told, **fields}


def devices_of(
    node: str, driver: str, *devices: dict[str, Any], part: str = "", **spec: Any
) -> dict[str, Any]:
    """A ResourceSlice of a node. ``part``: which of its pool, in its name."""
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1, **spec.pop("pool", {})}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": f"{node}-{driver}{part}"},
        "spec": {"driver": driver, "nodeName": node, "pool": pool, "devices": list(devices), **spec},
    }


def device_class(name: str, driver: str, **spec: Any) -> dict[str, Any]:
    rule = selector(f"device.driver == '{driver}'")
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": name},
        "spec": {"selectors": rule, **spec},
    }
