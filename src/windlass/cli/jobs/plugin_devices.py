"""Devices of device plugins other than GPUs, such as RDMA interfaces, for users.

The kubelet names them in ``allocatedResourcesStatus`` of a container's status, and
Multus names the network device of an attachment in an annotation.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from windlass.api import quantities

_NETWORK_STATUS = "k8s.v1.cni.cncf.io/network-status"


def devices_of(pod: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the device ids of a pod by resource.

    A resource has an empty list if its node reports no devices of it. Attachments of
    Multus are listed by the name of their network.
    """
    found: dict[str, list[str]] = {resource: [] for resource in amounts_of(pod)}
    for status in (pod.get("status") or {}).get("containerStatuses") or ():
        for part in status.get("allocatedResourcesStatus") or ():
            if "/" in part.get("name", "") and not quantities.is_device(part["name"]):
                ids = [unit.get("resourceID", "") for unit in part.get("resources") or ()]
                found.setdefault(part["name"], []).extend(ids)
    for network, device in _attachments(pod):
        found.setdefault(network, []).append(device)
    return found


def amounts_of(pod: Mapping[str, Any]) -> dict[str, int]:
    """Return the extended resources of a pod that are not accelerators, with their amounts."""
    found: dict[str, int] = {}
    for container in (pod.get("spec") or {}).get("containers") or ():
        for resource, amount in ((container.get("resources") or {}).get("limits") or {}).items():
            if "/" in resource and not quantities.is_device(resource) and str(amount).isdecimal():
                found[resource] = found.get(resource, 0) + int(amount)
    return found


def _attachments(pod: Mapping[str, Any]) -> list[tuple[str, str]]:
    text = ((pod.get("metadata") or {}).get("annotations") or {}).get(_NETWORK_STATUS, "")
    try:
        entries = json.loads(text) if text else []
    except ValueError:
        return []  # written by another program
    found = []
    for entry in entries if isinstance(entries, list) else ():
        info = entry.get("device-info") if isinstance(entry, dict) else None
        pci = info.get("pci") if isinstance(info, dict) else None
        device = pci.get("rdma-device") or pci.get("pci-address") if isinstance(pci, dict) else ""
        if device:
            found.append((f"network {entry.get('name', '')}", str(device)))
    return found


def devices_text(pod: Mapping[str, Any]) -> str:
    """Return the devices of a pod in one line: ``rdma/roce_v2 mlx5_0,mlx5_1``."""
    amounts = amounts_of(pod)
    parts = []
    for resource, ids in devices_of(pod).items():
        unknown = f"{amounts.get(resource, 0)} (its node does not report which)"
        parts.append(f"{resource} {','.join(ids) or unknown}")
    return ", ".join(parts)
