"""Reasons why GPUs of the matching nodes offer no MIG slice of a requested profile."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from windlass.engine.devices.mig import geometry_of
from windlass.engine.feasibility.task_class import TaskClass
from windlass.engine.state.cluster_state import ClusterState
from windlass.spi.devices import DeviceMode
from windlass.spi.objects import Device

MIG = "/mig-"
"""Part of the names of resources that count slices: ``nvidia.com/mig-1g.10gb``."""
_MAX_NAMED = 4


def requested_profiles(cls: TaskClass) -> list[str]:
    """Return the MIG profiles that a class requests, by resource name or as a device."""
    named = [name.partition(MIG)[2] for name, units in cls.node_items if units and MIG in name]
    return list(dict.fromkeys([*named, *(need.profile for need in cls.needs.devices if need.profile)]))


def missing_slices(state: ClusterState, cls: TaskClass, rows: NDArray[np.int64]) -> str:
    """Return a sentence on the GPUs of these rows that offer no slice of a requested profile.

    It is empty if the class requests no profile, or if one of these GPUs offers it.
    """
    profiles = requested_profiles(cls)
    devices = _devices(state, rows) if profiles else []
    for profile in profiles:
        texts: dict[str, None] = {}
        for device in devices:
            problem = _problem(device, profile)
            if not problem:
                break
            texts[problem] = None
        else:
            listed = list(texts)
            further = f" and {len(listed) - _MAX_NAMED} more" if len(listed) > _MAX_NAMED else ""
            if listed:
                return f"{', '.join(listed[:_MAX_NAMED])}{further}."
    return ""


def _devices(state: ClusterState, rows: NDArray[np.int64]) -> list[Device]:
    """Return one healthy GPU of each kind on these rows."""
    nodes = [state.table.nodes[row] for row in rows.tolist()]
    found: dict[tuple[str, int, DeviceMode], Device] = {}
    for node in nodes:
        for device in node.devices if node is not None else ():
            if device.healthy and device.model and device.resource.endswith("/gpu"):
                found.setdefault((device.model, device.memory_mib, device.mode), device)
    return list(found.values())


def _problem(device: Device, profile: str) -> str:
    """Return why the device has no slice of the profile; empty if it has."""
    geometry = geometry_of(device)
    if geometry is None:
        return f"{device.model} cannot be partitioned into MIG slices"
    if profile not in geometry.codes:
        return f"{device.model} has no MIG profile {profile}"
    if device.mode in (DeviceMode.SLICED, DeviceMode.EITHER):
        return ""
    return f"{device.model} is not in MIG mode"
