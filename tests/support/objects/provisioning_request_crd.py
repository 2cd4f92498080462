"""The kind ProvisioningRequest as the cluster autoscaler publishes it (``autoscaling.x-k8s.io/v1``)."""

from __future__ import annotations

from typing import Any

import yaml
from realkube import RealKube

Json = dict[str, Any]
GROUP = "autoscaling.x-k8s.io"
REQUESTS = f"/apis/{GROUP}/v1/namespaces/{{}}/provisioningrequests"
ATOMIC = f"best-effort-atomic-scale-up.{GROUP}"
_NAME = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
_FIXED = [{"message": "Value is immutable", "rule": "self == oldSelf"}]


def _spec() -> Json:
    name = {"type": "string", "maxLength": 253, "pattern": _NAME}
    pod_set = {
        "type": "object",
        "required": ["count", "podTemplateRef"],
        "properties": {
            "count": {"type": "integer", "format": "int32", "minimum": 1},
            "podTemplateRef": {"type": "object", "required": ["name"], "properties": {"name": name}},
        },
    }
    return {
        "type": "object",
        "required": ["podSets", "provisioningClassName"],
        "properties": {
            "parameters": {
                "type": "object",
                "maxProperties": 100,
                "additionalProperties": {"type": "string", "maxLength": 255},
                "x-kubernetes-validations": _FIXED,
            },
            "podSets": {
                "type": "array",
                "minItems": 1,
                "maxItems": 32,
                "items": pod_set,
                "x-kubernetes-validations": _FIXED,
            },
            "provisioningClassName": {**name, "x-kubernetes-validations": _FIXED},
        },
    }


def _status() -> Json:
    fields = ("lastTransitionTime", "message", "reason", "status", "type")
    texts: Json = {field: {"type": "string"} for field in fields}
    texts["lastTransitionTime"]["format"] = "date-time"
    texts["status"]["enum"] = ["True", "False", "Unknown"]
    texts["reason"]["minLength"] = 1
    condition = {
        "type": "object",
        "required": list(fields),
        "properties": {**texts, "observedGeneration": {"type": "integer", "format": "int64"}},
    }
    conditions = {
        "type": "array",
        "items": condition,
        "x-kubernetes-list-map-keys": ["type"],
        "x-kubernetes-list-type": "map",
    }
    details = {"type": "object", "maxProperties": 64, "additionalProperties": {"type": "string"}}
    return {
        "type": "object",
        "properties": {"conditions": conditions, "provisioningClassDetails": details},
    }


def definition() -> Json:
    """Its CustomResourceDefinition."""
    schema = {
        "type": "object",
        "required": ["spec"],
        "properties": {"spec": _spec(), "status": _status()},
    }
    served = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}},
    }
    plural, kind = "provisioningrequests", "ProvisioningRequest"
    names = {"kind": kind, "listKind": f"{kind}List", "plural": plural, "singular": kind.lower()}
    approved = {"api-approved.kubernetes.io": "unapproved, for a test"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}", "annotations": approved},
        "spec": {"group": GROUP, "names": names, "scope": "Namespaced", "versions": [served]},
    }


def install_requests(kube: RealKube) -> None:
    """Have a server know the kind. Once is enough."""
    folder = kube.folder / "requests"
    if not folder.exists():
        folder.mkdir()
        (folder / "provisioningrequests.yaml").write_text(yaml.safe_dump(definition()))
        kube.install_crds(folder)
