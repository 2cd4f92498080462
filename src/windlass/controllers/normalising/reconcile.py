"""Normalisation of one object that uses an alias spelling. Pure.

A field with a place of its own is moved there (a queue's ``guaranteed``). Others are
only interpreted and stay. Either way condition ``Normalized`` and an event record it,
with the text of the embedded server's warning. If both spellings are set and differ,
nothing is moved and the condition is ``False``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from windlass.api.aliases import DESERVED, GUARANTEED, GUARANTEED_TWICE, pod_words, same_amounts
from windlass.api.resources import PODS, QUEUES, VOLCANO_JOBS, VOLCANO_JOBS_V1BETA1, Resource
from windlass.controllers.effects import NOTHING, Effects, EmitEvent, Patch, reference

Json = dict[str, Any]
CONDITION = "Normalized"
ALIAS, CONFLICT = "Alias", "AliasConflict"
OLD_VERSION = "alias: batch.volcano.sh/v1beta1 -> v1alpha1"


def queue(obj: Json, now: str) -> Effects:
    """Record the alias first, and move the field in the next reconciliation.

    So a moved field always has its record. ``now``: time for the condition (RFC 3339).
    """
    spec = obj.get("spec") or {}
    alias = spec.get("guaranteed")
    if alias is None or obj["metadata"].get("deletionTimestamp"):
        return NOTHING
    guarantee = (spec.get("guarantee") or {}).get("resource")
    if guarantee and not same_amounts(guarantee, alias):
        return _recorded(QUEUES, obj, "False", CONFLICT, f"spec.guaranteed: {GUARANTEED_TWICE}", now)
    change: Json = {"guaranteed": None, "guarantee": {"resource": alias}}
    message = [GUARANTEED]
    if "deserved" not in spec:
        change["deserved"] = alias
        message.append(DESERVED)
    recorded = _recorded(QUEUES, obj, "True", ALIAS, "; ".join(message), now)
    if recorded is not NOTHING:
        return recorded
    moved = Patch(QUEUES, obj["metadata"]["name"], {"spec": change}, resource_version=_version(obj))
    return Effects(((moved,),), about=reference(QUEUES, obj))


def pod(obj: Json, now: str) -> Effects:
    message = "; ".join(dict.fromkeys(pod_words(obj.get("spec") or {})))
    if not message or obj["metadata"].get("deletionTimestamp"):
        return NOTHING
    return _recorded(PODS, obj, "True", ALIAS, message, now)


def job(obj: Json) -> Effects:
    """A Job's conditions are its phases, as Volcano has them, so that an event has to do."""
    wrote = {entry.get("apiVersion") for entry in obj["metadata"].get("managedFields") or ()}
    if VOLCANO_JOBS_V1BETA1.api_version not in wrote:
        return NOTHING
    event = EmitEvent(reference(VOLCANO_JOBS, obj), "Normal", CONDITION, OLD_VERSION, lasting=True)
    return Effects(events=(event,))


def _recorded(resource: Resource, obj: Json, status: str, reason: str, message: str, now: str) -> Effects:
    """Return effects that write the condition and the event; none if the condition is current."""
    present: Sequence[Mapping[str, Any]] = (obj.get("status") or {}).get("conditions") or ()
    others = [dict(one) for one in present if one.get("type") != CONDITION]
    same = [one for one in present if one.get("type") == CONDITION]
    if same and (same[0].get("status"), same[0].get("message")) == (status, message):
        return NOTHING
    condition = {
        "type": CONDITION,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": now,
    }
    metadata = obj["metadata"]
    patch = Patch(
        resource,
        metadata["name"],
        {"status": {"conditions": [*others, condition]}},
        metadata.get("namespace"),
        subresource="status",
        uid=metadata["uid"],
        resource_version=_version(obj),
    )
    about = reference(resource, obj)
    kind = "Normal" if status == "True" else "Warning"
    return Effects(((patch,),), (EmitEvent(about, kind, CONDITION, message, lasting=True),), about=about)


def _version(obj: Json) -> str:
    return obj["metadata"]["resourceVersion"]
