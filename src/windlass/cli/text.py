"""Short texts: ages, amounts, lists of nodes, natural order."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from windlass.api import quantities
from windlass.kits.timestamps import age, parse_rfc3339

Object = Mapping[str, Any]


def created(obj: Object) -> float:
    """Return the object's creation time in Unix seconds; 0 if it is unknown."""
    return timestamp((obj.get("metadata") or {}).get("creationTimestamp"))


def timestamp(text: object) -> float:
    """Return an RFC 3339 time in Unix seconds; 0 if the text is not one."""
    if not isinstance(text, str):
        return 0.0
    try:
        return parse_rfc3339(text)
    except ValueError:
        return 0.0


def age_of(obj: Object, now: float) -> str:
    since = created(obj)
    return age(now - since) if since else "<unknown>"


def approximate_duration(seconds: float) -> str:
    """Return an estimated duration: ``~40s``, ``~5m``, ``~1h30m``, ``~12h``, ``~3d``.

    Below ten hours it is rounded to ten minutes, below ten days to the hour. Otherwise
    1.5 would be shown as 2.
    """
    for size, unit, less, part, step in ((86400, "d", 3600, "h", 3600), (3600, "h", 60, "m", 600)):
        if seconds >= 10 * size:
            return f"~{round(seconds / size)}{unit}"
        if seconds >= size:
            whole, rest = divmod(round(seconds / step) * step, size)
            return f"~{whole}{unit}" + (f"{rest // less}{part}" if rest else "")
    return f"~{round(seconds / 60)}m" if seconds >= 120 else f"~{max(1, round(seconds))}s"


def natural_key(text: str) -> tuple[tuple[int, int, str], ...]:
    """Return a sorting key that puts ``node2`` before ``node10``."""
    return tuple(
        (0, int(part), "") if part.isdigit() else (1, 0, part) for part in re.split(r"(\d+)", text) if part
    )


def plural(count: int, noun: str, more: str | None = None) -> str:
    return f"{count} {noun if count == 1 else more or noun + 's'}"


def nodes_text(nodes: Mapping[str, int], *, most: int = 3) -> str:
    """Return nodes with their numbers of pods.

    Examples: ``gpu1``, ``a(4) b(4)``, ``sim-0 sim-1 sim-2 +5``.
    """
    names = sorted(nodes, key=natural_key)
    several = len(names) > 1 and any(count > 1 for count in nodes.values())
    shown = [f"{name}({nodes[name]})" if several else name for name in names[:most]]
    if len(names) > most:
        shown.append(f"+{len(names) - most}")
    return " ".join(shown)


def name_ranges(names: Sequence[str]) -> str:
    """Return names with consecutive numbers as ranges: ``a, gpu-0 … gpu-7, gpu-9``.

    ``names``: in natural order.
    """
    ranges: list[list[str]] = []
    for name in names:
        if ranges and _follows(ranges[-1][-1], name):
            ranges[-1].append(name)
        else:
            ranges.append([name])
    shown = (f"{part[0]} … {part[-1]}" if len(part) > 2 else ", ".join(part) for part in ranges)
    return ", ".join(shown)


def _follows(before: str, name: str) -> bool:
    """Return whether two names differ by one in the number at their end."""
    first, second = (re.fullmatch(r"(.*?)(\d+)", text) for text in (before, name))
    if first is None or second is None or first[1] != second[1]:
        return False
    return int(second[2]) == int(first[2]) + 1 and name == f"{first[1]}{int(first[2]) + 1:0{len(first[2])}d}"


def resource_text(name: str, amount: str) -> str:
    """Return an amount of a resource for people: ``4 GPUs``, ``2 CPUs``, ``16Gi memory``."""
    if name.endswith("/gpu"):
        return f"{amount} GPU{'' if amount == '1' else 's'}"
    if name == "cpu":
        return f"{amount} CPU{'' if amount in ('1', '1000m') else 's'}"
    return f"{readable(name, amount)} {name}"


def readable(name: str, amount: str) -> str:
    """Return an amount of memory with few digits, rounded down: ``22.3Gi`` for ``23449469Ki``."""
    match = _LONG_MEMORY.fullmatch(amount)
    if match is None or name not in ("memory", "ephemeral-storage", "storage"):
        return amount
    units = quantities.to_units(name, amount)
    for suffix, power in (("Ti", 40), ("Gi", 30), ("Mi", 20), ("Ki", 10)):
        if units >= 1 << power:
            tenths = (units * 10) >> power
            return f"{tenths // 10}{f'.{tenths % 10}' if tenths % 10 else ''}{suffix}"
    return amount


_LONG_MEMORY = re.compile(r"\d{5,}[KMGTki]*")


def join_words(words: Iterable[str]) -> str:
    """Return a list as ``a, b and c``."""
    items = list(words)
    if len(items) < 2:
        return "".join(items)
    return f"{', '.join(items[:-1])} and {items[-1]}"


def key_of(obj: Object) -> str:
    """Return ``namespace/name``, or ``name`` for an object without a namespace."""
    metadata = obj.get("metadata") or {}
    space = metadata.get("namespace")
    return f"{space}/{metadata.get('name')}" if space else str(metadata.get("name"))


def condition(obj: Object, kind: str) -> Mapping[str, Any] | None:
    for matching in (obj.get("status") or {}).get("conditions") or ():
        if matching.get("type") == kind:
            return matching
    return None


def containers(pod_spec: Object) -> Sequence[Mapping[str, Any]]:
    return pod_spec.get("containers") or ()
