"""Facts that NVML reports about this machine's devices. Only this module reads them.

Many devices refuse some calls, for lack of NVLink, MIG or a current driver. If NVML answers "not
supported", "no such function" or "no permission", the fact is optional and discovery goes on.
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
"""Number of 64-bit words of the requested NUMA mask: 256 NUMA nodes."""
_ENGINES = ("copyEngine", "decoder", "encoder", "jpeg", "ofa")
_MAX_PROFILES = 64
"""Maximum number of profile slots that are queried. NVML has fewer."""


@dataclass(frozen=True, slots=True)
class GpuInstance:
    """Existing GPU instance. ``identifier``: NVML's.

    ``uuid``: of its MIG device. Empty without a compute instance: then nothing can run in it.
    """

    identifier: int
    profile_id: int
    profile: str
    start: int
    size: int
    uuid: str = ""


@dataclass(frozen=True, slots=True)
class NvmlDevice:
    """Facts of one device.

    ``mig_mode``: None if the device does not support MIG. ``profiles``: name → NVML's profile id.
    ``engines``: profile → copy, decoder, encoder, JPEG and OFA engines. ``peers``: PCI addresses of
    the devices on its NVLinks, and ``switch``. ``clique``: ``<cluster uuid>.<clique>`` of its
    NVLink fabric.
    """

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
    peers: tuple[str, ...] = ()
    clique: str = ""


class NvmlGeometry(NamedTuple):
    """MIG placements of a device, with profile ids and media engines by profile name."""

    placements: tuple[ProfilePlacement, ...] = ()
    profiles: dict[str, int] = {}
    engines: dict[str, tuple[int, ...]] = {}


class Nvml:
    """NVML. ``library``: ``pynvml`` or a substitute. Each :meth:`open` needs one :meth:`close`."""

    def __init__(self, library: Any) -> None:
        self.library = library
        self.error: type[Exception] = library.NVMLError

    def open(self) -> None:
        """Open NVML. Raises the library's error if no driver responds."""
        self.library.nvmlInit()

    def close(self) -> None:
        """Close NVML. Errors are ignored, as the driver may be gone."""
        with contextlib.suppress(self.error):
            self.library.nvmlShutdown()

    def reopen(self) -> None:
        """Close and open NVML. Raises the library's error if no driver responds.

        :meth:`close` is necessary after an error too.
        """
        self.close()
        self.open()

    def code(self, error: Exception) -> int:
        """Return NVML's error code, or 999 (unknown)."""
        return int(getattr(error, "value", 999))

    def optional(self, call: Callable[[], T], otherwise: T) -> T:
        """Return the result of ``call``, or ``otherwise`` if this device or driver does not have it."""
        not_available = (
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
            if self.code(error) in not_available:
                return otherwise
            raise
        except AttributeError:  # the binding is older than the call
            return otherwise

    def count(self) -> int:
        return int(self.library.nvmlDeviceGetCount())

    def handle(self, index: int) -> Any:
        return self.library.nvmlDeviceGetHandleByIndex(index)

    def device(self, index: int) -> NvmlDevice:
        """Return the facts of one device. Raises the library's error if the device does not respond."""
        lib, handle = self.library, self.handle(index)
        mode = self.optional(lambda: bool(lib.nvmlDeviceGetMigMode(handle)[0]), None)
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
            compute=self.optional(lambda: _pair(lib.nvmlDeviceGetCudaComputeCapability(handle)), (0, 0)),
            pci=self.optional(lambda: text(lib.nvmlDeviceGetPciInfo(handle).busId).lower(), ""),
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
        """Return the memory in MiB.

        In MIG mode only root may query it. Otherwise the size of the known model counts.
        """
        mib = self.optional(lambda: int(self.library.nvmlDeviceGetMemoryInfo(handle).total) // _MIB, 0)
        model = None if mib else find_model(product)
        return model.memory_mib if model is not None else mib

    def _numa(self, handle: Any) -> int:
        """Return the NUMA node of the device, or −1 if there is none or several."""
        lib = self.library

        def mask() -> int:
            words = lib.nvmlDeviceGetMemoryAffinity(handle, _NUMA_WORDS, lib.NVML_AFFINITY_SCOPE_NODE)
            return sum(int(word) << (64 * place) for place, word in enumerate(words))

        nodes = self.optional(mask, 0)
        return nodes.bit_length() - 1 if nodes and nodes & (nodes - 1) == 0 else -1

    def _peers(self, handle: Any) -> tuple[str, ...]:
        lib = self.library
        peers: set[str] = set()
        for link in range(int(getattr(lib, "NVML_NVLINK_MAX_LINKS", 18))):
            state = self.optional(lambda link=link: int(lib.nvmlDeviceGetNvLinkState(handle, link)), -1)
            if state < 0:
                break  # the device has no more links
            if state:
                bus = self.optional(
                    lambda link=link: text(lib.nvmlDeviceGetNvLinkRemotePciInfo(handle, link).busId).lower(),
                    "",
                )
                kind = self.optional(
                    lambda link=link: int(lib.nvmlDeviceGetNvLinkRemoteDeviceType(handle, link)), 0
                )
                peers.add("switch" if kind == getattr(lib, "NVML_NVLINK_DEVICE_TYPE_SWITCH", 2) else bus)
        return tuple(sorted(peers - {""}))

    def _clique(self, handle: Any) -> str:
        lib = self.library

        def query() -> str:
            info = lib.c_nvmlGpuFabricInfoV_t()
            lib.nvmlDeviceGetGpuFabricInfoV(handle, ctypes.byref(info))
            if info.state != lib.NVML_GPU_FABRIC_STATE_COMPLETED or info.status != lib.NVML_SUCCESS:
                return ""
            raw = bytes(info.clusterUuid)
            if not any(raw):
                return ""
            digits = raw.hex()
            parts = (digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])
            return f"{'-'.join(parts)}.{info.cliqueId}"

        return self.optional(query, "")

    # -- MIG -----------------------------------------------------------------------------------

    def geometry(self, handle: Any) -> NvmlGeometry:
        """Return the device's MIG profiles and their placements. Empty without MIG support."""
        lib = self.library
        placements: list[ProfilePlacement] = []
        profiles: dict[str, int] = {}
        engines: dict[str, tuple[int, ...]] = {}
        for slot in range(min(int(lib.NVML_GPU_INSTANCE_PROFILE_COUNT), _MAX_PROFILES)):
            info = self.optional(
                lambda slot=slot: lib.nvmlDeviceGetGpuInstanceProfileInfo(handle, slot), None
            )
            if info is None:
                continue
            name = text(info.name).removeprefix("MIG ").strip()
            if not name or name in profiles:
                continue
            number = int(info.id)
            profiles[name] = number
            engines[name] = tuple(int(getattr(info, f"{engine}Count")) for engine in _ENGINES)
            places = self.optional(lambda number=number: self._placements(handle, number), [])
            if places:
                starts = tuple(sorted(start for start, _ in places))
                slices, mib = int(info.sliceCount), int(info.memorySizeMB)
                sms, most = int(info.multiprocessorCount), int(info.instanceCount)
                placements.append(ProfilePlacement(name, starts, places[0][1], slices, mib, sms, most))
        return NvmlGeometry(tuple(placements), profiles, engines)

    def _placements(self, handle: Any, profile_id: int) -> list[tuple[int, int]]:
        lib = self.library
        count = ctypes.c_uint(0)
        lib.nvmlDeviceGetGpuInstancePossiblePlacements(handle, profile_id, None, ctypes.byref(count))
        buffer = (lib.c_nvmlGpuInstancePlacement_t * max(1, count.value))()
        lib.nvmlDeviceGetGpuInstancePossiblePlacements(handle, profile_id, buffer, ctypes.byref(count))
        return [(int(buffer[i].start), int(buffer[i].size)) for i in range(count.value)]

    def instances(self, handle: Any, names: dict[int, str]) -> tuple[GpuInstance, ...]:
        """Return the GPU instances of a device, by start. ``names``: NVML's profile id → name.

        Only root may list instances. Otherwise the MIG devices are returned. Their placements
        are unknown, so each has a different negative start.
        """
        lib = self.library
        devices = {number: (uuid, profile) for number, uuid, profile in self.mig_devices(handle)}
        listed = []
        for profile_id, name in names.items():
            for instance in self._instances_of(handle, profile_id):
                info = lib.nvmlGpuInstanceGetInfo(instance)
                number, place = int(info.id), info.placement
                uuid, _ = devices.pop(number, ("", ""))
                listed.append(GpuInstance(number, profile_id, name, int(place.start), int(place.size), uuid))
        if len(names) > 1 or not names:
            listed += [
                GpuInstance(number, -1, profile, -1 - number, 0, uuid)
                for number, (uuid, profile) in devices.items()
                if profile
            ]
        return tuple(sorted(listed, key=lambda each: each.start))

    def _instances_of(self, handle: Any, profile_id: int) -> list[Any]:
        lib = self.library
        buffer = (lib.c_nvmlGpuInstance_t * 8)()
        count = ctypes.c_uint(0)
        self.optional(
            lambda: lib.nvmlDeviceGetGpuInstances(handle, profile_id, buffer, ctypes.byref(count)), None
        )
        return [buffer[i] for i in range(count.value)]

    def mig_devices(self, handle: Any) -> Iterator[tuple[int, str, str]]:
        """Yield GPU instance id, UUID and profile of the device's MIG devices.

        There is one MIG device per compute instance. Only the first of each GPU instance counts.
        """
        lib = self.library
        seen: set[int] = set()
        for place in range(self.optional(lambda: int(lib.nvmlDeviceGetMaxMigDeviceCount(handle)), 0)):
            mig = self.optional(
                lambda place=place: lib.nvmlDeviceGetMigDeviceHandleByIndex(handle, place), None
            )
            if mig is None:
                continue
            number = int(lib.nvmlDeviceGetGpuInstanceId(mig))
            if number not in seen:
                seen.add(number)
                name = self.optional(lambda mig=mig: text(lib.nvmlDeviceGetName(mig)), "")
                yield number, text(lib.nvmlDeviceGetUUID(mig)), name.rpartition("MIG ")[2].strip()

    # -- the driver ----------------------------------------------------------------------------

    def driver(self) -> tuple[str, int]:
        """Return the versions of the driver and of its CUDA (12040 is 12.4)."""
        lib = self.library
        return text(lib.nvmlSystemGetDriverVersion()), int(lib.nvmlSystemGetCudaDriverVersion_v2())


def load() -> Nvml:
    """Return NVML, not yet open. Raises ``ImportError`` if the binding is not installed."""
    import pynvml

    return Nvml(pynvml)


def link_groups(devices: list[NvmlDevice]) -> dict[int, int]:
    """Return device index → number of its NVLink group, or −1 without NVLink to another device.

    Devices on switches are one group, since the switches of one machine are one fabric.
    """
    leader = {device.index: device.index for device in devices}

    def find(index: int) -> int:
        while leader[index] != index:
            index = leader[index]
        return index

    by_bus = {device.pci: device.index for device in devices if device.pci}
    first_switched: int | None = None
    for device in devices:
        for peer in device.peers:
            other = by_bus.get(peer)
            if peer == "switch":
                first_switched = device.index if first_switched is None else first_switched
                other = first_switched
            if other is not None:
                low, high = sorted((find(device.index), find(other)))
                leader[high] = low
    roots = [find(device.index) for device in devices]
    shared = sorted({root for root in roots if roots.count(root) > 1})
    return {
        device.index: shared.index(find(device.index)) if find(device.index) in shared else -1
        for device in devices
    }


def machine_name() -> str:
    """Return the machine's product name with dashes for spaces, or ``unknown``."""
    try:
        return Path("/sys/class/dmi/id/product_name").read_text().strip().replace(" ", "-") or "optional"
    except OSError:
        return "optional"


def text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _pair(value: Any) -> tuple[int, int]:
    major, minor = value
    return int(major), int(minor)
