"""The part of CEL that selectors of devices use, parsed and evaluated here.

Served: ``&&``, ``||``, ``!``, comparisons, ``in``, parentheses; text, numbers, ``true``/``false``, lists of them;
``device.driver``, ``device.attributes[DOMAIN].NAME``, ``device.capacity[DOMAIN].NAME`` (also with the name in
brackets), ``device.allowMultipleAllocations``; ``quantity(…)``, ``semver(…)`` with ``compareTo``, ``isGreaterThan``,
``isLessThan``; ``matches`` (within what Python's ``re`` and RE2 share), ``startsWith``, ``endsWith``, ``contains``,
``lowerAscii``; ``has(…)`` and ``NAME in device.attributes[DOMAIN]``. Anything else is refused with its place when it is
read (:class:`CelError`), never skipped.

As in Kubernetes: an unknown domain is an empty map; a name that a device lacks is an error of evaluation
(:class:`CelFailure`), which ``&&`` and ``||`` forgive where the other side decides.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

from windlass.api.quantities import QuantityError, parse

_MOST_CHARACTERS = 10 * 1024
_MOST_DEPTH = 100
_TOKEN = re.compile(
    r"""\s*(?:
    (?P<number>[0-9]+(?![\w.]))|
    (?P<text>r?(?:"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'))|
    (?P<name>[A-Za-z_]\w*)|
    (?P<sign>&&|\|\||==|!=|<=|>=|[()\[\].,<>!-])
    )""",
    re.VERBOSE,
)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", "'": "'", '"': '"', "`": "`", "?": "?"}


class CelError(ValueError):
    """The expression is not one that is served; the text says what and where."""


class CelFailure(Exception):
    """The expression has no value for this device (it lacks an attribute, or types do not fit)."""


@dataclass(frozen=True, slots=True, order=True)
class Version:
    """A semantic version; only its three numbers count."""

    major: int
    minor: int
    patch: int


@dataclass(frozen=True, slots=True)
class Subject:
    """A device: ``attributes`` and ``capacity`` by domain and name; amounts are exact numbers."""

    driver: str
    attributes: Mapping[str, Mapping[str, Any]]
    capacity: Mapping[str, Mapping[str, Fraction]]
    multiple: bool = False
    """``allowMultipleAllocations``."""


Evaluate = Callable[[Subject], Any]


def semver(text: str) -> Version:
    """``"9.0.0"``, also ``"9.0"`` as some drivers write it. Raises :class:`CelFailure`."""
    match = re.fullmatch(r"v?([0-9]{1,9})(?:\.([0-9]{1,9}))?(?:\.([0-9]{1,9}))?(?:[-+].*)?", text)
    if match is None:
        raise CelFailure(f"{text!r} is no semantic version")
    return Version(int(match[1]), int(match[2] or 0), int(match[3] or 0))


@lru_cache(maxsize=1024)
def compiled(expression: str) -> Evaluate:
    """A function that says whether a device is meant. Raises :class:`CelError`; the function raises
    :class:`CelFailure`."""
    if len(expression) > _MOST_CHARACTERS:
        raise CelError(f"is longer than {_MOST_CHARACTERS} characters")
    tree = _Parser(expression).whole()

    def selects(subject: Subject) -> bool:
        found = tree(subject)
        if not isinstance(found, bool):
            raise CelFailure(f"gives {found!r}, which is neither true nor false")
        return found

    return selects


class _Parser:
    """Recursive descent; every rule gives a function of the device."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: list[tuple[str, str, int]] = []
        at, text = 0, text.rstrip()
        while at < len(text):
            match = _TOKEN.match(text, at)
            if match is None or match.lastgroup is None:
                raise CelError(f"cannot be read at character {at + 1}: {text[at : at + 20]!r}")
            self._tokens.append((match.lastgroup, match[match.lastgroup], match.start(match.lastgroup)))
            at = match.end()
        self._at = 0
        self._depth = 0

    def whole(self) -> Evaluate:
        if not self._tokens:
            raise CelError("is empty")
        found = self._either()
        if self._at < len(self._tokens):
            raise self._refused()
        return found

    # ------------------------------------------------------------------ tokens

    def _peek(self) -> str:
        return self._tokens[self._at][1] if self._at < len(self._tokens) else ""

    def _kind(self) -> str:
        return self._tokens[self._at][0] if self._at < len(self._tokens) else ""

    def _take(self, sign: str = "") -> str:
        if self._at >= len(self._tokens) or (sign and self._peek() != sign):
            raise self._refused(f"{sign!r} is missing" if sign else "something is missing")
        self._at += 1
        return self._tokens[self._at - 1][1]

    def _refused(self, why: str = "this is not served") -> CelError:
        if self._at >= len(self._tokens):
            return CelError(f"ends too early: {why}")
        place = self._tokens[self._at][2]
        return CelError(f"{why} at character {place + 1}: {self._text[place : place + 20]!r}")

    # ------------------------------------------------------------------ operators

    def _either(self) -> Evaluate:
        self._depth += 1
        if self._depth > _MOST_DEPTH:
            raise CelError("is nested too deeply")
        sides = [self._both()]
        while self._peek() == "||":
            self._take()
            sides.append(self._both())
        self._depth -= 1
        return sides[0] if len(sides) == 1 else lambda device: _decide(sides, device, True)

    def _both(self) -> Evaluate:
        sides = [self._relation()]
        while self._peek() == "&&":
            self._take()
            sides.append(self._relation())
        return sides[0] if len(sides) == 1 else lambda device: _decide(sides, device, False)

    def _relation(self) -> Evaluate:
        left = self._unary()
        sign = self._peek()
        if sign in ("==", "!=", "<", "<=", ">", ">=") or (sign == "in" and self._kind() == "name"):
            self._take()
            right = self._unary()
            return lambda device: _compare(sign, left(device), right(device))
        return left

    def _unary(self) -> Evaluate:
        turns = 0
        while self._peek() == "!":
            self._take()
            turns += 1
        if turns:
            inner = self._unary()
            return lambda device: _truth(inner(device)) is (turns % 2 == 0)
        if self._peek() == "-" and self._tokens[self._at + 1 : self._at + 2]:
            self._take()
            if self._kind() != "number":
                raise self._refused()
            value = -int(self._take())
            return lambda device: value
        return self._member(self._primary())

    # ------------------------------------------------------------------ values

    def _primary(self) -> Evaluate:
        kind, text = self._kind(), self._take()
        if kind == "number":
            number = int(text)
            return lambda device: number
        if kind == "text":
            plain = _unquoted(text)
            return lambda device: plain
        if text == "(":
            inner = self._either()
            self._take(")")
            return inner
        if text == "[":
            return self._list()
        if text in ("true", "false"):
            return lambda device: text == "true"
        if text == "device":
            return lambda device: device
        if text in ("quantity", "semver") and self._peek() == "(":
            (argument,) = self._arguments(1)
            make = _quantity if text == "quantity" else _version
            return lambda device: make(argument(device))
        if text == "has" and self._peek() == "(":
            (argument,) = self._arguments(1)
            return lambda device: _has(argument, device)
        self._at -= 1
        raise self._refused()

    def _list(self) -> Evaluate:
        items: list[Evaluate] = []
        while self._peek() != "]":
            items.append(self._either())
            if self._peek() != "]":
                self._take(",")
        self._take("]")
        return lambda device: [item(device) for item in items]

    def _arguments(self, count: int) -> list[Evaluate]:
        self._take("(")
        found: list[Evaluate] = []
        while self._peek() != ")":
            found.append(self._either())
            if self._peek() != ")":
                self._take(",")
        if len(found) != count:
            raise self._refused(f"{count} arguments are meant")
        self._take(")")
        return found

    def _member(self, holder: Evaluate) -> Evaluate:
        while self._peek() in (".", "["):
            if self._take() == "[":
                key = self._either()
                self._take("]")
                holder = _indexed(holder, key)
                continue
            if self._kind() != "name":
                raise self._refused()
            name = self._take()
            if self._peek() != "(":
                holder = _indexed(holder, lambda device, name=name: name)
                continue
            if name not in _METHODS:
                self._at -= 1
                raise self._refused()
            holder = _called(name, holder, self._arguments(0 if name == "lowerAscii" else 1))
        return holder


def _indexed(holder: Evaluate, key: Evaluate) -> Evaluate:
    return lambda device: _item(holder(device), key(device))


def _item(holder: Any, key: Any) -> Any:
    if isinstance(holder, Subject) and key == "allowMultipleAllocations":
        return holder.multiple
    if isinstance(holder, Subject) and key in ("driver", "attributes", "capacity"):
        found = getattr(holder, key)
        return found if key == "driver" else _Domains(found)
    if isinstance(holder, _Domains):
        return holder.known.get(key, {})
    if isinstance(holder, Mapping) and key in holder:
        return holder[key]
    raise CelFailure(f"no such key: {key}")


@dataclass(frozen=True, slots=True)
class _Domains:
    """Map of maps. Unknown keys yield an empty map."""

    known: Mapping[str, Mapping[str, Any]]


def _called(name: str, holder: Evaluate, arguments: list[Evaluate]) -> Evaluate:
    method = _METHODS[name]
    return lambda device: method(holder(device), *(argument(device) for argument in arguments))


def _ordered(left: Any, right: Any) -> int:
    if type(left) is not type(right) or isinstance(left, (bool, list, Mapping)):
        raise CelFailure(f"{left!r} and {right!r} cannot be compared")
    return (left > right) - (left < right)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise CelFailure(f"{value!r} is no text")
    return value


def _found(text: Any, pattern: Any) -> bool:
    try:
        return re.search(_text(pattern), _text(text)) is not None
    except re.error as error:
        raise CelFailure(f"{pattern!r} is no pattern: {error}") from None


_METHODS: Mapping[str, Callable[..., Any]] = {
    "compareTo": _ordered,
    "isGreaterThan": lambda left, right: _ordered(left, right) > 0,
    "isLessThan": lambda left, right: _ordered(left, right) < 0,
    "matches": _found,
    "startsWith": lambda text, start: _text(text).startswith(_text(start)),
    "endsWith": lambda text, end: _text(text).endswith(_text(end)),
    "contains": lambda text, part: _text(part) in _text(text),
    "lowerAscii": lambda text: _text(text).lower(),
}


def _compare(sign: str, left: Any, right: Any) -> bool:
    if sign == "in":
        if isinstance(right, _Domains):
            return left in right.known
        if isinstance(right, (list, Mapping)):
            return left in right
        raise CelFailure(f"{right!r} is no list")
    if sign in ("==", "!="):
        same = left == right and isinstance(left, bool) is isinstance(right, bool)
        return same is (sign == "==")
    order = _ordered(left, right)
    return {"<": order < 0, "<=": order <= 0, ">": order > 0, ">=": order >= 0}[sign]


def _decide(sides: list[Evaluate], device: Subject, deciding: bool) -> bool:
    """``||`` (deciding true) or ``&&`` (deciding false): an error counts only if no side decides."""
    failure: CelFailure | None = None
    for side in sides:
        try:
            if _truth(side(device)) is deciding:
                return deciding
        except CelFailure as error:
            failure = error
    if failure is not None:
        raise failure
    return not deciding


def _truth(value: Any) -> bool:
    if not isinstance(value, bool):
        raise CelFailure(f"{value!r} is neither true nor false")
    return value


def _has(argument: Evaluate, device: Subject) -> bool:
    try:
        argument(device)
    except CelFailure:
        return False
    return True


def _quantity(value: Any) -> Fraction:
    try:
        return parse(_text(value))
    except QuantityError as error:
        raise CelFailure(str(error)) from None


def _version(value: Any) -> Version:
    return semver(_text(value))


def _unquoted(text: str) -> str:
    if text[0] == "r":
        return text[2:-1]

    def escaped(match: re.Match[str]) -> str:
        if match[1] not in _ESCAPES:
            raise CelError(f"the escape {match[0]!r} is not served")
        return _ESCAPES[match[1]]

    return re.sub(r"\\(.)", escaped, text[1:-1])
