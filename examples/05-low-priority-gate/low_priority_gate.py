"""Low-priority work waits while fewer than three nodes have a free GPU (or not all, where there are fewer)."""

from windlass.api.reasons import Reason
from windlass.spi.plugins import Rejection
from windlass.spi.quantities import is_device


class LowPriorityGate:
    name, reads = "own-low-priority-gate", ("aigc.kurator.dev/priority",)

    def __init__(self, option=None):
        self.nodes = int(option.arguments.get("nodes", 3)) if option else 3

    def admits(self, step, path, nodes):
        if not any((self.reads[0], "low") in needs.labels for needs in step.needs):
            return None
        gpus = [name for name in nodes.resources() if is_device(name)] or ["nvidia.com/gpu"]
        usable = nodes.ready() & ~nodes.unschedulable()
        free = int((usable & (sum(nodes.available(name) // 1000 for name in gpus) > 0)).sum())
        needed = min(self.nodes, int((sum(nodes.allocatable(name) // 1000 for name in gpus) > 0).sum()))
        if free < needed:
            return Rejection(
                Reason.INSUFFICIENT_RESOURCES,
                resource="nodes with free GPUs",
                needed=needed,
                available=free,
                detail="insufficient resources for low-priority",
            )
