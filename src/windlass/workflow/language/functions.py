"""Functions of expressions, with the names and meanings of Argo's (expr-lang and sprig)."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any

from windlass.workflow.language import jsonpath
from windlass.workflow.language.dates import date
from windlass.workflow.language.errors import EvaluationError

Value = Any
_MAX_TEXT = 1 << 20


def text_of(value: Value) -> str:
    """Return the text that a value is substituted as: strings as they are, others as JSON."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    return to_json(value)


def to_json(value: Value) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _as_int(value: Value) -> int:
    try:
        return int(value)
    except (TypeError, ValueError):
        raise EvaluationError(f"asInt(): {value!r} is not a whole number") from None


def _as_float(value: Value) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise EvaluationError(f"asFloat(): {value!r} is not a number") from None


def _from_json(text: Value) -> Value:
    try:
        return json.loads(text)
    except (TypeError, ValueError) as problem:
        raise EvaluationError(f"fromJson(): {text!r} is not JSON: {problem}") from None


def _json_path(text: Value, path: str) -> Value:
    found = jsonpath.find(_from_json(text) if isinstance(text, str) else text, path)
    return found[0] if len(found) == 1 else found


def _decode(text: Value) -> str:
    try:
        return base64.b64decode(text, validate=True).decode()
    except ValueError:
        raise EvaluationError(f"b64dec(): {text!r} is not base64 of text") from None


def _repeat(count: Value, text: Value) -> str:
    if int(count) * len(text) > _MAX_TEXT:
        raise EvaluationError(f"repeat(): the text would have more than {_MAX_TEXT} characters")
    return text * int(count)


def _sequence(start: int, end: int) -> list[int]:
    if abs(end - start) > 100_000:
        raise EvaluationError("the list would have more than 100000 entries")
    return list(range(start, end))


def _len(value: Value) -> int:
    return len(value)


def _default(fallback: Value, value: Value) -> Value:
    return value if value not in (None, "", 0, False, [], {}) else fallback


def _sorted_keys(value: Mapping[str, Value]) -> list[str]:
    return sorted(value)


_SPRIG: dict[str, Callable[..., Value]] = {
    "trim": lambda text: text.strip(),
    "trimAll": lambda chars, text: text.strip(chars),
    "trimSuffix": lambda end, text: text.removesuffix(end),
    "trimPrefix": lambda start, text: text.removeprefix(start),
    "upper": lambda text: text.upper(),
    "lower": lambda text: text.lower(),
    "title": lambda text: text.title(),
    "replace": lambda old, new, text: text.replace(old, new),
    "contains": lambda part, text: part in text,
    "hasPrefix": lambda start, text: text.startswith(start),
    "hasSuffix": lambda end, text: text.endswith(end),
    "repeat": _repeat,
    "trunc": lambda size, text: text[:size] if size >= 0 else text[size:],
    "splitList": lambda separator, text: text.split(separator),
    "join": lambda separator, items: separator.join(text_of(item) for item in items),
    "default": _default,
    "empty": lambda value: value in (None, "", 0, False, [], {}),
    "int": _as_int,
    "float64": _as_float,
    "toString": text_of,
    "toJson": to_json,
    "fromJson": _from_json,
    "b64enc": lambda text: base64.b64encode(text.encode()).decode(),
    "b64dec": _decode,
    "sha256sum": lambda text: hashlib.sha256(text.encode()).hexdigest(),
    "add": lambda *numbers: sum(_as_int(number) for number in numbers),
    "sub": lambda left, right: _as_int(left) - _as_int(right),
    "mul": lambda left, right: _as_int(left) * _as_int(right),
    "max": lambda *numbers: max(_as_int(number) for number in numbers),
    "min": lambda *numbers: min(_as_int(number) for number in numbers),
    "keys": _sorted_keys,
    "first": lambda items: items[0] if items else None,
    "last": lambda items: items[-1] if items else None,
    "uniq": lambda items: list(dict.fromkeys(items)),
    "date": date,
    "untilStep": lambda start, end, step: list(range(start, end, step))[:100_000],
    "until": lambda end: _sequence(0, end),
}

FUNCTIONS: dict[str, Callable[..., Value]] = {
    "asInt": _as_int,
    "asFloat": _as_float,
    "int": _as_int,
    "float": _as_float,
    "string": text_of,
    "toJson": to_json,
    "toJSON": to_json,
    "fromJson": _from_json,
    "fromJSON": _from_json,
    "jsonpath": _json_path,
    "len": _len,
    "abs": abs,
    "min": min,
    "max": max,
    "sum": sum,
    "trim": lambda text: text.strip(),
    "upper": lambda text: text.upper(),
    "lower": lambda text: text.lower(),
    "split": lambda text, separator: text.split(separator),
    "join": lambda items, separator="": separator.join(text_of(item) for item in items),
    "replace": lambda text, old, new: text.replace(old, new),
    "hasPrefix": lambda text, start: text.startswith(start),
    "hasSuffix": lambda text, end: text.endswith(end),
    "keys": _sorted_keys,
    "values": lambda value: list(value.values()),
    "first": lambda items: items[0] if items else None,
    "last": lambda items: items[-1] if items else None,
    "sort": sorted,
    "reverse": lambda items: list(reversed(items)),
    "concat": lambda *lists: [item for items in lists for item in items],
    "uniq": lambda items: list(dict.fromkeys(items)),
    **{f"sprig.{name}": function for name, function in _SPRIG.items()},
}
