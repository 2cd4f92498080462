"""Evaluation of requirements on a set of labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from windlass.kits.numbers import parse_int64
from windlass.spi.objects import Expression


def value_matches(operator: str, values: Sequence[str], value: str | None) -> bool:
    """Return whether a value satisfies one requirement; ``None`` is an absent label.

    Kubernetes' rules: NotIn and DoesNotExist hold for an absent label, Gt and Lt
    compare integers.
    """
    match operator:
        case "In":
            return value is not None and value in values
        case "NotIn":
            return value is None or value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt":
            return _compares(operator, values, value)
        case _:
            return False


def _compares(operator: str, values: Sequence[str], value: str | None) -> bool:
    left, right = parse_int64(value), parse_int64(values[0] if values else None)
    if left is None or right is None:
        return False
    return left > right if operator == "Gt" else left < right


def labels_match(expressions: Sequence[Expression], labels: Mapping[str, str]) -> bool:
    """Return whether a set of labels satisfies all requirements."""
    return all(value_matches(e.operator, e.values, labels.get(e.key)) for e in expressions)
