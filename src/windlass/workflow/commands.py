"""Requests of users about a workflow: resume, retry. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from windlass.kits.timestamps import rfc3339
from windlass.workflow import words
from windlass.workflow.node import NodeStatus

Json = dict[str, Any]


class RequestProblem(Exception):
    """Request that cannot be carried out."""


def find_node(nodes: dict[str, NodeStatus], name: str) -> NodeStatus:
    """Return the node that a user means: by id, name or display name.

    Raises :class:`RequestProblem` for none, and for several.
    """
    found = [node for node in nodes.values() if name in (node.id, node.name, node.display_name)]
    found = [node for node in found if node.id == name] or found
    if not found:
        known = ", ".join(sorted({node.display_name for node in nodes.values()})[:10])
        raise RequestProblem(f"there is no node {name!r}: the nodes are {known}")
    if len(found) > 1:
        listed = ", ".join(node.name for node in found[:10])
        raise RequestProblem(f"{len(found)} nodes are named {name!r}: use one of {listed}")
    return found[0]


def resume(nodes: dict[str, NodeStatus], request: Json, now: float) -> None:
    """End suspended nodes. ``request``: ``node`` (all if empty), ``parameters``, ``message``.

    Raises :class:`RequestProblem` for a missing output, and for one that no such node has.
    """
    wanted = request.get("node")
    chosen = [find_node(nodes, wanted)] if wanted else list(nodes.values())
    supplied: Json = request.get("parameters") or {}
    known: set[str] = set()
    ended: list[tuple[NodeStatus, list[Json]]] = []
    for node in chosen:
        if node.type != words.SUSPEND or node.fulfilled:
            if wanted:
                raise RequestProblem(f"node {wanted!r} is not suspended: its phase is {node.phase}")
            continue
        parameters = []
        for parameter in (node.outputs or {}).get("parameters") or ():
            known.add(parameter["name"])
            value = supplied.get(parameter["name"], parameter.get("value"))
            if value is None:
                value = (parameter.get("valueFrom") or {}).get("default")
            if value is None:
                name = parameter["name"]
                raise RequestProblem(f"{node.display_name!r} needs the output {name!r}: add -p {name}=VALUE")
            parameters.append({"name": parameter["name"], "value": str(value)})
        ended.append((node, parameters))
    if unknown := sorted(supplied.keys() - known):
        outputs = (
            f"the outputs are {', '.join(sorted(known))}" if known else "they have no outputs, leave -p out"
        )
        raise RequestProblem(f"no suspended node has the output {unknown[0]!r}: {outputs}")
    for node, parameters in ended:
        if parameters:
            node.outputs = {"parameters": parameters}
        node.phase = words.SUCCEEDED if not request.get("fail") else words.FAILED
        node.message = request.get("message", "")
        node.finished_at = rfc3339(now)


def retry(
    nodes: dict[str, NodeStatus], root: str, request: Json
) -> tuple[dict[str, NodeStatus], list[NodeStatus]]:
    """Reset a workflow so that it runs again. Return the nodes that stay, and those that are removed.

    Without ``node``, all that failed runs again and what succeeded stays. With ``node``
    (also of a workflow that succeeded), that node and all that follows it run again.
    Raises :class:`RequestProblem`.
    """
    if request.get("node"):
        reset = _from(nodes, find_node(nodes, request["node"]))
    else:
        reset = _failed(nodes, root)
        if not reset:
            raise RequestProblem("nothing of the workflow failed: name a node with --from NODE")
    kept: dict[str, NodeStatus] = {}
    removed: list[NodeStatus] = []
    reopened = _enclosing(nodes, reset)
    for node in nodes.values():
        if node.id in reset:
            removed.append(node)
        else:
            kept[node.id] = node
    for node in kept.values():
        node.children = [child for child in node.children if child in kept]
        if node.id in reopened:
            node.phase, node.message, node.finished_at, node.outputs = words.RUNNING, "", None, None
            node.outbound_nodes = []
    return kept, removed


def _enclosing(nodes: dict[str, NodeStatus], reset: Iterable[str]) -> set[str]:
    """Return the DAG, Steps, group and retry nodes around nodes that are reset."""
    parents: dict[str, list[str]] = {}
    for node in nodes.values():
        if node.type in (words.STEP_GROUP, words.TASK_GROUP, words.RETRY):
            for child in node.children:
                parents.setdefault(child, []).append(node.id)
    found: set[str] = set()
    stack = list(reset)
    while stack:
        node = nodes[stack.pop()]
        for around in (node.boundary_id, *parents.get(node.id, ())):
            if around and around in nodes and around not in found:
                found.add(around)
                stack.append(around)
    return found


def _failed(nodes: dict[str, NodeStatus], root: str) -> set[str]:
    """Return the nodes that run again after a failure: leaves that failed, and what never ran because of them."""
    found: set[str] = set()
    for node in nodes.values():
        again = node.phase in (words.FAILED, words.ERROR, words.OMITTED) or not node.fulfilled
        inner = node.type in (words.DAG, words.STEPS, words.STEP_GROUP, words.TASK_GROUP)
        attempt = bool((node.node_flag or {}).get("retried"))
        if again and not inner and not attempt:
            found.add(node.id)
    if not found:
        return found
    attempts = {child for id_ in found if nodes[id_].type == words.RETRY for child in nodes[id_].children}
    attempts = {id_ for id_ in attempts if (nodes[id_].node_flag or {}).get("retried")}
    found |= attempts | _inside(nodes, attempts)
    found |= _exit_handlers(nodes, root)
    for (
        node
    ) in nodes.values():  # later groups of Steps that failed were not begun; skipped nodes are decided again
        if node.phase == words.SKIPPED and _follows(nodes, found, node):
            found.add(node.id)
    return {
        id_ for id_ in found if id_ != root or nodes[id_].type in (words.POD, words.RETRY, words.SKIPPED_NODE)
    }


def _follows(nodes: dict[str, NodeStatus], reset: set[str], node: NodeStatus) -> bool:
    return any(node.id in nodes[id_].children for id_ in reset if id_ in nodes)


def _exit_handlers(nodes: dict[str, NodeStatus], root: str) -> set[str]:
    """Return the nodes of the workflow's exit handler and hooks: they run again with the workflow."""
    handlers = {
        node.id
        for node in nodes.values()
        if node.name == f"{root}.onExit" or node.name.startswith(f"{root}.hooks.")
    }
    return handlers | _inside(nodes, handlers)


