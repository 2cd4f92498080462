"""Plugin ``low-priority-gate``: low-priority work waits while few nodes have a free GPU.

Pods state their priority by the label ``aigc.kurator.dev/priority``. The plugin is off by
default, because it delays low-priority work on a nearly full cluster.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from windlass.api.reasons import Reason
from windlass.spi.nodes import NodeView
from windlass.spi.plugins import QueueView, Rejection, StepView
from windlass.spi.quantities import is_device

NAME = "low-priority-gate"
LABEL = "aigc.kurator.dev/priority"
NODES = 3
"""Default number of nodes with a free GPU that low-priority work needs."""
_WHOLE = 1000


class LowPriorityGate:
    """Admission of low-priority steps only while enough nodes have a free GPU.

    ``nodes``: number of ready, schedulable nodes with at least one free whole GPU. On a
    site with fewer GPU nodes, all of them are enough. A gang counts as low if one of its
    pods does. A step of high priority always passes, even without a free GPU.
    """

    name, reads = NAME, (LABEL,)

    def __init__(self, nodes: int = NODES) -> None:
        self.nodes = nodes

    def admits(self, step: StepView, path: Sequence[QueueView], nodes: NodeView) -> Rejection | None:
        if not self._has(step, "low"):
            return None
        gpus = [name for name in nodes.resources() if is_device(name)] or ["nvidia.com/gpu"]
        usable = nodes.ready() & ~nodes.unschedulable()
        with_free, with_gpus = np.zeros_like(usable), np.zeros_like(usable)
        for name in gpus:
            with_free |= nodes.available(name) >= _WHOLE
            with_gpus |= nodes.allocatable(name) >= _WHOLE
        free = int((usable & with_free).sum())
        needed = min(self.nodes, int(with_gpus.sum()))
        if free >= needed:
            return None
        return Rejection(
            Reason.INSUFFICIENT_RESOURCES,
            resource="nodes with free GPUs",
            needed=needed,
            available=free,
            detail="insufficient resources for low-priority",
        )

    def note(self, step: StepView) -> str:
        """Return the message for an admitted step."""
        high = self._has(step, "high") and not self._has(step, "low")
        return "high-priority job" if high else ""

    def _has(self, step: StepView, priority: str) -> bool:
        return any((LABEL, priority) in needs.labels for needs in step.needs)
