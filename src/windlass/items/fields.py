"""Typed reading of the fields of a specification, with one message for each bad field."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from windlass.kits import durations

_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)([KMGT]i?|)")
_FACTORS = {"": 1, "K": 1000, "M": 1000**2, "G": 1000**3, "T": 1000**4} | {
    "Ki": 1024,
    "Mi": 1024**2,
    "Gi": 1024**3,
    "Ti": 1024**4,
}


class SpecFields:
    """One object of a specification and the path that leads to it.

    Each reader returns the value, or the default after a message was noted. ``found``
    collects pairs of path and message, shared by all nested objects.
    """

    __slots__ = ("found", "path", "values")

    def __init__(self, values: Any, path: str, found: list[tuple[str, str]]) -> None:
        self.path, self.found = path, found
        self.values: Mapping[str, Any] = {}
        if isinstance(values, Mapping):
            self.values = values
        elif values is not None:
            self.bad("", f"Invalid value: {values!r}: must be an object")

    def bad(self, name: str, message: str) -> None:
        self.found.append((f"{self.path}.{name}" if name else self.path, message))

    def has(self, name: str) -> bool:
        return self.values.get(name) is not None

    def inner(self, name: str) -> SpecFields:
        return SpecFields(self.values.get(name), f"{self.path}.{name}", self.found)

    def text(self, name: str, default: str = "") -> str:
        value = self.values.get(name)
        if value is None:
            return default
        if not isinstance(value, str):
            self.bad(name, f"Invalid value: {value!r}: must be a string")
            return default
        return value

    def flag(self, name: str, default: bool) -> bool:
        value = self.values.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            self.bad(name, f"Invalid value: {value!r}: must be true or false")
            return default
        return value

    def number(self, name: str, default: float, least: float = 0.0, most: float | None = None) -> float:
        value = self.values.get(name)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
            self.bad(name, f"Invalid value: {value!r}: must be a number")
            return default
        if value < least:
            self.bad(name, f"Invalid value: {value}: must be greater than or equal to {least:g}")
            return default
        if most is not None and value > most:
            self.bad(name, f"Invalid value: {value}: must be less than or equal to {most:g}")
            return default
        return float(value)

    def integer(self, name: str, default: int, least: int = 0) -> int:
        value = self.number(name, default, least)
        if value != int(value):
            self.bad(name, f"Invalid value: {value}: must be a whole number")
            return default
        return int(value)

    def seconds(self, name: str, default: float) -> float:
        """Read seconds: a number, or a duration such as ``1m30s``."""
        value = self.values.get(name)
        if not isinstance(value, str):
            return self.number(name, default)
        try:
            found = durations.parse(value)
        except ValueError as error:
            self.bad(name, f"Invalid value: {value!r}: {error}")
            return default
        if found < 0:
            self.bad(name, f"Invalid value: {value!r}: must not be negative")
            return default
        return found

    def size(self, name: str, default: int) -> int:
        """Read bytes: a number, or a quantity such as ``64Mi``."""
        value = self.values.get(name)
        if not isinstance(value, str):
            return self.integer(name, default)
        match = _SIZE.fullmatch(value)
        if match is None:
            self.bad(name, f"Invalid value: {value!r}: must be bytes, for example 1048576 or 1Mi")
            return default
        return int(float(match[1]) * _FACTORS[match[2]])

    def choice(self, name: str, default: str, allowed: Sequence[str]) -> str:
        value = self.text(name, default)
        if value not in allowed:
            options = ", ".join(f'"{one}"' for one in sorted(allowed))
            self.bad(name, f'Unsupported value: "{value}": supported values: {options}')
            return default
        return value

    def mapping(self, name: str) -> dict[str, Any]:
        return dict(self.inner(name).values)
