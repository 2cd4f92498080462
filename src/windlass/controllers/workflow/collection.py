"""Removal of stored artifacts of a workflow: at its end, and before its deletion. Pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from windlass.api.resources import PODS, Resource
from windlass.controllers.effects import (
    Create,
    Delete,
    EffectPlan,
    EmitEvent,
    Patch,
    controller_reference,
    reference,
)
from windlass.controllers.workflow import labels
from windlass.controllers.workflow.kinds.http import python_image
from windlass.controllers.workflow.observe import WorkflowPod, failure, pending
from windlass.controllers.workflow.pods import ARTIFACT_CLAIM, ARTIFACTS
from windlass.controllers.workflow.snapshot import WorkflowSnapshot
from windlass.kits.timestamps import parse_rfc3339
from windlass.workflow import artifact_gc, words
from windlass.workflow.node import NodeStatus

Json = dict[str, Any]
LIMIT_SECONDS = 600.0
"""Time after which a workflow is deleted although its artifacts could not be removed (seconds)."""
SCRIPT = r"""
import os, sys
folder, since, limit, count, *digests = sys.argv[1:]
since, limit, count = float(since), int(limit), int(count)
def seen(digest):
    try:
        return os.stat(os.path.join(folder, digest))
    except FileNotFoundError:
        return None
def remove(digest, found):
    # An older file is that of another workflow, which stored the same before.
    if found is not None and found.st_mtime >= since - 1:
        os.remove(os.path.join(folder, digest))
        print("removed", digest, found.st_size)
for digest in digests[:count]:
    remove(digest, seen(digest))
left = sorted((one.st_mtime, digest, one) for digest in digests[count:] if (one := seen(digest)) is not None)
size = sum(one.st_size for _, _, one in left)
for _, digest, one in left:
    if size <= limit:
        break
    remove(digest, one)
    size -= one.st_size
