"""Record that a node agent publishes for each device of its node. Only this module writes and reads it.

Annotation ``windlass.dev/node-devices`` of a Node holds a JSON array, one entry per device, in the order of ``index``.
Feature discovery's labels tell of all devices of a node together; this tells them apart. Fields that stand at
their default are left out, and unknown ones are ignored, so that agent and scheduler may be of two releases.

Unit of memory: MiB. ``index`` is per resource, from 0: what ``windlass.dev/devices`` of a pod names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

import msgspec

from windlass.api import annotations as names
from windlass.api.annotations import NODE_DEVICES
from windlass.api.errors import FieldError

__all__ = [
    "NODE_DEVICES",
    "DeviceRecord",
    "DeviceRecords",
    "ProfilePlacement",
    "SliceInstance",
    "amounts_with_unhealthy",
    "read",
    "unhealthy_devices",
    "write",
]

MAX_DEVICES = 1024
"""More entries than that are not believed (the largest real nodes have 16 devices)."""


class ProfilePlacement(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, rename="camel"):
    """Possible placements of a MIG profile on this device, as reported by the driver (NVML).

    ``starts`` and ``size`` are in slices of the device's memory axis; ``compute``: its compute slices;
    ``memory_mib``: usable memory of an instance; ``multiprocessors``: its SMs, 0 where unknown.
    """

    profile: str
    """By name, ``1g.10gb`` or ``1g.10gb+me``."""
    starts: tuple[int, ...]
    size: int
    compute: int = 0
    memory_mib: int = 0
    multiprocessors: int = 0
    most: int = 0
    """Maximum number of instances on the device; 0 if the driver does not report it."""


class SliceInstance(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, rename="camel"):
    """A MIG instance that exists on the device now."""

    profile: str
    start: int
    size: int = 0
    uuid: str = ""
    """UUID of the MIG device (``MIG-…``), the value for ``CUDA_VISIBLE_DEVICES``."""


class DeviceRecord(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, rename="camel"):
    """One device. Absent fields: unknown (``numa``, ``link_group`` −1), or as it mostly is (healthy, no MIG)."""

    index: int
    uuid: str = ""
    resource: str = "nvidia.com/gpu"
    model: str = ""
    """With dashes for spaces, as in label ``nvidia.com/gpu.product``."""
    memory_mib: int = 0
    compute: str = ""
    """CUDA compute capability, ``9.0``."""
    numa: int = -1
    link_group: int = -1
    """Devices of one number reach one another by NVLink (or its like)."""
    pci: str = ""
    mig: bool = False
    """MIG mode is on: the device is handed out in slices only."""
    dynamic: bool = False
    """The agent carves and removes instances as the scheduler decides; otherwise those it has are all there is."""
    placements: tuple[ProfilePlacement, ...] = ()
    instances: tuple[SliceInstance, ...] = ()
    healthy: bool = True
    reason: str = ""
    """Reason for being unhealthy (``XID 79``, ``uncorrectable ECC errors``)."""
    mps: bool = False
    """An MPS daemon serves it: limits of memory and compute are enforced, not only accounted."""

    @property
    def capability(self) -> tuple[int, int]:
        """``"9.0"`` → (9, 0); (0, 0) where it is unknown."""
        major, _, minor = self.compute.partition(".")
        if not (major.isascii() and major.isdigit()):
            return 0, 0
        return int(major), int(minor) if minor.isascii() and minor.isdigit() else 0


_decoder = msgspec.json.Decoder(tuple[DeviceRecord, ...])


class DeviceRecords(msgspec.Struct, frozen=True):
    """The records that could be read, and what is wrong with the annotation."""

    cards: tuple[DeviceRecord, ...] = ()
    problem: FieldError | None = None


def write(cards: Sequence[DeviceRecord]) -> str:
    """The annotation's text, devices by resource and index."""
    ordered = sorted(cards, key=lambda card: (card.resource, card.index))
    return msgspec.json.encode(ordered).decode()


def read(annotations: Mapping[str, str]) -> DeviceRecords:
    """The devices of a Node by its annotations; none where it says nothing, or nothing that can be believed."""
    text = names.read(annotations, NODE_DEVICES)
    return _read(text) if text else DeviceRecords()


def unhealthy_devices(annotations: Mapping[str, str]) -> dict[str, int]:
    """Return the number of unhealthy whole devices by resource.

    A node agent, like a kubelet, leaves them out of the allocatable resources of its node.
    """
    counts: dict[str, int] = {}
    for device in read(annotations).cards:
        if not (device.healthy or device.mig):
            counts[device.resource] = counts.get(device.resource, 0) + 1
    return counts


def amounts_with_unhealthy(
    annotations: Mapping[str, str], amounts: Mapping[str, int], *, unit: int
) -> Mapping[str, int]:
    """Return allocatable amounts with the unhealthy devices, which pods may still hold.

    ``unit``: amount of one device. At most the recorded devices count, because an older
    agent lists unhealthy devices as allocatable.
    """
    unhealthy = unhealthy_devices(annotations)
    if not unhealthy:
        return amounts
    recorded: dict[str, int] = {}
    for device in read(annotations).cards:
        if not device.mig:
            recorded[device.resource] = recorded.get(device.resource, 0) + unit
    present = {name: amounts.get(name, 0) + count * unit for name, count in unhealthy.items()}
    return {**amounts, **{name: min(units, recorded[name]) for name, units in present.items()}}


@lru_cache(maxsize=4096)
def _read(text: str) -> DeviceRecords:
    field = f"metadata.annotations[{NODE_DEVICES}]"
    try:
        cards = _decoder.decode(text)
    except (msgspec.MsgspecError, RecursionError) as error:
        return DeviceRecords(problem=FieldError(field, f"is not a list of GPUs: {error}"))
    if len(cards) > MAX_DEVICES:
        return DeviceRecords(problem=FieldError(field, f"names {len(cards)} GPUs, more than {MAX_DEVICES}"))
    seen: set[tuple[str, int]] = set()
    for card in cards:
        if card.index < 0 or card.index >= MAX_DEVICES or (card.resource, card.index) in seen:
            return DeviceRecords(
                problem=FieldError.invalid(
                    field, card.index, f"index of a GPU of {card.resource} must be from 0 and stand once"
                )
            )
        if card.memory_mib < 0:
            return DeviceRecords(
                problem=FieldError.invalid(field, card.memory_mib, "memoryMib must be at least 0")
            )
        seen.add((card.resource, card.index))
    return DeviceRecords(cards)
