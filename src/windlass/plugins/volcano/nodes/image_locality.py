"""kube-scheduler's ``ImageLocality``: a node that has the pod's images already is the better one.

The bytes of the images that the node has, each as far as it has spread (of all nodes, the part that has it, so that
the first nodes of an image do not draw everybody), are placed between 23 MiB and 1000 MiB per container:
⌊100·(sum − 23 MiB)/(1000 MiB·containers − 23 MiB)⌋, from 0 to 100. Init containers count. kube-scheduler takes an
image's size from the node that it saw with it first; here each node's own size counts.
"""

from __future__ import annotations

import numpy as np

from windlass.plugins.dialects import VOLCANO
from windlass.spi.nodes import BoolArray, FloatArray, IntArray, NodeView
from windlass.spi.objects import Needs

LEAST = 23 << 20
"""Bytes; what is not more counts for nothing."""
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
        found = np.clip(_spread_bytes(needs, nodes), LEAST, most)
        return (100 * (found - LEAST) // (most - LEAST)).astype(np.float64)


def _spread_bytes(needs: Needs, nodes: NodeView) -> IntArray:
    """Σ over containers of ⌊size·carriers/nodes⌋, per node."""
    images = nodes.images()
    total: IntArray = np.zeros(nodes.size, dtype=np.int64)
    for name in needs.images:
        carriers = images.carriers(name)
        if carriers:
            total += (images.sizes(name) * (carriers / images.nodes)).astype(np.int64)
    return total
