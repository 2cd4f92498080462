"""Values that are known only when a workflow runs: outputs of tasks, items of loops, inputs."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from windlass.sdk.workflows.graphs import GraphTask


class RunValue:
    """Value in Argo's form, ``{{…}}``. ``tasks``: those that have to end before it is known.

    Comparisons with ``==``, ``<``, ``=~`` (:meth:`matches`) and others give a :class:`When`.
    """

    def __init__(self, text: str, tasks: tuple[GraphTask, ...] = (), loop: RunValue | None = None) -> None:
        self.text, self.tasks, self.loop = text, tasks, loop

    @property
    def each(self) -> RunValue:
        """Each item of a list: the task that gets it runs once for each."""
        return RunValue("{{item}}", self.tasks, self)

    def __getitem__(self, name: str) -> RunValue:
        """Return a field of an item of a loop: ``item["id"]``."""
        return RunValue(f"{self.text[:-2]}.{name}}}}}", self.tasks, self.loop)

    def __str__(self) -> str:
        return self.text

    def __eq__(self, other: object) -> When:  # type: ignore[override]
        return self._compared("==", other)

    def __ne__(self, other: object) -> When:  # type: ignore[override]
        return self._compared("!=", other)

    def __lt__(self, other: object) -> When:
        return self._compared("<", other)

    def __le__(self, other: object) -> When:
        return self._compared("<=", other)

    def __gt__(self, other: object) -> When:
        return self._compared(">", other)

    def __ge__(self, other: object) -> When:
        return self._compared(">=", other)

    __hash__ = None  # type: ignore[assignment]

    def __bool__(self) -> bool:
        raise TypeError(f"{self.text} is not known before the workflow runs: use it in when=…")

    def matches(self, pattern: str) -> When:
        """Return the condition that a regular expression is found."""
        return self._compared("=~", pattern)

    def _compared(self, operator: str, other: object) -> When:
        more = other.tasks if isinstance(other, RunValue) else ()
        return When(f"{self.text} {operator} {_operand(other)}", (*self.tasks, *more))


def _operand(value: object) -> str:
    if isinstance(value, RunValue):
        return value.text
    if isinstance(value, str) and not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", value):
        return json.dumps(value)
    return as_text(value)


class When:
    """Condition of a task: ``(score.result < 90) & (kind.result == "text")``."""

    def __init__(self, text: str, tasks: tuple[GraphTask, ...] = ()) -> None:
        self.text, self.tasks = text, tasks

    def __str__(self) -> str:
        return self.text

    def __and__(self, other: When) -> When:
        return When(f"({self.text}) && ({other.text})", (*self.tasks, *other.tasks))

    def __or__(self, other: When) -> When:
        return When(f"({self.text}) || ({other.text})", (*self.tasks, *other.tasks))

    def __invert__(self) -> When:
        return When(f"!({self.text})", self.tasks)

    def __bool__(self) -> bool:
        raise TypeError(f"{self.text} is not known before the workflow runs: join conditions with & and |")


def as_text(value: object) -> str:
    """Return a parameter as text: text itself, everything else as JSON."""
    if isinstance(value, RunValue | str):
        return str(value)
    return json.dumps(value)


def tasks_of(value: Any) -> tuple[GraphTask, ...]:
    """Return the tasks that a value needs."""
    return value.tasks if isinstance(value, RunValue | When) else ()


item = RunValue("{{item}}")
"""Item of the loop of a task (``with_items``, ``with_param``, ``with_sequence``)."""
