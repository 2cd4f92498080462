"""Loops: items of ``withItems``, ``withParam`` and ``withSequence``, and the names of their nodes."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from windlass.workflow.language.errors import EvaluationError
from windlass.workflow.language.functions import text_of

FIELDS = ("withItems", "withParam", "withSequence")
MAX_ITEMS = 100_000
"""Maximum number of items of a loop."""
_FORMAT = re.compile(r"(?:[^%]|%%)*%([-+ 0#]*)(\d*)(?:\.\d+)?([dxXobcs])(?:[^%]|%%)*")


def is_loop(task: Mapping[str, Any]) -> bool:
    return any(task.get(field) is not None for field in FIELDS)


def items_of(task: Mapping[str, Any]) -> list[Any]:
    """Return the items of a loop, its references replaced before. Raises :class:`EvaluationError`."""
    if task.get("withItems") is not None:
        found = task["withItems"]
    elif task.get("withParam") is not None:
        found = _of_text(task["withParam"])
    else:
        found = _sequence(task.get("withSequence") or {})
    if len(found) > MAX_ITEMS:
        raise EvaluationError(
            f"the loop has {len(found)} items, {MAX_ITEMS} are allowed: use an AIGCJob for larger batches"
        )
    return found


def _of_text(text: Any) -> list[Any]:
    try:
        found = json.loads(text) if isinstance(text, str) else text
    except ValueError as problem:
        raise EvaluationError(
            f"withParam value could not be parsed as a JSON list: {str(text).strip()[:200]!r}: {problem}"
        ) from None
    if not isinstance(found, list):
        raise EvaluationError(f"withParam value is not a JSON list: {str(text).strip()[:200]!r}")
    return found


def _sequence(sequence: Mapping[str, Any]) -> list[str]:
    start = _number(sequence.get("start"), "start", 0)
    if sequence.get("end") is not None:
        end = _number(sequence["end"], "end", 0)
    elif sequence.get("count") is not None:
        count = _number(sequence["count"], "count", 0)
        if count <= 0:
            return []
        end = start + count - 1
    else:
        raise EvaluationError("withSequence needs count or end")
    if abs(end - start) >= MAX_ITEMS:
        raise EvaluationError(f"withSequence has {abs(end - start) + 1} items, {MAX_ITEMS} are allowed")
    numbers = range(start, end + 1) if start <= end else range(start, end - 1, -1)
    layout = sequence.get("format") or "%d"
    if not _FORMAT.fullmatch(layout):
        raise EvaluationError(f"withSequence.format {layout!r} is not a format such as %02d")
    return [layout % number for number in numbers]


def _number(value: Any, field: str, default: int) -> int:
    if value is None:
        return default
    try:
        return int(value)
    except (TypeError, ValueError):
        raise EvaluationError(f"withSequence.{field} is {value!r}, which is not a whole number") from None


@lru_cache(maxsize=8)
def text_suffixes(items: tuple[str, ...]) -> tuple[str, ...]:
    """Return the suffixes of the nodes of items that are texts. A loop is looked at at each advance."""
    return tuple(node_suffix(index, item) for index, item in enumerate(items))


def node_suffix(index: int, item: Any) -> str:
    """Return the suffix of the node of an item: ``(0:foo)``, ``(1:a:1,b:2)``."""
    if isinstance(item, dict):
        label = ",".join(sorted(f"{key}:{text_of(value)}" for key, value in item.items()))
    else:
        label = text_of(item)
    return f"({index}:{label.replace('(', '').replace(')', '')})"


def values_of(item: Any) -> dict[str, Any]:
    """Return what ``{{item}}`` and ``{{item.KEY}}`` stand for."""
    found: dict[str, Any] = {"item": item}
    if isinstance(item, dict):
        found.update({f"item.{key}": value for key, value in item.items()})
    return found
