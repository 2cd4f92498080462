"""What NVML says about this machine's devices, as plain records; the only module that reads them.

Many calls are refused by many devices (no NVLink, no MIG, too old a driver): a refusal that NVML words as "not
supported", "no such function" or "no permission" means that the fact is not known, never that discovery fails.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from windlass.api.devices.models import find_model
from windlass.api.devices.node_annotation import ProfilePlacement

T = TypeVar("T")
_MIB = 2**20
_NUMA_WORDS = 4
"""64-bit words of the NUMA mask that is asked for: 256 nodes."""
_ENGINES = ("copyEngine", "decoder", "encoder", "jpeg", "ofa")
_PROFILES_ASKED = 64
"""Profile slots beyond which no NVML numbers any."""


@dataclass(frozen=True, slots=True)
class GpuInstance:
    """A GPU instance that exists. ``identifier``: NVML's; ``uuid``: of its MIG device, ``""`` without a compute
    instance (nothing can run in it then)."""

    identifier: int
    profile_id: int
    profile: str
    start: int
    size: int
    uuid: str = ""


@dataclass(frozen=True, slots=True)
class NvmlDevice:
    """One device. ``mig_mode``: None where the device has no such mode. ``profiles``: NVML's profile id by name."""

    index: int
    uuid: str
    product: str
    memory_mib: int
    compute: tuple[int, int] = (0, 0)
    pci: str = ""
    numa: int = -1
    mig_mode: bool | None = None
    placements: tuple[ProfilePlacement, ...] = ()
    profiles: dict[str, int] = field(default_factory=dict)
    instances: tuple[GpuInstance, ...] = ()
    engines: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Of each profile: copy, decoder, encoder, JPEG and OFA engines."""
    peers: tuple[str, ...] = ()
    """PCI addresses of the devices at the other ends of its NVLinks; ``switch`` for a switch."""
    clique: str = ""
    """``<cluster uuid>.<clique>`` of the NVLink fabric that it has joined."""


class NvmlGeometry(NamedTuple):
    """Of a device: where its MIG profiles may lie; NVML's id and the media engines of each by name."""

    placements: tuple[ProfilePlacement, ...] = ()
    profiles: dict[str, int] = {}
    engines: dict[str, tuple[int, ...]] = {}


