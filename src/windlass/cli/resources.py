"""Requests of pods and resources of nodes, in engine units (``api.quantities``)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from windlass.api import pod_requests, quantities
from windlass.api.devices import assignment_annotations, node_annotation, request_parser
from windlass.api.devices.resource_names import compute_share

Vector = dict[str, int]
_SLICE = "/mig-"
"""Part of the name of a resource that counts MIG instances."""


def vector(resources: Mapping[str, Any] | None) -> Vector:
    """Return a ResourceList in engine units; an unreadable list counts as empty.

    The server rejects such lists.
    """
    try:
        return quantities.to_vector(resources)
    except quantities.QuantityError:
        return {}


def pod_request(spec: Mapping[str, Any]) -> Vector:
    """Return the request of a pod.

    A limit without a request counts as the request, as the server fills it in.
    """
    filled = dict(spec)
    for which in ("containers", "initContainers"):
        filled[which] = [_filled(container) for container in spec.get(which) or ()]
    try:
        return pod_requests.pod_requests(filled)
    except quantities.QuantityError:
        return {}


def effective_request(pod: Mapping[str, Any], node: Mapping[str, Any] | None = None) -> Vector:
    """Return the request of a pod, with device shares in thousandths of a device.

    A MIG instance counts as one, or by its compute share where it is created on
    request.

    :param node: node of the pod; its devices give the size for amounts of memory.
        Without it
      an amount of memory counts as 0.
    """
    spec, annotations = pod.get("spec") or {}, (pod.get("metadata") or {}).get("annotations") or {}
    request = pod_request(spec)
    namespace = (pod.get("metadata") or {}).get("namespace")
    if namespace == assignment_annotations.RESERVATIONS:  # the pods that share its device hold it
        return {name: units for name, units in request.items() if name != request_parser.GPU}
    containers, device_annotations = (
        request_parser.amounts_of(spec),
        request_parser.annotation_words(annotations),
    )
    if not device_annotations and not any(request_parser.is_word(name) or _SLICE in name for name in request):
        return request
    requested = request_parser.read(containers, device_annotations)
    result = {name: units for name, units in request.items() if not request_parser.is_word(name)}
    listed = allocatable(node) if node is not None else {}
    parts = {ask.resource: 0 for ask in requested.asks}
    allocated = _allocated_milli(annotations, node) if node is not None else None
    for ask in requested.asks:
        if ask.profile and (node is None or request_parser.resource_of(ask.profile) in listed):
            continue
        for name, units in ask.taken:
            result[name] = result.get(name, 0) - units
        if ask.profile or allocated is None:
            parts[ask.resource] += ask.count * _share_milli(ask, node)
        else:
            parts[ask.resource], allocated = parts[ask.resource] + allocated, 0
    result = quantities.add(result, dict(requested.whole), parts)
    return {name: units for name, units in result.items() if units > 0}


def _allocated_milli(annotations: Mapping[str, str], node: Mapping[str, Any]) -> int | None:
    """Return the shares of its devices that a bound pod holds, in thousandths.

    ``None`` if its annotations or those of the node do not say.
    """
    try:
        shares = [
            p for p in assignment_annotations.from_annotations(annotations) if not p.whole and not p.profile
        ]
    except assignment_annotations.AssignmentError:
        return None
    recorded = node_annotation.read((node.get("metadata") or {}).get("annotations") or {}).cards
    sizes = {device.index: device.memory_mib for device in recorded if device.resource == request_parser.GPU}
    if not shares or not all(sizes.get(part.index) for part in shares):
        return None
    return sum(
        max(part.milli, -(-part.memory_mib * request_parser.WHOLE // sizes[part.index])) for part in shares
    )


def _share_milli(ask: request_parser.ContainerDeviceRequest, node: Mapping[str, Any] | None) -> int:
    """Return the share of each device, in thousandths."""
    if ask.profile:
        return compute_share(ask.profile)
    size = _device_memory(node, ask.resource) if node is not None else 0
    share = -(-ask.memory_mib * request_parser.WHOLE // size) if size else 0
    return min(request_parser.WHOLE, max(ask.milli, ask.memory_milli, share))


def _device_memory(node: Mapping[str, Any], resource: str) -> int:
    """Return the memory of the smallest device of a node in MiB; 0 if unknown."""
    metadata = node.get("metadata") or {}
    sizes = [device.memory_mib for device in node_annotation.read(metadata.get("annotations") or {}).cards]
    label = (metadata.get("labels") or {}).get(f"{resource}.memory", "")
    return min(filter(None, sizes), default=int(label) if label.isascii() and label.isdecimal() else 0)


def dynamic_mig_milli(node: Mapping[str, Any]) -> int:
    """Return the number of devices with MIG instances created on request, in thousandths.

    The node does not list these devices in its allocatable resources.
    """
    read = node_annotation.read((node.get("metadata") or {}).get("annotations") or {})
    return sum(request_parser.WHOLE for device in read.cards if device.mig and device.dynamic)


def shares_text(pod: Mapping[str, Any]) -> str:
    """Return the device shares that a pod requests; empty if there are none."""
    annotations = (pod.get("metadata") or {}).get("annotations") or {}
    containers = request_parser.amounts_of(pod.get("spec") or {})
    requested = request_parser.read(containers, request_parser.annotation_words(annotations))
    return ", ".join(request_parser.described(ask) for ask in requested.asks)


def held_text(pod: Mapping[str, Any]) -> str:
    """Return the devices allocated to a pod.

    ``0,3`` for whole devices, ``0 (50%, 10240 MiB)`` or ``0 (1g.10gb at 6)`` for a
    share.
    """
    annotations = (pod.get("metadata") or {}).get("annotations") or {}
    try:
        parts = assignment_annotations.from_annotations(annotations)
    except assignment_annotations.AssignmentError:
        return annotations.get(assignment_annotations.DEVICES, "")
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


def total_of(templates: Iterable[tuple[Mapping[str, Any], int]]) -> Vector:
    """Return the request of pods by template and number."""
    total: Vector = {}
    for template, count in templates:
        each = effective_request(template)
        total = quantities.add(total, {name: units * count for name, units in each.items()})
    return total


def allocatable(node: Mapping[str, Any]) -> Vector:
    status = node.get("status") or {}
    return vector(status.get("allocatable") or status.get("capacity"))


def devices(amounts: Mapping[str, int]) -> int:
    """Return the devices of all vendors together, in thousandths.

    Amounts per model are not added.
    """
    return sum(units for name, units in amounts.items() if quantities.is_device(name) and "@" not in name)


def devices_text(vector: Mapping[str, int]) -> str:
    """Return the number of devices of all vendors, and of MIG instances that the node lists.

    Example: ``51+3×1g.5gb``; ``0`` if there are none.
    """
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


def _counted(milli: int, texts: Mapping[str, int]) -> list[str]:
    """Return the texts for whole devices (in thousandths) and for the count of each share."""
    shown = [f"{milli / request_parser.WHOLE:g}"] if milli else []
    return shown + [part if times == 1 else f"{times}×{part}" for part, times in texts.items() if times]


def gpu_text(amounts: Mapping[str, int]) -> str:
    """Return the GPUS column: ``8``, ``0.5``, ``-`` for none."""
    milli = devices(amounts)
    return "-" if milli == 0 else f"{milli / 1000:g}"


def request_text(wanted: Iterable[tuple[Mapping[str, Any], int]]) -> str:
    """Return the GPUS column for pods and their counts, with shares as requested.

    Examples: ``2``, ``0.5``, ``4×10Gi``, ``1g.10gb``, ``1+2×10Gi``, ``-`` for none.
    Pods that name no devices (as they use a claim) count by the devices allocated to
    them.
    """
    milli, texts = 0, dict[str, int]()
    for pod, count in wanted:
        number, parts = _requested(pod)
        milli += number * count
        for part, times in parts:
            texts[part] = texts.get(part, 0) + times * count
    return "+".join(_counted(milli, texts)) or "-"


def _requested(pod: Mapping[str, Any]) -> tuple[int, list[tuple[str, int]]]:
    """Return devices and compute shares in thousandths, then other shares with counts.

    Other shares are amounts of memory and MIG instances.
    """
    spec, annotations = pod.get("spec") or {}, (pod.get("metadata") or {}).get("annotations") or {}
    read = request_parser.read(request_parser.amounts_of(spec), request_parser.annotation_words(annotations))
    counted = {name: units for name, units in effective_request(pod).items() if _SLICE not in name}
    requested = [
        (ask.profile or f"{ask.memory_mib / 1024:.1f}".removesuffix(".0") + "Gi", ask.count)
        for ask in read.asks
        if ask.profile or (ask.memory_mib and not ask.milli and not ask.memory_milli)
    ]
    if devices(counted) or requested or read.problems:
        return devices(counted), requested
    try:
        held = assignment_annotations.from_annotations(annotations)
    except assignment_annotations.AssignmentError:
        return 0, []
    shares = sum(request_parser.WHOLE if part.whole else part.milli for part in held if not part.profile)
    return shares, [(part.profile, 1) for part in held if part.profile]


def total(vectors: Iterable[Mapping[str, int]]) -> Vector:
    return quantities.add(*vectors)


def holds_resources(pod: Mapping[str, Any]) -> bool:
    """Return whether a pod occupies its node: bound and not finished."""
    phase = (pod.get("status") or {}).get("phase")
    return bool((pod.get("spec") or {}).get("nodeName")) and phase not in ("Succeeded", "Failed")
