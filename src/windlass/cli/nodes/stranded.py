"""Idle GPUs that no pod can use, with reasons, for ``windlass node ls``.

They are computed from the current nodes and pods with the scheduler's own node table.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from windlass.api.resources import NODES, PODS, Resource

if TYPE_CHECKING:
    from windlass.engine.nodes.view import TableView
    from windlass.spi.nodes import FloatArray

Object = Mapping[str, Any]
SENTENCES = {
    "cpu": "no CPU left on their nodes",
    "memory": "no memory left on their nodes",
    "size": "shares too small, or too few GPUs on one node",
    "model": "a model that no pod requests",
}
"""Reason → text for the summary ("stranded: …")."""


@dataclass(frozen=True, slots=True)
class Stranded:
    """Stranded GPUs of one node, in thousandths of GPUs. ``reasons``: amount by reason."""

    idle: int = 0
    fragmented: float = 0.0
    reasons: Mapping[str, int] = field(default_factory=dict)

    @property
    def total(self) -> int:
        return sum(self.reasons.values())

    @property
    def text(self) -> str:
        """Amounts by reason: ``2 cpu``; ``1.5 cpu 0.5 size``; ``-`` for none."""
        return " ".join(f"{milli / 1000:g} {name}" for name, milli in self.reasons.items()) or "-"

    @property
    def record(self) -> dict[str, Any]:
        return {
            "gpus": self.total / 1000,
            "reasons": {name: milli / 1000 for name, milli in self.reasons.items()},
            "fragmentedGpus": round(self.fragmented / 1000, 3),
        }


def stranded(nodes: Sequence[Object], pods: Sequence[Object]) -> dict[str, Stranded]:
    """Return node → stranded GPUs."""
    from windlass.engine.apply_deltas import DeltaApplier
    from windlass.engine.config import EngineConfig
    from windlass.engine.nodes.view import TableView
    from windlass.engine.plugin_set import PluginSet
    from windlass.engine.state.cluster_state import ClusterState
    from windlass.model.cluster.cluster_model import ClusterModel
    from windlass.model.cluster.snapshot import EVERY_SCHEDULER, load
    from windlass.plugins.devices.stranding import strandings

    model = ClusterModel(EVERY_SCHEDULER)
    load(model, _named(NODES, nodes))
    load(model, _named(PODS, pods))
    state = ClusterState(EngineConfig(), PluginSet(()))  # no decision is made, so no engine is needed
    DeltaApplier(state).apply(model.take(0.0))
    view = TableView(state.table)
    classes = ((cls.needs, cls.tasks) for cls in state.classes)
    found = strandings(classes, view, _unit_shares(nodes, view))
    return {
        name: Stranded(int(found.idle[row]), float(found.fragmented[row]), found.reasons(row))
        for row, name in enumerate(view.names())
        if name and found.idle[row]
    }


def _unit_shares(nodes: Sequence[Object], view: TableView) -> FloatArray | None:
    """Return each unit's share of a device (nodes × slots); ``None`` without such units."""
    import numpy as np

    from windlass.cli.nodes.device_counts import NodeDeviceCounts

    by_name = {node["metadata"]["name"]: NodeDeviceCounts(node, {}) for node in nodes}
    if not any(counts.unit_counts for counts in by_name.values()):
        return None
    devices = view.devices()
    shares = np.ones(devices.resource.shape)
    for row, name in enumerate(view.names()):
        for counts in by_name[name].unit_counts if name in by_name else ():
            if counts.resource in devices.resources:
                code = list(devices.resources).index(counts.resource)
                shares[row, devices.resource[row] == code] = float(counts.unit.part)
    return shares


def _named(resource: Resource, items: Iterable[Object]) -> Iterable[tuple[str, dict[str, Any]]]:
    for item in items:
        yield (
            item["metadata"]["name"],
            {**item, "apiVersion": resource.api_version, "kind": resource.kind},
        )


def summary(nodes: Iterable[Stranded]) -> str:
    """Return one line about all nodes; empty if nothing is stranded."""
    sums: dict[str, int] = {}
    idle = 0
    for stranded_gpus in nodes:
        idle += stranded_gpus.idle
        for name, milli in stranded_gpus.reasons.items():
            sums[name] = sums.get(name, 0) + milli
    if not sums:
        return ""
    parts = [
        f"{milli / 1000:g} {SENTENCES[name]}" for name, milli in sorted(sums.items(), key=lambda i: -i[1])
    ]
    return f"stranded: {sum(sums.values()) / 1000:g} of {idle / 1000:g} idle GPUs ({'; '.join(parts)})"
