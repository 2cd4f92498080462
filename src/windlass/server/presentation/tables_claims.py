"""Tables of dynamic resource allocation, with kubectl's columns."""

from __future__ import annotations

from windlass.server.presentation.tables_common import AGE, NAME, Obj, TableColumn, TableOf, age_of, name_of


def _state(claim: Obj) -> str:
    deleted = bool((claim.get("metadata") or {}).get("deletionTimestamp"))
    status = claim.get("status") or {}
    states = ["deleted"] if deleted else []
    if not status.get("allocation"):
        return ",".join(states or ["pending"])
    states.append("allocated")
    if status.get("reservedFor"):
        states.append("reserved")
    return ",".join(states)


def _spec(obj: Obj) -> Obj:
    return obj.get("spec") or {}


DEVICE_CLASSES = TableOf((NAME, AGE), lambda obj, now: [name_of(obj), age_of(obj, now)])
RESOURCE_CLAIMS = TableOf(
    (NAME, TableColumn("State"), AGE), lambda obj, now: [name_of(obj), _state(obj), age_of(obj, now)]
)
RESOURCE_CLAIM_TEMPLATES = TableOf((NAME, AGE), lambda obj, now: [name_of(obj), age_of(obj, now)])
RESOURCE_SLICES = TableOf(
    (NAME, TableColumn("Node"), TableColumn("Driver"), TableColumn("Pool"), AGE),
    lambda obj, now: [
        name_of(obj),
        _spec(obj).get("nodeName") or "",
        _spec(obj).get("driver", ""),
        (_spec(obj).get("pool") or {}).get("name", ""),
        age_of(obj, now),
    ],
)
