"""What becomes of claims for devices. Pure.

As kube-controller-manager's resource claim controller: a pod's claim of a template is made before the pod is
scheduled, is named in the pod's status, and goes when the pod has ended; a claim that nobody uses any more
is allocated no longer. A template whose name begins with ``windlass-class.`` is no object: it stands for one
device of the class that follows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Any

from windlass.api.resources import DEVICE_CLASSES, PODS, RESOURCE_CLAIMS
from windlass.api.views.claims import FINALIZER
from windlass.api.views.podshape import CLASS_TEMPLATE
from windlass.controllers.effects import (
    NOTHING,
    Create,
    Delete,
    EffectPlan,
    Effects,
    EmitEvent,
    Patch,
    controller_of,
    controller_reference,
    reference,
)

Json = dict[str, Any]
POD_CLAIM = "resource.kubernetes.io/pod-claim-name"
"""On a claim that was made of a template: what its pod calls it."""
_NAME_LENGTH = 253
GPU_CLASS = "gpu.nvidia.com"
_GPU_SELECTOR = "device.driver == 'gpu.nvidia.com' && device.attributes['gpu.nvidia.com'].type == 'gpu'"


def wanted(pod: Json) -> list[Json]:
    """The pod's claims that are made for it alone."""
    claims = (pod.get("spec") or {}).get("resourceClaims") or ()
    return [claim for claim in claims if claim.get("resourceClaimTemplateName")]


def ended(pod: Json) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def claim_name(pod: Json, claim: Json) -> str:
    """The same for the same incarnation of a pod, so that a repeated step makes no second claim."""
    metadata = pod["metadata"]
    mark = blake2b(f"{metadata.get('uid', '')}/{claim['name']}".encode(), digest_size=4).hexdigest()
    stem = f"{metadata['name']}-{claim['name']}"
    return f"{stem[: _NAME_LENGTH - 9]}-{mark}"


def pod_step(pod: Json, templates: Mapping[str, Json], claims: Mapping[str, Json]) -> Effects:
    """``templates`` and ``claims``: those of the pod's namespace, by name."""
    own = wanted(pod)
    if not own:
        return NOTHING
    metadata = pod["metadata"]
    plan = EffectPlan(about=reference(PODS, pod))
    if ended(pod):
        plan.stage(*_given_back(pod, claims))
        return plan.done()
    if metadata.get("deletionTimestamp"):
        return NOTHING
    known = {one["name"]: one for one in (pod.get("status") or {}).get("resourceClaimStatuses") or ()}
    statuses = dict(known)
    for claim in own:
        if known.get(claim["name"], {}).get("resourceClaimName") in claims:
            continue
        spec = _spec_of(claim["resourceClaimTemplateName"], templates)
        if spec is None:
            plan.event(
                EmitEvent(
                    reference(PODS, pod),
                    "Warning",
                    "FailedResourceClaimCreation",
                    f"ResourceClaimTemplate {claim['resourceClaimTemplateName']} does not exist in namespace "
                    f"{metadata['namespace']}: create it",
                    lasting=True,
                )
            )
            continue
        name = claim_name(pod, claim)
        if name not in claims:
            plan.stage(Create(RESOURCE_CLAIMS, _claim(pod, claim, name, spec)))
        statuses[claim["name"]] = {"name": claim["name"], "resourceClaimName": name}
    if statuses != known:
        body = {"status": {"resourceClaimStatuses": list(statuses.values())}}
        plan.stage(
            Patch(
                PODS,
                metadata["name"],
                body,
                metadata["namespace"],
                subresource="status",
                uid=metadata.get("uid"),
            )
        )
    return plan.done()


def _spec_of(template: str, templates: Mapping[str, Json]) -> Json | None:
    """What a template says: metadata and spec of its claims."""
    if template.startswith(CLASS_TEMPLATE):
        exactly = {"deviceClassName": template.removeprefix(CLASS_TEMPLATE)}
        return {"spec": {"devices": {"requests": [{"name": "device", "exactly": exactly}]}}}
    found = templates.get(template)
    return None if found is None else found.get("spec") or {}


def _claim(pod: Json, claim: Json, name: str, said: Json) -> Json:
    metadata = said.get("metadata") or {}
    return {
        "apiVersion": RESOURCE_CLAIMS.api_version,
        "kind": RESOURCE_CLAIMS.kind,
        "metadata": {
            "name": name,
            "namespace": pod["metadata"]["namespace"],
            "labels": metadata.get("labels") or {},
            "annotations": {**(metadata.get("annotations") or {}), POD_CLAIM: claim["name"]},
            "ownerReferences": [controller_reference(PODS, pod)],
        },
        "spec": said.get("spec") or {},
    }


def _given_back(pod: Json, claims: Mapping[str, Json]) -> Iterable[Delete]:
    """Claims that were made for a pod that has ended."""
    uid = pod["metadata"].get("uid")
    for status in (pod.get("status") or {}).get("resourceClaimStatuses") or ():
        claim = claims.get(status.get("resourceClaimName") or "")
        owner = controller_of(claim) if claim is not None else None
        if claim is not None and owner is not None and owner["uid"] == uid:
            metadata = claim["metadata"]
            yield Delete(RESOURCE_CLAIMS, metadata["name"], metadata["namespace"], metadata.get("uid"))


def claim_step(claim: Json, living: Mapping[str, bool]) -> Effects:
    """Take pods that use it no more off a claim; one that nobody uses is neither allocated nor kept from being
    deleted. ``living``: of the pods that it is reserved for, by UID, whether
    they have not ended; whose UID is not there is gone."""
    status = claim.get("status") or {}
    metadata = claim["metadata"]
    reserved = status.get("reservedFor") or []
    left = [one for one in reserved if one.get("resource") != "pods" or living.get(one.get("uid", ""), False)]
    freed = bool(metadata.get("deletionTimestamp")) and FINALIZER in (metadata.get("finalizers") or ())
    if len(left) == len(reserved) and (left or not freed):
        return NOTHING
    change: Json = {"reservedFor": left or None}
    if not left:
        change["allocation"] = None
    plan = EffectPlan(about=reference(RESOURCE_CLAIMS, claim))
    plan.stage(
        Patch(
            RESOURCE_CLAIMS,
            metadata["name"],
            {"status": change},
            metadata["namespace"],
            subresource="status",
            uid=metadata.get("uid"),
            resource_version=metadata.get("resourceVersion"),
        )
    )
    others = [name for name in metadata.get("finalizers") or () if name != FINALIZER]
    if not left and FINALIZER in (metadata.get("finalizers") or ()):
        body = {"metadata": {"finalizers": others or None}}
        plan.stage(
            Patch(RESOURCE_CLAIMS, metadata["name"], body, metadata["namespace"], uid=metadata.get("uid"))
        )
    return plan.done()


def class_step(present: bool) -> Effects:
    """The class of whole NVIDIA GPUs, as its driver ships it; one that is there is never changed."""
    if present:
        return NOTHING
    obj = {
        "apiVersion": DEVICE_CLASSES.api_version,
        "kind": DEVICE_CLASSES.kind,
        "metadata": {"name": GPU_CLASS},
        "spec": {"selectors": [{"cel": {"expression": _GPU_SELECTOR}}]},
    }
    return Effects(stages=((Create(DEVICE_CLASSES, obj),),))
