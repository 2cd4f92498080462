"""JSON document of a dry run plan, printed by ``windlass plan -o json``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windlass.api.quantities import from_units
from windlass.api.reasons import Blocker
from windlass.engine.decision import QueueUsage
from windlass.engine.diagnosis.share_messages import explain_shares, lending
from windlass.model.devices.assignment import AllocatedDevice
from windlass.model.dryrun.dry_run import (
    DryRunPlan,
    PendingPods,
    PlannedBind,
    PlannedEviction,
    PlannedNomination,
)
from windlass.model.groups import podgroups
from windlass.model.queues import engine_queue

API_VERSION = "windlass.dev/v1alpha1"
_MILLI = 1000


def record(plan: DryRunPlan) -> dict[str, Any]:
    """Return plain JSON, with quantities as Kubernetes writes them."""
    return {
        "apiVersion": API_VERSION,
        "kind": "Plan",
        "cycles": plan.cycles,
        "stable": plan.stable,
        "binds": [_bind(bind) for bind in plan.binds],
        "evictions": [_eviction(eviction) for eviction in plan.evictions],
        "nominations": [_place(nomination) for nomination in plan.nominations],
        "pending": [_pending(waiting, plan.both) for waiting in plan.waiting],
        "queues": _queues(plan),
    }


def _place(entry: PlannedBind | PlannedEviction | PlannedNomination) -> dict[str, Any]:
    namespace, _, name = entry.pod.partition("/")
    return {"namespace": namespace, "pod": name, "node": entry.node, "cycle": entry.cycle}


def _bind(bind: PlannedBind) -> dict[str, Any]:
    entry = _place(bind)
    if bind.devices:
        entry["devices"] = [_device(share) for share in bind.devices]
    if bind.zones:
        entry["zones"] = [{"zone": zone, "amounts": amounts(dict(held))} for zone, held in bind.zones]
    return entry


def _device(share: AllocatedDevice) -> dict[str, Any]:
    entry: dict[str, Any] = {"index": share.index, "share": share.milli / _MILLI}
    if share.profile:
        entry["profile"] = share.profile
    return entry


def _eviction(eviction: PlannedEviction) -> dict[str, Any]:
    entry = _place(eviction)
    entry["action"] = eviction.action
    if eviction.preemptor:
        entry["for"] = podgroups.shown_key(eviction.preemptor)
    return entry


def _pending(waiting: PendingPods, both: bool) -> dict[str, Any]:
    namespace, _, name = podgroups.shown_key(waiting.group).partition("/")
    why = waiting.why
    return {
        "namespace": namespace,
        "podGroup": name,
        "queue": engine_queue.shown(waiting.queue, both),
        "pods": [pod.partition("/")[2] for pod in waiting.pods],
        "code": str(why.code),
        "message": why.message,
        "waitingHelps": why.waiting_helps,
        "blockers": [_blocker(blocker) for blocker in why.blockers],
        "remedies": list(why.remedies),
    }


def _blocker(blocker: Blocker) -> dict[str, Any]:
    entry: dict[str, Any] = {"code": str(blocker.code)}
    if blocker.nodes:
        entry["nodes"] = blocker.nodes
    for name in ("resource", "needed", "available", "detail"):
        text = getattr(blocker, name)
        if text:
            entry[name] = text
    return entry


def _queues(plan: DryRunPlan) -> list[dict[str, Any]]:
    lent = lending(plan.queues)
    return [_queue(usage, plan.both, lent.get(usage.queue, {})) for usage in plan.queues]


def _queue(usage: QueueUsage, both: bool, lent: Mapping[str, Mapping[str, int]]) -> dict[str, Any]:
    borrowed = {
        resource: {
            engine_queue.shown(lender, both): from_units(resource, units) for lender, units in lenders.items()
        }
        for resource, lenders in sorted(lent.items())
    }
    return {
        "name": engine_queue.shown(usage.queue, both),
        "parent": engine_queue.shown(usage.parent, both),
        "fairShare": amounts(usage.fair_share),
        "guarantee": amounts(usage.guarantee),
        "deserved": amounts(usage.deserved),
        "capability": amounts(usage.capability),
        "allocated": amounts(usage.allocated),
        "requested": amounts(usage.requested),
        "borrowed": borrowed,
        "why": explain_shares(usage),
    }


def amounts(vector: Mapping[str, int]) -> dict[str, str]:
    """Return quantities by resource, sorted by name."""
    return {name: from_units(name, vector[name]) for name in sorted(vector)}
