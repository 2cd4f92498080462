"""Checks of a workflow's spec: what can be known to be wrong before anything begins."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from windlass.workflow.artifact_gc import retain_problems
from windlass.workflow.checks.artifacts import artifact_problems
from windlass.workflow.checks.conditions import tag_problems, when_problem
from windlass.workflow.checks.jobs import job_problems
from windlass.workflow.checks.kinds import kind_problems
from windlass.workflow.checks.references import check_references
from windlass.workflow.jobs import scheduling
from windlass.workflow.language import expressions
from windlass.workflow.language.depends import Depends, of_names
from windlass.workflow.language.errors import EvaluationError
from windlass.workflow.nodes import contexts, loops
from windlass.workflow.nodes.dag import dependencies
from windlass.workflow.nodes.hooks import hooks_of
from windlass.workflow.nodes.retries import POLICIES, seconds_of
from windlass.workflow.pod_gc import pod_gc_problems
from windlass.workflow.templates import KINDS

Json = Mapping[str, Any]
MAX_TASKS = 5000
"""Maximum number of steps and tasks that a spec declares. Loops may have more items."""
_NAME = re.compile(r"[A-Za-z0-9][-A-Za-z0-9_]{0,127}")


@dataclass(frozen=True, slots=True)
class Problem:
    """Field that is wrong. ``value``: what it has."""

    path: str
    value: Any
    message: str


def check_spec(spec: Json, path: str = "spec", *, template_only: bool = False) -> list[Problem]:
    """Return the problems of a workflow's spec.

    ``template_only``: it is that of a WorkflowTemplate, which may have no entrypoint.
    """
    return _Check(spec, path, template_only).problems()


class _Check:
    """State of one check. Used once."""

    def __init__(self, spec: Json, path: str, template_only: bool) -> None:
        self.spec, self.path, self.template_only = spec, path, template_only
        self.found: list[Problem] = []
        self.templates: dict[str, Json] = {}
        self.count = 0

    def problems(self) -> list[Problem]:
        self._templates()
        self._entrypoint()
        self._argument_names(self.spec, self.path)
        for at, template in enumerate(self.spec.get("templates") or ()):
            self._template(template, f"{self.path}.templates[{at}]")
        if isinstance(defaults := self.spec.get("templateDefaults"), Mapping):
            self._retry(defaults.get("retryStrategy"), f"{self.path}.templateDefaults.retryStrategy")
        self._retry(self.spec.get("retryStrategy"), f"{self.path}.retryStrategy")
        for field, value, text in pod_gc_problems(self.spec.get("podGC") or {}):
            self.add(f"{self.path}.podGC{field}", value, text)
        for field, value, text in retain_problems(self.spec):
            self.add(f"{self.path}{field}", value, text)
        for field, value, text in scheduling.problems_of(self.spec.get("scheduling")):
            self.add(f"{self.path}.scheduling{field}", value, text)
        if self.count > MAX_TASKS:
            message = f"{self.count} steps and tasks are declared, {MAX_TASKS} are allowed: use a loop"
            self.add(f"{self.path}.templates", self.count, message)
        if not self.found:
            self.found += [
                Problem(*problem) for problem in check_references(self.spec, self.path, self.template_only)
            ]
        return self.found

    def add(self, path: str, value: Any, message: str) -> None:
        self.found.append(Problem(path, value, message))

    def _templates(self) -> None:
        for at, template in enumerate(self.spec.get("templates") or ()):
            name = template.get("name")
            path = f"{self.path}.templates[{at}].name"
            if not name or not isinstance(name, str):
                self.add(path, name, _name_message(name, "template name"))
            elif name in self.templates:
                self.add(path, name, f"template name {name!r} is not unique: rename one of the two")
            else:
                self.templates[name] = template

    def _entrypoint(self) -> None:
        if self.spec.get("workflowTemplateRef"):
            return
        entrypoint = self.spec.get("entrypoint")
        if not entrypoint:
            if not self.template_only:
                self.add(
                    f"{self.path}.entrypoint", None, "the name of the template to begin with is required"
                )
        elif "{{" not in entrypoint:
            self._known(entrypoint, f"{self.path}.entrypoint")
        for name, hook in hooks_of(self.spec).items():
            where = (
                f"{self.path}.onExit"
                if name == "exit" and self.spec.get("onExit")
                else f"{self.path}.hooks[{name}]"
            )
            self._hook(name, hook, where)

    def _known(self, name: str, path: str) -> None:
        if name not in self.templates:
            known = ", ".join(sorted(self.templates)[:8]) or "none"
            self.add(path, name, f"template {name!r} does not exist: the templates are {known}")

    # Templates.

    def _template(self, template: Json, path: str) -> None:
        present = [kind for kind in KINDS if kind in template]
        if not present:
            self.add(path, template.get("name"), f"the template needs one of {', '.join(KINDS)}")
        elif len(present) > 1:
            self.add(
                path, template.get("name"), f"the template has {' and '.join(present)}: only one is allowed"
            )
        for kind in ("parameters", "artifacts"):
            for where in ("inputs", "outputs"):
                self._unique(
                    ((entry.get("name"), f"{path}.{where}.{kind}[{at}].name")
                     for at, entry in enumerate((template.get(where) or {}).get(kind) or ())),
                    "name",
                )  # fmt: skip
        self.found += [Problem(path, value, text) for value, text in tag_problems(template)]
        self._duration(template.get("timeout"), f"{path}.timeout")
        self._retry(template.get("retryStrategy"), f"{path}.retryStrategy")
        if "suspend" in template:
            self._duration((template["suspend"] or {}).get("duration"), f"{path}.suspend.duration")
        self.found += [
            Problem(f"{path}{field}", value, text)
            for field, value, text in (*kind_problems(template), *artifact_problems(template))
        ]
        if isinstance(template.get("job"), Mapping):
            self.found += [
                Problem(f"{path}.job{field}", value, text)
                for field, value, text in job_problems(template["job"])
            ]
        if "steps" in template:
            self._steps(template, path)
        if "dag" in template:
            self._dag(template, f"{path}.dag")

    def _unique(self, entries: Iterable[tuple[Any, str]], what: str) -> None:
        seen: set[Any] = set()
        for name, path in entries:
            if not name or not isinstance(name, str):
                self.add(path, name, _name_message(name, what))
            elif name in seen:
                self.add(path, name, f"{what} {name!r} is not unique: rename one of the two")
            seen.add(name)

    def _argument_names(self, holder: Json, path: str) -> None:
        """Find names that YAML did not read as text, which no reference finds."""
        for kind in ("parameters", "artifacts"):
            for at, entry in enumerate((holder.get("arguments") or {}).get(kind) or ()):
                name = entry.get("name")
                if name is not None and not isinstance(name, str):
                    message = _name_message(name, "name")
                    self.add(f"{path}.arguments.{kind}[{at}].name", name, message)

    def _duration(self, value: Any, path: str) -> None:
        if value not in (None, "") and "{{" not in str(value):
            self._try(lambda: seconds_of(value), value, path)

    def _try(self, action: Callable[[], object], value: Any, path: str) -> None:
        try:
            action()
        except EvaluationError as problem:
            self.add(path, value, str(problem))

    def _retry(self, strategy: Any, path: str) -> None:
        if not isinstance(strategy, Mapping):
            return
        policy = strategy.get("retryPolicy")
        if policy and policy not in POLICIES and "{{" not in policy:
            self.add(f"{path}.retryPolicy", policy, f"one of {', '.join(POLICIES)} is needed")
        resume = strategy.get("resume")
        if resume not in (None, "FromCheckpoint"):
            self.add(
                f"{path}.resume", resume, "FromCheckpoint is the only way to resume: leave it out otherwise"
            )
        limit = strategy.get("limit")
        if limit is not None and "{{" not in str(limit) and not str(limit).lstrip("-").isdigit():
            self.add(f"{path}.limit", limit, "a whole number is needed")
        expression = strategy.get("expression")
        if expression and "{{" not in expression:
            self._try(lambda: expressions.parse(expression), expression, f"{path}.expression")
        backoff = strategy.get("backoff")
        if isinstance(backoff, Mapping):
            if not backoff.get("duration"):
                self.add(f"{path}.backoff.duration", None, "a duration such as 10s is required")
            for field in ("duration", "cap", "maxDuration"):
                self._duration(backoff.get(field), f"{path}.backoff.{field}")

    # Steps and tasks.

    def _steps(self, template: Json, path: str) -> None:
        names: list[tuple[Any, str]] = []
        for at, entries in enumerate(template.get("steps") or ()):
            for number, step in enumerate(entries if isinstance(entries, list) else [entries]):
                where = f"{path}.steps[{at}][{number}]"
                names.append((step.get("name"), f"{where}.name"))
                self._task(step, where)
        self._unique(names, "step name")

    def _task(self, task: Json, path: str) -> None:
        self.count += 1
        name = task.get("name")
        if name and isinstance(name, str) and not _NAME.fullmatch(name):
            self.add(f"{path}.name", name, "letters, digits, '-' and '_' are allowed, at most 128")
        ways = [field for field in ("template", "templateRef", "inline") if task.get(field)]
        if len(ways) != 1:
            self.add(path, name, "exactly one of template, templateRef and inline is needed")
        elif ways == ["template"] and "{{" not in task["template"]:
            self._known(task["template"], f"{path}.template")
        elif ways == ["inline"]:
            self._template({"name": name, **task["inline"]}, f"{path}.inline")
        self._loop(task, path)
        self._argument_names(task, path)
        if isinstance(when := task.get("when"), str) and (message := when_problem(when)):
            self.add(f"{path}.when", when, message)
        for field, value, message in contexts.problems(task):
            self.add(f"{path}.{field}", value, message)
        for hook_name, hook in hooks_of(task).items():
            where = (
                f"{path}.onExit"
                if hook_name == "exit" and task.get("onExit")
                else f"{path}.hooks[{hook_name}]"
            )
            self._hook(hook_name, hook, where)

    def _loop(self, task: Json, path: str) -> None:
        present = [field for field in loops.FIELDS if task.get(field) is not None]
        if len(present) > 1:
            self.add(path, present, f"{' and '.join(present)} exclude one another")
        items = task.get("withItems")
        if items is not None and not isinstance(items, list):
            self.add(f"{path}.withItems", items, "a list is needed")
        sequence = task.get("withSequence")
        if isinstance(sequence, Mapping):
            if "{{" not in str(dict(sequence)):
                self._try(
                    lambda: loops.items_of({"withSequence": sequence}), dict(sequence), f"{path}.withSequence"
                )
            if sequence.get("count") is not None and sequence.get("end") is not None:
                self.add(f"{path}.withSequence", dict(sequence), "count and end exclude one another")

    def _hook(self, name: str, hook: Json, path: str) -> None:
        if hook.get("template") and "{{" not in hook["template"]:
            self._known(hook["template"], path)
        expression = hook.get("expression")
        if name != "exit" and not expression:
            self.add(f"{path}.expression", None, "the condition that starts the hook is required")
        if expression and "{{" not in expression:
            self._try(lambda: expressions.parse(expression), expression, f"{path}.expression")

    def _dag(self, template: Json, path: str) -> None:
        tasks = template["dag"].get("tasks") or []
        depends: dict[str, Depends] = {}
        names: list[tuple[Any, str]] = []
        enhanced = any(task.get("depends") for task in tasks)
        for at, task in enumerate(tasks):
            where = f"{path}.tasks[{at}]"
            names.append((task.get("name"), f"{where}.name"))
            self._task(task, where)
            if enhanced and task.get("dependencies"):
                self.add(
                    f"{where}.dependencies",
                    list(task["dependencies"]),
                    "a template has either depends or dependencies",
                )
            if enhanced and task.get("continueOn"):
                self.add(
                    f"{where}.continueOn",
                    dict(task["continueOn"]),
                    "write A.Failed or A.Errored in depends instead",
                )
            try:
                depends[task.get("name", "")] = dependencies(task)
            except EvaluationError as problem:
                self.add(f"{where}.depends", task.get("depends"), str(problem))
                depends[task.get("name", "")] = of_names(())
        self._unique(names, "task name")
        self._edges(tasks, depends, path)
        for name in str(template["dag"].get("target") or "").split():
            if name not in depends and "{{" not in name:
                self.add(f"{path}.target", name, f"task {name!r} does not exist")

    def _edges(self, tasks: list[Json], depends: Mapping[str, Depends], path: str) -> None:
        for at, task in enumerate(tasks):
            field = "depends" if task.get("depends") else "dependencies"
            for other in depends.get(task.get("name", ""), of_names(())).tasks:
                if other not in depends:
                    known = ", ".join(sorted(depends)[:8])
                    message = f"task {other!r} does not exist: the tasks are {known}"
                    self.add(f"{path}.tasks[{at}].{field}", other, message)
        cycle = find_cycle({name: found.tasks for name, found in depends.items()})
        if cycle:
            self.add(
                f"{path}.tasks", " -> ".join(cycle), "these tasks wait for one another: remove a dependency"
            )


def _name_message(name: Any, what: str) -> str:
    if name in (None, ""):
        return f"a {what} is required"
    return (
        f'a {what} is text: write it in quotes, such as name: "n". '
        "Without them YAML reads n, no and off as false, y, yes and on as true, and digits as a number"
    )


def find_cycle(edges: Mapping[str, Iterable[str]]) -> list[str]:
    """Return a cycle, its first name again at the end; empty if there is none."""
    done: set[str] = set()
    for start in edges:
        trail: list[str] = []
        place: dict[str, int] = {}
        stack: list[tuple[str, bool]] = [(start, False)]
        while stack:
            name, leaving = stack.pop()
            if leaving:
                trail.pop()
                del place[name]
                done.add(name)
            elif name in place:
                return [*trail[place[name] :], name]
            elif name not in done:
                place[name] = len(trail)
                trail.append(name)
                stack.append((name, True))
                stack += [(other, False) for other in edges.get(name, ())]
    return []
