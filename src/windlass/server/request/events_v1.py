"""Events in two API groups: core/v1 (stored) and events.k8s.io/v1 (a view).

The fields are mapped as in Kubernetes: involvedObject ↔ regarding, message ↔ note,
source ↔ deprecatedSource,
first/lastTimestamp ↔ deprecatedFirst/LastTimestamp, count ↔ deprecatedCount,
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
    """Return a stored (core) event as events.k8s.io/v1."""
    view = {_TO_V1.get(key, key): value for key, value in event.items()}
    view["apiVersion"] = "events.k8s.io/v1"
    return view


def to_core(event: dict[str, Any]) -> dict[str, Any]:
    """Return an events.k8s.io/v1 body in the stored form."""
    stored = {_TO_CORE.get(key, key): value for key, value in event.items()}
    stored["apiVersion"] = "v1"
    return stored


def core_terms(terms: Sequence[FieldTerm]) -> tuple[FieldTerm, ...]:
    """Return field selectors of events.k8s.io for the stored form.

    Unknown names are kept. Names of the core form are invalid in events.k8s.io, so they
    become unknown names.
    """
    return tuple(
        FieldTerm(_V1_FIELDS.get(term.path, f"events.k8s.io:{term.path}"), term.value, term.equal)
        for term in terms
    )
