"""Safe expressions over the fields of a row, for example ``len(text) // 1000``.

The grammar is that of Python expressions without anything that runs code: names are
fields, and a few functions are known. A plain field name is an expression, too.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from typing import Any

MAX_LENGTH = 1000
"""Maximum length of an expression in characters."""
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "len": len,
    "int": int,
    "float": float,
    "str": str,
    "round": round,
    "min": min,
    "max": max,
    "lower": lambda text: str(text).lower(),
    "upper": lambda text: str(text).upper(),
    "strip": lambda text: str(text).strip(),
    "words": lambda text: len(str(text).split()),
    "split": lambda text, separator, index=0: str(text).split(separator)[index],
}
_OPERATORS: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Div: lambda a, b: a / b,
    ast.FloorDiv: lambda a, b: a // b,
    ast.Eq: lambda a, b: a == b,
    ast.NotEq: lambda a, b: a != b,
    ast.Lt: lambda a, b: a < b,
    ast.LtE: lambda a, b: a <= b,
    ast.Gt: lambda a, b: a > b,
    ast.GtE: lambda a, b: a >= b,
    ast.In: lambda a, b: a in b,
    ast.NotIn: lambda a, b: a not in b,
}
Evaluate = Callable[[Mapping[str, Any]], Any]


class ExpressionError(ValueError):
    """An expression that is not valid, or that a row has no value for."""


def compile_expression(text: str) -> Evaluate:
    """Return a function from a row to the value. Raises :class:`ExpressionError`.

    The function raises :class:`ExpressionError` for a row without one of the fields.
    """
    if len(text) > MAX_LENGTH:
        raise ExpressionError(f"the expression has {len(text)} characters; at most {MAX_LENGTH} are allowed")
    if is_field(text):
        return lambda row: field_of(row, text)
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        reason = error.msg if isinstance(error, SyntaxError) else "it is nested too deeply"
        raise ExpressionError(f"{text!r} is not a valid expression: {reason}") from None
    _verify(tree, text)

    def evaluate(row: Mapping[str, Any]) -> Any:
        try:
            return _value(tree, row)
        except ExpressionError:
            raise
        except (TypeError, ValueError, ArithmeticError, LookupError, AttributeError) as error:
            raise ExpressionError(f"{text!r} has no value for this row: {error}") from None

    return evaluate


def is_field(text: str) -> bool:
    """Return whether an expression is the name of a field."""
    return text.replace("_", "a").replace("-", "a").isalnum() and not text.isdigit()


def field_of(row: Mapping[str, Any], path: str) -> Any:
    """Return a field, or a nested one (``a.b``). Raises :class:`ExpressionError` if absent."""
    if path in row:
        return row[path]
    value: Any = row
    for part in path.split("."):
        if not isinstance(value, Mapping) or part not in value:
            raise ExpressionError(f"the row has no field {path!r}: it has {_names(row)}")
        value = value[part]
    return value


def _names(row: Mapping[str, Any]) -> str:
    names = [str(name) for name in row if name != "id"][:12]
    return ", ".join(names) if names else "none"


def _verify(node: ast.AST, text: str) -> None:
    for one in ast.walk(node):
        if isinstance(one, ast.Call):
            name = one.func.id if isinstance(one.func, ast.Name) else ast.unparse(one.func)
            if name not in _FUNCTIONS or one.keywords:
                known = ", ".join(sorted(_FUNCTIONS))
                raise ExpressionError(f"{text!r} calls {name}: only these functions are known: {known}")
        elif isinstance(one, ast.Mult | ast.Pow | ast.Mod):
            continue
        elif not isinstance(one, _ALLOWED):
            raise ExpressionError(f"{text!r} contains {type(one).__name__}, which is not supported")


_ALLOWED = (
    *(ast.Name, ast.Load, ast.Constant, ast.BinOp, ast.Compare, ast.BoolOp, ast.UnaryOp, ast.IfExp),
    *(ast.Subscript, ast.Slice, ast.Attribute, ast.And, ast.Or, ast.Not, ast.USub, ast.Tuple, ast.List),
    *(ast.operator, ast.cmpop),
)


def _value(node: ast.AST, row: Mapping[str, Any]) -> Any:
    match node:
        case ast.Constant():
            return node.value
        case ast.Name():
            return field_of(row, node.id)
        case ast.Attribute():
            return field_of(row, ast.unparse(node))
        case ast.Tuple() | ast.List():
            return [_value(one, row) for one in node.elts]
        case ast.IfExp():
            return _value(node.body if _value(node.test, row) else node.orelse, row)
        case ast.BoolOp():
            stops = isinstance(node.op, ast.Or)
            value: Any = None
            for one in node.values:
                value = _value(one, row)
                if bool(value) is stops:
                    break
            return value
        case ast.UnaryOp():
            value = _value(node.operand, row)
            return not value if isinstance(node.op, ast.Not) else -value
        case ast.BinOp():
            return _binary(node.op, _value(node.left, row), _value(node.right, row))
        case ast.Compare():
            return _compare(node, row)
        case ast.Subscript():
            return _value(node.value, row)[_index(node.slice, row)]
        case ast.Call():
            assert isinstance(node.func, ast.Name)
            return _FUNCTIONS[node.func.id](*(_value(one, row) for one in node.args))
    raise ExpressionError(f"{ast.unparse(node)} is not supported")


def _index(node: ast.AST, row: Mapping[str, Any]) -> Any:
    if isinstance(node, ast.Slice):
        bounds = [None if one is None else _value(one, row) for one in (node.lower, node.upper, node.step)]
        return slice(*bounds)
    return _value(node, row)


def _binary(operator: ast.operator, left: Any, right: Any) -> Any:
    known = _OPERATORS.get(type(operator))
    if known is not None:
        return known(left, right)
    if not (isinstance(left, int | float) and isinstance(right, int | float)):
        raise ExpressionError(f"{type(operator).__name__} needs numbers")
    if isinstance(operator, ast.Mult):
        return float(left) * right if isinstance(left, float) or isinstance(right, float) else left * right
    if isinstance(operator, ast.Mod):
        return left % right
    raise ExpressionError(f"{type(operator).__name__} is not supported")


def _compare(node: ast.Compare, row: Mapping[str, Any]) -> bool:
    left = _value(node.left, row)
    for operator, right_node in zip(node.ops, node.comparators, strict=True):
        right = _value(right_node, row)
        if not _OPERATORS[type(operator)](left, right):
            return False
        left = right
    return True
