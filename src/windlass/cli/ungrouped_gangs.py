"""Gangs of which nobody may see an object, or that have none: gathered from their pods alone.

Plain pod groups of Kueue and batch Jobs that KAI takes for a gang have no PodGroup. Those of Kubernetes' own API and of
the coscheduling plug-in have one, which may be missing, of another version, or not this user's to read.
"""

from __future__ import annotations

from typing import Any

from windlass.api import annotations as names
from windlass.cli.text import created

Object = dict[str, Any]
GANG = "Gang"
"""What the kind of such a job is called."""
_NOTES = (names.GROUP_NAME_KUEUE, names.BATCH_MIN_MEMBER_KAI)
_LABELS = (names.GROUP_NAME_KUEUE, names.GROUP_NAME_COSCHEDULING)
_FIELDS = ("schedulingGroup", "workloadRef")


def key_of(pod: Object) -> str:
    """The scheduler's key of the pod's gang (``default/kueue:train``); empty for a pod that is in none of these."""
    notes, labels = (pod["metadata"].get(kind) or {} for kind in ("annotations", "labels"))
    if not (
        any(name in notes for name in _NOTES)
        or any(name in labels for name in _LABELS)
        or any(name in pod["spec"] for name in _FIELDS)
    ):
        return ""
    from windlass.api import views
    from windlass.model.groups.podgroups import BY_PODS, group_key, kind_prefix

    key = group_key(views.decode_pod(views.encode(pod)))
    return key if kind_prefix(key) in BY_PODS else ""


def name_of(key: str) -> str:
    """How people call the gang of a key."""
    from windlass.model.groups.podgroups import shown_key

    return shown_key(key).partition("/")[2]


def stand_in(key: str, pods: list[Object]) -> Object:
    """What stands for the object of such a gang: as old as the oldest of its ``pods``, with what is written on it."""
    oldest = min(pods, key=lambda pod: (created(pod), pod["metadata"]["name"]))
    namespace, name = oldest["metadata"].get("namespace", ""), name_of(key)
    kept = {name: oldest["metadata"].get(name) or {} for name in ("labels", "annotations")}
    metadata = {"name": name, "namespace": namespace, "uid": key, **kept}
    return {
        "kind": GANG,
        "metadata": {**metadata, "creationTimestamp": oldest["metadata"].get("creationTimestamp")},
        "spec": {"minMember": _least(kept["annotations"])},
    }


def _least(notes: dict[str, str]) -> int:
    """How many pods it is to have at least, by the words of Kueue and KAI; 1 where none can be read."""
    for name in (names.GROUP_COUNT_KUEUE, names.BATCH_MIN_MEMBER_KAI):
        text = notes.get(name, "")
        if text.isascii() and text.isdigit() and len(text) < 8:
            return max(1, int(text))
    return 1


def makers_of(pods: list[Object]) -> list[Object]:
    """The owner references of those who control these pods and make them anew, each once: batch Jobs, ReplicaSets …
    What a node or a PodGroup owns is nobody's to make."""
    found: dict[str, Object] = {}
    for pod in pods:
        for owner in pod["metadata"].get("ownerReferences") or ():
            if owner.get("controller") and owner.get("kind") not in ("Node", "PodGroup"):
                found.setdefault(str(owner.get("uid")), owner)
    return list(found.values())
