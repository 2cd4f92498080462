"""Network presets of pods: variables of NCCL, and nodes of one RDMA island if possible.

A pod names its preset in the annotation ``windlass.dev/network-preset``. Variables and
constraints that its author has set are left unchanged.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from windlass.api import annotations as names

RDMA = "rdma"
PRESETS = (RDMA,)
NCCL_VARIABLES = {
    "NCCL_IB_DISABLE": "0",
    "NCCL_SOCKET_IFNAME": "ib0",
    "NCCL_DEBUG": "INFO",
    "NCCL_ALGO": "Ring,Tree",
}
"""Variables of the preset ``rdma``, in the order in which they are added."""
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_ISLAND_TERM = {
    "weight": 100,
    "preference": {
        "matchExpressions": [
            {"key": names.RDMA_CAPABLE, "operator": "Exists"},
            {"key": names.RDMA_CAPABLE, "operator": "NotIn", "values": ["false"]},
        ]
    },
}
"""Preference for nodes with RDMA, also where no island holds the whole gang."""
_TOPOLOGY = (
    *(names.PODSET_REQUIRED, names.PODSET_PREFERRED, names.PODSET_UNCONSTRAINED),
    *(names.PODSET_SLICE_REQUIRED, names.TOPOLOGY_KAI, names.SEGMENT_SIZE_KAI),
)
"""Annotations with which the author of a pod states a topology constraint."""


def preset_of(metadata: Mapping[str, Any]) -> str:
    """Return the network preset that the metadata of a pod or pod template names."""
    return (metadata.get("annotations") or {}).get(names.NETWORK_PRESET, "")


def apply_rdma(pod: dict[str, Any], defined: Mapping[str, Collection[str]] | None = None) -> None:
    """Add the preset ``rdma`` to a pod or pod template, in place. Idempotent.

    ``defined``: names of variables that each container has from elsewhere, as from a
        ConfigMap.
    """
    spec = pod.get("spec") or {}
    for container in spec.get("containers") or ():
        own = {variable.get("name") for variable in container.get("env") or ()}
        own.update((defined or {}).get(container.get("name", ""), ()))
        added = [{"name": name, "value": text} for name, text in NCCL_VARIABLES.items() if name not in own]
        if added:
            container["env"] = [*(container.get("env") or ()), *added]
    metadata = pod.setdefault("metadata", {})
    annotations = metadata.get("annotations") or {}
    if not any(name in annotations for name in _TOPOLOGY):
        metadata["annotations"] = {**annotations, names.PODSET_PREFERRED: names.RDMA_CAPABLE}
    _prefer_rdma(spec)


def _prefer_rdma(spec: dict[str, Any]) -> None:
    affinity = spec.get("affinity") or {}
    node_affinity = affinity.get("nodeAffinity") or {}
    terms = node_affinity.get(_PREFERRED) or []
    if _ISLAND_TERM not in terms:
        spec["affinity"] = {
            **affinity,
            "nodeAffinity": {**node_affinity, _PREFERRED: [*terms, _ISLAND_TERM]},
        }


def island_of(labels: Mapping[str, str]) -> str:
    """Return the RDMA island of a node with these labels; ``""`` for a node without RDMA."""
    value = labels.get(names.RDMA_CAPABLE, "")
    return "" if value == "false" else value
