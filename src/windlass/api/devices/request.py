"""Records of what a pod asks of accelerator devices, as its words say it; and the reader's notebook.

Units: compute in thousandths of a device, memory in MiB.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from windlass.api.errors import FieldError

WHOLE = 1000
MIB = 2**20
PERCENT = 100
MAX_DEVICES = 1024
MOST_MIB = 2**40
GPU = "nvidia.com/gpu"
MIG = "nvidia.com/mig-"


@dataclass(frozen=True, slots=True)
class DeviceRequirements:
    """Required properties of a device, as in :class:`windlass.spi.devices.DeviceNeed`."""

    models: tuple[str, ...] = ()
    models_not: tuple[str, ...] = ()
    uuids: tuple[str, ...] = ()
    uuids_not: tuple[str, ...] = ()
    min_memory_mib: int = 0
    min_compute: tuple[int, int] = (0, 0)
    pack: bool | None = None


NO_REQUIREMENTS = DeviceRequirements()


@dataclass(frozen=True, slots=True)
class ContainerDeviceRequest:
    """Request of one container for each of ``count`` distinct devices (see :mod:`windlass.spi.devices`).

    ``words``: the amounts as its vocabulary counts them, summed over the devices: for queues that limit them.
    ``taken``: ordinary amounts of the container that this ask speaks of.
    """

    container: str
    resource: str = GPU
    count: int = 1
    milli: int = 0
    memory_mib: int = 0
    memory_milli: int = 0
    profile: str = ""
    slices: bool = True
    shares: bool = True
    words: tuple[tuple[str, int], ...] = ()
    taken: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class ContainerResources:
    """A container and what it asks for, as it is written. ``init``: it ends before the others start."""

    name: str
    amounts: tuple[tuple[str, str], ...]
    init: bool = False
    place: str = ""
    """The field path of its resources."""


@dataclass(frozen=True, slots=True)
class PodDeviceRequest:
    """``spread``: no two pods of the group on one device. ``whole``: devices that are asked for whole, by
    resource, in words that are no ordinary amounts (``volcano.sh/gpu-number``); ``taken``: ordinary amounts of
    running containers that ``asks`` speak of (HAMi's ``nvidia.com/gpu``). Both in engine units."""

    asks: tuple[ContainerDeviceRequest, ...] = ()
    requirements: DeviceRequirements = NO_REQUIREMENTS
    spread: bool = False
    whole: tuple[tuple[str, int], ...] = ()
    taken: tuple[tuple[str, int], ...] = ()
    problems: tuple[FieldError, ...] = ()


NOTHING = PodDeviceRequest()


@dataclass(slots=True)
class RequestReader:
    """Collects what is asked for and what is wrong with it."""

    annotations: Mapping[str, str]
    asks: list[ContainerDeviceRequest] = field(default_factory=list)
    whole: dict[str, int] = field(default_factory=dict)
    problems: list[FieldError] = field(default_factory=list)

    def note(self, name: str) -> str:
        return self.annotations.get(name, "").strip()

    def bad(self, name: str, value: object, why: str) -> None:
        self.problems.append(FieldError.invalid(f"metadata.annotations[{name}]", value, why))

    def number(self, name: str, least: int, most: int, why: str) -> int | None:
        """An annotation that is a whole number within bounds."""
        text = self.note(name)
        if not text:
            return None
        if text.isascii() and text.isdigit() and len(text) < 16 and least <= int(text) <= most:
            return int(text)
        self.bad(name, text, why)
        return None
