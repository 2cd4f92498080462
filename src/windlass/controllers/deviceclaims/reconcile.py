"""Life cycle of ResourceClaims. Pure.

It follows kube-controller-manager's resource claim controller. The claim of a template
is created before its pod is scheduled, is named in the pod's status, and is deleted
after the pod finished. A claim without users is deallocated. A template named
``windlass-class.CLASS`` is not an object: it stands for one device of class ``CLASS``.
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
"""On a claim created from a template: name of the claim in its pod."""
_NAME_LENGTH = 253
GPU_CLASS = "gpu.nvidia.com"
_GPU_SELECTOR = "device.driver == 'gpu.nvidia.com' && device.attributes['gpu.nvidia.com'].type == 'gpu'"


def template_claims(pod: Json) -> list[Json]:
    """The pod's claims that are made for it alone."""
    claims = (pod.get("spec") or {}).get("resourceClaims") or ()
    return [claim for claim in claims if claim.get("resourceClaimTemplateName")]


def finished(pod: Json) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def claim_name(pod: Json, claim: Json) -> str:
    """Return a name that is stable for one incarnation of the pod.

    So repeating the reconciliation creates no second claim.
    """
    metadata = pod["metadata"]
    mark = blake2b(f"{metadata.get('uid', '')}/{claim['name']}".encode(), digest_size=4).hexdigest()
    stem = f"{metadata['name']}-{claim['name']}"
    return f"{stem[: _NAME_LENGTH - 9]}-{mark}"


def reconcile_pod(pod: Json, templates: Mapping[str, Json], claims: Mapping[str, Json]) -> Effects:
    """``templates`` and ``claims``: those of the pod's namespace, by name."""
    own = template_claims(pod)
    if not own:
        return NOTHING
    metadata = pod["metadata"]
    plan = EffectPlan(about=reference(PODS, pod))
    if finished(pod):
        plan.stage(*_claims_to_delete(pod, claims))
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
    """Return metadata and spec for the claims of a template; ``None`` if it does not exist."""
    if template.startswith(CLASS_TEMPLATE):
        exactly = {"deviceClassName": template.removeprefix(CLASS_TEMPLATE)}
        return {"spec": {"devices": {"requests": [{"name": "device", "exactly": exactly}]}}}
    found = templates.get(template)
    return None if found is None else found.get("spec") or {}


def _claim(pod: Json, claim: Json, name: str, spec_of_template: Json) -> Json:
    metadata = spec_of_template.get("metadata") or {}
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
        "spec": spec_of_template.get("spec") or {},
    }


def _claims_to_delete(pod: Json, claims: Mapping[str, Json]) -> Iterable[Delete]:
    """Return deletions of the claims that were created for a finished pod."""
    uid = pod["metadata"].get("uid")
    for status in (pod.get("status") or {}).get("resourceClaimStatuses") or ():
        claim = claims.get(status.get("resourceClaimName") or "")
        owner = controller_of(claim) if claim is not None else None
        if claim is not None and owner is not None and owner["uid"] == uid:
            metadata = claim["metadata"]
            yield Delete(RESOURCE_CLAIMS, metadata["name"], metadata["namespace"], metadata.get("uid"))


def reconcile_claim(claim: Json, running: Mapping[str, bool]) -> Effects:
    """Remove pods from a claim that do not use it any more.

    A claim without users is deallocated and loses its finalizer.
    ``running``: UID of each existing pod that it is reserved for → whether it is
        unfinished.
    """
    status = claim.get("status") or {}
    metadata = claim["metadata"]
    reserved = status.get("reservedFor") or []
    remaining = [
        one for one in reserved if one.get("resource") != "pods" or running.get(one.get("uid", ""), False)
    ]
    freed = bool(metadata.get("deletionTimestamp")) and FINALIZER in (metadata.get("finalizers") or ())
    if len(remaining) == len(reserved) and (remaining or not freed):
        return NOTHING
    change: Json = {"reservedFor": remaining or None}
    if not remaining:
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
    if not remaining and FINALIZER in (metadata.get("finalizers") or ()):
        body = {"metadata": {"finalizers": others or None}}
        plan.stage(
            Patch(RESOURCE_CLAIMS, metadata["name"], body, metadata["namespace"], uid=metadata.get("uid"))
        )
    return plan.done()


def reconcile_class(present: bool) -> Effects:
    """Create the DeviceClass of whole NVIDIA GPUs, as NVIDIA's driver ships it, if absent.

    An existing class is never changed.
    """
    if present:
        return NOTHING
    obj = {
        "apiVersion": DEVICE_CLASSES.api_version,
        "kind": DEVICE_CLASSES.kind,
        "metadata": {"name": GPU_CLASS},
        "spec": {"selectors": [{"cel": {"expression": _GPU_SELECTOR}}]},
    }
    return Effects(stages=((Create(DEVICE_CLASSES, obj),),))
