"""Kubernetes quantities as exact integers.

Engine units (DESIGN: no float for quantities): CPU in milli, rounded up; memory, ephemeral storage
and huge pages in bytes; devices (``…/gpu``, ``…/npu``, MIG slices …) in milli, so that shares of a
device need no second unit; everything else counts 1.

Amounts from 2**62 units on mean "no limit". The API server stores them, and others write them into
limits. They all count as :data:`LIMIT`: as a limit they are none (:func:`bounded`), as a request
they are more than any node has.

Grammar and suffixes: apimachinery ``resource.Quantity`` (n, u, m, k, M, G, T, P, E; Ki … Ei;
decimal exponent ``e``/``E``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from fractions import Fraction
from functools import lru_cache

LIMIT = 2**62
"""Maximum amount in units. Larger ones count as this."""
MAX_REQUEST = 10**16
"""Maximum request of a pod in units. Sums of hundreds still fit into 64 bits."""
MAX_NODE_AMOUNT = 2**50
"""Maximum amount of a node in units, which is less than the maximum request."""
_MAX = Fraction(2**63 - 1)
"""Maximum value of a quantity. The API server lowers larger ones to it."""
_MAX_DIGITS = 1000

_SUFFIXES = {
    "": Fraction(1),
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    "k": Fraction(10**3),
    "M": Fraction(10**6),
    "G": Fraction(10**9),
    "T": Fraction(10**12),
    "P": Fraction(10**15),
    "E": Fraction(10**18),
    "Ki": Fraction(2**10),
    "Mi": Fraction(2**20),
    "Gi": Fraction(2**30),
    "Ti": Fraction(2**40),
    "Pi": Fraction(2**50),
    "Ei": Fraction(2**60),
}
_PATTERN = re.compile(
    r"([+-]?)(\d+(?:\.\d*)?|\.\d+)(?:([eE][+-]?\d{1,3})|([numkMGTPE]|[KMGTPE]i)?)", re.ASCII
)

_BYTES = ("memory", "ephemeral-storage", "storage")
_DEVICE_WORDS = (
    "gpu",
    "npu",
    "hpu",
    "gaudi",
    "mig-",
    "accelerator",
    "dcu",
    "mlu",
    "tpu",
    "xpu",
    "gcu",
    "ascend",
    "neuron",
)
_NOT_DEVICES = ("mem", "core", "percentage")
"""Substrings in names of amounts *of* devices: ``gpumem``, ``qgpu-core``, ``Ascend910B3-memory``."""
_OTHER_DEVICES = (
    "aws.amazon.com/neuroncore",
    "gpu.intel.com/i915",
    "gpu.intel.com/xe",
    "vastaitech.com/va",
)
"""Devices that their names alone do not identify."""


class QuantityError(ValueError):
    """The text is no quantity, or one that no machine could mean."""


@lru_cache(maxsize=8192)
def parse(text: str) -> Fraction:
    """The exact value, at most 2^63-1. Raises :class:`QuantityError`."""
    match = _PATTERN.fullmatch(text)
    if match is None or len(text) > _MAX_DIGITS:
        raise QuantityError(
            f"{text!r} is not a quantity: write a number with an optional suffix such as 500m, 4, 16Gi, 500G"
        )
    sign, digits, exponent, suffix = match.groups()
    value = Fraction(digits if not digits.endswith(".") else digits[:-1])
    value *= Fraction(10) ** int(exponent[1:]) if exponent else _SUFFIXES[suffix or ""]
    value = min(value, _MAX)
    return -value if sign == "-" else value


@lru_cache(maxsize=1024)
def scale(name: str) -> int:
    """Engine units per unit of the resource ``name``: 1000 for cpu and devices, else 1."""
    if name == "cpu":
        return 1000
    return 1000 if is_device(name) else 1


@lru_cache(maxsize=1024)
def is_device(name: str) -> bool:
    """Return whether ``name`` counts accelerators (``vendor/gpu``, ``nvidia.com/mig-1g.10gb``, …)."""
    if "/" not in name:
        return False
    if name in _OTHER_DEVICES:
        return True
    leaf = name.rsplit("/", 1)[1].lower()
    return any(word in leaf for word in _DEVICE_WORDS) and not any(word in leaf for word in _NOT_DEVICES)


@lru_cache(maxsize=8192)
def to_units(name: str, text: str | int | float) -> int:
    """``("cpu", "1.5")`` → 1500. Rounded up, at most :data:`LIMIT`. Raises :class:`QuantityError`."""
    scaled = parse(str(text)) * scale(name)
    units = -((-scaled.numerator) // scaled.denominator)
    return max(-LIMIT, min(units, LIMIT))


def to_whole_units(name: str, text: str | int | float) -> int:
    """:func:`to_units` of a container's amount: whole for extended resources. Raises :class:`QuantityError`."""
    if is_extended(name) and parse(str(text)).denominator != 1:
        share = " (a part of a GPU: annotation windlass.dev/gpu-memory)" if is_device(name) else ""
        raise QuantityError(
            f"{text!r} of {name} must be an integer: extended resources are not divided{share}"
        )
    return to_units(name, text)


@lru_cache(maxsize=1024)
def is_extended(name: str) -> bool:
    """``vendor.com/device``: whole numbers, request equal to limit."""
    return "/" in name and not name.startswith("requests.") and "kubernetes.io/" not in name


def bounded(limits: Mapping[str, int]) -> dict[str, int]:
    """The limits that are any: without those from :data:`LIMIT` on."""
    return {name: units for name, units in limits.items() if units < LIMIT}


def from_units(name: str, units: int) -> str:
    """The quantity that a person would write: ``("cpu", 1500)`` → ``1500m``, ``("memory", 2**30)`` → ``1Gi``."""
    per = scale(name)
    if per == 1000:
        if units % 1000 == 0:
            return str(units // 1000)
        return f"{units}m" if name == "cpu" else f"{units / 1000:g}"
    if units and (name in _BYTES or name.startswith("hugepages-")):
        texts = [_in_suffix(units, ("Ei", "Pi", "Ti", "Gi", "Mi", "Ki")), _in_suffix(units, ("T", "G", "M"))]
        return min(texts, key=len)
    return str(units)


def _in_suffix(units: int, suffixes: tuple[str, ...]) -> str:
    """In the largest of the suffixes that gives a whole number."""
    for suffix in suffixes:
        step = int(_SUFFIXES[suffix])
        if units % step == 0:
            return f"{units // step}{suffix}"
    return str(units)


def to_vector(resources: Mapping[str, str | int | float] | None) -> dict[str, int]:
    """A ResourceList in engine units. Raises :class:`QuantityError` naming the resource."""
    vector = {}
    for name, text in (resources or {}).items():
        try:
            vector[name] = to_units(name, text)
        except QuantityError as error:
            raise QuantityError(f"{name}: {error}") from None
    return vector


def add(*vectors: Mapping[str, int]) -> dict[str, int]:
    total: dict[str, int] = {}
    for vector in vectors:
        for name, units in vector.items():
            total[name] = total.get(name, 0) + units
    return total


def maximum(vectors: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Element-wise maximum; a missing entry counts as 0."""
    best: dict[str, int] = {}
    for vector in vectors:
        for name, units in vector.items():
            best[name] = max(best.get(name, 0), units)
    return best


def fits(request: Mapping[str, int], free: Mapping[str, int]) -> bool:
    return all(units <= free.get(name, 0) for name, units in request.items() if units > 0)
