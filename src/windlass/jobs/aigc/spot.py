"""Workers of an AIGCJob on spot capacity (``spec.autoscale.spot``). Pure.

Worker ``i`` may use spot nodes if ⌊(i + 1) × fraction⌋ exceeds ⌊i × fraction⌋. Of the first
``n`` workers these are ⌊n × fraction⌋, whatever ``n`` is, and the first one is never among
them below a fraction of 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from math import floor
from typing import Any

from windlass.api.fields import aigc
from windlass.api.nodes.spot_labels import SPOT_LABELS, SPOT_TAINTS

Json = Mapping[str, Any]
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def is_stated(spec: Json) -> bool:
    """Return whether the job says anything about spot capacity."""
    return bool(aigc.part(aigc.part(spec, "autoscale"), "spot"))


def may_use_spot(spec: Json, index: int) -> bool:
    """Return whether a worker may be on a spot node."""
    spot = aigc.part(aigc.part(spec, "autoscale"), "spot")
    if not spot.get("allowed"):
        return False
    most = spot.get("maxFraction")
    part = Fraction(str(1 if most is None else most))
    return floor((index + 1) * part) > floor(index * part)


def add_spot(spec: Json, body: dict[str, Any], index: int) -> None:
    """Let a worker prefer spot nodes, or keep it off them. Without ``spot`` nothing changes."""
    if not is_stated(spec):
        return
    affinity = dict(body.get("affinity") or {})
    node = dict(affinity.get("nodeAffinity") or {})
    if may_use_spot(spec, index):
        wanted = [
            {"weight": 50, "preference": {"matchExpressions": [_expression(key, "In", values)]}}
            for key, values in SPOT_LABELS.items()
        ]
        node[_PREFERRED] = [*(node.get(_PREFERRED) or ()), *wanted]
        body["tolerations"] = [
            *(body.get("tolerations") or ()),
            *({"key": key, "operator": "Equal", "value": value} for key, value in SPOT_TAINTS),
        ]
    else:
        refused = [_expression(key, "NotIn", values) for key, values in SPOT_LABELS.items()]
        required = dict(node.get(_REQUIRED) or {})
        terms = required.get("nodeSelectorTerms") or [{}]
        required["nodeSelectorTerms"] = [
            {**term, "matchExpressions": [*(term.get("matchExpressions") or ()), *refused]} for term in terms
        ]
        node[_REQUIRED] = required
    affinity["nodeAffinity"] = node
    body["affinity"] = affinity


def _expression(key: str, operator: str, values: tuple[str, ...]) -> dict[str, Any]:
    return {"key": key, "operator": operator, "values": list(values)}
