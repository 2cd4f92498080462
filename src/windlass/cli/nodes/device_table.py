"""Every card of every node with who has what of it: from the objects alone, so it holds on any server.

What a node says of its cards one by one (:mod:`windlass.api.devices.node_annotation`) counts; else they are those that
the scheduler sees: by amounts and labels, as device plug-ins register them, or as drivers list them in ResourceSlices.
What pods have stands in their annotations (:mod:`windlass.api.devices.assignment_annotations`), or in the claims for
devices that are theirs. Pure."""

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
from windlass.cli import resources
from windlass.model.devices.consumable_capacity import share_of
from windlass.model.devices.dra_claims import DraClaims
from windlass.model.devices.node_devices import devices_of
from windlass.model.devices.usage import UUID_WORDS, shares_held, slot_resource
from windlass.node.devices.container_devices import resource_of, wanted_slices, whole_devices
from windlass.spi.devices import DeviceMode
from windlass.spi.objects import Device

Object = Mapping[str, Any]
_MOST_COMPUTE_SLICES = 7


@dataclass(frozen=True, slots=True)
class Holding:
    """A pod's part of one card. ``pod`` is ``namespace/name``. ``told``: the pod says that it is this card; else
    somebody who does not say has given it one, and any that is free stands for it."""

    pod: str
    part: DeviceAssignment
    told: bool = True


@dataclass(slots=True)
class DeviceRow:
    """A card of a node, or a unit that its device plug-in makes of one (``unit``). ``known``: the node tells of this
    card itself."""

    node: str
    card: DeviceRecord
    known: bool = True
    unit: PluginUnit | None = None
    holdings: list[Holding] = field(default_factory=list)

    @property
    def whole(self) -> bool:
        """Whether a pod has all of it."""
        return any(holding.part.whole for holding in self.holdings)

    @property
    def free_milli(self) -> int:
        if not self.card.healthy or self.whole or self.card.mig:
            return 0
        return max(0, WHOLE - sum(holding.part.milli for holding in self.holdings))

    @property
    def free_mib(self) -> int:
        if not self.card.healthy or self.whole or self.card.mig:
            return 0
        return max(0, self.card.memory_mib - sum(holding.part.memory_mib for holding in self.holdings))

    @property
    def slices(self) -> list[tuple[str, int, int]]:
        """(profile, start, size) of all that is cut or given out, by start."""
        sizes = {place.profile: place.size for place in self.card.placements}
        found = {(i.profile, i.start): i.size or sizes.get(i.profile, 1) for i in self.card.instances}
        for holding in self.holdings:
            part = holding.part
            if part.profile:
                found.setdefault((part.profile, part.start), sizes.get(part.profile, 1))
        return sorted(((p, s, size) for (p, s), size in found.items()), key=lambda each: each[1])

    def free_slices(self) -> dict[str, int]:
        """How many more of each profile the card could hold, alone; of a card that is not carved, what it
        has and nobody holds."""
        if not self.card.mig or not self.card.healthy:
            return {}
        held = {(h.part.profile, h.part.start) for h in self.holdings if h.part.profile}
        if not self.card.dynamic:
            found: dict[str, int] = {}
            for instance in self.card.instances:
                if (instance.profile, instance.start) not in held:
                    found[instance.profile] = found.get(instance.profile, 0) + 1
            return found
        return _room(self.card, self.slices)


def _room(card: DeviceRecord, taken: Sequence[tuple[str, int, int]]) -> dict[str, int]:
    width = {place.profile: place.compute for place in card.placements}
    compute = _MOST_COMPUTE_SLICES - sum(width.get(profile, 0) for profile, _, _ in taken)
    axis = {place for _, start, size in taken for place in range(start, start + size)}
    found: dict[str, int] = {}
    for place in card.placements:
        busy, count, left = set(axis), 0, compute
        most = place.most - sum(profile == place.profile for profile, _, _ in taken) if place.most else 99
        for start in sorted(place.starts, reverse=True):
            wanted = set(range(start, start + place.size))
            if not wanted & busy and left >= place.compute and count < most:
                busy |= wanted
                left -= place.compute
                count += 1
        if count:
            found[place.profile] = count
    return found


