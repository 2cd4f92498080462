"""TrainJobs and training runtimes by themselves: the rules of Trainer's CRDs and webhooks."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from windlass.api.fields import trainer
from windlass.api.validation import names
from windlass.api.validation.collector import Collector, part
from windlass.api.validation.jobs import jobset
from windlass.api.wire import patch_types

Obj = Mapping[str, Any]
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://.+")
_IMMUTABLE = ("runtimeRef", "initializer", "trainer", "activeDeadlineSeconds", "managedBy")
_COUNTS = ("auto", "cpu", "gpu")
_NAME_LIMIT = 63


def train_job(obj: Obj, old: Obj | None, out: Collector) -> None:
    """Check a TrainJob."""
    spec, name = part(obj, "spec"), str(part(obj, "metadata").get("name") or "")
    out.each("metadata.name", name, names.dns_label(name))
    for step in ("dataset", "model"):
        uri = part(part(spec, "initializer"), step).get("storageUri")
        if uri and not _URI.fullmatch(uri):
            path = f"spec.initializer.{step}.storageUri"
            out.invalid(path, uri, "storageUri may be empty, or it must be a valid URI (scheme://...)")
    _processes(part(spec, "trainer").get("numProcPerNode"), "spec.trainer.numProcPerNode", out)
    managers = (trainer.CONTROLLER_NAME, trainer.MULTIKUEUE)
    if spec.get("managedBy") is not None:
        out.choice("spec.managedBy", spec["managedBy"], managers)
    for index, patch in enumerate(spec.get("runtimePatches") or ()):
        manager = str(patch.get("manager") or "")
        for other in (spec.get("runtimePatches") or ())[:index]:
            if other.get("manager") == manager:
                out.duplicate(f"spec.runtimePatches[{index}].manager", manager)
    if old is not None:
        _update(spec, part(old, "spec"), out)


def _processes(count: Any, path: str, out: Collector) -> None:
    if isinstance(count, str) and not count.isdecimal():
        out.choice(path, count, _COUNTS)
    elif count is not None and int(count) < 1:
        out.invalid(path, count, "numProcPerNode must be greater than or equal to 1")


def _update(spec: Obj, before: Obj, out: Collector) -> None:
    suspended = bool(spec.get("suspend") or before.get("suspend"))
    for field in _IMMUTABLE:
        given, former = spec.get(field), before.get(field)
        if given == former or (field == "trainer" and suspended and _only_nodes(given, former)):
            continue
        out.forbidden(f"spec.{field}", "field is immutable: delete and create the TrainJob")
    for field in ("runtimePatches", "podTemplateOverrides"):
        if spec.get(field) != before.get(field) and not suspended:
            out.forbidden(
                f"spec.{field}",
                "it can only be modified when the TrainJob is suspended before or after the update",
            )


def _only_nodes(given: Any, former: Any) -> bool:
    """Return whether only the number of nodes differs. A suspended TrainJob may change it."""
    if not isinstance(given, Mapping) or not isinstance(former, Mapping):
        return False
    left, right = ({**found, "numNodes": None} for found in (given, former))
    return left == right


def runtime(obj: Obj, _old: Obj | None, out: Collector) -> None:
    """Check a training runtime."""
    spec = part(obj, "spec")
    template = part(spec, "template")
    jobs = part(template, "spec").get("replicatedJobs") or ()
    path = "spec.template.spec.replicatedJobs"
    _policy(part(spec, "mlPolicy"), out)
    for index, job in enumerate(jobs):
        step = trainer.step_of(job)
        wanted = trainer.CONTAINERS.get(step)
        if wanted is None:
            continue
        if job.get("replicas") not in (None, 1):
            out.invalid(f"{path}[{index}].replicas", job.get("replicas"), "always must be 1")
        pod = part(part(part(job.get("template") or {}, "spec"), "template"), "spec")
        if not any(found.get("name") == wanted for found in pod.get("containers") or ()):
            where = f"{path}[{index}].template.spec.template.spec.containers"
            out.required(where, f"must have container with name {wanted} for the step {step}")
    if part(part(obj, "metadata"), "labels").get(f"{trainer.GROUP}/webhook-validation") != "disabled":
        _as_job_set(part(template, "spec"), out)


def _as_job_set(spec: Obj, out: Collector) -> None:
    """Check the template as a JobSet with a name of one character."""
    from windlass.api.defaults.jobset import fill_spec

    filled = patch_types.copy(dict(spec))
    fill_spec(filled)
    jobset.check_spec("t", filled, "spec.template.spec", out)


def _policy(policy: Obj, out: Collector) -> None:
    given = [name for name in ("torch", "mpi", "flux", "jax", "xgboost") if name in policy]
    if len(given) > 1:
        out.forbidden(f"spec.mlPolicy.{given[1]}", f"only one of the policies can be set: {', '.join(given)}")
    torch = part(policy, "torch")
    _processes(torch.get("numProcPerNode"), "spec.mlPolicy.torch.numProcPerNode", out)
    elastic = part(torch, "elasticPolicy")
    least, most = elastic.get("minNodes"), elastic.get("maxNodes")
    if isinstance(least, int) and isinstance(most, int) and least > most:
        out.invalid("spec.mlPolicy.torch.elasticPolicy.minNodes", least, f"must not exceed maxNodes ({most})")
