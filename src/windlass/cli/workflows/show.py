"""Text of ``windlass workflow show``: the workflow and the tree of its nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from windlass.cli.invocation import Invocation
from windlass.cli.tables import pairs
from windlass.cli.text import approximate_duration, timestamp
from windlass.cli.workflows.contexts import range_of
from windlass.cli.workflows.drawing import COLOURS, SYMBOLS
from windlass.cli.workflows.lookup import FoundWorkflow
from windlass.workflow import words
from windlass.workflow.artifact_gc import CONDITION
from windlass.workflow.node import NodeStatus, pod_name

MOST_LINES = 200
"""Maximum number of nodes that the tree lists."""


def seconds_of(found: Mapping[str, Any], now: float) -> float:
    """Return how long a workflow ran, up to now."""
    started, ended = found.get("startedAt"), found.get("finishedAt")
    if not started:
        return 0.0
    return max(0.0, (timestamp(ended) if ended else now) - timestamp(started))


def print_workflow(invocation: Invocation, found: FoundWorkflow) -> None:
    """Print the workflow, its parameters and outputs, and its nodes."""
    status, out = found.status, invocation.out
    rows = [("Name", found.name), ("Namespace", found.namespace), ("Kind", found.kind.kind)]
    rows.append(("Status", out.paint(found.state, COLOURS.get(found.phase, ""))))
    if found.message:
        rows.append(("Message", found.message))
    told = [one for one in status.get("conditions") or () if one.get("type") == CONDITION]
    rows += [("Deletion", str(one.get("message", ""))) for one in told]
    if status.get("startedAt"):
        rows.append(("Started", str(status["startedAt"])))
    rows.append(("Duration", approximate_duration(seconds_of(status, invocation.clock.now()))))
    rows.append(("Progress", str(status.get("progress", "0/0"))))
    spec = status.get("storedWorkflowTemplateSpec") or found.obj.get("spec") or {}
    for title, owner in (("Parameter", spec.get("arguments")), ("Output", status.get("outputs"))):
        listed = (owner or {}).get("parameters") or ()
        rows += [(f"{title} {one.get('name')}", str(one.get("value", ""))) for one in listed]
    out.write(pairs(rows))
    out.line()
    lines = list(tree(found.nodes, found.name))
    for indent, node in lines[:MOST_LINES]:
        out.line(_line(invocation, found, indent, node))
    if len(lines) > MOST_LINES:
        out.line(f"… {len(lines) - MOST_LINES} more nodes: windlass workflow show {found.name} -o json")
    if found.phase in (words.FAILED, words.ERROR):
        own = invocation.namespace_flag(found.namespace)
        out.line(f"to run again what failed, and keep the rest: windlass workflow retry {found.name}{own}")


def tree(nodes: Mapping[str, NodeStatus], root: str) -> Iterator[tuple[str, NodeStatus]]:
    """Yield the nodes with their indents: what is inside another one below it."""
    inside: dict[str, list[NodeStatus]] = {}
    owners = _owners(nodes)
    for node in nodes.values():
        if node.type != words.STEP_GROUP and node.id != root:
            inside.setdefault(owners.get(node.id) or node.boundary_id or root, []).append(node)
    ranks = _ranks(nodes)
    stack: list[tuple[str, NodeStatus]] = [("", nodes[root])] if root in nodes else []
    while stack:
        indent, node = stack.pop()
        yield indent, node
        below = sorted(
            inside.get(node.id, ()), key=lambda one: (ranks.get(one.id, 0), one.started_at or "~", one.name)
        )
        plain = indent.replace("├─ ", "│  ").replace("└─ ", "   ")
        last = len(below) - 1
        stack += [
            (plain + ("└─ " if at == last else "├─ "), one) for at, one in reversed(list(enumerate(below)))
        ]


def _owners(nodes: Mapping[str, NodeStatus]) -> dict[str, str]:
    """Return attempt → its node with retries, and iteration → its loop. Tasks after a loop are no iterations."""
    found: dict[str, str] = {}
    for node in nodes.values():
        for child in node.children if node.type in (words.RETRY, words.TASK_GROUP) else ():
            inner = nodes.get(child)
            if inner is None:
                continue
            attempt = node.type == words.RETRY and (inner.node_flag or {}).get("retried")
            iteration = node.type == words.TASK_GROUP and inner.name.startswith(f"{node.name}(")
            if attempt or iteration:
                found[child] = node.id
    return found


def _ranks(nodes: Mapping[str, NodeStatus]) -> dict[str, int]:
    """Return the position of each node: the number of nodes on the longest way to it.

    Times alone would show a node that ran again behind those that follow it.
    """
    before = Counter(child for node in nodes.values() for child in node.children)
    ready = [node.id for node in nodes.values() if not before[node.id]]
    ranks = dict.fromkeys(ready, 0)
    while ready:
        current = ready.pop()
        for child in nodes[current].children:
            ranks[child] = max(ranks.get(child, 0), ranks[current] + 1)
            before[child] -= 1
            if not before[child] and child in nodes:
                ready.append(child)
    return ranks


def _line(invocation: Invocation, found: FoundWorkflow, indent: str, node: NodeStatus) -> str:
    symbol = invocation.out.paint(SYMBOLS.get(node.phase, "?"), COLOURS.get(node.phase, ""))
    parts = [f"{indent}{symbol} {node.display_name}"]
    if node.type == words.POD and node.managed_object is None:
        parts.append(invocation.out.paint(pod_name(found.name, node), "dim"))
    elif node.managed_object is not None:
        parts.append(f"{node.managed_object.get('kind')}/{node.managed_object.get('name')}")
    if node.started_at and node.type != words.SKIPPED_NODE:
        end = timestamp(node.finished_at) if node.finished_at else invocation.clock.now()
        parts.append(approximate_duration(max(0.0, end - timestamp(node.started_at))))
    if context := range_of(node):
        parts.append(context)
    if node.message:
        parts.append(found.named(node.message.splitlines()[0]))
    return "  ".join(parts)
