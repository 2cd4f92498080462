"""Checks of conditions and expressions, as far as their text alone decides."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from typing import Any

from windlass.workflow.language import expressions
from windlass.workflow.language.errors import EvaluationError
from windlass.workflow.language.scope import condition, references

_TAG = re.compile(r"\{\{.*?\}\}", re.DOTALL)
_VALUES = ("x", "", "==", "x ==", "== x", "x not", "x)", "(x", "x'", "'x", 'x"', '"x')
"""Values of a reference that stand for others: operands, operators, brackets, quotes."""
_MAX_TAGS = 2
"""Maximum number of references for which the values are combined."""


def when_problem(text: str) -> str:
    """Return why a ``when`` can have no value, whatever its references have. Empty if it may have one."""
    tags = len(_TAG.findall(text))
    try:
        if tags:
            expressions.parse(_TAG.sub("x", text), bare_words=True)
        else:
            condition(text)
    except EvaluationError as problem:
        if tags <= _MAX_TAGS and not any(
            _parses(text, values) for values in itertools.product(_VALUES, repeat=tags) if tags
        ):
            return str(problem)
    return ""


def _parses(text: str, values: tuple[str, ...]) -> bool:
    given = iter(values)
    try:
        expressions.parse(_TAG.sub(lambda _: next(given), text), bare_words=True)
    except EvaluationError:
        return False
    return True


def tag_problems(template: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the tags ``{{=…}}`` of a template that are no expressions, and why."""
    for name in references({key: value for key, value in template.items() if key != "description"}):
        if name.startswith("=") and "{{" not in name:
            try:
                expressions.parse(name[1:])
            except EvaluationError as problem:
                yield f"{{{{{name}}}}}", str(problem)
