"""Which idle GPUs nobody can use, and why: the figures behind ``windlass node ls``.

They are made here, from the nodes and pods as they are, by the scheduler's own tables of nodes and cards.
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
    "cpu": "no CPU left beside them",
    "memory": "no memory left beside them",
    "size": "too small a part, or too few at once",
    "model": "a model that nobody asks for",
}
"""Reason → what it means, as a sentence goes on after "stranded:"."""


@dataclass(frozen=True, slots=True)
class Stranded:
    """Of one node, in thousandths of GPUs. ``reasons``: what is stranded for what."""

    idle: int = 0
    fragmented: float = 0.0
    reasons: Mapping[str, int] = field(default_factory=dict)

    @property
    def total(self) -> int:
        return sum(self.reasons.values())

    @property
    def text(self) -> str:
        """``2 cpu``; ``1.5 cpu 0.5 size``; ``-`` for nothing."""
        return " ".join(f"{milli / 1000:g} {name}" for name, milli in self.reasons.items()) or "-"

    @property
    def record(self) -> dict[str, Any]:
        return {
            "gpus": self.total / 1000,
            "reasons": {name: milli / 1000 for name, milli in self.reasons.items()},
            "fragmentedGpus": round(self.fragmented / 1000, 3),
        }


def stranded(nodes: Sequence[Object], pods: Sequence[Object]) -> dict[str, Stranded]:
    """Node → what is stranded there."""
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
    state = ClusterState(EngineConfig(), PluginSet(()))  # nothing is decided, so no engine
    DeltaApplier(state).apply(model.take(0.0))
    view = TableView(state.table)
    kinds = ((cls.needs, cls.tasks) for cls in state.classes)
    found = strandings(kinds, view, _parts(nodes, view))
    return {
        name: Stranded(int(found.idle[at]), float(found.fragmented[at]), found.reasons(at))
        for at, name in enumerate(view.names())
        if name and found.idle[at]
    }


def _parts(nodes: Sequence[Object], view: TableView) -> FloatArray | None:
    """What each unit of each node is of a card (nodes × slots); ``None`` where all are whole cards."""
    import numpy as np

    from windlass.cli.nodes.device_counts import NodeDeviceCounts

    by_name = {node["metadata"]["name"]: NodeDeviceCounts(node, {}) for node in nodes}
    if not any(cards.sold for cards in by_name.values()):
        return None
    cards = view.cards()
    found = np.ones(cards.resource.shape)
    for at, name in enumerate(view.names()):
        for sold in by_name[name].sold if name in by_name else ():
            if sold.resource in cards.resources:
                code = list(cards.resources).index(sold.resource)
                found[at, cards.resource[at] == code] = float(sold.unit.part)
    return found


def _named(resource: Resource, items: Iterable[Object]) -> Iterable[tuple[str, dict[str, Any]]]:
    for item in items:
        yield (
            item["metadata"]["name"],
            {**item, "apiVersion": resource.api_version, "kind": resource.kind},
        )


def summary(found: Iterable[Stranded]) -> str:
    """One line over all nodes; empty if nothing is stranded."""
    sums: dict[str, int] = {}
    idle = 0
    for one in found:
        idle += one.idle
        for name, milli in one.reasons.items():
            sums[name] = sums.get(name, 0) + milli
    if not sums:
        return ""
    parts = [
        f"{milli / 1000:g} {SENTENCES[name]}" for name, milli in sorted(sums.items(), key=lambda i: -i[1])
    ]
    return f"stranded: {sum(sums.values()) / 1000:g} of {idle / 1000:g} idle GPUs ({'; '.join(parts)})"
