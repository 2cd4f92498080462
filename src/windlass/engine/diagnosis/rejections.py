"""Nodes that do not take one more task of a class now, each with its reasons."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from windlass.engine.diagnosis.device_messages import device_blockers
from windlass.engine.diagnosis.transient_blockers import blockers_by
from windlass.engine.feasibility.task_class import TaskClass
from windlass.engine.nodes.view import view_of
from windlass.engine.state.cluster_state import ClusterState
from windlass.spi.plugins import NodeBlocker
from windlass.spi.quantities import from_units


def rejections(state: ClusterState, cls: TaskClass) -> Mapping[str, str]:
    """Return node → why it does not take a task of the class; only nodes that do not."""
    table = state.table
    cls.refresh()
    live = np.flatnonzero(table.live[: table.height])
    findings = blockers_by(state.plugins.blockers, cls.needs, view_of(table, live))
    if cls.needs.devices:
        findings += device_blockers(cls, live, lasting=False)
    found: dict[str, list[str]] = {}
    for blocker in findings:
        for at in np.flatnonzero(blocker.blocked).tolist():
            found.setdefault(table.names[live[at]], []).append(_text(blocker, at))
    return {node: "; ".join(dict.fromkeys(texts)) for node, texts in found.items()}


def _text(blocker: NodeBlocker, at: int) -> str:
    if blocker.resource and blocker.available is not None:
        needed = from_units(blocker.resource, blocker.needed)
        available = from_units(blocker.resource, max(0, int(blocker.available[at])))
        return f"{blocker.code}: {blocker.resource} needs {needed}, has {available}"
    return f"{blocker.code}: {blocker.detail}" if blocker.detail else str(blocker.code)
