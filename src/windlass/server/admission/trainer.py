"""TrainJobs: checks against the runtime that they name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windlass.api import errors
from windlass.api.errors import FieldError
from windlass.api.fields import trainer
from windlass.api.resources import CLUSTER_TRAINING_RUNTIMES, TRAIN_JOBS, TRAINING_RUNTIMES
from windlass.jobs.trainer.objects import build_objects
from windlass.jobs.trainer.policies import unenforced
from windlass.jobs.trainer.runtime import RuntimeProblem
from windlass.server.admission.plugin import Review

Json = Mapping[str, Any]


def check(review: Review) -> None:
    """Reject a TrainJob that does not fit its runtime, and warn about what has no effect."""
    if not review.main:
        return
    if review.resource in (TRAINING_RUNTIMES, CLUSTER_TRAINING_RUNTIMES):
        _advise_runtime(review)
        return
    if review.resource is not TRAIN_JOBS or not review.changes_spec:
        return
    runtime = _runtime(review)
    problems = [*_initializer(review, runtime), *_reserved(review, runtime), *_patches(review, runtime)]
    if problems:
        raise errors.invalid(review.resource, review.name, problems)
    try:
        build_objects(review.object, runtime, {})
    except RuntimeProblem as problem:
        where = FieldError.invalid("spec.runtimeRef", _name(review), f"{problem}")
        raise errors.invalid(review.resource, review.name, [where]) from None
    if review.object["spec"].get("podTemplateOverrides"):
        review.warn(
            "advice: podTemplateOverrides is the form of Trainer 2.1: it is applied before runtimePatches; "
            "move it there, since newer releases do not know it"
        )


def _name(review: Review) -> str:
    return str((review.object["spec"].get("runtimeRef") or {}).get("name"))


def _runtime(review: Review) -> Json:
    reference = review.object["spec"].get("runtimeRef") or {}
    kind = trainer.runtime_kind(reference)
    if kind is None:
        text = f"{reference.get('apiGroup')}/{reference.get('kind')}"
        why = (
            "unsupported runtime: use kind ClusterTrainingRuntime or TrainingRuntime of trainer.kubeflow.org"
        )
        raise errors.invalid(review.resource, review.name, [FieldError.invalid("spec.runtimeRef", text, why)])
    found = review.objects.get(kind, review.namespace if kind.namespaced else "", _name(review))
    if found is None:
        why = f"{kind.kind} {_name(review)} must be created before the TrainJob is created"
        places = review.objects.list(kind, review.namespace if kind.namespaced else "")
        known = sorted(other["metadata"]["name"] for other in places)
        if known:
            why += f": present are {', '.join(known)}"
        error = FieldError.invalid("spec.runtimeRef", _name(review), why)
        raise errors.invalid(review.resource, review.name, [error])
    return {"apiVersion": kind.api_version, "kind": kind.kind, **found}


def _jobs(runtime: Json) -> list[Json]:
    template = (runtime.get("spec") or {}).get("template") or {}
    return list((template.get("spec") or {}).get("replicatedJobs") or ())


def _pod(job: Json) -> Json:
    spec = (job.get("template") or {}).get("spec") or {}
    return (spec.get("template") or {}).get("spec") or {}


def _initializer(review: Review, runtime: Json) -> list[FieldError]:
    """Return an error for each initializer that the runtime does not have."""
    given = review.object["spec"].get("initializer") or {}
    found = []
    for field, step in (("dataset", trainer.DATASET_STEP), ("model", trainer.MODEL_STEP)):
        if given.get(field) is None:
            continue
        if not any(trainer.step_of(job) == step for job in _jobs(runtime)):
            why = f"must have {step} job when trainJob is configured with input {field}Config"
            found.append(FieldError.invalid("spec.runtimeRef", _name(review), why))
    return found


def _reserved(review: Review, runtime: Json) -> list[FieldError]:
    """Return an error for each variable that the runtime sets itself."""
    policy = (runtime.get("spec") or {}).get("mlPolicy") or {}
    reserved = {name for key, names in trainer.RESERVED.items() if key in policy for name in names}
    env = (review.object["spec"].get("trainer") or {}).get("env") or ()
    return [
        FieldError.forbidden(
            f"spec.trainer.env[{index}]", f"{entry['name']} is set by the runtime: remove it"
        )
        for index, entry in enumerate(env)
        if entry.get("name") in reserved
    ]


def _patches(review: Review, runtime: Json) -> list[FieldError]:
    jobs = {str(job.get("name")): job for job in _jobs(runtime)}
    found = []
    for index, patch in enumerate(review.object["spec"].get("runtimePatches") or ()):
        where = f"spec.runtimePatches[{index}].trainingRuntimeSpec.template.spec.replicatedJobs"
        for at, changed in enumerate(trainer.patched_jobs(patch)):
            name = str(changed.get("name"))
            if name not in jobs:
                why = "must not have replicated job that doesn't exist in the runtime job template"
                known = ", ".join(jobs)
                found.append(FieldError.invalid(f"{where}[{at}].name", name, f"{why}: {known}"))
                continue
            found += _containers(_pod(changed), _pod(jobs[name]), f"{where}[{at}]", name)
    return found


def _containers(changed: Json, present: Json, where: str, job: str) -> list[FieldError]:
    found = []
    for field in ("containers", "initContainers"):
        known = {
            entry.get("name")
            for kind in ("containers", "initContainers")
            for entry in present.get(kind) or ()
        }
        for index, container in enumerate(changed.get(field) or ()):
            path = f"{where}.template.spec.template.spec.{field}[{index}]"
            if container.get("name") not in known:
                why = f"must not have a container that doesn't exist in the runtime job {job}"
                found.append(FieldError.invalid(f"{path}.name", container.get("name"), why))
            elif container.get("env") and container["name"] in trainer.CONTAINERS.values():
                why = "set spec.trainer.env, or the env of the initializer, for this container"
                found.append(FieldError.forbidden(f"{path}.env", why))
    return found


def _advise_runtime(review: Review) -> None:
    policy = (review.object.get("spec") or {}).get("mlPolicy") or {}
    name = unenforced(policy)
    if name:
        review.warn(
            f"advice: mlPolicy.{name} has no effect: its jobs run as those of a plain runtime, and nothing is "
            "installed or injected for it"
        )
    if (policy.get("torch") or {}).get("elasticPolicy") is not None:
        review.warn(
            "advice: mlPolicy.torch.elasticPolicy was removed from Kubeflow Trainer 2.2: it is honoured here, "
            "other controllers run the job with a fixed number of nodes"
        )
