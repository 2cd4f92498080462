"""The nodes of a simulation: ``60x8`` (sixty nodes of eight GPUs each), ``4xH100:8,2xV100:4``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from windlass.sim.jobs import WHOLE
from windlass.spi.objects import Device, Node

GPU = "nvidia.com/gpu"
PODS = 1 << 20
MAX_DEVICES = MOST_NODES = 1 << 20
"""No cluster has more."""
_SHAPE = re.compile(r"(?P<count>[1-9][0-9]{0,5})x(?:(?P<model>[A-Za-z][\w.-]*):)?(?P<gpus>[0-9]{1,3})")


@dataclass(frozen=True, slots=True)
class NodeShape:
    """``count`` nodes with ``gpus`` devices of one model each. CPU and memory of 0: without limit."""

    count: int
    gpus: int
    model: str = ""
    cpu_milli: int = 0
    memory_bytes: int = 0


def parse(text: str) -> tuple[NodeShape, ...]:
    """Shapes separated by commas, each ``COUNTxGPUS`` or ``COUNTxMODEL:GPUS``. Raises ``ValueError``."""
    found: list[NodeShape] = []
    for part in text.split(","):
        match = _SHAPE.fullmatch(part.strip())
        if match is None:
            raise ValueError(
                f"{part.strip()!r} is not COUNTxGPUS or COUNTxMODEL:GPUS, such as 60x8 or 4xH100:8"
            )
        found.append(NodeShape(int(match["count"]), int(match["gpus"]), match["model"] or ""))
    if sum(s.count for s in found) > MOST_NODES or sum(s.count * s.gpus for s in found) > MAX_DEVICES:
        raise ValueError(
            f"{text!r} is more than the {MOST_NODES} nodes or {MAX_DEVICES} GPUs that a cluster may have"
        )
    return tuple(found)


def make_nodes(shapes: Sequence[NodeShape]) -> list[Node]:
    """The nodes, named ``node-0000`` and on, in the order of the shapes."""
    found: list[Node] = []
    for shape in shapes:
        for _ in range(shape.count):
            allocatable = {
                "cpu": shape.cpu_milli or 1 << 40,
                "memory": shape.memory_bytes or 1 << 50,
                GPU: shape.gpus * WHOLE,
                "pods": PODS,
            }
            cards = tuple(Device(index, GPU, shape.model) for index in range(shape.gpus))
            found.append(Node(f"node-{len(found):04d}", allocatable, devices=cards))
    return found


def gpus_of(node: Node) -> int:
    """Return the number of devices of the node."""
    return node.allocatable.get(GPU, 0) // WHOLE


def capacity(nodes: Sequence[Node]) -> int:
    """Return the number of devices of all nodes."""
    return sum(gpus_of(node) for node in nodes)


def model_of(node: Node) -> str:
    """The model of its devices; empty if they have none."""
    return node.devices[0].model if node.devices else ""
