"""``windlass node tree``: domains of topologies with their free GPUs."""

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
    """Print the trees of that name, or of all HyperNodes and Topologies; return the exit status."""
    client = invocation.client
    nodes = client.list(NODES).items
    hypernodes = errors.if_served(lambda: client.list(HYPERNODES).items, [])
    topologies = errors.if_served(lambda: client.list(KAI_TOPOLOGIES).items, [])
    index = topology_tree.topology_index(hypernodes, topologies, nodes)
    places = topology_tree.node_positions(nodes, client.list(PODS).items)
    trees: list[Branch] = []
    if index.hypernodes and name in (None, "", "hypernodes", "HyperNodes"):
        trees.append(topology_tree.hypernode_tree(index, places))
    for topology in sorted(index.topologies.values(), key=lambda one: one.name):
        if name in (None, topology.name):
            levels = [(level.node_label, level.alias or level.node_label) for level in topology.levels]
            trees.append(topology_tree.label_tree(topology.name, levels, places))
    if name and not trees:
        if not any(name in place.labels for place in places):
            raise _unknown(name, index.topologies, bool(index.hypernodes))
        trees.append(topology_tree.label_tree(name, [(name, name)], places))
    if invocation.structured:
        records = [branch.record() for branch in trees]
        document: dict[str, Any] = {"items": records, "problems": list(index.problems)}
        emit(invocation, document, names=[f"topology/{branch.name}" for branch in trees])
        return errors.OK
    if not trees:
        invocation.note(
            "No HyperNode or Topology exists. To use a node label: windlass node tree topology.kubernetes.io/zone"
        )
    for number, branch in enumerate(trees):
        if number:
            invocation.out.write("\n")
        _show(invocation, branch)
    for problem in index.problems:
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
        for text, branch in topology_tree.drawn_lines(root)
    ]
    header = ["DOMAIN", "LEVEL", "NODES", "GPUS", "FREE", "ON ONE NODE"]
    wide_tables.show(invocation, header, rows, optional=("LEVEL", "NODES"), right=header[2:])


def _unknown(name: str, topologies: Any, hypernodes: bool) -> WindlassError:
    known = [*sorted(topologies), *(["hypernodes"] if hypernodes else [])]
    return WindlassError(
        "WL-OBJECT-404",
        f"there is no Topology {name!r}, and no node has a label of that name",
        evidence=f"existing topologies: {', '.join(known) or 'none'}",
        remedies=("windlass node tree", "kubectl get nodes --show-labels"),
    )
