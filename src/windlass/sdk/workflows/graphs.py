"""Graphs of tasks: ``with DAG(…):`` by dependencies, ``with Steps(…):`` one after the other."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from windlass.sdk.workflows import context
from windlass.sdk.workflows.templates import Artifact, Parameter, TemplateBase
from windlass.sdk.workflows.values import RunValue, When, as_text, tasks_of

Json = dict[str, Any]
_OPTIONS = (
    "arguments",
    "depends",
    "when",
    "with_items",
    "with_param",
    "with_sequence",
    "continue_on",
    "hooks",
)
"""Arguments of a call that belong to the task. ``name`` does, too, if the template has no such input."""


@dataclass(eq=False)
class GraphTask:
    """Task of a graph.

    ``arguments``: values of the inputs; an artifact is given by the output of another task.
    ``depends``: text in Argo's form, instead of the tasks that arguments, ``when`` and ``>>`` name.
    ``when``: condition. ``with_items``, ``with_param``, ``with_sequence``: the task runs for each item.
    ``continue_on``: ``failed`` or ``error``, in :class:`Steps`.
    """

    graph: GraphTemplate
    name: str
    template: TemplateBase
    arguments: Mapping[str, Any] = field(default_factory=dict)
    depends: str = ""
    when: When | str | None = None
    with_items: Sequence[Any] | None = None
    with_param: RunValue | str | None = None
    with_sequence: Mapping[str, Any] | None = None
    continue_on: Sequence[str] = ()
    hooks: Mapping[str, Any] = field(default_factory=dict)
    _after: list[GraphTask] = field(default_factory=list)

    @property
    def result(self) -> RunValue:
        """Standard output of the task, or what the function of a script returns."""
        return self._value("outputs.result")

    @property
    def status(self) -> RunValue:
        """Phase of the task, for conditions."""
        return self._value("status")

    def parameter(self, name: str) -> RunValue:
        """Return an output parameter."""
        return self._value(f"outputs.parameters.{name}")

    def artifact(self, name: str) -> RunValue:
        """Return an output artifact, for an input artifact of another task."""
        return self._value(f"outputs.artifacts.{name}")

    def _value(self, what: str) -> RunValue:
        return RunValue(f"{{{{{self.graph.word}.{self.name}.{what}}}}}", (self,))

    def __rshift__(self, other: GraphTask | Sequence[GraphTask]) -> Any:
        """Let other tasks wait for this one: ``a >> [b, c]``. Returns the other tasks."""
        for task in [other] if isinstance(other, GraphTask) else other:
            task._after.append(self)
        return other

    def __rrshift__(self, others: Sequence[GraphTask]) -> GraphTask:
        self._after.extend(others)
        return self

    def build(self) -> Json:
        """Return the task in Argo's form."""
        found: Json = {"name": self.name, "template": self.template.name}
        waits = self.depends or " && ".join(one.name for one in self.dependencies())
        if waits and self.graph.word == "tasks":
            found["depends"] = waits
        if arguments := self._arguments():
            found["arguments"] = arguments
        if self.when is not None:
            found["when"] = str(self.when)
        loop = self.with_param if self.with_param is not None else self._loop()
        if self.with_items is not None:
            found["withItems"] = list(self.with_items)
        elif loop is not None:
            found["withParam"] = str(loop)
        elif self.with_sequence is not None:
            found["withSequence"] = {key: as_text(value) for key, value in self.with_sequence.items()}
        if self.continue_on:
            found["continueOn"] = dict.fromkeys(self.continue_on, True)
        if self.hooks:
            found["hooks"] = {
                name: {"template": one.name} if isinstance(one, TemplateBase) else one
                for name, one in self.hooks.items()
            }
        return found

    def dependencies(self) -> list[GraphTask]:
        """Return the tasks that this one waits for, in the order of the graph."""
        named: list[GraphTask] = list(self._after)
        for value in (*self.arguments.values(), self.when, self.with_param):
            named.extend(tasks_of(value))
        return [one for one in self.graph.tasks if any(one is other for other in named) and one is not self]

    def _loop(self) -> RunValue | None:
        loops = {value.loop.text: value.loop for value in self.arguments.values() if _has_loop(value)}
        if len(loops) > 1:
            raise ValueError(f"task {self.name} has items of more than one list: {', '.join(loops)}")
        return next(iter(loops.values()), None)

    def _arguments(self) -> Json:
        files = {one.name for one in self.template.inputs if isinstance(one, Artifact)}
        found: Json = {}
        for name, value in self.arguments.items():
            if name not in files:
                found.setdefault("parameters", []).append({"name": name, "value": as_text(value)})
            elif isinstance(value, RunValue):
                found.setdefault("artifacts", []).append({"name": name, "from": value.text})
            else:
                entry = {"name": name, "raw": {"data": as_text(value)}}
                found.setdefault("artifacts", []).append(entry)
        return found


