"""``windlass workflow``: graphs of tasks, in Argo's form."""

from __future__ import annotations

import os
import shlex
from typing import Any

import click

from windlass.api.errors import StatusError, WindlassError
from windlass.cli import errors
from windlass.cli.command_group import NounGroup
from windlass.cli.invocation import Invocation
from windlass.cli.options import standard
from windlass.cli.output import wide_tables
from windlass.cli.output.formats import emit
from windlass.cli.text import age_of, approximate_duration
from windlass.cli.workflows import lookup
from windlass.cli.workflows.artifacts import HEADER, artifacts_of, cells
from windlass.cli.workflows.contexts import range_of
from windlass.cli.workflows.drawing import COLOURS, SYMBOLS, draw, svg
from windlass.cli.workflows.layout import graph_of, layers_of, records_of
from windlass.cli.workflows.lookup import FoundWorkflow
from windlass.cli.workflows.waits import LongWaits
from windlass.controllers.workflow.capture import without_marks
from windlass.workflow import words
from windlass.workflow.commands import RequestProblem
from windlass.workflow.node import NodeStatus, pod_name

_FAILED = 1
_PARAMETERS = click.option(
    "-p", "--parameter", "parameters", multiple=True, metavar="NAME=VALUE", help="Parameter; may be repeated."
)


@click.group("workflow", cls=NounGroup)
def command() -> None:
    """Workflows: run, ls, show, graph, logs, retry, resubmit, stop, suspend, resume."""


@command.command("run")
@click.argument("file", required=False, metavar="[FILE]")
@click.option("--template", default="", metavar="NAME", help="Run this WorkflowTemplate instead of a file.")
@_PARAMETERS
@click.option("--entrypoint", default="", metavar="NAME", help="Template to begin with.")
@click.option("--name", default="", metavar="NAME", help="Name of the workflow.")
@click.option("--no-wait", is_flag=True, help="Return before the workflow has ended.")
@standard()
def run(
    invocation: Invocation,
    file: str | None,
    template: str,
    parameters: tuple[str, ...],
    entrypoint: str,
    name: str,
    no_wait: bool,
) -> int:
    """Run a workflow from a manifest or a template, and follow it to its end."""
    from windlass.cli.workflows.requests import create_from_file, create_from_template, parameters_of

    values = parameters_of(parameters)
    if bool(file) == bool(template):
        remedies = ("windlass workflow run FILE", "windlass workflow run --template NAME")
        raise WindlassError("WL-USE-400", "either a file or --template is needed", remedies=remedies)
    if template:
        created = [create_from_template(invocation, template, values, entrypoint, name)]
    else:
        created = create_from_file(invocation, str(file), values, entrypoint, name)
    status = errors.OK
    for kind, obj in created:
        invocation.note(f"{kind.kind} {obj['metadata']['name']} created")
        if not no_wait:
            try:
                status = max(status, _follow(invocation, obj))
            except KeyboardInterrupt:
                return _detach(invocation, obj)
    if no_wait and invocation.structured:
        items = [obj for _, obj in created]
        emit(invocation, {"items": items}, names=[f"workflow/{obj['metadata']['name']}" for obj in items])
    return status


def _detach(invocation: Invocation, obj: dict[str, Any]) -> int:
    """Print how to come back to a workflow and how to end it; return the status of an interrupt."""
    name, namespace = obj["metadata"]["name"], obj["metadata"]["namespace"]
    space = invocation.namespace_flag(namespace)
    invocation.note(f"\ndetached; {name} keeps running")
    for title, verb in (("come back:", "show"), ("end it:   ", "stop")):
        command = f"windlass workflow {verb} {name}{space}"
        invocation.note(f"{title} {errors.remedy_with_target(command, invocation.context.target_flags)}")
    return errors.INTERRUPTED


def _follow(invocation: Invocation, obj: dict[str, Any]) -> int:
    """Print the nodes as they end, why others wait, and then the workflow."""
    told: set[str] = set()
    waits = LongWaits(invocation.clock.monotonic)
    namespace = obj["metadata"].get("namespace")
    while True:
        invocation.namespace = namespace or invocation.namespace
        found = lookup.find(invocation, obj["metadata"]["name"])
        for node in sorted(found.nodes.values(), key=lambda one: one.finished_at or ""):
            if node.fulfilled and node.id not in told:
                told.add(node.id)
                _tell(invocation, found, node)
        for node in waits.new(found.nodes.values()):
            _tell(invocation, found, node)
        if found.status.get("finishedAt"):
            break
        if waits.begins(message := found.message):
            invocation.note(f"{found.name}: {message}")
        invocation.clock.pause(min(2.0, 0.2 + len(found.nodes) / 5000))  # many nodes are much to read
    if invocation.structured:
        emit(invocation, found.plain, names=[f"workflow/{found.name}"])
    else:
        message = f": {found.message}" if found.message else ""
        invocation.out.line(f"workflow {found.name}: {found.phase}{message}")
    return errors.OK if found.phase == words.SUCCEEDED else _FAILED


