"""DAG templates: tasks that begin when their dependencies have ended."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windlass.workflow import words
from windlass.workflow.language.depends import Depends, of_names, parse
from windlass.workflow.language.errors import EvaluationError
from windlass.workflow.node import NodeStatus
from windlass.workflow.nodes.branches import (
    TaskBranch,
    advance_items,
    continues_on,
    expansion_of,
    group_phase,
    skip,
)
from windlass.workflow.nodes.hooks import Execute, run_hooks
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
    """Begin and continue the tasks of a DAG node."""
    return _DagAdvance(run, node, scope, processed, options, execute).advance()


def dependencies(task: Mapping[str, Any]) -> Depends:
    """Return the dependencies of a task, in either form. Raises :class:`EvaluationError`."""
    return parse(task["depends"]) if task.get("depends") else of_names(task.get("dependencies") or ())


def targets_of(dag: Mapping[str, Any], depends: Mapping[str, Depends]) -> list[str]:
    """Return the tasks that decide how the DAG ends: ``target``, or those that no task depends on."""
    if dag.get("target"):
        return [name for name in str(dag["target"]).split() if name in depends]
    needed = {other for found in depends.values() for other in found.tasks}
    return sorted(name for name in depends if name not in needed)


def order(targets: list[str], depends: Mapping[str, Depends]) -> list[str]:
    """Return the targets and all that they depend on, dependencies first."""
    found: dict[str, None] = {}
    stack: list[tuple[str, bool]] = [(name, False) for name in reversed(targets)]
    while stack:
        name, expanded = stack.pop()
        if name in found:
            continue
        if expanded:
            found[name] = None
            continue
        stack.append((name, True))
        stack += [(other, False) for other in reversed(depends[name].tasks) if other in depends]
    return list(found)


class _DagAdvance:
    """State of one advance of a DAG node. Used once."""

    def __init__(
        self,
        run: Run,
        node: NodeStatus,
        scope: str,
        processed: ProcessedTemplate,
        options: NodeOptions,
        execute: Execute,
    ) -> None:
        self.run, self.node, self.scope, self.execute = run, node, scope, execute
        self.template = processed.template
        self.values = processed.scope.child({})
        self.inner = NodeOptions(boundary=node.id, exit_handler=options.exit_handler)
        self.tasks: dict[str, Json] = {task["name"]: task for task in self.template["dag"].get("tasks") or ()}
        self.ended: set[str] = set()
        """Tasks that have ended, with their hooks."""

    def advance(self) -> NodeStatus:
        run, node = self.run, self.node
        if self.template.get("parallelism") is not None:
            run.limits[node.id] = int(self.template["parallelism"])
        try:
            depends = {name: dependencies(task) for name, task in self.tasks.items()}
        except EvaluationError as problem:
            return run.mark(node, words.ERROR, str(problem))
        targets = targets_of(self.template["dag"], depends)
        tasks = order(targets, depends)
        for name in tasks:
            self._advance_task(name, depends[name])
        phase = self._phase(tasks, targets, depends)
        if phase == words.RUNNING:
            return node
        last = [found for name in targets if (found := self._node(name)) is not None]
        node.outbound_nodes = [end.id for one in last for end in run.outbound(one)]
        if phase != words.SUCCEEDED:
            return run.mark(node, phase, self._failure(tasks))
        try:
            node.outputs = of_template(run, self.template, self.values)
        except EvaluationError as problem:
            return run.mark(node, words.ERROR, str(problem))
        return run.mark(node, words.SUCCEEDED, "")

    def _node(self, name: str) -> NodeStatus | None:
        return self.run.get(f"{self.node.name}.{name}")

    def _failure(self, tasks: list[str]) -> str:
        """Return which tasks failed, for the message of the node."""
        failed = [name for name in tasks if (node := self._node(name)) is not None and node.unsuccessful]
        return f"failed: {', '.join(failed[:5])}{' …' if len(failed) > 5 else ''}"

    # Tasks.

    def _advance_task(self, name: str, depends: Depends) -> None:
        node, task = self._node(name), self.tasks[name]
        if node is not None and node.fulfilled:
            self._ended(name, node, task)
            return
        if any(other not in self.ended for other in depends.tasks):
            return
        branch = TaskBranch(
            f"{self.node.name}.{name}", task, "tasks.", self.scope, self.values, self.inner, self.execute
        )
        if node is None and not depends.holds(self._results(depends), self._continues(depends)):
            node = skip(self.run, branch, branch.name, words.OMITTED, "omitted: depends condition not met")
            self._connect(node, depends)
        else:
            node = self._advance_branch(branch, node, depends)
        if node is not None and node.fulfilled:
            self._ended(name, node, task)

    def _advance_branch(
        self, branch: TaskBranch, node: NodeStatus | None, depends: Depends
    ) -> NodeStatus | None:
        run = self.run
        expanded = expansion_of(branch)
        if isinstance(expanded, str) or expanded.skipped:
            if isinstance(expanded, str):
                node = skip(run, branch, branch.name, words.ERROR, expanded)
            else:
                node = skip(run, branch, branch.name, words.SKIPPED, expanded.skipped)
            self._connect(node, depends)
            return node
        if not expanded.loop:
            nodes, _ = advance_items(run, branch, expanded)
            for one in nodes:
                self._connect(one, depends)
            return nodes[0] if nodes else None
        if node is None:
            node = run.begin_node(
                branch.name, words.TASK_GROUP, branch.task, branch.scope, branch.options, words.RUNNING
            )
            self._connect(node, depends)
        nodes, complete = advance_items(run, branch, expanded)
        run.add_children(node, nodes)
        if complete and len(nodes) == len(expanded.items):
            run.mark(node, group_phase(nodes))
        return node

    def _connect(self, node: NodeStatus, depends: Depends) -> None:
        """Make a node a child of the last nodes of its dependencies."""
        if not depends.tasks:
            self.run.add_child(self.node, node)
        for name in depends.tasks:
            before = self._node(name)
            if before is not None:
                for last in self.run.outbound(before):
                    self.run.add_child(last, node)

    def _ended(self, name: str, node: NodeStatus, task: Json) -> None:
        """Make a finished task known to others, once its hooks have ended."""
        prefix = f"tasks.{name}"
        if node.type == words.TASK_GROUP:
            children = [self.run.nodes.by_id[child] for child in node.children]
            items = [child for child in children if child.name.startswith(f"{node.name}(")]
            add_group(self.values, prefix, items)
        else:
            try:
                if not run_hooks(
                    self.run, task, node, prefix, self.scope, self.values, self.inner, self.execute
                ):
                    return
            except EvaluationError as problem:
                self.run.mark(node, words.ERROR, str(problem))
        add_node(self.values, prefix, node)
        self.ended.add(name)

    def _results(self, depends: Depends) -> dict[str, frozenset[str]]:
        return {name: self._result(node) for name in depends.tasks if (node := self._node(name)) is not None}

    def _result(self, node: NodeStatus) -> frozenset[str]:
        found = {"Errored" if node.phase == words.ERROR else node.phase}
        if node.daemoned:
            found.add("Daemoned")
        if node.type == words.TASK_GROUP:
            phases = [self.run.nodes.by_id[child].phase for child in node.children]
            if words.SUCCEEDED in phases:
                found.add("AnySucceeded")
            if phases and all(phase == words.FAILED for phase in phases):
                found.add("AllFailed")
        return frozenset(found)

    def _continues(self, depends: Depends) -> dict[str, frozenset[str]]:
        found = {}
        for name in depends.tasks:
            allowed = self.tasks.get(name, {}).get("continueOn") or {}
            words_ = [("Failed", allowed.get("failed")), ("Errored", allowed.get("error"))]
            found[name] = frozenset(word for word, set_ in words_ if set_)
        return found

    # The whole.

    def _phase(self, tasks: list[str], targets: list[str], depends: Mapping[str, Depends]) -> str:
        """Return the phase of the DAG. A task that did not run counts as its dependencies do."""
        branch: dict[str, str] = {}
        for name in tasks:
            node = self._node(name)
            if node is None:
                continue
            if name not in self.ended:
                return words.RUNNING
            before = [branch.get(other, words.SUCCEEDED) for other in depends[name].tasks]
            failed = [phase for phase in before if phase in words.UNSUCCESSFUL]
            branch[name] = node.phase if node.completed else failed[0] if failed else words.SUCCEEDED
        fail_fast = self.template["dag"].get("failFast") is not False
        result = words.SUCCEEDED
        for name in targets:
            phase = branch.get(name)
            if phase is None:
                result = words.RUNNING
                if not fail_fast:
                    break
            elif phase in words.UNSUCCESSFUL and not continues_on(self.tasks[name], phase):
                result = phase
                if fail_fast:
                    break
        return result
