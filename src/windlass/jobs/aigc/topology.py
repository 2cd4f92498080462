"""Topology constraint of each worker of several pods (``spec.placement.topology``). Pure.

A label of nodes, or a word for one, becomes slices of Kueue's annotations: neighbours by
index, as many as a worker has pods. HyperNodes become the topology of a subgroup.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windlass.api import annotations as names
from windlass.api.fields import aigc
from windlass.api.fields.aigc import Json
from windlass.api.nodes.topology_levels import LEVELS

_SEGMENTS = {
    names.TOPOLOGY_REQUIRED_KAI: names.SEGMENT_REQUIRED_KAI,
    names.TOPOLOGY_PREFERRED_KAI: names.SEGMENT_PREFERRED_KAI,
}
"""Annotation of a gang of KAI → that of its segments."""


def network_topology(spec: Json) -> dict[str, Any]:
    """Return the constraint by HyperNodes; empty without one."""
    return dict(aigc.part(aigc.part(spec, "placement"), "topology"))


def slice_annotations(spec: Json, stated: Mapping[str, str], shards: int) -> dict[str, str] | None:
    """Return the annotations of a pod for a constraint of its worker by labels; ``None`` without one.

    ``stated``: annotations of the template. A constraint of all pods in there holds for each worker.
    """
    given = aigc.part(spec, "placement").get("topology")
    if isinstance(given, str) and given:
        level = LEVELS.get(given, given)
        return {**stated, names.PODSET_SLICE_REQUIRED: level, names.PODSET_SLICE_SIZE: str(shards)}
    if level := stated.get(names.PODSET_REQUIRED):
        rest = {name: text for name, text in stated.items() if name != names.PODSET_REQUIRED}
        return {**rest, names.PODSET_SLICE_REQUIRED: level, names.PODSET_SLICE_SIZE: str(shards)}
    if names.TOPOLOGY_KAI in stated and not _SEGMENTS.keys().isdisjoint(stated):
        renamed = {_SEGMENTS.get(name, name): text for name, text in stated.items()}
        return {**renamed, names.SEGMENT_SIZE_KAI: str(shards)}
    return None
