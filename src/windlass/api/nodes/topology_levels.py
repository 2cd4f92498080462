"""Words for levels of a topology in job specs, and the labels of nodes that they stand for."""

from __future__ import annotations

HOSTNAME = "kubernetes.io/hostname"
LEVELS = {
    "sameNode": HOSTNAME,
    "sameIsland": "nvidia.com/gpu.clique",
    "sameZone": "topology.kubernetes.io/zone",
}
