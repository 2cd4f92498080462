"""Validation of the policies of a ``batch/v1`` Job: pod failures, success, replacement."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windlass.api.errors import FieldError
from windlass.api.validation import names
from windlass.api.validation.collector import Collector, part

Obj = Mapping[str, Any]
_ACTIONS = ("Count", "FailIndex", "FailJob", "Ignore")
_OPERATORS = ("In", "NotIn")
_STATUSES = ("False", "True", "Unknown")
_REPLACEMENTS = ("Failed", "TerminatingOrFailed")
_MAX_RULES = 20
_MAX_CODES = 255
_MAX_INDEXES_BYTES = 64 * 1024


class IndexesError(ValueError):
    """A text is not a list of indexes such as ``0,2-4``."""


def policies(spec: Obj, path: str, out: Collector) -> None:
    failure, success = spec.get("podFailurePolicy"), spec.get("successPolicy")
    if failure is not None:
        _failure_policy(spec, failure, f"{path}.podFailurePolicy", out)
    if success is not None:
        if spec.get("completionMode") != "Indexed":
            out.invalid(f"{path}.successPolicy", success, "requires indexed completion mode")
        else:
            _success_policy(spec, success, f"{path}.successPolicy", out)
    replacement = spec.get("podReplacementPolicy")
    if replacement is not None:
        choices = ("Failed",) if failure is not None else _REPLACEMENTS
        out.choice(f"{path}.podReplacementPolicy", replacement, choices)


def _failure_policy(spec: Obj, policy: Obj, path: str, out: Collector) -> None:
    rules = policy.get("rules") or ()
    if len(rules) > _MAX_RULES:
        out.too_many(f"{path}.rules", len(rules), _MAX_RULES)
    body = part(part(spec, "template"), "spec")
    containers = {
        container.get("name")
        for container in (*(body.get("containers") or ()), *(body.get("initContainers") or ()))
    }
    for index, rule in enumerate(rules):
        _failure_rule(spec, rule, f"{path}.rules[{index}]", containers, out)


def _failure_rule(spec: Obj, rule: Obj, path: str, containers: set[Any], out: Collector) -> None:
    action = rule.get("action")
    if not action:
        out.required(f"{path}.action", f"valid values: {_quoted(_ACTIONS)}")
    elif action == "FailIndex":
        if spec.get("backoffLimitPerIndex") is None:
            out.invalid(f"{path}.action", action, "requires the backoffLimitPerIndex to be set")
    else:
        out.choice(f"{path}.action", action, _ACTIONS)
    codes, conditions = rule.get("onExitCodes"), rule.get("onPodConditions") or ()
    if codes is not None:
        _exit_codes(codes, f"{path}.onExitCodes", containers, out)
    if len(conditions) > _MAX_RULES:
        out.too_many(f"{path}.onPodConditions", len(conditions), _MAX_RULES)
    for index, pattern in enumerate(conditions):
        where = f"{path}.onPodConditions[{index}]"
        out.each(f"{where}.type", pattern.get("type", ""), names.qualified_name(pattern.get("type", "")))
        status = pattern.get("status")
        if not status:
            out.required(f"{where}.status", f"valid values: {_quoted(_STATUSES)}")
        else:
            out.choice(f"{where}.status", status, _STATUSES)
    if codes is not None and conditions:
        _without_value(path, "specifying both OnExitCodes and OnPodConditions is not supported", out)
    if codes is None and not conditions:
        _without_value(path, "specifying one of OnExitCodes and OnPodConditions is required", out)


def _without_value(path: str, why: str, out: Collector) -> None:
    """Reject an object as a whole, without a copy of it in the message."""
    out.add(FieldError(path, f"Invalid value: {why}"))


def _exit_codes(codes: Obj, path: str, containers: set[Any], out: Collector) -> None:
    operator, container = codes.get("operator"), codes.get("containerName")
    if not operator:
        out.required(f"{path}.operator", f"valid values: {_quoted(_OPERATORS)}")
    else:
        out.choice(f"{path}.operator", operator, _OPERATORS)
    if container is not None and container not in containers:
        why = "must be one of the container or initContainer names in the pod template"
        out.invalid(f"{path}.containerName", container, why)
    values = codes.get("values") or []
    if not values:
        out.invalid(f"{path}.values", values, "at least one value is required")
    elif len(values) > _MAX_CODES:
        out.too_many(f"{path}.values", len(values), _MAX_CODES)
    for index, value in enumerate(values):
        where = f"{path}.values[{index}]"
        if operator == "In" and value == 0:
            out.invalid(where, value, "must not be 0 for the In operator")
        if value in values[:index]:
            out.add(FieldError(where, f"Duplicate value: {value}", "FieldValueDuplicate"))
    if values != sorted(values):
        out.invalid(f"{path}.values", values, "must be ordered")


def _success_policy(spec: Obj, policy: Obj, path: str, out: Collector) -> None:
    rules = policy.get("rules") or ()
    if not rules:
        out.required(
            f"{path}.rules", "at least one rules must be specified when the successPolicy is specified"
        )
    if len(rules) > _MAX_RULES:
        out.too_many(f"{path}.rules", len(rules), _MAX_RULES)
    for index, rule in enumerate(rules):
        _success_rule(spec.get("completions") or 0, rule, f"{path}.rules[{index}]", out)


def _success_rule(completions: int, rule: Obj, path: str, out: Collector) -> None:
    count, indexes = rule.get("succeededCount"), rule.get("succeededIndexes")
    if count is None and indexes is None:
        out.required(path, "at least one of succeededCount or succeededIndexes must be specified")
    total = 0
    if indexes is not None:
        where = f"{path}.succeededIndexes"
        if len(indexes) > _MAX_INDEXES_BYTES:
            out.invalid(where, "", f"may not be more than {_MAX_INDEXES_BYTES} bytes")
        try:
            total = count_indexes(indexes, completions)
        except IndexesError as error:
            out.invalid(where, indexes, f"error parsing succeededIndexes: {error}")
    if count is None:
        return
    where = f"{path}.succeededCount"
    out.at_least(where, count)
    if count > completions:
        why = f"must be less than or equal to {completions} (the number of specified completions)"
        out.invalid(where, count, why)
    if indexes is not None and count > total:
        why = f"must be less than or equal to {total} (the number of indexes in the specified succeededIndexes field)"
        out.invalid(where, count, why)


def count_indexes(text: str, completions: int) -> int:
    """Return the number of indexes of a text such as ``0,2-4``. Raises :class:`IndexesError`."""
    last, total = -1, 0
    for interval in text.split(",") if text else ():
        limits = interval.split("-")
        if len(limits) > 2:
            why = (
                "violates the requirement that an index interval can have at most two parts separated by '-'"
            )
            raise IndexesError(f'the fragment "{interval}" {why}')
        ends: list[int] = []
        for limit in limits:
            if not (limit.isascii() and limit.isdecimal()):
                raise IndexesError(f'cannot convert string to integer for index: "{limit}"')
            if int(limit) >= completions:
                raise IndexesError(f'too large index: "{limit}"')
            ends.append(int(limit))
        first, end = ends[0], ends[-1]
        if len(ends) == 2 and first >= end:
            raise IndexesError(f"non-increasing order, previous: {first}, current: {end}")
        if first <= last:
            raise IndexesError(f"non-increasing order, previous: {last}, current: {first}")
        last = end
        total += end - first + 1
    return total


def _quoted(choices: tuple[str, ...]) -> str:
    """Return choices as Go prints a list of texts."""
    return "[" + " ".join(f'"{choice}"' for choice in choices) + "]"
