"""Dictionary updates that report a change."""

from __future__ import annotations

from typing import TypeVar

Value = TypeVar("Value")


def put_if_changed(into: dict[str, Value], key: str, value: Value) -> bool:
    """Store ``value`` under ``key``. Return whether it differs from the previous value."""
    if into.get(key) == value:
        return False
    into[key] = value
    return True
