"""Carving MIG instances where the scheduler decided, and removing them when their pod is gone.

Every instance that the agent makes is written down before it is made (``mig.json``): after a crash at any
moment the file and the device together say what is ours. What is not in the file is somebody else's and is never
touched; neither is an instance in which something runs. Instances do not outlive a reboot of the machine:
:meth:`Slicer.carve` makes a pod's slice again where it has gone.

Blocking calls; the caller runs them in a thread, one at a time.
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
    """Something that will go away is in the place: try again."""


class SliceRefused(Exception):
    """The slice cannot be had. ``lasting``: nor can any other of this device."""

    def __init__(self, message: str, *, lasting: bool = False) -> None:
        super().__init__(message)
        self.lasting = lasting


@dataclass(frozen=True, slots=True)
class MigInstance:
    """An instance of ours. ``owner``: the pod's uid; ``uuid`` is empty until it was made whole."""

    card: str
    profile: str
    start: int
    size: int
    owner: str
    uuid: str = ""

    @property
    def place(self) -> tuple[str, str, int]:
        return self.card, self.profile, self.start


class MigInstanceFile:
    """The file of what was made."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.made: dict[tuple[str, str, int], MigInstance] = {}
        try:
            entries = json.loads(path.read_bytes())["slices"]
        except FileNotFoundError:
            return
        for entry in entries:
            made = MigInstance(**entry)
            self.made[made.place] = made

    def put(self, made: MigInstance) -> None:
        self._write({**self.made, made.place: made})

    def drop(self, place: tuple[str, str, int]) -> None:
        if place in self.made:
            self._write({key: made for key, made in self.made.items() if key != place})

    def _write(self, made: dict[tuple[str, str, int], MigInstance]) -> None:
        write_atomic(self._path, json.dumps({"slices": [asdict(each) for each in made.values()]}))
        self.made = made


class Slicer(Protocol):
    """``records`` says which instances are the agent's own."""

    records: MigInstanceFile

    def carve(self, card: DeviceRecord, profile: str, start: int, owner: str) -> str:
        """The UUID of the pod's slice, made if it is not there.

        Raises :class:`SliceBusy` and :class:`SliceRefused`.
        """
        ...

    def remove(self, owners: Collection[str]) -> list[MigInstance]:
        """Remove what was made for others than ``owners``; what could not be removed yet, being in use."""
        ...


def place_of(card: DeviceRecord, profile: str, start: int) -> ProfilePlacement:
    """Raises :class:`SliceRefused` where the device has no such place."""
    if not card.mig:
        raise SliceRefused(f"GPU {card.index} is not in MIG mode")
    for place in card.placements:
        if place.profile == profile:
            if start in place.starts:
                return place
            raise SliceRefused(f"{profile} cannot begin at {start} on GPU {card.index} ({card.model})")
    raise SliceRefused(f"GPU {card.index} ({card.model}) has no MIG profile {profile}")


class SimulatedSlicer:
    """Slices of devices that are not there: only the bookkeeping."""

    def __init__(self, records: MigInstanceFile) -> None:
        self.records = records

    def carve(self, card: DeviceRecord, profile: str, start: int, owner: str) -> str:
        place = place_of(card, profile, start)
        _clear_way(self.records.made.values(), card, place, start, owner)
        number = f"MIG-{uuid.uuid5(_SIMULATED, f'{card.uuid}/{profile}/{start}')}"
        self.records.put(MigInstance(card.uuid, profile, start, place.size, owner, number))
        return number

    def remove(self, owners: Collection[str]) -> list[MigInstance]:
        for made in tuple(self.records.made.values()):
            if made.owner not in owners:
                self.records.drop(made.place)
        return []


def _clear_way(
    made: Iterable[MigInstance], card: DeviceRecord, place: ProfilePlacement, start: int, owner: str
) -> None:
    for other in made:
        same = (other.card, other.profile, other.start) == (card.uuid, place.profile, start)
        if other.card != card.uuid or (same and other.owner == owner):
            continue
        if other.start < start + place.size and start < other.start + other.size:
            words = f"slice {other.profile} at {other.start} of a pod that is ending is in the way"
            raise SliceBusy(f"GPU {card.index}: {words}")


