"""Checks of references: inputs, parameters and outputs that a template names must exist."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from windlass.workflow.language.scope import references
from windlass.workflow.nodes import loops
from windlass.workflow.nodes.dag import dependencies, order
from windlass.workflow.nodes.hooks import hooks_of

Json = Mapping[str, Any]
Found = tuple[str, Any, str]
"""Path, value, message."""


def check_references(spec: Json, path: str, template_only: bool) -> Iterator[Found]:
    """Yield the references of a spec that can have no value."""
    parameters = {entry.get("name") for entry in (spec.get("arguments") or {}).get("parameters") or ()}
    open_parameters = template_only or bool(spec.get("workflowTemplateRef"))
    templates = {template.get("name"): template for template in spec.get("templates") or ()}
    for at, template in enumerate(spec.get("templates") or ()):
        where = f"{path}.templates[{at}]"
        yield from _inputs(template, where)
        if not open_parameters:
            yield from _workflow_parameters(template, parameters, where)
        if "dag" in template:
            yield from _dag(template, templates, f"{where}.dag")
        elif "steps" in template:
            yield from _steps(template, templates, where)


def _inputs(template: Json, path: str) -> Iterator[Found]:
    declared = template.get("inputs") or {}
    known = {
        kind: {entry.get("name") for entry in declared.get(kind) or ()}
        for kind in ("parameters", "artifacts")
    }
    for name in references(dict(template)):
        for kind in ("parameters", "artifacts"):
            prefix = f"inputs.{kind}."
            if not name.startswith(prefix):
                continue
            rest = name[len(prefix) :]
            wanted = rest if kind == "parameters" else rest.removesuffix(".path")
            if wanted not in known[kind] and not _in_inline(template, name):
                listed = ", ".join(sorted(map(str, known[kind]))) or "none"
                yield (
                    path,
                    f"{{{{{name}}}}}",
                    f"the template has no input {wanted!r}: its {kind} are {listed}",
                )


def _in_inline(template: Json, name: str) -> bool:
    """Return whether a reference stands in the inline template of a task, which has inputs of its own."""
    tasks = [*(template.get("dag") or {}).get("tasks", ()), *_flat(template)]
    return any(name in set(references(task.get("inline"))) for task in tasks if task.get("inline"))


def _flat(template: Json) -> list[Json]:
    return [
        step
        for entries in template.get("steps") or ()
        for step in (entries if isinstance(entries, list) else [entries])
    ]


def _workflow_parameters(template: Json, known: set[Any], path: str) -> Iterator[Found]:
    prefix = "workflow.parameters."
    for name in references(dict(template)):
        if name.startswith(prefix) and name != f"{prefix}json" and name[len(prefix) :] not in known:
            message = f"spec.arguments.parameters has no parameter {name[len(prefix) :]!r}: add it there"
            yield path, f"{{{{{name}}}}}", message


def _dag(template: Json, templates: Json, path: str) -> Iterator[Found]:
    tasks = {task.get("name"): task for task in template["dag"].get("tasks") or ()}
    depends = {name: dependencies(task) for name, task in tasks.items()}
    for at, (name, task) in enumerate(tasks.items()):
        before = set(order(list(depends[name].tasks), depends))
        where = f"{path}.tasks[{at}]"
        for reference in _without_hooks(task):
            if not reference.startswith("tasks."):
                continue
            other = reference.split(".")[1]
            if other not in tasks:
                yield where, f"{{{{{reference}}}}}", f"task {other!r} does not exist"
            elif other not in before:
                message = (
                    f"task {name!r} does not depend on {other!r}, so that it has no value: add the dependency"
                )
                yield where, f"{{{{{reference}}}}}", message
        yield from _arguments(task, templates, where)


def _steps(template: Json, templates: Json, path: str) -> Iterator[Found]:
    known: set[str] = set()
    for at, entries in enumerate(template.get("steps") or ()):
        group = entries if isinstance(entries, list) else [entries]
        for number, step in enumerate(group):
            where = f"{path}.steps[{at}][{number}]"
            for reference in _without_hooks(step):
                if reference.startswith("steps.") and reference != "steps.name":
                    other = reference.split(".")[1]
                    if other not in known:
                        message = f"no earlier group has a step {other!r}, so that it has no value"
                        yield where, f"{{{{{reference}}}}}", message
            yield from _arguments(step, templates, where)
        known |= {step.get("name", "") for step in group}


def _without_hooks(task: Json) -> list[str]:
    body = {key: value for key, value in task.items() if key not in ("hooks", "onExit", "inline")}
    return [name for name in references(body) if not name.startswith("=")]


def _arguments(task: Json, templates: Json, path: str) -> Iterator[Found]:
    """Yield inputs of the task's template that neither the task nor a default supplies."""
    yield from _missing(task, templates, path)
    for name, hook in hooks_of(task).items():
        yield from _missing(hook, templates, f"{path}.hooks[{name}]")
    if not loops.is_loop(task):
        for reference in _without_hooks(task):
            if reference == "item" or reference.startswith("item."):
                message = "the task has no withItems, withParam or withSequence"
                yield path, f"{{{{{reference}}}}}", message


def _missing(holder: Json, templates: Json, path: str) -> Iterator[Found]:
    template = templates.get(holder.get("template") or "")
    if template is None:
        return
    for kind in ("parameters", "artifacts"):
        given = {entry.get("name") for entry in (holder.get("arguments") or {}).get(kind) or ()}
        for entry in (template.get("inputs") or {}).get(kind) or ():
            has_own = any(entry.get(field) is not None for field in ("value", "default", "valueFrom"))
            has_own = (
                has_own
                or entry.get("optional")
                or (kind == "artifacts" and set(entry) - {"name", "path", "mode"})
            )
            if entry.get("name") not in given and not has_own:
                message = f"template {template.get('name')!r} needs this input: add it to arguments.{kind}"
                yield f"{path}.arguments.{kind}", entry.get("name"), message