def _tell(invocation: Invocation, found: FoundWorkflow, node: NodeStatus) -> None:
    if node.type not in (words.POD, words.SUSPEND, words.SKIPPED_NODE) or invocation.structured:
        return
    symbol = invocation.out.paint(SYMBOLS.get(node.phase, "?"), COLOURS.get(node.phase, ""))
    parts = [f"{symbol} {node.display_name}", range_of(node), " ".join(found.named(node.message).split())]
    invocation.out.line("  ".join(filter(None, parts)))


@command.command("ls")
@standard(all_namespaces=True)
def list_workflows(invocation: Invocation) -> int:
    """List workflows with their phases and progress."""
    found = lookup.workflows(invocation)
    if invocation.structured:
        items = [obj for _, obj in found]
        emit(invocation, {"items": items}, names=[f"workflow/{obj['metadata']['name']}" for obj in items])
        return errors.OK
    if not found:
        scope = "" if invocation.all_namespaces else f" in namespace {invocation.home_namespace}"
        invocation.note(f"No workflows{scope}. To run one: windlass workflow run FILE")
        return errors.OK
    now, rows = invocation.clock.now(), []
    from windlass.cli.workflows.show import seconds_of

    for kind, obj in found:
        status = obj.get("status") or {}
        cells = [
            obj["metadata"]["name"],
            kind.kind,
            lookup.state_of(obj),
            status.get("progress") or "0/0",
            age_of(obj, now),
            approximate_duration(seconds_of(status, now)),
            lookup.message_of(invocation, kind, obj),
        ]
        rows.append([obj["metadata"].get("namespace", ""), *cells] if invocation.all_namespaces else cells)
    header = ["NAME", "KIND", "STATUS", "PROGRESS", "AGE", "DURATION", "MESSAGE"]
    if invocation.all_namespaces:
        header.insert(0, "NAMESPACE")
    wide_tables.show(invocation, header, rows, optional=("KIND", "DURATION"))
    return errors.OK


@command.command("show")
@click.argument("workflow", metavar="WORKFLOW")
@standard()
def show(invocation: Invocation, workflow: str) -> int:
    """Show a workflow with the tree of its nodes."""
    from windlass.cli.workflows.show import print_workflow

    found = lookup.find(invocation, workflow)
    if invocation.structured:
        emit(invocation, found.plain, names=[f"workflow/{found.name}"])
    else:
        print_workflow(invocation, found)
    return errors.OK


@command.command("graph")
@click.argument("workflow", metavar="WORKFLOW")
@click.option("--svg", "file", default="", metavar="FILE", help="Write the picture as SVG to this file.")
@click.option("--artifacts", is_flag=True, help="List the artifacts that pass between nodes instead.")
@standard()
def graph(invocation: Invocation, workflow: str, file: str, artifacts: bool) -> int:
    """Draw the graph of a workflow, in the terminal or as SVG."""
    found = lookup.find(invocation, workflow)
    if artifacts:
        passed = artifacts_of(found.nodes)
        if invocation.structured:
            emit(invocation, {"items": passed}, names=[one["name"] for one in passed])
        elif passed:
            wide_tables.show(invocation, HEADER, [cells(one) for one in passed])
        else:
            invocation.note(f"{found.name} has no artifacts.")
        return errors.OK
    boxes = graph_of(found.nodes)
    if invocation.structured:
        records = records_of(boxes)
        emit(invocation, {"items": records}, names=[record["name"] for record in records])
        return errors.OK
    layers = layers_of(boxes)
    if not file:
        lines = draw(boxes, layers, invocation.out.paint)
        invocation.out.write("".join(f"{line}\n" for line in lines))
        if found.state != found.phase:
            invocation.note(f"{found.name} is suspended. To go on: windlass workflow resume {found.name}")
        return errors.OK
    try:
        with open(file, "w", encoding="utf-8") as stream:
            stream.write(svg(boxes, layers, f"{found.name}: {found.state}"))
    except OSError as problem:
        raise WindlassError(
            "WL-OUTPUT-500",
            f"{file} cannot be written: {problem.strerror}",
            remedies=_places(file, found.name),
        ) from problem
    invocation.out.line(f"{file} written")
    return errors.OK


