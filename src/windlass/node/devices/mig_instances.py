"""MIG instances that the agent creates for pods and removes after them.

Each instance is recorded in ``mig.json`` before it is created. So after a crash at any time, file
and device together identify the agent's instances. Other instances are never touched, nor are
instances in use. Instances do not survive a reboot: :meth:`Slicer.create` creates the instance of
a pod again.

All calls block. The caller runs them in a thread, one at a time.
"""

from __future__ import annotations

import ctypes
import json
import uuid
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from windlass.api.devices.node_annotation import DeviceRecord, ProfilePlacement
from windlass.kits.files import write_atomic
from windlass.node.devices.nvml import GpuInstance, Nvml

_SIMULATED = uuid.UUID("0f0b6f0a-3f0b-4f53-8c1c-53c9a2b7f6d1")


class SliceBusy(Exception):
    """An instance of a pod that is ending overlaps. The call may be retried."""


class SliceRefused(Exception):
    """The instance cannot be created. ``lasting``: nor can any other on this device."""

    def __init__(self, message: str, *, lasting: bool = False) -> None:
        super().__init__(message)
        self.lasting = lasting


@dataclass(frozen=True, slots=True)
class MigInstance:
    """Instance of the agent.

    ``owner``: the pod's uid. ``uuid``: empty until the instance is complete.
    """

    device: str
    profile: str
    start: int
    size: int
    owner: str
    uuid: str = ""

    @property
    def place(self) -> tuple[str, str, int]:
        return self.device, self.profile, self.start


class MigInstanceFile:
    """File of the agent's instances: (UUID of the device, profile, start) → instance."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.instances: dict[tuple[str, str, int], MigInstance] = {}
        try:
            entries = json.loads(path.read_bytes())["slices"]
        except FileNotFoundError:
            return
        for entry in entries:
            fields = {key: value for key, value in entry.items() if key != "card"}
            instance = MigInstance(device=entry["card"], **fields)
            self.instances[instance.place] = instance

    def add(self, instance: MigInstance) -> None:
        self._write({**self.instances, instance.place: instance})

    def remove(self, place: tuple[str, str, int]) -> None:
        if place in self.instances:
            self._write({key: known for key, known in self.instances.items() if key != place})

    def _write(self, instances: dict[tuple[str, str, int], MigInstance]) -> None:
        entries = []
        for instance in instances.values():
            fields = asdict(instance)
            entries.append({"card": fields.pop("device"), **fields})
        write_atomic(self._path, json.dumps({"slices": entries}))
        self.instances = instances


class Slicer(Protocol):
    """Creates and removes MIG instances. ``records``: the agent's own instances."""

    records: MigInstanceFile

    def create(self, device: DeviceRecord, profile: str, start: int, owner: str) -> str:
        """Return the UUID of the pod's instance, created if it does not exist.

        Raises :class:`SliceBusy` and :class:`SliceRefused`.
        """
        ...

    def remove(self, owners: Collection[str]) -> list[MigInstance]:
        """Remove the instances of all pods but ``owners``. Return those that are still in use."""
        ...


def place_of(device: DeviceRecord, profile: str, start: int) -> ProfilePlacement:
    """Return the placement of a profile. Raises :class:`SliceRefused` without such a placement."""
    if not device.mig:
        raise SliceRefused(f"GPU {device.index} is not in MIG mode")
    for place in device.placements:
        if place.profile == profile:
            if start in place.starts:
                return place
            raise SliceRefused(f"{profile} cannot start at {start} on GPU {device.index} ({device.model})")
    raise SliceRefused(f"GPU {device.index} ({device.model}) has no MIG profile {profile}")


class SimulatedSlicer:
    """Slicer of simulated devices: it only keeps the records."""

    def __init__(self, records: MigInstanceFile) -> None:
        self.records = records

    def create(self, device: DeviceRecord, profile: str, start: int, owner: str) -> str:
        place = place_of(device, profile, start)
        _check_free(self.records.instances.values(), device, place, start, owner)
        instance_uuid = f"MIG-{uuid.uuid5(_SIMULATED, f'{device.uuid}/{profile}/{start}')}"
        self.records.add(MigInstance(device.uuid, profile, start, place.size, owner, instance_uuid))
        return instance_uuid

    def remove(self, owners: Collection[str]) -> list[MigInstance]:
        for record in tuple(self.records.instances.values()):
            if record.owner not in owners:
                self.records.remove(record.place)
        return []


