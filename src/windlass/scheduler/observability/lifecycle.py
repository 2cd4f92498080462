"""Lifecycle of a group: its stages, and its identity. Used by traces and counters."""

from __future__ import annotations

from typing import NamedTuple

from windlass.api import views
from windlass.model.cluster.cluster_model import ClusterModel
from windlass.model.groups.member_counts import Members, oldest_of
from windlass.model.groups.podgroups import NATIVE, kind_prefix, shown_key

QUEUED, ADMITTED, BOUND, RUNNING, ENDED = STAGES = ("queued", "admitted", "bound", "running", "ended")
"""Stages of a group.

Queued: not admitted. Admitted: below its minimum. Bound: its minimum is on nodes.
Running: its minimum runs. Ended: all its pods have finished.
"""

PHASES = ("take", "decide", "show", "carry out")
"""Phases of a cycle: take changes in, decide, report, commit.

Metrics and traces use these names.
"""


class GroupIdentity(NamedTuple):
    """Identity of a group: that of its PodGroup, or of its oldest pod.

    ``created``: Unix seconds, 0 if unknown.
    """

    uid: str
    created: float
    minimum: int


def stage_of(admitted: bool, minimum: int, members: Members) -> str:
    """Return the stage of a group. ``minimum`` counts as at least one."""
    minimum = max(1, minimum)
    if members.finished and members.finished == members.total:
        return ENDED
    if members.running + members.finished >= minimum and members.running:
        return RUNNING
    if members.scheduled >= minimum:
        return BOUND
    return ADMITTED if admitted or members.scheduled else QUEUED


def begins_queued(stage: str, view: views.PodGroup | None) -> bool:
    """Return whether a group seen for the first time has just been created.

    It waits, or was admitted as soon as it was seen.
    """
    return stage == QUEUED or (stage == ADMITTED and (view is None or view.phase in ("", "Pending")))


def identity(model: ClusterModel, key: str) -> GroupIdentity | None:
    """Return the identity of a group, ``None`` if it is unknown."""
    entry = model.groups.object_of(key)
    if entry is not None:
        view = entry[1]
        return GroupIdentity(view.uid, view.created, view.min_member or 1)
    if (
        kind_prefix(key) == NATIVE
        and (native := model.objects.native_groups.get(_object_key(key))) is not None
    ):
        return GroupIdentity(native.uid, native.created, native.min_count)
    sent = model.group_sent(key)
    pod = oldest_of(model.groups.pods_of(key))
    return None if pod is None or sent is None else GroupIdentity(pod.uid, pod.created, sent.min_member)


def _object_key(key: str) -> str:
    """Return the key of the PodGroup.

    The key of the pods of one replica also names the replica, after a colon.
    """
    return shown_key(key).partition(":")[0]
