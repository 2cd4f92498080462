"""What there is in the cluster, for scores that learn (:class:`windlass.spi.scoring.Stock`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from windlass.engine.world import World
from windlass.spi.objects import Device, Needs
from windlass.spi.quantities import is_device

_WHOLE = 1000


class ClusterStock:
    def __init__(self, world: World) -> None:
        self._world = world

    def empty(self) -> bool:
        return not self._world.tasks

    def parts_wanted(self) -> bool:
        return any(cls.needs.devices and cls.tasks for cls in self._world.classes)

    def kinds(self) -> Iterable[tuple[Needs, int]]:
        return ((cls.needs, cls.tasks) for cls in self._world.classes if cls.tasks)

    def cards(self) -> Mapping[tuple[str, int], int]:
        """Nodes of one shape share their tuple of devices, which is looked at once."""
        shapes: dict[int, tuple[tuple[Device, ...], int]] = {}
        found: Counter[tuple[str, int]] = Counter()
        for node in self._world.table.nodes:
            if node is None:
                continue
            if node.devices:
                key = id(node.devices)
                shapes[key] = (node.devices, shapes[key][1] + 1 if key in shapes else 1)
            else:
                found["", 0] += sum(
                    units // _WHOLE for name, units in node.allocatable.items() if is_device(name)
                )
        for devices, nodes in shapes.values():
            for device in devices:
                if device.healthy:
                    found[device.model, device.memory_mib] += nodes
        return {kind: number for kind, number in found.items() if number}
