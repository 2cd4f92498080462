"""What there is in the cluster, for scores that learn (:class:`windlass.spi.scoring.Stock`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from windlass.engine.state.cluster_state import World
from windlass.spi.devices import CardMode
from windlass.spi.objects import Device, Needs
from windlass.spi.quantities import is_device

_WHOLE = 1000


class ClusterStock:
    def __init__(self, world: World) -> None:
        self._world = world
        self._shape = -1
        self._cards: Mapping[tuple[str, int], int] = {}
        self._sliceable = False

    def empty(self) -> bool:
        return not self._world.tasks

    def parts_wanted(self) -> bool:
        return any(cls.needs.devices and cls.tasks for cls in self._world.classes)

    def sliceable(self) -> bool:
        self.cards()
        return self._sliceable

    def kinds(self) -> Iterable[tuple[Needs, int]]:
        return ((cls.needs, cls.tasks) for cls in self._world.classes if cls.tasks)

    def cards(self) -> Mapping[tuple[str, int], int]:
        """Counted once as long as no node changes. Nodes of one shape share their tuple of devices, which is
        looked at once; cards that no node lists are what is left of the sums."""
        table = self._world.table
        if self._shape == table.shape:
            return self._cards
        shapes: dict[int, tuple[tuple[Device, ...], int]] = {}
        for node in table.nodes:
            if node is not None and node.devices:
                key = id(node.devices)
                shapes[key] = (node.devices, shapes[key][1] + 1 if key in shapes else 1)
        found: Counter[tuple[str, int]] = Counter()
        listed, sliceable = 0, False
        for devices, nodes in shapes.values():
            listed += nodes * len(devices)
            for device in devices:
                sliceable = sliceable or device.mode is not CardMode.PLAIN
                if device.healthy:
                    found[device.model, device.memory_mib] += nodes
        every = sum(units // _WHOLE for name, units in table.total.items() if is_device(name))
        if every > listed:
            found["", 0] += every - listed
        self._shape, self._cards, self._sliceable = table.shape, dict(found), sliceable
        return self._cards
