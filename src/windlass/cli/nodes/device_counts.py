"""Number of devices of a node, and the units into which its device plugin divides them.

If a plugin replicates devices (time-slicing, MPS) or creates MIG instances, the node
lists units. GPUs are counted as devices here, with shares as fractions. Units are
listed separately, in the terms of the plugin.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from windlass.api import annotations as names
from windlass.api import quantities
from windlass.api.devices import node_annotation, plugin_units
from windlass.api.devices.plugin_units import PluginUnit
from windlass.api.devices.request import WHOLE
from windlass.api.devices.resource_names import VOLCANO_VGPU
from windlass.cli import resources

Object = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class UnitCounts:
    """Units of one resource: total number, and number held by pods."""

    resource: str
    unit: PluginUnit
    total: int
    used: int

    @property
    def text(self) -> str:
        """Used of all units: ``3/8 time-slicing``, ``1/2 1g.5gb``."""
        return f"{self.used}/{self.total} {self.unit.words}"

    @property
    def record(self) -> dict[str, Any]:
        return {
            "resource": self.resource,
            "sharing": self.unit.sharing,
            "profile": self.unit.profile,
            "replicas": self.unit.replicas,
            "units": self.total,
            "unitsFree": max(0, self.total - self.used),
        }


class NodeDeviceCounts:
    """Device counts of one node, in thousandths of devices.

    ``used``: amounts that its pods hold, in engine units by resource.
    """

    def __init__(self, node: Object, used: Mapping[str, int]) -> None:
        self._labels: Mapping[str, str] = (node.get("metadata") or {}).get("labels") or {}
        have = _devices(_whole_devices(node))
        held = _devices(used)
        self._units = {
            resource: unit
            for resource in {**have, **held}
            if (unit := plugin_units.unit_of(resource, self._labels, have.get(resource, 0) // WHOLE))
        }
        self.unit_counts = tuple(
            UnitCounts(resource, self._units[resource], units // WHOLE, -(-held.get(resource, 0) // WHOLE))
            for resource, units in sorted(have.items())
            if resource in self._units and units
        )
        self.usable = self.milli_of(have) + resources.dynamic_mig_milli(node)
        """Allocatable part of its devices; of a device with MIG instances, the part that these are."""
        self.used = self.milli_of(held)
        self.total = max(self.usable, self._devices_total(node, have))

    def milli_of(self, held: Mapping[str, int]) -> int:
        """Return the share of the node's devices that these amounts are."""
        shares = (
            units * (self._units[name].part if name in self._units else 1)
            for name, units in _devices(held).items()
        )
        return round(sum(shares, Fraction(0)))

    def _devices_total(self, node: Object, have: Mapping[str, int]) -> int:
        """Return the number of physical devices, in thousandths."""
        annotations = (node.get("metadata") or {}).get("annotations") or {}
        physical = node_annotation.amounts_with_unhealthy(annotations, have, unit=WHOLE)
        whole = sum(units for name, units in physical.items() if name not in self._units)
        records = node_annotation.read(annotations).cards
        dynamic = resources.dynamic_mig_milli(node)
        fixed = sum(record.mig and not record.dynamic for record in records)
        return whole + dynamic + WHOLE * (fixed or plugin_units.devices_of_units(have, self._labels))


def _devices(held: Mapping[str, int]) -> dict[str, int]:
    """Return device resources only, without amounts per model, which would count twice."""
    return {name: units for name, units in held.items() if quantities.is_device(name) and "@" not in name}


def _whole_devices(node: Object) -> Mapping[str, int]:
    """Return the allocatable resources, with devices instead of HAMi's and Volcano's slots."""
    listed = resources.allocatable(node)
    annotations = (node.get("metadata") or {}).get("annotations") or {}
    if names.REGISTER_HAMI not in annotations and VOLCANO_VGPU.number not in listed:
        return listed
    from windlass.api import views
    from windlass.model.devices.node_devices import amounts_of

    return amounts_of(views.decode_node(views.encode(node)))