"""


def _spec(workflow: Json) -> Json:
    """Return the spec, with that of its WorkflowTemplate."""
    spec = workflow.get("spec") or {}
    return (workflow.get("status") or {}).get("storedWorkflowTemplateSpec") or spec


def removal_id(workflow: Json, deletion: bool) -> str:
    """Return the name of the pod for this end of a workflow: one that runs again has another one later."""
    ended = int(parse_rfc3339(workflow["status"]["finishedAt"]))
    return f"{workflow['metadata']['name']}-artifact-gc-{ended}{'-deletion' if deletion else ''}"


def removal_pod(
    kind: Resource, workflow: Json, nodes: Collection[NodeStatus], *, deletion: bool, by_ttl: bool = False
) -> Json | None:
    """Return the pod; ``None`` if nothing is to be removed.

    It removes files that this workflow wrote, and none that is older.
    """
    metadata, status, spec = workflow["metadata"], workflow["status"], _spec(workflow)
    if deletion:
        removal = artifact_gc.at_deletion(spec, nodes, by_ttl=by_ttl)
    else:
        removal = artifact_gc.at_end(spec, nodes, status.get("outputs") or {}, str(status.get("phase")))
    if not removal:
        return None
    name = removal_id(workflow, deletion)
    since = parse_rfc3339(status.get("startedAt") or status["finishedAt"])
    arguments = [ARTIFACTS, str(since), str(removal.limit), str(len(removal.digests))]
    return {
        "metadata": {
            "name": name,
            "namespace": metadata.get("namespace"),
            "labels": {labels.WORKFLOW: metadata["name"][:63]},
            "annotations": {labels.NODE_ID: name},
            "ownerReferences": [controller_reference(kind, workflow)],
        },
        "spec": {
            "restartPolicy": "Never",
            "activeDeadlineSeconds": int(LIMIT_SECONDS),
            "containers": [
                {
                    "name": labels.MAIN,
                    "image": python_image(),
                    "command": ["python3", "-c", SCRIPT, *arguments, *removal.digests, *removal.others],
                    "volumeMounts": [{"name": "artifacts", "mountPath": ARTIFACTS}],
                }
            ],
            "volumes": [{"name": "artifacts", "persistentVolumeClaim": {"claimName": ARTIFACT_CLAIM}}],
        },
    }


@dataclass(frozen=True, slots=True)
class ArtifactCollection:
    """Removal of the artifacts of one workflow, and the finalizer that its deletion waits for."""

    kind: Resource
    workflow: Json
    observed: WorkflowSnapshot
    plan: EffectPlan

    @property
    def held(self) -> bool:
        return labels.ARTIFACT_GC in (self.workflow["metadata"].get("finalizers") or ())

    def hold(self) -> bool:
        """Set the finalizer; return whether it was absent."""
        if self.held:
            return False
        present = self.workflow["metadata"].get("finalizers") or ()
        self._patch({"metadata": {"finalizers": [*present, labels.ARTIFACT_GC]}})
        self.plan.requeue(0.0)
        return True

    def at_end(self) -> None:
        """Remove what goes at the end, then the finalizer if nothing is left for the deletion."""
        pod = self._pod(deletion=False)
        done = pod is None or self._run(pod) == words.SUCCEEDED
        if self.held and done and self._pod(deletion=True) is None:
            self._release()

    def at_deletion(self) -> None:
        """Remove what is left, then the finalizer. A removal that failed is told, and keeps it."""
        if not self.workflow.get("status", {}).get("finishedAt"):
            self._release()  # no pod of it was begun
            return
        wanted = [pod for deletion in (False, True) if (pod := self._pod(deletion=deletion)) is not None]
        names = [pod["metadata"]["name"] for pod in wanted]
        problems = [text for name in names if (text := self._problem(name))]
        # A store goes with its namespace, and no pod can be created in one that ends.
        closing = any("being terminated" in self._refusal(name) for name in names)
        if closing:
            self._release()
            return
        if problems and self._forced():
            text = "; ".join(problems)
            self._event(f"Artifacts stay in the store, as forceFinalizerRemoval is true: {text}")
            self._release()
            return
        if problems:
            self._tell("; ".join(problems))
        if all([self._run(pod) == words.SUCCEEDED for pod in wanted]):  # each is begun
            self._release()

    def _forced(self) -> bool:
        specs = (self.workflow.get("spec") or {}, _spec(self.workflow))
        return any((spec.get("artifactGC") or {}).get("forceFinalizerRemoval") is True for spec in specs)

    def expire(self, spec: Json, phase: str) -> None:
        """Delete the workflow by ``ttlStrategy``, after its artifacts."""
        ttl = spec.get("ttlStrategy") or {}
        seconds = ttl.get("secondsAfterSuccess" if phase == words.SUCCEEDED else "secondsAfterFailure")
        seconds = ttl.get("secondsAfterCompletion") if seconds is None else seconds
        metadata, ended = self.workflow["metadata"], self.workflow["status"].get("finishedAt")
        if seconds is None or not ended:
            return
        due = parse_rfc3339(ended) + float(seconds)
        limit = due + LIMIT_SECONDS
        if self.observed.now < due:
            self.plan.requeue(due - self.observed.now)
            return
        pod = self._pod(deletion=True, by_ttl=True)
        waits = pod is not None and not self._run(pod)
        if waits and self.observed.now < limit:
            self.plan.requeue(limit - self.observed.now)
            return
        namespace, name = metadata.get("namespace"), metadata["name"]
        self.plan.stage(Delete(self.kind, name, namespace, metadata.get("uid"), "Background"))

    def _pod(self, *, deletion: bool, by_ttl: bool = False) -> Json | None:
        nodes = self.observed.nodes.values()
        return removal_pod(self.kind, self.workflow, nodes, deletion=deletion, by_ttl=by_ttl)

    def _run(self, body: Json) -> str:
        """Create a pod that is missing; return the phase of one that has ended, else an empty text."""
        pod = self._found(body["metadata"]["name"])
        if pod is None:
            if self.observed.scheduler:
                body["spec"]["schedulerName"] = self.observed.scheduler
            self.plan.stage(Create(PODS, body))
        return pod.status.phase if pod is not None and pod.ended else ""

    def _found(self, name: str) -> WorkflowPod | None:
        return self.observed.pods.get(name)

    def _refusal(self, name: str) -> str:
        return self.observed.refused.get(name, "") if self._found(name) is None else ""

    def _problem(self, name: str) -> str:
        """Return why a removal has failed, or has not begun in time; empty if neither."""
        pod = self._found(name)
        if pod is None:
            refusal = self._refusal(name)
            return f"pod {name} was refused: {refusal}" if refusal else ""
        if pod.ended:
            return (
                "" if pod.status.phase == words.SUCCEEDED else f"pod {name} failed: {failure(pod.status)[1]}"
            )
        left = parse_rfc3339(self.workflow["metadata"]["deletionTimestamp"]) + LIMIT_SECONDS
        if self.observed.now < left:
            self.plan.requeue(left - self.observed.now)
            return ""
        why = pending(pod.status) or f"its phase is {pod.status.phase}"
        return f"pod {name} has not ended {LIMIT_SECONDS:.0f} s after the deletion: {why}"

    def _tell(self, problems: str) -> None:
        """Keep in the status, and in an event, why the workflow is not gone."""
        metadata, status = self.workflow["metadata"], self.workflow["status"]
        plural, name = self.kind.plural, metadata["name"]
        in_namespace = f"-n {metadata.get('namespace')}"
        text = (
            f"Artifacts of the deleted workflow are not removed: {problems}. "
            f"Delete the pod and the removal is tried again. To leave the files in the store: "
            f"kubectl patch {plural}.{self.kind.group} {name} {in_namespace} --type merge "
            """-p '{"spec":{"artifactGC":{"forceFinalizerRemoval":true}}}'"""
        )
        condition = {"type": artifact_gc.CONDITION, "status": "True", "message": text}
        conditions = status.get("conditions") or []
        if condition in conditions:
            return
        others = [one for one in conditions if one.get("type") != artifact_gc.CONDITION]
        self._patch({"status": {"conditions": [*others, condition]}})
        self._event(text)

    def _event(self, text: str) -> None:
        about = reference(self.kind, self.workflow)
        self.plan.event(EmitEvent(about, "Warning", "ArtifactGCFailed", text, lasting=True))

    def _release(self) -> None:
        present = self.workflow["metadata"].get("finalizers") or ()
        self._patch({"metadata": {"finalizers": [one for one in present if one != labels.ARTIFACT_GC]}})

    def _patch(self, patch: Json) -> None:
        metadata = self.workflow["metadata"]
        name, namespace = metadata["name"], metadata.get("namespace")
        version = metadata.get("resourceVersion")  # lists are replaced: a write in the meantime is a conflict
        self.plan.stage(Patch(self.kind, name, patch, namespace, resource_version=version))
