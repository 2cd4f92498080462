"""Paths in an owner: ``.spec.workers``, ``.spec.groups[*].replicas``, sums of them, and numbers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

_PATH = re.compile(r"(\.[A-Za-z_][A-Za-z0-9_-]*(\[\*\])?)+")
_STEP = re.compile(r"\.([A-Za-z_][A-Za-z0-9_-]*)(\[\*\])?")


class OwnerPathError(ValueError):
    """The text is not a path, or the owner has something else there."""


def check(text: str) -> None:
    """Raise :class:`OwnerPathError` unless ``text`` is a path."""
    if not _PATH.fullmatch(text):
        raise OwnerPathError(
            f"{text!r} is not a path: write it as .spec.workers, or as .spec.groups[*].replicas for each item"
        )


def check_sum(text: str) -> None:
    """Raise :class:`OwnerPathError` unless ``text`` is a sum of paths and whole numbers."""
    for term in text.split("+"):
        if not term.strip().isdecimal():
            check(term.strip())


def values(obj: Any, text: str) -> list[Any]:
    """Return the values at a path, without those that are absent."""
    found = [obj]
    for name, every in _STEP.findall(text):
        found = [inner for value in found for inner in _step(value, name, every=bool(every))]
    return found


def _step(value: Any, name: str, *, every: bool) -> Iterator[Any]:
    inner = value.get(name) if isinstance(value, Mapping) else None
    if inner is None:
        return
    if not every:
        yield inner
    elif isinstance(inner, Mapping):
        yield from inner.values()
    elif isinstance(inner, list):
        yield from inner


def total(obj: Any, text: str) -> int | None:
    """Return the sum of a text such as ``1 + .spec.workers``; ``None`` if a path has no value.

    Raises :class:`OwnerPathError` if a value is not a whole number of at least 0.
    """
    result = 0
    for part in text.split("+"):
        term = part.strip()
        if term.isdecimal():
            result += int(term)
            continue
        found = values(obj, term)
        if not found:
            return None
        for value in found:
            if not isinstance(value, int) or isinstance(value, bool) or value < 0:
                raise OwnerPathError(f"{term} is {value!r}, not a whole number of at least 0")
            result += value
    return result


def word(obj: Any, text: str) -> str:
    """Return the text at a path; empty if there is none. Raises :class:`OwnerPathError` for other values."""
    found = values(obj, text)
    if not found:
        return ""
    if not isinstance(found[0], str):
        raise OwnerPathError(f"{text} is {found[0]!r}, not a text")
    return found[0]


def specified(schema: Any, text: str) -> bool:
    """Return whether a structural schema specifies the field at a path, or leaves it open."""
    for name, every in _STEP.findall(text):
        if not isinstance(schema, Mapping):
            return False
        if name not in (schema.get("properties") or {}):
            free = bool(schema.get("x-kubernetes-preserve-unknown-fields"))
            return free or schema.get("additionalProperties", False) is not False
        schema = schema["properties"][name]
        if every:
            schema = schema.get("items") or schema.get("additionalProperties")
    return True
