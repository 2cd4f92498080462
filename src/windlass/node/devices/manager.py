"""Devices of this node: admission of pods and the devices of each pod.

The pod's annotations have the scheduler's decision. Admission checks it against the actual
devices, stores it in the allocations and creates the MIG instances. From then on the allocations
say which devices the pod has, also after a restart.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from msgspec.structs import replace as altered

from windlass.api.devices.assignment_annotations import (
    DEVICES,
    AssignmentError,
    DeviceAssignment,
    from_annotations,
)
from windlass.api.devices.node_annotation import DeviceRecord, SliceInstance
from windlass.node.devices.allocations import DeviceAllocations, DeviceBusy, DeviceHold
from windlass.node.devices.container_devices import (
    RequestedDevices,
    VisibleDevice,
    device_requests,
    resource_of,
    shared_claim,
    wanted_slices,
    whole_devices,
)
from windlass.node.devices.discovery import Inventory, key_of
from windlass.node.devices.mig_instances import Slicer, SliceRefused
from windlass.node.devices.mps import Daemon
from windlass.node.runtime.threads import in_thread

_SCHEDULE = "let the windlass scheduler place it instead of setting nodeName"


class Rejected(Exception):
    """The pod cannot use the devices of its binding. The message is for the owner of the pod."""


class DeviceManager:
    """Devices of one node and their allocations.

    ``slicer``: None if no device supports MIG.
    ``refused``: UUIDs of devices on which the driver refused to create MIG instances.
    ``mig_lock``: held while instances are created, removed or listed.
    ``on_release``: called after a pod has released devices. Its instances can then be removed.
    """

    def __init__(
        self,
        inventory: Inventory,
        allocations: DeviceAllocations,
        slicer: Slicer | None = None,
        daemon: Daemon | None = None,
    ) -> None:
        self.inventory = inventory
        self.allocations = allocations
        self.slicer = slicer
        self.daemon = daemon or Daemon()
        self.runs_mps = False
        """True if the agent starts the MPS daemon itself."""
        self.refused: set[str] = set()
        self.mig_lock = asyncio.Lock()
        self._listeners: list[Callable[[], None]] = []
        self.on_release: Callable[[], None] = lambda: None

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call ``listener`` after changes of the published devices."""
        self._listeners.append(listener)

    def _notify(self) -> None:
        for listener in self._listeners:
            listener()

    @property
    def by_key(self) -> dict[str, DeviceRecord]:
        """Devices by their keys in the allocations."""
        return {key_of(device): device for device in self.inventory.devices}

    # -- admission -----------------------------------------------------------------------------

    async def admit(self, uid: str, key: str, pod: Mapping[str, Any]) -> None:
        """Allocate the devices that the binding of the pod ``key`` names, and create its instances.

        Repeating the call changes nothing. Raises :class:`Rejected` if that is impossible,
        :class:`DeviceBusy` and ``SliceBusy`` if it is impossible now.
        """
        allocated = self.allocate(uid, key, pod)
        try:
            await self._create_instances(uid)
        except SliceRefused as error:
            if not allocated:
                raise
            self.allocations.release(uid)
            raise Rejected(str(error)) from error

    def allocate(self, uid: str, key: str, pod: Mapping[str, Any]) -> bool:
        """Allocate the devices that the binding names, unless the pod has an allocation already.

        Return whether anything was allocated. Raises :class:`Rejected` and :class:`DeviceBusy`.
        """
        holds = [] if self.allocations.holds_of(uid) else self._holds(pod)
        if holds:
            memory = {name: device.memory_mib for name, device in self.by_key.items() if device.memory_mib}
            self.allocations.allocate(uid, key, holds, memory)
        return bool(holds)

    def _holds(self, pod: Mapping[str, Any]) -> list[DeviceHold]:
        annotations = pod["metadata"].get("annotations") or {}
        try:
            assignments = from_annotations(annotations)
            requests = device_requests(pod)
        except AssignmentError as error:
            raise Rejected(str(error)) from error
        if not assignments and not requests:
            return []
        text = annotations.get(DEVICES, "")
        if not any(assigned.profile for assigned in assignments) and (slices := wanted_slices(pod)):
            assignments, static = self._split(pod, assignments, slices)
        else:
            static = []
        self._check_counts(pod, requests, assignments, text)
        resource = resource_of(pod, self.inventory.kinds[0] if self.inventory.kinds else "")
        together = shared_claim(pod)
        holds = [replace(self._hold(assigned, resource), together=together) for assigned in assignments]
        return [*holds, *static]

    def _split(
        self, pod: Mapping[str, Any], assignments: Sequence[DeviceAssignment], slices: Mapping[str, int]
    ) -> tuple[list[DeviceAssignment], list[DeviceHold]]:
        """Return the assigned devices, and the holds of static slices.

        The index of such a slice is its number among the slices of the profile.
        """
        whole = whole_devices(pod)
        if not whole and len(slices) == 1 and len(assignments) == sum(slices.values()):
            (profile,) = slices
            static = self._static_slices(profile)
            if any(assigned.index >= len(static) for assigned in assignments):
                raise Rejected(f"this node has {len(static)} MIG slices {profile}; {_SCHEDULE}")
            return [], [static[assigned.index] for assigned in assignments]
        holds: list[DeviceHold] = []
        for profile, count in slices.items():
            holds += self._free_slices(profile, count)
        return list(assignments)[:whole], holds

    def _check_counts(
        self,
        pod: Mapping[str, Any],
        requests: Mapping[str, Sequence[RequestedDevices]],
        assignments: Sequence[DeviceAssignment],
        text: str,
    ) -> None:
        """Raise :class:`Rejected` unless the binding has the devices that the pod requests."""
        whole = whole_devices(pod)
        if sum(assigned.whole for assigned in assignments) != whole:
            raise Rejected(
                f"the pod requests {whole} devices but was bound with {text or 'none'}; {_SCHEDULE}"
            )
        requests_parts = any(not request.whole for listed in requests.values() for request in listed)
        has_parts = any(not assigned.whole for assigned in assignments)
        if has_parts and not requests_parts:
            raise Rejected(f"the pod requests no part of a device but was bound with one; {_SCHEDULE}")
        requests_shares = any(
            not (request.whole or request.profile) for listed in requests.values() for request in listed
        )
        if requests_shares and not has_parts:
            raise Rejected(
                f"the pod requests a part of a device but was bound with {text or 'none'}; {_SCHEDULE}"
            )

    def _hold(self, assigned: DeviceAssignment, resource: str) -> DeviceHold:
        try:
            device = self.inventory.find(assigned.index, resource)
        except LookupError as error:
            raise Rejected(str(error)) from error
        if not device.healthy:
            raise Rejected(f"device {assigned.index} is not healthy: {device.reason}")
        if not assigned.profile:
            if device.mig:
                raise Rejected(f"device {assigned.index} is in MIG mode: only its slices are available")
            return DeviceHold(key_of(device), assigned.milli, assigned.memory_mib)
        size = next((place.size for place in device.placements if place.profile == assigned.profile), 0)
        existing = [i for i in device.instances if (i.profile, i.start) == (assigned.profile, assigned.start)]
        if not existing and not device.dynamic:
            raise Rejected(
                f"device {assigned.index} has no MIG instance {assigned.profile} at {assigned.start}, and "
                "the agent does not create instances on it"
            )
        size = existing[0].size if existing else size
        return DeviceHold(key_of(device), 0, 0, assigned.profile, assigned.start, size)

    def _static_slices(self, profile: str) -> list[DeviceHold]:
        """Return the static instances of a profile, by device and start."""
        return [
            DeviceHold(name, 0, 0, instance.profile, instance.start, instance.size)
            for name, device in self.by_key.items()
            if device.mig and not device.dynamic
            for instance in device.instances
            if instance.profile == profile and instance.uuid
        ]

    def _free_slices(self, profile: str, count: int) -> list[DeviceHold]:
        """Return ``count`` free instances. Raises :class:`DeviceBusy` and :class:`Rejected`."""
        held = {each.hold: each.pod for each in self.allocations.held}
        static = self._static_slices(profile)
        free = [hold for hold in static if hold not in held and self.by_key[hold.device].healthy]
        if len(free) < count:
            if len(static) >= count and len(held):
                raise DeviceBusy(f"slice {profile}", next(iter(held.values())))
            raise Rejected(f"this node has {len(static)} MIG slices {profile}; {_SCHEDULE}")
        return free[:count]

    # -- slices --------------------------------------------------------------------------------

    async def _create_instances(self, uid: str) -> None:
        """Create the pod's missing instances. Raises ``SliceBusy`` and :class:`SliceRefused`."""
        for hold in self.allocations.holds_of(uid):
            device = self.by_key.get(hold.device)
            if hold.profile and device is not None and device.dynamic:
                await self._create_instance(device, hold, uid)

    async def _create_instance(self, device: DeviceRecord, hold: DeviceHold, uid: str) -> str:
        """Return the UUID of the instance, created if it does not exist."""
        if self.slicer is None:
            raise SliceRefused(f"the agent cannot create MIG instances on GPU {device.index}", lasting=True)
        slicer = self.slicer
        async with self.mig_lock:
            try:
                await in_thread(slicer.remove, self._owners())
                instance_uuid = await in_thread(slicer.create, device, hold.profile, hold.start, uid)
            except SliceRefused as error:
                if error.lasting:
                    self.refused.add(device.uuid)
                    self._replace(altered(device, dynamic=False))
                raise
        self._add_instance(device.uuid, SliceInstance(hold.profile, hold.start, hold.size, instance_uuid))
        return instance_uuid

    def _add_instance(self, uuid: str, instance: SliceInstance) -> None:
        device = next((device for device in self.inventory.devices if device.uuid == uuid), None)
        if device is not None and instance not in device.instances:
            others = [
                i for i in device.instances if (i.profile, i.start) != (instance.profile, instance.start)
            ]
            instances = sorted([*others, instance], key=lambda i: i.start)
            self._replace(altered(device, instances=tuple(instances)))

    def _replace(self, device: DeviceRecord) -> None:
        devices = tuple(device if known.uuid == device.uuid else known for known in self.inventory.devices)
        self.inventory = replace(self.inventory, devices=devices)
        self._notify()

    def _owners(self) -> frozenset[str]:
        return frozenset(held.uid for held in self.allocations.held)

    async def sweep(self) -> None:
        """Remove the instances of pods that are gone, except those that are still in use."""
        slicer = self.slicer
        if slicer is None or not any(
            instance.owner not in self._owners() for instance in slicer.records.instances.values()
        ):
            return
        async with self.mig_lock:
            before = set(slicer.records.instances)
            await in_thread(slicer.remove, self._owners())
            removed = before - set(slicer.records.instances)
        for device in self.inventory.devices:
            left = tuple(i for i in device.instances if (device.uuid, i.profile, i.start) not in removed)
            if left != device.instances:
                self._replace(altered(device, instances=left))

    # -- devices of a pod ----------------------------------------------------------------------

    async def visible_devices(self, uid: str) -> list[VisibleDevice]:
        """Return the pod's devices with the identifiers that processes use.

        A missing MIG instance is created again. Raises ``SliceBusy``, :class:`SliceRefused`, and
        ``LookupError`` for a device that no longer exists.
        """
        devices = []
        for hold in self.allocations.holds_of(uid):
            device = self.by_key.get(hold.device)
            if device is None:
                raise LookupError(f"device {hold.device} no longer exists")
            assigned = DeviceAssignment(device.index, hold.milli, hold.memory_mib, hold.profile, hold.start)
            devices.append(VisibleDevice(device, assigned, await self._identifier(device, hold, uid)))
        return devices

    async def _identifier(self, device: DeviceRecord, hold: DeviceHold, uid: str) -> str:
        if not hold.profile:
            return str(device.index) if self.inventory.simulated else device.uuid
        if device.dynamic:
            return await self._create_instance(device, hold, uid)
        for instance in device.instances:
            if (instance.profile, instance.start) == (hold.profile, hold.start) and instance.uuid:
                return instance.uuid
        raise LookupError(f"slice {hold.profile} at {hold.start} of device {device.index} no longer exists")

    def release(self, uid: str) -> None:
        """Release the pod's devices. Its instances are removed at the next :meth:`sweep`."""
        if self.allocations.release(uid):
            self.on_release()
