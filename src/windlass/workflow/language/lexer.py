"""Tokens of expressions."""

from __future__ import annotations

import re
from dataclasses import dataclass

from windlass.workflow.language.errors import EvaluationError

_NUMBER = re.compile(r"(?:[0-9]+(?:\.[0-9]+)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_NAME = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*")
_BARE = re.compile(r"[^\s()\[\]{},!=<>&|\"'`?:~]+")
_OPERATORS = (
    "&&", "||", "==", "!=", "<=", ">=", "=~", "!~", "??", "**", "..", "?.",
    "<", ">", "!", "+", "-", "*", "/", "%", "?", ":", "(", ")", "[", "]", "{", "}", ",", ".", "#", "|",
)  # fmt: skip
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}


@dataclass(frozen=True, slots=True)
class Token:
    """Token. ``kind``: ``number``, ``string``, ``name``, ``operator`` or ``end``."""

    kind: str
    text: str
    position: int


def tokens(text: str, *, bare_words: bool) -> list[Token]:
    """Return the tokens of an expression.

    ``bare_words``: a word that is not quoted is a string, which may contain dots and
    dashes (``when: heads-1 == heads-1``).
    Raises :class:`EvaluationError` where no token begins.
    """
    found: list[Token] = []
    at = 0
    while at < len(text):
        if text[at].isspace():
            at += 1
            continue
        token, at = _token(text, at, bare_words)
        found.append(token)
    found.append(Token("end", "", len(text)))
    return found


def _token(text: str, at: int, bare_words: bool) -> tuple[Token, int]:
    if text[at] in "\"'`":
        return _quoted(text, at)
    if bare_words and (word := _BARE.match(text, at)):
        return _word(word, at)
    if number := _NUMBER.match(text, at):
        return Token("number", number[0], at), number.end()
    if name := _NAME.match(text, at):
        return Token("name", name[0], at), name.end()
    for operator in _OPERATORS:
        if text.startswith(operator, at):
            return Token("operator", operator, at), at + len(operator)
    raise EvaluationError(f"unexpected {text[at]!r} at character {at + 1} of {text!r}: quote it")


def _word(word: re.Match[str], at: int) -> tuple[Token, int]:
    """Return a bare word: a number, an arithmetic operator or a string."""
    text = word[0]
    digits = text[1:] if text[:1] in "+-" and len(text) > 1 else text
    if _NUMBER.fullmatch(digits):
        if text is not digits:
            return Token("operator", text[0], at), at + 1
        return Token("number", text, at), word.end()
    if text in ("+", "-", "*", "/", "%", "**"):
        return Token("operator", text, at), word.end()
    return Token("name", text, at), word.end()


def _quoted(text: str, at: int) -> tuple[Token, int]:
    quote, here, content = text[at], at + 1, []
    while here < len(text):
        char = text[here]
        if char == quote:
            return Token("string", "".join(content), at), here + 1
        if char == "\\" and quote != "`" and here + 1 < len(text):
            here += 1
            char = _ESCAPES.get(text[here], text[here])
        content.append(char)
        here += 1
    raise EvaluationError(f"the quote at character {at + 1} of {text!r} is not closed")