def _places(file: str, workflow: str) -> tuple[str, ...]:
    """Return commands by which a picture can be written: into a new folder, or elsewhere."""
    folder = os.path.dirname(file) or "."
    look = f"ls -ld {shlex.quote(folder)}" if os.path.isdir(folder) else f"mkdir -p {shlex.quote(folder)}"
    return look, f"windlass workflow graph {workflow} --svg /tmp/{workflow}.svg"


@command.command("logs")
@click.argument("workflow", metavar="WORKFLOW")
@click.argument("node", required=False, metavar="[NODE]")
@standard(output=False)
def logs(invocation: Invocation, workflow: str, node: str | None) -> int:
    """Print the output of a workflow's nodes, each line with its node."""
    found = lookup.find(invocation, workflow)
    chosen = [found.node(node)] if node else list(found.nodes.values())
    if node and chosen[0].type != words.POD:
        chosen = [one for one in found.nodes.values() if one.name.startswith(chosen[0].name)]
    pods = [one for one in chosen if one.type == words.POD and one.managed_object is None]
    for one in sorted(pods, key=lambda each: (each.started_at or "", each.name)):
        prefix = "" if node and len(pods) == 1 else invocation.out.paint(f"{one.display_name}: ", "cyan")
        for line in _log(invocation, found, one).splitlines():
            invocation.out.line(f"{prefix}{line}")
    return errors.OK


def _log(invocation: Invocation, found: FoundWorkflow, node: NodeStatus) -> str:
    name = pod_name(found.name, node)
    try:
        data = b"".join(invocation.client.logs(found.namespace, name, container="main"))
    except StatusError as problem:
        text = problem.message
        if problem.code == 404:
            text = "its pod is gone, and its output with it. What is kept of the node, such as its phase "
            text += f"and results: windlass workflow show {found.name}"
        invocation.note(f"{node.display_name}: {text}")
        return ""
    return without_marks(data.decode(errors="replace"))


def _runs(found: FoundWorkflow, verb: str) -> None:
    """Raise :class:`WindlassError` for a workflow that has ended."""
    if found.status.get("finishedAt"):
        raise WindlassError(
            "WL-WORKFLOW-409",
            f"workflow {found.name} has ended: its phase is {found.phase}",
            evidence=f"there is nothing left to {verb}",
            remedies=(f"windlass workflow show {found.name}", f"windlass workflow resubmit {found.name}"),
        )


def _ended(found: FoundWorkflow) -> None:
    """Raise :class:`WindlassError` for a workflow that runs."""
    if not found.status.get("finishedAt"):
        raise WindlassError(
            "WL-WORKFLOW-409",
            f"workflow {found.name} has not ended: its phase is {found.phase}",
            remedies=(f"windlass workflow stop {found.name}",),
        )


@command.command("retry")
@click.argument("workflow", metavar="WORKFLOW")
@click.option(
    "--from", "node", default="", metavar="NODE", help="Run this node and all that follows it again."
)
@_PARAMETERS
@standard(output=False)
def retry(invocation: Invocation, workflow: str, node: str, parameters: tuple[str, ...]) -> int:
    """Run again what failed, or all from a node on. What succeeded before is kept."""
    from windlass.cli.workflows.requests import parameters_of, send, tell_unknown, whole_spec
    from windlass.workflow import commands

    found = lookup.find(invocation, workflow)
    _ended(found)
    values = parameters_of(parameters)
    try:  # the answer of the controller would only be an event
        kept, removed = commands.retry(dict(found.nodes), found.name, {"node": node} if node else {})
    except RequestProblem as problem:
        raise WindlassError(
            "WL-WORKFLOW-409", str(problem), remedies=(f"windlass workflow retry {workflow} --from NODE",)
        ) from None
    request: dict[str, Any] = {"action": "retry", "parameters": values}
    if node:
        request["node"] = found.node(node).id
    if values:
        tell_unknown(invocation, whole_spec(invocation, found.obj["spec"], found.namespace), values)
    send(invocation, found, request)
    leaves = (words.POD, words.SUSPEND)
    stays = sum(one.phase == words.SUCCEEDED and one.type in leaves for one in kept.values())
    invocation.out.line(f"workflow {workflow} runs again: {len(removed)} nodes reset, {stays} kept")
    return errors.OK


