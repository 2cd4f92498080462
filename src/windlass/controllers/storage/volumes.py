"""Phase and protection of one PersistentVolume. Pure."""

from __future__ import annotations

from typing import Any

from windlass.api.local_storage import PROVISIONED_BY, VOLUME_PROTECTION
from windlass.api.resources import PERSISTENT_VOLUMES
from windlass.controllers.effects import EffectPlan, Effects, EmitEvent, Patch, Update, reference

Json = dict[str, Any]


def reconcile_volume(volume: Json, claim: Json | None) -> Effects:
    """Reconcile one volume. ``claim``: the claim with the name in its ``claimRef``, if it exists."""
    plan = EffectPlan(about=reference(PERSISTENT_VOLUMES, volume))
    meta, spec = volume["metadata"], volume["spec"]
    phase = _phase(spec.get("claimRef"), claim)
    finalizers = meta.get("finalizers") or []
    if meta.get("deletionTimestamp"):
        if VOLUME_PROTECTION in finalizers and phase != "Bound":
            kept = [name for name in finalizers if name != VOLUME_PROTECTION]
            plan.stage(
                Patch(PERSISTENT_VOLUMES, meta["name"], {"metadata": {"finalizers": kept}}, uid=meta["uid"])
            )
        return plan.done()
    status = {"phase": phase}
    provisioned = PROVISIONED_BY in (meta.get("annotations") or {})
    if phase == "Released" and spec.get("persistentVolumeReclaimPolicy") == "Delete" and not provisioned:
        message = f'Error getting deleter volume plugin for volume "{meta["name"]}": no deletable volume plugin matched'
        status = {"phase": "Failed", "message": message}
        about = reference(PERSISTENT_VOLUMES, volume)
        plan.event(EmitEvent(about, "Warning", "VolumeFailedDelete", message, lasting=True))
    now = {key: text for key, text in (volume.get("status") or {}).items() if key in ("phase", "message")}
    if now != status:
        plan.stage(Update(PERSISTENT_VOLUMES, {**volume, "status": status}, "status"))
    return plan.done()


def _phase(held: Json | None, claim: Json | None) -> str:
    if held is None or not held.get("uid"):
        return "Available"
    if claim is None or claim["metadata"]["uid"] != held["uid"]:
        return "Released"
    return "Bound"
