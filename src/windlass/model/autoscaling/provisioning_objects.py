"""The objects by which nodes are asked for: a ProvisioningRequest, and a PodTemplate of each kind of pod. Pure.

A template says what a scheduler needs to know of a pod, and no more: neither commands nor environments nor volumes but
claims. It is named after what it says, so that asking anew makes it anew only where it is another one. Templates and
request belong to the gang's PodGroup, and go with it whoever else forgets them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from windlass.api import annotations as names
from windlass.api.resources import POD_TEMPLATES, PROVISIONING_REQUESTS, Resource
from windlass.model.autoscaling.provisioning import WantedRequest

Json = dict[str, Any]
MANAGED_BY = {"app.kubernetes.io/managed-by": "windlass"}
_MOST_NAME = 200
_POD_FIELDS = (
    "nodeSelector",
    "affinity",
    "tolerations",
    "topologySpreadConstraints",
    "priorityClassName",
    "priority",
    "preemptionPolicy",
    "runtimeClassName",
    "overhead",
    "hostNetwork",
    "resourceClaims",
    "resources",
    "os",
)
_CONTAINER_FIELDS = ("name", "image", "resources", "restartPolicy")
_VOLUME_FIELDS = ("persistentVolumeClaim", "ephemeral")


@dataclass(frozen=True, slots=True)
class OwningGroup:
    """The gang's object."""

    resource: Resource
    namespace: str
    name: str
    uid: str

    @property
    def stem(self) -> str:
        """What names of its requests begin with: another one for another incarnation of it."""
        return f"{self._first}{_digest(self.uid)[:5]}"

    @property
    def _first(self) -> str:
        return f"windlass-{self.name[:_MOST_NAME]}-"

    def is_request(self, name: str) -> bool:
        """Return whether that is the name of one of them, or of those of a former incarnation."""
        return name.startswith(self._first)

    def request_name(self, attempt: int) -> str:
        return f"{self.stem}-{attempt}"

    def reference(self, *, controller: bool) -> Json:
        found = {
            "apiVersion": self.resource.api_version,
            "kind": self.resource.kind,
            "name": self.name,
            "uid": self.uid,
        }
        return {**found, "controller": True} if controller else found


def template_of(owner: OwningGroup, pod: Mapping[str, Any], labels: Mapping[str, str]) -> Json:
    """The PodTemplate for pods like ``pod`` (a whole object); ``labels``: those that they have in common."""
    spec = pod["spec"]
    kept: Json = {name: spec[name] for name in _POD_FIELDS if spec.get(name)}
    for name in ("initContainers", "containers"):
        if spec.get(name):
            kept[name] = [_container(one) for one in spec[name]]
    volumes = [one for one in spec.get("volumes") or () if any(one.get(name) for name in _VOLUME_FIELDS)]
    if volumes:
        kept["volumes"] = volumes
    template = {"metadata": {"labels": dict(labels)}, "spec": kept}
    digest = _digest(msgspec.json.encode(template, order="sorted").decode())
    return {
        "apiVersion": POD_TEMPLATES.api_version,
        "kind": POD_TEMPLATES.kind,
        "metadata": {
            "name": f"{owner.stem}-{digest[:10]}",
            "namespace": owner.namespace,
            "labels": MANAGED_BY,
            "ownerReferences": [owner.reference(controller=False)],
        },
        "template": template,
    }


def _container(container: Mapping[str, Any]) -> Json:
    kept = {name: container[name] for name in _CONTAINER_FIELDS if container.get(name)}
    ports = [port for port in container.get("ports") or () if port.get("hostPort")]
    return {**kept, "ports": ports} if ports else kept


def request_of(owner: OwningGroup, want: WantedRequest, templates: Sequence[str], attempt: int) -> Json:
    """``templates``: the name of each class's, in their order."""
    handed = {"parameters": dict(want.parameters)} if want.parameters else {}
    return {
        "apiVersion": PROVISIONING_REQUESTS.api_version,
        "kind": PROVISIONING_REQUESTS.kind,
        "metadata": {
            "name": owner.request_name(attempt),
            "namespace": owner.namespace,
            "labels": MANAGED_BY,
            "annotations": names.both(names.PROVISIONING_FOR, want.digest) | {names.ATTEMPT: str(attempt)},
            "ownerReferences": [owner.reference(controller=True)],
        },
        "spec": {
            "provisioningClassName": want.class_name,
            **handed,
            "podSets": [
                {"count": len(one.pods), "podTemplateRef": {"name": name}}
                for one, name in zip(want.classes, templates, strict=True)
            ],
        },
    }


def consumes(name: str, class_name: str) -> dict[str, str | None]:
    """The annotations of pods that a request was made for; ``""`` and ``""``: of none any more."""
    return {names.NODES_REQUESTED: name or None, names.PROVISIONING_CLASS_NAME: class_name or None}


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
