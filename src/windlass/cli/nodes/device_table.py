"""Every device of every node with its holders, from the objects alone, on any server.

Devices are those that a node describes (:mod:`windlass.api.devices.node_annotation`).
Without a description they are those that the scheduler sees: by amounts and labels, by
registrations of device plugins, or by ResourceSlices of drivers. Allocations are read
from the pods' annotations (:mod:`windlass.api.devices.assignment_annotations`), or from
their resource claims. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from windlass.api import views
from windlass.api.devices import assignment_annotations, node_annotation
from windlass.api.devices.assignment_annotations import WHOLE, DeviceAssignment
from windlass.api.devices.node_annotation import DeviceRecord
from windlass.api.devices.plugin_units import PluginUnit, unit_of
from windlass.api.devices.request_parser import containers_asking, profile_of
from windlass.api.devices.sharing_modes import supported_modes
from windlass.cli import resources
from windlass.cli.nodes.device_use import used_mib
from windlass.model.devices.consumable_capacity import share_of
from windlass.model.devices.dra_claims import DraClaims
from windlass.model.devices.node_devices import devices_of
from windlass.model.devices.usage import UUID_ANNOTATIONS, shares_held, slot_resource
from windlass.node.devices.container_devices import resource_of, wanted_slices, whole_devices
from windlass.spi.devices import DeviceMode
from windlass.spi.objects import Device

Object = Mapping[str, Any]
_MOST_COMPUTE_SLICES = 7


@dataclass(frozen=True, slots=True)
class Holding:
    """Share of one device that a pod holds.

    ``pod`` is ``namespace/name``. ``named``: the pod names this device. Otherwise
    another component allocated a device without saying which, and any free one is
    shown.
    """

    pod: str
    share: DeviceAssignment
    named: bool = True
    used_mib: int | None = None
    """Measured memory in MiB; ``None`` if nothing measures it."""


@dataclass(slots=True)
class DeviceRow:
    """A device of a node, or a unit that its device plugin makes of one (``unit``).

    ``known``: the node describes this device.
    """

    node: str
    device: DeviceRecord
    known: bool = True
    unit: PluginUnit | None = None
    holdings: list[Holding] = field(default_factory=list)

    @property
    def whole(self) -> bool:
        """Return whether a pod holds the whole device."""
        return any(holding.share.whole for holding in self.holdings)

    @property
    def free_milli(self) -> int:
        if not self.device.healthy or self.whole or self.device.mig:
            return 0
        return max(0, WHOLE - sum(holding.share.milli for holding in self.holdings))

    @property
    def free_mib(self) -> int:
        if not self.device.healthy or self.whole or self.device.mig:
            return 0
        return max(0, self.device.memory_mib - sum(holding.share.memory_mib for holding in self.holdings))

    @property
    def slices(self) -> list[tuple[str, int, int]]:
        """(profile, start, size) of all MIG instances that exist or are allocated, by start."""
        sizes = {place.profile: place.size for place in self.device.placements}
        sizes_by_place = {
            (i.profile, i.start): i.size or sizes.get(i.profile, 1) for i in self.device.instances
        }
        for holding in self.holdings:
            share = holding.share
            if share.profile:
                sizes_by_place.setdefault((share.profile, share.start), sizes.get(share.profile, 1))
        return sorted(((p, s, size) for (p, s), size in sizes_by_place.items()), key=lambda each: each[1])

    def free_slices(self) -> dict[str, int]:
        """Return how many more instances of each profile the device could hold, each profile alone.

        If instances are not created on request, these are the existing ones that no pod
        holds.
        """
        if not self.device.mig or not self.device.healthy:
            return {}
        held = {(h.share.profile, h.share.start) for h in self.holdings if h.share.profile}
        if not self.device.dynamic:
            found: dict[str, int] = {}
            for instance in self.device.instances:
                if (instance.profile, instance.start) not in held:
                    found[instance.profile] = found.get(instance.profile, 0) + 1
            return found
        return _free_profiles(self.device, self.slices)


def _free_profiles(device: DeviceRecord, taken: Sequence[tuple[str, int, int]]) -> dict[str, int]:
    width = {place.profile: place.compute for place in device.placements}
    compute = _MOST_COMPUTE_SLICES - sum(width.get(profile, 0) for profile, _, _ in taken)
    occupied = {place for _, start, size in taken for place in range(start, start + size)}
    free: dict[str, int] = {}
    for place in device.placements:
        taken_places, count, compute_left = set(occupied), 0, compute
        most = place.most - sum(profile == place.profile for profile, _, _ in taken) if place.most else 99
        for start in sorted(place.starts, reverse=True):
            wanted = set(range(start, start + place.size))
            if not wanted & taken_places and compute_left >= place.compute and count < most:
                taken_places |= wanted
                compute_left -= place.compute
                count += 1
        if count:
            free[place.profile] = count
    return free


def rows_of(
    nodes: Iterable[Object], pods: Iterable[Object], claims: DraClaims | None = None
) -> list[DeviceRow]:
    """Return all devices of these nodes, in their order.

    Shares that a driver could make of a device are shown only if they are allocated.

    :param pods: pods that occupy a node
    :param claims: devices that drivers list, and their allocations
    """
    pods_by_node: dict[str, list[Object]] = {}
    for pod in pods:
        if resources.holds_resources(pod):
            pods_by_node.setdefault(pod["spec"]["nodeName"], []).append(pod)
    result: list[DeviceRow] = []
    for node in nodes:
        view = views.decode_node(views.encode(node))
        listed = claims.listed_devices(view.name) if claims is not None else ()
        rows = _devices_of(node, view, listed)
        node_pods = pods_by_node.get(view.name, ())
        silent = [pod for pod in node_pods if not (_hold_named(rows, pod, view, claims) or _hold(rows, pod))]
        for pod in silent:
            _hold_some(rows, pod)
        parts = {
            (slot_resource(device), device.index)
            for device in listed
            if device.mode is DeviceMode.NAMED and device.draws
        }
        _measure(rows, node, node_pods)
        result += [
            row for row in rows if row.holdings or (row.device.resource, row.device.index) not in parts
        ]
    return result


def _measure(rows: Iterable[DeviceRow], node: Object, pods: Iterable[Object]) -> None:
    """Add the measured memory to the holdings of shared devices."""
    by_key = {f"{pod['metadata']['namespace']}/{pod['metadata']['name']}": pod for pod in pods}
    for row in rows:
        row.holdings = [
            replace(held, used_mib=used_mib(node, by_key[held.pod], row.device.index))
            if held.pod in by_key and row.unit is None and not (held.share.whole or held.share.profile)
            else held
            for held in row.holdings
        ]


def _devices_of(node: Object, view: views.NodeObject, listed: Sequence[Device]) -> list[DeviceRow]:
    metadata = node["metadata"]
    records = node_annotation.read(metadata.get("annotations") or {}).cards
    rows = [DeviceRow(metadata["name"], record) for record in records]
    known = {record.resource for record in records}
    for device in (*devices_of(view), *listed):
        resource = slot_resource(device)
        if resource in known or (profile_of(resource) and known):
            continue
        entry = DeviceRecord(
            device.index,
            uuid=device.uuid,
            resource=resource,
            model=device.model,
            memory_mib=device.memory_mib,
            numa=device.numa,
            link_group=device.link_group,
            healthy=device.healthy and (device.mode is not DeviceMode.NAMED or bool(device.draws)),
        )
        unit = unit_of(resource, view.labels, view.allocatable.get(resource, 0) // WHOLE)
        rows.append(DeviceRow(metadata["name"], entry, known=False, unit=unit))
    return rows


def _hold_named(rows: list[DeviceRow], pod: Object, node: views.NodeObject, claims: DraClaims | None) -> bool:
    """Add holdings by claims, or by UUIDs that another scheduler wrote; False if there are none."""
    annotations, status = pod["metadata"].get("annotations") or {}, pod.get("status") or {}
    by_claim = pod["spec"].get("resourceClaims") or status.get("extendedResourceClaimStatus")
    by_uuid = assignment_annotations.DEVICES not in annotations and any(
        word in annotations for word in UUID_ANNOTATIONS
    )
    if not by_uuid and (claims is None or not by_claim):
        return False
    by_slot = {(row.device.resource, row.device.index): row for row in rows}
    found = [
        (by_slot[slot], replace(use.part, milli=share_of(use.draws)) if use.share else use.part)
        for slot, use in shares_held(views.decode_pod(views.encode(pod)), node, claims)
        if slot in by_slot
    ]
    for row, share in found:
        row.holdings.append(Holding(_key(pod), share))
    return bool(found)


def _hold(rows: list[DeviceRow], pod: Object) -> bool:
    """Add holdings by the pod's annotations; False if it has none."""
    metadata = pod["metadata"]
    try:
        parts = assignment_annotations.from_annotations(metadata.get("annotations") or {})
    except assignment_annotations.AssignmentError:
        return False
    if not parts or not rows:
        return not containers_asking(pod)
    key = _key(pod)
    slices = wanted_slices(pod)
    if slices and not any(part.profile for part in parts) and not whole_devices(pod):
        _hold_counted(rows, key, parts, slices)
        return True
    resource = resource_of(pod, rows[0].device.resource)
    for part in parts:
        row = next((r for r in rows if (r.device.resource, r.device.index) == (resource, part.index)), None)
        if row is not None:
            row.holdings.append(Holding(key, part))
    return True


