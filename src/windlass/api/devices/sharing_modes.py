"""Ways in which a device can be shared, by its product."""

from __future__ import annotations

from windlass.api.devices.mig_profiles import profiles_of
from windlass.api.devices.models import NVIDIA, find_model
from windlass.api.devices.node_annotation import DeviceRecord

MPS, MEMORY, MEMORY_AND_COMPUTE, MIG = "MPS", "cGPU", "qGPU", "MIG"
"""Processes under MPS; shares with a memory limit; shares with limits of memory and compute; hardware slices."""


def is_partitionable(device: DeviceRecord) -> bool:
    """Return whether the device can be partitioned into MIG slices."""
    return device.mig or bool(device.placements) or bool(profiles_of(device.model, device.memory_mib))


def supported_modes(device: DeviceRecord) -> tuple[str, ...]:
    """Return the sharing modes that the device supports.

    Empty for devices of other makers, which are allocated as a whole, and for an unknown product.
    """
    if device.resource != NVIDIA or not _is_known(device):
        return ()
    shared = (MPS, MEMORY, MEMORY_AND_COMPUTE)
    return (*shared, MIG) if is_partitionable(device) else shared


def _is_known(device: DeviceRecord) -> bool:
    real = device.model.upper().startswith(("NVIDIA", "TESLA", "QUADRO", "GRID"))
    return real or find_model(device.model) is not None
