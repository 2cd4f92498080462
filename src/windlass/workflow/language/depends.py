"""Dependencies of DAG tasks: ``dependencies`` and the enhanced form ``depends``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from windlass.workflow.language.errors import EvaluationError

RESULTS = ("Succeeded", "Failed", "Errored", "Skipped", "Omitted", "Daemoned", "AnySucceeded", "AllFailed")
_TOKEN = re.compile(r"\s*(?:(\|\||&&|!|\(|\))|([A-Za-z0-9_][A-Za-z0-9_-]*)(?:\.([A-Za-z]+))?)")

Tree = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Depends:
    """Parsed dependencies. ``tasks``: the tasks that they name, in their order."""

    text: str
    tree: Tree | None
    tasks: tuple[str, ...]

    def holds(self, results: Mapping[str, frozenset[str]], continues: Mapping[str, frozenset[str]]) -> bool:
        """Return whether the task runs.

        ``results``: task → results that apply to it. ``continues``: task → results that its
        ``continueOn`` accepts besides, where only its name is given.
        """
        return self.tree is None or _holds(self.tree, results, continues)


def of_names(names: Iterable[str]) -> Depends:
    """Return the dependencies of the field ``dependencies``."""
    found = tuple(dict.fromkeys(names))
    if not found:
        return Depends("", None, ())
    tree: Tree = ("task", found[0], "")
    for name in found[1:]:
        tree = ("and", tree, ("task", name, ""))
    return Depends(" && ".join(found), tree, found)


@lru_cache(maxsize=4096)
def parse(text: str) -> Depends:
    """Parse ``depends``. Raises :class:`EvaluationError`."""
    parser = _DependsParser(text)
    tree = parser.either()
    if parser.at < len(parser.tokens):
        raise parser.error()
    return Depends(text, tree, tuple(dict.fromkeys(parser.names)))


class _DependsParser:
    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0
        self.tokens: list[tuple[str, str, str]] = []
        self.names: list[str] = []
        position, end = 0, len(text.rstrip())
        while position < end:
            match = _TOKEN.match(text, position)
            if match is None:
                raise EvaluationError(
                    f"depends {text!r} is not understood from {text[position:].strip()!r} on: "
                    "write names of tasks with && || ! and brackets"
                )
            self.tokens.append((match[1] or "", match[2] or "", match[3] or ""))
            position = match.end()

    def error(self) -> EvaluationError:
        return EvaluationError(
            f"depends {self.text!r} is incomplete: a task, an operator or a bracket is missing"
        )

    def take(self, operator: str) -> bool:
        if self.at < len(self.tokens) and self.tokens[self.at][0] == operator:
            self.at += 1
            return True
        return False

    def either(self) -> Tree:
        left = self.both()
        while self.take("||"):
            left = ("or", left, self.both())
        return left

    def both(self) -> Tree:
        left = self.one()
        while self.take("&&"):
            left = ("and", left, self.one())
        return left

    def one(self) -> Tree:
        if self.take("!"):
            return ("not", self.one())
        if self.take("("):
            inner = self.either()
            if not self.take(")"):
                raise self.error()
            return inner
        if self.at >= len(self.tokens) or not self.tokens[self.at][1]:
            raise self.error()
        _, name, result = self.tokens[self.at]
        self.at += 1
        if result and result not in RESULTS:
            raise EvaluationError(
                f"task result {result!r} of task {name!r} is invalid: use one of {', '.join(RESULTS)}"
            )
        self.names.append(name)
        return ("task", name, result)


_BARE = frozenset({"Succeeded", "Skipped", "Daemoned"})


def _holds(
    tree: Tree, results: Mapping[str, frozenset[str]], continues: Mapping[str, frozenset[str]]
) -> bool:
    kind = tree[0]
    if kind == "task":
        name, result = str(tree[1]), str(tree[2])
        accepted = frozenset({result}) if result else _BARE | continues.get(name, frozenset())
        return bool(results.get(name, frozenset()) & accepted)
    parts = [_holds(part, results, continues) for part in tree[1:] if isinstance(part, tuple)]
    return not parts[0] if kind == "not" else all(parts) if kind == "and" else any(parts)
