"""Interning of values as small integers: one code per distinct value, 0 for "absent"."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)


class Interner(Generic[T]):
    """Growing two-way table. Codes are never reused, because labels have few values."""

    __slots__ = ("codes", "values")

    def __init__(self, zero: T) -> None:
        self.values: list[T] = [zero]
        self.codes: dict[T, int] = {zero: 0}

    def code(self, value: T) -> int:
        """Return the code of ``value``; a new value gets a new code."""
        code = self.codes.get(value)
        if code is None:
            code = self.codes[value] = len(self.values)
            self.values.append(value)
        return code

    def __len__(self) -> int:
        return len(self.values)
