"""Graph of a workflow for pictures: tasks without the nodes that only hold others, in layers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from windlass.workflow import words
from windlass.workflow.node import NodeStatus
from windlass.workflow.results import task_of

_HIDDEN = frozenset({words.STEP_GROUP, words.STEPS, words.DAG})


@dataclass(slots=True)
class GraphNode:
    """Box of a picture. ``phases``: of the nodes that it stands for, one for each item of a loop.

    ``attempts``: most attempts of one of them; 0 if none of them ran.
    """

    key: str
    label: str
    phases: list[str] = field(default_factory=list)
    after: list[str] = field(default_factory=list)
    attempts: int = 0

    @property
    def phase(self) -> str:
        """Phase of the whole: the worst that has ended badly, or what is still to come."""
        for phase in (words.ERROR, words.FAILED, words.RUNNING, words.PENDING):
            if phase in self.phases:
                return phase
        return words.SUCCEEDED if words.SUCCEEDED in self.phases else (self.phases or [words.PENDING])[0]

    @property
    def text(self) -> str:
        label = self.label
        if len(self.phases) > 1:
            done = sum(phase == words.SUCCEEDED for phase in self.phases)
            label = f"{label} {done}/{len(self.phases)}"
        notes = [self.phase] if self.phase in (words.SKIPPED, words.OMITTED) else []
        notes += [f"{self.attempts} attempts"] if self.attempts > 1 else []
        return f"{label} ({', '.join(notes)})" if notes else label


def graph_of(nodes: Mapping[str, NodeStatus]) -> dict[str, GraphNode]:
    """Return the boxes and what follows each. Items of a loop are one box."""
    boxes: dict[str, GraphNode] = {}
    box_of: dict[str, str] = {}
    attempts = {child for node in nodes.values() if node.type == words.RETRY for child in node.children}
    attempts = {id_ for id_ in attempts if (nodes[id_].node_flag or {}).get("retried")}
    for node in nodes.values():
        if node.type in _HIDDEN or node.type == words.TASK_GROUP or node.id in attempts:
            continue
        label = task_of(node.display_name)
        inner = f"{node.boundary_id}/{node.name.removesuffix(node.display_name)}{label}"
        key = node.id if label == node.display_name else inner
        box = boxes.setdefault(key, GraphNode(key, label))
        box.phases.append(node.phase)
        box.attempts = max(box.attempts, _attempts(node, attempts))
        box_of[node.id] = key
    for node in nodes.values():
        source = box_of.get(node.id)
        if source is None and node.id in attempts:
            source = next(
                (box_of.get(other.id) for other in nodes.values() if node.id in other.children), None
            )
        if source is None:
            continue
        for target in _next_boxes(node, nodes, box_of, attempts):
            if target != source and target not in boxes[source].after:
                boxes[source].after.append(target)
    return boxes


def _attempts(node: NodeStatus, attempts: set[str]) -> int:
    """Return how often a node was tried; 0 if it did not run."""
    if node.type == words.RETRY:
        return sum(child in attempts for child in node.children)
    return 0 if node.phase in (words.SKIPPED, words.OMITTED, words.PENDING) else 1


def records_of(boxes: Mapping[str, GraphNode]) -> list[dict[str, Any]]:
    """Return the boxes as records: label, phase, attempts, and the labels of what follows."""
    return [
        {
            "name": box.label,
            "phase": box.phase,
            "nodes": len(box.phases),
            "attempts": box.attempts,
            "next": [boxes[key].label for key in box.after],
        }
        for box in boxes.values()
    ]


def _next_boxes(
    node: NodeStatus, nodes: Mapping[str, NodeStatus], box_of: Mapping[str, str], attempts: set[str]
) -> list[str]:
    """Return the boxes that follow a node, through nodes without a box."""
    found: list[str] = []
    seen: set[str] = set()
    stack = list(node.children)
    while stack:
        id_ = stack.pop(0)
        if id_ in seen or id_ not in nodes:
            continue
        seen.add(id_)
        if id_ in box_of:
            found.append(box_of[id_])
        elif id_ not in attempts or node.type == words.RETRY:
            stack += nodes[id_].children
    return found


def layers_of(boxes: Mapping[str, GraphNode]) -> list[list[str]]:
    """Return the boxes by layer: each one below all that it follows, with few crossings."""
    before: dict[str, list[str]] = {key: [] for key in boxes}
    for box in boxes.values():
        for target in box.after:
            before[target].append(box.key)
    level: dict[str, int] = {}
    pending = list(boxes)
    while pending:
        ready = [key for key in pending if all(other in level for other in before[key])]
        if not ready:  # a cycle cannot occur in a graph that ran
            ready = pending[:1]
        for key in ready:
            level[key] = max((level[other] + 1 for other in before[key] if other in level), default=0)
        pending = [key for key in pending if key not in level]
    layers: list[list[str]] = [[] for _ in range(max(level.values(), default=-1) + 1)]
    for key, number in level.items():
        layers[number].append(key)
    for number in range(1, len(layers)):
        place = {key: at for at, key in enumerate(layers[number - 1])}

        def middle(key: str, place: dict[str, int] = place) -> float:
            above = [place[other] for other in before[key] if other in place]
            return sum(above) / len(above) if above else 0.0

        layers[number].sort(key=middle)
    return layers
