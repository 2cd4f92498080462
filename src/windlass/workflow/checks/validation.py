"""Checks of a workflow's spec: what can be known to be wrong before anything begins."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from windlass.workflow import loops
from windlass.workflow.checks.parallel import problems_of
from windlass.workflow.checks.references import check_references
from windlass.workflow.dag import dependencies
from windlass.workflow.hooks import hooks_of
from windlass.workflow.jobs import job_resource
from windlass.workflow.language import expressions
from windlass.workflow.language.depends import Depends, of_names
from windlass.workflow.language.errors import EvaluationError
from windlass.workflow.retries import POLICIES, seconds_of
from windlass.workflow.templates import KINDS, NOT_RUN

Json = Mapping[str, Any]
MAX_TASKS = 5000
"""Maximum number of steps and tasks that a spec declares. Loops may have more items."""
_NAME = re.compile(r"[A-Za-z0-9][-A-Za-z0-9_]{0,127}")
_REMEDIES = {
    "http": "use a container or a script that makes the request",
    "plugin": "plugins of Argo's executor are not run here",
    "data": "list the files in a container or a script",
    "containerSet": "use one template for each container, joined by a DAG",
    "function": "use a container or a script template",
}


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
        for at, template in enumerate(self.spec.get("templates") or ()):
            self._template(template, f"{self.path}.templates[{at}]")
        if isinstance(defaults := self.spec.get("templateDefaults"), Mapping):
            self._retry(defaults.get("retryStrategy"), f"{self.path}.templateDefaults.retryStrategy")
        self._retry(self.spec.get("retryStrategy"), f"{self.path}.retryStrategy")
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
            if not name:
                self.add(path, name, "a template needs a name")
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
        present = [kind for kind in (*KINDS, *NOT_RUN) if kind in template]
        refused = [kind for kind in present if kind in NOT_RUN]
        if refused:
            self.add(
                f"{path}.{refused[0]}",
                refused[0],
                f"templates of this kind are not run: {_REMEDIES[refused[0]]}",
            )
        elif not present:
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
        self._duration(template.get("timeout"), f"{path}.timeout")
        self._retry(template.get("retryStrategy"), f"{path}.retryStrategy")
        if "suspend" in template:
            self._duration((template["suspend"] or {}).get("duration"), f"{path}.suspend.duration")
        if isinstance(template.get("job"), Mapping) and "{{" not in str(template["job"]):
            self._job(template["job"], f"{path}.job")
        if "steps" in template:
            self._steps(template, path)
        if "dag" in template:
            self._dag(template, f"{path}.dag")

    def _job(self, job: Json, path: str) -> None:
        try:
            resource = job_resource(job)
        except EvaluationError as problem:
            self.add(path, job.get("kind"), str(problem))
            return
        for field, value, message in problems_of(job, resource["manifest"]):
            self.add(f"{path}.{field}", value, message)

    def _unique(self, entries: Iterable[tuple[Any, str]], what: str) -> None:
        seen: set[Any] = set()
        for name, path in entries:
            if not name:
                self.add(path, name, f"a {what} is required")
            elif name in seen:
                self.add(path, name, f"{what} {name!r} is not unique: rename one of the two")
            seen.add(name)

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
        if name and not _NAME.fullmatch(name):
            self.add(f"{path}.name", name, "letters, digits, '-' and '_' are allowed, at most 128")
        ways = [field for field in ("template", "templateRef", "inline") if task.get(field)]
        if len(ways) != 1:
            self.add(path, name, "exactly one of template, templateRef and inline is needed")
        elif ways == ["template"] and "{{" not in task["template"]:
            self._known(task["template"], f"{path}.template")
        elif ways == ["inline"]:
            self._template({"name": name, **task["inline"]}, f"{path}.inline")
        self._loop(task, path)
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
