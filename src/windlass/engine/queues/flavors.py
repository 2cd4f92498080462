"""Flavors: quota per device model, such as ``nvidia.com/gpu@H100`` in a queue.

The model of a node is its label ``<resource>.product``. A name matches the model of
equal name, or a model that has it as one of its parts between dashes (``H100`` matches
``NVIDIA-H100-80GB-HBM3``). Case is ignored. The model that a task holds is known when
it is placed. It then counts under every matching name, in addition to the plain
resource. A pending task requests every model that its node selector allows. Sums by
model are kept only while some queue names one.

Two things close the nodes of a model to a group. Its queues hold as many as they may
(``capability``, or what a plugin makes of it). Or the free amount of the model is no
more than the unused guarantees of other queues.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from windlass.engine.domain_bound import DomainBound
from windlass.engine.feasibility.task_class import TaskClass
from windlass.engine.groups.entries import GroupEntry, NextTasks
from windlass.engine.nodes.table import NodeTable
from windlass.engine.queues.tree import QueueEntry
from windlass.spi.nodes import BoolArray, NodeView
from windlass.spi.plugins import FLAVOR, flavor_matches, flavor_of, unfilled_guarantee

PRODUCT = ".product"
UNLIMITED_UNITS = 1 << 62


def held_flavors(cls: TaskClass, labels: Mapping[str, str], names: Iterable[str]) -> dict[str, int]:
    """Return what a task of the class counts for by model, on a node with these labels."""
    return {
        name: units
        for name in names
        if (units := cls.request.get(flavor_of(name)[0], 0))
        and flavor_matches(name, labels.get(flavor_of(name)[0] + PRODUCT, ""))
    }


def eligible_flavors(cls: TaskClass, names: Iterable[str]) -> dict[str, int]:
    """Return the models that a task of the class may get: all that its node selector allows."""
    selector = dict(cls.needs.node_selector)
    flavors = {}
    for name in names:
        plain, _ = flavor_of(name)
        units = cls.request.get(plain, 0)
        model = selector.get(plain + PRODUCT)
        if units and (model is None or flavor_matches(name, model)):
            flavors[name] = units
    return flavors


def required_flavors(cls: TaskClass, names: Iterable[str]) -> dict[str, int]:
    """Return the models that the node selector of a task requires."""
    selector = dict(cls.needs.node_selector)
    return {
        name: units
        for name, units in eligible_flavors(cls, names).items()
        if flavor_of(name)[0] + PRODUCT in selector
    }


def with_required_flavors(
    step: NextTasks, request: Mapping[str, int], names: Sequence[str]
) -> Mapping[str, int]:
    """Return ``request``, the sum of a step, with the models that its tasks require."""
    if not names:
        return request
    flavors: dict[str, int] = {}
    remaining = step.members
    for batch in step.batches:
        n = min(len(batch.entries), remaining)
        remaining -= n
        for name, units in required_flavors(batch.cls, names).items():
            flavors[name] = flavors.get(name, 0) + units * n
    return {**request, **flavors} if flavors else request


def total_of_model(table: NodeTable, name: str) -> int:
    """Return the amount of a model on ready nodes."""
    plain, _ = flavor_of(name)
    flavors = 0
    for row in np.flatnonzero(table.live & table.ready).tolist():
        node = table.nodes[row]
        if node is not None and flavor_matches(name, node.labels.get(plain + PRODUCT, "")):
            flavors += node.allocatable.get(plain, 0)
    return flavors


@dataclass(frozen=True, slots=True)
class GuaranteedModel:
    """Model of which other queues have unused guarantees.

    ``units``: request of one task.
    ``path``: queues of the group; their own guarantees are available to it.
    """

    name: str
    units: int
    path: tuple[QueueEntry, ...]


class FlavorBound(DomainBound):
    """Closes nodes of models that are full for the group, or guaranteed to other queues.

    It acts as a domain plugin while the tasks of one group are placed.
    """

    name = "flavors"

    def __init__(
        self,
        limits: list[tuple[QueueEntry, str, int]],
        guaranteed: list[GuaranteedModel],
        nodes: NodeView,
        *,
        future: bool,
    ) -> None:
        self._limits = limits
        self._guaranteed = guaranteed
        self._nodes = nodes
        self.future = future
        """True if releases count as done."""

    def verdict(self, number: int, nodes: NodeView) -> BoolArray | None:
        closed = [
            name for queue, name, units in self._limits if _capacity(queue, name, future=self.future) < units
        ]
        closed += [
            guaranteed.name for guaranteed in self._guaranteed if self._free(guaranteed) < guaranteed.units
        ]
        mask: BoolArray | None = None
        for name in dict.fromkeys(closed):
            allowed = ~of_model(name, nodes)
            mask = allowed if mask is None else mask & allowed
        return mask

    def _free(self, guaranteed: GuaranteedModel) -> int:
        """Return what is free of a model for this group."""
        free = free_of_model(guaranteed.name, self._nodes, future=self.future)
        return free - sum(
            unfilled_guarantee(top, guaranteed.name, guaranteed.path, guaranteed.units)
            for top in guaranteed.path[-1].siblings
        )


def of_model(name: str, nodes: NodeView) -> BoolArray:
    """Return which nodes have devices of the model."""
    key = flavor_of(name)[0] + PRODUCT
    matching = np.array([flavor_matches(name, value) for value in nodes.label_values(key)], dtype=np.bool_)
    return matching[nodes.label(key)]


def free_of_model(name: str, nodes: NodeView, *, future: bool) -> int:
    """Return what is free of a model on ready nodes.

    ``future``: after all releases and nominations.
    """
    plain, _ = flavor_of(name)
    free = nodes.future_available(plain) if future else nodes.available(plain)
    return int(free[of_model(name, nodes) & nodes.ready() & (free > 0)].sum())


def flavor_bound_of(group: GroupEntry, cls: TaskClass, *, future: bool) -> FlavorBound | None:
    """Return the bounds by the group's queues and by guarantees of others.

    ``None`` if there are none.
    """
    if group.queue is None or not group.queue.tree.flavors:
        return None
    path, tree = group.queue.path, group.queue.tree
    limits = [
        (queue, name, units)
        for queue in path
        for name in limited_models(queue)
        if (units := cls.request.get(flavor_of(name)[0], 0))
    ]
    guaranteed = [
        GuaranteedModel(name, units, path)
        for name in tree.entitled_flavors
        if (units := cls.request.get(flavor_of(name)[0], 0))
        and any(unfilled_guarantee(top, name, path, UNLIMITED_UNITS) for top in path[-1].siblings)
    ]
    return FlavorBound(limits, guaranteed, tree.nodes, future=future) if limits or guaranteed else None


def limited_models(queue: QueueEntry) -> Iterable[str]:
    """Return the models with a limit in a queue."""
    return {*queue.flavored, *(name for name in queue.share.real_capability if FLAVOR in name)}


def _capacity(queue: QueueEntry, name: str, *, future: bool) -> int:
    releasing, nominated = queue.releasing.get(name, 0), queue.nominated.get(name, 0)
    held = queue.allocated.get(name, 0)
    held += nominated - releasing if future else max(nominated - releasing, 0)
    limits = (
        amounts[name] for amounts in (queue.spec.capability, queue.share.real_capability) if name in amounts
    )
    return min(limits, default=held) - held


def labels_at(table: NodeTable, row: int) -> Mapping[str, str]:
    """Return the labels of the node of a row."""
    node = table.nodes[row]
    return node.labels if node is not None else {}
