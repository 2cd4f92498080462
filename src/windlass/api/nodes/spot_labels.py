"""Labels and taints by which clouds mark nodes that they may take back (spot capacity)."""

from __future__ import annotations

from collections.abc import Mapping

SPOT_LABELS: Mapping[str, tuple[str, ...]] = {
    "karpenter.sh/capacity-type": ("spot",),
    "cloud.google.com/gke-spot": ("true",),
    "cloud.google.com/gke-preemptible": ("true",),
    "eks.amazonaws.com/capacityType": ("SPOT",),
    "kubernetes.azure.com/scalesetpriority": ("spot",),
}
"""Label → values that mean spot capacity."""
SPOT_TAINTS = (
    ("cloud.google.com/gke-spot", "true"),
    ("kubernetes.azure.com/scalesetpriority", "spot"),
)
"""Taints of spot nodes: key, value."""


def is_spot(labels: Mapping[str, str]) -> bool:
    """Return whether a node with these labels is spot capacity."""
    return any(labels.get(key) in values for key, values in SPOT_LABELS.items())