def _inside(nodes: dict[str, NodeStatus], boundaries: set[str]) -> set[str]:
    """Return all nodes inside boundaries, at any depth."""
    found: set[str] = set()
    grown = True
    while grown:
        more = {node.id for node in nodes.values() if node.boundary_id in boundaries | found} - found
        grown = bool(more)
        found |= more
    return found


def _from(nodes: dict[str, NodeStatus], start: NodeStatus) -> set[str]:
    """Return a node, what is inside it and all that follows it."""
    if not start.boundary_id and start.type in (words.DAG, words.STEPS):
        return set(nodes)
    found: set[str] = set()
    stack = [start.id]
    while stack:
        id_ = stack.pop()
        if id_ in found or id_ not in nodes:
            continue
        found.add(id_)
        node = nodes[id_]
        stack += node.children
        stack += node.outbound_nodes
    found |= _inside(nodes, found)
    found |= _after_boundaries(nodes, found)
    return found | _exit_handlers(
        nodes, next(node.id for node in nodes.values() if not node.boundary_id and not node.hooked)
    )


def _after_boundaries(nodes: dict[str, NodeStatus], found: set[str]) -> set[str]:
    """Return what follows the DAG and Steps nodes around the nodes that are reset."""
    more: set[str] = set()
    for id_ in _enclosing(nodes, found):
        stack = list(nodes[id_].outbound_nodes)
        while stack:
            last = stack.pop()
            if last in nodes:
                for child in nodes[last].children:
                    if child not in found and child not in more:
                        more.add(child)
                        stack.append(child)
    return more | _inside(nodes, more)
