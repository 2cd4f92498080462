"""Scheduler of a gang, recorded where both schedulers read it.

While another scheduler runs in the cluster, gangs of queues with the annotation
``windlass.dev/adopted: "true"`` are changed so that the other scheduler ignores them. A
PodGroup of Volcano names a queue that only Windlass resolves. A PodGroup of KAI gets a
node pool that no shard of KAI serves. Without the annotation, or after the other
scheduler was removed, this change is undone. Pods are never written. Pure.
"""

from __future__ import annotations

from typing import Any

from windlass.api.annotations import ADOPTED, ADOPTED_POOL, ADOPTED_SUFFIX, NODE_POOL_KAI
from windlass.api.resources import KAI_POD_GROUPS, POD_GROUPS
from windlass.api.views import KaiPodGroup, KaiQueue, PodGroup, QueueObject
from windlass.client.event_correlator import ObjectRef
from windlass.controllers.effects import NOTHING, Effects, EmitEvent, Patch

RESERVES_DEVICES = "its pods request shares of GPUs, which KAI's binder reserves"


def adopted(queue: QueueObject | KaiQueue | None) -> bool:
    """Return whether the gangs of the queue are adopted."""
    return queue is not None and queue.annotations.get(ADOPTED) == "true"


def reconcile(
    group: PodGroup | KaiPodGroup,
    queue: QueueObject | KaiQueue | None,
    *,
    coexists: bool,
    kept_reason: str = "",
) -> Effects:
    """Adopt or release a group, and report it with an event.

    ``queue``: queue of the group.
    ``coexists``: the other scheduler still runs.
    ``kept_reason``: why the other scheduler keeps this gang although its queue is
        adopted; ``""`` if it does not.
    """
    wanted = coexists and adopted(queue) and not kept_reason
    if group.deleted:
        return NOTHING
    resource, scheduler = (
        (KAI_POD_GROUPS, "KAI") if isinstance(group, KaiPodGroup) else (POD_GROUPS, "Volcano")
    )
    about = ObjectRef(resource.api_version, resource.kind, group.namespace, group.name, group.uid)
    if group.adopted == wanted:
        if kept_reason and adopted(queue):
            message = (
                f"queue {group.queue} is adopted, but {scheduler} keeps scheduling this gang: {kept_reason}"
            )
            return Effects(events=(EmitEvent(about, "Warning", "NotAdopted", message, lasting=True),))
        return NOTHING
    if wanted:
        event = EmitEvent(
            about,
            "Normal",
            "Adopted",
            f"queue {group.queue} is adopted: Windlass schedules this gang instead of {scheduler}",
        )
    else:
        back = f"{scheduler} schedules this gang again" + (f": {kept_reason}" if kept_reason else "")
        message = f"queue {group.queue}: {back if coexists else 'the original queue is restored'}"
        event = EmitEvent(about, "Normal", "Released", message)
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
    """Return the patch that adopts or releases the group."""
    if isinstance(group, KaiPodGroup):
        return {"metadata": {"labels": {NODE_POOL_KAI: ADOPTED_POOL if wanted else None}}}
    return {"spec": {"queue": group.queue + (ADOPTED_SUFFIX if wanted else "")}}