def _hold_some(rows: list[DeviceRow], pod: Object) -> None:
    """Add holdings for whole devices of a pod that another scheduler placed.

    Only the device plugin knows which devices they are.
    """
    count = whole_devices(pod)
    resource = resource_of(pod, rows[0].device.resource) if rows else ""
    free = [
        row for row in rows if row.device.resource == resource and not row.holdings and not row.device.mig
    ]
    for row in free[:count]:
        row.holdings.append(Holding(_key(pod), DeviceAssignment(row.device.index), named=False))


def _key(pod: Object) -> str:
    metadata = pod["metadata"]
    return f"{metadata.get('namespace', 'default')}/{metadata['name']}"


def _hold_counted(
    rows: list[DeviceRow], key: str, parts: Sequence[DeviceAssignment], slices: Mapping[str, int]
) -> None:
    """Add holdings for MIG instances that are only counted.

    An index is a number among the instances of the profile on the node.
    """
    for profile in slices:
        numbers = {part.index for part in parts}
        for row in rows:
            if profile_of(row.device.resource) == profile and row.device.index in numbers:
                row.holdings.append(Holding(key, DeviceAssignment(row.device.index)))
        every = [
            (row, instance)
            for row in rows
            if row.device.mig and not row.device.dynamic
            for instance in row.device.instances
            if instance.profile == profile and instance.uuid
        ]
        for part in parts:
            if part.index < len(every):
                row, instance = every[part.index]
                row.holdings.append(
                    Holding(key, DeviceAssignment(row.device.index, 0, 0, profile, instance.start))
                )


