"""Whose a gang is, written where both schedulers see it.

While Volcano runs beside, a gang of a queue with the annotation ``windlass.dev/adopted: "true"`` is handed over by
naming a queue that only Windlass knows; without the annotation, or when Volcano is gone, it gets its own queue's name
back. Pods are never written. Pure.
"""

from __future__ import annotations

from windlass.api.annotations import ADOPTED, ADOPTED_SUFFIX
from windlass.api.resources import POD_GROUPS
from windlass.api.views import PodGroup, Queue
from windlass.client.correlator import ObjectRef
from windlass.controllers.effects import NOTHING, Effects, Event, Patch


def adopted(queue: Queue | None) -> bool:
    """Whether the gangs of the queue are handed over."""
    return queue is not None and queue.annotations.get(ADOPTED) == "true"


def step(group: PodGroup, queue: Queue | None, *, beside: bool) -> Effects:
    """Look at a group once. ``queue``: the one it means. ``beside``: Volcano still runs."""
    wanted = beside and adopted(queue)
    if group.deleted or group.adopted == wanted:
        return NOTHING
    name = group.queue + (ADOPTED_SUFFIX if wanted else "")
    about = ObjectRef(POD_GROUPS.api_version, POD_GROUPS.kind, group.namespace, group.name, group.uid)
    if wanted:
        event = Event(
            about, "Normal", "Adopted", f"of queue {group.queue}: Windlass decides now, no more Volcano"
        )
    else:
        whose = "Volcano decides again" if beside else "its own name stands again"
        event = Event(about, "Normal", "Released", f"of queue {group.queue}: {whose}")
    change = {"spec": {"queue": name}}
    patch = Patch(
        POD_GROUPS,
        group.name,
        change,
        group.namespace,
        uid=group.uid,
        resource_version=group.resource_version,
    )
    return Effects(stages=((patch,),), events=(event,))
