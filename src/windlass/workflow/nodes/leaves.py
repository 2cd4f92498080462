"""Leaves of a workflow: nodes that are run as pods or objects, and suspended nodes."""

from __future__ import annotations

from typing import Any

from windlass.workflow import words
from windlass.workflow.keys import with_stored_keys
from windlass.workflow.language.errors import EvaluationError
from windlass.workflow.node import NodeStatus
from windlass.workflow.nodes.retries import seconds_of
from windlass.workflow.run import NodeOptions, Run, Start

Json = dict[str, Any]


def begin(
    run: Run, node: NodeStatus, template: Json, options: NodeOptions, avoid_hosts: tuple[str, ...]
) -> None:
    """Begin a leaf, unless the workflow is ending."""
    if not run.may_begin(options):
        run.mark(node, words.FAILED, run.end_message)
    elif "suspend" in template:
        run.mark(node, words.RUNNING)
    else:
        start = Start(
            node=node,
            template=with_stored_keys(template, run.nodes.by_id.values()),
            deadline=_deadline(run, template, options),
            avoid_hosts=avoid_hosts,
            wants_result=run.wants_result(node),
            exit_handler=options.exit_handler,
        )
        run.starts.append(start)


def _deadline(run: Run, template: Json, options: NodeOptions) -> float | None:
    """Return the time by which a pod must have ended: its own limit or that of the workflow."""
    found = [] if run.deadline is None or options.exit_handler else [run.deadline]
    own = template.get("activeDeadlineSeconds")
    if own not in (None, ""):
        try:
            found.append(run.now + float(own))
        except (TypeError, ValueError):
            raise EvaluationError(f"activeDeadlineSeconds is {own!r}, which is not a number") from None
    return min(found, default=None)


def follow(run: Run, node: NodeStatus, template: Json, options: NodeOptions) -> NodeStatus:
    """Continue a leaf: a suspended node ends after its duration."""
    if node.type != words.SUSPEND or node.fulfilled:
        return node
    if not run.may_begin(options):
        return run.mark(node, words.FAILED, run.end_message)
    suspend = template.get("suspend") or {}
    if node.outputs is None and (parameters := _supplied(template)):
        node.outputs = {"parameters": parameters}
    if duration := suspend.get("duration"):
        end = run.started(node) + seconds_of(duration)
        if run.now >= end:
            return _end(run, node, template)
        run.wake_at(end)
    return node


def _supplied(template: Json) -> list[Json]:
    """Return the outputs that are supplied when the node is resumed."""
    return [
        {"name": parameter["name"], "valueFrom": parameter["valueFrom"]}
        for parameter in (template.get("outputs") or {}).get("parameters") or ()
        if parameter.get("valueFrom")
    ]


def _end(run: Run, node: NodeStatus, template: Json) -> NodeStatus:
    """End a suspended node after its duration, with the defaults of its outputs."""
    parameters = []
    for parameter in (node.outputs or {}).get("parameters") or ():
        if "value" not in parameter:
            default = (parameter.get("valueFrom") or {}).get("default")
            if default is None:
                message = f"the output {parameter['name']!r} was not supplied before the suspension ended"
                return run.mark(node, words.FAILED, message)
            parameter = {"name": parameter["name"], "value": str(default)}
        parameters.append(parameter)
    if parameters:
        node.outputs = {"parameters": parameters}
    return run.mark(node, words.SUCCEEDED, "")
