"""Gang of a ``batch/v1`` Job by the Workload and PodGroup API of Kubernetes 1.36.

A Workload that names the Job in ``spec.controllerRef`` makes its pods one gang. It has one
template of a PodGroup. The PodGroup is created from that, and the pods name it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from windlass.api.owner_references import owner_reference
from windlass.api.resources import BATCH_JOBS, NATIVE_POD_GROUPS
from windlass.jobs.batch.spec import BatchJobSpec
from windlass.kits.hashes import fnv32a
from windlass.kits.rng import NAME_ALPHABET

Json = dict[str, Any]
_NAME_LIMIT = 253


@dataclass(frozen=True, slots=True)
class BatchGang:
    """Gang of a Job. ``group``: PodGroup to create if it does not exist."""

    name: str
    group: Json


def gang_of(spec: BatchJobSpec, workloads: Sequence[Json]) -> BatchGang | None:
    """Return the gang of a Job; ``None`` if its pods are independent of one another.

    Raises ``ValueError`` if a Workload names the Job, and the Job cannot be its gang.
    """
    if not workloads or (spec.template.get("spec") or {}).get("schedulingGroup"):
        return None
    names = ", ".join(workload["metadata"]["name"] for workload in workloads)
    if len(workloads) > 1:
        raise ValueError(f"Workloads {names} name this Job, and one may: delete the others")
    templates = (workloads[0].get("spec") or {}).get("podGroupTemplates") or []
    if len(templates) != 1:
        raise ValueError(f"Workload {names} has {len(templates)} podGroupTemplates, and a Job uses one")
    if not spec.indexed or spec.parallelism <= 1 or spec.completions != spec.parallelism:
        raise ValueError(
            f"Workload {names} makes a gang of an Indexed Job with equal completions and parallelism above 1 only"
        )
    return _gang(spec, workloads[0], templates[0])


def _gang(spec: BatchJobSpec, workload: Json, template: Mapping[str, Any]) -> BatchGang:
    metadata = workload["metadata"]
    name = group_name(metadata["name"], str(template.get("name") or ""))
    origin = {"workloadName": metadata["name"], "podGroupTemplateName": template.get("name")}
    fields = {key: value for key, value in template.items() if key != "name"}
    group = {
        "apiVersion": NATIVE_POD_GROUPS.api_version,
        "kind": NATIVE_POD_GROUPS.kind,
        "metadata": {
            "name": name,
            "namespace": spec.namespace,
            "ownerReferences": [owner_reference(BATCH_JOBS, spec.name, spec.uid)],
        },
        "spec": {"podGroupTemplateRef": {"workload": origin}, **fields},
    }
    return BatchGang(name, group)


def names_job(workload: Mapping[str, Any]) -> str:
    """Return the name of the Job that a Workload makes a gang; ``""`` if there is none."""
    reference = (workload.get("spec") or {}).get("controllerRef") or {}
    if reference.get("kind") != BATCH_JOBS.kind or reference.get("apiGroup") != BATCH_JOBS.group:
        return ""
    return str(reference.get("name") or "")


def group_name(workload: str, template: str) -> str:
    """Return the name of the PodGroup, as kube-controller-manager forms it."""
    number = str(fnv32a(workload + template))
    suffix = "".join(NAME_ALPHABET[ord(digit) % len(NAME_ALPHABET)] for digit in number)
    room = _NAME_LIMIT - len(suffix) - 2
    if len(workload) + len(template) > room:
        half = room // 2
        if len(workload) <= half:
            template = template[: room - len(workload)]
        elif len(template) <= half:
            workload = workload[: room - len(template)]
        else:
            workload, template = workload[: room - half], template[:half]
    return f"{workload}-{template}-{suffix}"
