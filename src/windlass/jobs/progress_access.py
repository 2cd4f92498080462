"""Variables, certificate and token by which the program of a job reports progress in a cluster.

Kubeflow's KEP-2779 mounts a token of the pod's service account for one job, and the
certificate of the status endpoint. The certificate is an annotation of the pod, so no
ConfigMap is needed in the namespace of the job.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from windlass.api import annotations as names

Json = Mapping[str, Any]
MOUNT = "/var/run/secrets/kubeflow/trainer"
VOLUME = "kubeflow-trainer-token"
TOKEN_SECONDS = 3600
"""Lifetime of a token in seconds. The kubelet renews it before."""
PREFIXES = ("KUBEFLOW_TRAINER_STATUS", "KUBEFLOW_TRAINER_SERVER")
"""Beginnings of the variables: those of the proposal and those of Trainer 2.3."""


@dataclass(frozen=True, slots=True)
class ProgressAccess:
    """Status endpoint of a cluster: ``https://HOST:PORT``, and its authority as PEM."""

    address: str
    authority: str


def audience_of(path: str) -> str:
    """Return the audience of tokens for the status endpoint of one job, as Kubeflow forms it.

    ``path``: ``/apis/GROUP/VERSION/namespaces/NAMESPACE/KIND/NAME/status``.
    """
    return path.removeprefix("/apis/")


def with_access(template: Json, path: str, access: ProgressAccess) -> dict[str, Any]:
    """Return a pod, or a pod template, with access to a status endpoint.

    One that has such a volume stays as it is. ``path``: of the job, unless an annotation
    of the template names another one.
    """
    spec, metadata = template.get("spec") or {}, template.get("metadata") or {}
    notes = metadata.get("annotations") or {}
    if any(volume.get("name") == VOLUME for volume in spec.get("volumes") or ()):
        return dict(template)
    path = notes.get(names.PROGRESS_PATH) or path
    values = {
        "URL": f"{access.address}{path}",
        "CA_CERT": f"{MOUNT}/ca.crt",
        "TOKEN": f"{MOUNT}/token",
    }
    variables = {f"{prefix}_{name}": value for prefix in PREFIXES for name, value in values.items()}
    body = {**spec, "volumes": [*(spec.get("volumes") or ()), _volume(path)]}
    # The API server's own default, which a volume with a token needs where that default is off.
    body["serviceAccountName"] = spec.get("serviceAccountName") or spec.get("serviceAccount") or "default"
    body["containers"] = [_container(one, variables) for one in spec.get("containers") or ()]
    annotations = {**notes, names.PROGRESS_CERTIFICATE: access.authority}
    return {**template, "metadata": {**metadata, "annotations": annotations}, "spec": body}


def _container(container: Json, variables: Json) -> dict[str, Any]:
    own = container.get("env") or ()
    stated = {variable.get("name") for variable in own}
    added = [{"name": name, "value": value} for name, value in variables.items() if name not in stated]
    mount = {"name": VOLUME, "mountPath": MOUNT, "readOnly": True}
    return {
        **container,
        "env": [*own, *added],
        "volumeMounts": [*(container.get("volumeMounts") or ()), mount],
    }


def _volume(path: str) -> dict[str, Any]:
    token = {"audience": audience_of(path), "expirationSeconds": TOKEN_SECONDS, "path": "token"}
    reference = {"fieldPath": f"metadata.annotations['{names.PROGRESS_CERTIFICATE}']"}
    certificate = {"items": [{"path": "ca.crt", "fieldRef": reference}]}
    return {
        "name": VOLUME,
        "projected": {"sources": [{"serviceAccountToken": token}, {"downwardAPI": certificate}]},
    }
