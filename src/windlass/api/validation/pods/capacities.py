"""Request policies (``requestPolicy``) for capacities of devices that allow multiple allocations.

Messages are those of kube-apiserver (``pkg/apis/resource/validation``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import pairwise
from math import ceil
from typing import Any

from windlass.api.quantities import from_units, parse
from windlass.api.validation.collector import Collector
from windlass.api.wire.field_values import canonical_quantity

Obj = Mapping[str, Any]
_MOST_VALUES = 10
_POLICY_ONE_OF = (
    'exactly one policy can be specified, cannot specify "validValues" and "validRange" at the same time'
)


def policy(said: Obj, value: str, path: str, out: Collector) -> None:
    values, span = said.get("validValues") or (), said.get("validRange")
    if values and span is not None:
        out.forbidden(path, _POLICY_ONE_OF)
        return
    told = "validValues" if values else "validRange" if span is not None else ""
    if told and said.get("default") is None:
        out.required(f"{path}.default", f"required when {told} is defined")
    elif values:
        _values(values, str(said["default"]), value, f"{path}.validValues", out)
    elif span is not None:
        _range(span, str(said["default"]), value, f"{path}.validRange", out)


def _values(values: Sequence[Any], default: str, value: str, path: str, out: Collector) -> None:
    amounts = [parse(str(one)) for one in values]
    for position, (before, after) in enumerate(pairwise(amounts), start=1):
        if before > after:
            out.invalid(f"{path}[{position}]", values[position], "values must be sorted in ascending order")
    if len(values) > _MOST_VALUES:  # then none of them counts
        out.too_many(path, len(values), _MOST_VALUES)
        amounts = []
    for position, amount in enumerate(amounts):
        if amount > parse(value):
            out.invalid(
                f"{path}[{position}]", values[position], f"option is larger than capacity value: {value}"
            )
    if parse(default) not in amounts:
        out.invalid(path, default, "default value is not valid according to the requestPolicy")


def _range(span: Obj, default: str, value: str, path: str, out: Collector) -> None:
    if span.get("min") is None:
        out.required(f"{path}.min", "required when validRange is defined")
        return
    least, given = str(span["min"]), parse(default)
    if parse(least) > parse(value):
        out.invalid(f"{path}.min", least, f"min is larger than capacity value: {value}")
    if given < parse(least):
        out.invalid(f"{path}.min", default, f"default is less than min: {least}")
    most = span.get("max")
    if most is not None:
        if parse(least) > parse(str(most)):
            out.invalid(f"{path}.max", least, f"min is larger than max: {most}")
        if parse(str(most)) > parse(value):
            out.invalid(f"{path}.max", most, f"max is larger than capacity value: {value}")
        if given > parse(str(most)):
            out.invalid(f"{path}.max", default, f"default is more than max: {most}")
    if span.get("step") is not None:
        ends = [default] if most is None else [default, str(most)]
        _step(str(span["step"]), least, value, ends, f"{path}.step", out)


def _step(step: str, least: str, value: str, ends: Sequence[str], path: str, out: Collector) -> None:
    first, size = parse(least) + parse(step), ceil(parse(step))
    if first > parse(value):
        out.invalid(path, step, f"one step {_shown(first, least)} is larger than capacity value: {value}")
    for one in ends:
        if size and (ceil(parse(one)) - ceil(parse(least))) % size:
            out.invalid(path, one, f"value is not a multiple of a given step ({step}) from ({least})")


def _shown(amount: Fraction, like: str) -> str:
    """An amount in the suffixes of another."""
    if amount.denominator == 1 and like.endswith("i"):
        return from_units("memory", int(amount))
    return canonical_quantity(f"{ceil(amount * 1000)}m")
