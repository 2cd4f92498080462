"""Label and field selectors: parsed once, matched many times.

The grammar is Kubernetes': ``a=b,c!=d,e in (x,y),f notin (z),g,!h``; and the object form
``{matchLabels, matchExpressions}``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


class SelectorError(ValueError):
    """The selector cannot be parsed; the message is what the API server answers."""


@dataclass(frozen=True, slots=True)
class Requirement:
    """``operator`` is one of In, NotIn, Exists, DoesNotExist, Gt, Lt (the last two for node affinity)."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        value = labels.get(self.key)
        match self.operator:
            case "In":
                return value in self.values if value is not None else False
            case "NotIn":
                return value is None or value not in self.values
            case "Exists":
                return value is not None
            case "DoesNotExist":
                return value is None
            case "Gt" | "Lt":
                return _compare(value, self.operator, self.values)
        raise SelectorError(f"{self.operator!r} is not a valid label selector operator")


def _compare(value: str | None, operator: str, bounds: tuple[str, ...]) -> bool:
    try:
        left, right = int(value or ""), int(bounds[0])
    except (ValueError, IndexError):
        return False
    return left > right if operator == "Gt" else left < right


@dataclass(frozen=True, slots=True)
class Selector:
    """All requirements must hold. The empty selector matches everything."""

    requirements: tuple[Requirement, ...] = ()

    def matches(self, labels: Mapping[str, str] | None) -> bool:
        labels = labels or {}
        return all(requirement.matches(labels) for requirement in self.requirements)

    def __bool__(self) -> bool:
        return bool(self.requirements)


EVERYTHING = Selector()
_TERM = re.compile(
    r"\s*(?:(?P<absent>!)\s*(?P<akey>[^\s,!=()]+)"
    r"|(?P<key>[^\s,!=()]+)\s*(?:(?P<set>in|notin)\s*\((?P<values>[^()]*)\)"
    r"|(?P<op>==|=|!=)\s*(?P<value>[^\s,()=!]*))?)\s*(?:,|$)"
)


def parse_labels(text: str) -> Selector:
    """Parse the query form. Raises :class:`SelectorError`."""
    requirements = []
    position = 0
    while position < len(text):
        match = _TERM.match(text, position)
        if match is None:
            found = text[position:].strip()[:1]
            raise SelectorError(f"unable to parse requirement: found '{found}', expected: identifier")
        position = match.end()
        requirements.append(_requirement(match))
    return Selector(tuple(requirements))


def _requirement(match: re.Match[str]) -> Requirement:
    if match["absent"]:
        return Requirement(match["akey"], "DoesNotExist")
    if match["set"]:
        values = tuple(sorted({value.strip() for value in match["values"].split(",")}))
        return Requirement(match["key"], "In" if match["set"] == "in" else "NotIn", values)
    if match["op"]:
        return Requirement(match["key"], "NotIn" if match["op"] == "!=" else "In", (match["value"],))
    return Requirement(match["key"], "Exists")


def from_object(selector: Mapping[str, Any] | None) -> Selector | None:
    """The ``{matchLabels, matchExpressions}`` form. ``None`` (absent) selects nothing: returns ``None``."""
    if selector is None:
        return None
    requirements = [
        Requirement(key, "In", (value,)) for key, value in (selector.get("matchLabels") or {}).items()
    ]
    for expression in selector.get("matchExpressions") or ():
        requirements.append(
            Requirement(expression["key"], expression["operator"], tuple(expression.get("values") or ()))
        )
    return Selector(tuple(requirements))


@dataclass(frozen=True, slots=True)
class FieldTerm:
    path: str
    value: str
    equal: bool = True


def parse_fields(text: str) -> tuple[FieldTerm, ...]:
    """``a.b=c,d!=e``. Raises :class:`SelectorError`."""
    terms = []
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        match = re.fullmatch(r"([A-Za-z0-9_./-]+)(==|=|!=)([^=!<>]*)", part)
        if match is None:
            raise SelectorError(f"invalid selector: '{text}'; can't understand '{part}'")
        terms.append(FieldTerm(match[1], match[3], match[2] != "!="))
    return tuple(terms)


def fields_match(terms: Sequence[FieldTerm], fields: Mapping[str, str]) -> bool:
    return all((fields.get(term.path, "") == term.value) == term.equal for term in terms)
