"""Results of earlier runs: nodes for a workflow that is submitted again, and outputs of nodes that stay."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from windlass.workflow import words
from windlass.workflow.commands import RequestProblem, retry
from windlass.workflow.node import NodeStatus, node_id

Json = dict[str, Any]


def reuse(nodes: Mapping[str, NodeStatus], old: str, new: str) -> dict[str, NodeStatus]:
    """Return the nodes of workflow ``old`` that succeeded, as nodes of workflow ``new``.

    Raises :class:`RequestProblem` if nothing of it failed.
    """
    try:
        kept, _ = retry({key: msgspec.structs.replace(node) for key, node in nodes.items()}, old, {})
    except RequestProblem:
        raise RequestProblem(f"nothing of workflow {old} failed: resubmit it without --memoized") from None
    names = {node.id: new + node.name.removeprefix(old) for node in kept.values()}
    ids = {id_: node_id(new, name) for id_, name in names.items()}
    return {ids[node.id]: _renamed(node, names[node.id], ids, old, new) for node in kept.values()}


def _renamed(node: NodeStatus, name: str, ids: Mapping[str, str], old: str, new: str) -> NodeStatus:
    kept = node.type in (words.POD, words.SUSPEND) and node.phase == words.SUCCEEDED
    return msgspec.structs.replace(
        node,
        id=ids[node.id],
        name=name,
        display_name=new if node.display_name == old else node.display_name,
        template_scope=f"local/{new}" if node.template_scope == f"local/{old}" else node.template_scope,
        boundary_id=ids.get(node.boundary_id, ""),
        children=[ids[child] for child in node.children if child in ids],
        outbound_nodes=[ids[one] for one in node.outbound_nodes if one in ids],
        message=f"result of workflow {old}" if kept else node.message,
    )


def exported(nodes: Mapping[str, NodeStatus]) -> Json:
    """Return the outputs of a workflow that nodes with results made: those with a ``globalName``."""
    found: Json = {}
    for node in nodes.values():
        for kind in ("parameters", "artifacts"):
            for entry in (node.outputs or {}).get(kind) or ():
                name = entry.get("globalName")
                if not name or not node.ended:
                    continue
                body = {key: value for key, value in entry.items() if key != "globalName"}
                found.setdefault(kind, {})[name] = {**body, "name": name}
    return {kind: list(entries.values()) for kind, entries in found.items()}