def _check_free(
    record: Iterable[MigInstance], device: DeviceRecord, place: ProfilePlacement, start: int, owner: str
) -> None:
    for other in record:
        same = (other.device, other.profile, other.start) == (device.uuid, place.profile, start)
        if other.device != device.uuid or (same and other.owner == owner):
            continue
        if other.start < start + place.size and start < other.start + other.size:
            message = f"slice {other.profile} at {other.start} of a pod that is ending overlaps"
            raise SliceBusy(f"GPU {device.index}: {message}")


class NvmlSlicer:
    """Slicer of real devices. ``nvml`` must be open."""

    def __init__(self, nvml: Nvml, records: MigInstanceFile) -> None:
        self._nvml = nvml
        self._lib = nvml.library
        self.records = records

    # -- creation ------------------------------------------------------------------------------

    def create(self, device: DeviceRecord, profile: str, start: int, owner: str) -> str:
        place = place_of(device, profile, start)
        try:
            handle = self._handle(device)
            names = self._profiles(handle)
            present = self._nvml.instances(handle, {number: name for name, number in names.items()})
            existing = self._find_or_reject(device, place, start, owner, present)
            record = self._record(device, place, start, owner)
            if existing is None:
                self._create(handle, names[profile], start, place.size)
            return self._complete(handle, record, names)
        except self._nvml.error as error:
            raise self._error(device, profile, start, error) from error

    def _handle(self, device: DeviceRecord) -> Any:
        return self._lib.nvmlDeviceGetHandleByUUID(device.uuid)

    def _profiles(self, handle: Any) -> dict[str, int]:
        return self._nvml.geometry(handle).profiles

    def _find_or_reject(
        self,
        device: DeviceRecord,
        place: ProfilePlacement,
        start: int,
        owner: str,
        present: Iterable[GpuInstance],
    ) -> GpuInstance | None:
        """Return the pod's instance if it exists. Raise an error if another instance overlaps."""
        for instance in present:
            if instance.start >= start + place.size or start >= instance.start + instance.size:
                continue
            record = self.records.instances.get((device.uuid, instance.profile, instance.start))
            if record is None:
                raise SliceRefused(
                    f"GPU {device.index} has a MIG instance {instance.profile} at {instance.start} that Windlass "
                    "did not create; remove it to use the GPU",
                    lasting=True,
                )
            if record.owner == owner and (instance.profile, instance.start) == (place.profile, start):
                return instance
            raise SliceBusy(
                f"GPU {device.index}: slice {record.profile} at {record.start} of a pod that is ending overlaps"
            )
        return None

    def _record(self, device: DeviceRecord, place: ProfilePlacement, start: int, owner: str) -> MigInstance:
        """Record the instance before it is created."""
        record = MigInstance(device.uuid, place.profile, start, place.size, owner)
        known = self.records.instances.get(record.place)
        if known is not None and known.owner == owner:
            return known
        self.records.add(record)
        return record

    def _create(self, handle: Any, profile_id: int, start: int, size: int) -> None:
        placement = self._lib.c_nvmlGpuInstancePlacement_t()
        placement.start, placement.size = start, size
        self._lib.nvmlDeviceCreateGpuInstanceWithPlacement(handle, profile_id, ctypes.byref(placement))

    def _complete(self, handle: Any, record: MigInstance, names: Mapping[str, int]) -> str:
        """Create the compute instance that spans the whole GPU instance. Return the UUID."""
        instance = self._find(handle, record, names)
        if instance is None:
            raise SliceRefused(
                f"the driver did not create {record.profile} at {record.start} and reported no error"
            )
        if not instance.uuid:
            inside = self._lib.nvmlDeviceGetGpuInstanceById(handle, instance.identifier)
            self._lib.nvmlGpuInstanceCreateComputeInstance(inside, self._widest(inside))
            instance = self._find(handle, record, names)
        if instance is None or not instance.uuid:
            raise SliceRefused(f"the driver created no MIG device for {record.profile} at {record.start}")
        self.records.add(replace(record, uuid=instance.uuid))
        return instance.uuid

    def _find(self, handle: Any, record: MigInstance, names: Mapping[str, int]) -> GpuInstance | None:
        only = {names[record.profile]: record.profile} if record.profile in names else {}
        existing = self._nvml.instances(handle, only)
        return next((each for each in existing if each.start == record.start), None)

    def _widest(self, instance: Any) -> int:
        """Return the compute profile with the most slices: the first of equal ones, which has no extras."""
        lib = self._lib
        best: tuple[int, int] | None = None
        for slot in range(int(lib.NVML_COMPUTE_INSTANCE_PROFILE_COUNT)):
            info = self._nvml.optional(
                lambda slot=slot: lib.nvmlGpuInstanceGetComputeInstanceProfileInfo(
                    instance, slot, lib.NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED
                ),
                None,
            )
            if info is not None and (best is None or int(info.sliceCount) > best[0]):
                best = int(info.sliceCount), int(info.id)
        if best is None:
            raise SliceRefused("the driver offers no compute profile for the instance")
        return best[1]

    def _error(self, device: DeviceRecord, profile: str, start: int, error: Exception) -> Exception:
        lib, code = self._lib, self._nvml.code(error)
        message = f"GPU {device.index}: the driver does not create {profile} at {start}: {error}"
        if code in (lib.NVML_ERROR_IN_USE, lib.NVML_ERROR_INSUFFICIENT_RESOURCES):
            return SliceBusy(message)
        if code == lib.NVML_ERROR_NO_PERMISSION:
            message += " (creating MIG instances requires root)"
        lasting = code in (lib.NVML_ERROR_NO_PERMISSION, lib.NVML_ERROR_NOT_SUPPORTED)
        return SliceRefused(message, lasting=lasting)

    # -- removal -------------------------------------------------------------------------------

    def remove(self, owners: Collection[str]) -> list[MigInstance]:
        left = []
        for record in tuple(self.records.instances.values()):
            if record.owner in owners:
                continue
            try:
                removed = self._remove(record)
            except self._nvml.error as error:
                removed = self._nvml.code(error) in (
                    self._lib.NVML_ERROR_NOT_FOUND,
                    self._lib.NVML_ERROR_NOT_SUPPORTED,  # MIG mode was switched off, and with it all instances
                )
            if removed:
                self.records.remove(record.place)
            else:
                left.append(record)
        return left

    def _remove(self, record: MigInstance) -> bool:
        """Remove an instance. Raises the library's error if it is in use."""
        handle = self._lib.nvmlDeviceGetHandleByUUID(record.device)
        names = self._profiles(handle)
        instance = self._find(handle, record, names)
        if instance is None:
            return True
        inside = self._lib.nvmlDeviceGetGpuInstanceById(handle, instance.identifier)
        for compute in self._compute_instances(inside):
            self._lib.nvmlComputeInstanceDestroy(compute)
        self._lib.nvmlGpuInstanceDestroy(inside)
        return True

    def _compute_instances(self, instance: Any) -> list[Any]:
        lib = self._lib
        instances: list[Any] = []
        for slot in range(int(lib.NVML_COMPUTE_INSTANCE_PROFILE_COUNT)):
            info = self._nvml.optional(
                lambda slot=slot: lib.nvmlGpuInstanceGetComputeInstanceProfileInfo(
                    instance, slot, lib.NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED
                ),
                None,
            )
            if info is None:
                continue
            buffer = (lib.c_nvmlComputeInstance_t * 8)()
            count = ctypes.c_uint(0)
            lib.nvmlGpuInstanceGetComputeInstances(instance, int(info.id), buffer, ctypes.byref(count))
            instances += [buffer[position] for position in range(count.value)]
        return instances
