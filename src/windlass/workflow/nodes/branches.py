"""Nodes of one step or task: of its condition, its loop and its template."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from windlass.workflow import words
from windlass.workflow.language.errors import EvaluationError
from windlass.workflow.language.scope import Scope
from windlass.workflow.node import NodeStatus
from windlass.workflow.nodes.expansion import Expanded, expand, item_scope, resolve, skipped_item
from windlass.workflow.nodes.hooks import Execute, hooks_of, run_hooks
from windlass.workflow.run import NodeOptions, Run

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class TaskBranch:
    """Step or task that may begin.

    ``name``: of its node. ``prefix``: ``tasks.`` or ``steps.``. ``scope``: where its
    template is looked up. ``values``: what it can refer to.
    """

    name: str
    task: Json
    prefix: str
    scope: str
    values: Scope
    options: NodeOptions
    execute: Execute


def skip(run: Run, branch: TaskBranch, name: str, phase: str, message: str) -> NodeStatus:
    return run.begin_node(name, words.SKIPPED_NODE, branch.task, branch.scope, branch.options, phase, message)


def expansion_of(branch: TaskBranch) -> Expanded | str:
    """Return what the branch stands for, or the error that keeps it from being decided."""
    try:
        return expand(branch.task, branch.values)
    except EvaluationError as problem:
        return str(problem)


def advance_items(run: Run, branch: TaskBranch, expanded: Expanded) -> tuple[list[NodeStatus], bool]:
    """Begin or continue the nodes of a branch. Return them, and whether all have ended with their hooks."""
    found: list[NodeStatus] = []
    complete = True
    plain = not hooks_of(branch.task) and not _has_timeout(run, branch)
    held_back, base, present = False, branch.name, run.nodes.by_name.get
    for suffix, item in expanded.suffixes():
        name = base + suffix
        node = present(name)
        if node is None and held_back:
            continue
        if node is not None and plain and node.phase in words.FULFILLED:
            pass
        elif node is not None and plain and _only_waits(run, node):
            complete &= node.fulfilled
        else:
            node, ended = _advance_item(run, branch, expanded, name, node, item)
            complete &= ended
        if node is not None:
            found.append(node)
        elif plain:  # the limit that holds one item back holds all later ones back
            held_back = True
    return found, complete


def _advance_item(
    run: Run, branch: TaskBranch, expanded: Expanded, name: str, node: NodeStatus | None, item: Any
) -> tuple[NodeStatus | None, bool]:
    values = item_scope(branch.values, expanded, item)
    try:
        if node is None and (reason := skipped_item(branch.task, values, expanded)):
            return skip(run, branch, name, words.SKIPPED, reason), True
        if node is None or not node.fulfilled:
            holder, arguments = resolve(branch.task, values, run.surroundings.config)
            node = branch.execute(run, name, holder, branch.scope, arguments, branch.options)
        if node is None:
            return None, False
        prefix = branch.prefix + str(branch.task.get("name"))
        done = run_hooks(run, branch.task, node, prefix, branch.scope, values, branch.options, branch.execute)
        return node, done and node.fulfilled
    except EvaluationError as problem:
        if node is None:
            return skip(run, branch, name, words.ERROR, str(problem)), True
        return run.mark(node, words.ERROR, str(problem)), True


def _only_waits(run: Run, node: NodeStatus) -> bool:
    """Return whether only an event can continue a node."""
    if node.fulfilled:
        return True
    if node.type == words.RETRY and node.children:
        node = run.nodes.by_id[node.children[-1]]
        return node.type == words.POD and not node.fulfilled
    return node.type == words.POD and not (node.synchronization_status or {}).get("waiting")


def _has_timeout(run: Run, branch: TaskBranch) -> bool:
    try:
        return bool(run.library.resolve(branch.task, branch.scope).template.get("timeout"))
    except EvaluationError:
        return True


def group_phase(nodes: list[NodeStatus]) -> str:
    """Return the phase of a loop after all its nodes have ended.

    A loop of which every item was skipped is skipped itself: nothing of it succeeded.
    """
    failed = [node.phase for node in nodes if node.unsuccessful]
    if failed:
        return failed[-1]
    return words.SKIPPED if all(node.phase == words.SKIPPED for node in nodes) else words.SUCCEEDED


def continues_on(task: Json, phase: str) -> bool:
    allowed = task.get("continueOn") or {}
    return bool(
        (phase == words.FAILED and allowed.get("failed")) or (phase == words.ERROR and allowed.get("error"))
    )
