"""A job of ``kubeflow.org/v1`` by itself: the rules of the training operator's webhooks, each with its remedy.

Where they reject a job only because its one container has another name than the kind's,
the job is accepted here, and a warning says which container is used.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windlass.api.fields.kubeflow import FIELDS, WORKER, KubeflowFields, lent_volumes
from windlass.api.resources import PYTORCH_JOBS, Resource
from windlass.api.validation.collector import Collector, part
from windlass.api.validation.workloads.job_template import job_template
from windlass.kits.printable import with_article

Obj = Mapping[str, Any]
_POD_NAME_LIMIT = 63


def validator(resource: Resource) -> Any:
    """Return the validator of one kind."""
    fields = FIELDS[resource]

    def check(obj: Obj, old: Obj | None, out: Collector) -> None:
        _job(fields, obj, old, out)

    return check


def _job(fields: KubeflowFields, obj: Obj, old: Obj | None, out: Collector) -> None:
    spec = part(obj, "spec")
    path = f"spec.{fields.field}"
    given = part(spec, fields.field)
    _roles(fields, given, path, out)
    found = fields.replica_specs(spec)
    if not found:
        out.required(path, f"at least one of {', '.join(fields.roles)}")
        return
    if fields.required and fields.required not in found:
        out.required(f"{path}.{fields.required}", f"{with_article(fields.resource.kind)} has one")
    written = {str(name).lower(): str(name) for name in given}
    for role, replica_spec in found.items():
        where = f"{path}.{written[role.lower()]}"
        _replicas(fields, role, replica_spec, where, out)
        _template(fields, role, found, where, out)
        _pod_names(part(obj, "metadata").get("name", ""), role, replica_spec, where, out)
    if fields.resource is PYTORCH_JOBS and spec.get("elasticPolicy") is not None:
        _elastic(spec, found, out)
    before = part(part(old or {}, "spec"), "runPolicy").get("managedBy")
    if old is not None and part(spec, "runPolicy").get("managedBy") != before:
        out.forbidden("spec.runPolicy.managedBy", "it cannot be changed: delete and create the job")


def _roles(fields: KubeflowFields, given: Obj, path: str, out: Collector) -> None:
    known = {role.lower() for role in fields.roles}
    seen: set[str] = set()
    for name in given:
        low = str(name).lower()
        if low not in known:
            out.choice(f"{path}.{name}", name, fields.roles)
        elif low in seen:
            out.duplicate(f"{path}.{name}", name)
        seen.add(low)
    chiefs = [role for role in ("Chief", "Master") if role.lower() in seen]
    if "Chief" in fields.roles and len(chiefs) > 1:
        out.forbidden(f"{path}.Master", "a job has either Chief or Master, not both: remove one")


def _replicas(fields: KubeflowFields, role: str, replica_spec: Obj, path: str, out: Collector) -> None:
    replicas = replica_spec.get("replicas")
    if role in fields.single and replicas not in (None, 1):
        out.invalid(f"{path}.replicas", replicas, f"{role} has exactly 1 replica")
    elif role == WORKER and fields.resource is PYTORCH_JOBS and replicas == 0:
        out.invalid(f"{path}.replicas", replicas, "must be at least 1, or remove Worker")


def _template(
    fields: KubeflowFields, role: str, replica_specs: Mapping[str, Obj], path: str, out: Collector
) -> None:
    template, lent = replica_specs[role].get("template"), lent_volumes(replica_specs, role)
    spec = job_template(template, f"{path}.template", "role", out, lent)
    if spec.get("containers") and not fields.main_container(spec):
        out.required(
            f"{path}.template.spec.containers",
            f"one container has to be named {fields.container}: it runs the program",
        )


def _pod_names(name: str, role: str, replica_spec: Obj, path: str, out: Collector) -> None:
    replicas = replica_spec.get("replicas")
    last = max(0, (1 if not isinstance(replicas, int) else replicas) - 1)
    longest = f"{name}-{role.lower()}-{last}"
    if len(longest) > _POD_NAME_LIMIT:
        out.invalid(
            "metadata.name",
            name,
            f"the pod {longest} would have {len(longest)} characters, at most {_POD_NAME_LIMIT} are allowed: "
            f"shorten the name by {len(longest) - _POD_NAME_LIMIT}",
        )


def _elastic(spec: Obj, found: Mapping[str, Obj], out: Collector) -> None:
    policy = part(spec, "elasticPolicy")
    if WORKER not in found:
        out.required(f"spec.pytorchReplicaSpecs.{WORKER}", "elasticPolicy bounds its replicas")
        return
    if policy.get("nProcPerNode") is not None and spec.get("nprocPerNode") is not None:
        out.forbidden("spec.elasticPolicy.nProcPerNode", "spec.nprocPerNode is set: remove this one")
    least, largest = policy.get("minReplicas"), policy.get("maxReplicas")
    if isinstance(least, int) and isinstance(largest, int) and least > largest:
        out.invalid("spec.elasticPolicy.minReplicas", least, f"must not exceed maxReplicas ({largest})")
        return
    replicas = found[WORKER].get("replicas")
    count = 1 if replicas is None else replicas
    if isinstance(least, int) and isinstance(count, int) and count < least:
        out.invalid(
            f"spec.pytorchReplicaSpecs.{WORKER}.replicas",
            count,
            f"must be at least minReplicas ({least}) of spec.elasticPolicy",
        )
    if isinstance(largest, int) and isinstance(count, int) and count > largest:
        out.invalid(
            f"spec.pytorchReplicaSpecs.{WORKER}.replicas",
            count,
            f"must be at most maxReplicas ({largest}) of spec.elasticPolicy",
        )