def _has_loop(value: Any) -> bool:
    return isinstance(value, RunValue) and value.loop is not None


def add_task(template: TemplateBase, given: Mapping[str, Any]) -> GraphTask:
    """Add a task to the open graph. Raises ``RuntimeError`` without one, ``TypeError`` for a wrong argument."""
    if not context.graphs():
        raise RuntimeError(f"{template.name} is called outside of a graph: use it in `with DAG(…):`")
    graph = context.graphs()[-1]
    inputs = {one if isinstance(one, str) else one.name for one in template.inputs}
    options = {name: given[name] for name in _OPTIONS if name in given and name not in inputs}
    values = {**options.pop("arguments", {}), **{n: v for n, v in given.items() if n not in options}}
    values.pop("arguments", None)
    name = values.pop("name", "") if "name" not in inputs else ""
    if unknown := [one for one in values if one not in inputs]:
        known = ", ".join(sorted(inputs)) or "none"
        raise TypeError(f"{template.name} has no input {unknown[0]!r}: its inputs are {known}")
    for workflow in context.workflows()[-1:]:
        workflow.add(template)
    task = GraphTask(graph, graph.free_name(name or template.name, bool(name)), template, values, **options)
    graph.place(task)
    return task


@dataclass(kw_only=True)
class GraphTemplate(TemplateBase):
    """Template that consists of tasks. The first one of a workflow is its entrypoint."""

    tasks: list[GraphTask] = field(default_factory=list)
    word = "tasks"

    def __enter__(self) -> Self:
        context.graphs().append(self)
        return self

    def __exit__(self, *error: object) -> None:
        context.graphs().remove(self)

    def build(self) -> Json:
        """Return the template. Results of functions are outputs of the graph, since only what is named is kept."""
        found = super().build()
        text = json.dumps(found)
        kept = [
            Parameter(task.name, task.result).as_output()
            for task in self.tasks
            if task.template.returns and task.result.text not in text
        ]
        if kept:
            outputs = found.setdefault("outputs", {})
            outputs["parameters"] = [*outputs.get("parameters", []), *kept]
        return found

    def place(self, task: GraphTask) -> None:
        self.tasks.append(task)

    def free_name(self, name: str, given: bool) -> str:
        """Return a name that no task has. Raises ``ValueError`` for a given name that one has."""
        taken = {task.name for task in self.tasks}
        if name in taken and given:
            raise ValueError(f"two tasks of {self.name} have the name {name}")
        number, found = 1, name
        while found in taken:
            number += 1
            found = f"{name}-{number}"
        return found


@dataclass(kw_only=True)
class _Named(GraphTemplate):
    def __init__(self, name: str, **fields: Any) -> None:
        super().__init__(name=name, **fields)


class DAG(_Named):
    """Tasks that wait for one another. ``fail_fast=False``: other branches go on after a failure."""

    def __init__(self, name: str = "main", *, fail_fast: bool = True, **fields: Any) -> None:
        self._fail_fast = fail_fast
        super().__init__(name, **fields)

    def body(self) -> Json:
        found: Json = {"tasks": [task.build() for task in self.tasks]}
        return {"dag": found if self._fail_fast else {"failFast": False, **found}}


class Steps(_Named):
    """Tasks one after the other. Those in ``with steps.parallel():`` run at the same time."""

    word = "steps"

    def __init__(self, name: str = "main", **fields: Any) -> None:
        self._groups: list[list[GraphTask]] = []
        self._parallel = False
        super().__init__(name, **fields)

    def place(self, task: GraphTask) -> None:
        super().place(task)
        if self._parallel:
            self._groups[-1].append(task)
        else:
            self._groups.append([task])

    def parallel(self) -> _ParallelSteps:
        return _ParallelSteps(self)

    def body(self) -> Json:
        return {"steps": [[task.build() for task in group] for group in self._groups if group]}


class _ParallelSteps:
    """Block of steps that run at the same time."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps

    def __enter__(self) -> None:
        self._steps._groups.append([])
        self._steps._parallel = True

    def __exit__(self, *error: object) -> None:
        self._steps._parallel = False


__all__ = ["DAG", "GraphTask", "GraphTemplate", "Parameter", "Steps", "add_task"]
