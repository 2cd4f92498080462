"""Devices of a node, from the agent's record, Volcano's or HAMi's registration, or labels.

The most exact source is used:

* annotation ``windlass.dev/node-devices`` (:mod:`windlass.api.devices.node_annotation`)
  describes each device;
* ``volcano.sh/node-vgpu-register`` and ``hami.io/node-nvidia-register`` give UUID, memory
  and health of each;
* labels of feature discovery describe all devices of a resource together
  (``<resource>.product``, ``<resource>.memory``; AMD's node labeller writes
  ``amd.com/gpu.product-name`` and ``amd.com/gpu.vram``).

Replicas of a device (time-slicing, MPS) and slices of strategy ``single`` are allocated by
the device plugin. Each counts as one device and is allocated as a whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache

from windlass.api import annotations as names
from windlass.api import views
from windlass.api.devices import node_annotation
from windlass.api.devices.plugin_units import RENAMED, unit_of
from windlass.api.devices.request import GPU, WHOLE
from windlass.api.devices.resource_names import VOLCANO_VGPU, compute_share, profile_of
from windlass.api.quantities import is_device
from windlass.model.devices import hami_registration
from windlass.model.devices.dra_devices import DRIVER
from windlass.model.devices.unreadable_labels import number
from windlass.spi.devices import DeviceMode, SliceProfile
from windlass.spi.objects import Device

MAX_DEVICES = 1024
"""Maximum number of devices of one kind on a node; more are ignored.

The largest real nodes have 16.
"""
REGISTERED = VOLCANO_VGPU.number
"""Resource of devices that Volcano's vGPU device plugin allocates."""
HAMI_HANDSHAKES = ("hami.io/node-handshake", "hami.io/node-handshake-nvidia")
"""Node annotations of HAMi: ``Reported …`` by its device plugin, ``Deleted…`` without it."""
UNHEALTHY_VOLCANO = "volcano.sh/gpu-unhealthy-ids"
"""Node annotation: indices of devices that Volcano's older device plugin found unhealthy."""
_STRATEGY = "nvidia.com/gpu.sharing-strategy"
_ASCEND_MIB = {
    "huawei.com/Ascend910A": 32768,
    "huawei.com/Ascend910B2": 65536,
    "huawei.com/Ascend910B3": 65536,
    "huawei.com/Ascend910B4": 32768,
    "huawei.com/Ascend310P": 24576,
}
"""Memory of devices with a resource name that states the model."""


