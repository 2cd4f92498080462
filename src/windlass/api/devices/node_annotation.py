"""What a node agent publishes about each card of its node: one record, written and read here alone.

Annotation ``windlass.dev/node-devices`` of a Node holds a JSON array, one entry per card, in the order of ``index``.
Feature discovery's labels tell of all cards of a node together; this tells them apart. Fields that stand at
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
    "read",
    "write",
]

MAX_DEVICES = 1024
"""More entries than that are not believed (the largest real nodes have 16 cards)."""


class ProfilePlacement(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, rename="camel"):
    """Where a MIG profile may lie on this card, as the driver says (NVML's possible placements).

    ``starts`` and ``size`` are in slices of the card's memory axis; ``compute``: its compute slices;
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
    """How many of it the card takes at once; 0 where the driver does not say."""


class SliceInstance(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, rename="camel"):
    """A MIG instance that exists on the card now."""

    profile: str
    start: int
    size: int = 0
    uuid: str = ""
    """Of the MIG device (``MIG-…``): what ``CUDA_VISIBLE_DEVICES`` gets."""


class DeviceRecord(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, rename="camel"):
    """One card. Absent fields: unknown (``numa``, ``link_group`` −1), or as it mostly is (healthy, no MIG)."""

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
    """Cards of one number reach one another by NVLink (or its like)."""
    pci: str = ""
    mig: bool = False
    """MIG mode is on: the card is handed out in slices only."""
    dynamic: bool = False
    """The agent carves and removes instances as the scheduler decides; otherwise those it has are all there is."""
    placements: tuple[ProfilePlacement, ...] = ()
    instances: tuple[SliceInstance, ...] = ()
    healthy: bool = True
    reason: str = ""
    """Why it is not healthy (``XID 79``, ``uncorrectable ECC errors``)."""
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
    """The annotation's text, cards by resource and index."""
    ordered = sorted(cards, key=lambda card: (card.resource, card.index))
    return msgspec.json.encode(ordered).decode()


def read(annotations: Mapping[str, str]) -> DeviceRecords:
    """The cards of a Node by its annotations; none where it says nothing, or nothing that can be believed."""
    text = names.read(annotations, NODE_DEVICES)
    return _read(text) if text else DeviceRecords()


@lru_cache(maxsize=4096)
def _read(text: str) -> DeviceRecords:
    field = f"metadata.annotations[{NODE_DEVICES}]"
    try:
        cards = _decoder.decode(text)
    except (msgspec.MsgspecError, RecursionError) as error:
        return DeviceRecords(problem=FieldError(field, f"is no list of cards: {error}"))
    if len(cards) > MAX_DEVICES:
        return DeviceRecords(problem=FieldError(field, f"names {len(cards)} cards, more than {MAX_DEVICES}"))
    seen: set[tuple[str, int]] = set()
    for card in cards:
        if card.index < 0 or card.index >= MAX_DEVICES or (card.resource, card.index) in seen:
            return DeviceRecords(
                problem=FieldError.invalid(
                    field, card.index, f"index of a card of {card.resource} must be from 0 and stand once"
                )
            )
        if card.memory_mib < 0:
            return DeviceRecords(
                problem=FieldError.invalid(field, card.memory_mib, "memoryMib must be at least 0")
            )
        seen.add((card.resource, card.index))
    return DeviceRecords(cards)
