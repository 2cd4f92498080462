"""Dictionaries that say whether something in them has changed."""

from __future__ import annotations

from typing import TypeVar

Value = TypeVar("Value")


def put(into: dict[str, Value], key: str, value: Value) -> bool:
    """Keep ``value`` under ``key``; whether that is another than before."""
    if into.get(key) == value:
        return False
    into[key] = value
    return True
