"""Fragmentation of idle GPUs by product, for ``windlass gpu``.

The figure is the part of a product's idle GPUs that is not on entirely idle nodes: no
job that needs whole nodes can use it. It depends on nodes and pods alone, unlike the
stranded GPUs of ``windlass node ls``, which also depend on the kinds of pods.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from windlass.cli.invocation import Invocation
from windlass.cli.nodes.device_table import DeviceRow
from windlass.cli.output import wide_tables

WHOLE = 1000
HEADER = ("PRODUCT", "NODES", "GPUS", "IDLE", "IDLE NODES", "LARGEST", "FRAGMENTED")


@dataclass(slots=True)
class Fragmentation:
    """Idle GPUs of one product, in thousandths of GPUs.

    ``idle_nodes``: nodes with idle GPUs only, and ``idle_there`` the sum of these.
    ``largest``: maximum number of entirely idle GPUs on one node.
    """

    product: str
    nodes: int = 0
    gpus: int = 0
    idle: int = 0
    idle_nodes: int = 0
    idle_there: int = 0
    largest: int = 0

    @property
    def fragmented(self) -> float:
        """Part of the idle GPUs that is not on entirely idle nodes, from 0 to 1."""
        return (self.idle - self.idle_there) / self.idle if self.idle else 0.0

    @property
    def record(self) -> dict[str, Any]:
        return {
            "product": self.product,
            "nodes": self.nodes,
            "gpus": self.gpus,
            "idleGpus": self.idle / WHOLE,
            "idleNodes": self.idle_nodes,
            "largestIdle": self.largest,
            "fragmentedGpus": (self.idle - self.idle_there) / WHOLE,
            "fragmentation": round(self.fragmented, 3),
        }


def by_product(rows: Iterable[DeviceRow], closed: Iterable[str] = ()) -> list[Fragmentation]:
    """Return the figures by product, by name.

    ``closed``: nodes that take no new pods. Their GPUs and those that are not healthy
    do not count.
    """
    excluded = frozenset(closed)
    by_node: dict[tuple[str, str], list[int]] = {}
    for row in rows:
        if row.node not in excluded and row.device.healthy:
            product = row.device.model or row.device.resource
            by_node.setdefault((product, row.node), []).append(_idle_milli(row))
    found: dict[str, Fragmentation] = {}
    for (product, _), idle in sorted(by_node.items()):
        figures = found.setdefault(product, Fragmentation(product))
        figures.nodes += 1
        figures.gpus += len(idle)
        figures.idle += sum(idle)
        figures.largest = max(figures.largest, idle.count(WHOLE))
        if idle.count(WHOLE) == len(idle):
            figures.idle_nodes += 1
            figures.idle_there += sum(idle)
    return list(found.values())


def _idle_milli(row: DeviceRow) -> int:
    if not row.holdings and not row.slices:
        return WHOLE
    if not row.device.mig:
        return row.free_milli
    held = {(h.share.profile, h.share.start) for h in row.holdings if h.share.profile}
    if not held:
        return 0 if row.holdings else WHOLE
    sizes = sum(size for profile, start, size in row.slices if (profile, start) in held)
    return max(0, WHOLE - sizes * WHOLE // max(8, sizes))


def show(invocation: Invocation, figures: Iterable[Fragmentation]) -> None:
    """Print the table after an empty line; nothing if no node has several GPUs of a product."""
    shown = [one for one in figures if one.gpus > one.nodes]
    if not shown:
        return
    lines = [
        [
            one.product,
            str(one.nodes),
            str(one.gpus),
            f"{one.idle / WHOLE:g}",
            str(one.idle_nodes),
            str(one.largest),
            f"{one.fragmented:.0%}" if one.idle else "-",
        ]
        for one in shown
    ]
    invocation.out.line()
    wide_tables.show(
        invocation,
        HEADER,
        lines,
        limits=(12, *[0] * (len(HEADER) - 1)),
        optional=("NODES", "LARGEST", "IDLE NODES", "GPUS"),
        right=HEADER[1:],
    )
