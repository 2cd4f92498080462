"""Reconciliation of a workflow.

The order is: pods and objects that begin, then the status that tells of them, then pods
that end. Names follow from the nodes, so that a controller that stops in between begins
the same again.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from windlass.api.resources import CONFIG_MAPS, PERSISTENT_VOLUME_CLAIMS, PODS, Resource
from windlass.controllers.effects import (
    NOTHING,
    Action,
    Create,
    Delete,
    EffectPlan,
    Effects,
    EmitEvent,
    Patch,
    Update,
    controller_reference,
    reference,
)
from windlass.controllers.workflow import labels
from windlass.controllers.workflow.objects import POLL_SECONDS, KindLookup, begin_object, report_of_object
from windlass.controllers.workflow.observe import WorkflowPod, report_of
from windlass.controllers.workflow.pods import build_pod, claim_name, uses_artifacts
from windlass.controllers.workflow.storage import store_nodes
from windlass.kits.timestamps import parse_rfc3339, rfc3339
from windlass.workflow import commands, words
from windlass.workflow.advance import ENDED, Advance, LeafReport, advance
from windlass.workflow.checks.validation import check_spec
from windlass.workflow.language.errors import EvaluationError
from windlass.workflow.node import NodeStatus, encode_nodes, pod_name
from windlass.workflow.run import CacheWrite, Start, Surroundings
from windlass.workflow.specification import executed_spec

Json = dict[str, Any]
LOCK_SECONDS = 1.0
"""Interval (seconds) between attempts to take a lock."""
ARTIFACT_CLAIM = "windlass-artifacts"
"""Claim of the namespace with the store of artifacts."""


@dataclass(frozen=True, slots=True)
class CapturedOutputs:
    """Outputs from a pod's log, and what is wrong with them."""

    outputs: Json
    problem: str = ""


@dataclass(frozen=True, slots=True)
class WorkflowSnapshot:
    """Observed surroundings of a workflow.

    ``pods``: node id → pod. ``captured``: node id → outputs of a pod that has ended.
    ``objects``: node id → object of a ``resource`` template; ``None``: it does not exist.
    ``templates``: scope → spec. ``refused``: node id → why its pod or object was refused.
    ``config_maps``: names that exist. ``chunks``: ConfigMaps with nodes of this workflow.
    """

    nodes: dict[str, NodeStatus]
    pods: Mapping[str, WorkflowPod]
    now: float
    captured: Mapping[str, CapturedOutputs] = field(default_factory=dict)
    objects: Mapping[str, Json | None] = field(default_factory=dict)
    templates: Mapping[str, Json] = field(default_factory=dict)
    surroundings: Surroundings = field(default_factory=Surroundings)
    lookup: KindLookup = lambda api_version, kind: None
    refused: Mapping[str, str] = field(default_factory=dict)
    config_maps: frozenset[str] = frozenset()
    chunks: tuple[str, ...] = ()
    claims: frozenset[str] = frozenset()


def reconcile_workflow(kind: Resource, workflow: Json, observed: WorkflowSnapshot) -> Effects:
    """Reconcile one workflow. Pure, apart from the locks that it takes."""
    if workflow["metadata"].get("deletionTimestamp"):
        return NOTHING
    return _WorkflowReconciliation(kind, workflow, observed).effects()


