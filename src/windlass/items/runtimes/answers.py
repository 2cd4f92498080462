"""Answers of a command, paired with the rows that it was given.

An answer with an ``id`` belongs to the row of this id. Answers without one are paired in order,
so that one line too many would give the answers of all later rows to other rows.
"""

from __future__ import annotations

import json
from collections import deque
from typing import Any

from windlass.items.runtimes.base import LeasedRow, RowOutcome, SetupError

INVALID = "InvalidAnswer"
_REMEDY = "write nothing else to standard output, or give each answer the id of its row"


class Answers:
    """Rows that were answered, and what is known about the answers of a command.

    ``named``: whether all answers so far had an id; ``None`` before the first.
    ``out_of_step``: the order is lost, and the command must be started again.
    """

    def __init__(self) -> None:
        self.named: bool | None = None
        self.out_of_step = False
        self._stray: str | None = None
        self._answered: set[str] = set()
        self._before: set[str] = set()

    def begin_process(self) -> None:
        """Forget what an earlier process of the command has written."""
        self.out_of_step, self._stray = False, None

    def begin_batch(self) -> None:
        """Forget the ids of all batches but the last one, which may be answered twice."""
        self._before, self._answered = self._answered, set()

    def take(self, line: bytes, waiting: deque[LeasedRow], seconds: float) -> list[RowOutcome]:
        """Return the outcomes that follow from a line; none if it belongs to no row that waits.

        Raises :class:`SetupError` if there are more answers than rows, and no ids.
        """
        try:
            answer: Any = json.loads(line)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            return self._take_stray(line, waiting, seconds)
        if "id" in answer:
            self.named = self.named is not False
            return self._take_named(answer, waiting, seconds)
        self.named = False
        if self._stray is not None and waiting:
            return self._lose_step(waiting, seconds)
        if not waiting:
            raise SetupError(f"the command wrote more answers than it got rows: {_REMEDY}")
        return [self._outcome(waiting.popleft(), answer, seconds)]

    def _take_stray(self, line: bytes, waiting: deque[LeasedRow], seconds: float) -> list[RowOutcome]:
        if not waiting:
            return []  # no row can get a wrong answer by it
        self._stray = line[:100].decode(errors="replace").strip()
        return self._lose_step(waiting, seconds) if self.named is False else []

    def _lose_step(self, waiting: deque[LeasedRow], seconds: float) -> list[RowOutcome]:
        self.out_of_step = True
        message = f"{self._stray_text()}, and answers without id cannot be paired after it: {_REMEDY}"
        return [self._invalid(waiting.popleft(), message, seconds)]

    def _take_named(
        self, answer: dict[str, Any], waiting: deque[LeasedRow], seconds: float
    ) -> list[RowOutcome]:
        name = str(answer["id"])
        place = next((at for at, item in enumerate(waiting) if str(item.row["id"]) == name), None)
        if place is None:
            if not waiting or name in self._answered or name in self._before:
                return []  # the row has its answer
            expected = waiting[0].row["id"]
            message = f"the command answered with id {answer['id']!r} instead of {expected!r}"
            return [self._invalid(waiting.popleft(), message, seconds)]
        found = []
        for _ in range(place):
            message = f"the command answered the row {name!r} before this one"
            if self._stray is not None:
                message, self._stray = self._stray_text(), None
            found.append(self._invalid(waiting.popleft(), message, seconds))
        return [*found, self._outcome(waiting.popleft(), answer, seconds)]

    def _stray_text(self) -> str:
        return f"the command wrote a line that is not a JSON object: {self._stray or '(empty)'}"

    def _invalid(self, item: LeasedRow, message: str, seconds: float) -> RowOutcome:
        self._answered.add(str(item.row["id"]))
        return RowOutcome(item.number, None, seconds, "program", INVALID, message)

    def _outcome(self, item: LeasedRow, answer: dict[str, Any], seconds: float) -> RowOutcome:
        self._answered.add(str(item.row["id"]))
        error = answer.pop("error", None)
        answer.pop("id", None)
        if error:
            return RowOutcome(item.number, None, seconds, "program", "ProgramError", str(error)[:500])
        return RowOutcome(item.number, {"id": item.row["id"], **answer}, seconds)
