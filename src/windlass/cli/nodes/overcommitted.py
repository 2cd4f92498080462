"""Nodes with pods that hold more than the node has.

A node can be recreated with less, or lose its device plugin. The API server allows that
and no kubelet reports it. Nothing new is placed there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from windlass.api import quantities
from windlass.api.devices import node_annotation
from windlass.api.devices.assignment_annotations import RESERVATIONS_KAI
from windlass.api.devices.request import WHOLE
from windlass.cli import resources
from windlass.cli.text import join_words, resource_text

Object = Mapping[str, Any]


def excess(node: Object, pods: Sequence[Object]) -> str:
    """Return ``2 GPUs and 4 CPUs more than it has``; empty if the node has enough.

    Resource claims are not counted. Devices are not counted on nodes with reservation
    pods of KAI, as those pods and the pods that share their devices would both count.
    """
    annotations = (node.get("metadata") or {}).get("annotations") or {}
    have = node_annotation.amounts_with_unhealthy(annotations, resources.allocatable(node), unit=WHOLE)
    used = resources.total(resources.effective_request(pod, node) for pod in pods)
    by_kai = any(pod["metadata"].get("namespace") == RESERVATIONS_KAI for pod in pods)
    over = {
        name: used.get(name, 0) - have.get(name, 0) - _dynamic_mig(name, node)
        for name in _checked_resources(node)
        if not (by_kai and quantities.is_device(name))
    }
    amounts = (
        resource_text(name, quantities.from_units(name, units)) for name, units in over.items() if units > 0
    )
    return f"{text} more than it has" if (text := join_words(amounts)) else ""


def _checked_resources(node: Object) -> Iterator[str]:
    """Yield device resources that the kubelet lists (even with amount 0), CPU and memory."""
    listed = (node.get("status") or {}).get("allocatable") or {}
    yield from (name for name in listed if quantities.is_device(name))
    yield from (name for name in ("cpu", "memory") if name in listed)


def _dynamic_mig(name: str, node: Object) -> int:
    return resources.dynamic_mig_milli(node) if quantities.is_device(name) else 0


def warning(name: str, over: str) -> str:
    """Return the warning for a node; ``over`` is the result of :func:`excess`."""
    return (
        f"pods on {name} hold {over}: the node was recreated with less, or its device plugin is not running; "
        f"no new pod is placed there (to move its pods: windlass node drain {name})"
    )
