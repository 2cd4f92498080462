"""Safe expressions: comparisons, arithmetic, conditions and a fixed set of functions.

One grammar serves conditions (``when``), ``{{=…}}``, ``depends`` and the expressions of
retries and hooks. It has no loops, assignments or access to attributes of Python objects.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from windlass.workflow.language.errors import EvaluationError, UnknownReference
from windlass.workflow.language.lexer import Token, tokens

Value = Any
"""JSON value: ``None``, bool, int, float, str, list or dict."""
SyntaxNode = tuple[Any, ...]
"""Syntax tree: the kind of the node, then its parts."""

_LEVELS: tuple[tuple[str, ...], ...] = (
    ("??",),
    ("||", "or"),
    ("&&", "and"),
    ("==", "!=", "<", "<=", ">", ">=", "=~", "!~", "in", "not in", "matches", "contains", "startsWith", "endsWith"),
    ("+", "-"),
    ("*", "/", "%"),
    ("**",),
)  # fmt: skip
_CLOSURES = frozenset({"map", "filter", "all", "any", "none", "one", "count", "find"})
_CONSTANTS: dict[str, Value] = {"true": True, "false": False, "nil": None, "null": None}
_MAX_DEPTH = 64


@dataclass(frozen=True, slots=True)
class ParsedExpression:
    """Parsed expression."""

    text: str
    tree: SyntaxNode


@lru_cache(maxsize=4096)
def parse(text: str, *, bare_words: bool = False) -> ParsedExpression:
    """Parse an expression. Raises :class:`EvaluationError`."""
    parser = _Parser(text, tokens(text, bare_words=bare_words), bare_words)
    tree = parser.ternary()
    parser.expect_end()
    return ParsedExpression(text, tree)


class _Parser:
    """Recursive-descent parser. Used once."""

    def __init__(self, text: str, found: list[Token], bare_words: bool) -> None:
        self.text, self.tokens, self.bare_words = text, found, bare_words
        self.at, self.depth = 0, 0

    @property
    def token(self) -> Token:
        return self.tokens[self.at]

    def take(self, *texts: str) -> str | None:
        """Return and skip the operator or word, if it is next."""
        token = self.token
        if token.kind in ("operator", "name") and token.text in texts:
            self.at += 1
            return token.text
        return None

    def expect(self, text: str) -> None:
        if self.take(text) is None:
            raise self.unexpected(f"{text!r} is missing")

    def expect_end(self) -> None:
        if self.token.kind != "end":
            raise self.unexpected("an operator is missing")

    def unexpected(self, what: str) -> EvaluationError:
        place = f"before {self.token.text!r}" if self.token.kind != "end" else "at the end"
        return EvaluationError(f"{self.text!r} is not a valid expression: {what} {place}")

    def ternary(self) -> SyntaxNode:
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            raise EvaluationError(f"{self.text[:80]!r} … is nested more than {_MAX_DEPTH} levels deep")
        condition = self.binary(0)
        if self.take("?"):
            then = self.ternary()
            self.expect(":")
            condition = ("if", condition, then, self.ternary())
        self.depth -= 1
        return condition

    def binary(self, level: int) -> SyntaxNode:
        if level == len(_LEVELS):
            return self.unary()
        left = self.binary(level + 1)
        while operator := self.operator(level):
            left = ("binary", operator, left, self.binary(level + 1))
        return left

    def operator(self, level: int) -> str | None:
        operators = _LEVELS[level]
        if "not in" in operators and self.token.text == "not" and self.tokens[self.at + 1].text == "in":
            self.at += 2
            return "not in"
        return self.take(*operators)

    def unary(self) -> SyntaxNode:
        if self.take("!", "not"):
            return ("not", self.unary())
        if self.take("-"):
            return ("negative", self.unary())
        if self.take("+"):
            return self.unary()
        return self.postfix(self.primary())

    def postfix(self, node: SyntaxNode) -> SyntaxNode:
        while True:
            if self.take(".", "?."):
                name = self.token
                if name.kind not in ("name", "number"):
                    raise self.unexpected("a name is missing")
                self.at += 1
                node = ("member", node, ("constant", name.text))
            elif self.take("["):
                node = self.subscript(node)
            elif node[0] in ("name", "member") and self.take("("):
                node = ("call", node, self.arguments(_path(node) or ""))
            else:
                return node

    def subscript(self, node: SyntaxNode) -> SyntaxNode:
        start = ("constant", None) if self.token.text == ":" else self.ternary()
        if self.take(":"):
            end = ("constant", None) if self.token.text == "]" else self.ternary()
            self.expect("]")
            return ("slice", node, start, end)
        self.expect("]")
        return ("member", node, start)

    def arguments(self, function: str) -> tuple[SyntaxNode, ...]:
        found: list[SyntaxNode] = []
        while not self.take(")"):
            if function in _CLOSURES and self.take("{"):
                found.append(("closure", self.ternary()))
                self.expect("}")
            else:
                found.append(self.ternary())
            if not self.take(",") and self.token.text != ")":
                raise self.unexpected("',' or ')' is missing")
        return tuple(found)

    def primary(self) -> SyntaxNode:
        token = self.token
        self.at += 1
        if token.kind == "number":
            return ("constant", float(token.text) if set(token.text) & set(".eE") else int(token.text))
        if token.kind == "string":
            return ("constant", token.text)
        if token.kind == "name":
            return self.name(token.text)
        if token.text == "(":
            node = self.ternary()
            self.expect(")")
            return node
        if token.text == "[":
            return ("list", self.items("]"))
        if token.text == "{":
            return self.mapping()
        if token.text == "#":
            return ("name", "#")
        if token.text == ".":
            return ("member", ("name", "#"), ("constant", self.word()))
        self.at -= 1
        raise self.unexpected("a value is missing")

    def word(self) -> str:
        token = self.token
        self.at += 1
        if token.kind not in ("name", "string", "number"):
            raise self.unexpected("a name is missing")
        return token.text

    def name(self, text: str) -> SyntaxNode:
        if text in _CONSTANTS:
            return ("constant", _CONSTANTS[text])
        return ("constant", text) if self.bare_words else ("name", text)

    def items(self, closing: str) -> tuple[SyntaxNode, ...]:
        found: list[SyntaxNode] = []
        while not self.take(closing):
            found.append(self.ternary())
            if not self.take(",") and self.token.text != closing:
                raise self.unexpected(f"',' or {closing!r} is missing")
        return tuple(found)

    def mapping(self) -> SyntaxNode:
        pairs: list[tuple[str, SyntaxNode]] = []
        while not self.take("}"):
            key = self.word()
            self.expect(":")
            pairs.append((key, self.ternary()))
            if not self.take(",") and self.token.text != "}":
                raise self.unexpected("',' or '}' is missing")
        return ("map", tuple(pairs))


Lookup = Callable[[str], Value]
"""``lookup(path)``: value of a dotted name. Raises :class:`KeyError`."""


@dataclass(frozen=True, slots=True)
class Environment:
    """Values and functions that an expression may use."""

    lookup: Lookup
    functions: Mapping[str, Callable[..., Value]]


_MISSING = object()


def _path(node: SyntaxNode) -> str | None:
    """Return the dotted name of a chain of members, if it is one."""
    if node[0] == "name":
        return node[1]
    if node[0] == "member" and node[2][0] == "constant":
        above = _path(node[1])
        return None if above is None else f"{above}.{node[2][1]}"
    return None


def evaluate(expression: ParsedExpression, environment: Environment) -> Value:
    """Return the value of an expression. Raises :class:`EvaluationError`."""
    try:
        return _Evaluation(environment).value(expression.tree)
    except EvaluationError:
        raise
    except (TypeError, ValueError, KeyError, IndexError, ZeroDivisionError, OverflowError) as problem:
        raise EvaluationError(f"{expression.text!r} cannot be evaluated: {problem}") from problem


class _Evaluation:
    def __init__(self, environment: Environment, element: Value = _MISSING) -> None:
        self.environment, self.element = environment, element

    def value(self, node: SyntaxNode) -> Value:
        return getattr(self, f"_{node[0]}")(*node[1:])

    def _constant(self, value: Value) -> Value:
        return value

    def _name(self, name: str) -> Value:
        if name == "#" and self.element is not _MISSING:
            return self.element
        try:
            return self.environment.lookup(name)
        except KeyError:
            raise UnknownReference(name) from None

    def _member(self, of: SyntaxNode, key: SyntaxNode) -> Value:
        path = _path(("member", of, key))
        if path is not None and not path.startswith("#"):
            try:
                return self.environment.lookup(path)
            except KeyError:
                pass
        try:
            owner = self.value(of)
        except UnknownReference:
            raise UnknownReference(path or str(key[1])) from None
        name = self.value(key)
        if isinstance(owner, Mapping):
            return owner.get(name)
        if isinstance(owner, list | str) and isinstance(name, int):
            return owner[name]
        if owner is None:
            return None
        raise UnknownReference(path or str(name))

    def _slice(self, of: SyntaxNode, start: SyntaxNode, end: SyntaxNode) -> Value:
        return self.value(of)[self.value(start) : self.value(end)]

    def _if(self, condition: SyntaxNode, then: SyntaxNode, otherwise: SyntaxNode) -> Value:
        return self.value(then) if boolean(self.value(condition)) else self.value(otherwise)

    def _not(self, operand: SyntaxNode) -> bool:
        return not boolean(self.value(operand))

    def _negative(self, operand: SyntaxNode) -> Value:
        return -self.value(operand)

    def _list(self, items: tuple[SyntaxNode, ...]) -> list[Value]:
        return [self.value(item) for item in items]

    def _map(self, pairs: tuple[tuple[str, SyntaxNode], ...]) -> dict[str, Value]:
        return {key: self.value(item) for key, item in pairs}

    def _binary(self, operator: str, left: SyntaxNode, right: SyntaxNode) -> Value:
        if operator == "??":
            try:
                value = self.value(left)
            except UnknownReference:
                value = None
            return self.value(right) if value is None else value
        if operator in ("||", "or"):
            return boolean(self.value(left)) or boolean(self.value(right))
        if operator in ("&&", "and"):
            return boolean(self.value(left)) and boolean(self.value(right))
        return OPERATORS[operator](self.value(left), self.value(right))

    def _call(self, function: SyntaxNode, arguments: tuple[SyntaxNode, ...]) -> Value:
        name = _path(function) or ""
        if name in _CLOSURES:
            return self._closure_call(name, arguments)
        found = self.environment.functions.get(name)
        if found is None:
            raise EvaluationError(f"{name}() is not a known function")
        return found(*(self.value(argument) for argument in arguments))

    def _closure_call(self, name: str, arguments: tuple[SyntaxNode, ...]) -> Value:
        if len(arguments) != 2:
            raise EvaluationError(f"{name}() takes a list and a condition in braces")
        items = self.value(arguments[0])
        body = arguments[1][1] if arguments[1][0] == "closure" else arguments[1]
        results = [_Evaluation(self.environment, item).value(body) for item in items]
        if name == "map":
            return results
        kept = [item for item, result in zip(items, results, strict=True) if result is True]
        found = {
            "filter": kept,
            "all": len(kept) == len(items),
            "any": bool(kept),
            "none": not kept,
            "one": len(kept) == 1,
            "count": len(kept),
            "find": kept[0] if kept else None,
        }
        return found[name]


def boolean(value: Value) -> bool:
    """Return a boolean. Raises :class:`EvaluationError` for any other value."""
    if not isinstance(value, bool):
        raise EvaluationError(f"a boolean is needed, {value!r} is none")
    return value


def _same(left: Value, right: Value) -> bool:
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    return left == right


def _ordered(left: Value, right: Value) -> tuple[Value, Value]:
    """Check that both values are numbers or both are text."""
    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in (left, right))
    if numbers or (isinstance(left, str) and isinstance(right, str)):
        return left, right
    raise EvaluationError(f"{left!r} and {right!r} cannot be compared: one is a number, the other is not")


def _less(left: Value, right: Value) -> bool:
    first, second = _ordered(left, right)
    return first < second


def _less_or_equal(left: Value, right: Value) -> bool:
    first, second = _ordered(left, right)
    return first <= second


def _matches(text: Value, pattern: Value) -> bool:
    import re2  # a pattern of a user may not take exponential time

    try:
        return re2.search(pattern, text) is not None
    except re2.error as problem:
        raise EvaluationError(f"{pattern!r} is not a regular expression: {problem}") from None


def _contains(items: Value, value: Value) -> bool:
    if isinstance(items, str):
        return isinstance(value, str) and value in items
    if isinstance(items, Mapping):
        return value in items
    return any(_same(item, value) for item in items)


def _add(left: Value, right: Value) -> Value:
    if isinstance(left, str) != isinstance(right, str):
        raise EvaluationError(f"{left!r} and {right!r} cannot be added: convert one with string() or asInt()")
    return left + right


def _power(left: Value, right: Value) -> Value:
    if abs(right) > 1024:
        raise EvaluationError(f"the exponent {right} is larger than 1024")
    return left**right


def _times(left: Value, right: Value) -> Value:
    if isinstance(left, str | list) or isinstance(right, str | list):
        raise EvaluationError(f"{left!r} and {right!r} cannot be multiplied: both have to be numbers")
    return left * right


def _remainder(left: Value, right: Value) -> Value:
    if isinstance(left, str):
        raise EvaluationError(f"{left!r} is not a number: convert it with asInt()")
    return left % right


OPERATORS: dict[str, Callable[[Value, Value], Value]] = {
    "==": _same,
    "!=": lambda left, right: not _same(left, right),
    "<": _less,
    "<=": _less_or_equal,
    ">": lambda left, right: _less(right, left),
    ">=": lambda left, right: _less_or_equal(right, left),
    "=~": _matches,
    "!~": lambda text, pattern: not _matches(text, pattern),
    "matches": _matches,
    "in": lambda value, items: _contains(items, value),
    "not in": lambda value, items: not _contains(items, value),
    "contains": _contains,
    "startsWith": lambda text, start: text.startswith(start),
    "endsWith": lambda text, end: text.endswith(end),
    "+": _add,
    "-": lambda left, right: left - right,
    "*": _times,
    "/": lambda left, right: left / right,
    "%": _remainder,
    "**": _power,
}
