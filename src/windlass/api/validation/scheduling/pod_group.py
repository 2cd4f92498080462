"""A PodGroup by itself, and orders to queues and jobs (Command)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windlass.api.annotations import EARLIEST_START, RESERVE_UNTIL
from windlass.api.validation import amounts, names
from windlass.api.validation.collector import Collector
from windlass.api.validation.pods.placement import label_selector
from windlass.kits.timestamps import parse_rfc3339

JOB_ACTIONS = ("AbortJob", "ResumeJob", "RestartJob", "TerminateJob", "CompleteJob")
QUEUE_ACTIONS = ("OpenQueue", "CloseQueue")
Obj = Mapping[str, Any]


_TIMES = (EARLIEST_START, RESERVE_UNTIL)


def pod_group(obj: Obj, old: Obj | None, out: Collector) -> None:
    _times(obj, old, out)
    spec = obj.get("spec") or {}
    out.at_least("spec.minMember", spec.get("minMember"))
    for task, count in (spec.get("minTaskMember") or {}).items():
        out.at_least(f"spec.minTaskMember[{task}]", count)
    for name, text in (spec.get("minResources") or {}).items():
        amounts.quantity(f"spec.minResources[{name}]", name, text, out)
    topology(spec.get("networkTopology") or {}, "spec.networkTopology", out)
    seen: set[str] = set()
    for index, policy in enumerate(spec.get("subGroupPolicy") or ()):
        where, name = f"spec.subGroupPolicy[{index}]", policy.get("name", "")
        if name in seen:
            out.duplicate(f"{where}.name", name)
        seen.add(name)
        if policy.get("labelSelector") is not None:
            label_selector(policy["labelSelector"], f"{where}.labelSelector", out)
        topology(policy.get("networkTopology") or {}, f"{where}.networkTopology", out)
    if spec.get("queue"):
        out.each("spec.queue", spec["queue"], names.dns_subdomain(spec["queue"]))


def _times(obj: Obj, old: Obj | None, out: Collector) -> None:
    """Reject annotations that are not a time, unless they are stored already: they have no effect."""
    found, before = ((one or {}).get("metadata", {}).get("annotations") or {} for one in (obj, old))
    for name in _TIMES:
        text = found.get(name)
        if text and text != before.get(name) and not _is_time(text):
            out.invalid(f"metadata.annotations[{name}]", text, "write a time with zone: 2027-01-31T08:30:00Z")


def _is_time(text: str) -> bool:
    try:
        return parse_rfc3339(text) > 0
    except (ValueError, OverflowError):
        return False


def topology(found: Obj, path: str, out: Collector) -> None:
    """A network topology names a tier by number or by name, not both."""
    if found.get("highestTierAllowed") is not None and found.get("highestTierName"):
        out.invalid(
            f"{path}.highestTierName",
            found["highestTierName"],
            "highestTierAllowed is given too: keep one of the two",
        )


def command(obj: Obj, old: Obj | None, out: Collector) -> None:
    target, action = obj.get("target"), obj.get("action", "")
    if not isinstance(target, Mapping):
        out.required("target", "the object that the order is for, with apiVersion, kind and name")
        return
    kind = target.get("kind", "")
    if not out.choice("target.kind", kind, ("Job", "Queue")):
        return
    if not target.get("name"):
        out.required("target.name")
    out.choice("action", action, JOB_ACTIONS if kind == "Job" else QUEUE_ACTIONS)
