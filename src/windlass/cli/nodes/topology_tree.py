"""The domains of a topology as a tree, with what each has free."""

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
OUTSIDE = "(in none)"
"""What the nodes that are in no domain of a level are called."""


@dataclass(slots=True)
class NodePosition:
    """A node: devices in milli, free ones only where pods may still go."""

    name: str
    labels: Mapping[str, str]
    devices: int
    free: int
    open: bool


@dataclass(slots=True)
class Branch:
    """A domain. ``kind``: the level's name. ``places``: all nodes in it."""

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
        """The most that is free on one node."""
        return max((place.free for place in self.places), default=0)

    @property
    def open(self) -> int:
        """Nodes that take pods."""
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


def places_of(nodes: Iterable[Object], pods: Iterable[Object]) -> list[NodePosition]:
    """The nodes by name, with the cards of which nobody has anything: what a gang of whole cards finds there. Units
    that a device plug-in makes of cards count as what they are of one."""
    nodes = list(nodes)
    cards: dict[str, list[DeviceRow]] = {}
    for row in rows_of(nodes, pods):
        if not row.card.mig:
            cards.setdefault(row.node, []).append(row)
    found = []
    for node in nodes:
        name = node["metadata"]["name"]
        there = cards.get(name, [])
        devices = _milli(there)
        ready = condition(node, "Ready")
        open_ = (ready is None or ready.get("status") == "True") and not (node.get("spec") or {}).get(
            "unschedulable"
        )
        free = _milli(row for row in there if row.card.healthy and not row.holdings) if open_ else 0
        found.append(NodePosition(name, node["metadata"].get("labels") or {}, devices, free, open_))
    return sorted(found, key=lambda place: natural_key(place.name))


def _milli(rows: Iterable[DeviceRow]) -> int:
    return round(WHOLE * sum(Fraction(1) if row.unit is None else row.unit.part for row in rows))


def book_of(
    hypernodes: Iterable[Object], topologies: Iterable[Object], nodes: Iterable[Object]
) -> TopologyIndex:
    """The objects as the scheduler reads them."""
    book = TopologyIndex()
    for obj in hypernodes:
        book.upsert(views.decode_hypernode(views.encode(obj)))
    for obj in topologies:
        book.upsert(views.decode_topology(views.encode(obj)))
    book.settle({node["metadata"]["name"]: views.decode_node(views.encode(node)) for node in nodes})
    return book


def of_hypernodes(book: TopologyIndex, places: Sequence[NodePosition]) -> Branch:
    """The cluster, the HyperNodes that no other has as a member, and what is below them."""
    carried = {place.name: book.labels_of(place.name) for place in places}
    names = {item.tier: item.tier_name for item in book.hypernodes.values() if item.tier_name}

    def branch(name: str) -> Branch:
        tier = book.hypernodes[name].tier
        key = f"{HYPERNODE}tier-{tier}"
        kind = f"tier {tier} ({names[tier]})" if tier in names else f"tier {tier}"
        inside = [place for place in places if carried[place.name].get(key) == name]
        below = sorted((n for n in book.hypernodes if book.parent_of(n) == name), key=natural_key)
        return Branch(name, kind, inside, [branch(child) for child in below])

    tops = sorted((name for name in book.hypernodes if not book.parent_of(name)), key=natural_key)
    found = [branch(name) for name in tops]
    outside = [place for place in places if not carried[place.name]]
    if outside:
        found.append(Branch(OUTSIDE, "", outside))
    return Branch("HyperNodes", "", list(places), found)


def of_levels(name: str, levels: Sequence[tuple[str, str]], places: Sequence[NodePosition]) -> Branch:
    """By labels: the whole, and below it the values of the first level, and so on. ``levels``: label and what
    the level is called."""
    return Branch(name, "", list(places), _below(list(levels), places))


def _below(levels: list[tuple[str, str]], places: Sequence[NodePosition]) -> list[Branch]:
    if not levels:
        return []
    (label, shown), *finer = levels
    values: dict[str, list[NodePosition]] = {}
    for place in places:
        values.setdefault(place.labels.get(label, ""), []).append(place)
    found = [
        Branch(value, shown, values[value], _below(finer, values[value]))
        for value in sorted(values, key=natural_key)
        if value
    ]
    if "" in values and found:
        found.append(Branch(OUTSIDE, shown, values[""]))
    return found


def lines(root: Branch) -> Iterator[tuple[str, Branch]]:
    """Every domain with its name, drawn as a tree."""
    yield root.name, root
    yield from _drawn(root.below, "")


def _drawn(branches: Sequence[Branch], lead: str) -> Iterator[tuple[str, Branch]]:
    for at, branch in enumerate(branches):
        last = at + 1 == len(branches)
        yield f"{lead}{'└─ ' if last else '├─ '}{branch.name}", branch
        yield from _drawn(branch.below, lead + ("   " if last else "│  "))
