"""Rows of custom kinds, by ``additionalPrinterColumns`` of their definitions."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from windlass.server.presentation.tables_common import AGE, NAME, TableColumn, TableOf, age_of, name_of, since

_STEP = re.compile(r"\.((?:\\.|[^.\[\]\\])+)|\[(\d+)\]|\['((?:[^'\\]|\\.)*)'\]")


@lru_cache(maxsize=256)
def parse_path(text: str) -> tuple[str | int, ...]:
    """Return the steps of a path such as ``.status.conditions[0].type``.

    Raises ``ValueError`` for anything but names and indices.
    """
    steps: list[str | int] = []
    position = 0
    while position < len(text):
        match = _STEP.match(text, position)
        if match is None:
            raise ValueError(f"jsonPath {text!r} is not understood at {text[position:]!r}")
        position = match.end()
        name, index, quoted = match.groups()
        if index is not None:
            steps.append(int(index))
        else:
            steps.append(re.sub(r"\\(.)", r"\1", name if name is not None else quoted))
    return tuple(steps)


def lookup(value: Any, steps: Sequence[str | int]) -> Any:
    """Return the value at the path; ``None`` if there is none."""
    for step in steps:
        if isinstance(step, int):
            value = value[step] if isinstance(value, list) and step < len(value) else None
        else:
            value = value.get(step) if isinstance(value, Mapping) else None
        if value is None:
            return None
    return value


def table_of(columns: Sequence[Mapping[str, Any]]) -> TableOf:
    """Return the table of a custom kind; NAME and AGE if it declares no columns."""
    if not columns:
        return TableOf((NAME, AGE), lambda obj, now: [name_of(obj), age_of(obj, now)])
    shown = tuple(
        TableColumn(
            column["name"],
            column.get("type", "string"),
            bool(column.get("priority")),
            column.get(
                "description", f"Custom resource definition column (in JSONPath format): {column['jsonPath']}"
            ),
            column.get("format", ""),
        )
        for column in columns
    )
    getters = [_getter(column) for column in columns]

    def cells(obj: Mapping[str, Any], now: float) -> list[Any]:
        return [name_of(obj), *(get(obj, now) for get in getters)]

    return TableOf((NAME, *shown), cells)


def _getter(column: Mapping[str, Any]) -> Callable[[Mapping[str, Any], float], Any]:
    steps = parse_path(column["jsonPath"])
    kind = column.get("type", "string")

    def get(obj: Mapping[str, Any], now: float) -> Any:
        value = lookup(obj, steps)
        if value is None:
            return "<unknown>" if kind == "date" else None
        if kind == "date":
            return since(value, now)
        return value if kind in ("integer", "number", "boolean") else _text(value)

    return get


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else str(value)
