"""Whose a gang is, written where both schedulers see it.

While the other scheduler runs beside, a gang of a queue with the annotation ``windlass.dev/adopted: "true"`` is
handed over in words that make the other pass it over: a PodGroup of Volcano names a queue that only Windlass knows,
one of KAI is in a pool of nodes that no shard of KAI serves. Without the annotation, or when the other is gone, those
words go again. Pods are never written. Pure.
"""

from __future__ import annotations

from typing import Any

from windlass.api.annotations import ADOPTED, ADOPTED_POOL, ADOPTED_SUFFIX, NODE_POOL_KAI
from windlass.api.resources import KAI_POD_GROUPS, POD_GROUPS
from windlass.api.views import KaiPodGroup, KaiQueue, PodGroup, QueueObject
from windlass.client.event_correlator import ObjectRef
from windlass.controllers.effects import NOTHING, Effects, EmitEvent, Patch

KEEPS_CARDS = "its pods ask for parts of cards, which KAI's binder reserves"


def adopted(queue: QueueObject | KaiQueue | None) -> bool:
    """Whether the gangs of the queue are handed over."""
    return queue is not None and queue.annotations.get(ADOPTED) == "true"


def step(
    group: PodGroup | KaiPodGroup, queue: QueueObject | KaiQueue | None, *, beside: bool, stays: str = ""
) -> Effects:
    """Look at a group once. ``queue``: the one it means. ``beside``: the other scheduler still runs. ``stays``: why
    this gang is the other's even in a queue that is handed over; ``""``: it is not."""
    wanted = beside and adopted(queue) and not stays
    if group.deleted:
        return NOTHING
    resource, whose = (KAI_POD_GROUPS, "KAI") if isinstance(group, KaiPodGroup) else (POD_GROUPS, "Volcano")
    about = ObjectRef(resource.api_version, resource.kind, group.namespace, group.name, group.uid)
    if group.adopted == wanted:
        if stays and adopted(queue):
            words = f"of queue {group.queue}: {whose} goes on deciding, since {stays}"
            return Effects(events=(EmitEvent(about, "Warning", "NotAdopted", words, lasting=True),))
        return NOTHING
    if wanted:
        event = EmitEvent(
            about, "Normal", "Adopted", f"of queue {group.queue}: Windlass decides now, no more {whose}"
        )
    else:
        back = f"{whose} decides again" + (f", since {stays}" if stays else "")
        words = f"of queue {group.queue}: {back if beside else 'its own name stands again'}"
        event = EmitEvent(about, "Normal", "Released", words)
    patch = Patch(
        resource,
        group.name,
        _change(group, wanted),
        group.namespace,
        uid=group.uid,
        resource_version=group.resource_version,
    )
    return Effects(stages=((patch,),), events=(event,))


def _change(group: PodGroup | KaiPodGroup, wanted: bool) -> dict[str, Any]:
    """The one write."""
    if isinstance(group, KaiPodGroup):
        return {"metadata": {"labels": {NODE_POOL_KAI: ADOPTED_POOL if wanted else None}}}
    return {"spec": {"queue": group.queue + (ADOPTED_SUFFIX if wanted else "")}}