class NvmlSlicer:
    """Slices of real devices. ``nvml`` is open."""

    def __init__(self, nvml: Nvml, records: MigInstanceFile) -> None:
        self._nvml = nvml
        self._lib = nvml.library
        self.records = records

    # -- making --------------------------------------------------------------------------------

    def carve(self, card: DeviceRecord, profile: str, start: int, owner: str) -> str:
        place = place_of(card, profile, start)
        try:
            handle = self._handle(card)
            names = self._profiles(handle)
            present = self._nvml.instances(handle, {number: name for name, number in names.items()})
            there = self._meet(card, place, start, owner, present)
            made = self._own(card, place, start, owner)
            if there is None:
                self._create(handle, names[profile], start, place.size)
            return self._complete(handle, made, names)
        except self._nvml.error as error:
            raise self._refusal(card, profile, start, error) from error

    def _handle(self, card: DeviceRecord) -> Any:
        return self._lib.nvmlDeviceGetHandleByUUID(card.uuid)

    def _profiles(self, handle: Any) -> dict[str, int]:
        return self._nvml.geometry(handle).profiles

    def _meet(
        self,
        card: DeviceRecord,
        place: ProfilePlacement,
        start: int,
        owner: str,
        present: Iterable[GpuInstance],
    ) -> GpuInstance | None:
        """The pod's instance if it is there already; what else is in its place is removed, or refused."""
        for instance in present:
            if instance.start >= start + place.size or start >= instance.start + instance.size:
                continue
            made = self.records.made.get((card.uuid, instance.profile, instance.start))
            if made is None:
                raise SliceRefused(
                    f"GPU {card.index} has a MIG instance {instance.profile} at {instance.start} that Windlass "
                    "did not make; it is left alone",
                    lasting=True,
                )
            if made.owner == owner and (instance.profile, instance.start) == (place.profile, start):
                return instance
            raise SliceBusy(
                f"GPU {card.index}: slice {made.profile} at {made.start} of a pod that is ending is in the way"
            )
        return None

    def _own(self, card: DeviceRecord, place: ProfilePlacement, start: int, owner: str) -> MigInstance:
        """Write down that it is going to be ours, before it is there."""
        made = MigInstance(card.uuid, place.profile, start, place.size, owner)
        known = self.records.made.get(made.place)
        if known is not None and known.owner == owner:
            return known
        self.records.put(made)
        return made

    def _create(self, handle: Any, profile_id: int, start: int, size: int) -> None:
        placement = self._lib.c_nvmlGpuInstancePlacement_t()
        placement.start, placement.size = start, size
        self._lib.nvmlDeviceCreateGpuInstanceWithPlacement(handle, profile_id, ctypes.byref(placement))

    def _complete(self, handle: Any, made: MigInstance, names: Mapping[str, int]) -> str:
        """See that a compute instance spans the whole instance; its UUID."""
        instance = self._find(handle, made, names)
        if instance is None:
            raise SliceRefused(f"the driver made no {made.profile} at {made.start}, though it said so")
        if not instance.uuid:
            inside = self._lib.nvmlDeviceGetGpuInstanceById(handle, instance.identifier)
            self._lib.nvmlGpuInstanceCreateComputeInstance(inside, self._widest(inside))
            instance = self._find(handle, made, names)
        if instance is None or not instance.uuid:
            raise SliceRefused(f"the driver gives {made.profile} at {made.start} no MIG device")
        self.records.put(replace(made, uuid=instance.uuid))
        return instance.uuid

    def _find(self, handle: Any, made: MigInstance, names: Mapping[str, int]) -> GpuInstance | None:
        only = {names[made.profile]: made.profile} if made.profile in names else {}
        found = self._nvml.instances(handle, only)
        return next((each for each in found if each.start == made.start), None)

    def _widest(self, instance: Any) -> int:
        """The compute profile with the most slices: of those as wide, the first (without extras)."""
        lib = self._lib
        best: tuple[int, int] | None = None
        for slot in range(int(lib.NVML_COMPUTE_INSTANCE_PROFILE_COUNT)):
            info = self._nvml.unknown(
                lambda slot=slot: lib.nvmlGpuInstanceGetComputeInstanceProfileInfo(
                    instance, slot, lib.NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED
                ),
                None,
            )
            if info is not None and (best is None or int(info.sliceCount) > best[0]):
                best = int(info.sliceCount), int(info.id)
        if best is None:
            raise SliceRefused("the driver names no compute profile for the instance")
        return best[1]

    def _refusal(self, card: DeviceRecord, profile: str, start: int, error: Exception) -> Exception:
        lib, code = self._lib, self._nvml.code(error)
        words = f"GPU {card.index}: the driver does not make {profile} at {start}: {error}"
        if code in (lib.NVML_ERROR_IN_USE, lib.NVML_ERROR_INSUFFICIENT_RESOURCES):
            return SliceBusy(words)
        if code == lib.NVML_ERROR_NO_PERMISSION:
            words += " (making MIG instances needs root)"
        lasting = code in (lib.NVML_ERROR_NO_PERMISSION, lib.NVML_ERROR_NOT_SUPPORTED)
        return SliceRefused(words, lasting=lasting)

    # -- removing ------------------------------------------------------------------------------

    def remove(self, owners: Collection[str]) -> list[MigInstance]:
        left = []
        for made in tuple(self.records.made.values()):
            if made.owner in owners:
                continue
            try:
                gone = self._remove(made)
            except self._nvml.error as error:
                gone = self._nvml.code(error) in (
                    self._lib.NVML_ERROR_NOT_FOUND,
                    self._lib.NVML_ERROR_NOT_SUPPORTED,  # MIG mode was switched off, and with it all instances
                )
            if gone:
                self.records.drop(made.place)
            else:
                left.append(made)
        return left

    def _remove(self, made: MigInstance) -> bool:
        """Raises the library's error where it is in use."""
        handle = self._lib.nvmlDeviceGetHandleByUUID(made.card)
        names = self._profiles(handle)
        instance = self._find(handle, made, names)
        if instance is None:
            return True
        inside = self._lib.nvmlDeviceGetGpuInstanceById(handle, instance.identifier)
        for compute in self._compute_instances(inside):
            self._lib.nvmlComputeInstanceDestroy(compute)
        self._lib.nvmlGpuInstanceDestroy(inside)
        return True

    def _compute_instances(self, instance: Any) -> list[Any]:
        lib = self._lib
        found: list[Any] = []
        for slot in range(int(lib.NVML_COMPUTE_INSTANCE_PROFILE_COUNT)):
            info = self._nvml.unknown(
                lambda slot=slot: lib.nvmlGpuInstanceGetComputeInstanceProfileInfo(
                    instance, slot, lib.NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED
                ),
                None,
            )
            if info is None:
                continue
            room = (lib.c_nvmlComputeInstance_t * 8)()
            count = ctypes.c_uint(0)
            lib.nvmlGpuInstanceGetComputeInstances(instance, int(info.id), room, ctypes.byref(count))
            found += [room[place] for place in range(count.value)]
        return found