@command.command("resubmit")
@click.argument("workflow", metavar="WORKFLOW")
@click.option("--memoized", is_flag=True, help="Take over the results of nodes that succeeded.")
@_PARAMETERS
@standard(output=False)
def resubmit(invocation: Invocation, workflow: str, memoized: bool, parameters: tuple[str, ...]) -> int:
    """Run the workflow again as a new one, as a whole or only what had not succeeded."""
    from windlass.cli.workflows.requests import parameters_of
    from windlass.cli.workflows.requests import resubmit as create
    from windlass.workflow.reuse import reuse

    found = lookup.find(invocation, workflow)
    if memoized:
        _ended(found)
        try:  # the answer of the controller would only be an event
            reuse(found.nodes, found.name, found.name)
        except RequestProblem as problem:
            remedies = (f"windlass workflow resubmit {workflow}",)
            raise WindlassError("WL-WORKFLOW-409", str(problem), remedies=remedies) from None
    obj = create(invocation, found, parameters_of(parameters), memoized=memoized)
    invocation.out.line(f"workflow {obj['metadata']['name']} created")
    return errors.OK


@command.command("stop")
@click.argument("workflow", metavar="WORKFLOW")
@click.option("--now", "terminate", is_flag=True, help="Do not run exit handlers.")
@standard(output=False)
def stop(invocation: Invocation, workflow: str, terminate: bool) -> int:
    """End a workflow. Its exit handlers run first."""
    found = lookup.find(invocation, workflow)
    _runs(found, "stop")
    strategy = words.TERMINATE if terminate else words.STOP
    invocation.client.patch(found.kind, found.name, {"spec": {"shutdown": strategy}}, found.namespace)
    invocation.out.line(f"workflow {workflow} is stopped")
    return errors.OK


@command.command("suspend")
@click.argument("workflow", metavar="WORKFLOW")
@standard(output=False)
def suspend(invocation: Invocation, workflow: str) -> int:
    """Begin no more nodes until the workflow is resumed."""
    found = lookup.find(invocation, workflow)
    _runs(found, "suspend")
    invocation.client.patch(found.kind, found.name, {"spec": {"suspend": True}}, found.namespace)
    invocation.out.line(f"workflow {workflow} is suspended")
    return errors.OK


@command.command("resume")
@click.argument("workflow", metavar="WORKFLOW")
@click.option("--node", default="", metavar="NODE", help="Suspended node. [default: all]")
@_PARAMETERS
@standard(output=False)
def resume(invocation: Invocation, workflow: str, node: str, parameters: tuple[str, ...]) -> int:
    """Go on with a suspended workflow, or end its suspended nodes. -p gives their outputs."""
    from windlass.cli.workflows.requests import parameters_of, send
    from windlass.workflow import commands

    found = lookup.find(invocation, workflow)
    _runs(found, "resume")
    waiting = [one for one in found.nodes.values() if one.type == words.SUSPEND and not one.fulfilled]
    whole = bool(found.obj["spec"].get("suspend"))
    if not waiting and not whole:
        raise WindlassError("WL-WORKFLOW-409", f"nothing of workflow {workflow} is suspended")
    request: dict[str, Any] = {"action": "resume", "parameters": parameters_of(parameters)}
    if node:
        request["node"] = found.node(node).id
    elif parameters and not waiting:
        raise WindlassError(
            "WL-WORKFLOW-409",
            f"no node of workflow {workflow} is suspended: -p has no output to set",
            remedies=(f"windlass workflow resume {workflow}",),
        )
    ends_nodes = bool(node or parameters) or not whole
    if ends_nodes:
        try:
            commands.resume(found.nodes, request, 0.0)
        except RequestProblem as problem:
            raise WindlassError("WL-WORKFLOW-409", str(problem)) from None
    if whole:
        invocation.client.patch(found.kind, found.name, {"spec": {"suspend": None}}, found.namespace)
    if ends_nodes:
        send(invocation, found, request)
    invocation.out.line(f"workflow {workflow} is resumed")
    if not ends_nodes and waiting:
        names = ", ".join(one.display_name for one in waiting[:10])
        invocation.note(f"still suspended: {names}. To end: windlass workflow resume {workflow} --node NODE")
    return errors.OK
