"""Domains of a topology as a tree, with the free GPUs of each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from windlass.api import views
from windlass.api.devices.assignment_annotations import WHOLE
from windlass.cli.nodes.device_table import DeviceRow, rows_of
from windlass.cli.text import condition, natural_key
from windlass.model.nodes.topology import TopologyIndex
from windlass.spi.topology import HYPERNODE

Object = Mapping[str, Any]
OUTSIDE = "(no domain)"
"""Name for nodes that are in no domain of a level."""


@dataclass(slots=True)
class NodePosition:
    """One node.

    Devices are in thousandths; they are free only if pods can be placed there.
    """

    name: str
    labels: Mapping[str, str]
    devices: int
    free: int
    open: bool


@dataclass(slots=True)
class Branch:
    """One domain. ``kind``: name of the level. ``places``: all nodes in it."""

    name: str
    kind: str
    places: list[NodePosition]
    below: list[Branch] = field(default_factory=list)

    @property
    def devices(self) -> int:
        return sum(place.devices for place in self.places)

    @property
    def free(self) -> int:
        return sum(place.free for place in self.places)

    @property
    def largest(self) -> int:
        """Largest number of free devices on one node."""
        return max((place.free for place in self.places), default=0)

    @property
    def open(self) -> int:
        """Number of nodes that accept pods."""
        return sum(place.open for place in self.places)

    def record(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "level": self.kind,
            "nodes": len(self.places),
            "nodesOpen": self.open,
            "gpus": self.devices / 1000,
            "gpusFree": self.free / 1000,
            "gpusFreeOnOneNode": self.largest / 1000,
            "nodeNames": [place.name for place in self.places] if not self.below else [],
            "domains": [branch.record() for branch in self.below],
        }


def node_positions(nodes: Iterable[Object], pods: Iterable[Object]) -> list[NodePosition]:
    """Return the nodes by name, with their unused devices, which gangs of whole GPUs can get.

    Units of a device plugin count as the share of a device that they are.
    """
    nodes = list(nodes)
    rows_by_node: dict[str, list[DeviceRow]] = {}
    for row in rows_of(nodes, pods):
        if not row.device.mig:
            rows_by_node.setdefault(row.node, []).append(row)
    positions = []
    for node in nodes:
        name = node["metadata"]["name"]
        node_rows = rows_by_node.get(name, [])
        devices = _milli(node_rows)
        ready = condition(node, "Ready")
        open_ = (ready is None or ready.get("status") == "True") and not (node.get("spec") or {}).get(
            "unschedulable"
        )
        free = _milli(row for row in node_rows if row.device.healthy and not row.holdings) if open_ else 0
        positions.append(NodePosition(name, node["metadata"].get("labels") or {}, devices, free, open_))
    return sorted(positions, key=lambda place: natural_key(place.name))


def _milli(rows: Iterable[DeviceRow]) -> int:
    return round(WHOLE * sum(Fraction(1) if row.unit is None else row.unit.part for row in rows))


def topology_index(
    hypernodes: Iterable[Object], topologies: Iterable[Object], nodes: Iterable[Object]
) -> TopologyIndex:
    """Return the index of the objects, as the scheduler builds it."""
    index = TopologyIndex()
    for obj in hypernodes:
        index.upsert(views.decode_hypernode(views.encode(obj)))
    for obj in topologies:
        index.upsert(views.decode_topology(views.encode(obj)))
    index.settle({node["metadata"]["name"]: views.decode_node(views.encode(node)) for node in nodes})
    return index


def hypernode_tree(index: TopologyIndex, places: Sequence[NodePosition]) -> Branch:
    """Return the tree of HyperNodes, with those at the top that are no member of another one."""
    labels = {place.name: index.labels_of(place.name) for place in places}
    names = {item.tier: item.tier_name for item in index.hypernodes.values() if item.tier_name}

    def branch(name: str) -> Branch:
        tier = index.hypernodes[name].tier
        key = f"{HYPERNODE}tier-{tier}"
        kind = f"tier {tier} ({names[tier]})" if tier in names else f"tier {tier}"
        inside = [place for place in places if labels[place.name].get(key) == name]
        below = sorted((n for n in index.hypernodes if index.parent_of(n) == name), key=natural_key)
        return Branch(name, kind, inside, [branch(child) for child in below])

    tops = sorted((name for name in index.hypernodes if not index.parent_of(name)), key=natural_key)
    branches = [branch(name) for name in tops]
    outside = [place for place in places if not labels[place.name]]
    if outside:
        branches.append(Branch(OUTSIDE, "", outside))
    return Branch("HyperNodes", "", list(places), branches)


def label_tree(name: str, levels: Sequence[tuple[str, str]], places: Sequence[NodePosition]) -> Branch:
    """Return the tree of label values.

    :param levels: label and name of each level
    """
    return Branch(name, "", list(places), _below(list(levels), places))


def _below(levels: list[tuple[str, str]], places: Sequence[NodePosition]) -> list[Branch]:
    if not levels:
        return []
    (label, shown), *finer = levels
    values: dict[str, list[NodePosition]] = {}
    for place in places:
        values.setdefault(place.labels.get(label, ""), []).append(place)
    branches = [
        Branch(value, shown, values[value], _below(finer, values[value]))
        for value in sorted(values, key=natural_key)
        if value
    ]
    if "" in values and branches:
        branches.append(Branch(OUTSIDE, shown, values[""]))
    return branches


def drawn_lines(root: Branch) -> Iterator[tuple[str, Branch]]:
    """Yield every domain with its name, drawn as a tree."""
    yield root.name, root
    yield from _drawn(root.below, "")


def _drawn(branches: Sequence[Branch], lead: str) -> Iterator[tuple[str, Branch]]:
    for number, branch in enumerate(branches):
        last = number + 1 == len(branches)
        yield f"{lead}{'└─ ' if last else '├─ '}{branch.name}", branch
        yield from _drawn(branch.below, lead + ("   " if last else "│  "))