class Nvml:
    """``library`` is ``pynvml`` or what stands in for it. One :meth:`open` per :meth:`close`."""

    def __init__(self, library: Any) -> None:
        self.library = library
        self.error: type[Exception] = library.NVMLError

    def open(self) -> None:
        """Raises the library's error where no driver answers."""
        self.library.nvmlInit()

    def close(self) -> None:
        """A driver that is gone needs no farewell."""
        with contextlib.suppress(self.error):
            self.library.nvmlShutdown()

    def reopen(self) -> None:
        """Raises the library's error where no driver answers; :meth:`close` is owed all the same."""
        self.close()
        self.open()

    def code(self, error: Exception) -> int:
        """NVML's error code, 999 (unknown) where it has none."""
        return int(getattr(error, "value", 999))

    def unknown(self, call: Callable[[], T], otherwise: T) -> T:
        """The answer, or ``otherwise`` where this device or driver does not tell."""
        quiet = (
            self.library.NVML_ERROR_NOT_SUPPORTED,
            self.library.NVML_ERROR_FUNCTION_NOT_FOUND,
            self.library.NVML_ERROR_NO_PERMISSION,
            self.library.NVML_ERROR_INVALID_ARGUMENT,
            self.library.NVML_ERROR_NOT_FOUND,
            self.library.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
        )
        try:
            return call()
        except self.error as error:
            if self.code(error) in quiet:
                return otherwise
            raise
        except AttributeError:  # the binding is older than the call
            return otherwise

    def count(self) -> int:
        return int(self.library.nvmlDeviceGetCount())

    def handle(self, index: int) -> Any:
        return self.library.nvmlDeviceGetHandleByIndex(index)

    def card(self, index: int) -> NvmlDevice:
        """All that is told about one device. Raises the library's error where the device itself does not answer."""
        lib, handle = self.library, self.handle(index)
        mode = self.unknown(lambda: bool(lib.nvmlDeviceGetMigMode(handle)[0]), None)
        product = text(lib.nvmlDeviceGetName(handle))
        geometry = NvmlGeometry() if mode is None else self.geometry(handle)
        instances: tuple[GpuInstance, ...] = ()
        if mode:
            instances = self.instances(handle, {number: name for name, number in geometry.profiles.items()})
        return NvmlDevice(
            index=index,
            uuid=text(lib.nvmlDeviceGetUUID(handle)),
            product=product,
            memory_mib=self._memory(handle, product),
            compute=self.unknown(lambda: _pair(lib.nvmlDeviceGetCudaComputeCapability(handle)), (0, 0)),
            pci=self.unknown(lambda: text(lib.nvmlDeviceGetPciInfo(handle).busId).lower(), ""),
            numa=self._numa(handle),
            mig_mode=mode,
            placements=geometry.placements,
            profiles=geometry.profiles,
            engines=geometry.engines,
            instances=instances,
            peers=self._peers(handle),
            clique=self._clique(handle),
        )

    def _memory(self, handle: Any, product: str) -> int:
        """MiB; of a device in MIG mode only root may ask: then what its model is known to have."""
        told = self.unknown(lambda: int(self.library.nvmlDeviceGetMemoryInfo(handle).total) // _MIB, 0)
        model = None if told else find_model(product)
        return model.memory_mib if model is not None else told

    def _numa(self, handle: Any) -> int:
        """The NUMA node nearest to the device; −1 where that is none or several."""
        lib = self.library

        def mask() -> int:
            words = lib.nvmlDeviceGetMemoryAffinity(handle, _NUMA_WORDS, lib.NVML_AFFINITY_SCOPE_NODE)
            return sum(int(word) << (64 * place) for place, word in enumerate(words))

        nodes = self.unknown(mask, 0)
        return nodes.bit_length() - 1 if nodes and nodes & (nodes - 1) == 0 else -1

    def _peers(self, handle: Any) -> tuple[str, ...]:
        lib = self.library
        found: set[str] = set()
        for link in range(int(getattr(lib, "NVML_NVLINK_MAX_LINKS", 18))):
            state = self.unknown(lambda link=link: int(lib.nvmlDeviceGetNvLinkState(handle, link)), -1)
            if state < 0:
                break  # the device has no more links
            if state:
                bus = self.unknown(
                    lambda link=link: text(lib.nvmlDeviceGetNvLinkRemotePciInfo(handle, link).busId).lower(),
                    "",
                )
                kind = self.unknown(
                    lambda link=link: int(lib.nvmlDeviceGetNvLinkRemoteDeviceType(handle, link)), 0
                )
                found.add("switch" if kind == getattr(lib, "NVML_NVLINK_DEVICE_TYPE_SWITCH", 2) else bus)
        return tuple(sorted(found - {""}))

    def _clique(self, handle: Any) -> str:
        lib = self.library

        def ask() -> str:
            info = lib.c_nvmlGpuFabricInfoV_t()
            lib.nvmlDeviceGetGpuFabricInfoV(handle, ctypes.byref(info))
            if info.state != lib.NVML_GPU_FABRIC_STATE_COMPLETED or info.status != lib.NVML_SUCCESS:
                return ""
            number = bytes(info.clusterUuid)
            if not any(number):
                return ""
            words = number.hex()
            parts = (words[:8], words[8:12], words[12:16], words[16:20], words[20:])
            return f"{'-'.join(parts)}.{info.cliqueId}"

        return self.unknown(ask, "")

    # -- MIG -----------------------------------------------------------------------------------

    def geometry(self, handle: Any) -> NvmlGeometry:
        """The device's MIG profiles and where each may lie; nothing for a device without them."""
        lib = self.library
        placements: list[ProfilePlacement] = []
        profiles: dict[str, int] = {}
        engines: dict[str, tuple[int, ...]] = {}
        for slot in range(min(int(lib.NVML_GPU_INSTANCE_PROFILE_COUNT), _PROFILES_ASKED)):
            info = self.unknown(lambda slot=slot: lib.nvmlDeviceGetGpuInstanceProfileInfo(handle, slot), None)
            if info is None:
                continue
            name = text(info.name).removeprefix("MIG ").strip()
            if not name or name in profiles:
                continue
            number = int(info.id)
            profiles[name] = number
            engines[name] = tuple(int(getattr(info, f"{engine}Count")) for engine in _ENGINES)
            places = self.unknown(lambda number=number: self._places(handle, number), [])
            if places:
                starts = tuple(sorted(start for start, _ in places))
                slices, mib = int(info.sliceCount), int(info.memorySizeMB)
                sms, most = int(info.multiprocessorCount), int(info.instanceCount)
                placements.append(ProfilePlacement(name, starts, places[0][1], slices, mib, sms, most))
        return NvmlGeometry(tuple(placements), profiles, engines)

    def _places(self, handle: Any, profile_id: int) -> list[tuple[int, int]]:
        lib = self.library
        count = ctypes.c_uint(0)
        lib.nvmlDeviceGetGpuInstancePossiblePlacements(handle, profile_id, None, ctypes.byref(count))
        room = (lib.c_nvmlGpuInstancePlacement_t * max(1, count.value))()
        lib.nvmlDeviceGetGpuInstancePossiblePlacements(handle, profile_id, room, ctypes.byref(count))
        return [(int(room[i].start), int(room[i].size)) for i in range(count.value)]

    def instances(self, handle: Any, names: dict[int, str]) -> tuple[GpuInstance, ...]:
        """The GPU instances of a device, by start. ``names``: NVML's profile ids.

        Without the right to ask for instances (it takes root) the MIG devices are told, whose places are not
        known: their start is below 0, and another for each.
        """
        lib = self.library
        devices = {number: (uuid, profile) for number, uuid, profile in self.mig_devices(handle)}
        found = []
        for profile_id, name in names.items():
            for instance in self._instances_of(handle, profile_id):
                info = lib.nvmlGpuInstanceGetInfo(instance)
                number, place = int(info.id), info.placement
                uuid, _ = devices.pop(number, ("", ""))
                found.append(GpuInstance(number, profile_id, name, int(place.start), int(place.size), uuid))
        if len(names) > 1 or not names:
            found += [
                GpuInstance(number, -1, profile, -1 - number, 0, uuid)
                for number, (uuid, profile) in devices.items()
                if profile
            ]
        return tuple(sorted(found, key=lambda each: each.start))

    def _instances_of(self, handle: Any, profile_id: int) -> list[Any]:
        lib = self.library
        room = (lib.c_nvmlGpuInstance_t * 8)()
        count = ctypes.c_uint(0)
        self.unknown(
            lambda: lib.nvmlDeviceGetGpuInstances(handle, profile_id, room, ctypes.byref(count)), None
        )
        return [room[i] for i in range(count.value)]

    def mig_devices(self, handle: Any) -> Iterator[tuple[int, str, str]]:
        """(GPU instance id, UUID, profile) of the device's MIG devices, one per compute instance: the first of
        each GPU instance counts."""
        lib = self.library
        seen: set[int] = set()
        for place in range(self.unknown(lambda: int(lib.nvmlDeviceGetMaxMigDeviceCount(handle)), 0)):
            mig = self.unknown(
                lambda place=place: lib.nvmlDeviceGetMigDeviceHandleByIndex(handle, place), None
            )
            if mig is None:
                continue
            number = int(lib.nvmlDeviceGetGpuInstanceId(mig))
            if number not in seen:
                seen.add(number)
                name = self.unknown(lambda mig=mig: text(lib.nvmlDeviceGetName(mig)), "")
                yield number, text(lib.nvmlDeviceGetUUID(mig)), name.rpartition("MIG ")[2].strip()

    # -- the driver ----------------------------------------------------------------------------

    def driver(self) -> tuple[str, int]:
        """Version of the driver, and of the CUDA it serves (12040 is 12.4)."""
        lib = self.library
        return text(lib.nvmlSystemGetDriverVersion()), int(lib.nvmlSystemGetCudaDriverVersion_v2())


def load() -> Nvml:
    """Raises ``ImportError`` where the binding is not installed."""
    import pynvml

    return Nvml(pynvml)


def link_groups(cards: list[NvmlDevice]) -> dict[int, int]:
    """Device index → number of the group of devices that reach one another by NVLink; −1 for a device alone.

    Devices on a switch are one group (the switches of one machine are one fabric).
    """
    leader = {card.index: card.index for card in cards}

    def find(index: int) -> int:
        while leader[index] != index:
            index = leader[index]
        return index

    by_bus = {card.pci: card.index for card in cards if card.pci}
    first_switched: int | None = None
    for card in cards:
        for peer in card.peers:
            other = by_bus.get(peer)
            if peer == "switch":
                first_switched = card.index if first_switched is None else first_switched
                other = first_switched
            if other is not None:
                low, high = sorted((find(card.index), find(other)))
                leader[high] = low
    roots = [find(card.index) for card in cards]
    shared = sorted({root for root in roots if roots.count(root) > 1})
    return {
        card.index: shared.index(find(card.index)) if find(card.index) in shared else -1 for card in cards
    }


def machine_name() -> str:
    """The machine's product name, dashes for spaces; ``unknown`` where it is not told."""
    try:
        return Path("/sys/class/dmi/id/product_name").read_text().strip().replace(" ", "-") or "unknown"
    except OSError:
        return "unknown"


def text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _pair(value: Any) -> tuple[int, int]:
    major, minor = value
    return int(major), int(minor)
