"""What pods ask for and what nodes have, in engine units (``api.quantities``)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from windlass.api import pod_requests, quantities
from windlass.api.devices import assignment_annotations, node_annotation, request_parser
from windlass.api.devices.resource_names import compute_share

Vector = dict[str, int]
_SLICE = "/mig-"
"""In the name of a resource that counts slices of cards."""


def vector(resources: Mapping[str, Any] | None) -> Vector:
    """A ResourceList in engine units; what cannot be read counts as nothing (the server refused it)."""
    try:
        return quantities.to_vector(resources)
    except quantities.QuantityError:
        return {}


def pod_request(spec: Mapping[str, Any]) -> Vector:
    """What a pod asks for; a limit without a request counts as the request, as the server fills it in."""
    filled = dict(spec)
    for which in ("containers", "initContainers"):
        filled[which] = [_filled(container) for container in spec.get(which) or ()]
    try:
        return pod_requests.pod_requests(filled)
    except quantities.QuantityError:
        return {}


def of_pod(pod: Mapping[str, Any], node: Mapping[str, Any] | None = None) -> Vector:
    """What a pod asks for, parts of cards among it in thousandths of cards. ``node``: the one it is on, whose
    cards say what part an amount of memory is; without it that counts nothing. A MIG slice counts as one, where
    it is carved of a card as its compute part."""
    spec, notes = pod.get("spec") or {}, (pod.get("metadata") or {}).get("annotations") or {}
    request = pod_request(spec)
    namespace = (pod.get("metadata") or {}).get("namespace")
    if namespace == assignment_annotations.RESERVATIONS:  # those who share its card have it
        return {name: units for name, units in request.items() if name != request_parser.GPU}
    containers, words = request_parser.amounts_of(spec), request_parser.annotation_words(notes)
    if not words and not any(request_parser.is_word(name) or _SLICE in name for name in request):
        return request
    asked = request_parser.read(containers, words)
    found = {name: units for name, units in request.items() if not request_parser.is_word(name)}
    listed = allocatable(node) if node is not None else {}
    parts = {ask.resource: 0 for ask in asked.asks}
    given = _given(notes, node) if node is not None else None
    for ask in asked.asks:
        if ask.profile and (node is None or request_parser.resource_of(ask.profile) in listed):
            continue
        for name, units in ask.taken:
            found[name] = found.get(name, 0) - units
        if ask.profile or given is None:
            parts[ask.resource] += ask.count * _part(ask, node)
        else:
            parts[ask.resource], given = parts[ask.resource] + given, 0
    found = quantities.add(found, dict(asked.whole), parts)
    return {name: units for name, units in found.items() if units > 0}


def _given(notes: Mapping[str, str], node: Mapping[str, Any]) -> int | None:
    """What the shares of a bound pod are of the cards that it has, in thousandths; ``None`` where that is not told."""
    try:
        shares = [p for p in assignment_annotations.from_annotations(notes) if not p.whole and not p.profile]
    except assignment_annotations.AssignmentError:
        return None
    told = node_annotation.read((node.get("metadata") or {}).get("annotations") or {}).cards
    sizes = {card.index: card.memory_mib for card in told if card.resource == request_parser.GPU}
    if not shares or not all(sizes.get(part.index) for part in shares):
        return None
    return sum(
        max(part.milli, -(-part.memory_mib * request_parser.WHOLE // sizes[part.index])) for part in shares
    )


def _part(ask: request_parser.ContainerDeviceRequest, node: Mapping[str, Any] | None) -> int:
    """Of each card, in thousandths."""
    if ask.profile:
        return compute_share(ask.profile)
    size = _card_memory(node, ask.resource) if node is not None else 0
    share = -(-ask.memory_mib * request_parser.WHOLE // size) if size else 0
    return min(request_parser.WHOLE, max(ask.milli, ask.memory_milli, share))


def _card_memory(node: Mapping[str, Any], resource: str) -> int:
    """MiB of the smallest card of a node; 0 if it does not say."""
    metadata = node.get("metadata") or {}
    told = [card.memory_mib for card in node_annotation.read(metadata.get("annotations") or {}).cards]
    label = (metadata.get("labels") or {}).get(f"{resource}.memory", "")
    return min(filter(None, told), default=int(label) if label.isdecimal() else 0)


def carved(node: Mapping[str, Any]) -> int:
    """Cards in MIG mode that are sliced as pods ask for it, in thousandths: a node lists them as no amount."""
    read = node_annotation.read((node.get("metadata") or {}).get("annotations") or {})
    return sum(request_parser.WHOLE for card in read.cards if card.mig and card.dynamic)


def shares_text(pod: Mapping[str, Any]) -> str:
    """What a pod asks of cards in parts, in words; empty for one that asks for none."""
    notes = (pod.get("metadata") or {}).get("annotations") or {}
    containers = request_parser.amounts_of(pod.get("spec") or {})
    asked = request_parser.read(containers, request_parser.annotation_words(notes))
    return ", ".join(request_parser.described(ask) for ask in asked.asks)


def held_text(pod: Mapping[str, Any]) -> str:
    """The cards that a pod was given: ``0,3``; of a part ``0 (50%, 10240 MiB)`` or ``0 (1g.10gb at 6)``."""
    notes = (pod.get("metadata") or {}).get("annotations") or {}
    try:
        parts = assignment_annotations.from_annotations(notes)
    except assignment_annotations.AssignmentError:
        return notes.get(assignment_annotations.DEVICES, "")
    return ",".join(map(_held, parts))


def _held(part: assignment_annotations.DeviceAssignment) -> str:
    if part.whole:
        return str(part.index)
    if part.profile:
        return f"{part.index} ({part.profile} at {part.start})"
    amounts = [f"{part.milli / 10:g}%"] if part.milli else []
    amounts += [f"{part.memory_mib} MiB"] if part.memory_mib else []
    return f"{part.index} ({', '.join(amounts)})"


def _filled(container: Mapping[str, Any]) -> dict[str, Any]:
    resources = container.get("resources") or {}
    requests = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    return {**container, "resources": {"requests": requests}}


def job_request(job: Mapping[str, Any]) -> Vector:
    """All replicas of all tasks of a Volcano Job together."""
    total: Vector = {}
    for task in (job.get("spec") or {}).get("tasks") or ():
        each = of_pod(task.get("template") or {})
        count = int(task.get("replicas", 1))
        total = quantities.add(total, {name: units * count for name, units in each.items()})
    return total


def allocatable(node: Mapping[str, Any]) -> Vector:
    status = node.get("status") or {}
    return vector(status.get("allocatable") or status.get("capacity"))


def devices(amounts: Mapping[str, int]) -> int:
    """Accelerators of all vendors together, in thousandths. What is said of single models is not added."""
    return sum(units for name, units in amounts.items() if quantities.is_device(name) and "@" not in name)


def devices_text(vector: Mapping[str, int]) -> str:
    """Accelerators of all vendors together, and beside them the slices of cards that a node lists as such, which are
    no cards: ``51+3×1g.5gb``; ``0`` for none."""
    slices = {
        name.partition(_SLICE)[2]: units
        for name, units in sorted(vector.items())
        if _SLICE in name and "@" not in name
    }
    whole = devices({name: units for name, units in vector.items() if _SLICE not in name})
    return (
        "+".join(
            _counted(whole, {profile: units // request_parser.WHOLE for profile, units in slices.items()})
        )
        or "0"
    )


def _counted(milli: int, told: Mapping[str, int]) -> list[str]:
    """Whole cards in thousandths, and so many of each part."""
    shown = [f"{milli / request_parser.WHOLE:g}"] if milli else []
    return shown + [part if times == 1 else f"{times}×{part}" for part, times in told.items() if times]


def gpu_text(amounts: Mapping[str, int]) -> str:
    """The GPUS column: ``8``, ``0.5``, ``-`` for none."""
    milli = devices(amounts)
    return "-" if milli == 0 else f"{milli / 1000:g}"


def request_text(wanted: Iterable[tuple[Mapping[str, Any], int]]) -> str:
    """The GPUS column of pods and how many there are of each, parts of cards in the words of who asks:
    ``2``, ``0.5``, ``4×10Gi``, ``1g.10gb``, ``1+2×10Gi``. What devices pods have that name none (by a claim) counts
    as it was given; ``-`` for none."""
    milli, told = 0, dict[str, int]()
    for pod, count in wanted:
        number, parts = _asked(pod)
        milli += number * count
        for part, times in parts:
            told[part] = told.get(part, 0) + times * count
    return "+".join(_counted(milli, told)) or "-"


def _asked(pod: Mapping[str, Any]) -> tuple[int, list[tuple[str, int]]]:
    """Whole cards and shares in thousandths of cards; amounts of memory and slices, and how many."""
    spec, notes = pod.get("spec") or {}, (pod.get("metadata") or {}).get("annotations") or {}
    read = request_parser.read(request_parser.amounts_of(spec), request_parser.annotation_words(notes))
    counted = {name: units for name, units in of_pod(pod).items() if _SLICE not in name}
    told = [
        (ask.profile or f"{ask.memory_mib / 1024:.1f}".removesuffix(".0") + "Gi", ask.count)
        for ask in read.asks
        if ask.profile or (ask.memory_mib and not ask.milli and not ask.memory_milli)
    ]
    if devices(counted) or told or read.problems:
        return devices(counted), told
    try:
        held = assignment_annotations.from_annotations(notes)
    except assignment_annotations.AssignmentError:
        return 0, []
    shares = sum(request_parser.WHOLE if part.whole else part.milli for part in held if not part.profile)
    return shares, [(part.profile, 1) for part in held if part.profile]


def total(vectors: Iterable[Mapping[str, int]]) -> Vector:
    return quantities.add(*vectors)


def holds_resources(pod: Mapping[str, Any]) -> bool:
    """Whether a pod occupies its node: bound and not finished."""
    phase = (pod.get("status") or {}).get("phase")
    return bool((pod.get("spec") or {}).get("nodeName")) and phase not in ("Succeeded", "Failed")
