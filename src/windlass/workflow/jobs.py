"""``job`` templates: a job of any kind as one node, with its parallel layout checked."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import yaml

from windlass.workflow.language.errors import EvaluationError

Json = dict[str, Any]

# ruff: noqa: E501
SUCCESS: dict[tuple[str, str], tuple[str, str]] = {
    ("batch.volcano.sh", "Job"): ("status.state.phase in (Completed)", "status.state.phase in (Failed,Aborted,Terminated)"),
    ("batch", "Job"): ("$condition=Complete", "$condition=Failed"),
    ("kubeflow.org", ""): ("$condition=Succeeded", "$condition=Failed"),
    ("trainer.kubeflow.org", "TrainJob"): ("$condition=Complete", "$condition=Failed"),
    ("jobset.x-k8s.io", "JobSet"): ("$condition=Completed", "$condition=Failed"),
    ("ray.io", "RayJob"): ("status.jobStatus = SUCCEEDED", "status.jobStatus in (FAILED,STOPPED)"),
    ("kurator.dev", "AIGCJob"): ("status.phase = Succeeded", "status.phase = Failed"),
    ("kurator.dev", "AIGCWorkflow"): ("status.phase = Succeeded", "status.phase in (Failed,Error)"),
    ("argoproj.io", "Workflow"): ("status.phase = Succeeded", "status.phase in (Failed,Error)"),
}  # fmt: skip
"""Group and kind → conditions of success and failure. An empty kind stands for all of the group."""


def job_resource(job: Mapping[str, Any]) -> Json:
    """Return a ``job`` template in the form of a ``resource`` template. Raises :class:`EvaluationError`."""
    manifest = job.get("manifest") or {
        key: job[key] for key in ("apiVersion", "kind", "metadata", "spec") if key in job
    }
    if isinstance(manifest, str):
        try:
            manifest = yaml.safe_load(manifest)
        except yaml.YAMLError as problem:
            raise EvaluationError(f"job.manifest is not YAML: {problem}") from None
    if not isinstance(manifest, dict) or not manifest.get("kind") or not manifest.get("apiVersion"):
        raise EvaluationError("job.manifest: a job with apiVersion and kind is needed")
    body = json.loads(json.dumps(manifest))
    metadata = body.setdefault("metadata", {})
    if not metadata.get("name") and not metadata.get("generateName"):
        metadata["generateName"] = f"{body['kind'].lower()}-"
    group = str(body["apiVersion"]).rpartition("/")[0]
    found = SUCCESS.get((group, body["kind"])) or SUCCESS.get((group, ""))
    success, failure = job.get("successCondition"), job.get("failureCondition")
    if found is None and not success:
        raise EvaluationError(
            f"job: how a {body['kind']} of {body['apiVersion']} ends is not known: write successCondition and failureCondition"
        )
    defaults = found or ("", "")
    return {
        "action": "create",
        "manifest": body,
        "successCondition": success or defaults[0],
        "failureCondition": failure or defaults[1],
    }
