"""Validation of a value against a schema, with the messages of kube-apiserver."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from windlass.api.errors import FieldError
from windlass.api.patterns import PatternError, compiled
from windlass.api.structural import formats
from windlass.api.structural.pruning import Schema

UNKNOWN: Any = object()
"""In place of an old value: there is none, or it is not known."""
NO_PATH = "<nil>"
_RANGES = {"int32": (-(2**31), 2**31 - 1), "int64": (-(2**63), 2**63 - 1)}


class ValueChecks:
    """Errors of one value, and the number of checks that it passed."""

    __slots__ = ("errors", "passed")

    def __init__(self) -> None:
        self.errors: list[FieldError] = []
        self.passed = 0

    def merge(self, other: ValueChecks) -> None:
        self.errors += other.errors
        self.passed += other.passed

    def fail(self, path: str, shown: Any, why: str) -> None:
        self.errors.append(invalid(path, shown, why))


def invalid(path: str, value: Any, why: str, reason: str = "FieldValueInvalid") -> FieldError:
    """Return the error for a value. Objects and lists are shown as JSON."""
    return FieldError(path.removeprefix(".") or NO_PATH, f"Invalid value: {shown(value)}: {why}", reason)


def shown(value: Any) -> str:
    """Return a value as Go prints it in field errors."""
    if isinstance(value, str):
        return f'"{value}"'
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, sort_keys=True)


def validate(schema: Schema, value: Any, path: str = "", old: Any = UNKNOWN) -> list[FieldError]:
    """Return the errors of ``value``.

    ``old``: value before an update. Parts that it leaves unchanged are not checked again.
    """
    return check(schema, value, path, old).errors


def check(schema: Schema, value: Any, path: str, old: Any = UNKNOWN) -> ValueChecks:
    """Return the outcome of all checks of one value."""
    out = ValueChecks()
    if old is not UNKNOWN and old == value and type(old) is type(value):
        out.passed += 1
        return out
    kinds = _kinds(schema)
    if _type(schema, kinds, value, path, out) and value is not None:
        out.passed += 1
    if value is not None:
        _combined(schema, value, path, out)
        if isinstance(value, str):
            _string(schema, value, path, out)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            _number(schema, value, path, out)
        elif isinstance(value, list):
            _list(schema, value, path, out)
    _enum(schema, value, path, out)
    if isinstance(value, dict):
        _object(schema, value, path, out, old)
    return out


def _kinds(schema: Schema) -> tuple[str, ...]:
    if schema.get("x-kubernetes-int-or-string"):
        return ("integer", "string")
    return (schema["type"],) if schema.get("type") else ()


def _found(value: Any) -> tuple[str, str]:
    """Return type and format of a JSON value."""
    if isinstance(value, bool):
        return "boolean", ""
    if isinstance(value, str):
        return "string", ""
    if isinstance(value, int):
        return "integer", "int64"
    if isinstance(value, float):
        return "number", "double"
    return ("array", "") if isinstance(value, list) else ("object", "")


def _format(schema: Schema, kinds: Sequence[str]) -> str:
    name = schema.get("format", "")
    return formats.effective(kinds[0] if len(kinds) == 1 else "", name) if name else ""


def _type(schema: Schema, kinds: Sequence[str], value: Any, path: str, out: ValueChecks) -> bool:
    if value is None:
        if kinds and "null" not in kinds and not schema.get("nullable"):
            _wrong_type(path, ",".join(kinds), "null", out)
            return False
        return True
    name = _format(schema, kinds)
    if not kinds and not name:
        return True
    kind, form = _found(value)
    integral = kind == "number" and float(value).is_integer() and "integer" in kinds
    fits = kind in kinds or integral or (kind == "integer" and "number" in kinds)
    textual = isinstance(value, str | list)
    if not textual and name and not (fits or form == name):
        _wrong_type(path, name, form, out)
        return False
    if name and textual and not {"number", "integer"} & set(kinds):
        return True
    if not fits:
        _wrong_type(path, ",".join(kinds), kind, out)
    return fits


def _wrong_type(path: str, wanted: str, found: str, out: ValueChecks) -> None:
    why = f'{path} in body must be of type {wanted}: "{found}"'
    out.errors.append(invalid(path, found, why, "FieldValueTypeInvalid"))


def _combined(schema: Schema, value: Any, path: str, out: ValueChecks) -> None:
    if schema.get("anyOf"):
        _any_of(schema["anyOf"], value, path, out)
    if schema.get("oneOf"):
        _one_of(schema["oneOf"], value, path, out)
    if schema.get("allOf"):
        outcomes = [check(inner, value, path) for inner in schema["allOf"]]
        for outcome in outcomes:
            out.merge(outcome)
        failed = [outcome for outcome in outcomes if outcome.errors]
        if failed:
            more = ". None validated" if len(failed) == len(outcomes) else ""
            out.fail("", "", f'"{path}" must validate all the schemas (allOf){more}')
    if schema.get("not") is not None and not check(schema["not"], value, path).errors:
        out.fail("", "", f'"{path}" must not validate the schema (not)')


def _any_of(choices: Iterable[Schema], value: Any, path: str, out: ValueChecks) -> None:
    best: ValueChecks | None = None
    for inner in choices:
        outcome = check(inner, value, path)
        if not outcome.errors:
            out.merge(outcome)
            return
        if best is None or outcome.passed > best.passed:
            best = outcome
    out.fail("", "", f'"{path}" must validate at least one schema (anyOf)')
    if best is not None:
        out.merge(best)


def _one_of(choices: Iterable[Schema], value: Any, path: str, out: ValueChecks) -> None:
    valid = 0
    best: ValueChecks | None = None
    for inner in choices:
        outcome = check(inner, value, path)
        if not outcome.errors:
            valid += 1
        elif best is None or outcome.passed > best.passed:
            best = outcome
    if valid == 1:
        out.passed += 1
        return
    more = f"Found {valid} valid alternatives" if valid else "Found none valid"
    out.fail("", "", f'"{path}" must validate one and only one schema (oneOf). {more}')
    if not valid and best is not None:
        out.merge(best)


def _string(schema: Schema, value: str, path: str, out: ValueChecks) -> None:
    longest, shortest, pattern = (schema.get(name) for name in ("maxLength", "minLength", "pattern"))
    if longest is not None and len(value) > longest:
        why = f"Too long: may not be more than {longest} bytes"
        out.errors.append(FieldError(path.removeprefix("."), why, "FieldValueTooLong"))
    elif shortest is not None and len(value) < shortest:
        out.fail(path, value, f"{path} in body should be at least {shortest} chars long")
    elif pattern and not _matches(pattern, value):
        out.fail(path, value, f"{path} in body should match '{pattern}'")
    name = _format(schema, _kinds(schema))
    if name and name.replace("-", "") in formats.CHECKS and not formats.holds(name, value):
        why = f'{path} in body must be of type {name}: "{value}"'
        out.errors.append(invalid(path, value, why, "FieldValueTypeInvalid"))


def _matches(pattern: str, value: str) -> bool:
    try:
        return compiled(pattern).search(value) is not None
    except PatternError:
        return False


def _number(schema: Schema, value: int | float, path: str, out: ValueChecks) -> None:
    kinds = _kinds(schema)
    name = _format(schema, kinds)
    low, high = _RANGES.get(name or "int64", _RANGES["int64"])
    if kinds == ("integer",) and not low <= value <= high:
        form = f"with format {name}" if name else "(default format)"
        out.fail("", "", f"Checked value must be of type integer {form} in {path}")
    factor = schema.get("multipleOf")
    if factor and (value / factor) % 1:
        out.fail(path, value, f"{path} in body should be a multiple of {_plain(factor)}")
    most, least = schema.get("maximum"), schema.get("minimum")
    if most is not None:
        if schema.get("exclusiveMaximum") and value >= most:
            out.fail(path, value, f"{path} in body should be less than {_plain(most)}")
        elif value > most:
            out.fail(path, value, f"{path} in body should be less than or equal to {_plain(most)}")
    if least is not None:
        if schema.get("exclusiveMinimum") and value <= least:
            out.fail(path, value, f"{path} in body should be greater than {_plain(least)}")
        elif value < least:
            out.fail(path, value, f"{path} in body should be greater than or equal to {_plain(least)}")


def _plain(number: float) -> str:
    return str(int(number)) if float(number).is_integer() else str(number)


def _list(schema: Schema, value: list[Any], path: str, out: ValueChecks) -> None:
    items = schema.get("items")
    if isinstance(items, Mapping):
        for index, item in enumerate(value):
            out.merge(check(items, item, f"{path}[{index}]"))
    most, least = schema.get("maxItems"), schema.get("minItems")
    if most is not None and len(value) > most:
        _too_many(path, len(value), most, out)
    if least is not None and len(value) < least:
        out.fail(path, len(value), f"{path} in body should have at least {least} items")


def _too_many(path: str, number: int, most: int, out: ValueChecks) -> None:
    why = f"Too many: {number}: must have at most {most} items"
    out.errors.append(FieldError(path.removeprefix("."), why, "FieldValueTooMany"))


def _enum(schema: Schema, value: Any, path: str, out: ValueChecks) -> None:
    choices = schema.get("enum")
    if not choices or any(value == choice and _found(value)[0] == _found(choice)[0] for choice in choices):
        return
    if value is None and None in choices:
        return
    words = [choice if isinstance(choice, str) else shown(choice) for choice in choices]
    supported = ", ".join(f'"{word}"' for word in words)
    why = f"Unsupported value: {shown(value)}: supported values: {supported}"
    out.errors.append(FieldError(path.removeprefix("."), why, "FieldValueNotSupported"))


def _object(schema: Schema, value: Mapping[str, Any], path: str, out: ValueChecks, old: Any) -> None:
    least, most = schema.get("minProperties"), schema.get("maxProperties")
    if least is not None and len(value) < least:
        out.fail(path, len(value), f"{path} in body should have at least {least} properties")
    if most is not None and len(value) > most:
        _too_many(path, len(value), most, out)
    properties = schema.get("properties") or {}
    others = schema.get("additionalProperties")
    before = old if isinstance(old, dict) else {}
    for key, item in value.items():
        inner = properties.get(key)
        where = f"{path}.{key}" if path or inner is None else key
        if inner is None and isinstance(others, Mapping):
            inner = others
        if inner is not None:
            out.merge(check(inner, item, where, before.get(key, UNKNOWN)))
        elif others is False:
            out.fail(path, key, f"{path}.{key} in body is a forbidden property")
    for key in schema.get("required") or ():
        if key in value:
            out.passed += 1
        else:
            out.errors.append(FieldError.required(f"{path}.{key}".removeprefix(".")))
