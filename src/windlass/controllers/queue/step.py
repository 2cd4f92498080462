"""One look at a queue.

A queue closes by a Command or with its parent (then it carries the annotation
``volcano.sh/closed-by-parent: "true"`` and opens with the parent again). It is Closing while groups are
in it that have not completed, then Closed. Each queue looks at its own parent, so that a whole tree
closes and opens from the top. Only fields that changed are written, and ``status.allocated`` never: it
is the scheduler's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from windlass.api.resources import QUEUES
from windlass.controllers.effects import Create, EffectPlan, Effects, EmitEvent, Patch, reference
from windlass.controllers.queue.table import QueuePhase, QueueTrigger, follow
from windlass.controllers.volcano_commands import discard

Json = dict[str, Any]
ROOT = "root"
DEFAULT = "default"
REQUIRED = (ROOT, DEFAULT)
CLOSED_BY_PARENT = "volcano.sh/closed-by-parent"
COUNTED = ("pending", "inqueue", "running", "unknown", "completed")
_SHUT = (QueuePhase.CLOSING, QueuePhase.CLOSED)


@dataclass(frozen=True, slots=True)
class QueueSnapshot:
    """``parent`` None: missing, or this is the root. ``counts``: groups by phase, in lower case.

    ``commands`` target the queue, the oldest first.
    """

    parent: Json | None
    counts: Mapping[str, int]
    commands: tuple[Json, ...] = ()


def make(name: str) -> Effects:
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


def step(queue: Json, seen: QueueSnapshot) -> Effects:
    """Look at a queue once. Pure."""
    plan = EffectPlan(about=reference(QUEUES, queue))
    name = queue["metadata"]["name"]
    if queue["metadata"].get("deletionTimestamp"):
        return plan.done()
    if name != ROOT and not (queue.get("spec") or {}).get("parent"):
        plan.stage(Patch(QUEUES, name, {"spec": {"parent": ROOT}}))
    before = _state(queue)
    after, mark = _decide(queue, seen, plan)
    if after in _SHUT and _held(seen) == 0:
        after = follow(after, QueueTrigger.EMPTIED) or after
    notes = queue["metadata"].get("annotations") or {}
    if mark is not None and notes.get(CLOSED_BY_PARENT) != mark:
        plan.stage(Patch(QUEUES, name, {"metadata": {"annotations": {CLOSED_BY_PARENT: mark}}}))
    _write_status(queue, after, seen, plan)
    _tell(plan, before, after)
    plan.stage(*(discard(command) for command in seen.commands[:1]))
    if len(seen.commands) > 1:
        plan.look_again(0.0)
    return plan.done()


def _state(queue: Json) -> QueuePhase | None:
    text = (queue.get("status") or {}).get("state")
    if not text:
        return None
    return QueuePhase(text) if text in tuple(QueuePhase) else QueuePhase.UNKNOWN


def _decide(queue: Json, seen: QueueSnapshot, plan: EffectPlan) -> tuple[QueuePhase, str | None]:
    """The new state, and the value that the closed-by-parent mark must have (None: as it is)."""
    state = _state(queue)
    if state is None:
        state = follow(QueuePhase.UNKNOWN, QueueTrigger.NEW) or QueuePhase.OPEN
    parent_shut = seen.parent is not None and _state(seen.parent) in _SHUT
    if seen.commands:
        return _obey(queue, state, seen.commands[0], parent_shut, plan)
    marked = (queue["metadata"].get("annotations") or {}).get(CLOSED_BY_PARENT) == "true"
    if parent_shut and state not in _SHUT:
        return follow(state, QueueTrigger.CLOSE) or state, "true"
    if marked and not parent_shut and seen.parent is not None and state in _SHUT:
        return follow(state, QueueTrigger.OPEN) or state, "false"
    return state, None


def _obey(
    queue: Json, state: QueuePhase, command: Json, parent_shut: bool, plan: EffectPlan
) -> tuple[QueuePhase, str | None]:
    name, action = queue["metadata"]["name"], command.get("action") or ""
    if action not in (QueueTrigger.OPEN, QueueTrigger.CLOSE):
        _refuse(plan, "CommandIssued", f"{action or 'no action'} is no action for a queue")
        return state, None
    trigger = QueueTrigger(action)
    if trigger is QueueTrigger.CLOSE and name == ROOT:
        _refuse(plan, trigger, "the root queue cannot be closed")
        return state, None
    if trigger is QueueTrigger.OPEN and parent_shut:
        parent = (queue.get("spec") or {}).get("parent")
        _refuse(plan, trigger, f"the parent queue {parent} is closing or closed: open it first")
        return state, None
    return follow(state, trigger) or state, "false" if trigger is QueueTrigger.OPEN else None


def _refuse(plan: EffectPlan, reason: str, message: str) -> None:
    assert plan.about is not None
    plan.event(EmitEvent(plan.about, "Warning", str(reason), message))


def _tell(plan: EffectPlan, before: QueuePhase | None, after: QueuePhase) -> None:
    assert plan.about is not None
    if before is QueuePhase.OPEN and after in _SHUT:
        plan.event(EmitEvent(plan.about, "Normal", "CloseQueue", "Close queue succeed"))
    elif before in _SHUT and after is QueuePhase.OPEN:
        plan.event(EmitEvent(plan.about, "Normal", "OpenQueue", "Open queue succeed"))


def _held(seen: QueueSnapshot) -> int:
    """Groups that keep a queue from being closed: a completed one asks for nothing any more."""
    return sum(seen.counts.get(name, 0) for name in COUNTED if name != "completed")


def _write_status(queue: Json, state: QueuePhase, seen: QueueSnapshot, plan: EffectPlan) -> None:
    present = queue.get("status") or {}
    change: Json = {name: seen.counts.get(name, 0) for name in COUNTED}
    change = {name: count for name, count in change.items() if (present.get(name) or 0) != count}
    if present.get("state") != state:
        change["state"] = str(state)
    if change:
        plan.stage(Patch(QUEUES, queue["metadata"]["name"], {"status": change}, subresource="status"))
