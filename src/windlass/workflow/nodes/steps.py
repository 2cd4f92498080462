"""Steps templates: groups of parallel steps, one group after the other."""

from __future__ import annotations

from typing import Any

from windlass.workflow import words
from windlass.workflow.language.errors import EvaluationError
from windlass.workflow.language.scope import Scope
from windlass.workflow.node import NodeStatus
from windlass.workflow.nodes.branches import TaskBranch, advance_items, continues_on, expansion_of, skip
from windlass.workflow.nodes.hooks import Execute
from windlass.workflow.outputs import add_group, add_node, of_template
from windlass.workflow.run import NodeOptions, Run
from windlass.workflow.templates import ProcessedTemplate

Json = dict[str, Any]


def advance(
    run: Run,
    node: NodeStatus,
    scope: str,
    processed: ProcessedTemplate,
    options: NodeOptions,
    execute: Execute,
) -> NodeStatus:
    """Begin and continue the groups of a Steps node."""
    template = processed.template
    if template.get("parallelism") is not None:
        run.limits[node.id] = int(template["parallelism"])
    values = processed.scope.child({})
    inner = NodeOptions(boundary=node.id, exit_handler=options.exit_handler)
    group: NodeStatus | None = None
    for index, entries in enumerate(template.get("steps") or ()):
        steps: list[Json] = entries if isinstance(entries, list) else [entries]
        group = _group_node(run, node, index, group, scope, inner)
        if not group.fulfilled:
            _advance_group(run, group, steps, scope, values, inner, execute)
        if not group.fulfilled:
            return node
        if group.unsuccessful:
            _set_outbound(run, node, group)
            return run.mark(node, words.FAILED, group.message)
        _add_outputs(run, group, steps, values)
    if group is not None:
        _set_outbound(run, node, group)
    try:
        node.outputs = of_template(run, template, values)
    except EvaluationError as problem:
        return run.mark(node, words.ERROR, str(problem))
    return run.mark(node, words.SUCCEEDED, "")


def _group_node(
    run: Run, node: NodeStatus, index: int, previous: NodeStatus | None, scope: str, inner: NodeOptions
) -> NodeStatus:
    """Return the node of a group, connected to the last nodes of the previous one."""
    name = f"{node.name}[{index}]"
    group = run.get(name)
    if group is not None:
        return group
    group = run.begin_node(name, words.STEP_GROUP, {}, scope, inner, words.RUNNING)
    if previous is None:
        run.add_child(node, group)
    elif not previous.children:
        run.add_child(previous, group)
    else:
        for child in previous.children:
            for last in run.outbound(run.nodes.by_id[child]):
                run.add_child(last, group)
    return group


def _set_outbound(run: Run, node: NodeStatus, group: NodeStatus) -> None:
    children = [run.nodes.by_id[child] for child in group.children]
    node.outbound_nodes = [last.id for child in children for last in run.outbound(child)]


def _advance_group(
    run: Run,
    group: NodeStatus,
    steps: list[Json],
    scope: str,
    values: Scope,
    inner: NodeOptions,
    execute: Execute,
) -> None:
    found: list[tuple[Json, NodeStatus]] = []
    complete = True
    for step in steps:
        branch = TaskBranch(f"{group.name}.{step['name']}", step, "steps.", scope, values, inner, execute)
        nodes, ended = _advance_step(run, branch)
        complete &= ended
        run.add_children(group, nodes)
        found += [(step, node) for node in nodes]
    if not complete:
        return
    for step, node in found:
        if node.unsuccessful and not continues_on(step, node.phase):
            run.mark(group, words.FAILED, f"child '{node.id}' failed")
            return
    run.mark(group, words.SUCCEEDED, "")


def _advance_step(run: Run, branch: TaskBranch) -> tuple[list[NodeStatus], bool]:
    present = run.get(branch.name)
    if present is not None and present.type == words.SKIPPED_NODE:
        return [present], True
    expanded = expansion_of(branch)
    if isinstance(expanded, str):
        return [skip(run, branch, branch.name, words.ERROR, expanded)], True
    if expanded.skipped:
        return [skip(run, branch, branch.name, words.SKIPPED, expanded.skipped)], True
    return advance_items(run, branch, expanded)


def _add_outputs(run: Run, group: NodeStatus, steps: list[Json], values: Scope) -> None:
    """Make the outputs of a group's steps known to the later groups."""
    children = [run.nodes.by_id[child] for child in group.children]
    by_name = {child.name: child for child in children}
    for step in steps:
        name, prefix = f"{group.name}.{step['name']}", f"steps.{step['name']}"
        node = by_name.get(name)
        if node is not None:
            add_node(values, prefix, node)
            continue
        items = [child for child in children if child.name.startswith(f"{name}(")]
        ran = [child for child in items if child.phase != words.SKIPPED]
        if ran:
            add_node(values, prefix, group)
            add_group(values, prefix, ran)
        else:
            values.absent.add(prefix)
            values.values[f"{prefix}.status"] = words.SKIPPED
