"""Objects that must not be deleted: system priority classes, and queues in use."""

from __future__ import annotations

from windlass.api import errors
from windlass.api.resources import PRIORITY_CLASSES, QUEUES
from windlass.server.admission.plugin import Review
from windlass.server.admission.priority import SYSTEM_CLASSES

ROOT = "root"
DEFAULT = "default"


def check(review: Review) -> None:
    if review.resource is PRIORITY_CLASSES and review.name in SYSTEM_CLASSES:
        raise errors.forbidden(
            PRIORITY_CLASSES, review.name, "this is a system priority class and cannot be deleted"
        )
    if review.resource is QUEUES:
        _queue(review)


def _queue(review: Review) -> None:
    name = review.name
    if name in (ROOT, DEFAULT):
        raise errors.forbidden(
            QUEUES,
            name,
            f"queue {name} always exists; close it (windlass queue set {name} state=Closed) instead",
        )
    children = sorted(
        queue["metadata"]["name"]
        for queue in review.objects.list(QUEUES)
        if ((queue.get("spec") or {}).get("parent") or ROOT) == name
    )
    if children:
        raise errors.forbidden(
            QUEUES,
            name,
            f"queue {name} has child queues ({', '.join(children)}): delete or move them first",
        )
    status = review.object.get("status") or {}
    held = {k: v for k, v in (status.get("allocated") or {}).items() if str(v) not in ("0", "")}
    if held:
        shown = ", ".join(f"{k} {v}" for k, v in sorted(held.items()))
        raise errors.forbidden(
            QUEUES,
            name,
            f"queue {name} still holds {shown}: close it and let its work end, or cancel the work first",
        )
