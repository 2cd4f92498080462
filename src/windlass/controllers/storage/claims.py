"""Binding of one PersistentVolumeClaim, as Kubernetes' volume binder does it. Pure.

The order of the writes is: the volume names the claim, the claim names the volume, the
status says Bound. A controller that stops in between finds the volume by its claim.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from windlass.api.local_storage import (
    BOUND_BY_CONTROLLER,
    CLAIM_PROTECTION,
    LOCAL_PROVISIONER,
    NO_PROVISIONER,
    STORAGE_PROVISIONER,
    STORAGE_PROVISIONER_BETA,
    default_class,
)
from windlass.api.quantities import QuantityError, to_units
from windlass.api.resources import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES
from windlass.api.selectors import SelectorError, from_object
from windlass.api.views.storage import BIND_COMPLETED, SELECTED_NODE, WAITS
from windlass.client.event_correlator import ObjectRef
from windlass.controllers.effects import NOTHING, EffectPlan, Effects, EmitEvent, Patch, Update, reference

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ClaimSnapshot:
    """Observed surroundings of a claim.

    ``in_use``: a pod with a node that has not ended names the claim.
    ``volumes``: all volumes. ``classes``: all storage classes.
    """

    in_use: bool
    volumes: Sequence[Json]
    classes: Sequence[Json]


def reconcile_claim(claim: Json, observed: ClaimSnapshot) -> Effects:
    """Reconcile one claim."""
    plan = EffectPlan(about=reference(PERSISTENT_VOLUME_CLAIMS, claim))
    meta = claim["metadata"]
    if meta.get("deletionTimestamp"):
        finalizers = meta.get("finalizers") or []
        if CLAIM_PROTECTION in finalizers and not observed.in_use:
            kept = [name for name in finalizers if name != CLAIM_PROTECTION]
            plan.stage(_patch(claim, {"metadata": {"finalizers": kept}}))
        return plan.done()
    if claim["spec"].get("volumeName"):
        _named(claim, observed, plan)
    else:
        _unbound(claim, observed, plan)
    return plan.done() if plan.stages or plan.events else NOTHING


def _patch(claim: Json, patch: Json) -> Patch:
    meta = claim["metadata"]
    return Patch(
        PERSISTENT_VOLUME_CLAIMS,
        meta["name"],
        patch,
        meta["namespace"],
        uid=meta["uid"],
        resource_version=meta["resourceVersion"],
    )


def _event(claim: Json, kind: str, reason: str, message: str) -> EmitEvent:
    return EmitEvent(about_claim(claim), kind, reason, message, lasting=True)


def about_claim(claim: Json) -> ObjectRef:
    return reference(PERSISTENT_VOLUME_CLAIMS, claim)


def _phase(claim: Json, plan: EffectPlan, **status: Any) -> None:
    """Write the status unless it is already so."""
    now = claim.get("status") or {}
    if any(now.get(field) != value for field, value in status.items()):
        body = {**claim, "status": {**now, **status}}
        plan.stage(Update(PERSISTENT_VOLUME_CLAIMS, body, "status"))


# -- a claim that names a volume ---------------------------------------------------------------


def _named(claim: Json, observed: ClaimSnapshot, plan: EffectPlan) -> None:
    name = claim["spec"]["volumeName"]
    volume = next((one for one in observed.volumes if one["metadata"]["name"] == name), None)
    completed = BIND_COMPLETED in (claim["metadata"].get("annotations") or {})
    if volume is None:
        if completed:
            message = "Bound claim has lost its PersistentVolume. Data on the volume is lost!"
            plan.event(_event(claim, "Warning", "ClaimLost", message))
        _phase(claim, plan, phase="Lost" if completed else "Pending")
        return
    held = volume["spec"].get("claimRef")
    if held is not None and not _is_claim(held, claim):
        message = f'volume "{name}" already bound to a different claim.'
        if completed:
            plan.event(
                _event(
                    claim, "Warning", "ClaimMisbound", f"Two claims are bound to the same volume, {message}"
                )
            )
        else:
            plan.event(_event(claim, "Warning", "FailedBinding", message))
        _phase(claim, plan, phase="Lost" if completed else "Pending")
        return
    _bind(claim, volume, plan)


def _is_claim(held: Json, claim: Json) -> bool:
    meta = claim["metadata"]
    return (
        held.get("namespace") == meta["namespace"]
        and held.get("name") == meta["name"]
        and held.get("uid") in (None, "", meta["uid"])
    )


def _bind(claim: Json, volume: Json, plan: EffectPlan) -> None:
    """Write what is missing of a binding, in its order."""
    meta, spec = claim["metadata"], volume["spec"]
    held = spec.get("claimRef") or {}
    if held.get("uid") != meta["uid"]:
        holder = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "namespace": meta["namespace"],
            "name": meta["name"],
            "uid": meta["uid"],
        }
        patch: Json = {"spec": {"claimRef": holder}}
        if not held:
            patch["metadata"] = {"annotations": {BOUND_BY_CONTROLLER: "yes"}}
        found = volume["metadata"]
        plan.stage(
            Patch(
                PERSISTENT_VOLUMES,
                found["name"],
                patch,
                uid=found["uid"],
                resource_version=found["resourceVersion"],
            )
        )
    annotations = meta.get("annotations") or {}
    if claim["spec"].get("volumeName") != found_name(volume) or BIND_COMPLETED not in annotations:
        marks = {BIND_COMPLETED: "yes"}
        if not claim["spec"].get("volumeName"):
            marks[BOUND_BY_CONTROLLER] = "yes"
        change = {"metadata": {"annotations": marks}, "spec": {"volumeName": found_name(volume)}}
        plan.stage(_patch(claim, change))
        return  # The status is written against the new version.
    requested = _size(claim["spec"].get("resources", {}).get("requests", {}).get("storage"))
    capacity = dict(spec.get("capacity") or {})
    if requested > _size(capacity.get("storage")):  # growth: a directory has no size of its own
        capacity["storage"] = claim["spec"]["resources"]["requests"]["storage"]
        plan.stage(Patch(PERSISTENT_VOLUMES, found_name(volume), {"spec": {"capacity": capacity}}))
    _phase(claim, plan, phase="Bound", accessModes=spec.get("accessModes") or [], capacity=capacity)


def found_name(volume: Json) -> str:
    return volume["metadata"]["name"]


def _size(text: Any) -> int:
    try:
        return to_units("storage", text) if text is not None else 0
    except QuantityError:
        return 0


# -- a claim without a volume ------------------------------------------------------------------


def _unbound(claim: Json, observed: ClaimSnapshot, plan: EffectPlan) -> None:
    spec = claim["spec"]
    name = spec.get("storageClassName")
    if name is None and (default := default_class(list(observed.classes))) is not None:
        plan.stage(_patch(claim, {"spec": {"storageClassName": default["metadata"]["name"]}}))
        return
    found = next((one for one in observed.classes if name and one["metadata"]["name"] == name), None)
    annotations = claim["metadata"].get("annotations") or {}
    waits = found is not None and found.get("volumeBindingMode") == WAITS and SELECTED_NODE not in annotations
    volume = _match(claim, observed.volumes, only_held=waits)
    if volume is not None:
        _bind(claim, volume, plan)
        return
    if waits:
        message = "waiting for first consumer to be created before binding"
        plan.event(_event(claim, "Normal", "WaitForFirstConsumer", message))
    elif not name:
        message = "no persistent volumes available for this claim and no storage class is set"
        plan.event(_event(claim, "Normal", "FailedBinding", message))
    elif found is not None and found.get("provisioner") == NO_PROVISIONER:
        message = "storageclass.storage.k8s.io has no provisioner: create a PersistentVolume of the class"
        plan.event(_event(claim, "Normal", "FailedBinding", message))
    else:
        _ask_provisioner(claim, name, found, plan)
    _phase(claim, plan, phase="Pending")


def _ask_provisioner(claim: Json, name: str, found: Json | None, plan: EffectPlan) -> None:
    """Ask the provisioner of this machine, which also stands in for those that are not here."""
    wanted = (found or {}).get("provisioner")
    if found is None:
        message = (
            f'storageclass.storage.k8s.io "{name}" not found: a directory of this machine stands in for its '
            "volume; kubectl get storageclass shows the classes"
        )
        plan.event(_event(claim, "Warning", "ProvisioningStandIn", message))
    elif wanted != LOCAL_PROVISIONER:
        message = f"provisioner {wanted} is not here: a directory of this machine stands in for its volume"
        plan.event(_event(claim, "Warning", "ProvisioningStandIn", message))
    annotations = claim["metadata"].get("annotations") or {}
    if annotations.get(STORAGE_PROVISIONER) != LOCAL_PROVISIONER:
        marks = {STORAGE_PROVISIONER: LOCAL_PROVISIONER, STORAGE_PROVISIONER_BETA: LOCAL_PROVISIONER}
        plan.stage(_patch(claim, {"metadata": {"annotations": marks}}))
    message = (
        f"Waiting for a volume to be created either by the external provisioner '{LOCAL_PROVISIONER}' or "
        "manually by the system administrator. If volume creation is delayed, please verify that the "
        "provisioner is running and correctly registered."
    )
    plan.event(_event(claim, "Normal", "ExternalProvisioning", message))


def _match(claim: Json, volumes: Sequence[Json], *, only_held: bool) -> Json | None:
    """Return the volume kept for the claim, else the smallest one that suits."""
    for volume in volumes:
        held = volume["spec"].get("claimRef")
        if held is not None and _is_claim(held, claim):
            return volume
    if only_held:
        return None
    fitting = [volume for volume in volumes if _fits(claim, volume)]
    return min(
        fitting,
        key=lambda one: (_size((one["spec"].get("capacity") or {}).get("storage")), found_name(one)),
        default=None,
    )


def _fits(claim: Json, volume: Json) -> bool:
    spec, wanted = volume["spec"], claim["spec"]
    if spec.get("claimRef") or volume["metadata"].get("deletionTimestamp"):
        return False
    if (volume.get("status") or {}).get("phase") not in (None, "", "Pending", "Available"):
        return False
    if (spec.get("storageClassName") or "") != (wanted.get("storageClassName") or ""):
        return False
    if (spec.get("volumeMode") or "Filesystem") != (wanted.get("volumeMode") or "Filesystem"):
        return False
    if not set(wanted.get("accessModes") or ()) <= set(spec.get("accessModes") or ()):
        return False
    requested = ((wanted.get("resources") or {}).get("requests") or {}).get("storage")
    if _size((spec.get("capacity") or {}).get("storage")) < _size(requested):
        return False
    selector = wanted.get("selector")
    if not selector:
        return True
    try:
        parsed = from_object(selector)
        return parsed is not None and parsed.matches(volume["metadata"].get("labels"))
    except SelectorError:
        return False
