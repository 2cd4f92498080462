"""Translation of a queue view to the engine's queue."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from windlass.api import annotations as names
from windlass.api import views
from windlass.api.quantities import QuantityError, bounded, from_units, to_vector
from windlass.engine.decision import QueueUsage
from windlass.engine.diagnosis.share_messages import explain_shares
from windlass.spi.objects import Dialect, NodeGroups, Queue, QueueState

ROOT = "root"
DEFAULT = "default"
KAI = "kai/"
VOLCANO = "volcano/"
_READ = (
    "volcano.sh/hierarchy",
    "volcano.sh/hierarchy-weights",
    "volcano.sh/nodegroup-resource-limits",
    names.TIME_SHARE,
)
"""Annotations of a queue that a policy reads."""

_STATES = {
    "": QueueState.OPEN,
    "Open": QueueState.OPEN,
    "Closing": QueueState.CLOSING,
    "Closed": QueueState.CLOSED,
}


def queue_of(view: views.QueueObject) -> Queue:
    """Return the engine's queue of a Volcano queue.

    A missing parent means ``root``, a missing state means Open. A queue in an unknown
    state admits no work. A resource with an unreadable limit is left out of its list
    (``view.problems`` reports it).
    """
    return Queue(
        name=view.name,
        parent="" if view.name == ROOT else view.parent or ROOT,
        weight=max(1, view.weight),
        priority=view.priority,
        guarantee={name: units for name, units in view.guarantee.items() if units > 0},
        deserved={name: units for name, units in view.deserved.items() if units > 0},
        capability=bounded(view.capability),
        reclaimable=view.reclaimable,
        state=_STATES.get(view.state, QueueState.CLOSED),
        created=view.created,
        uid=view.uid,
        annotations={name: view.annotations[name] for name in _READ if name in view.annotations},
    )


def amounts_named(queue: Queue) -> tuple[Mapping[str, int], ...]:
    """Return the lists of amounts that a queue states."""
    return queue.guarantee, queue.deserved, queue.capability


def node_groups_of(name: str, known: Mapping[str, views.QueueObject]) -> NodeGroups | None:
    """Return the node groups that a queue names, else those of its nearest ancestor with any.

    They include the queue's own limits there.
    """
    visited: set[str] = set()
    queue, inherited = name, False
    while name and name not in visited:
        visited.add(name)
        view = known.get(name)
        if view is None:
            return None
        affinity = view.node_groups
        if affinity is not None and affinity.named:
            limits = _limits(known[queue].node_groups)
            return NodeGroups(
                affinity.required,
                affinity.preferred,
                affinity.anti_required,
                affinity.anti_preferred,
                inherited,
                queue,
                limits or (),
                limits is None,
            )
        name, inherited = "" if name == ROOT else view.parent or ROOT, True
    return None


def _limits(
    affinity: views.QueueAffinity | None,
) -> tuple[tuple[str, tuple[tuple[str, int], ...]], ...] | None:
    """Return the limits by node group; ``None`` for an unreadable text."""
    if affinity is None or not affinity.limits:
        return ()
    try:
        texts = msgspec.json.decode(affinity.limits, type=dict[str, dict[str, str | int | float]])
        return tuple(
            (group, tuple(sorted(bounded(to_vector(amounts)).items())))
            for group, amounts in sorted(texts.items())
        )
    except (msgspec.MsgspecError, QuantityError):
        return None


def kai_queue_of(view: views.KaiQueue) -> Queue:
    """Return the engine's queue of a KAI queue.

    KAI's roots have no parent: they are next to ``root``.
    """
    return Queue(
        name=KAI + view.name,
        parent=KAI + view.parent if view.parent else "",
        priority=view.priority,
        deserved={name: units for name, units in view.quota.items() if units > 0},
        capability=view.limit,
        created=view.created,
        uid=view.uid,
        dialect=Dialect.KAI,
        unlimited=view.unlimited,
        surplus_weights=view.weights,
        preempt_min_runtime=view.preempt_min_runtime,
        reclaim_min_runtime=view.reclaim_min_runtime,
    )


def is_kai(key: str) -> bool:
    """Return whether an engine key is that of a queue of KAI."""
    return key.startswith(KAI)


def plain(key: str) -> str:
    """Return the queue's own name."""
    return key.removeprefix(KAI)


def shown(key: str, both: bool) -> str:
    """Return a queue's display name.

    It is the plain name, or ``kai/x`` and ``volcano/x`` if ``both`` APIs have queues.
    """
    if not both or not key:
        return plain(key)
    return key if is_kai(key) else VOLCANO + key


def share_record(usage: QueueUsage) -> dict[str, dict[str, str]]:
    """Return the fair share record on a queue, for users and tools.

    It contains Kubernetes quantities by resource, and a text that explains the fair
    share.
    """

    def amounts(vector: Mapping[str, int]) -> dict[str, str]:
        return {name: from_units(name, units) for name, units in sorted(vector.items()) if units}

    return {
        "allocated": amounts(usage.allocated),
        "fairShare": amounts(usage.fair_share),
        "requested": amounts(usage.requested),
        "why": explain_shares(usage),
    }


def implied(name: str) -> Queue:
    """Return ``root`` or ``default`` while its object does not exist."""
    return Queue(name=name, parent="" if name == ROOT else ROOT)
