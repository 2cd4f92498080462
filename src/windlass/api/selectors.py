"""Label and field selectors: parsed once, matched many times.

The grammar is Kubernetes': ``a=b,c!=d,e in (x,y),f notin (z),g,!h``; and the object form
``{matchLabels, matchExpressions}``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from windlass.kits.numbers import parse_int64

if TYPE_CHECKING:
    from windlass.api.views.podshape import LabelSelector


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
    left, right = parse_int64(value), parse_int64(bounds[0] if bounds else None)
    if left is None or right is None:
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

    @property
    def text(self) -> str:
        """The query form, ordered by key, as :func:`parse_labels` reads it."""
        return ",".join(_shown(one) for one in sorted(self.requirements, key=lambda one: one.key))


_COMPARISONS = {"Gt": ">", "Lt": "<"}


def _shown(requirement: Requirement) -> str:
    values = ",".join(sorted(requirement.values))
    match requirement.operator:
        case "Exists":
            return requirement.key
        case "DoesNotExist":
            return f"!{requirement.key}"
        case "In" if len(requirement.values) == 1:
            return f"{requirement.key}={values}"
        case "In" | "NotIn":
            return f"{requirement.key} {requirement.operator.lower()} ({values})"
    return f"{requirement.key}{_COMPARISONS[requirement.operator]}{values}"


EVERYTHING = Selector()
_TOKEN = re.compile(r"\s*(==|!=|[=!(),<>]|[^\s=!(),<>]+)")
_SPECIAL = frozenset(("=", "==", "!=", "!", "(", ")", ",", "<", ">"))
_BINARY = {"=": "In", "==": "In", "!=": "NotIn", "in": "In", "notin": "NotIn", ">": "Gt", "<": "Lt"}
_OPERATORS_SHOWN = "in, notin, =, ==, !=, gt, lt"


def selects(selector: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    """Return whether the selector of a Service selects a pod. An empty one selects none."""
    return bool(selector) and all(labels.get(key) == value for key, value in selector.items())


def parse_labels(text: str) -> Selector:
    """Parse the query form, as apimachinery's ``labels.Parse``. Raises :class:`SelectorError`."""
    return Selector(tuple(_Parser(text).requirements()))


class _Parser:
    """Recursive descent over the tokens of a selector; the empty token is its end."""

    def __init__(self, text: str) -> None:
        self.tokens = [*_TOKEN.findall(text), ""]
        self.at = 0

    def peek(self) -> str:
        return self.tokens[self.at]

    def take(self) -> str:
        token = self.tokens[self.at]
        self.at = min(self.at + 1, len(self.tokens) - 1)
        return token

    def requirements(self) -> list[Requirement]:
        found: list[Requirement] = []
        if not self.peek():
            return found
        while True:
            token = self.peek()
            if token in _SPECIAL and token != "!":
                raise SelectorError(f"found '{token}', expected: !, identifier, or 'end of string'")
            found.append(self.requirement())
            token = self.take()
            if not token:
                return found
            if token != ",":
                raise SelectorError(f"found '{token}', expected: ',' or 'end of string'")
            following = self.peek()
            if not following or (following in _SPECIAL and following != "!"):
                raise SelectorError(f"found '{following}', expected: identifier after ','")

    def requirement(self) -> Requirement:
        absent = self.peek() == "!"
        if absent:
            self.take()
        key = self.identifier()
        if absent:
            return Requirement(key, "DoesNotExist")
        if self.peek() in ("", ","):
            return Requirement(key, "Exists")
        operator = self.take()
        kind = _BINARY.get(operator)
        if kind is None:
            raise _unparsable(f"found '{operator}', expected: {_OPERATORS_SHOWN}")
        if operator in ("in", "notin"):
            return Requirement(key, kind, self.values())
        value = "" if self.peek() in ("", ",") else self.identifier()
        return Requirement(key, kind, (value,))

    def identifier(self) -> str:
        token = self.take()
        if not token or token in _SPECIAL:
            raise _unparsable(f"found '{token}', expected: identifier")
        return token

    def values(self) -> tuple[str, ...]:
        token = self.take()
        if token != "(":
            raise _unparsable(f"found '{token}' expected: '('")
        found: set[str] = set()
        last = ""
        while True:
            token = self.take()
            if token in (",", ")"):
                found.add(last)
                last = ""
                if token == ")":
                    return tuple(sorted(found))
            elif not last and (not token or token in _SPECIAL):
                raise _unparsable(f"found '{token}', expected: ',', ')' or identifier")
            elif last:
                raise _unparsable(f"found '{token}', expected: ',' or ')'")
            else:
                last = token


def _unparsable(why: str) -> SelectorError:
    return SelectorError(f"unable to parse requirement: {why}")


def from_object(selector: Mapping[str, Any] | None) -> Selector | None:
    """The ``{matchLabels, matchExpressions}`` form. ``None`` (absent) selects nothing: returns ``None``."""
    if selector is None:
        return None
    requirements = [
        Requirement(key, "In", (value,)) for key, value in (selector.get("matchLabels") or {}).items()
    ]
    requirements += [
        Requirement(expression["key"], expression["operator"], tuple(expression.get("values") or ()))
        for expression in selector.get("matchExpressions") or ()
    ]
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


def from_label_selector(wire: LabelSelector) -> Selector:
    """A label selector of the wire."""
    equal = [Requirement(key, "In", (value,)) for key, value in (wire.match_labels or {}).items()]
    more = [Requirement(e.key, e.operator, e.values or ()) for e in wire.match_expressions or ()]
    return Selector((*equal, *more))
