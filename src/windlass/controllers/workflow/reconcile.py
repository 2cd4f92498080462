"""Reconciliation of a workflow.

The order is: pods and objects that begin, then the status that tells of them, then pods
that end. Names follow from the nodes, so that a controller that stops in between begins
the same again.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator, Mapping, Set
from dataclasses import replace
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
from windlass.controllers.workflow import first_wave, labels
from windlass.controllers.workflow.collection import ArtifactCollection, removal_id
from windlass.controllers.workflow.objects import POLL_SECONDS, begin_object, report_of_object
from windlass.controllers.workflow.observe import WorkflowPod, awaits_report, report_of
from windlass.controllers.workflow.pods import ARTIFACT_CLAIM, build_pod, claim_name, uses_artifacts
from windlass.controllers.workflow.snapshot import WorkflowSnapshot
from windlass.controllers.workflow.storage import store_nodes
from windlass.kits.timestamps import parse_rfc3339, rfc3339
from windlass.workflow import artifact_gc, commands, words
from windlass.workflow.advance import ENDED, Advance, LeafReport, advance
from windlass.workflow.checks.validation import check_spec
from windlass.workflow.language.errors import EvaluationError
from windlass.workflow.node import NodeStatus, encode_nodes, pod_name
from windlass.workflow.pod_gc import PodGC
from windlass.workflow.reuse import exported, reuse
from windlass.workflow.run import CacheWrite, Start
from windlass.workflow.specification import executed_spec
from windlass.workflow.variables import spec_with_volumes

Json = dict[str, Any]
LOCK_SECONDS = 1.0
QUOTA_SECONDS = 2.0
"""Interval (seconds) between attempts to take a lock."""
LOG_SECONDS, MAX_LOG_SECONDS = 2.0, 60.0
"""Interval (seconds) between attempts to read the log of an ended pod, and the time after which it is given up."""


def reconcile_workflow(kind: Resource, workflow: Json, observed: WorkflowSnapshot) -> Effects:
    """Reconcile one workflow. Pure, apart from the locks that it takes."""
    metadata, status = workflow["metadata"], workflow.get("status") or {}
    if metadata.get("deletionTimestamp"):
        if labels.ARTIFACT_GC not in (metadata.get("finalizers") or ()):
            return NOTHING
        if status.get("phase") and status["phase"] not in ENDED:
            spec = {**(workflow.get("spec") or {}), "shutdown": words.TERMINATE}
            workflow = {**workflow, "spec": spec}
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
        deleted = bool(self.metadata.get("deletionTimestamp"))
        if deleted and self.status.get("phase") in (None, *ENDED):
            return self._finish_deletion()
        if labels.COMMAND in (self.metadata.get("annotations") or {}) and not deleted:
            return self._command()
        if self.status.get("phase") in ENDED:
            return self._clean()
        if not self.status.get("phase") and (problem := self._problem()):
            status = {"phase": words.ERROR, "message": problem, "finishedAt": rfc3339(self.observed.now)}
            self._write({**status, "startedAt": status["finishedAt"]}, b"{}")
            return self.plan.done()
        try:
            spec = executed_spec(self.workflow, self.observed.templates)
            config = self.observed.surroundings.config
            self.spec = spec_with_volumes(self.workflow, spec, config, self.observed.now)
        except EvaluationError:
            self.spec = self.workflow.get("spec") or {}
        specs = (self.spec, *self.observed.templates.values())
        if not deleted and any(map(artifact_gc.holds_deletion, specs)) and self._collection().hold():
            return self.plan.done()  # the next look at it begins pods: none stores a file before
        if self._tells_wait():
            return self.plan.done()  # the next look tries again
        result = self._advance()
        return self._carry_out(result)

    @property
    def _is_first_wave(self) -> bool:
        """Return whether the nodes that begin now are a first wave that is one gang."""
        return not self.status.get("phase") and first_wave.admitted_together(self.spec)

    def _tells_wait(self) -> bool:
        """Write for what the first wave waits, if the status does not tell it. A phase comes with its pods."""
        if not self._is_first_wave or not self.observed.over_quota:
            return False
        status = {"message": first_wave.told(self.observed.over_quota)}
        if self.status == status:
            return False
        self.plan.stage(Update(self.kind, {**self.workflow, "status": status}))
        return True

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
        self.begun += self._cache_writes(writes)
        return Advance(result.status, result.nodes, tuple(starts), tuple(stops), (), result.due)

    def _reports(self) -> list[LeafReport]:
        found: list[LeafReport] = []
        observed = self.observed
        for node in observed.nodes.values():
            if not awaits_report(node):
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
            if captured is not None and captured.unreadable and not self._log_is_late(pod):
                self.plan.requeue(LOG_SECONDS)
                continue
            report = report_of(
                pod, captured.outputs if captured else None, captured.problem if captured else ""
            )
            if captured and captured.failure and report.phase == words.SUCCEEDED:
                report = replace(report, phase=words.FAILED, message=captured.failure)
            known = (node.phase, node.message, node.host_node_name, node.daemoned)
            if (report.phase, report.message, report.host, report.daemoned) != known:
                found.append(report)
        return found

    def _log_is_late(self, pod: WorkflowPod) -> bool:
        """Return whether the log of an ended pod is not waited for any longer."""
        ended = pod.main.finished_at if pod.main else None
        return ended is None or self.observed.now > parse_rfc3339(ended) + MAX_LOG_SECONDS

    def _begin(self, starts: tuple[Start, ...]) -> list[LeafReport]:
        """Build pods and objects. Return reports about those that cannot be."""
        problems = []
        first = not self.begun and self._is_first_wave
        pods: list[Json] = []
        for start in starts:
            node, now = start.node, self.observed.now
            if node.id in self.observed.refused:
                problems.append(
                    LeafReport(node.id, words.ERROR, self.observed.refused[node.id], finished=now)
                )
                continue
            try:
                if "resource" in start.template or "job" in start.template:
                    action = begin_object(self.kind, self.workflow, self.spec, start, self.observed.lookup)
                    self.begun += [action] if action is not None else []
                else:
                    config = self.observed.surroundings.config
                    pod = build_pod(self.kind, self.workflow, self.spec, start, now, config)
                    if self.observed.scheduler:
                        pod["spec"].setdefault("schedulerName", self.observed.scheduler)
                    self.needs_store |= uses_artifacts(self.spec, start.template)
                    first_wave.set_queue(pod, self.spec)
                    pods.append(pod)
                    if node.id not in self.observed.created:
                        self.begun.append(Create(PODS, pod))
            except EvaluationError as problem:
                problems.append(LeafReport(node.id, words.ERROR, str(problem), finished=now))
        if first:
            self.plan.stage(*first_wave.gather(self.kind, self.workflow, self.spec, pods))
        return problems

    # Writes.

    def _carry_out(self, result: Advance) -> Effects:
        plan, observed = self.plan, self.observed
        over_quota = observed.over_quota and not self._is_first_wave
        if over_quota and result.status.get("phase") not in ENDED:
            result = replace(result, status={**result.status, "message": _told(observed.over_quota)})
            plan.requeue(QUOTA_SECONDS)
        plan.stage(*self._claims())
        plan.stage(*self.begun)
        daemons = [node for node in result.stops if (node.managed_object or {}).get("daemon")]
        # A daemon's job is not looked at once it is ready, and no later look would find what is left of it.
        plan.stage(*(action for node in daemons if (action := self._stop(node)) is not None))
        encoded = encode_nodes(result.nodes)
        if result.status != self.status or encoded != self.before:
            self._write(result.status, encoded)
        others = [node for node in result.stops if node not in daemons]
        plan.stage(*(action for node in others if (action := self._stop(node)) is not None))
        self._stop_left_pods(
            {id_ for id_, node in result.nodes.items() if node.ended} - {n.id for n in others}
        )
        self._collect(self.spec, result.nodes)
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

    def _cache_writes(self, writes: list[CacheWrite]) -> Iterator[Action]:
        """Yield one action for each ConfigMap: a second one that creates it would fail."""
        created = rfc3339(self.observed.now)
        data: dict[str, Json] = {}
        for write in writes:
            entry = {"nodeID": write.node_id, "outputs": write.outputs}
            entry |= {"creationTimestamp": created, "lastHitTimestamp": created}
            data.setdefault(write.cache, {})[write.key] = json.dumps(entry, separators=(",", ":"))
        namespace = self.metadata.get("namespace")
        labels = {"workflows.argoproj.io/configmap-type": "Cache"}
        for cache, values in data.items():
            if cache in self.observed.config_maps:
                yield Patch(CONFIG_MAPS, cache, {"data": values}, namespace)
            else:
                metadata = {"name": cache, "namespace": namespace, "labels": labels}
                yield Create(CONFIG_MAPS, {"metadata": metadata, "data": values})

    def _write(self, status: Json, encoded: bytes) -> None:
        """Store the status with its nodes, and what does not fit into it before."""
        status = dict(status)
        chunks = store_nodes(self.workflow, status, encoded)
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
        collection = self._collection()
        unused = not self.observed.nodes and not self.observed.pods and not spec.get("ttlStrategy")
        if unused and not collection.held:
            return NOTHING
        self._stop_left_pods(self.observed.pods.keys() - self._collectors())
        collection.at_end()
        phase = self.status.get("phase")
        rule = PodGC(spec)
        if rule.strategy == "OnWorkflowCompletion" or (
            rule.strategy == "OnWorkflowSuccess" and phase == words.SUCCEEDED
        ):
            self._delete_pods({node.id for node in self.observed.nodes.values()}, rule)
        else:
            self._collect(spec, self.observed.nodes)
        collection.expire(spec, str(phase))
        return self.plan.done()

    def _collection(self) -> ArtifactCollection:
        return ArtifactCollection(self.kind, self.workflow, self.observed, self.plan)

    def _collectors(self) -> set[str]:
        return {removal_id(self.workflow, deletion) for deletion in (False, True)}

    def _finish_deletion(self) -> Effects:
        """Remove the artifacts of a deleted workflow once no pod of it runs, then let it go."""
        others = self.observed.pods.keys() - (self._collectors() if self.status.get("finishedAt") else set())
        self._stop_left_pods(others)
        if any(not self.observed.pods[id_].ended for id_ in others):
            return self.plan.done()
        self._collection().at_deletion()
        return self.plan.done()

    def _collect(self, spec: Json, nodes: Mapping[str, NodeStatus]) -> None:
        """Delete ended pods while the workflow runs, by ``podGC``. The status has their outcome."""
        rule = PodGC(spec)
        if rule.strategy == "OnPodCompletion":
            self._delete_pods({node.id for node in nodes.values() if node.ended}, rule)
        elif rule.strategy == "OnPodSuccess":
            self._delete_pods({node.id for node in nodes.values() if node.phase == words.SUCCEEDED}, rule)

    def _stop_left_pods(self, ids: Set[str]) -> None:
        """Delete pods that run although their nodes have ended: a write of an earlier step was interrupted."""
        namespace = self.metadata.get("namespace")
        self.plan.stage(
            *(
                Delete(PODS, pod.key.partition("/")[2], namespace, pod.uid)
                for id_, pod in self.observed.pods.items()
                if id_ in ids and not pod.ended and not pod.deleted
            )
        )

    def _delete_pods(self, ids: set[str], rule: PodGC) -> None:
        """Delete ended pods of these nodes that the rule selects, once their delay is over."""
        namespace, now = self.metadata.get("namespace"), self.observed.now
        actions: list[Action] = []
        for id_, pod in self.observed.pods.items():
            if id_ not in ids or not pod.ended or pod.deleted:
                continue
            if not rule.selects({**pod.labels, labels.WORKFLOW: self.metadata["name"][:63]}):
                continue
            if pod.ended_at + rule.delay > now:
                self.plan.requeue(pod.ended_at + rule.delay - now)
            else:
                actions.append(Delete(PODS, pod.key.partition("/")[2], namespace, pod.uid))
        self.plan.stage(*actions)

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
                if found := exported(nodes):
                    status["outputs"] = found
                status["phase"] = words.RUNNING
                spec = {**self.workflow["spec"], "shutdown": None, "suspend": None}
                for parameter, value in (request.get("parameters") or {}).items():
                    _set_parameter(spec, parameter, value)
                self.workflow["spec"] = {key: value for key, value in spec.items() if value is not None}
            elif action == "reuse":
                nodes = reuse(self.observed.reused, str(request.get("of")), self.metadata["name"])
                status |= {"phase": words.RUNNING, "startedAt": rfc3339(self.observed.now)}
                if found := exported(nodes):
                    status["outputs"] = found
            else:
                raise commands.RequestProblem(f"action {action!r} is unknown: use resume, retry or reuse")
        except (ValueError, commands.RequestProblem) as problem:
            about = reference(self.kind, self.workflow)
            self.plan.event(EmitEvent(about, "Warning", "RequestRefused", str(problem)))
            removed = []
        # Pods of nodes that run again are gone before the status says so: their names are used again.
        self.plan.stage(*(action for node in removed if (action := self._remove(node)) is not None))
        self._write(
            status if status.get("phase") else {**status, "phase": words.PENDING}, encode_nodes(nodes)
        )
        self.plan.requeue(0.0)
        return self.plan.done()

    def _remove(self, node: NodeStatus) -> Action | None:
        pod = self.observed.pods.get(node.id)
        if pod is not None:
            namespace = self.metadata.get("namespace")
            return Delete(PODS, pod.key.partition("/")[2], namespace, pod.uid, grace_seconds=0)
        return self._stop(node) if node.managed_object is not None else None


def _told(over_quota: Mapping[str, str]) -> str:
    """Return the message of a workflow with nodes over a quota."""
    count, reason = len(over_quota), next(iter(over_quota.values()))
    return f"{count} {'node waits' if count == 1 else 'nodes wait'} for a quota: {reason}"


def _set_parameter(spec: Json, name: str, value: str) -> None:
    arguments = dict(spec.get("arguments") or {})
    others = [entry for entry in arguments.get("parameters") or () if entry.get("name") != name]
    spec["arguments"] = {**arguments, "parameters": [*others, {"name": name, "value": value}]}
