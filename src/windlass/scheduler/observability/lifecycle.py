"""How far a group has come, and which object it is: what traces and figures of its life go by."""

from __future__ import annotations

from typing import NamedTuple

from windlass.api import views
from windlass.model.cluster.cluster_model import ClusterModel
from windlass.model.groups.member_counts import Members, oldest_of
from windlass.model.groups.podgroups import NATIVE, kind_prefix, shown_key

QUEUED, ADMITTED, BOUND, RUNNING, ENDED = STAGES = ("queued", "admitted", "bound", "running", "ended")
"""Submitted and not let in; let in and below its minimum; its minimum is on nodes; it runs; all its pods have ended."""

PARTS = ("take", "decide", "show", "carry out")
"""Of a cycle: changes are read; told to the engine, which decides; what is new is shown; binds and evictions go out."""


class GroupIdentity(NamedTuple):
    """Of a group's PodGroup, or of its oldest pod. ``created``: Unix seconds, 0 where nobody says."""

    uid: str
    created: float
    minimum: int


def stage_of(admitted: bool, minimum: int, members: Members) -> str:
    """Where a group stands. ``minimum`` counts as one at least."""
    minimum = max(1, minimum)
    if members.finished and members.finished == members.total:
        return ENDED
    if members.running + members.finished >= minimum and members.running:
        return RUNNING
    if members.scheduled >= minimum:
        return BOUND
    return ADMITTED if admitted or members.scheduled else QUEUED


def begins_queued(stage: str, view: views.PodGroup | None) -> bool:
    """Whether a group that is seen for the first time has just come: it waits, or is let in at first sight."""
    return stage == QUEUED or (stage == ADMITTED and (view is None or view.phase in ("", "Pending")))


def identity(model: ClusterModel, key: str) -> GroupIdentity | None:
    """What the group is; ``None`` where nobody knows any of it."""
    written = model.object_of(key)
    if written is not None:
        view = written[1]
        return GroupIdentity(view.uid, view.created, view.min_member or 1)
    if kind_prefix(key) == NATIVE and (native := model.native_groups.get(_plain(key))) is not None:
        return GroupIdentity(native.uid, native.created, native.min_count)
    sent = model.group_sent(key)
    pod = oldest_of(model.pods_of(key))
    return None if pod is None or sent is None else GroupIdentity(pod.uid, pod.created, sent.min_member)


def _plain(key: str) -> str:
    """The PodGroup's own key: that of the pods of one replica names the replica after a colon."""
    return shown_key(key).partition(":")[0]
