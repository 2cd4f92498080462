"""Annotations of a pod that speak of devices: KAI's words, Windlass' own, MIG profiles, and wishes about the device."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache

from windlass.api import annotations as names
from windlass.api.devices.request import (
    GPU,
    MAX_DEVICES,
    MIB,
    MIG,
    MOST_MIB,
    NO_REQUIREMENTS,
    PERCENT,
    WHOLE,
    ContainerDeviceRequest,
    ContainerResources,
    DeviceRequirements,
    RequestReader,
)
from windlass.api.devices.resource_names import profile_of
from windlass.api.errors import FieldError
from windlass.api.quantities import QuantityError, parse

_WISHES = (
    names.USE_TYPE_HAMI,
    names.NOT_TYPE_HAMI,
    names.USE_UUID_HAMI,
    names.NOT_UUID_HAMI,
    names.USE_UUID_VOLCANO,
    names.NOT_UUID_VOLCANO,
    names.DEVICE_MODEL,
    names.DEVICE_MODEL_NOT,
    names.DEVICE_MIN_MEMORY,
    names.DEVICE_MIN_COMPUTE,
    names.DEVICE_POLICY_HAMI,
)
_PARTS = (
    names.FRACTION_KAI,
    names.MEMORY_KAI,
    names.FRACTION_COUNT_KAI,
    names.FRACTION_CONTAINER_KAI,
    names.DEVICE_MEMORY,
    names.DEVICE_COMPUTE,
    names.DEVICE_COUNT,
    names.DEVICE_CONTAINER,
    names.DEVICE_SHARING,
    names.VGPU_MODE_VOLCANO,
    names.VGPU_MODE_HAMI,
    names.VGPU_SPREAD_VOLCANO,
)
_AMOUNTS = (names.FRACTION_KAI, names.MEMORY_KAI, names.DEVICE_MEMORY, names.DEVICE_COMPUTE)
"""Annotations that ask for a part of a GPU. An empty one is a mistake, not the absence of a request."""
_FRACTION = re.compile(r"\+?(?=\.?[0-9])([0-9]{0,18})(?:\.([0-9]{0,18}))?(?:[eE]([+-]?[0-9]{1,3}))?")
ANNOTATIONS = frozenset((*_WISHES, *_PARTS))
"""Annotations of a pod that speak of devices; MIG profiles (``nvidia.com/mig-…``) come on top."""


def annotation_words(annotations: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Return the annotations of a pod that concern devices, sorted; mostly none."""
    found = [name for name in annotations if is_device_annotation(name)]
    return tuple(sorted((name, annotations[name]) for name in found)) if found else ()


@lru_cache(maxsize=4096)
def is_device_annotation(name: str) -> bool:
    """Return whether an annotation of a pod is about devices."""
    return name in ANNOTATIONS or name.startswith(MIG)


def read_annotations(containers: Sequence[ContainerResources], reader: RequestReader) -> None:
    """Read device requests from annotations: KAI's, Windlass' own, MIG profiles."""
    empty = [name for name in _AMOUNTS if name in reader.annotations and not reader.note(name)]
    for name in empty:
        reader.bad(name, reader.annotations[name], "is empty: write an amount, or remove the annotation")
    if empty:
        return
    kai = [name for name in (names.FRACTION_KAI, names.MEMORY_KAI) if reader.note(name)]
    own = [name for name in (names.DEVICE_MEMORY, names.DEVICE_COMPUTE) if reader.note(name)]
    profiles = [name for name in reader.annotations if name.startswith(MIG)]
    asked = [*kai[:1], *own[:1], *profiles[:1]]
    if len(kai) > 1:
        reader.bad(kai[1], reader.note(kai[1]), f"{kai[0]} is given too: keep one of them")
        return
    if len(asked) > 1:
        reader.bad(asked[1], reader.note(asked[1]), f"{asked[0]} is given too: keep one of them")
        return
    if asked and reader.asks:
        reader.bad(
            asked[0],
            reader.note(asked[0]),
            "the containers' limits ask for parts of a GPU too: keep one of them",
        )
        return
    if asked and not profiles and (whole := _asks_whole(containers)):
        reader.bad(
            asked[0],
            reader.note(asked[0]),
            f"container {whole[0]} asks for whole GPUs ({whole[1]}) too: take one of them out",
        )
        return
    if kai:
        _kai(reader, kai[0])
    elif own:
        _own(reader)
    for name in profiles:
        _profile_note(reader, name)
    _lonely(reader, bool(kai), bool(own))


