"""One look at an object that is written in another spelling.

What can be moved to its own place is moved (a queue's ``guaranteed``); what is only read differently stays. Either way
it is recorded: condition ``Normalized`` with the same words that the embedded server warns with, and an event. Where
the two spellings say different things nothing is moved, and the condition is ``False``. Pure.
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
    """First the record, in the next look the move: what is moved is never without its record. ``now``: the time, in
    RFC 3339, for the condition."""
    spec = obj.get("spec") or {}
    alias = spec.get("guaranteed")
    if alias is None or obj["metadata"].get("deletionTimestamp"):
        return NOTHING
    given = (spec.get("guarantee") or {}).get("resource")
    if given and not same_amounts(given, alias):
        return _recorded(QUEUES, obj, "False", CONFLICT, f"spec.guaranteed: {GUARANTEED_TWICE}", now)
    change: Json = {"guaranteed": None, "guarantee": {"resource": alias}}
    words = [GUARANTEED]
    if "deserved" not in spec:
        change["deserved"] = alias
        words.append(DESERVED)
    told = _recorded(QUEUES, obj, "True", ALIAS, "; ".join(words), now)
    if told is not NOTHING:
        return told
    moved = Patch(QUEUES, obj["metadata"]["name"], {"spec": change}, resource_version=_version(obj))
    return Effects(((moved,),), about=reference(QUEUES, obj))


def pod(obj: Json, now: str) -> Effects:
    words = "; ".join(dict.fromkeys(pod_words(obj.get("spec") or {})))
    if not words or obj["metadata"].get("deletionTimestamp"):
        return NOTHING
    return _recorded(PODS, obj, "True", ALIAS, words, now)


def job(obj: Json) -> Effects:
    """A Job's conditions are its phases, as Volcano has them, so that an event has to do."""
    wrote = {entry.get("apiVersion") for entry in obj["metadata"].get("managedFields") or ()}
    if VOLCANO_JOBS_V1BETA1.api_version not in wrote:
        return NOTHING
    event = EmitEvent(reference(VOLCANO_JOBS, obj), "Normal", CONDITION, OLD_VERSION, lasting=True)
    return Effects(events=(event,))


def _recorded(resource: Resource, obj: Json, status: str, reason: str, words: str, now: str) -> Effects:
    """The condition and the event; nothing where the condition says so already."""
    present: Sequence[Mapping[str, Any]] = (obj.get("status") or {}).get("conditions") or ()
    others = [dict(one) for one in present if one.get("type") != CONDITION]
    same = [one for one in present if one.get("type") == CONDITION]
    if same and (same[0].get("status"), same[0].get("message")) == (status, words):
        return NOTHING
    condition = {
        "type": CONDITION,
        "status": status,
        "reason": reason,
        "message": words,
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
    return Effects(((patch,),), (EmitEvent(about, kind, CONDITION, words, lasting=True),), about=about)


def _version(obj: Json) -> str:
    return obj["metadata"]["resourceVersion"]
