"""Labels nodes with what their accelerators are good for: ``gpu-tier``, from the product label.

A kubelet refuses a pod whose node selector its node does not carry, so it is not enough that the scheduler knows
the tier. A label that is there is never changed, and none is set for a product that the table does not know.
Keys are names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from windlass.api.devices.accelerator_table import TIER_LABEL, tier_of
from windlass.api.resources import NODES, Resource
from windlass.api.views import NodeObject, decode_node
from windlass.client.informers import Informer
from windlass.controllers.effects import NOTHING, Effects, Patch
from windlass.controllers.runner import WatchedCollection

PRODUCT = ".product"


class GpuTierInformers(Protocol):
    def informer(self, resource: Resource, *, decode: Any = dict) -> Informer[Any]: ...


def step(name: str, labels: Mapping[str, str]) -> Effects:
    """Label a node that carries a known product and no tier. Pure."""
    if TIER_LABEL in labels:
        return NOTHING
    for key in sorted(labels):
        if key.endswith(PRODUCT) and (tier := tier_of(labels[key])):
            return Effects(stages=((Patch(NODES, name, {"metadata": {"labels": {TIER_LABEL: tier}}}),),))
    return NOTHING


class GpuTierController:
    name = "gputier"
    pause_seconds = 1.0

    def __init__(self, informers: GpuTierInformers) -> None:
        self._nodes: Informer[NodeObject] = informers.informer(NODES, decode=decode_node)

    def watches(self) -> Iterable[WatchedCollection]:
        return (
            WatchedCollection(
                self._nodes, lambda node: [node.name], lambda old, new: old.labels != new.labels
            ),
        )

    def first_keys(self) -> Iterable[str]:
        return ()

    async def look(self, key: str) -> Effects:
        node = self._nodes.items.get(key)
        return step(key, node.labels) if node is not None else NOTHING
