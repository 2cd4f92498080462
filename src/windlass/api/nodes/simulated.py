"""Node objects without a machine behind them, for trying policies. Pure; the agent plays their pods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from windlass.api import annotations as names

AGENT_SUFFIX = "+windlass"
KUBELET_VERSION = f"v1.36.0{AGENT_SUFFIX}"
"""Version that agents and simulated nodes report."""
MAX_PODS = 250
_NODE_INFO = {
    "architecture": "amd64",
    "bootID": "",
    "containerRuntimeVersion": "windlass-simulated://1",
    "kernelVersion": "",
    "kubeProxyVersion": "",
    "kubeletVersion": KUBELET_VERSION,
    "machineID": "",
    "operatingSystem": "linux",
    "osImage": "simulated",
    "systemUUID": "",
}


def node_object(
    name: str,
    *,
    cpu: str = "32",
    memory: str = "256Gi",
    gpus: int = 0,
    product: str = "Simulated-GPU",
    gpu_memory_mib: int = 81920,
    labels: Mapping[str, str] | None = None,
    taints: Sequence[Mapping[str, str]] = (),
    resources: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """A simulated node, ready to be created. ``resources`` adds or replaces entries of its capacity.

    ``labels`` win over the usual ones. The status is taken at creation by the embedded server only when
    written through the status subresource as well: create it, then patch ``status``.
    """
    capacity: dict[str, str] = {
        "cpu": str(cpu),
        "memory": str(memory),
        "ephemeral-storage": "1Ti",
        "pods": str(MAX_PODS),
    }
    found = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/os": "linux",
        names.SIMULATED: "true",
    }
    if gpus:
        capacity["nvidia.com/gpu"] = str(gpus)
        found |= {
            "nvidia.com/gpu.present": "true",
            "nvidia.com/gpu.product": product.replace(" ", "-"),
            "nvidia.com/gpu.count": str(gpus),
            "nvidia.com/gpu.memory": str(gpu_memory_mib),
        }
    capacity.update(resources or {})
    spec: dict[str, Any] = {}
    if taints:
        spec["taints"] = [dict(taint) for taint in taints]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {**found, **(labels or {})}},
        "spec": spec,
        "status": {
            "capacity": capacity,
            "allocatable": dict(capacity),
            "conditions": node_conditions(),
            "nodeInfo": dict(_NODE_INFO),
        },
    }


def node_conditions(moment: str | None = None) -> list[dict[str, str]]:
    """The conditions of a node that is well; ``moment`` (RFC 3339) is heartbeat and transition time."""
    good = (
        ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
        ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
        ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
        ("Ready", "True", "KubeletReady", "the windlass agent is posting ready status"),
    )
    conditions = []
    for kind, status, reason, message in good:
        record = {"type": kind, "status": status, "reason": reason, "message": message}
        if moment is not None:
            record |= {"lastHeartbeatTime": moment, "lastTransitionTime": moment}
        conditions.append(record)
    return conditions
