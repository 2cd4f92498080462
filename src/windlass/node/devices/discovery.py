"""Discovery of this machine's accelerators: by NVML, simulated on request, or none.

A machine without a driver has no GPUs, which is not an error. The result becomes records
(:class:`windlass.api.devices.node_annotation.DeviceRecord`), labels and resources of the Node.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from msgspec.structs import replace as altered

from windlass.api.devices.models import NVIDIA
from windlass.api.devices.node_annotation import DeviceRecord, SliceInstance
from windlass.node.devices import labels
from windlass.node.devices.index_store import assign_indices, first_free
from windlass.node.devices.nvml import Nvml, NvmlDevice, link_groups, load, machine_name
from windlass.node.devices.simulated import SIMULATED, SimulationError, simulated_devices

RESOURCE = NVIDIA
AUTO, NONE = "auto", "none"
MIG_AUTO, MIG_DYNAMIC, MIG_MIXED, MIG_SINGLE = "auto", "dynamic", "mixed", "single"
_DISPLAY, _COMPUTE = "0x0300", "0x0302"


class DeviceOptionError(ValueError):
    """The ``--gpus`` option is not ``auto``, ``none`` or ``simulated:…``."""


@dataclass(frozen=True, slots=True)
class Inventory:
    """Devices of a node, in the order of their indices.

    ``note``: why there are none, or what is unusual, for ``doctor``.
    ``parents``: with MIG strategy *single*, UUID of a slice → UUID of its GPU. A slice then counts
    as a device.
    """

    devices: tuple[DeviceRecord, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    simulated: bool = False
    note: str = ""
    parents: Mapping[str, str] = field(default_factory=dict)

    @property
    def resources(self) -> dict[str, int]:
        return labels.resources(self.devices)

    @property
    def allocatable(self) -> dict[str, int]:
        return labels.allocatable(self.devices)

    @property
    def kinds(self) -> tuple[str, ...]:
        """Resource names of the devices."""
        return tuple(dict.fromkeys(device.resource for device in self.devices))

    def find(self, index: int, resource: str = "") -> DeviceRecord:
        """Return the device with this index. Without a resource, the first kind of device is meant.

        Raises ``LookupError`` that names the index.
        """
        kind = resource or (self.devices[0].resource if self.devices else "")
        own = [device for device in self.devices if device.resource == kind]
        for device in own:
            if device.index == index:
                return device
        raise LookupError(f"there is no device {index} on this machine (it has {len(own)})")


def key_of(device: DeviceRecord) -> str:
    """Return the key of a device in the allocations.

    It is the index, with the resource before it for devices that are not NVIDIA's.
    """
    return str(device.index) if device.resource == NVIDIA else f"{device.resource}/{device.index}"


def has_device_files() -> bool:
    """Return whether this machine seems to have accelerators. It is cheap, and True when in doubt."""
    return any(
        Path(path).exists()
        for path in ("/dev/nvidia0", "/dev/nvidiactl", "/proc/driver/nvidia/gpus", "/dev/kfd", "/dev/dxg")
    )


@dataclass(frozen=True, slots=True)
class DiscoveryOptions:
    """Options of the discovery.

    ``mig``: mode in which devices in MIG mode are offered.
    ``own``: the agent's MIG instances (UUID of the device, profile, start).
    ``may_create``: the agent may create MIG instances.
    ``refused``: UUIDs of devices on which the driver refused to create instances.
    ``mps``: an MPS daemon serves the devices that are not in MIG mode.
    ``indices``: UUID → index of known devices (:mod:`windlass.node.devices.index_store`).
    """

    mig: str = MIG_AUTO
    own: Collection[tuple[str, str, int]] = ()
    may_create: bool = False
    refused: Collection[str] = ()
    mps: bool = False
    indices: Mapping[str, int] = field(default_factory=dict)


def split_option(option: str) -> tuple[str, str]:
    """Split ``auto:mixed`` into ``auto`` and ``mixed``: the source, and the MIG mode.

    The mode is empty if the option has none. Raises :class:`DeviceOptionError`.
    """
    kind, colon, mig = option.partition(":")
    if kind != AUTO or not colon:
        return option, ""
    if mig not in (MIG_DYNAMIC, MIG_MIXED, MIG_SINGLE):
        raise DeviceOptionError(
            f"auto:{mig} is not a valid MIG mode: write auto:dynamic, auto:mixed or auto:single"
        )
    return AUTO, mig


def open_nvml(loaded: Callable[[], Nvml] = load) -> Nvml | None:
    """Return NVML, open, or None without binding or driver. The caller closes it."""
    try:
        nvml = loaded()
    except ImportError:
        return None
    try:
        nvml.open()
    except nvml.error:
        return None
    return nvml


def discover(
    option: str, options: DiscoveryOptions | None = None, *, machine: str = "", nvml: Nvml | None = None
) -> Inventory:
    """Return the devices. ``option``: ``auto``, ``none`` or ``simulated:…``.

    ``machine``: the node's name, for the UUIDs of simulated devices. ``nvml`` must be open. Without
    it NVML is opened for this call.
    """
    options = options or DiscoveryOptions()
    if option == NONE:
        return Inventory(note="GPUs are disabled by option")
    if option.startswith(SIMULATED):
        return _simulated(option, machine)
    if option != AUTO:
        raise DeviceOptionError(f"GPUs must be auto, none or simulated:N, not {option!r}")
    if nvml is not None:
        return _discover(nvml, options)
    try:
        nvml = load()
    except ImportError as error:
        return Inventory(note=f"NVML bindings cannot be loaded: {error}")
    try:
        nvml.open()
    except nvml.error as error:
        return Inventory(note=f"no NVIDIA driver responds: {error}")
    try:
        return _discover(nvml, options)
    finally:
        nvml.close()


def _discover(nvml: Nvml, options: DiscoveryOptions) -> Inventory:
    try:
        return inventory(nvml, options)
    except nvml.error as error:
        return Inventory(note=f"the NVIDIA driver refused to list its GPUs: {error}")


def _simulated(option: str, machine: str) -> Inventory:
    try:
        devices = simulated_devices(option, machine)
    except SimulationError as error:
        raise DeviceOptionError(str(error)) from error
    count = len(devices)
    note = f"{count} simulated GPU{'s' if count != 1 else ''} without hardware"
    return Inventory(devices, labels.simulated_labels(devices), simulated=True, note=note)


def inventory(nvml: Nvml, options: DiscoveryOptions) -> Inventory:
    """Return what NVML reports. Raises the library's error if the driver itself refuses.

    A device that does not respond is listed as lost, with its index.
    """
    facts: list[NvmlDevice] = []
    lost: dict[int, str] = {}
    for index in range(nvml.count()):
        try:
            facts.append(nvml.device(index))
        except nvml.error as error:
            lost[index] = str(error)
    if not facts and not lost:
        return Inventory(note="the NVIDIA driver responds, but it has no GPUs")
    indices = assign_indices([device.uuid for device in facts], options.indices)
    facts = [replace(device, index=indices[device.uuid]) for device in facts]
    lost = _unidentified(lost, indices, options.indices)
    groups = link_groups(facts)
    foreign = frozenset(device.uuid for device in facts if _has_foreign_instances(device, options))
    devices = [
        record(device, groups.get(device.index, -1), options, foreign=device.uuid in foreign)
        for device in facts
    ]
    devices += [
        DeviceRecord(index=index, healthy=False, reason=f"it does not respond: {why}")
        for index, why in lost.items()
    ]
    devices.sort(key=lambda device: device.index)
    single = options.mig == MIG_SINGLE and bool(labels.single_profile(devices))
    node_labels = labels.labels(
        devices,
        single=single,
        machine=machine_name(),
        clique=next((device.clique for device in facts if device.clique), ""),
        mode=_mode(facts[0].pci) if facts else "",
        mig_capable=any(device.mig_mode is not None for device in facts),
        engines={name: engines for device in facts for name, engines in device.engines.items()},
    )
    node_labels |= labels.driver_labels(*nvml.driver())
    note = _note(devices, single=single, options=options)
    if single:
        slices, parents = _slices_as_devices(devices)
        return Inventory(slices, node_labels, note=note, parents=parents)
    return Inventory(tuple(devices), node_labels, note=note)


def _slices_as_devices(devices: Sequence[DeviceRecord]) -> tuple[tuple[DeviceRecord, ...], dict[str, str]]:
    """Return each slice as a device, numbered from 0, and UUID of the slice → UUID of its GPU."""
    slices: list[DeviceRecord] = []
    parents: dict[str, str] = {}
    for device in devices:
        usable = {place.profile: place.memory_mib for place in device.placements}
        for instance in device.instances:
            if not instance.uuid:
                continue
            parents[instance.uuid] = device.uuid
            slices.append(
                altered(
                    device,
                    index=len(slices),
                    uuid=instance.uuid,
                    model=f"{device.model}-MIG-{instance.profile}",
                    memory_mib=usable.get(instance.profile, 0),
                    mig=False,
                    dynamic=False,
                    placements=(),
                    instances=(),
                )
            )
    return tuple(slices), parents


def _unidentified(
    lost: Mapping[int, str], indices: Mapping[str, int], known: Mapping[str, int]
) -> dict[int, str]:
    """Return index → reason of devices that do not respond and were never identified."""
    missing = sum(uuid not in indices for uuid in known)
    taken = {*indices.values(), *known.values()}
    unidentified: dict[int, str] = {}
    for why in list(lost.values())[missing:]:
        index = first_free(taken)
        taken.add(index)
        unidentified[index] = why
    return unidentified


def _has_foreign_instances(device: NvmlDevice, options: DiscoveryOptions) -> bool:
    own = set(options.own)
    return any((device.uuid, each.profile, each.start) not in own for each in device.instances)


def record(device: NvmlDevice, group: int, options: DiscoveryOptions, *, foreign: bool) -> DeviceRecord:
    """Return the record that is published of a device."""
    mig = bool(device.mig_mode)
    dynamic = (
        mig
        and options.mig in (MIG_AUTO, MIG_DYNAMIC)
        and options.may_create
        and not foreign
        and device.uuid not in options.refused
        and bool(device.placements)
    )
    return DeviceRecord(
        index=device.index,
        uuid=device.uuid,
        model=device.product.replace(" ", "-"),
        memory_mib=device.memory_mib,
        compute=f"{device.compute[0]}.{device.compute[1]}" if device.compute[0] else "",
        numa=device.numa,
        link_group=group,
        pci=device.pci,
        mig=mig,
        dynamic=dynamic,
        placements=device.placements if mig else (),
        instances=tuple(
            SliceInstance(each.profile, each.start, each.size, each.uuid) for each in device.instances
        ),
        mps=options.mps and not mig,
    )


def _note(devices: Sequence[DeviceRecord], *, single: bool, options: DiscoveryOptions) -> str:
    notes = []
    products = sorted({device.model for device in devices if device.model})
    if len(products) > 1:
        notes.append(f"GPUs of several kinds ({', '.join(products)}): labels describe the first")
    if options.mig == MIG_SINGLE and not single and any(device.mig for device in devices):
        notes.append("MIG strategy single requires slices of one profile on all GPUs: mixed is used")
    fixed = [device for device in devices if device.mig and not device.dynamic]
    if fixed and options.mig in (MIG_AUTO, MIG_DYNAMIC):
        indices = ", ".join(str(device.index) for device in fixed)
        notes.append(f"GPUs in MIG mode on which the agent creates no instances: {indices}")
    return "; ".join(notes)


def _mode(pci: str) -> str:
    """Return ``compute`` or ``display`` by the device's PCI class, or ``unknown``."""
    domain, _, rest = pci.partition(":")
    try:
        kind = Path(f"/sys/bus/pci/devices/{domain[-4:]}:{rest}/class").read_text().strip()
    except OSError:
        return "unknown"
    return {_DISPLAY: "display", _COMPUTE: "compute"}.get(kind[:6], "unknown")
