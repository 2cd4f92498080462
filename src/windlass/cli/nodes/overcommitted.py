"""Nodes whose pods hold more than is there: one that was made anew with less, or whose device plug-in is away. The API
server lets that be, no kubelet tells of it, and nothing new goes there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from windlass.api import quantities
from windlass.api.devices.assignment_annotations import RESERVATIONS_KAI
from windlass.cli import resources
from windlass.cli.text import join_words, resource_text

Object = Mapping[str, Any]


def beyond(node: Object, pods: Sequence[Object]) -> str:
    """``2 GPUs and 4 CPUs more than it has``; empty for a node that has what its pods hold. Claims for devices are left
    out, and cards that KAI's reservations and those who share them both count."""
    have = resources.allocatable(node)
    used = resources.total(resources.effective_request(pod, node) for pod in pods)
    by_kai = any(pod["metadata"].get("namespace") == RESERVATIONS_KAI for pod in pods)
    over = {
        name: used.get(name, 0) - have.get(name, 0) - _carved(name, node)
        for name in _looked_at(node)
        if not (by_kai and quantities.is_device(name))
    }
    told = (
        resource_text(name, quantities.from_units(name, units)) for name, units in over.items() if units > 0
    )
    return f"{text} more than it has" if (text := join_words(told)) else ""


def _looked_at(node: Object) -> Iterator[str]:
    """The accelerators that its kubelet tells of, be they none now; CPU and memory."""
    listed = (node.get("status") or {}).get("allocatable") or {}
    yield from (name for name in listed if quantities.is_device(name))
    yield from (name for name in ("cpu", "memory") if name in listed)


def _carved(name: str, node: Object) -> int:
    return resources.dynamic_mig_milli(node) if quantities.is_device(name) else 0


def warning(name: str, over: str) -> str:
    """``over``: as :func:`beyond` says it."""
    return (
        f"pods on {name} hold {over}: it was made anew with less, or its device plug-in is away; "
        f"nothing new goes there (windlass node drain {name} has its pods go elsewhere)"
    )