def record(row: DeviceRow) -> dict[str, Any]:
    """Return the row for ``-o json``."""
    device = row.device
    owners = {(h.share.profile, h.share.start): h.pod for h in row.holdings if h.share.profile}
    uuids = {(i.profile, i.start): i.uuid for i in device.instances}
    return {
        "node": row.node,
        "index": device.index,
        "resource": device.resource,
        "model": device.model,
        "uuid": device.uuid,
        "memoryMib": device.memory_mib,
        "compute": device.compute,
        "numa": device.numa if device.numa >= 0 else None,
        "linkGroup": device.link_group if device.link_group >= 0 else None,
        "pci": device.pci,
        "healthy": device.healthy,
        "reason": device.reason,
        "mig": device.mig,
        "carved": device.dynamic,
        "mps": device.mps,
        "mode": mode_text(row),
        "supportedModes": list(supported_modes(device)),
        "unit": row.unit.words if row.unit is not None else "",
        "slices": [
            {
                "profile": profile,
                "start": start,
                "size": size,
                "uuid": uuids.get((profile, start), ""),
                "pod": owners.get((profile, start)),
            }
            for profile, start, size in row.slices
        ],
        "holders": [_holder(holding) for holding in row.holdings],
        "free": {
            "whole": device.healthy and not device.mig and not row.holdings,
            "computePercent": row.free_milli / 10,
            "memoryMib": row.free_mib,
            "slices": row.free_slices(),
        },
    }


