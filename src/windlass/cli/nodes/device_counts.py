"""The cards of a node as people count them, and the units that its device plug-in makes of them.

Where a plug-in replicates cards (time-slicing, MPS) or slices them (MIG), the node lists units. GPUs are cards here,
parts of them as fractions; the units are told beside them, in the plug-in's words.
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
    """Units of one resource: how many there are, and how many pods hold."""

    resource: str
    unit: PluginUnit
    total: int
    used: int

    @property
    def text(self) -> str:
        """``3/8 time-slicing``, ``1/2 1g.5gb``: used of all."""
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
    """Of one node, whose pods hold ``used`` (engine units by resource). Amounts of cards are in thousandths."""

    def __init__(self, node: Object, used: Mapping[str, int]) -> None:
        self._labels: Mapping[str, str] = (node.get("metadata") or {}).get("labels") or {}
        have = _devices(_whole_cards(node))
        taken = _devices(used)
        self._units = {
            resource: unit
            for resource in {**have, **taken}
            if (unit := plugin_units.unit_of(resource, self._labels, have.get(resource, 0) // WHOLE))
        }
        self.sold = tuple(
            UnitCounts(resource, self._units[resource], units // WHOLE, -(-taken.get(resource, 0) // WHOLE))
            for resource, units in sorted(have.items())
            if resource in self._units and units
        )
        self.usable = self.milli_of(have) + resources.dynamic_mig_milli(node)
        """What can be had of its cards: of a card that is sliced, what its slices are of it."""
        self.used = self.milli_of(taken)
        self.total = max(self.usable, self._cards(node, have))

    def milli_of(self, held: Mapping[str, int]) -> int:
        """What amounts of this node's resources are of its cards."""
        parts = (
            units * (self._units[name].part if name in self._units else 1)
            for name, units in _devices(held).items()
        )
        return round(sum(parts, Fraction(0)))

    def _cards(self, node: Object, have: Mapping[str, int]) -> int:
        """So many cards stand behind it all."""
        whole = sum(units for name, units in have.items() if name not in self._units)
        told = node_annotation.read((node.get("metadata") or {}).get("annotations") or {}).cards
        carved, fixed = resources.dynamic_mig_milli(node), sum(card.mig and not card.dynamic for card in told)
        return whole + carved + WHOLE * (fixed or plugin_units.devices_of_units(have, self._labels))


def _devices(held: Mapping[str, int]) -> dict[str, int]:
    """Accelerators alone. What is said of single models is said a second time."""
    return {name: units for name, units in held.items() if quantities.is_device(name) and "@" not in name}


def _whole_cards(node: Object) -> Mapping[str, int]:
    """What the node lists, cards for the slots of plug-ins that share cards by Windlass' word (HAMi, Volcano vGPU)."""
    listed = resources.allocatable(node)
    notes = (node.get("metadata") or {}).get("annotations") or {}
    if names.REGISTER_HAMI not in notes and VOLCANO_VGPU.number not in listed:
        return listed
    from windlass.api import views
    from windlass.model.devices.node_devices import amounts_of

    return amounts_of(views.decode_node(views.encode(node)))
