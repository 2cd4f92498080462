"""Rows of custom kinds, by ``additionalPrinterColumns`` of their definitions."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from windlass.server.presentation.tables_common import AGE, NAME, TableColumn, TableOf, age_of, name_of, since

_STEP = re.compile(
    r"""\.(?P<name>(?:\\.|[^.\[\]\\])+)
    |\[(?P<index>-?\d+)\]
    |\[(?P<slice>-?\d*:-?\d*)\]
    |\[(?P<all>\*)\]
    |\['(?P<quoted>(?:[^'\\]|\\.)*)'\]
    |\[\?\(@(?P<path>\.[^=!<>]+?)\s*==\s*(?P<quote>["'])(?P<text>.*?)(?P=quote)\)\]""",
    re.VERBOSE,
)
PathStep = Callable[[Any], Iterable[Any]]


@lru_cache(maxsize=256)
def parse_path(text: str) -> tuple[PathStep, ...]:
    """Return the steps of a path such as ``.status.conditions[-1:].type``.

    Names, indices, slices, ``[*]`` and filters on equality with a text are supported.
    Raises ``ValueError`` for anything else.
    """
    steps: list[PathStep] = []
    position = 0
    while position < len(text):
        match = _STEP.match(text, position)
        if match is None:
            raise ValueError(f"jsonPath {text!r} is not understood at {text[position:]!r}")
        position = match.end()
        steps.append(_step(match))
    return tuple(steps)


def _step(match: re.Match[str]) -> PathStep:
    if match["index"] is not None:
        index = int(match["index"])
        return lambda value: _items(value, slice(index, index + 1 or None))
    if match["slice"] is not None:
        first, last = (int(part) if part else None for part in match["slice"].split(":"))
        return lambda value: _items(value, slice(first, last))
    if match["all"] is not None:
        return lambda value: value.values() if isinstance(value, Mapping) else _items(value, slice(None))
    if match["path"] is not None:
        steps, wanted = parse_path(match["path"]), match["text"]
        return lambda value: [
            item for item in _items(value, slice(None)) if str(lookup(item, steps)) == wanted
        ]
    name = re.sub(r"\\(.)", r"\1", match["name"] if match["name"] is not None else match["quoted"])
    return lambda value: [value[name]] if isinstance(value, Mapping) and name in value else []


def _items(value: Any, part: slice) -> Sequence[Any]:
    return value[part] if isinstance(value, list) else []


def lookup(value: Any, steps: Sequence[PathStep]) -> Any:
    """Return the first value at the path; ``None`` if there is none."""
    found: list[Any] = [value]
    for step in steps:
        found = [inner for outer in found for inner in step(outer)]
    return found[0] if found else None


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
    try:
        steps = parse_path(column["jsonPath"])
    except ValueError:  # admission warned about it
        return lambda obj, now: None
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
