"""Gangs without a readable object, which are gathered from their pods alone.

Plain pod groups of Kueue, and batch Jobs that KAI treats as a gang, have no PodGroup.
Gangs of Kubernetes' own API and of the coscheduling plugin have one, but it may be
missing, of another version, or forbidden to this user.
"""

from __future__ import annotations

from typing import Any

from windlass.api import annotations as names
from windlass.cli.text import created

Object = dict[str, Any]
GANG = "Gang"
"""Kind of the :class:`~windlass.cli.jobs.jobs.Job` of such a gang."""
_NOTES = (names.GROUP_NAME_KUEUE, names.BATCH_MIN_MEMBER_KAI)
_LABELS = (names.GROUP_NAME_KUEUE, names.GROUP_NAME_COSCHEDULING)
_FIELDS = ("schedulingGroup", "workloadRef")


def key_of(pod: Object) -> str:
    """Return the scheduler's key of the pod's gang (``default/kueue:train``); else empty."""
    annotations, labels = (pod["metadata"].get(kind) or {} for kind in ("annotations", "labels"))
    if not (
        any(name in annotations for name in _NOTES)
        or any(name in labels for name in _LABELS)
        or any(name in pod["spec"] for name in _FIELDS)
    ):
        return ""
    from windlass.api import views
    from windlass.model.groups.podgroups import BY_PODS, group_key, kind_prefix

    key = group_key(views.decode_pod(views.encode(pod)))
    return key if kind_prefix(key) in BY_PODS else ""


def name_of(key: str) -> str:
    """Return the name of a gang for people, by its key."""
    from windlass.model.groups.podgroups import shown_key

    return shown_key(key).partition("/")[2]


def gang_object(key: str, pods: list[Object]) -> Object:
    """Return an object that represents such a gang.

    It has the creation time, labels and annotations of the oldest of ``pods``.
    """
    oldest = min(pods, key=lambda pod: (created(pod), pod["metadata"]["name"]))
    namespace, name = oldest["metadata"].get("namespace", ""), name_of(key)
    copied = {name: oldest["metadata"].get(name) or {} for name in ("labels", "annotations")}
    metadata = {"name": name, "namespace": namespace, "uid": key, **copied}
    return {
        "kind": GANG,
        "metadata": {**metadata, "creationTimestamp": oldest["metadata"].get("creationTimestamp")},
        "spec": {"minMember": _min_member(copied["annotations"])},
    }


def _min_member(notes: dict[str, str]) -> int:
    """Return the gang's minimum by the annotations of Kueue and KAI; 1 without them."""
    for name in (names.GROUP_COUNT_KUEUE, names.BATCH_MIN_MEMBER_KAI):
        text = notes.get(name, "")
        if text.isascii() and text.isdigit() and len(text) < 8:
            return max(1, int(text))
    return 1


def controllers_of(pods: list[Object]) -> list[Object]:
    """Return owner references of the controllers that recreate these pods, each once.

    Examples are batch Jobs and ReplicaSets. Nodes and PodGroups recreate no pods.
    """
    controllers: dict[str, Object] = {}
    for pod in pods:
        for owner in pod["metadata"].get("ownerReferences") or ():
            if owner.get("controller") and owner.get("kind") not in ("Node", "PodGroup"):
                controllers.setdefault(str(owner.get("uid")), owner)
    return list(controllers.values())
