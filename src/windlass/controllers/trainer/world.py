"""World of an elastic TrainJob: the nodes that take part, written on the pod that holds the rendezvous."""

from __future__ import annotations

from collections.abc import Iterable

from windlass.api import annotations as names
from windlass.api.resources import PODS
from windlass.api.views import Pod
from windlass.controllers.effects import Patch
from windlass.jobs.rendezvous.announce import world_text

COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"


def announce_world(pods: Iterable[Pod]) -> Patch | None:
    """Return the write that tells the node of pod 0 which nodes take part; ``None`` if it knows.

    ``pods``: of one TrainJob. Those of a job that is not elastic have no rendezvous.
    """
    members = {
        int(text): pod
        for pod in pods
        if names.RENDEZVOUS in pod.annotations
        and pod.node_name
        and not pod.deleting
        and pod.phase not in ("Succeeded", "Failed")
        and (text := pod.labels.get(COMPLETION_INDEX, "")).isdecimal()
    }
    first = members.get(0)
    if first is None:
        return None
    text = world_text(members)
    if first.annotations.get(names.WORLD) == text:
        return None
    patch = {"metadata": {"annotations": {names.WORLD: text}}}
    return Patch(PODS, first.name, patch, first.namespace, uid=first.uid)