def rows_of(
    nodes: Iterable[Object], pods: Iterable[Object], claims: DraClaims | None = None
) -> list[DeviceRow]:
    """All cards of these nodes, in their order; ``pods``: those that occupy a node; ``claims``: what drivers list, and
    who was given it. Of the parts that a driver could make of a card those are shown that somebody has."""
    on: dict[str, list[Object]] = {}
    for pod in pods:
        if resources.holds_resources(pod):
            on.setdefault(pod["spec"]["nodeName"], []).append(pod)
    found: list[DeviceRow] = []
    for node in nodes:
        view = views.decode_node(views.encode(node))
        listed = claims.cards_of(view.name) if claims is not None else ()
        rows = _cards_of(node, view, listed)
        here = on.get(view.name, ())
        silent = [pod for pod in here if not (_hold_named(rows, pod, view, claims) or _hold(rows, pod))]
        for pod in silent:
            _hold_some(rows, pod)
        parts = {
            (slot_resource(one), one.index) for one in listed if one.mode is DeviceMode.NAMED and one.draws
        }
        found += [row for row in rows if row.holdings or (row.card.resource, row.card.index) not in parts]
    return found


def _cards_of(node: Object, view: views.NodeObject, listed: Sequence[Device]) -> list[DeviceRow]:
    metadata = node["metadata"]
    told = node_annotation.read(metadata.get("annotations") or {}).cards
    rows = [DeviceRow(metadata["name"], card) for card in told]
    known = {card.resource for card in told}
    for device in (*devices_of(view), *listed):
        resource = slot_resource(device)
        if resource in known or (profile_of(resource) and known):
            continue
        card = DeviceRecord(
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
        rows.append(DeviceRow(metadata["name"], card, known=False, unit=unit))
    return rows


def _hold_named(rows: list[DeviceRow], pod: Object, node: views.NodeObject, claims: DraClaims | None) -> bool:
    """Enter what a pod has by claims, or by the UUIDs that another scheduler wrote; False if it has nothing so."""
    notes, status = pod["metadata"].get("annotations") or {}, pod.get("status") or {}
    by_claim = pod["spec"].get("resourceClaims") or status.get("extendedResourceClaimStatus")
    by_uuid = assignment_annotations.DEVICES not in notes and any(word in notes for word in UUID_WORDS)
    if not by_uuid and (claims is None or not by_claim):
        return False
    at = {(row.card.resource, row.card.index): row for row in rows}
    found = [
        (at[slot], replace(use.part, milli=share_of(use.draws)) if use.share else use.part)
        for slot, use in shares_held(views.decode_pod(views.encode(pod)), node, claims)
        if slot in at
    ]
    for row, part in found:
        row.holdings.append(Holding(_key(pod), part))
    return bool(found)


def _hold(rows: list[DeviceRow], pod: Object) -> bool:
    """Enter what a pod has; False if it does not say."""
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
    resource = resource_of(pod, rows[0].card.resource)
    for part in parts:
        row = next((r for r in rows if (r.card.resource, r.card.index) == (resource, part.index)), None)
        if row is not None:
            row.holdings.append(Holding(key, part))
    return True


def _hold_some(rows: list[DeviceRow], pod: Object) -> None:
    """Whole cards of a pod that another scheduler placed: the device plug-in alone knows which."""
    count = whole_devices(pod)
    resource = resource_of(pod, rows[0].card.resource) if rows else ""
    free = [row for row in rows if row.card.resource == resource and not row.holdings and not row.card.mig]
    for row in free[:count]:
        row.holdings.append(Holding(_key(pod), DeviceAssignment(row.card.index), told=False))


def _key(pod: Object) -> str:
    metadata = pod["metadata"]
    return f"{metadata.get('namespace', 'default')}/{metadata['name']}"


def _hold_counted(
    rows: list[DeviceRow], key: str, parts: Sequence[DeviceAssignment], slices: Mapping[str, int]
) -> None:
    """Slices that are only counted: an index is a number among those of the profile on the node."""
    for profile in slices:
        numbers = {part.index for part in parts}
        for row in rows:
            if profile_of(row.card.resource) == profile and row.card.index in numbers:
                row.holdings.append(Holding(key, DeviceAssignment(row.card.index)))
        every = [
            (row, instance)
            for row in rows
            if row.card.mig and not row.card.dynamic
            for instance in row.card.instances
            if instance.profile == profile and instance.uuid
        ]
        for part in parts:
            if part.index < len(every):
                row, instance = every[part.index]
                row.holdings.append(
                    Holding(key, DeviceAssignment(row.card.index, 0, 0, profile, instance.start))
                )


def record(row: DeviceRow) -> dict[str, Any]:
    """The row as ``-o json`` prints it."""
    card = row.card
    owners = {(h.part.profile, h.part.start): h.pod for h in row.holdings if h.part.profile}
    uuids = {(i.profile, i.start): i.uuid for i in card.instances}
    return {
        "node": row.node,
        "index": card.index,
        "resource": card.resource,
        "model": card.model,
        "uuid": card.uuid,
        "memoryMib": card.memory_mib,
        "compute": card.compute,
        "numa": card.numa if card.numa >= 0 else None,
        "linkGroup": card.link_group if card.link_group >= 0 else None,
        "pci": card.pci,
        "healthy": card.healthy,
        "reason": card.reason,
        "mig": card.mig,
        "carved": card.dynamic,
        "mps": card.mps,
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
            "whole": card.healthy and not card.mig and not row.holdings,
            "computePercent": row.free_milli / 10,
            "memoryMib": row.free_mib,
            "slices": row.free_slices(),
        },
    }