def devices_of(view: views.NodeObject) -> tuple[Device, ...]:
    """Return all devices of a node, numbered from 0 per resource."""
    recorded = _records(view)
    devices: tuple[Device, ...] = ()
    amounts = amounts_of(view)
    for resource, units in sorted(amounts.items()):
        if resource == REGISTERED or not is_device(resource) or units < WHOLE:
            continue
        if resource in recorded:
            devices += recorded[resource]
        else:
            devices += _labelled(view, resource, min(units // WHOLE, MAX_DEVICES))
    for resource, recorded_devices in recorded.items():
        if amounts.get(resource, 0) < WHOLE:  # all are sliced, and none counts as a whole
            devices += tuple(device for device in recorded_devices if device.mode is DeviceMode.SLICED)
    return devices + registered(view)


def amounts_of(view: views.NodeObject) -> Mapping[str, int]:
    """Return the resources of a node, with devices as whole devices.

    Volcano's and HAMi's plugins list devices by the number of their slots. HAMi uses
    the name of the devices themselves. Their number comes from its registration or from
    feature discovery. Unhealthy devices of a node agent count, although they are not
    allocatable: their health is a property of each device.
    """
    allocatable = node_annotation.amounts_with_unhealthy(view.annotations, view.allocatable, unit=WHOLE)
    if names.REGISTER_HAMI in view.annotations and (hami := _hami_device_count(view)) is not None:
        return {**allocatable, GPU: min(hami * WHOLE, allocatable.get(GPU, 0))}
    if REGISTERED not in allocatable:
        return allocatable
    devices = registered(view)
    amounts = {name: units for name, units in allocatable.items() if name != REGISTERED}
    if devices:
        amounts[REGISTERED] = len(devices) * WHOLE
    return amounts


def _hami_device_count(view: views.NodeObject) -> int | None:
    """Return the number of devices on a node of HAMi's device plugin, without those in MIG mode.

    ``None`` if no source states it.
    """
    devices = hami_registration.read(view.annotations.get(names.REGISTER_HAMI, ""))
    if not devices:
        return number(view.labels.get("nvidia.com/gpu.count", "")) or None
    return sum(device.mode is not DeviceMode.SLICED for device in devices)


def _hami_registered(view: views.NodeObject) -> tuple[Device, ...]:
    """Return the devices that HAMi's device plugin registered; unhealthy if the plugin is gone."""
    devices = hami_registration.read(view.annotations.get(names.REGISTER_HAMI, ""))
    removed = any(view.annotations.get(name, "").startswith("Deleted") for name in HAMI_HANDSHAKES)
    return tuple(replace(device, healthy=False) for device in devices) if removed else devices


def whole(devices: Iterable[Device]) -> dict[str, int]:
    """Return the number of devices per resource, in engine units."""
    amounts: dict[str, int] = {}
    for device in devices:
        if device.mode is DeviceMode.NAMED:
            amounts.setdefault(device.resource, 0)
            continue
        amounts[device.resource] = amounts.get(device.resource, 0) + WHOLE
    return amounts


def quota_of(view: views.NodeObject, listed: tuple[Device, ...] = ()) -> dict[str, int]:
    """Return resources that only queues count, in addition to the node's own.

    Queues that count GPUs alone divide them, in thousandths of GPUs. ``listed``:
    devices of the node in ResourceSlices.
    """
    gpus = sum(
        device.resource.startswith(DRIVER) and device.mode is not DeviceMode.NAMED for device in listed
    )
    total = (len(registered(view)) + gpus) * WHOLE
    for resource, units in view.allocatable.items():
        if profile := profile_of(resource):
            total += compute_share(profile) * (units // WHOLE)
    return {GPU: total} if total else {}


def carves(view: views.NodeObject) -> bool:
    """Return whether MIG slices are created on request on this node."""
    return view.labels.get(names.MIG_MODE) in ("dynamic", "either") or any(
        record.dynamic for record in node_annotation.read(view.annotations).cards
    )


def by_plugin(view: views.NodeObject) -> bool:
    """Return whether a device plugin allocates the node's NVIDIA devices, and only whole ones."""
    if view.allocatable.get(GPU, 0) < WHOLE or names.REGISTER_HAMI in view.annotations:
        return False
    if names.SIMULATED in view.labels or names.MIG_MODE in view.labels or GPU in _records(view):
        return False
    return _mode(GPU, view.labels) is DeviceMode.PLAIN


# ------------------------------------------------------------------ the agent's record


def _records(view: views.NodeObject) -> dict[str, tuple[Device, ...]]:
    record = node_annotation.read(view.annotations)
    by_resource: dict[str, tuple[Device, ...]] = {}
    for device in record.cards:
        if device.mig and not device.dynamic:
            continue  # its slices are amounts of their own
        by_resource[device.resource] = (*by_resource.get(device.resource, ()), _device(device))
    if GPU not in by_resource and (registered_by_hami := _hami_registered(view)):
        by_resource[GPU] = registered_by_hami
    return by_resource


@lru_cache(maxsize=4096)
def _device(record: node_annotation.DeviceRecord) -> Device:
    mode = DeviceMode.PLAIN
    if record.dynamic:
        mode = DeviceMode.SLICED if record.mig else DeviceMode.EITHER
    return Device(
        index=record.index,
        resource=record.resource,
        model=record.model,
        memory_mib=record.memory_mib,
        uuid=record.uuid,
        healthy=record.healthy,
        numa=record.numa,
        link_group=record.link_group,
        mode=mode,
        compute=record.capability,
        geometry=tuple(_profile(place) for place in record.placements),
    )


def _profile(place: node_annotation.ProfilePlacement) -> SliceProfile:
    return SliceProfile(
        name=place.profile,
        compute=place.compute,
        size=place.size,
        starts=place.starts,
        memory_mib=place.memory_mib,
        sms=place.multiprocessors,
        media=place.profile.endswith("+me"),
    )


# ------------------------------------------------------------------ Volcano's registration


def registered(view: views.NodeObject) -> tuple[Device, ...]:
    """Return the devices that Volcano's vGPU device plugin registered; none without it."""
    text = view.annotations.get(names.VGPU_REGISTER_VOLCANO, "")
    return _registered(text) if text and REGISTERED in view.allocatable else ()


@lru_cache(maxsize=1024)
def _registered(text: str) -> tuple[Device, ...]:
    """Return the devices in ``uuid,slots,memMiB,type,health,mode:…``, without invalid entries."""
    return tuple(_entries(text))


def _entries(text: str) -> Iterator[Device]:
    for index, entry in enumerate(piece for piece in text.split(":") if piece.strip()):
        fields = [field.strip() for field in entry.split(",")]
        if len(fields) < 5 or not (fields[2].isascii() and fields[2].isdecimal()) or len(fields[2]) > 9:
            continue
        yield Device(
            index=index,
            resource=REGISTERED,
            model=fields[3],
            memory_mib=int(fields[2]),
            uuid=fields[0],
            healthy=fields[4].lower() == "true",
            mode=DeviceMode.SLICED if fields[5:6] == ["mig"] else DeviceMode.PLAIN,
            slots=int(fields[1])
            if fields[1].isascii() and fields[1].isdecimal() and len(fields[1]) < 5
            else 0,
        )


# ------------------------------------------------------------------ labels


def _labelled(view: views.NodeObject, resource: str, count: int) -> tuple[Device, ...]:
    labels = view.labels
    compute = (0, 0)
    mode = _mode(resource, labels)
    if resource == GPU:
        major = number(labels.get("nvidia.com/gpu.compute.major", ""))
        compute = (major, number(labels.get("nvidia.com/gpu.compute.minor", "")))
        mode = {"dynamic": DeviceMode.SLICED, "either": DeviceMode.EITHER}.get(
            labels.get(names.MIG_MODE, ""), mode
        )
    described = GPU if resource == RENAMED else resource
    product = labels.get(f"{described}.product", "") or labels.get(f"{described}.product-name", "")
    memory = number(labels.get(f"{described}.memory", "")) or _ASCEND_MIB.get(resource, 0)
    if not memory:
        memory = 1024 * number(labels.get(f"{described}.vram", "").removesuffix("G"))
    if mode is DeviceMode.WHOLE and labels.get(_STRATEGY) == "mps":
        memory //= max(1, number(labels.get("nvidia.com/gpu.replicas", "")))
    devices = _devices(resource, count, product, memory, compute, mode)
    sick = view.annotations.get(UNHEALTHY_VOLCANO, "") if resource == GPU else ""
    return _without(devices, sick) if sick else devices


@lru_cache(maxsize=1024)
def _without(devices: tuple[Device, ...], sick: str) -> tuple[Device, ...]:
    """Return the devices with those at the indices ``sick`` (``"0,3"``) marked unhealthy."""
    indices = {index.strip() for index in sick.split(",")}
    return tuple(
        replace(device, healthy=False) if str(device.index) in indices else device for device in devices
    )


def _mode(resource: str, labels: Mapping[str, str]) -> DeviceMode:
    """Return ``WHOLE`` if the resource's units are shares that a device plugin allocates."""
    return DeviceMode.PLAIN if unit_of(resource, labels) is None else DeviceMode.WHOLE


@lru_cache(maxsize=1024)
def _devices(
    resource: str, count: int, model: str, memory_mib: int, compute: tuple[int, int], mode: DeviceMode
) -> tuple[Device, ...]:
    return tuple(
        Device(index, resource, model, memory_mib, mode=mode, compute=compute) for index in range(count)
    )
