"""kube-scheduler's ``ImageLocality``: preference for nodes that already have the pod's images.

The bytes of an image on the node are multiplied by the part of all nodes that have it,
so that the first nodes with an image do not attract all pods. The sum is scaled between
23 MiB and 1000 MiB per container: ⌊100·(sum − 23 MiB)/(1000 MiB·containers − 23 MiB)⌋,
from 0 to 100. Init containers count. kube-scheduler uses the size on the first node it
saw with the image; here each node's own size counts.
"""

from __future__ import annotations

import numpy as np

from windlass.plugins.dialects import VOLCANO
from windlass.spi.nodes import BoolArray, FloatArray, IntArray, NodeView
from windlass.spi.objects import Needs

LEAST = 23 << 20
"""Minimum in bytes; a smaller sum has a score of 0."""
MOST_PER_CONTAINER = 1000 << 20


class ImageLocality:
    name = "imagelocality"
    dialects = VOLCANO
    reads_images = True

    def __init__(self, weight: float = 1.0) -> None:
        self.weight = weight

    def has_preference(self, number: int, needs: Needs, nodes: NodeView) -> bool:
        return bool(needs.images) and bool((_spread_bytes(needs, nodes) > LEAST).any())

    def relative(self, number: int, needs: Needs, nodes: NodeView, candidates: BoolArray) -> FloatArray:
        if not needs.images:
            return np.zeros(nodes.size)
        most = MOST_PER_CONTAINER * len(needs.images)
        amount = np.clip(_spread_bytes(needs, nodes), LEAST, most)
        return (100 * (amount - LEAST) // (most - LEAST)).astype(np.float64)


def _spread_bytes(needs: Needs, nodes: NodeView) -> IntArray:
    """Return by node Σ over containers of ⌊size·carriers/nodes⌋."""
    images = nodes.images()
    total: IntArray = np.zeros(nodes.size, dtype=np.int64)
    for name in needs.images:
        carriers = images.carriers(name)
        if carriers:
            total += (images.sizes(name) * (carriers / images.nodes)).astype(np.int64)
    return total
