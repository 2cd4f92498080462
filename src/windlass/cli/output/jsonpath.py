"""JSONPath templates of kubectl, such as ``{.items[*].metadata.name}``.

Supported are ``{range …}{end}``, filters and text.

Grammar: https://kubernetes.io/docs/reference/kubectl/jsonpath/ . A template is text
with expressions in braces. A bare expression without braces is treated as one. A
missing key yields nothing, as in kubectl.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

Value = Any
Step = Callable[[Value, Value], Iterator[Value]]
"""``(value, root) → values``."""


class PathError(ValueError):
    """Invalid template; the message names the place."""


@dataclass(frozen=True, slots=True)
class _Text:
    text: str


@dataclass(frozen=True, slots=True)
class _Query:
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class _Range:
    steps: tuple[Step, ...]
    body: tuple[Any, ...]


def render(template: str, value: Value) -> str:
    """Return the template filled from ``value``. Raises :class:`PathError`."""
    if "{" not in template:
        template = "{" + (template if template.startswith((".", "[", "$", "@")) else "." + template) + "}"
    nodes, rest = _parse(_split(template), 0, inside=False)
    assert rest == len(_split(template))
    return "".join(_fill(nodes, value, value))


def _fill(nodes: tuple[Any, ...], value: Value, root: Value) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, _Text):
            yield node.text
        elif isinstance(node, _Query):
            yield " ".join(_shown(found) for found in _walk(node.steps, value, root))
        else:
            for found in _walk(node.steps, value, root):
                yield from _fill(node.body, found, root)


def _shown(value: Value) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "<nil>"
    if isinstance(value, (dict, list)):
        import msgspec

        return msgspec.json.encode(value).decode()
    return str(value)


def _split(template: str) -> list[tuple[str, str]]:
    """Return ``(kind, text)`` pairs with kind ``text`` or ``expression``."""
    parts: list[tuple[str, str]] = []
    position = 0
    while position < len(template):
        start = template.find("{", position)
        if start < 0:
            parts.append(("text", template[position:]))
            break
        if start > position:
            parts.append(("text", template[position:start]))
        end = _closing(template, start)
        parts.append(("expression", template[start + 1 : end].strip()))
        position = end + 1
    return parts


def _closing(template: str, start: int) -> int:
    quote = ""
    position = start + 1
    while position < len(template):
        character = template[position]
        if quote:
            if character == "\\":
                position += 1
            elif character == quote:
                quote = ""
        elif character in "\"'":
            quote = character
        elif character == "}":
            return position
        position += 1
    raise PathError(f"the brace at position {start + 1} is not closed: {template!r}")


def _parse(parts: list[tuple[str, str]], position: int, *, inside: bool) -> tuple[tuple[Any, ...], int]:
    nodes: list[Any] = []
    while position < len(parts):
        kind, text = parts[position]
        position += 1
        if kind == "text":
            nodes.append(_Text(text))
        elif text == "end":
            if not inside:
                raise PathError("{end} without {range}")
            return tuple(nodes), position
        elif text.startswith("range ") or text == "range":
            body, position = _parse(parts, position, inside=True)
            nodes.append(_Range(tuple(_steps(text[5:].strip())), body))
        elif text[:1] in "\"'" and text[:1]:
            nodes.append(_Text(_unquote(text)))
        else:
            nodes.append(_Query(tuple(_steps(text))))
    if inside:
        raise PathError("{range} without {end}")
    return tuple(nodes), position


def _unquote(text: str) -> str:
    if len(text) < 2 or text[-1] != text[0]:
        raise PathError(f"the text {text!r} is not closed by its quote")
    escapes = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", '"': '"', "'": "'"}
    return re.sub(r"\\(.)", lambda found: escapes.get(found[1], found[0]), text[1:-1])


_NAME = re.compile(r"(?:\\.|[^.\[\]\s(){}'\"\\])+")


def _steps(path: str) -> Iterator[Step]:
    position = 1 if path[:1] in "$@" and path else 0
    while position < len(path):
        character = path[position]
        if path.startswith("..", position):
            yield _descend
            position += 2
            if position < len(path) and path[position] != "[":
                name, position = _name(path, position)
                yield _key(name)
        elif character == ".":
            position += 1
            if position < len(path) and path[position] not in ".[":
                name, position = _name(path, position)
                yield _every if name == "*" else _key(name)
        elif character == "[":
            end = _bracket(path, position)
            yield _subscript(path[position + 1 : end].strip())
            position = end + 1
        elif position == 0:
            name, position = _name(path, position)
            yield _key(name)
        else:
            raise PathError(f"unexpected {character!r} at position {position + 1} of {path!r}")


def _name(path: str, position: int) -> tuple[str, int]:
    match = _NAME.match(path, position)
    if match is None:
        raise PathError(f"a name is missing at position {position + 1} of {path!r}")
    return re.sub(r"\\(.)", r"\1", match[0]), match.end()


def _bracket(path: str, start: int) -> int:
    depth, quote = 0, ""
    for position in range(start, len(path)):
        character = path[position]
        if quote:
            quote = "" if character == quote else quote
        elif character in "\"'":
            quote = character
        elif character == "[":
            depth += 1
        elif character == "]":
            depth -= 1
            if depth == 0:
                return position
    raise PathError(f"the bracket at position {start + 1} of {path!r} is not closed")


def _key(name: str) -> Step:
    def step(value: Value, _root: Value) -> Iterator[Value]:
        if isinstance(value, dict) and name in value:
            yield value[name]

    return step


def _every(value: Value, _root: Value) -> Iterator[Value]:
    if isinstance(value, dict):
        yield from value.values()
    elif isinstance(value, list):
        yield from value


def _descend(value: Value, _root: Value) -> Iterator[Value]:
    yield value
    for child in _every(value, _root):
        if isinstance(child, (dict, list)):
            yield from _descend(child, _root)


def _subscript(inner: str) -> Step:
    if inner == "*":
        return _every
    if inner.startswith("?(") and inner.endswith(")"):
        return _filter(inner[2:-1].strip())
    if inner[:1] in "\"'" and inner:
        names = [_unquote(part.strip()) for part in re.findall(r"'[^']*'|\"[^\"]*\"", inner)]
        steps = [_key(name) for name in names]
        return lambda value, root: (found for step in steps for found in step(value, root))
    if re.fullmatch(r"-?\d*:-?\d*(?::-?\d+)?", inner):
        bounds = [int(part) if part else None for part in inner.split(":")]
        return lambda value, _root: iter(value[slice(*bounds)] if isinstance(value, list) else ())
    if re.fullmatch(r"-?\d+(\s*,\s*-?\d+)*", inner):
        return _indices([int(part) for part in inner.split(",")])
    raise PathError(f"[{inner}] is not an index, a slice, '*', a quoted name or ?(filter)")


def _indices(numbers: list[int]) -> Step:
    def step(value: Value, _root: Value) -> Iterator[Value]:
        if isinstance(value, list):
            for number in numbers:
                if -len(value) <= number < len(value):
                    yield value[number]

    return step


_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "==": lambda left, right: left == right,
    "!=": lambda left, right: left != right,
    "<=": lambda left, right: left <= right,
    ">=": lambda left, right: left >= right,
    "<": lambda left, right: left < right,
    ">": lambda left, right: left > right,
}


def _filter(condition: str) -> Step:
    match = re.match(r"(.+?)\s*(==|!=|<=|>=|<|>)\s*(.+)$", condition)
    if match is None:
        present = _operand(condition)
        return lambda value, root: (item for item in _every(value, root) if list(present(item, root)))
    left, right = _operand(match[1].strip()), _operand(match[3].strip())
    holds = _OPERATORS[match[2]]

    def step(value: Value, root: Value) -> Iterator[Value]:
        for item in _every(value, root):
            value_left, value_right = next(left(item, root), None), next(right(item, root), None)
            try:
                if holds(value_left, value_right):
                    yield item
            except TypeError:
                continue  # values of different types are not comparable

    return step


def _operand(text: str) -> Step:
    if text[:1] in "@$" and text:
        steps = tuple(_steps(text))
        at_root = text[0] == "$"
        return lambda value, root: _walk(steps, root if at_root else value, root)
    literal: Any
    if text[:1] in "\"'" and text:
        literal = _unquote(text)
    elif text in ("true", "false"):
        literal = text == "true"
    else:
        try:
            literal = float(text) if "." in text else int(text)
        except ValueError:
            raise PathError(f"{text!r} in a filter is neither a path, a number nor a quoted text") from None
    return lambda _value, _root: iter((literal,))


def _walk(steps: tuple[Step, ...], value: Value, root: Value) -> Iterator[Value]:
    if not steps:
        yield value
        return
    first, *rest = steps
    for found in first(value, root):
        yield from _walk(tuple(rest), found, root)
