"""Events exist once and are seen in two groups: core/v1 (stored) and events.k8s.io/v1 (a view).

Field for field as in Kubernetes' conversion: involvedObject ↔ regarding, message ↔ note, source ↔
deprecatedSource, first/lastTimestamp ↔ deprecatedFirst/LastTimestamp, count ↔ deprecatedCount,
reportingComponent ↔ reportingController.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from windlass.api.selectors import FieldTerm

_PAIRS = (
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
)
_TO_V1 = dict(_PAIRS)
_TO_CORE = {new: old for old, new in _PAIRS}
_V1_FIELDS = {
    **{
        f"regarding.{part}": f"involvedObject.{part}"
        for part in ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
    },
    "reason": "reason",
    "type": "type",
    "reportingController": "reportingComponent",
    "metadata.name": "metadata.name",
    "metadata.namespace": "metadata.namespace",
}


def to_events_v1(event: dict[str, Any]) -> dict[str, Any]:
    """A stored (core) event as events.k8s.io/v1 shows it."""
    seen = {_TO_V1.get(key, key): value for key, value in event.items()}
    seen["apiVersion"] = "events.k8s.io/v1"
    return seen


def to_core(event: dict[str, Any]) -> dict[str, Any]:
    """An events.k8s.io/v1 body in the stored form."""
    kept = {_TO_CORE.get(key, key): value for key, value in event.items()}
    kept["apiVersion"] = "v1"
    return kept


def core_terms(terms: Sequence[FieldTerm]) -> tuple[FieldTerm, ...]:
    """Field selectors of events.k8s.io as those of the stored form; an unknown one keeps its name.

    The names of the core form are refused there, so they are made unknown.
    """
    return tuple(
        FieldTerm(_V1_FIELDS.get(term.path, f"events.k8s.io:{term.path}"), term.value, term.equal)
        for term in terms
    )
