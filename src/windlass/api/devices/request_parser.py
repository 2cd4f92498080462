"""The words of the field for a part of an accelerator device, or for a device of a kind, read into one record.

Users ask for half a device in many vocabularies: resources in a container's limits (Volcano vGPU, HAMi, Alibaba Cloud
and Tencent Cloud names, MIG profiles) or annotations of the pod (KAI, Windlass' own). What each word
means is stated here, once; where a combination contradicts itself, a :class:`FieldError` names the field, the
reason and what to write instead. Pure: no node is known here.

Units: compute in thousandths of a device, memory in MiB. A request of nothing but whole devices gives no
:class:`ContainerDeviceRequest`: it stays an ordinary amount.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from windlass.api import annotations as names
from windlass.api.devices.annotations_read import (
    annotation_words,
    apply_modes,
    read_annotations,
    read_requirements,
)
from windlass.api.devices.request import (
    GPU,
    PERCENT,
    WHOLE,
    ContainerDeviceRequest,
    ContainerResources,
    DeviceRequirements,
    PodDeviceRequest,
    RequestReader,
)
from windlass.api.devices.resource_names import (
    QGPU,
    WORDS,
    is_word,
    profile_of,
    read_container,
    resource_of,
)
from windlass.api.errors import FieldError
from windlass.api.quantities import QuantityError, is_device, parse

__all__ = [
    "GPU",
    "WHOLE",
    "WORDS",
    "ContainerDeviceRequest",
    "ContainerResources",
    "DeviceRequirements",
    "PodDeviceRequest",
    "amounts_of",
    "annotation_words",
    "containers_asking",
    "described",
    "is_word",
    "profile_of",
    "read",
    "resource_of",
]


@lru_cache(maxsize=4096)
def read(
    containers: tuple[ContainerResources, ...], annotations: tuple[tuple[str, str], ...] = ()
) -> PodDeviceRequest:
    """Return the device request of a pod.

    ``containers``: those that request devices; ``annotations``: the result of :func:`annotation_words`. Results are
    shared, because the pods of a gang have equal requests.
    """
    reader = RequestReader(dict(annotations))
    for container in containers:
        read_container(container, reader)
    read_annotations(containers, reader)
    requirements = read_requirements(reader)
    spread = reader.note(names.VGPU_SPREAD_VOLCANO)
    if spread and spread != "spread":
        reader.problems.append(
            FieldError.not_supported(
                f"metadata.annotations[{names.VGPU_SPREAD_VOLCANO}]", spread, ("spread",)
            )
        )
    asks = apply_modes(_merged(containers, reader), reader)
    taken: dict[str, int] = {}
    for ask in asks:
        for name, units in ask.taken:
            taken[name] = taken.get(name, 0) + units
    return PodDeviceRequest(
        tuple(asks),
        requirements,
        bool(spread),
        tuple(sorted(reader.whole.items())),
        tuple(sorted(taken.items())),
        tuple(reader.problems),
    )


def _merged(containers: Sequence[ContainerResources], reader: RequestReader) -> list[ContainerDeviceRequest]:
    """Return the requests of the containers that run together, as large as those of init containers.

    An init container that ends before the others start uses the first of their devices.
    As for every resource in Kubernetes, the pod gets the larger amount.
    """
    first = {container.name for container in containers if container.init}
    running = [ask for ask in reader.asks if ask.container not in first]
    for ask in reader.asks:
        if ask.container not in first or any(_covers(other, ask) for other in running):
            continue
        larger = _larger(running[0], ask) if running else None
        if larger is not None:
            running[0] = larger
            continue
        reader.problems.append(
            FieldError.forbidden(
                "spec.initContainers",
                f"init container {ask.container} requests GPUs that the first container after it cannot share: "
                "request as many devices there, in the same resources",
            )
        )
    return running


def _covers(ask: ContainerDeviceRequest, smaller: ContainerDeviceRequest) -> bool:
    return (
        ask.resource == smaller.resource
        and ask.profile == smaller.profile
        and ask.count >= smaller.count
        and ask.milli >= smaller.milli
        and (
            ask.memory_milli >= WHOLE
            or (ask.memory_mib >= smaller.memory_mib and ask.memory_milli >= smaller.memory_milli)
        )
    )


def _larger(ask: ContainerDeviceRequest, init: ContainerDeviceRequest) -> ContainerDeviceRequest | None:
    """Return ``ask`` with the larger amounts of both; ``None`` if they cannot be compared.

    Memory in MiB and in parts of a device's memory are compared only if one is all of it.
    """
    if ask.resource != init.resource or ask.profile != init.profile or ask.count < init.count:
        return None
    mib, parts = max(ask.memory_mib, init.memory_mib), max(ask.memory_milli, init.memory_milli)
    if parts >= WHOLE:
        mib = 0
    elif mib and parts:
        return None
    words = dict(ask.words)
    for name, units in init.words:
        words[name] = max(words.get(name, 0), units)
    return replace(
        ask,
        milli=max(ask.milli, init.milli),
        memory_mib=mib,
        memory_milli=parts,
        words=tuple(sorted(words.items())),
    )


def described(ask: ContainerDeviceRequest) -> str:
    """In words: ``10240 MiB and 30% of the compute of a GPU``, ``2 MIG slices 1g.10gb``."""
    if ask.profile:
        return f"MIG slice {ask.profile}" if ask.count == 1 else f"{ask.count} MIG slices {ask.profile}"
    if ask.milli and ask.milli == ask.memory_milli:
        what = f"{ask.milli / WHOLE:g}"
    else:
        memory = f"{ask.memory_mib} MiB" if ask.memory_mib else f"{ask.memory_milli / 10:g}% of the memory"
        compute = f"{ask.milli / 10:g}% of the compute"
        claimed = [memory] if ask.memory_mib or ask.memory_milli else []
        what = " and ".join([*claimed, *([compute] if ask.milli else [])])
    card = "GPU" if ask.resource == GPU else ask.resource
    return f"{what} of a {card}" if ask.count == 1 else f"{what} of each of {ask.count} {card}s"


def amounts_of(spec: Mapping[str, Any]) -> tuple[ContainerResources, ...]:
    """The containers of a pod's spec that name a device or a word for a part of one."""
    found = []
    for key, init in (("initContainers", True), ("containers", False)):
        for position, container in enumerate(spec.get(key) or ()):
            resources = container.get("resources") or {}
            amounts = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
            spoken = tuple(sorted((n, str(v)) for n, v in amounts.items() if is_device(n) or is_word(n)))
            if spoken:
                sidecar = container.get("restartPolicy") == "Always"
                place = f"spec.{key}[{position}].resources.limits"
                found.append(
                    ContainerResources(container.get("name", ""), spoken, init and not sidecar, place)
                )
    return tuple(found)


def containers_asking(pod: Mapping[str, Any]) -> dict[str, int]:
    """Return the containers of a pod (plain object) that request devices, with the number of devices.

    An annotation that names no container means the first one.
    """
    spec = pod.get("spec") or {}
    containers = amounts_of(spec)
    words = annotation_words((pod.get("metadata") or {}).get("annotations") or {})
    asked = read(containers, words)
    first = next((c.get("name", "") for c in spec.get("containers") or ()), "")
    found: dict[str, int] = {}
    for ask in asked.asks:
        name = ask.container or first
        found[name] = found.get(name, 0) + ask.count
    speaking = {ask.container for ask in asked.asks}
    for container in containers:
        if container.name not in speaking and (cards := _whole_cards(container)):
            found[container.name] = found.get(container.name, 0) + cards
    return found


def _whole_cards(container: ContainerResources) -> int:
    """Return the number of whole devices a container requests; unreadable amounts count as 0."""
    total = 0
    for name, text in container.amounts:
        try:
            value = int(parse(text))
        except QuantityError:
            continue
        if name in QGPU.cores:
            total += value // PERCENT
        elif is_device(name):
            total += value
    return total