def _holder(holding: Holding) -> dict[str, Any]:
    part = holding.part
    found: dict[str, Any] = {"pod": holding.pod, "whole": part.whole}
    if not holding.told:
        found["told"] = False
    if part.profile:
        return {**found, "profile": part.profile, "start": part.start}
    if part.whole:
        return found
    return {**found, "computePercent": part.milli / 10, "memoryMib": part.memory_mib}


# -- words for the table ---------------------------------------------------------------------------


def memory_text(mib: int) -> str:
    """``80G``, ``9.6G``, ``512M``; ``-`` where it is not known."""
    if mib <= 0:
        return "-"
    if mib < 1024:
        return f"{mib}M"
    return f"{mib / 1024:.1f}".removesuffix(".0") + "G"


def mode_text(row: DeviceRow) -> str:
    """How the card is handed out: ``MIG``, ``shared``, ``whole``, or ``-`` while it is free; of a unit, which:
    ``time-slicing``, ``1g.5gb``."""
    if row.unit is not None:
        return row.unit.words
    if row.card.mig:
        return "MIG"
    if row.whole:
        return "whole"
    if row.holdings:
        return "shared,MPS" if row.card.mps else "shared"
    return "-"


def free_text(row: DeviceRow) -> str:
    """What is left: ``all``, ``70% 14G``, ``1×3g.20gb 5×1g.5gb``, ``-``."""
    if not row.card.healthy or row.whole:
        return "-"
    if row.card.mig:
        return _free_slice_words(row)
    if not row.holdings:
        return "all"
    words = [f"{row.free_milli / 10:g}%"]
    if row.card.memory_mib:
        words.append(memory_text(row.free_mib) if row.free_mib else "0")
    return " ".join(words)


def _free_slice_words(row: DeviceRow) -> str:
    """The largest slice that can still be had, and how many of the smallest: ``1×4g.20gb 7×1g.5gb``."""
    left = {profile: count for profile, count in row.free_slices().items() if "+" not in profile}
    sizes = {place.profile: (place.compute, place.size) for place in row.card.placements}
    ordered = sorted(left, key=lambda profile: (sizes.get(profile, (0, 0)), profile), reverse=True)
    shown = dict.fromkeys([*ordered[:1], *ordered[-1:]])
    return " ".join(f"{left[profile]}×{profile}" for profile in shown) or "-"


def holder_text(row: DeviceRow) -> str:
    """``train-0``, ``llm(30%,10G)``, ``notebook(1g.5gb@6)``, and slices that nobody has; ``train-0?`` for a
    pod that has a card, but does not say which."""
    words = [
        f"{_short(holding.pod)}{_part_words(holding.part)}{'' if holding.told else '?'}"
        for holding in row.holdings
    ]
    held = {(h.part.profile, h.part.start) for h in row.holdings}
    words += [f"({profile}@{start})" for profile, start, _ in row.slices if (profile, start) not in held]
    return " ".join(words)


def _short(pod: str) -> str:
    return pod.removeprefix("default/")


def _part_words(part: DeviceAssignment) -> str:
    if part.whole:
        return ""
    if part.profile:
        return f"({part.profile}@{part.start})"
    amounts = [f"{part.milli / 10:g}%"] if part.milli else []
    if part.memory_mib:
        amounts.append(memory_text(part.memory_mib))
    return f"({','.join(amounts)})"
