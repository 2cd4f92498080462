"""Advice for requests of devices that no node has.

It uses the kinds of devices of the matching nodes, independent of allocations.
Invariant: every advised value exists on a device of these nodes.
"""

from __future__ import annotations

from windlass.engine.devices.need_on_device import needs_on_device
from windlass.engine.devices.share_table import DeviceFacts, DeviceSet
from windlass.engine.diagnosis.device_messages import wish
from windlass.engine.diagnosis.node_diagnosis import NodeDiagnosis
from windlass.engine.state.cluster_state import ClusterState
from windlass.spi.devices import DeviceNeed

_NAMED = 8


def advice_on_devices(verdict: NodeDiagnosis, state: ClusterState) -> list[str]:
    """Return one or two sentences for each need that no matching node could serve, even if free."""
    needs = verdict.cls.needs.devices
    if not needs:
        return []
    cards = state.table.shares
    codes = sorted({code for code in cards.device_set_of[verdict.matching].tolist() if code >= 0})
    kits = [cards.device_sets[code] for code in codes]
    found: list[str] = []
    for need in needs:
        if not need.by_name and not any(_serves(need, kit) for kit in kits):
            found += _instead(need, [card for kit in kits for card in kit.devices if card.usable])
            found.append(f"Add a node with {wish(need)}.")
    return found


def _serves(need: DeviceNeed, device_set: DeviceSet) -> bool:
    return len(needs_on_device(need, device_set, ("",) * len(device_set.devices))) >= need.count


def _instead(need: DeviceNeed, cards: list[DeviceFacts]) -> list[str]:
    """Return advice on the first property of the need that no device has."""
    cards = [card for card in cards if not need.resource or card.device.resource == need.resource]
    if not cards:
        return [f"No matching node has a card of {need.resource}."] if need.resource else []
    models = sorted({card.device.model for card in cards if card.device.model})
    if need.models:
        words = [word.casefold() for word in need.models]
        cards = [card for card in cards if any(word in card.device.model.casefold() for word in words)]
        if not cards:
            return [f"Name a model that nodes have: {_some(models)}."] if models else []
    if need.profile:
        profiles = {p.name: p.memory_mib for card in cards if card.geometry for p in card.geometry.profiles}
        if not profiles:
            return ["No card of these nodes is sliced: ask for a share of one, or for a whole one."]
        if need.profile in profiles:
            return []
        return [
            f"Ask for a slice that cards here have: {_some(sorted(profiles, key=lambda n: (profiles[n], n)))}."
        ]
    largest = max(card.device.memory_mib for card in cards)
    if max(need.memory_mib, need.min_memory_mib) > largest > 0:
        return [f"Ask for at most {largest} MiB of a card's memory."]
    compute = max(card.device.compute for card in cards)
    if need.min_compute > compute > (0, 0):
        return [f"Ask for compute capability {compute[0]}.{compute[1]} at most."]
    return []


def _some(names: list[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more
