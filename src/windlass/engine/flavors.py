"""Quota per device model: a queue's ``capability`` may name ``nvidia.com/gpu@H100``.

The model of a node is its label ``<resource>.product``. A name matches a model that is called so, or of
which it is one of the parts between dashes (``H100`` matches ``NVIDIA-H100-80GB-HBM3``), whatever the
case. Which model a task will hold is known when it is placed: then it counts under every name that
matches, beside the plain resource. Books by model are kept only while some queue names one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import numpy as np

from windlass.engine.classes import TaskClass
from windlass.engine.groups import GroupEntry
from windlass.engine.queues import QueueEntry
from windlass.engine.table import NodeTable
from windlass.spi.nodes import BoolArray, NodeView
from windlass.spi.objects import Needs
from windlass.spi.plugins import flavor_matches, flavor_of

PRODUCT = ".product"


def flavored(cls: TaskClass, labels: Mapping[str, str], names: Iterable[str]) -> dict[str, int]:
    """What a task of the class counts for by model, on a node with these labels."""
    return {
        name: units
        for name in names
        if (units := cls.request.get(flavor_of(name)[0], 0))
        and flavor_matches(name, labels.get(flavor_of(name)[0] + PRODUCT, ""))
    }


class FlavorBound:
    """Closes nodes of models of which the group's queues may hold no more: a domain policy for as long
    as one group's tasks are placed."""

    name = "flavors"

    def __init__(self, limits: list[tuple[QueueEntry, str, int]], *, future: bool) -> None:
        self._limits = limits
        self._future = future

    def attach(self, nodes: NodeView) -> None:
        """Everything is in the queues' sums."""

    def learn(self, number: int, needs: Needs, placed: object) -> None:
        """See :meth:`attach`."""

    def forget(self, number: int) -> None:
        """See :meth:`attach`."""

    def add(self, number: int, row: int, count: int) -> None:
        """See :meth:`attach`."""

    def constrains(self, number: int) -> bool:
        return True

    def listens(self, number: int) -> Collection[int]:
        return ()

    def relabelled(self, placed: object) -> None:
        """See :meth:`attach`."""

    def verdict(self, number: int, nodes: NodeView) -> BoolArray | None:
        mask: BoolArray | None = None
        for queue, name, units in self._limits:
            if _room(queue, name, future=self._future) >= units:
                continue
            key = flavor_of(name)[0] + PRODUCT
            matching = np.array([flavor_matches(name, value) for value in nodes.label_values(key)])
            closed = matching[nodes.label(key)]
            mask = ~closed if mask is None else mask & ~closed
        return mask


def bound_of(group: GroupEntry, cls: TaskClass, *, future: bool) -> FlavorBound | None:
    """What the group's queue and its ancestors say about models; ``None`` if nothing."""
    if group.queue is None:
        return None
    limits = [
        (queue, name, units)
        for queue in group.queue.path
        for name in queue.flavored
        if (units := cls.request.get(flavor_of(name)[0], 0))
    ]
    return FlavorBound(limits, future=future) if limits else None


def _room(queue: QueueEntry, name: str, *, future: bool) -> int:
    leaving, promised = queue.releasing.get(name, 0), queue.promised.get(name, 0)
    held = queue.allocated.get(name, 0)
    held += promised - leaving if future else max(promised - leaving, 0)
    return queue.spec.capability[name] - held


def labels_at(table: NodeTable, row: int) -> Mapping[str, str]:
    """The labels of the node of a row."""
    node = table.nodes[row]
    return node.labels if node is not None else {}