def _holder(holding: Holding) -> dict[str, Any]:
    share = holding.share
    result: dict[str, Any] = {"pod": holding.pod, "whole": share.whole}
    if not holding.named:
        result["told"] = False
    if share.profile:
        return {**result, "profile": share.profile, "start": share.start}
    if share.whole:
        return result
    result |= {"computePercent": share.milli / 10, "memoryMib": share.memory_mib}
    return result if holding.used_mib is None else {**result, "usedMemoryMib": holding.used_mib}


# -- texts of the table ---------------------------------------------------------------------------


def memory_text(mib: int) -> str:
    """Return memory as ``80G``, ``9.6G``, ``512M``; ``-`` if unknown."""
    if mib <= 0:
        return "-"
    if mib < 1024:
        return f"{mib}M"
    return f"{mib / 1024:.1f}".removesuffix(".0") + "G"


def mode_text(row: DeviceRow) -> str:
    """Return how the device is allocated: ``MIG``, ``shared``, ``whole``, ``-`` if free.

    For a unit it is its kind: ``time-slicing``, ``1g.5gb``.
    """
    if row.unit is not None:
        return row.unit.words
    if row.device.mig:
        return "MIG"
    if row.whole:
        return "whole"
    if row.holdings:
        return "shared,MPS" if row.device.mps else "shared"
    return "-"


def free_text(row: DeviceRow) -> str:
    """Return what is free: ``all``, ``70% 14G``, ``1×3g.20gb 5×1g.5gb``, ``-``."""
    if not row.device.healthy or row.whole:
        return "-"
    if row.device.mig:
        return _free_profiles_text(row)
    if not row.holdings:
        return "all"
    parts = [f"{row.free_milli / 10:g}%"]
    if row.device.memory_mib:
        parts.append(memory_text(row.free_mib) if row.free_mib else "0")
    return " ".join(parts)


def _free_profiles_text(row: DeviceRow) -> str:
    """Return counts of the largest and of the smallest free profile: ``1×4g.20gb 7×1g.5gb``."""
    left = {profile: count for profile, count in row.free_slices().items() if "+" not in profile}
    sizes = {place.profile: (place.compute, place.size) for place in row.device.placements}
    ordered = sorted(left, key=lambda profile: (sizes.get(profile, (0, 0)), profile), reverse=True)
    shown = dict.fromkeys([*ordered[:1], *ordered[-1:]])
    return " ".join(f"{left[profile]}×{profile}" for profile in shown) or "-"


def holder_text(row: DeviceRow) -> str:
    """Return the holders: ``train-0``, ``llm(30%,10G)``, ``notebook(1g.5gb@6)``.

    Free MIG instances are listed without a pod. ``train-0?`` is a pod that holds a
    device, but does not say which.
    """
    parts = [
        f"{_short(holding.pod)}{_share_text(holding)}{'' if holding.named else '?'}"
        for holding in row.holdings
    ]
    held = {(h.share.profile, h.share.start) for h in row.holdings}
    parts += [f"({profile}@{start})" for profile, start, _ in row.slices if (profile, start) not in held]
    return " ".join(parts)


def _short(pod: str) -> str:
    return pod.removeprefix("default/")


def _share_text(holding: Holding) -> str:
    share = holding.share
    if share.whole:
        return ""
    if share.profile:
        return f"({share.profile}@{share.start})"
    amounts = [f"{share.milli / 10:g}%"] if share.milli else []
    if share.memory_mib:
        amounts.append(memory_text(share.memory_mib))
    if holding.used_mib is not None:
        amounts.append(f"{memory_text(holding.used_mib) if holding.used_mib else '0'} used")
    return f"({','.join(amounts)})"
