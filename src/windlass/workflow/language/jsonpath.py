"""JSONPath, as far as workflows use it: names, indices, slices, wildcards and descent."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable
from typing import Any

from windlass.workflow.language.errors import EvaluationError

_STEP = re.compile(
    r"\.\.(?P<deep>[A-Za-z_][\w-]*|\*)"
    r"|\.?(?P<name>[A-Za-z_][\w-]*)"
    r"|\.(?P<star>\*)"
    r"|\[\s*(?:'(?P<single>[^']*)'|\"(?P<double>[^\"]*)\"|(?P<index>-?\d+)"
    r"|(?P<slice>-?\d*:-?\d*)|(?P<all>\*)"
    r"|\?\((?P<filter>(?:'[^']*'|\"[^\"]*\"|[^'\"()])*)\))\s*\]"
)
_TEST = re.compile(
    r"\s*@\.(?P<field>[A-Za-z_][\w.-]*)\s*(?:(?P<compare>==|!=|<=|>=|<|>)\s*"
    r"(?:'(?P<text1>[^']*)'|\"(?P<text2>[^\"]*)\"|(?P<number>-?\d+(?:\.\d+)?)|(?P<word>true|false)))?"
    r"\s*(?P<joint>&&|\|\||$)"
)
_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip


def find(value: Any, path: str) -> list[Any]:
    """Return the values at a path such as ``$.items[0].name`` or ``{.status.phase}``.

    A filter compares fields of each entry, as in ``$.items[?(@.name == 'a' && @.age > 4)].value``.
    Raises :class:`EvaluationError` for a path that is not understood.
    """
    text = path.strip()
    if text.startswith("{") and text.endswith("}"):
        text = text[1:-1]
    text = text.removeprefix("$")
    found, at = [value], 0
    while at < len(text):
        step = _STEP.match(text, at)
        if step is None:
            raise EvaluationError(f"{path!r} is not a supported JSONPath: {text[at:]!r} is not understood")
        found = [hit for item in found for hit in _step(item, step)]
        at = step.end()
    return found


def _step(value: Any, step: re.Match[str]) -> Iterable[Any]:
    name = step["name"] or step["single"] or step["double"]
    if name is not None:
        return [value[name]] if isinstance(value, dict) and name in value else []
    if step["deep"]:
        return list(_deep(value, step["deep"]))
    if step["star"] or step["all"]:
        return list(_children(value))
    if not isinstance(value, list):
        return []
    if step["filter"] is not None:
        tests = _tests(step["filter"])
        return [entry for entry in value if any(all(_meets(entry, one) for one in group) for group in tests)]
    if step["index"]:
        at = int(step["index"])
        return [value[at]] if -len(value) <= at < len(value) else []
    start, _, end = step["slice"].partition(":")
    return value[int(start) if start else None : int(end) if end else None]


def _tests(text: str) -> list[list[re.Match[str]]]:
    """Return the alternatives of a filter, each a list of tests. Raises :class:`EvaluationError`."""
    groups: list[list[re.Match[str]]] = [[]]
    at = 0
    while True:
        found = _TEST.match(text, at)
        if found is None:
            raise EvaluationError(
                f"the filter {text!r} of a JSONPath is not understood from {text[at:]!r} on"
            )
        groups[-1].append(found)
        at = found.end()
        if found["joint"] == "||":
            groups.append([])
        if not found["joint"]:
            return groups


def _meets(entry: Any, test: re.Match[str]) -> bool:
    found = find(entry, test["field"])
    if test["compare"] is None:
        return bool(found)
    wanted: Any = test["text1"] if test["text1"] is not None else test["text2"]
    if test["number"] is not None:
        wanted = float(test["number"])
    elif test["word"] is not None:
        wanted = test["word"] == "true"
    if not found:
        return test["compare"] == "!="
    try:
        return _COMPARE[test["compare"]](found[0], wanted)
    except TypeError:  # text and a number have no order
        return False


def _children(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _deep(value: Any, name: str) -> Iterable[Any]:
    if name == "*":
        yield from _children(value)
    elif isinstance(value, dict) and name in value:
        yield value[name]
    for child in _children(value):
        yield from _deep(child, name)
