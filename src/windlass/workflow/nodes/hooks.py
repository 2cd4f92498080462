"""Hooks and exit handlers of steps, tasks and workflows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from windlass.workflow.language.errors import EvaluationError
from windlass.workflow.language.expressions import boolean
from windlass.workflow.language.scope import Scope
from windlass.workflow.node import NodeStatus
from windlass.workflow.nodes.expansion import resolve_arguments
from windlass.workflow.outputs import add_node
from windlass.workflow.run import NodeOptions, Run

Json = dict[str, Any]
Execute = Callable[[Run, str, Mapping[str, Any], str, Mapping[str, Any], NodeOptions], NodeStatus | None]
EXIT = "exit"


def hooks_of(task: Mapping[str, Any]) -> dict[str, Json]:
    """Return the hooks of a step, a task or a spec by their names, with ``onExit`` as ``exit``."""
    found: dict[str, Json] = dict(task.get("hooks") or {})
    if task.get("onExit") and EXIT not in found:
        found[EXIT] = {"template": task["onExit"]}
    return found


def run_hooks(
    run: Run,
    task: Mapping[str, Any],
    node: NodeStatus,
    prefix: str,
    scope: str,
    values: Scope,
    options: NodeOptions,
    execute: Execute,
) -> bool:
    """Run the hooks of a node. Return whether none of them is still running.

    ``prefix``: name of the node in references, ``tasks.NAME`` or ``steps.NAME``.
    """
    hooks = hooks_of(task)
    if not hooks:
        return True
    own = values.child({})
    add_node(own, prefix, node)
    complete = True
    for name, hook in hooks.items():
        if name == EXIT:
            if node.completed:
                complete &= _exit(run, node, hook, scope, own, options, execute)
        else:
            complete &= _one(run, node, name, hook, scope, own, options, execute)
    return complete


def _one(
    run: Run,
    node: NodeStatus,
    name: str,
    hook: Json,
    scope: str,
    values: Scope,
    options: NodeOptions,
    execute: Execute,
) -> bool:
    full = f"{node.name}.hooks.{name}"
    present = run.get(full)
    if present is None:
        if not hook.get("expression"):
            raise EvaluationError(f"Expression required for hook {full}")
        if not boolean(values.evaluate(hook["expression"])):
            return True
    return _execute(run, node, full, hook, scope, values, replace(options, hooked=True), execute)


def _exit(
    run: Run, node: NodeStatus, hook: Json, scope: str, values: Scope, options: NodeOptions, execute: Execute
) -> bool:
    full = f"{node.name}.onExit"
    inner = replace(options, hooked=True, exit_handler=True)
    if run.get(full) is None:
        if not run.may_begin(inner):
            return True
        if hook.get("expression") and not boolean(values.evaluate(hook["expression"])):
            return True
    return _execute(run, node, full, hook, scope, values, inner, execute)


def _execute(
    run: Run,
    node: NodeStatus,
    full: str,
    hook: Json,
    scope: str,
    values: Scope,
    options: NodeOptions,
    execute: Execute,
) -> bool:
    present = run.get(full)
    if present is not None and present.fulfilled:
        return True
    arguments = resolve_arguments(hook.get("arguments") or {}, values, run.surroundings.config)
    found = execute(run, full, hook, scope, arguments, options)
    if found is None:
        return False
    run.add_child(node, found)
    return found.fulfilled
