"""Advance of a workflow: (state, events) → effects and the new state."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from windlass.kits.timestamps import parse_rfc3339, rfc3339
from windlass.workflow import words
from windlass.workflow.language.errors import EvaluationError
from windlass.workflow.locks import locks_of
from windlass.workflow.node import NodeStatus
from windlass.workflow.nodes import gates
from windlass.workflow.nodes.execution import execute, failures
from windlass.workflow.nodes.hooks import run_hooks
from windlass.workflow.outputs import export_globals
from windlass.workflow.run import CacheWrite, NodeOptions, Run, Start, Surroundings
from windlass.workflow.specification import executed_spec, template_scope
from windlass.workflow.templates import LOCAL, TemplateLibrary
from windlass.workflow.variables import global_values

Json = dict[str, Any]
ENDED = frozenset({words.SUCCEEDED, words.FAILED, words.ERROR})
"""Phases of a workflow that has ended."""


@dataclass(frozen=True, slots=True)
class LeafReport:
    """Event: what became of a leaf. ``started`` and ``finished``: Unix seconds.

    ``daemoned``: it is a daemon, and ready. ``ip``: address of its pod.
    """

    node_id: str
    phase: str
    message: str = ""
    outputs: Json | None = None
    started: float | None = None
    finished: float | None = None
    host: str = ""
    daemoned: bool = False
    ip: str = ""


@dataclass(frozen=True, slots=True)
class Advance:
    """Result of an advance.

    ``status``: new status without its nodes. ``starts`` are carried out before the status
    is stored, ``stops`` after it. ``due``: Unix time of the next advance without an event.
    """

    status: Json
    nodes: dict[str, NodeStatus]
    starts: tuple[Start, ...] = ()
    stops: tuple[NodeStatus, ...] = ()
    cache_writes: tuple[CacheWrite, ...] = ()
    due: float | None = None


def advance(
    workflow: Json,
    nodes: dict[str, NodeStatus],
    reports: Iterable[LeafReport],
    templates: Mapping[str, Mapping[str, Any]],
    surroundings: Surroundings,
    now: float,
) -> Advance:
    """Advance a workflow by the reports about its leaves.

    ``nodes``: nodes of its status, which are changed. ``templates``: scope → spec of each
    WorkflowTemplate that it refers to.
    """
    status: Json = dict(workflow.get("status") or {})
    if status.get("phase") in ENDED:
        return Advance(status, nodes)
    if not status.get("startedAt"):
        status["startedAt"] = rfc3339(now)
    try:
        spec = executed_spec(workflow, templates)
        if template_scope(workflow.get("spec") or {}):
            status["storedWorkflowTemplateSpec"] = {
                key: value for key, value in spec.items() if key not in ("suspend", "shutdown")
            }
        library = TemplateLibrary(spec, templates)
        run = Run({**workflow, "status": status}, spec, library, nodes, surroundings, now)
        run.globals.values.update(global_values(run.workflow, spec, surroundings.config, now))
        if spec.get("activeDeadlineSeconds"):
            run.deadline = parse_rfc3339(status["startedAt"]) + float(spec["activeDeadlineSeconds"])
            if now < run.deadline:
                run.wake_at(run.deadline)
    except EvaluationError as problem:
        return Advance(_ended(status, words.ERROR, str(problem), now), nodes)
    return _WorkflowAdvance(run, status).advance(reports)


def _ended(status: Json, phase: str, message: str, now: float) -> Json:
    found = {**status, "phase": phase, "finishedAt": rfc3339(now), "conditions": _conditions(True)}
    found.pop("message", None)
    if message:
        found["message"] = message
    return found


def suspended_message(workflow: Json) -> str:
    """Return the message of a suspended workflow. Argo leaves it empty, and shows it as one that runs."""
    metadata = workflow["metadata"]
    namespace = metadata.get("namespace") or "default"
    own = "" if namespace == "default" else f" -n {namespace}"
    return f"suspended, no further node begins: windlass workflow resume {metadata['name']}{own}"


def _conditions(completed: bool) -> list[Json]:
    found = [{"type": "PodRunning", "status": "False" if completed else "True"}]
    return [*found, {"type": "Completed", "status": "True"}] if completed else found


class _WorkflowAdvance:
    """State of one advance. Used once."""

    def __init__(self, run: Run, status: Json) -> None:
        self.run, self.status = run, status
        self.locks: list[str] = []
        self.fulfilled = {
            node.id
            for node in run.nodes.by_id.values()
            if node.memoization_status and node.phase in words.FULFILLED
        }
        """Memoized nodes that had ended before."""

    def advance(self, reports: Iterable[LeafReport]) -> Advance:
        run = self.run
        for report in reports:
            self._apply(report)
        if run.ending:
            self._end_leaves()
        if run.spec.get("suspend") and not run.ending:
            run.due = None
            status = self._unfinished(words.RUNNING if run.nodes.by_id else words.PENDING)
            return self._result({**status, "message": suspended_message(run.workflow)})
        if not self._lock_workflow():
            return self._result(self._unfinished(words.PENDING))
        return self._result(self._execute())

    def _apply(self, report: LeafReport) -> None:
        node = self.run.nodes.by_id.get(report.node_id)
        if node is None or node.ended:
            return
        if report.daemoned != node.daemoned:
            self.run.nodes.set_daemoned(node, report.daemoned)
        node.pod_ip = report.ip or node.pod_ip
        if report.started is not None:
            node.started_at = rfc3339(report.started)
        if report.host:
            node.host_node_name = report.host
        if report.outputs is not None:
            node.outputs = {**(node.outputs or {}), **report.outputs}
        if report.finished is not None and report.phase in words.FULFILLED:
            node.finished_at = rfc3339(report.finished)
        self.run.mark(node, report.phase, report.message)
        if node.phase == words.SUCCEEDED and node.outputs:
            export_globals(self.run, node.outputs, node.outputs)

    def _end_leaves(self) -> None:
        """Stop the leaves of a workflow that was stopped or exceeded its deadline."""
        run = self.run
        for node in list(run.nodes.by_id.values()):
            if node.type not in (words.POD, words.SUSPEND) or node.fulfilled:
                continue
            if run.shutdown != words.TERMINATE and run.in_exit_handler(node):
                continue
            if node.type == words.POD:
                run.stop(node)
            run.mark(node, words.FAILED, run.end_message)

    def _lock_workflow(self) -> bool:
        """Take the locks of the whole workflow. Return False while it waits for one."""
        run = self.run
        synchronization = run.spec.get("synchronization")
        if not synchronization or run.ending:
            return True
        locks = locks_of(synchronization, run.workflow["metadata"].get("namespace", ""))
        taken = run.surroundings.locks.acquire(locks, gates.holder_of(run))
        if taken:
            self.status["message"] = f"Waiting for {taken} lock. {run.surroundings.locks.describe(taken)}"
            self.status["synchronization"] = {"waiting": [{"holder": gates.holder_of(run), "lock": taken}]}
            return False
        self.status.pop("message", None)
        self.locks = locks
        return True

    def _execute(self) -> Json:
        run = self.run
        if not run.spec.get("entrypoint"):
            return _ended(
                self.status, words.ERROR, "spec.entrypoint is missing: name the first template", run.now
            )
        holder = {"template": run.spec["entrypoint"]}
        root = execute(run, run.name, holder, LOCAL, run.spec.get("arguments") or {}, NodeOptions())
        if root is None:
            return self._unfinished(words.RUNNING)
        run.globals.values["workflow.status"] = root.phase if root.completed else words.RUNNING
        run.globals.values["workflow.failures"] = failures(run) if root.fulfilled else '"[]"'
        hooks = {"hooks": run.spec.get("hooks"), "onExit": run.spec.get("onExit")}
        try:
            complete = run_hooks(run, hooks, root, "workflow", LOCAL, run.globals, NodeOptions(), execute)
        except EvaluationError as problem:
            return _ended(self.status, words.ERROR, f"error in a hook: {problem}", run.now)
        if not root.fulfilled or not complete:
            return self._unfinished(words.RUNNING)
        return self._finished(root)

    def _finished(self, root: NodeStatus) -> Json:
        run = self.run
        phase = root.phase if root.completed else words.SUCCEEDED
        message = root.message if root.unsuccessful else ""
        if root.unsuccessful and run.shutdown:
            message = f"Stopped with strategy '{run.shutdown}'"
        exit_node = run.get(f"{run.name}.onExit")
        if phase == words.SUCCEEDED and exit_node is not None and exit_node.unsuccessful:
            phase, message = exit_node.phase, exit_node.message
        return _ended(self.status, phase, message, run.now)

    def _unfinished(self, phase: str) -> Json:
        status = {**self.status, "phase": phase, "conditions": _conditions(False)}
        if phase == words.RUNNING:
            status.pop("message", None)
        return status

    def _result(self, status: Json) -> Advance:
        run = self.run
        ended = status["phase"] in ENDED
        if ended:
            run.stop_daemons()
        for node in run.nodes.by_id.values() if ended else ():
            if not node.fulfilled and node.type == words.POD:
                run.stop(node)
        writes = self._cache_writes()
        gates.release(run)
        if ended:
            run.surroundings.locks.release(gates.holder_of(run))
        status["progress"] = self._progress()
        self._note_locks(status, ended)
        if run.outputs:
            status["outputs"] = run.outputs
        starts = () if ended else tuple(run.starts)
        return Advance(status, run.nodes.by_id, starts, tuple(run.stops), writes, None if ended else run.due)

    def _cache_writes(self) -> tuple[CacheWrite, ...]:
        """Return the outputs to memoize: those of nodes that succeeded in this advance."""
        found = []
        for node in self.run.nodes.by_id.values():
            memo = node.memoization_status
            if (
                memo
                and not memo.get("hit")
                and node.phase == words.SUCCEEDED
                and node.id not in self.fulfilled
            ):
                found.append(CacheWrite(memo["cacheName"], memo["key"], node.id, node.outputs or {}))
        return tuple(found)

    def _progress(self) -> str:
        pods = [node for node in self.run.nodes.by_id.values() if node.type == words.POD]
        return f"{sum(node.phase == words.SUCCEEDED for node in pods)}/{len(pods)}"

    def _note_locks(self, status: Json, ended: bool) -> None:
        """Record in the status which locks are held and waited for."""
        run = self.run
        holding = [] if ended else [{"holder": gates.holder_of(run), "lock": lock} for lock in self.locks]
        waiting: list[Json] = (
            [] if ended else list((status.get("synchronization") or {}).get("waiting") or ())
        )
        if self.locks:
            waiting = []
        waiting = [entry for entry in waiting if entry["holder"] == gates.holder_of(run)]
        for node in run.nodes.by_id.values() if not ended else ():
            found = node.synchronization_status
            if not found:
                continue
            holding += [
                {"holder": gates.holder_of(run, node), "lock": lock} for lock in found.get("holding") or ()
            ]
            if found.get("waiting"):
                waiting.append({"holder": gates.holder_of(run, node), "lock": found["waiting"]})
        record = {key: value for key, value in (("holding", holding), ("waiting", waiting)) if value}
        status.pop("synchronization", None)
        if record:
            status["synchronization"] = record