class _WorkflowReconciliation:
    """State of one reconciliation. Used once."""

    def __init__(self, kind: Resource, workflow: Json, observed: WorkflowSnapshot) -> None:
        self.kind, self.workflow, self.observed = kind, workflow, observed
        self.metadata: Json = workflow["metadata"]
        self.status: Json = workflow.get("status") or {}
        self.plan = EffectPlan(about=reference(kind, workflow))
        self.before = encode_nodes(observed.nodes)
        self.spec: Json = {}
        self.begun: list[Action] = []
        self.needs_store = False

    def effects(self) -> Effects:
        if labels.COMMAND in (self.metadata.get("annotations") or {}):
            return self._command()
        if self.status.get("phase") in ENDED:
            return self._clean()
        if not self.status.get("phase") and (problem := self._problem()):
            status = {"phase": words.ERROR, "message": problem, "finishedAt": rfc3339(self.observed.now)}
            self._write({**status, "startedAt": status["finishedAt"]}, {})
            return self.plan.done()
        try:
            self.spec = executed_spec(self.workflow, self.observed.templates)
        except EvaluationError:
            self.spec = self.workflow.get("spec") or {}
        result = self._advance()
        return self._carry_out(result)

    def _problem(self) -> str:
        """Return what is wrong with the spec: a server without admission stores any."""
        found = check_spec(self.workflow.get("spec") or {})
        return f"invalid spec: {found[0].path}: {found[0].message}" if found else ""

    def _advance(self) -> Advance:
        """Advance until everything that begins can be created."""
        observed = self.observed
        reports = self._reports()
        starts: list[Start] = []
        stops: list[NodeStatus] = []
        writes: list[CacheWrite] = []
        workflow = self.workflow
        while True:
            result = advance(
                workflow, observed.nodes, reports, observed.templates, observed.surroundings, observed.now
            )
            starts += result.starts
            stops += result.stops
            writes += result.cache_writes
            reports = self._begin(result.starts)
            if not reports:
                break
            workflow = {**self.workflow, "status": result.status}
        for write in writes:
            self.begun.append(self._cache_write(write))
        return Advance(result.status, result.nodes, tuple(starts), tuple(stops), (), result.due)

    def _reports(self) -> list[LeafReport]:
        found: list[LeafReport] = []
        observed = self.observed
        for node in observed.nodes.values():
            if node.type != words.POD or node.fulfilled or (node.synchronization_status or {}).get("waiting"):
                continue
            if node.managed_object is not None:
                if node.id in observed.objects:
                    report = report_of_object(node, observed.objects[node.id], observed.now)
                    found += [report] if report is not None else []
                continue
            pod = observed.pods.get(node.id)
            if pod is None:
                found.append(LeafReport(node.id, words.ERROR, "pod deleted", finished=observed.now))
                continue
            captured = observed.captured.get(node.id)
            report = report_of(pod, captured and captured.outputs, captured.problem if captured else "")
            if (report.phase, report.message, report.host) != (node.phase, node.message, node.host_node_name):
                found.append(report)
        return found

    def _begin(self, starts: tuple[Start, ...]) -> list[LeafReport]:
        """Build pods and objects. Return reports about those that cannot be."""
        problems = []
        for start in starts:
            node, now = start.node, self.observed.now
            if node.id in self.observed.refused:
                problems.append(
                    LeafReport(node.id, words.ERROR, self.observed.refused[node.id], finished=now)
                )
                continue
            try:
                if "resource" in start.template or "job" in start.template:
                    action = begin_object(self.kind, self.workflow, start, self.observed.lookup)
                    self.begun += [action] if action is not None else []
                else:
                    pod = build_pod(self.kind, self.workflow, self.spec, start, now)
                    self.needs_store |= uses_artifacts(start.template)
                    self.begun.append(Create(PODS, pod))
            except EvaluationError as problem:
                problems.append(LeafReport(node.id, words.ERROR, str(problem), finished=now))
        return problems

    # Writes.

    def _carry_out(self, result: Advance) -> Effects:
        plan, observed = self.plan, self.observed
        plan.stage(*self._claims())
        plan.stage(*self.begun)
        changed = result.status != self.status or encode_nodes(result.nodes) != self.before
        if changed:
            self._write(result.status, result.nodes)
        plan.stage(*(action for node in result.stops if (action := self._stop(node)) is not None))
        if result.due is not None:
            plan.requeue(result.due - observed.now)
        if any(node.managed_object and not node.fulfilled for node in result.nodes.values()):
            plan.requeue(POLL_SECONDS)
        if (result.status.get("synchronization") or {}).get("waiting"):
            plan.requeue(LOCK_SECONDS)
        return plan.done()

    def _claims(self) -> list[Action]:
        """Return the claims of ``volumeClaimTemplates``, and that of the store of artifacts."""
        found: list[Action] = []
        if self.status.get("phase") is None:
            for claim in self.spec.get("volumeClaimTemplates") or ():
                metadata = claim.get("metadata") or {}
                name = claim_name(self.metadata["name"], str(metadata.get("name")))
                body = {
                    **{key: value for key, value in claim.items() if key != "status"},
                    "metadata": {**metadata, **self._owned(name)},
                }
                found.append(Create(PERSISTENT_VOLUME_CLAIMS, body))
        if self.needs_store and ARTIFACT_CLAIM not in self.observed.claims:
            spec = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "10Gi"}}}
            metadata = {"name": ARTIFACT_CLAIM, "namespace": self.metadata.get("namespace")}
            found.append(Create(PERSISTENT_VOLUME_CLAIMS, {"metadata": metadata, "spec": spec}))
        return found

    def _owned(self, name: str) -> Json:
        return {
            "name": name,
            "namespace": self.metadata.get("namespace"),
            "ownerReferences": [controller_reference(self.kind, self.workflow)],
        }

    def _cache_write(self, write: CacheWrite) -> Action:
        entry = {
            "nodeID": write.node_id,
            "outputs": write.outputs,
            "creationTimestamp": rfc3339(self.observed.now),
            "lastHitTimestamp": rfc3339(self.observed.now),
        }
        data = {write.key: json.dumps(entry, separators=(",", ":"))}
        namespace = self.metadata.get("namespace")
        if write.cache in self.observed.config_maps:
            return Patch(CONFIG_MAPS, write.cache, {"data": data}, namespace)
        metadata = {
            "name": write.cache,
            "namespace": namespace,
            "labels": {"workflows.argoproj.io/configmap-type": "Cache"},
        }
        return Create(CONFIG_MAPS, {"metadata": metadata, "data": data})

    def _write(self, status: Json, nodes: dict[str, NodeStatus]) -> None:
        """Store the status, and what does not fit into it before."""
        status = dict(status)
        chunks = store_nodes(status, nodes)
        outdated = set(self.observed.chunks)
        if chunks:
            # By content: parts that an interrupted write left are never taken for those of another state.
            version = hashlib.sha256(b"".join(chunks)).hexdigest()[:10]
            status["offloadNodeStatusVersion"] = version
            names = [f"{self.metadata['name']}-nodes-{version}-{at}" for at in range(len(chunks))]
            self.plan.stage(
                *(
                    Create(
                        CONFIG_MAPS,
                        {
                            "metadata": self._owned(name)
                            | {"labels": {labels.WORKFLOW: self.metadata["name"][:63]}},
                            "binaryData": {"nodes": base64.b64encode(chunk).decode()},
                        },
                    )
                    for name, chunk in zip(names, chunks, strict=True)
                )
            )
            outdated -= set(names)
        phase = status["phase"]
        metadata = {**self.metadata, "labels": {**(self.metadata.get("labels") or {}), labels.PHASE: phase}}
        metadata["labels"][labels.COMPLETED] = "true" if phase in ENDED else "false"
        self.plan.stage(Update(self.kind, {**self.workflow, "metadata": metadata, "status": status}))
        namespace = self.metadata.get("namespace")
        self.plan.stage(*(Delete(CONFIG_MAPS, name, namespace) for name in sorted(outdated)))
        self._tell(phase, status.get("message", ""))

    def _tell(self, phase: str, message: str) -> None:
        if phase == self.status.get("phase"):
            return
        about = reference(self.kind, self.workflow)
        if phase == words.RUNNING:
            self.plan.event(EmitEvent(about, "Normal", "WorkflowRunning", "Workflow Running", lasting=True))
        elif phase == words.SUCCEEDED:
            text = "Workflow completed"
            self.plan.event(EmitEvent(about, "Normal", "WorkflowSucceeded", text, lasting=True))
        elif phase in ENDED:
            self.plan.event(EmitEvent(about, "Warning", "WorkflowFailed", message or phase, lasting=True))

    def _stop(self, node: NodeStatus) -> Action | None:
        namespace = self.metadata.get("namespace")
        if node.managed_object is None:
            pod = self.observed.pods.get(node.id)
            if pod is None:
                return None
            return Delete(PODS, pod_name(self.metadata["name"], node), namespace, pod.uid)
        found = node.managed_object
        kind = self.observed.lookup(found["apiVersion"], found["kind"])
        if kind is None or found.get("action") != "create":
            return None
        return Delete(kind, found["name"], found.get("namespace"))

    # After the end, and requests.

    def _clean(self) -> Effects:
        """Delete pods and the workflow itself by ``podGC`` and ``ttlStrategy``."""
        spec = self.workflow.get("spec") or {}
        if not self.observed.nodes and not self.observed.pods and not spec.get("ttlStrategy"):
            return NOTHING
        phase = self.status.get("phase")
        strategy = (spec.get("podGC") or {}).get("strategy") or ""
        if strategy in ("OnPodCompletion", "OnWorkflowCompletion") or (
            strategy == "OnWorkflowSuccess" and phase == words.SUCCEEDED
        ):
            self._delete_pods({node.id for node in self.observed.nodes.values()})
        elif strategy == "OnPodSuccess":
            self._delete_pods({n.id for n in self.observed.nodes.values() if n.phase == words.SUCCEEDED})
        self._expire(spec, str(phase))
        return self.plan.done()

    def _delete_pods(self, ids: set[str]) -> None:
        namespace = self.metadata.get("namespace")
        self.plan.stage(
            *(
                Delete(PODS, pod.key.partition("/")[2], namespace, pod.uid)
                for id_, pod in self.observed.pods.items()
                if id_ in ids and pod.ended and not pod.deleted
            )
        )

    def _expire(self, spec: Json, phase: str) -> None:
        ttl = spec.get("ttlStrategy") or {}
        seconds = ttl.get("secondsAfterSuccess" if phase == words.SUCCEEDED else "secondsAfterFailure")
        seconds = ttl.get("secondsAfterCompletion") if seconds is None else seconds
        ended = self.status.get("finishedAt")
        if seconds is None or not ended:
            return
        due = parse_rfc3339(ended) + float(seconds)
        if self.observed.now < due:
            self.plan.requeue(due - self.observed.now)
        else:
            namespace = self.metadata.get("namespace")
            self.plan.stage(
                Delete(self.kind, self.metadata["name"], namespace, self.metadata.get("uid"), "Background")
            )

    def _command(self) -> Effects:
        """Carry out the request of an annotation, which is removed with the same write."""
        annotations = dict(self.metadata.get("annotations") or {})
        text = annotations.pop(labels.COMMAND)
        self.workflow = {**self.workflow, "metadata": {**self.metadata, "annotations": annotations}}
        self.metadata = self.workflow["metadata"]
        status, nodes = dict(self.status), self.observed.nodes
        removed: list[NodeStatus] = []
        try:
            request = json.loads(text)
            action = request.get("action")
            if action == "resume":
                commands.resume(nodes, request, self.observed.now)
            elif action == "retry":
                nodes, removed = commands.retry(nodes, self.metadata["name"], request)
                for name in ("finishedAt", "message", "outputs"):
                    status.pop(name, None)
                status["phase"] = words.RUNNING
                spec = {**self.workflow["spec"], "shutdown": None, "suspend": None}
                for parameter, value in (request.get("parameters") or {}).items():
                    _set_parameter(spec, parameter, value)
                self.workflow["spec"] = {key: value for key, value in spec.items() if value is not None}
            else:
                raise commands.RequestProblem(f"action {action!r} is unknown: use resume or retry")
        except (ValueError, commands.RequestProblem) as problem:
            about = reference(self.kind, self.workflow)
            self.plan.event(EmitEvent(about, "Warning", "RequestRefused", str(problem)))
            removed = []
        # Pods of nodes that run again are gone before the status says so: their names are used again.
        self.plan.stage(*(action for node in removed if (action := self._remove(node)) is not None))
        self._write(status if status.get("phase") else {**status, "phase": words.PENDING}, nodes)
        self.plan.requeue(0.0)
        return self.plan.done()

    def _remove(self, node: NodeStatus) -> Action | None:
        pod = self.observed.pods.get(node.id)
        if pod is not None:
            namespace = self.metadata.get("namespace")
            return Delete(PODS, pod.key.partition("/")[2], namespace, pod.uid, grace_seconds=0)
        return self._stop(node) if node.managed_object is not None else None


def _set_parameter(spec: Json, name: str, value: str) -> None:
    arguments = dict(spec.get("arguments") or {})
    others = [entry for entry in arguments.get("parameters") or () if entry.get("name") != name]
    spec["arguments"] = {**arguments, "parameters": [*others, {"name": name, "value": value}]}
