"""NUMA zones as Windlass' own agent publishes them, and where a pod's amounts are: two annotations, written and
read here alone.

``windlass.dev/numa`` of a Node is one JSON object (:class:`NumaNodeRecord`). ``windlass.dev/numa-placement`` of a pod
says from which zones it is served, ``[{"zone": "node-0", "amount": {"cpu": "8", "nvidia.com/gpu": "2"}}]``: the
scheduler writes it with the binding. KAI's exporter tells what it has observed in the same form
(``kai.scheduler/numa-placement-observed``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache

import msgspec

from windlass.api import annotations as names
from windlass.api.errors import FieldError
from windlass.api.quantities import QuantityError, from_units, to_units

NUMA = names.NODE_NUMA_ZONES
PLACEMENT = names.NUMA_PLACEMENT
OBSERVED_KAI = names.NUMA_OBSERVED_KAI
POLICY_VOLCANO = names.NUMA_POLICY_VOLCANO
POLICIES = ("none", "best-effort", "restricted", "single-numa-node")
MAX_NUMA_ZONES = 64
"""More are not believed: no machine has as many."""

Placement = tuple[tuple[int, tuple[tuple[str, int], ...]], ...]
"""Zone number → amounts in engine units, both in order."""


class NumaZoneRecord(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, rename="camel"):
    """One zone. ``cpus``: the processors as the kernel lists them, ``0-15,32-47``. Memory in bytes.
    ``distances``: to all zones in their order, 10 being near."""

    number: int
    cpus: str = ""
    memory: int = 0
    distances: tuple[int, ...] = ()


class NumaNodeRecord(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, rename="camel"):
    """``policy`` and ``scope`` in the kubelet's words; ``closest``: its option ``prefer-closest-numa-nodes``.
    ``reserved_cpus``: kept for the system, in milli."""

    zones: tuple[NumaZoneRecord, ...] = ()
    policy: str = "none"
    scope: str = "container"
    closest: bool = False
    reserved_cpus: int = 0


class NumaAnnotation(msgspec.Struct, frozen=True):
    """NUMA record of a node, with the problems found in it."""

    record: NumaNodeRecord | None = None
    problem: FieldError | None = None


class _Part(msgspec.Struct, gc=False):
    zone: str = ""
    amount: dict[str, str | int | float] = {}


_node_decoder = msgspec.json.Decoder(NumaNodeRecord)
_placement_decoder = msgspec.json.Decoder(tuple[_Part, ...])
_NUMBER = re.compile(r"([0-9]{1,4})$")


def write(record: NumaNodeRecord) -> str:
    """The text of :data:`NUMA`."""
    return msgspec.json.encode(record).decode()


def read(annotations: Mapping[str, str]) -> NumaAnnotation:
    """The zones of a Node by its annotation; none where it has none, or nothing that can be believed."""
    text = annotations.get(NUMA, "")
    return _read(text) if text else NumaAnnotation()


@lru_cache(maxsize=4096)
def _read(text: str) -> NumaAnnotation:
    field = f"metadata.annotations[{NUMA}]"
    try:
        record = _node_decoder.decode(text)
    except (msgspec.MsgspecError, RecursionError) as error:
        return NumaAnnotation(problem=FieldError(field, f"is no record of NUMA zones: {error}"))
    if record.policy not in POLICIES:
        return NumaAnnotation(problem=FieldError.not_supported(f"{field}.policy", record.policy, POLICIES))
    numbers = [zone.number for zone in record.zones]
    if len(set(numbers)) < len(numbers) or len(numbers) > MAX_NUMA_ZONES or any(n < 0 for n in numbers):
        return NumaAnnotation(
            problem=FieldError.invalid(f"{field}.zones", str(numbers), "must be few, and differ")
        )
    return NumaAnnotation(record)


def placement_text(placement: Placement) -> str:
    """The text of :data:`PLACEMENT`."""
    parts = [
        {"zone": f"node-{number}", "amount": {name: from_units(name, units) for name, units in amounts}}
        for number, amounts in placement
    ]
    return msgspec.json.encode(parts).decode()


def placement_of(annotations: Mapping[str, str]) -> Placement | None:
    """From which zones a pod is served: what was observed, else what was foreseen; ``None`` if neither says."""
    text = annotations.get(OBSERVED_KAI) or annotations.get(PLACEMENT) or ""
    return _placement(text) if text else None


@lru_cache(maxsize=16384)
def _placement(text: str) -> Placement | None:
    try:
        parts = _placement_decoder.decode(text)
    except (msgspec.MsgspecError, RecursionError):
        return None
    found: dict[int, dict[str, int]] = {}
    for part in parts:
        number = numa_node_number(part.zone)
        if number is None:
            return None
        amounts = found.setdefault(number, {})
        for name, amount in part.amount.items():
            try:
                amounts[name] = amounts.get(name, 0) + to_units(name, amount)
            except QuantityError:
                return None
    return tuple((number, tuple(sorted(found[number].items()))) for number in sorted(found))


def numa_node_number(name: str) -> int | None:
    """``node-1`` → 1; ``None`` of a name without a number at its end."""
    match = _NUMBER.search(name)
    return int(match[1]) if match else None


def cpus_of(text: str) -> tuple[int, ...]:
    """``0-3,8`` → (0, 1, 2, 3, 8), as the kernel writes lists of processors. Raises ``ValueError``."""
    found: set[int] = set()
    for piece in text.replace(" ", "").split(","):
        if not piece:
            continue
        first, dash, last = piece.partition("-")
        low, high = int(first), int(last if dash else first)
        if not 0 <= low <= high < 1 << 16:
            raise ValueError(f"{piece!r} is no range of processors")
        found.update(range(low, high + 1))
    return tuple(sorted(found))


def cpu_text(cpus: Sequence[int]) -> str:
    """(0, 1, 2, 3, 8) → ``0-3,8``."""
    pieces: list[str] = []
    ordered = sorted(set(cpus))
    at = 0
    while at < len(ordered):
        end = at
        while end + 1 < len(ordered) and ordered[end + 1] == ordered[end] + 1:
            end += 1
        pieces.append(str(ordered[at]) if end == at else f"{ordered[at]}-{ordered[end]}")
        at = end + 1
    return ",".join(pieces)
