"""``windlass node tree``: what is near to what, and where how much is free."""

from __future__ import annotations

from typing import Any

from windlass.api.errors import WindlassError
from windlass.api.resources import HYPERNODES, KAI_TOPOLOGIES, NODES, PODS
from windlass.cli import errors
from windlass.cli.invocation import Invocation
from windlass.cli.nodes import topology_tree
from windlass.cli.nodes.topology_tree import Branch
from windlass.cli.output import wide_tables
from windlass.cli.output.formats import emit


def show(invocation: Invocation, name: str | None) -> int:
    """The trees of that name, or of all HyperNodes and Topologies, on the output; returns the exit status."""
    client = invocation.client
    nodes = client.list(NODES).items
    hypernodes = errors.if_served(lambda: client.list(HYPERNODES).items, [])
    topologies = errors.if_served(lambda: client.list(KAI_TOPOLOGIES).items, [])
    book = topology_tree.book_of(hypernodes, topologies, nodes)
    places = topology_tree.places_of(nodes, client.list(PODS).items)
    found: list[Branch] = []
    if book.hypernodes and name in (None, "", "hypernodes", "HyperNodes"):
        found.append(topology_tree.of_hypernodes(book, places))
    for topology in sorted(book.topologies.values(), key=lambda one: one.name):
        if name in (None, topology.name):
            levels = [(level.node_label, level.alias or level.node_label) for level in topology.levels]
            found.append(topology_tree.of_levels(topology.name, levels, places))
    if name and not found:
        if not any(name in place.labels for place in places):
            raise _unknown(name, book.topologies, bool(book.hypernodes))
        found.append(topology_tree.of_levels(name, [(name, name)], places))
    if invocation.structured:
        records = [branch.record() for branch in found]
        document: dict[str, Any] = {"items": records, "problems": list(book.problems)}
        emit(invocation, document, names=[f"topology/{branch.name}" for branch in found])
        return errors.OK
    if not found:
        invocation.note(
            "No HyperNode and no Topology. By a label of nodes: windlass node tree topology.kubernetes.io/zone"
        )
    for at, branch in enumerate(found):
        if at:
            invocation.out.write("\n")
        _show(invocation, branch)
    for problem in book.problems:
        invocation.note(problem)
    return errors.OK


def _show(invocation: Invocation, root: Branch) -> None:
    rows = [
        [
            text,
            branch.kind or "-",
            str(len(branch.places))
            if branch.open == len(branch.places)
            else f"{branch.open}/{len(branch.places)}",
            f"{branch.devices / 1000:g}" if branch.devices else "-",
            f"{branch.free / 1000:g}" if branch.devices else "-",
            f"{branch.largest / 1000:g}" if branch.devices else "-",
        ]
        for text, branch in topology_tree.lines(root)
    ]
    header = ["DOMAIN", "LEVEL", "NODES", "GPUS", "FREE", "ON ONE NODE"]
    wide_tables.show(invocation, header, rows, spare=("LEVEL", "NODES"), right=header[2:])


def _unknown(name: str, topologies: Any, hypernodes: bool) -> WindlassError:
    there = [*sorted(topologies), *(["hypernodes"] if hypernodes else [])]
    return WindlassError(
        "WL-OBJECT-404",
        f"there is no Topology {name!r}, and no node carries a label of that name",
        evidence=f"there are: {', '.join(there) or 'none'}",
        remedies=("windlass node tree", "kubectl get nodes --show-labels"),
    )
