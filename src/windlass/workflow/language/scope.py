"""Values that references can name, and their substitution in templates."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from windlass.workflow.language.errors import EvaluationError, UnknownReference
from windlass.workflow.language.expressions import Environment, Value, evaluate, parse
from windlass.workflow.language.functions import FUNCTIONS, text_of

_TAG = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)
_ONE_TAG = re.compile(r"\{\{\s*([^{}=][^{}]*?)\s*\}\}")


class Scope:
    """Values by their full names, such as ``inputs.parameters.message``.

    ``absent``: prefixes of outputs that do not exist, because their task did not run.
    They are empty text in references and nil in expressions.
    """

    def __init__(self, values: Mapping[str, Value] | None = None, absent: Iterable[str] = ()) -> None:
        self.values: dict[str, Value] = dict(values or {})
        self.absent: set[str] = set(absent)

    def child(self, values: Mapping[str, Value]) -> Scope:
        """Return a scope with more values."""
        return Scope({**self.values, **values}, self.absent)

    def lookup(self, name: str) -> Value:
        """Return a value. Raises ``KeyError``."""
        if name in self.values:
            return self.values[name]
        if self.is_absent(name):
            return None
        raise KeyError(name)

    def is_absent(self, name: str) -> bool:
        """Return whether a name is an output of a task that did not run."""
        if name in self.values:
            return self.values[name] is None
        head, dot, _ = name.partition(".outputs.")
        return bool(dot) and head in self.absent

    def evaluate(self, text: str) -> Value:
        """Return the value of an expression. Raises :class:`EvaluationError`."""
        return evaluate(parse(text), Environment(self.lookup, FUNCTIONS))

    # Substitution.

    def text(self, text: str, *, strict: tuple[str, ...] = ()) -> str:
        """Replace the references in a text.

        ``strict``: prefixes of references that must have a value. Others are left as
        they are. Raises :class:`EvaluationError`.
        """
        if "{{" not in text:
            return text
        return _TAG.sub(lambda tag: self._replacement(tag, strict), text)

    def _replacement(self, tag: re.Match[str], strict: tuple[str, ...]) -> str:
        content = tag[1].strip()
        if content.startswith("="):
            try:
                return text_of(self.evaluate(content[1:]))
            except UnknownReference as problem:
                if problem.name.startswith(strict) and strict:
                    raise
                return tag[0]
        try:
            value = self.lookup(content)
        except KeyError:
            if strict and content.startswith(strict):
                raise UnknownReference(content) from None
            return tag[0]
        return text_of(value)

    def apply(self, value: Any, *, strict: tuple[str, ...] = ()) -> Any:
        """Replace the references in all texts of a JSON value.

        ``from`` names an artifact, which is no text: it is looked up where it is used.
        """
        if isinstance(value, str):
            return self.text(value, strict=strict)
        if isinstance(value, dict):
            return {
                self.text(key): item if key == "from" else self.apply(item, strict=strict)
                for key, item in value.items()
            }
        if isinstance(value, list):
            return [self.apply(item, strict=strict) for item in value]
        return value


def only_reference(text: Any) -> str | None:
    """Return the name that a text refers to, if the text is nothing but one reference."""
    match = _ONE_TAG.fullmatch(text.strip()) if isinstance(text, str) else None
    return match[1] if match else None


def references(value: Any) -> Iterable[str]:
    """Yield the references in a JSON value. Expressions begin with ``=``."""
    if isinstance(value, str):
        for tag in _TAG.finditer(value):
            yield tag[1].strip()
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from references(key)
            yield from references(item)
    elif isinstance(value, list):
        for item in value:
            yield from references(item)


def condition(text: str) -> bool:
    """Return the value of a ``when``, its references replaced before.

    A word without quotes is text. Raises :class:`EvaluationError` for a result that is not boolean.
    """
    if not text.strip():
        return True
    result = evaluate(parse(text, bare_words=True), Environment(_no_names, FUNCTIONS))
    if not isinstance(result, bool):
        raise EvaluationError(f"when {text!r} is {result!r}: a comparison is needed, true or false")
    return result


def _no_names(name: str) -> Value:
    raise KeyError(name)
