"""Simulated devices: ``simulated:8xH100-80GB`` or ``simulated:2xA100-40GB+mig,1xT4``.

::

    simulated:COUNT[xMODEL][:MEMORY][+mig][+mps]{,COUNT…}

``MODEL`` is a short name or a product (:mod:`windlass.api.devices.models`). Any other name needs
a memory size. ``MEMORY`` is a quantity (``24GiB``, ``24Gi``, ``80GB``). ``+mig``: the devices are
in MIG mode, and instances are created as pods request them.
"""

from __future__ import annotations

import re
import uuid
from dataclasses import replace

from windlass.api import quantities
from windlass.api.devices.models import AcceleratorModel, find_model
from windlass.api.devices.node_annotation import DeviceRecord

SIMULATED = "simulated"
PRODUCT, MEMORY_MIB = "Simulated-GPU", 16384
MAX_DEVICES = 1024
_MIB = 2**20
_GROUP = re.compile(
    r"([0-9]{1,4})(?:x([A-Za-z0-9][A-Za-z0-9._-]*))?(?::([0-9]+(?:\.[0-9]+)?\s*[A-Za-z]*))?((?:\+[a-z]+)*)"
)
_SUFFIXES = ("mig", "mps")
_NAMESPACE = uuid.UUID("6f1c2b52-4a37-4b8e-9d0e-6b1d1a7f0c11")


class SimulationError(ValueError):
    """The option is not valid. The message says why."""


def simulated_devices(option: str, machine: str = "") -> tuple[DeviceRecord, ...]:
    """Return the devices of ``simulated:…``, numbered from 0 per resource.

    ``machine`` makes UUIDs differ between nodes. A bare number (``simulated:4``) means devices of no
    particular model with 16 GiB each. Raises :class:`SimulationError`.
    """
    _, _, words = option.partition(":")
    devices: list[DeviceRecord] = []
    counts: dict[str, int] = {}
    for group, word in enumerate(words.split(",")):
        match = _GROUP.fullmatch(word.strip())
        if match is None or not 0 < int(match[1]) <= MAX_DEVICES:
            raise SimulationError(
                f"write simulated:N or simulated:NxMODEL with N from 1 to {MAX_DEVICES}, not {option!r}"
            )
        model, memory = _model(match[2] or "", match[3] or "")
        flags = [flag for flag in match[4].split("+") if flag]
        unknown = [flag for flag in flags if flag not in _SUFFIXES]
        if unknown:
            raise SimulationError(f"+{unknown[0]} is not a valid suffix: use +mig or +mps")
        if "mig" in flags and not model.placements:
            raise SimulationError(f"{model.product} has no MIG mode")
        if {"mig", "mps"} <= set(flags):
            raise SimulationError("+mig and +mps exclude each other: MPS does not serve a GPU in MIG mode")
        for _ in range(int(match[1])):
            index = counts.get(model.resource, 0)
            counts[model.resource] = index + 1
            device = device_of(model, index, memory, machine=machine, link_group=group if model.links else -1)
            devices.append(replace_flags(device, mig="mig" in flags, mps="mps" in flags))
    if len(devices) > MAX_DEVICES:
        raise SimulationError(f"at most {MAX_DEVICES} simulated GPUs, not {len(devices)}")
    return tuple(devices)


def replace_flags(device: DeviceRecord, *, mig: bool, mps: bool) -> DeviceRecord:
    """Return the device in MIG mode with dynamic instances, or with an MPS daemon."""
    from msgspec.structs import replace as altered

    return altered(device, mig=mig, dynamic=mig, mps=mps, placements=device.placements if mig else ())


def device_of(
    model: AcceleratorModel, index: int, memory_mib: int, *, machine: str = "", link_group: int = -1
) -> DeviceRecord:
    """Return a device of a model. Its UUID follows from machine, resource and index."""
    vendor = {"nvidia.com/gpu": "GPU"}.get(model.resource, model.resource.split(".")[0].upper())
    number = uuid.uuid5(_NAMESPACE, f"{machine}/{model.resource}/{index}")
    return DeviceRecord(
        index=index,
        uuid=f"{vendor}-{number}",
        resource=model.resource,
        model=model.product,
        memory_mib=memory_mib,
        compute=model.compute,
        link_group=link_group,
        placements=model.placements,
    )


def _model(name: str, memory: str) -> tuple[AcceleratorModel, int]:
    if not name:
        mib = _mebibytes(memory) if memory else MEMORY_MIB
        return AcceleratorModel(PRODUCT, mib), mib
    known = find_model(name)
    if known is None and not memory:
        raise SimulationError(f"{name} is not a known model; add its memory, as in simulated:2x{name}:24GiB")
    model = known or AcceleratorModel(name, 0)
    mib = _mebibytes(memory) if memory else model.memory_mib
    return (model if not memory else replace(model, memory_mib=mib)), mib


def _mebibytes(text: str) -> int:
    """Return MiB of a memory quantity: ``24GiB``, ``24Gi``, ``24G``, ``24GB``, ``24576MiB``."""
    word = text.strip().replace(" ", "")
    word = word[:-1] if word.endswith(("B", "b")) else word
    try:
        mib = quantities.to_units("memory", word) // _MIB
    except quantities.QuantityError as error:
        raise SimulationError(f"{text!r} is not an amount of memory: {error}") from error
    if not 0 < mib < 2**24:
        raise SimulationError(
            f"{text!r} is not a valid memory size of a GPU: it must be at least 1 MiB and below 16 TiB"
        )
    return mib
