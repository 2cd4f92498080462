"""This machine's devices as they are now: what pods are admitted with, and what each of them gets.

The scheduler's decision stands in the pod's annotations. Admission checks it against what is true here, writes it
into the ledger and carves the slices; from then on the ledger says what the pod has, also after a restart.
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
    ContainerDevices,
    VisibleDevice,
    draws,
    resource_of,
    shared_hold,
    wanted_slices,
    whole_devices,
)
from windlass.node.devices.discovery import Inventory, key_of
from windlass.node.devices.mig_instances import Slicer, SliceRefused
from windlass.node.devices.mps import Daemon
from windlass.node.runtime.threads import in_thread

_PLACE = "let the windlass scheduler place it instead of setting nodeName"


class Rejected(Exception):
    """The pod cannot have what it was bound with; its text is for the pod's owner."""


class DeviceManager:
    """One per agent. ``slicer`` is None where no device can be carved."""

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
        self.refused: set[str] = set()
        """UUIDs of devices that the driver does not let us carve."""
        self.carving = asyncio.Lock()
        """Held while instances are made or removed, and while what exists is listed."""
        self._changed: list[Callable[[], None]] = []
        self.released: Callable[[], None] = lambda: None
        """Called when a pod has given back what it had: its slices can go."""

    def on_change(self, told: Callable[[], None]) -> None:
        """``told`` is called when what is published of the devices may have changed."""
        self._changed.append(told)

    def _tell(self) -> None:
        for told in self._changed:
            told()

    @property
    def by_key(self) -> dict[str, DeviceRecord]:
        """The devices by their names in the ledger."""
        return {key_of(card): card for card in self.inventory.cards}

    # -- admission -----------------------------------------------------------------------------

    async def admit(self, uid: str, key: str, pod: Mapping[str, Any]) -> None:
        """Take what the binding names for the pod ``key``; once more is no change.

        Raises :class:`Rejected` where that cannot be, :class:`DeviceBusy` and ``SliceBusy`` where it cannot
        be yet.
        """
        fresh = self.take(uid, key, pod)
        try:
            await self._carve_all(uid)
        except SliceRefused as error:
            if not fresh:
                raise
            self.allocations.release(uid)
            raise Rejected(str(error)) from error

    def take(self, uid: str, key: str, pod: Mapping[str, Any]) -> bool:
        """Claim what the binding names, unless the pod holds something already; whether anything was claimed.

        Raises :class:`Rejected` and :class:`DeviceBusy`.
        """
        claims = [] if self.allocations.of(uid) else self._claims(pod)
        if claims:
            memory = {name: card.memory_mib for name, card in self.by_key.items() if card.memory_mib}
            self.allocations.claim(uid, key, claims, memory)
        return bool(claims)

    def _claims(self, pod: Mapping[str, Any]) -> list[DeviceHold]:
        annotations = pod["metadata"].get("annotations") or {}
        try:
            parts = from_annotations(annotations)
            wanted = draws(pod)
        except AssignmentError as error:
            raise Rejected(str(error)) from error
        if not parts and not wanted:
            return []
        text = annotations.get(DEVICES, "")
        if not any(part.profile for part in parts) and (slices := wanted_slices(pod)):
            parts, static = self._split(pod, parts, slices)
        else:
            static = []
        self._check_counts(pod, wanted, parts, text)
        resource = resource_of(pod, self.inventory.kinds[0] if self.inventory.kinds else "")
        together = shared_hold(pod)
        found = [replace(self._claim(part, resource), together=together) for part in parts]
        return [*found, *static]

    def _split(
        self, pod: Mapping[str, Any], parts: Sequence[DeviceAssignment], slices: Mapping[str, int]
    ) -> tuple[list[DeviceAssignment], list[DeviceHold]]:
        """Devices, and slices that are there already and only counted: of these an index is a number among
        the slices of the profile."""
        whole = whole_devices(pod)
        if not whole and len(slices) == 1 and len(parts) == sum(slices.values()):
            (profile,) = slices
            every = self._static_slices(profile)
            if any(part.index >= len(every) for part in parts):
                raise Rejected(f"this machine has {len(every)} MIG slices {profile}; {_PLACE}")
            return [], [every[part.index] for part in parts]
        claims: list[DeviceHold] = []
        for profile, count in slices.items():
            claims += self._free_slices(profile, count)
        return list(parts)[:whole], claims

    def _check_counts(
        self,
        pod: Mapping[str, Any],
        wanted: Mapping[str, Sequence[ContainerDevices]],
        parts: Sequence[DeviceAssignment],
        text: str,
    ) -> None:
        whole = whole_devices(pod)
        if sum(part.whole for part in parts) != whole:
            raise Rejected(f"the pod asks for {whole} devices but was bound with {text or 'none'}; {_PLACE}")
        asks_parts = any(not draw.whole for every in wanted.values() for draw in every)
        has_parts = any(not part.whole for part in parts)
        if has_parts and not asks_parts:
            raise Rejected(f"the pod asks for no part of a device but was bound with one; {_PLACE}")
        shares = any(not (draw.whole or draw.profile) for every in wanted.values() for draw in every)
        if shares and not has_parts:
            raise Rejected(
                f"the pod asks for a part of a device but was bound with {text or 'none'}; {_PLACE}"
            )

    def _claim(self, part: DeviceAssignment, resource: str) -> DeviceHold:
        try:
            card = self.inventory.find(part.index, resource)
        except LookupError as error:
            raise Rejected(str(error)) from error
        if not card.healthy:
            raise Rejected(f"device {part.index} is not healthy: {card.reason}")
        if not part.profile:
            if card.mig:
                raise Rejected(f"device {part.index} is in MIG mode: only slices of it can be had")
            return DeviceHold(key_of(card), part.milli, part.memory_mib)
        size = next((place.size for place in card.placements if place.profile == part.profile), 0)
        there = [i for i in card.instances if (i.profile, i.start) == (part.profile, part.start)]
        if not there and not card.dynamic:
            raise Rejected(
                f"device {part.index} is not carved here, and has no {part.profile} at {part.start}"
            )
        size = there[0].size if there else size
        return DeviceHold(key_of(card), 0, 0, part.profile, part.start, size)

    def _static_slices(self, profile: str) -> list[DeviceHold]:
        """The instances of a profile on the devices that are not carved, in order of device and start."""
        return [
            DeviceHold(name, 0, 0, instance.profile, instance.start, instance.size)
            for name, card in self.by_key.items()
            if card.mig and not card.dynamic
            for instance in card.instances
            if instance.profile == profile and instance.uuid
        ]

    def _free_slices(self, profile: str, count: int) -> list[DeviceHold]:
        """So many that nobody has. Raises :class:`DeviceBusy` and :class:`Rejected`."""
        held = {each.claim: each.pod for each in self.allocations.held}
        every = self._static_slices(profile)
        free = [claim for claim in every if claim not in held and self.by_key[claim.device].healthy]
        if len(free) < count:
            if len(every) >= count and len(held):
                raise DeviceBusy(f"slice {profile}", next(iter(held.values())))
            raise Rejected(f"this machine has {len(every)} MIG slices {profile}; {_PLACE}")
        return free[:count]

    # -- slices --------------------------------------------------------------------------------

    async def _carve_all(self, uid: str) -> None:
        """See that the pod's slices exist. Raises ``SliceBusy``, :class:`SliceRefused`."""
        for claim in self.allocations.of(uid):
            card = self.by_key.get(claim.device)
            if claim.profile and card is not None and card.dynamic:
                await self._carve(card, claim, uid)

    async def _carve(self, card: DeviceRecord, claim: DeviceHold, uid: str) -> str:
        if self.slicer is None:
            raise SliceRefused(f"GPU {card.index} cannot be carved here", lasting=True)
        slicer = self.slicer
        async with self.carving:
            try:
                await in_thread(slicer.remove, self._owners())
                number = await in_thread(slicer.carve, card, claim.profile, claim.start, uid)
            except SliceRefused as error:
                if error.lasting:
                    self.refused.add(card.uuid)
                    self._replace(altered(card, dynamic=False))
                raise
        self._note_instance(card.uuid, SliceInstance(claim.profile, claim.start, claim.size, number))
        return number

    def _note_instance(self, uuid: str, instance: SliceInstance) -> None:
        card = next((card for card in self.inventory.cards if card.uuid == uuid), None)
        if card is not None and instance not in card.instances:
            kept = [i for i in card.instances if (i.profile, i.start) != (instance.profile, instance.start)]
            self._replace(altered(card, instances=tuple(sorted([*kept, instance], key=lambda i: i.start))))

    def _replace(self, card: DeviceRecord) -> None:
        cards = tuple(card if known.uuid == card.uuid else known for known in self.inventory.cards)
        self.inventory = replace(self.inventory, cards=cards)
        self._tell()

    def _owners(self) -> frozenset[str]:
        return frozenset(held.uid for held in self.allocations.held)

    async def sweep(self) -> None:
        """Remove the slices of pods that are gone, those that something still runs in excepted."""
        slicer = self.slicer
        if slicer is None or not any(
            made.owner not in self._owners() for made in slicer.records.made.values()
        ):
            return
        async with self.carving:
            before = set(slicer.records.made)
            await in_thread(slicer.remove, self._owners())
            gone = before - set(slicer.records.made)
        for card in self.inventory.cards:
            kept = tuple(i for i in card.instances if (card.uuid, i.profile, i.start) not in gone)
            if kept != card.instances:
                self._replace(altered(card, instances=kept))

    # -- handing out ---------------------------------------------------------------------------

    async def given(self, uid: str) -> list[VisibleDevice]:
        """What the pod has, with the names by which processes find it; a slice that has gone is made again.

        Raises ``SliceBusy``, :class:`SliceRefused`, ``LookupError`` for a device that is there no more.
        """
        found = []
        for claim in self.allocations.of(uid):
            card = self.by_key.get(claim.device)
            if card is None:
                raise LookupError(f"device {claim.device} is there no more")
            part = DeviceAssignment(card.index, claim.milli, claim.memory_mib, claim.profile, claim.start)
            found.append(VisibleDevice(card, part, await self._identifier(card, claim, uid)))
        return found

    async def _identifier(self, card: DeviceRecord, claim: DeviceHold, uid: str) -> str:
        if not claim.profile:
            return str(card.index) if self.inventory.simulated else card.uuid
        if card.dynamic:
            return await self._carve(card, claim, uid)
        for instance in card.instances:
            if (instance.profile, instance.start) == (claim.profile, claim.start) and instance.uuid:
                return instance.uuid
        raise LookupError(f"slice {claim.profile} at {claim.start} of device {card.index} is there no more")

    def release(self, uid: str) -> None:
        """Take back what the pod has; its slices go with the next sweep."""
        if self.allocations.release(uid):
            self.released()
