"""Gathers field errors along a walk, with the shorthands that every validator needs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from windlass.api.errors import FieldError


def part(obj: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """An inner object; empty where it is absent or null."""
    return obj.get(name) or {}


class Collector:
    """``errors`` in the order found. Paths are given in full."""

    __slots__ = ("errors",)

    def __init__(self) -> None:
        self.errors: list[FieldError] = []

    def add(self, error: FieldError) -> None:
        self.errors.append(error)

    def required(self, path: str, hint: str = "") -> None:
        self.errors.append(FieldError.required(path, hint))

    def invalid(self, path: str, value: object, why: str) -> None:
        self.errors.append(FieldError.invalid(path, value, why))

    def forbidden(self, path: str, why: str) -> None:
        self.errors.append(FieldError.forbidden(path, why))

    def duplicate(self, path: str, value: object) -> None:
        self.errors.append(FieldError.duplicate(path, value))

    def too_many(self, path: str, number: int, most: int) -> None:
        self.add(FieldError(path, f"Too many: {number}: must have at most {most} items", "FieldValueTooMany"))

    def each(self, path: str, value: Any, complaints: Iterable[str]) -> None:
        """One error per complaint about ``value``."""
        for words in complaints:
            self.errors.append(FieldError.invalid(path, value, words))

    def checked(self, path: str, value: str, check: Callable[[str], Iterable[str]]) -> None:
        """Required, then ``check``."""
        if not value:
            self.required(path)
        else:
            self.each(path, value, check(value))

    def choice(self, path: str, value: Any, supported: Sequence[str]) -> bool:
        """Return whether ``value`` is one of ``supported``; an error if not."""
        if value in supported:
            return True
        self.errors.append(FieldError.not_supported(path, value, supported))
        return False

    def at_least(self, path: str, value: Any, least: int = 0) -> None:
        if isinstance(value, int) and value < least:
            self.invalid(path, value, f"must be greater than or equal to {least}")
