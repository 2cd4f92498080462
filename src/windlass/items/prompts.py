"""Prompt templates: text with columns in braces, for example ``Describe {name}``.

``{{`` and ``}}`` stand for the braces themselves. A nested field is written ``{a.b}``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_PART = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")


class PromptError(ValueError):
    """A template that is not valid, or a row without one of its columns."""


class Prompt:
    """Compiled template. ``columns``: the names that it needs."""

    def __init__(self, template: str) -> None:
        self._parts: list[tuple[str, str]] = []
        position = 0
        for match in _PART.finditer(template):
            literal = template[position : match.start()]
            position = match.end()
            whole, name = match.group(), match.group(1)
            if whole in ("{{", "}}"):
                self._parts.append((literal + whole[0], ""))
                continue
            if name is None or not name.strip():
                raise PromptError(
                    f"position {match.start() + 1}: {whole!r} is not a column: write {{name}} for a column "
                    "and {{ or }} for a brace"
                )
            self._parts.append((literal, name.strip()))
        self._rest = template[position:]
        self.columns = tuple(dict.fromkeys(name for _, name in self._parts if name))

    def render(self, row: Mapping[str, Any]) -> str:
        """Return the prompt of a row. Raises :class:`PromptError`."""
        parts = []
        for literal, name in self._parts:
            parts.append(literal)
            if name:
                parts.append(str(_column(row, name)))
        parts.append(self._rest)
        return "".join(parts)

    def missing(self, names: set[str]) -> list[str]:
        """Return the columns that are not among ``names``."""
        return [name for name in self.columns if name not in names and name.split(".")[0] not in names]


def _column(row: Mapping[str, Any], name: str) -> Any:
    if name in row:
        return row[name]
    value: Any = row
    for part in name.split("."):
        if not isinstance(value, Mapping) or part not in value:
            has = ", ".join(str(one) for one in list(row)[:12])
            raise PromptError(f"the prompt needs the column {name!r}: the row has {has}")
        value = value[part]
    return value
