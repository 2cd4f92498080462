"""Objects that request nodes: a ProvisioningRequest, and a PodTemplate per class of pods.

Pure.

A template contains what a scheduler needs to know of a pod, and nothing else: no
commands, no environment, and no volumes except claims. Its name is derived from its
content, so a repeated request creates it again only if it differs. Templates and
request belong to the gang's PodGroup and are deleted with it.
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
_MAX_NAME = 200
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
    """Object of a gang."""

    resource: Resource
    namespace: str
    name: str
    uid: str

    @property
    def stem(self) -> str:
        """Prefix of the names of its requests. It differs for each incarnation of the object."""
        return f"{self._first}{_digest(self.uid)[:5]}"

    @property
    def _first(self) -> str:
        return f"windlass-{self.name[:_MAX_NAME]}-"

    def is_request(self, name: str) -> bool:
        """Return whether a name is that of a request for this object or a previous incarnation."""
        return name.startswith(self._first)

    def request_name(self, attempt: int) -> str:
        return f"{self.stem}-{attempt}"

    def reference(self, *, controller: bool) -> Json:
        reference = {
            "apiVersion": self.resource.api_version,
            "kind": self.resource.kind,
            "name": self.name,
            "uid": self.uid,
        }
        return {**reference, "controller": True} if controller else reference


def template_of(owner: OwningGroup, pod: Mapping[str, Any], labels: Mapping[str, str]) -> Json:
    """Return the PodTemplate for pods like ``pod`` (a whole object).

    ``labels``: labels that all of them have.
    """
    spec = pod["spec"]
    copied: Json = {name: spec[name] for name in _POD_FIELDS if spec.get(name)}
    for name in ("initContainers", "containers"):
        if spec.get(name):
            copied[name] = [_container(item) for item in spec[name]]
    volumes = [item for item in spec.get("volumes") or () if any(item.get(name) for name in _VOLUME_FIELDS)]
    if volumes:
        copied["volumes"] = volumes
    template = {"metadata": {"labels": dict(labels)}, "spec": copied}
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
    copied = {name: container[name] for name in _CONTAINER_FIELDS if container.get(name)}
    ports = [port for port in container.get("ports") or () if port.get("hostPort")]
    return {**copied, "ports": ports} if ports else copied


def request_of(owner: OwningGroup, want: WantedRequest, templates: Sequence[str], attempt: int) -> Json:
    """Return the ProvisioningRequest. ``templates``: the template name of each class, in order."""
    parameters = {"parameters": dict(want.parameters)} if want.parameters else {}
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
            **parameters,
            "podSets": [
                {"count": len(pod_class.pods), "podTemplateRef": {"name": name}}
                for pod_class, name in zip(want.classes, templates, strict=True)
            ],
        },
    }


def consumes(name: str, class_name: str) -> dict[str, str | None]:
    """Return the annotations of a request's pods; with two ``""``, their removal."""
    return {names.NODES_REQUESTED: name or None, names.PROVISIONING_CLASS_NAME: class_name or None}


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
