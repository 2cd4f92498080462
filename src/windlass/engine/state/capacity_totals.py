"""Totals of the cluster for learning scores (:class:`windlass.spi.scoring.ClusterTotals`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from windlass.engine.state.cluster_state import ClusterState
from windlass.spi import renamed
from windlass.spi.devices import DeviceMode
from windlass.spi.objects import Device, Needs
from windlass.spi.quantities import is_device

_WHOLE = 1000


@renamed.attributes_of("ClusterTotals")
class CapacityTotals:
    """Totals over nodes and task classes."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._shape = -1
        self._devices: Mapping[tuple[str, int], int] = {}
        self._sliceable = False

    def empty(self) -> bool:
        return not self._state.tasks

    def shares_requested(self) -> bool:
        return any(cls.needs.devices and cls.tasks for cls in self._state.classes)

    def sliceable(self) -> bool:
        self.devices()
        return self._sliceable

    def kinds(self) -> Iterable[tuple[Needs, int]]:
        return ((cls.needs, cls.tasks) for cls in self._state.classes if cls.tasks)

    def devices(self) -> Mapping[tuple[str, int], int]:
        """Return the number of devices by model and memory.

        The result is computed again only if nodes change. Nodes of one shape share
        their tuple of devices, which is read once. Devices that no node lists are the
        remainder of the sums.
        """
        table = self._state.table
        if self._shape == table.shape:
            return self._devices
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
                sliceable = sliceable or device.mode is not DeviceMode.PLAIN
                if device.healthy:
                    found[device.model, device.memory_mib] += nodes
        every = sum(units // _WHOLE for name, units in table.total.items() if is_device(name))
        if every > listed:
            found["", 0] += every - listed
        self._shape, self._devices, self._sliceable = table.shape, dict(found), sliceable
        return self._devices
