"""State and counts of a queue.

A queue is closed by a Command or with its parent. In the second case it gets the
annotation ``volcano.sh/closed-by-parent: "true"`` and opens with the parent again. It
is Closing while it has groups that are not completed, then Closed. Each queue reads the
state of its own parent, so a tree closes and opens from the top. Only changed fields
are written, and never ``status.allocated``, which the scheduler owns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from windlass.api.queues.opening import CLOSED_BY_PARENT, closed_by_parent
from windlass.api.resources import QUEUES
from windlass.controllers.effects import Create, EffectPlan, Effects, EmitEvent, Patch, reference
from windlass.controllers.queue.state_machine import QueuePhase, QueueTrigger, follow
from windlass.controllers.volcano_commands import discard

Json = dict[str, Any]
ROOT = "root"
DEFAULT = "default"
REQUIRED = (ROOT, DEFAULT)
COUNTED = ("pending", "inqueue", "running", "unknown", "completed")
_SHUT = (QueuePhase.CLOSING, QueuePhase.CLOSED)


@dataclass(frozen=True, slots=True)
class QueueSnapshot:
    """Observations about a queue.

    ``parent``: ``None`` if it is missing, or for the root.
    ``counts``: number of groups by phase, in lower case.
    ``commands``: Commands for the queue, the oldest first.
    """

    parent: Json | None
    counts: Mapping[str, int]
    commands: tuple[Json, ...] = ()


def create_missing(name: str) -> Effects:
    """A queue that has to exist and does not."""
    spec: Json = {"weight": 1, "reclaimable": name != ROOT}
    if name != ROOT:
        spec["parent"] = ROOT
    obj = {
        "apiVersion": QUEUES.api_version,
        "kind": QUEUES.kind,
        "metadata": {"name": name},
        "spec": spec,
    }
    return Effects(stages=((Create(QUEUES, obj),),))


def reconcile(queue: Json, observed: QueueSnapshot) -> Effects:
    """Reconcile one queue. Pure."""
    plan = EffectPlan(about=reference(QUEUES, queue))
    name = queue["metadata"]["name"]
    if queue["metadata"].get("deletionTimestamp"):
        return plan.done()
    if name != ROOT and not (queue.get("spec") or {}).get("parent"):
        plan.stage(Patch(QUEUES, name, {"spec": {"parent": ROOT}}))
    before = _state(queue)
    after, mark = _decide(queue, observed, plan)
    if after in _SHUT and _incomplete(observed) == 0:
        after = follow(after, QueueTrigger.EMPTIED) or after
    annotations = queue["metadata"].get("annotations") or {}
    if mark is not None and annotations.get(CLOSED_BY_PARENT) != mark:
        plan.stage(Patch(QUEUES, name, {"metadata": {"annotations": {CLOSED_BY_PARENT: mark}}}))
    _write_status(queue, after, observed, plan)
    _emit_events(plan, before, after)
    plan.stage(*(discard(command) for command in observed.commands[:1]))
    if len(observed.commands) > 1:
        plan.requeue(0.0)
    return plan.done()


def _state(queue: Json) -> QueuePhase | None:
    text = (queue.get("status") or {}).get("state")
    if not text:
        return None
    return QueuePhase(text) if text in tuple(QueuePhase) else QueuePhase.UNKNOWN


def _decide(queue: Json, observed: QueueSnapshot, plan: EffectPlan) -> tuple[QueuePhase, str | None]:
    """Return the new state and the value of the closed-by-parent annotation (``None``:
    unchanged).
    """
    state = _state(queue)
    if state is None:
        state = follow(QueuePhase.UNKNOWN, QueueTrigger.NEW) or QueuePhase.OPEN
    parent_shut = observed.parent is not None and _state(observed.parent) in _SHUT
    if observed.commands:
        return _obey(queue, state, observed.commands[0], parent_shut, plan)
    marked = closed_by_parent(queue)
    if parent_shut and state not in _SHUT:
        return follow(state, QueueTrigger.CLOSE) or state, "true"
    if marked and not parent_shut and observed.parent is not None and state in _SHUT:
        return follow(state, QueueTrigger.OPEN) or state, "false"
    return state, None


def _obey(
    queue: Json, state: QueuePhase, command: Json, parent_shut: bool, plan: EffectPlan
) -> tuple[QueuePhase, str | None]:
    name, action = queue["metadata"]["name"], command.get("action") or ""
    if action not in (QueueTrigger.OPEN, QueueTrigger.CLOSE):
        _reject(
            plan,
            "CommandIssued",
            f"{action or 'no action'} is not an action for a queue: use OpenQueue or CloseQueue",
        )
        return state, None
    trigger = QueueTrigger(action)
    if trigger is QueueTrigger.CLOSE and name == ROOT:
        _reject(plan, trigger, "the root queue cannot be closed")
        return state, None
    if trigger is QueueTrigger.OPEN and parent_shut:
        parent = (queue.get("spec") or {}).get("parent")
        _reject(plan, trigger, f"the parent queue {parent} is closing or closed: open it first")
        return state, None
    return follow(state, trigger) or state, "false" if trigger is QueueTrigger.OPEN else None


def _reject(plan: EffectPlan, reason: str, message: str) -> None:
    assert plan.about is not None
    plan.event(EmitEvent(plan.about, "Warning", str(reason), message))


def _emit_events(plan: EffectPlan, before: QueuePhase | None, after: QueuePhase) -> None:
    assert plan.about is not None
    if before is QueuePhase.OPEN and after in _SHUT:
        plan.event(EmitEvent(plan.about, "Normal", "CloseQueue", "Close queue succeed"))
    elif before in _SHUT and after is QueuePhase.OPEN:
        plan.event(EmitEvent(plan.about, "Normal", "OpenQueue", "Open queue succeed"))


def _incomplete(observed: QueueSnapshot) -> int:
    """Return the number of groups that keep a queue from being closed: all but completed ones."""
    return sum(observed.counts.get(name, 0) for name in COUNTED if name != "completed")


def _write_status(queue: Json, state: QueuePhase, observed: QueueSnapshot, plan: EffectPlan) -> None:
    present = queue.get("status") or {}
    change: Json = {name: observed.counts.get(name, 0) for name in COUNTED}
    change = {name: count for name, count in change.items() if (present.get(name) or 0) != count}
    if present.get("state") != state:
        change["state"] = str(state)
    if change:
        plan.stage(Patch(QUEUES, queue["metadata"]["name"], {"status": change}, subresource="status"))
