"""Execution of a template as a node: arguments, locks, memoization, attempts and its kind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from windlass.workflow import words
from windlass.workflow.language.errors import EvaluationError
from windlass.workflow.language.functions import to_json
from windlass.workflow.node import NodeStatus, pod_name
from windlass.workflow.nodes import dag, gates, leaves, steps
from windlass.workflow.nodes.retries import FinishedAttempt, decide, seconds_of
from windlass.workflow.run import NodeOptions, Run
from windlass.workflow.templates import COMPOSITE, KINDS, ProcessedTemplate, kind_of, process

Json = dict[str, Any]
MAX_DEPTH = 100
"""Maximum depth of templates inside one another; a recursion that is deeper is an error."""


def execute(
    run: Run,
    name: str,
    holder: Mapping[str, Any],
    scope: str,
    arguments: Mapping[str, Any],
    options: NodeOptions,
) -> NodeStatus | None:
    """Begin or continue the node ``name``. Return ``None`` while a limit holds it back.

    ``holder``: step, task or hook that refers to the template. ``scope``: where its
    template is looked up.
    """
    node = run.get(name)
    if node is not None and node.fulfilled:
        return node
    run.depth += 1
    try:
        if run.depth > MAX_DEPTH:
            raise EvaluationError(
                f"templates are nested more than {MAX_DEPTH} levels deep: the recursion has no end"
            )
        return _execute(run, name, node, holder, scope, arguments, options)
    except EvaluationError as problem:
        if node is None:
            node = run.begin_node(name, words.SKIPPED_NODE, holder, scope, options, words.ERROR, str(problem))
        return run.mark(node, words.ERROR, str(problem))
    finally:
        run.depth -= 1


def _execute(
    run: Run,
    name: str,
    node: NodeStatus | None,
    holder: Mapping[str, Any],
    scope: str,
    arguments: Mapping[str, Any],
    options: NodeOptions,
) -> NodeStatus | None:
    resolved = run.library.resolve(holder, scope)
    template = resolved.template
    kind = kind_of(template)
    strategy = template.get("retryStrategy") or run.spec.get("retryStrategy") if kind != "suspend" else None
    local = {"node.name": name, "tasks.name": holder.get("name", ""), "steps.name": holder.get("name", "")}
    if node is not None and node.type == words.POD and _has_begun(node) and not template.get("timeout"):
        return node
    if node is None and not strategy and kind not in COMPOSITE:
        local["pod.name"] = pod_name(run.name, _probe(run, name, holder))
    processed = process(template, arguments, run.globals.child(local), run.surroundings.config)
    if node is not None and _timed_out(run, node, processed.template):
        return node
    begins = node is None or not _has_begun(node)
    if begins:
        if node is None and _held_back(run, name, kind, options):
            return None
        node = gates.pass_gates(
            run, name, node, holder, scope, processed, options, type_of(kind, bool(strategy))
        )
        if node is not None and (node.fulfilled or not _has_begun(node)):
            return node
    call = TemplateCall(name, holder, scope, resolved.scope, processed, options)
    if strategy:
        node = _with_retries(run, call, node, template, arguments)
    else:
        node = _run_kind(run, call, node, begins=begins)
    if begins and node is not None and not node.fulfilled:
        _timed_out(run, node, processed.template)
    return node


def _has_begun(node: NodeStatus) -> bool:
    return not (node.synchronization_status or {}).get("waiting")


def type_of(kind: str, retries: bool) -> str:
    """Return the type of the node of a template."""
    if retries:
        return words.RETRY
    return {"steps": words.STEPS, "dag": words.DAG, "suspend": words.SUSPEND}.get(kind, words.POD)


@dataclass(frozen=True, slots=True)
class TemplateCall:
    """Execution of one template. ``scope``: of the reference to it, ``inner_scope``: of its own references."""

    name: str
    holder: Mapping[str, Any]
    scope: str
    inner_scope: str
    processed: ProcessedTemplate
    options: NodeOptions


def _run_kind(
    run: Run, call: TemplateCall, node: NodeStatus | None, *, begins: bool, avoid_hosts: tuple[str, ...] = ()
) -> NodeStatus | None:
    template, options = call.processed.template, call.options
    kind = kind_of(template)
    if not kind:
        raise EvaluationError(
            f"template {template.get('name')!r} has no kind that is run: {', '.join(KINDS)}"
        )
    if node is None:
        type_ = type_of(kind, False)
        node = run.begin_node(call.name, type_, call.holder, call.scope, options, words.PENDING)
        node.inputs = call.processed.inputs or None
    if kind in COMPOSITE:
        if node.phase == words.PENDING:
            run.mark(node, words.RUNNING, "")
        module = steps if kind == "steps" else dag
        node = module.advance(run, node, call.inner_scope, call.processed, options, execute)
        if node.ended:
            run.stop_daemons(node.id)
        return node
    if begins:
        leaves.begin(run, node, template, options, avoid_hosts)
    return leaves.follow(run, node, template, options)


def _held_back(run: Run, name: str, kind: str, options: NodeOptions) -> bool:
    """Return whether the limits on parallel nodes, or a quota, hold a new node back."""
    if kind not in COMPOSITE:
        held = run.surroundings.held
        if held and run.nodes.free_id(run.name, name) in held:
            return True
        limit = run.spec.get("parallelism")
        if limit is not None and run.nodes.active_pods >= int(limit):
            return True
        if len(run.starts) >= run.surroundings.budget:
            run.wake_at(run.now)
            return True
    boundary = run.nodes.by_id.get(options.boundary)
    if boundary is None or options.retried:
        return False
    limit = run.limits.get(boundary.id)
    return limit is not None and run.nodes.active[boundary.id] >= limit


def _timed_out(run: Run, node: NodeStatus, template: Json) -> bool:
    """Fail a node after the ``timeout`` of its template."""
    if not template.get("timeout") or node.type == words.SUSPEND:
        return False
    end = run.started(node) + seconds_of(template["timeout"])
    if run.now < end:
        run.wake_at(end)
        return False
    if node.type in (words.POD, words.RETRY):
        run.stop(node)
        run.mark(node, words.FAILED, "Step exceeded its deadline")
        return True
    return False


# Attempts.


def _with_retries(
    run: Run, call: TemplateCall, node: NodeStatus | None, template: Json, arguments: Mapping[str, Any]
) -> NodeStatus | None:
    """Begin or continue a node with attempts as its children."""
    options = call.options
    if node is None:
        node = run.begin_node(call.name, words.RETRY, call.holder, call.scope, options, words.RUNNING)
        node.inputs = call.processed.inputs or None
    if node.phase == words.PENDING:
        run.mark(node, words.RUNNING, "")
    attempts = [child for id_ in node.children if not (child := run.nodes.by_id[id_]).hooked]
    done = [_attempt(run, child) for child in attempts if child.fulfilled]
    if len(done) < len(attempts):
        number = len(attempts) - 1
    elif attempts and not _another(run, call, node, attempts, done):
        return node
    else:
        number = len(attempts)
    _attempt_node(run, call, node, number, template, arguments, done, attempts)
    return node


def _another(
    run: Run, call: TemplateCall, node: NodeStatus, attempts: list[NodeStatus], done: list[FinishedAttempt]
) -> bool:
    """Return whether another attempt begins now. Otherwise the node waits, or has ended."""
    last = attempts[-1]
    if not last.unsuccessful:
        node.outputs, node.pod_ip = last.outputs, last.pod_ip
        run.mark(node, words.SUCCEEDED, "")
        return False
    ended = run.shutdown == words.TERMINATE or (run.ending and not call.options.exit_handler)
    if ended:
        _end(run, node, last, run.end_message)
        return False
    strategy = call.processed.template.get("retryStrategy") or run.spec.get("retryStrategy") or {}
    values = call.processed.scope.child(_last_retry(done))
    deadline = None if call.options.exit_handler else run.deadline
    decision = decide(strategy, done, values, run.now, deadline)
    if decision.wait_until is not None:
        run.wake_at(decision.wait_until)
        node.message = decision.message
    elif not decision.again:
        _end(run, node, last, decision.message)
    else:
        node.message = ""
    return decision.again


def _attempt_node(
    run: Run,
    call: TemplateCall,
    node: NodeStatus,
    number: int,
    template: Json,
    arguments: Mapping[str, Any],
    done: list[FinishedAttempt],
    attempts: list[NodeStatus],
) -> None:
    """Begin or continue one attempt."""
    options = call.options
    name = f"{node.name}({number})"
    child = run.get(name)
    if child is not None and child.type == words.POD:
        return
    inner = NodeOptions(options.boundary, options.hooked, True, options.exit_handler)
    if child is None and _held_back(run, name, kind_of(template), inner):
        return
    local: dict[str, Any] = {
        "node.name": name,
        "pod.name": pod_name(run.name, child or _probe(run, name, call.holder)),
        "retries": str(number),
        **_last_retry(done),
    }
    processed = process(template, arguments, run.globals.child(local), run.surroundings.config)
    hosts = _hosts_to_avoid(processed.template.get("retryStrategy") or {}, attempts)
    inner_call = replace(call, name=name, processed=processed, options=inner)
    begun = _run_kind(run, inner_call, child, begins=child is None, avoid_hosts=hosts)
    if begun is not None:
        run.add_child(node, begun)
        if begun.fulfilled:  # its end is decided about in the next step
            run.wake_at(run.now)


def _probe(run: Run, name: str, holder: Mapping[str, Any]) -> NodeStatus:
    """Return a node that is not added, for the name of its pod."""
    probe = NodeStatus(id=run.nodes.free_id(run.name, name), name=name, display_name="", type="", phase="")
    probe.template_name = str(holder.get("template") or (holder.get("inline") or {}).get("name") or "")
    probe.template_ref = holder.get("templateRef")
    return probe


def _hosts_to_avoid(strategy: Json, attempts: list[NodeStatus]) -> tuple[str, ...]:
    if "nodeAntiAffinity" not in (strategy.get("affinity") or {}):
        return ()
    hosts = (child.host_node_name for child in attempts if child.unsuccessful and child.host_node_name)
    return tuple(dict.fromkeys(hosts))


def _attempt(run: Run, node: NodeStatus) -> FinishedAttempt:
    code = str((node.outputs or {}).get("exitCode", "-1"))
    return FinishedAttempt(node.phase, node.message, code, run.started(node), run.finished(node))


def _last_retry(done: list[FinishedAttempt]) -> dict[str, Any]:
    if not done:
        return {
            "lastRetry.exitCode": "0",
            "lastRetry.status": "",
            "lastRetry.duration": "0",
            "lastRetry.message": "",
        }
    last = done[-1]
    return {
        "lastRetry.exitCode": last.exit_code,
        "lastRetry.status": last.phase,
        "lastRetry.duration": str(int(last.finished - last.started)),
        "lastRetry.message": last.message,
    }


def _end(run: Run, node: NodeStatus, last: NodeStatus, message: str) -> NodeStatus:
    node.outputs = last.outputs
    return run.mark(node, last.phase, message)


def failures(run: Run) -> str:
    """Return ``workflow.failures``: the failed nodes as a quoted JSON list."""
    found = [
        {
            "displayName": node.display_name,
            "message": node.message,
            "templateName": node.template_name,
            "phase": node.phase,
            "podName": pod_name(run.name, node),
            "finishedAt": node.finished_at,
        }
        for node in run.nodes.by_id.values()
        if node.unsuccessful
    ]
    return to_json(to_json(found))
