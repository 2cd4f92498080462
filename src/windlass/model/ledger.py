"""What pods hold on each node by what the API server shows, in the order it shows it.

The engine never over-commits by its own decisions. But the API server takes any binding, so two
schedulers that decide at the same time can fill one node twice. The order of the watch is the same for
everybody: the pod whose binding is seen when its node is already full is the one too many, and all
schedulers agree on that.
"""

from __future__ import annotations

from collections.abc import Mapping

from windlass.api import deviceparts, views
from windlass.api.deviceasks import GPU, MIG, WHOLE
from windlass.api.deviceparts import Part
from windlass.api.devicewords import annotation_words
from windlass.api.quantities import from_units, is_device
from windlass.model import cards
from windlass.model.devices import plain_amounts
from windlass.spi.objects import Device

PODS = "pods"
Slot = tuple[str, int]
"""Resource and index of a card."""
Use = tuple[Part, str]
"""A part of a card, and the ResourceClaim through which others may use it together (or "")."""


class Ledger:
    """Sums of requests and parts of cards per node. Terminating pods still hold, finished do not."""

    def __init__(self) -> None:
        self._used: dict[str, dict[str, int]] = {}
        self._cards: dict[str, dict[Slot, list[Use]]] = {}

    def change(self, old: views.Pod | None, new: views.Pod | None) -> None:
        """Book the change of one pod from ``old`` to ``new`` (None: absent)."""
        before, after = _holds(old), _holds(new)
        if before is not None and after is not None and _same(before, after):
            return
        if before is not None:
            self._book(before, -1)
        if after is not None:
            self._book(after, 1)

    def overflow(self, pod: views.Pod, node: views.Node | None) -> str | None:
        """Why the booked ``pod`` is one too many on its node, or None. An unknown node overflows nothing."""
        if node is None:
            return None
        used = self._used.get(node.name, {})
        allocatable = cards.amounts_of(node)
        for name in (*amounts_held(pod), PODS):
            if name == PODS and PODS not in allocatable:
                continue
            has, needs = allocatable.get(name, 0), used.get(name, 0)
            if needs > has:
                return f"node {node.name} holds {from_units(name, needs)} of {from_units(name, has)} {name}"
        held = self._cards.get(node.name, {})
        sizes = {(_slot_resource(card), card.index): card.memory_mib for card in cards.cards_of(node)}
        for slot, _ in _parts(pod):
            problem = _too_much(held.get(slot, []), sizes.get(slot, 0))
            if problem:
                return f"device {slot[1]} ({slot[0]}) of node {node.name} {problem}"
        return None

    def free(self, node: str, allocatable: Mapping[str, int]) -> dict[str, int]:
        """What of a node's amounts nobody holds; negative where too much is held."""
        used = self._used.get(node, {})
        return {name: units - used.get(name, 0) for name, units in allocatable.items()}

    def shared_cards(self, node: str) -> set[Slot]:
        """Cards of which somebody holds a part: nobody can have them whole, though no amount says so."""
        held = self._cards.get(node, {})
        return {
            slot
            for slot, uses in held.items()
            if not any(part.whole or part.profile for part, _ in uses) and uses
        }

    def excess(self, node: str, allocatable: Mapping[str, int]) -> dict[str, int]:
        """How much more of a node's amounts is held than it has."""
        return {name: -left for name, left in self.free(node, allocatable).items() if left < 0}

    def _book(self, pod: views.Pod, sign: int) -> None:
        used = self._used.setdefault(pod.node_name, {})
        _add(used, amounts_held(pod), sign)
        _add(used, {PODS: 1}, sign)
        for slot, use in _parts(pod):
            held = self._cards.setdefault(pod.node_name, {})
            uses = held.setdefault(slot, [])
            if sign > 0:
                uses.append(use)
            else:
                uses.remove(use)
                if not uses:
                    del held[slot]
        if not used.get(PODS):
            self._used.pop(pod.node_name, None)


def _slot_resource(card: Device) -> str:
    """Under which resource :func:`_parts` books it."""
    return GPU if card.resource == cards.REGISTERED else card.resource


def _too_much(uses: list[Use], memory_mib: int) -> str:
    """What is wrong with what is held of one card; empty if nothing is."""
    claims = {claim: part for part, claim in uses if claim}
    parts = [*claims.values(), *(part for part, claim in uses if not claim)]
    slices = [(part.profile, part.start) for part in parts if part.profile]
    if len(slices) != len(set(slices)) or (slices and len(slices) < len(parts)):
        return "is given twice"
    milli = sum(part.milli for part in parts)
    if milli > WHOLE or (len(parts) > 1 and any(part.whole for part in parts)):
        return "is given twice" if any(part.whole for part in parts) else f"is shared to {milli / WHOLE:g}"
    mib = sum(part.memory_mib for part in parts)
    return f"is shared to {mib} MiB of {memory_mib}" if 0 < memory_mib < mib else ""


def _holds(pod: views.Pod | None) -> views.Pod | None:
    return pod if pod is not None and pod.node_name and not pod.finished else None


def _same(before: views.Pod, after: views.Pod) -> bool:
    return (
        before.node_name == after.node_name
        and before.shape is after.shape
        and before.annotations == after.annotations
    )


def amounts_held(pod: views.Pod) -> Mapping[str, int]:
    """What it holds of the node's amounts; parts of cards are booked by card."""
    if not pod.shape.speaks_of_parts:
        return pod.shape.request
    amounts = plain_amounts(pod.shape, annotation_words(pod.annotations))
    if deviceparts.SLICES in pod.annotations:
        return {name: units for name, units in amounts.items() if not name.startswith(MIG)}
    return amounts


def _parts(pod: views.Pod) -> list[tuple[Slot, Use]]:
    """What it was given of which cards. With cards of several kinds, an index stands for the first of them."""
    if deviceparts.DEVICES not in pod.annotations:
        return []
    try:
        parts = deviceparts.from_annotations(pod.annotations)
    except deviceparts.PartsError:
        return []  # amounts alone count then
    resource = next((name for name in sorted(amounts_held(pod)) if is_device(name)), GPU)
    claims = pod.shape.claims
    named = claims[0].claim if len(claims) == 1 and not pod.shape.devices else ""
    together = f"{pod.namespace}/{named}" if named else ""
    return [((resource, part.index), (part, together)) for part in parts]


def _add(sums: dict[str, int], amounts: Mapping[str, int], sign: int) -> None:
    for name, units in amounts.items():
        sums[name] = sums.get(name, 0) + sign * units
