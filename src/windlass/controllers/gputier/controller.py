"""Controller of the node label ``gpu-tier``, derived from the product label.

The kubelet rejects a pod if its node lacks a label of the pod's node selector, so the
scheduler's knowledge of the tier is not enough. An existing label is never changed, and
unknown products get none. Keys are node names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from windlass.api.devices.accelerator_table import TIER_LABEL, tier_of
from windlass.api.resources import NODES
from windlass.api.views import NodeObject, decode_node
from windlass.client.informers import Informer
from windlass.controllers.effects import NOTHING, Effects, Patch
from windlass.controllers.runner import Informers, WatchedCollection

PRODUCT = ".product"


def reconcile(name: str, labels: Mapping[str, str]) -> Effects:
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

    def __init__(self, informers: Informers) -> None:
        self._nodes: Informer[NodeObject] = informers.informer(NODES, decode=decode_node)

    def watches(self) -> Iterable[WatchedCollection]:
        return (
            WatchedCollection(
                self._nodes, lambda node: [node.name], lambda old, new: old.labels != new.labels
            ),
        )

    def initial_keys(self) -> Iterable[str]:
        return ()

    async def reconcile(self, key: str) -> Effects:
        node = self._nodes.items.get(key)
        return reconcile(key, node.labels) if node is not None else NOTHING
