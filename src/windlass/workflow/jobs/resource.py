"""``job`` templates in the form of ``resource`` templates: the object, and how its kind ends."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import yaml

from windlass.workflow.jobs.layout import apply_layout, job_of_template
from windlass.workflow.jobs.scheduling import apply_scheduling
from windlass.workflow.language.errors import EvaluationError

Json = dict[str, Any]

# ruff: noqa: E501
SUCCESS: dict[tuple[str, str], tuple[str, str]] = {
    ("batch.volcano.sh", "Job"): ("status.state.phase in (Completed)", "status.state.phase in (Failed,Aborted,Terminated)"),
    ("batch", "Job"): ("$condition=Complete", "$condition=Failed"),
    ("kubeflow.org", ""): ("$condition=Succeeded", "$condition=Failed"),
    ("trainer.kubeflow.org", "TrainJob"): ("$condition=Complete", "$condition=Failed"),
    ("jobset.x-k8s.io", "JobSet"): ("$condition=Completed", "$condition=Failed"),
    ("ray.io", "RayJob"): ("status.jobStatus = SUCCEEDED", "status.jobStatus in (FAILED,STOPPED) || status.jobDeploymentStatus = Failed"),
    ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"): ("$condition=Available", "$condition=Failed"),
    ("kurator.dev", "AIGCJob"): ("status.phase = Succeeded", "status.phase = Failed"),
    ("kurator.dev", "AIGCWorkflow"): ("status.phase = Succeeded", "status.phase in (Failed,Error)"),
    ("argoproj.io", "Workflow"): ("status.phase = Succeeded", "status.phase in (Failed,Error)"),
}  # fmt: skip
"""Group and kind → conditions of success and failure. An empty kind stands for all of the group."""


OUTPUTS: dict[tuple[str, str], dict[str, str]] = {
    ("kurator.dev", "AIGCJob"): {
        "score": "{.status.quality.mean}",
        "below": "{.status.quality.below}",
        "total": "{.status.items.total}",
        "done": "{.status.items.done}",
        "failed": "{.status.items.failed}",
        "deadLetter": "{.status.items.deadLetter}",
    },
}
"""Group and kind → output parameters that need no declaration, with their JSONPath in the object."""


def manifest_of(job: Mapping[str, Any]) -> Json:
    """Return the object that a ``job`` template creates. Raises :class:`EvaluationError`."""
    manifest = job.get("manifest") or {
        key: job[key] for key in ("apiVersion", "kind", "metadata", "spec") if key in job
    }
    if isinstance(manifest, str):
        try:
            manifest = yaml.safe_load(manifest)
        except yaml.YAMLError as problem:
            raise EvaluationError(f"job.manifest is not YAML: {problem}") from None
    if not manifest and isinstance(job.get("template"), Mapping):
        manifest = job_of_template(job["template"], job.get("parallel") or {})
    if not isinstance(manifest, dict) or not manifest.get("kind") or not manifest.get("apiVersion"):
        raise EvaluationError("job.manifest: a job with apiVersion and kind is needed")
    return json.loads(json.dumps(manifest))


def job_resource(job: Mapping[str, Any], scheduling: Mapping[str, Any] | None = None) -> Json:
    """Return a ``job`` template in the form of a ``resource`` template.

    ``scheduling``: that of the workflow. The job's own fields precede it.

    Raises :class:`EvaluationError`.
    """
    body = manifest_of(job)
    metadata = body.setdefault("metadata", {})
    if not metadata.get("name") and not metadata.get("generateName"):
        metadata["generateName"] = f"{body['kind'].lower()}-"
    key = _key(body)
    found = SUCCESS.get(key) or SUCCESS.get((key[0], ""))
    success, failure = job.get("successCondition"), job.get("failureCondition")
    if found is None and not success:
        raise EvaluationError(
            f"job: how a {body['kind']} of {body['apiVersion']} ends is not known: write successCondition and failureCondition"
        )
    if isinstance(job.get("parallel"), Mapping):
        apply_layout(body, job["parallel"])
    apply_scheduling(body, {**(scheduling or {}), **(job.get("scheduling") or {})})
    defaults = found or ("", "")
    return {
        "action": "create",
        "manifest": body,
        "successCondition": success or defaults[0],
        "failureCondition": failure or defaults[1],
    }


def _key(body: Mapping[str, Any]) -> tuple[str, str]:
    return str(body["apiVersion"]).rpartition("/")[0], str(body["kind"])


def known_outputs(body: Mapping[str, Any]) -> list[Json]:
    """Return the declarations of the outputs that each job of a kind has, as far as its status tells them."""
    return [
        {"name": name, "valueFrom": {"jsonPath": path}, "optional": True}
        for name, path in OUTPUTS.get(_key(body), {}).items()
    ]