def _asks_whole(containers: Sequence[ContainerResources]) -> tuple[str, str] | None:
    """A container that asks for whole GPUs, and the resource."""
    for container in containers:
        for name, text in container.amounts:
            if name == GPU and text != "0":
                return container.name, name
    return None


def _kai(reader: RequestReader, name: str) -> None:
    count = reader.number(names.FRACTION_COUNT_KAI, 1, MAX_DEVICES, "must be a whole number of GPUs from 1")
    container = reader.note(names.FRACTION_CONTAINER_KAI)
    text = reader.annotations[name]
    if name == names.MEMORY_KAI:
        mib = reader.number(name, 1, MOST_MIB, "must be MiB of a GPU's memory, a whole number from 1")
        if mib is not None:
            reader.asks.append(
                ContainerDeviceRequest(container, count=count or 1, memory_mib=mib, slices=False)
            )
        return
    milli = _thousandths(text)
    if milli is None:
        reader.bad(name, text, "must be the part of a GPU, above 0 and at most 1, such as 0.5")
    else:
        reader.asks.append(
            ContainerDeviceRequest(container, count=count or 1, milli=milli, memory_milli=milli, slices=False)
        )


def _thousandths(text: str) -> int | None:
    """``"0.5"`` → 500, rounded up; ``None`` outside (0, 1].

    Decimal numbers of Go's ``ParseFloat``, as KAI reads them: ASCII digits, a sign, an exponent.
    """
    match = _FRACTION.fullmatch(text)
    if match is None:
        return None
    whole, part, exponent = match.groups()
    value = Fraction(f"{whole or 0}.{part or 0}") * Fraction(10) ** int(exponent or 0)
    return -int(-value * WHOLE // 1) if 0 < value <= 1 else None


def _own(reader: RequestReader) -> None:
    count = reader.number(names.DEVICE_COUNT, 1, MAX_DEVICES, "must be a whole number of GPUs from 1")
    percent = reader.number(
        names.DEVICE_COMPUTE, 1, PERCENT, "must be percent of a GPU's compute, from 1 to 100"
    )
    mib = _mebibytes(reader, names.DEVICE_MEMORY)
    if (mib is None and reader.note(names.DEVICE_MEMORY)) or (
        percent is None and reader.note(names.DEVICE_COMPUTE)
    ):
        return
    milli = (percent or 0) * WHOLE // PERCENT
    ask = ContainerDeviceRequest(
        reader.note(names.DEVICE_CONTAINER), count=count or 1, milli=milli, memory_mib=mib or 0
    )
    sharing = reader.note(names.DEVICE_SHARING)
    if sharing not in ("", "any", "shares", "slices"):
        reader.problems.append(
            FieldError.not_supported(
                f"metadata.annotations[{names.DEVICE_SHARING}]", sharing, ("any", "shares", "slices")
            )
        )
    elif sharing == "slices" and (mib is None or milli):
        reader.bad(
            names.DEVICE_SHARING,
            sharing,
            f"a slice is chosen by its memory alone: say {names.DEVICE_MEMORY}, and not {names.DEVICE_COMPUTE}",
        )
    else:
        reader.asks.append(
            replace(
                ask,
                slices=sharing != "shares" and mib is not None and not milli,
                shares=sharing != "slices",
            )
        )


def _mebibytes(reader: RequestReader, name: str) -> int | None:
    """A quantity of memory (``10Gi``) in MiB, rounded up."""
    text = reader.note(name)
    if not text:
        return None
    try:
        value = parse(text)
    except QuantityError as error:
        reader.problems.append(FieldError(f"metadata.annotations[{name}]", str(error)))
        return None
    if value < MIB:
        reader.bad(name, text, "must be an amount of memory of at least 1Mi, such as 10Gi")
        return None
    return -int(-value // MIB)


def _profile_note(reader: RequestReader, name: str) -> None:
    profile = profile_of(name)
    if not profile:
        reader.bad(name, reader.note(name), "is no MIG profile, such as nvidia.com/mig-1g.10gb")
        return
    count = reader.number(name, 1, MAX_DEVICES, "must be a whole number of slices from 1")
    if count is not None:
        reader.asks.append(ContainerDeviceRequest("", count=count, profile=profile))


def _lonely(reader: RequestReader, kai: bool, own: bool) -> None:
    """Report annotations that qualify a request which is missing."""
    for present, words, partners in (
        (
            kai,
            (names.FRACTION_COUNT_KAI, names.FRACTION_CONTAINER_KAI),
            f"{names.FRACTION_KAI} or {names.MEMORY_KAI}",
        ),
        (
            own,
            (names.DEVICE_COUNT, names.DEVICE_CONTAINER, names.DEVICE_SHARING),
            f"{names.DEVICE_MEMORY} or {names.DEVICE_COMPUTE}",
        ),
    ):
        for name in words:
            if not present and reader.note(name):
                reader.bad(name, reader.note(name), f"says nothing without {partners}")


def apply_modes(
    asks: Iterable[ContainerDeviceRequest], reader: RequestReader
) -> list[ContainerDeviceRequest]:
    """``vgpu-mode``: by software (``hami-core``) a device is shared, by ``mig`` it is sliced; absent: either."""
    asks = list(asks)
    for name in (names.VGPU_MODE_VOLCANO, names.VGPU_MODE_HAMI):
        mode = reader.note(name)
        if not mode:
            continue
        if mode == "mig":
            if any(not ask.memory_mib and not ask.profile for ask in asks):
                reader.bad(name, mode, "a slice is chosen by its memory: ask for an amount of memory (MiB)")
            if any(ask.milli for ask in asks):
                reader.bad(
                    name, mode, "the compute of a slice goes with its memory: leave the words on cores out"
                )
            asks = [replace(ask, slices=True, shares=False) for ask in asks]
        elif mode in ("hami-core", "mps"):
            asks = [replace(ask, slices=False, shares=True) for ask in asks]
        else:
            reader.problems.append(
                FieldError.not_supported(f"metadata.annotations[{name}]", mode, ("hami-core", "mig", "mps"))
            )
    return asks


def read_requirements(reader: RequestReader) -> DeviceRequirements:
    capability = reader.note(names.DEVICE_MIN_COMPUTE)
    match = re.fullmatch(r"([0-9]{1,2})(?:\.([0-9]{1,2}))?", capability)
    if capability and match is None:
        reader.bad(names.DEVICE_MIN_COMPUTE, capability, "must be a CUDA compute capability, such as 8.0")
    requirements = DeviceRequirements(
        models=(*_listed(reader, names.USE_TYPE_HAMI), *_listed(reader, names.DEVICE_MODEL)),
        models_not=(*_listed(reader, names.NOT_TYPE_HAMI), *_listed(reader, names.DEVICE_MODEL_NOT)),
        uuids=(*_listed(reader, names.USE_UUID_VOLCANO), *_listed(reader, names.USE_UUID_HAMI)),
        uuids_not=(*_listed(reader, names.NOT_UUID_VOLCANO), *_listed(reader, names.NOT_UUID_HAMI)),
        min_memory_mib=_mebibytes(reader, names.DEVICE_MIN_MEMORY) or 0,
        min_compute=(int(match[1]), int(match[2] or 0)) if match else (0, 0),
        pack=_policy(reader),
    )
    return NO_REQUIREMENTS if requirements == NO_REQUIREMENTS else requirements


def _listed(reader: RequestReader, name: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(word.strip() for word in reader.note(name).split(",") if word.strip()))


def _policy(reader: RequestReader) -> bool | None:
    text = reader.note(names.DEVICE_POLICY_HAMI)
    if not text:
        return None
    if text not in ("binpack", "spread"):
        reader.problems.append(
            FieldError.not_supported(
                f"metadata.annotations[{names.DEVICE_POLICY_HAMI}]", text, ("binpack", "spread")
            )
        )
    return text == "binpack"
