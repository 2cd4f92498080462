"""Objects of a JobSet: child Jobs, headless Service, volume claims, PodGroups of the gangs."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from windlass.api import annotations as names
from windlass.api import owner_references
from windlass.api.fields import jobset
from windlass.api.resources import BATCH_JOBS, JOB_SETS, PERSISTENT_VOLUME_CLAIMS, POD_GROUPS, SERVICES
from windlass.api.wire import patch_types
from windlass.jobs.gang import GangPart, least_resources
from windlass.jobs.jobset.children import Restarts
from windlass.jobs.jobset.spec import JobSetDefinition, ReplicatedJob, Stage, stages

Json = Mapping[str, Any]


def owner_reference(definition: JobSetDefinition) -> dict[str, Any]:
    return owner_references.owner_reference(JOB_SETS, definition.name, definition.uid)


def build_job(
    definition: JobSetDefinition, job: ReplicatedJob, index: int, restarts: Restarts, scheduler: str
) -> dict[str, Any]:
    """Return a child Job. ``scheduler``: used if the template names none."""
    metadata = job.template.get("metadata") or {}
    spec: dict[str, Any] = patch_types.copy(dict(job.job_spec))
    template = spec.setdefault("template", {})
    inner = template.get("metadata") or {}
    marks = _marks(definition, job, index, restarts)
    exclusive = _exclusive(definition, job)
    template["metadata"] = {
        **inner,
        "labels": {**(inner.get("labels") or {}), **marks},
        "annotations": {**(inner.get("annotations") or {}), **marks, **exclusive},
    }
    if definition.in_place and jobset.DISABLE_IN_PLACE not in definition.annotations:
        template["metadata"]["annotations"][names.RESTART_IN_PLACE] = definition.name
    pod = template.setdefault("spec", {})
    if definition.has_host_names:
        pod["subdomain"] = definition.subdomain
    if jobset.EXCLUSIVE in exclusive:
        _place_exclusively(pod, definition, marks, exclusive)
    _add_claims(pod, definition)
    _join_gang(template, definition, job, scheduler)
    spec["suspend"] = definition.suspend
    return {
        "apiVersion": BATCH_JOBS.api_version,
        "kind": BATCH_JOBS.kind,
        "metadata": {
            "name": jobset.job_name(definition.name, job.name, index),
            "namespace": definition.namespace,
            "labels": {**(metadata.get("labels") or {}), **marks},
            "annotations": {**(metadata.get("annotations") or {}), **marks, **exclusive},
            "ownerReferences": [owner_reference(definition)],
        },
        "spec": spec,
    }


def _marks(
    definition: JobSetDefinition, job: ReplicatedJob, index: int, restarts: Restarts
) -> dict[str, str]:
    """Return the labels of a Job and its pods, which are annotations too."""
    name = jobset.job_name(definition.name, job.name, index)
    before = _before(definition.replicated, job)
    group = [other for other in definition.replicated if other.group == job.group]
    marks = {
        jobset.JOB_SET_NAME: definition.name,
        jobset.JOB_SET_UID: definition.uid,
        jobset.REPLICATED_JOB_NAME: job.name,
        jobset.RESTART_ATTEMPT: str(restarts.total),
        jobset.JOB_RESTART_ATTEMPT: str(restarts.of_job(job.name, index)),
        jobset.REPLICATED_JOB_REPLICAS: str(job.replicas),
        jobset.GLOBAL_REPLICAS: str(definition.replicas),
        jobset.JOB_INDEX: str(index),
        jobset.JOB_KEY: job_key(definition.namespace, name),
        jobset.JOB_GLOBAL_INDEX: str(before + index),
        jobset.GROUP_NAME: job.group,
        jobset.GROUP_REPLICAS: str(sum(other.replicas for other in group)),
        jobset.JOB_GROUP_INDEX: str(_before(group, job) + index),
    }
    endpoint = jobset.coordinator_endpoint(definition.name, definition.spec)
    if endpoint:
        marks[jobset.COORDINATOR] = endpoint
    return marks


def _before(jobs: Any, job: ReplicatedJob) -> int:
    total = 0
    for other in jobs:
        if other.name == job.name:
            break
        total += other.replicas
    return total


def job_key(namespace: str, name: str) -> str:
    """Return the value of the label ``job-key``: JobSet's SHA-1 of the Job's name."""
    return hashlib.sha1(f"{namespace}/{name}".encode(), usedforsecurity=False).hexdigest()


def _exclusive(definition: JobSetDefinition, job: ReplicatedJob) -> dict[str, str]:
    """Return the annotations for exclusive placement; those of the replicated job win."""
    own = (job.template.get("metadata") or {}).get("annotations") or {}
    found: dict[str, str] = {}
    for given in (definition.annotations, own):
        if jobset.EXCLUSIVE in given:
            found[jobset.EXCLUSIVE] = given[jobset.EXCLUSIVE]
            if jobset.NODE_SELECTOR_STRATEGY in given:
                found[jobset.NODE_SELECTOR_STRATEGY] = given[jobset.NODE_SELECTOR_STRATEGY]
    return found


def _place_exclusively(
    pod: dict[str, Any], definition: JobSetDefinition, marks: Json, exclusive: Json
) -> None:
    """Place all pods of a Job in one topology domain, and no other Job of a JobSet there.

    JobSet's webhook does it in two steps: affinity of the first pod, then a node selector
    for the others. The scheduler here places a gang with affinity to itself as a whole,
    so all pods have the affinity.
    """
    if jobset.NODE_SELECTOR_STRATEGY in exclusive:
        name = jobset.job_name(
            definition.name, marks[jobset.REPLICATED_JOB_NAME], int(marks[jobset.JOB_INDEX])
        )
        selector = {
            **(pod.get("nodeSelector") or {}),
            jobset.NAMESPACED_JOB: f"{definition.namespace}_{name}",
        }
        pod["nodeSelector"] = selector
        toleration = {"key": jobset.NO_SCHEDULE_TAINT, "operator": "Exists", "effect": "NoSchedule"}
        pod["tolerations"] = [*(pod.get("tolerations") or ()), toleration]
        return
    key = marks[jobset.JOB_KEY]
    affinity = dict(pod.get("affinity") or {})
    for field, expressions in (
        ("podAffinity", [{"key": jobset.JOB_KEY, "operator": "In", "values": [key]}]),
        (
            "podAntiAffinity",
            [
                {"key": jobset.JOB_KEY, "operator": "Exists"},
                {"key": jobset.JOB_KEY, "operator": "NotIn", "values": [key]},
            ],
        ),
    ):
        terms = dict(affinity.get(field) or {})
        required = "requiredDuringSchedulingIgnoredDuringExecution"
        term = {
            "labelSelector": {"matchExpressions": expressions},
            "topologyKey": exclusive[jobset.EXCLUSIVE],
            "namespaceSelector": {},
        }
        terms[required] = [*(terms.get(required) or ()), term]
        affinity[field] = terms
    pod["affinity"] = affinity


def claim_name(job_set: str, template: str) -> str:
    return f"{template}-{job_set}"


def _claim_templates(definition: JobSetDefinition) -> list[tuple[Json, bool]]:
    """Return the volume claim templates, and whether their claims end with the JobSet."""
    return [
        (template, (policy.get("retentionPolicy") or {}).get("whenDeleted", "Delete") != "Retain")
        for policy in definition.spec.get("volumeClaimPolicies") or ()
        for template in policy.get("templates") or ()
    ]


def _add_claims(pod: dict[str, Any], definition: JobSetDefinition) -> None:
    volumes = [
        {"name": name, "persistentVolumeClaim": {"claimName": claim_name(definition.name, name)}}
        for template, _ in _claim_templates(definition)
        if jobset.mounts(pod, name := template["metadata"]["name"])
    ]
    if volumes:
        pod["volumes"] = [*(pod.get("volumes") or ()), *volumes]


def build_claims(definition: JobSetDefinition) -> list[dict[str, Any]]:
    """Return the volume claims that the Jobs share."""
    found = []
    for template, ends in _claim_templates(definition):
        given = template["metadata"]
        metadata: dict[str, Any] = {
            "name": claim_name(definition.name, given["name"]),
            "namespace": definition.namespace,
            "labels": {**(given.get("labels") or {}), jobset.JOB_SET_NAME: definition.name},
            "annotations": dict(given.get("annotations") or {}),
        }
        if ends:
            metadata["ownerReferences"] = [owner_reference(definition)]
        found.append(
            {
                "apiVersion": PERSISTENT_VOLUME_CLAIMS.api_version,
                "kind": PERSISTENT_VOLUME_CLAIMS.kind,
                "metadata": metadata,
                "spec": dict(template.get("spec") or {}),
            }
        )
    return found


def build_service(definition: JobSetDefinition) -> dict[str, Any]:
    """Return the headless Service by which the pods find one another."""
    network = definition.spec.get("network") or {}
    return {
        "apiVersion": SERVICES.api_version,
        "kind": SERVICES.kind,
        "metadata": {
            "name": definition.subdomain,
            "namespace": definition.namespace,
            "ownerReferences": [owner_reference(definition)],
        },
        "spec": {
            "clusterIP": "None",
            "selector": {jobset.JOB_SET_NAME: definition.name},
            "publishNotReadyAddresses": bool(network.get("publishNotReadyAddresses", True)),
        },
    }


# Gangs.


def has_own_group(job: ReplicatedJob) -> bool:
    """Return whether the pods name a group themselves, as those of a TrainJob with a podGroupPolicy."""
    metadata = job.pod_template.get("metadata") or {}
    return names.GROUP_NAME in (metadata.get("annotations") or {}) or (
        names.GROUP_NAME_COSCHEDULING in (metadata.get("labels") or {})
    )


def gangs(definition: JobSetDefinition, opened: frozenset[str]) -> list[Stage]:
    """Return the stages that have started and form a gang of their own."""
    return [
        stage
        for stage in stages(definition)
        if any(job.name in opened for job in stage.jobs) and not any(map(has_own_group, stage.jobs))
    ]


def _join_gang(
    template: dict[str, Any], definition: JobSetDefinition, job: ReplicatedJob, scheduler: str
) -> None:
    pod = template["spec"]
    pod["schedulerName"] = pod.get("schedulerName") or scheduler
    if has_own_group(job):
        return
    stage = next(stage for stage in stages(definition) if job in stage.jobs)
    template["metadata"]["annotations"] |= {
        names.GROUP_NAME: stage.group_name(definition.name),
        names.TASK_SPEC: job.name,
    }


def build_group(definition: JobSetDefinition, stage: Stage, priorities: Mapping[str, int]) -> dict[str, Any]:
    """Return the PodGroup of a stage. ``priorities``: PriorityClass → value."""
    return {
        "apiVersion": POD_GROUPS.api_version,
        "kind": POD_GROUPS.kind,
        "metadata": {
            "name": stage.group_name(definition.name),
            "namespace": definition.namespace,
            "labels": dict(definition.labels),
            "annotations": dict(definition.annotations),
            "ownerReferences": [owner_reference(definition)],
        },
        "spec": group_spec(definition, stage, priorities),
    }


def group_spec(definition: JobSetDefinition, stage: Stage, priorities: Mapping[str, int]) -> dict[str, Any]:
    specs = [job.pod_template.get("spec") or {} for job in stage.jobs]
    classes = [str(spec.get("priorityClassName") or "") for spec in specs]
    parts = [
        GangPart(job.pods, job.pods, priorities.get(name, 0), spec)
        for job, spec, name in zip(stage.jobs, specs, classes, strict=True)
    ]
    total = sum(job.pods for job in stage.jobs)
    found: dict[str, Any] = {
        "minMember": total,
        "queue": _queue(definition, stage),
        "minResources": least_resources(parts, total),
        "minTaskMember": {job.name: job.pods for job in stage.jobs},
    }
    if any(classes):
        found["priorityClassName"] = next(name for name in classes if name)
    return found


def _queue(definition: JobSetDefinition, stage: Stage) -> str:
    """Return the queue that the JobSet or one of its templates names, or else the default queue."""
    templates = [job.pod_template.get("metadata") or {} for job in stage.jobs]
    given = [(definition.annotations, definition.labels)]
    given += [(found.get("annotations") or {}, found.get("labels") or {}) for found in templates]
    for notes, labels in given:
        queue = notes.get(names.QUEUE_NAME_VOLCANO) or labels.get(names.QUEUE_NAME_KAI)
        if queue:
            return queue
    return "default"


def resumed_template(present: Json, job: ReplicatedJob) -> dict[str, Any]:
    """Return the part of a suspended Job's template that follows the JobSet when it is resumed."""
    template, wanted = (present.get("spec") or {}).get("template") or {}, job.pod_template
    metadata, wanted_metadata = template.get("metadata") or {}, wanted.get("metadata") or {}
    spec, wanted_spec = template.get("spec") or {}, wanted.get("spec") or {}
    merged: dict[str, Any] = {
        "metadata": {
            field: {**(metadata.get(field) or {}), **(wanted_metadata.get(field) or {})}
            for field in ("labels", "annotations")
        },
        "spec": {},
    }
    selector = {**(spec.get("nodeSelector") or {}), **(wanted_spec.get("nodeSelector") or {})}
    if selector:
        merged["spec"]["nodeSelector"] = selector
    for field in ("tolerations", "schedulingGates"):
        given = list(spec.get(field) or ())
        items = [*given, *(item for item in wanted_spec.get(field) or () if item not in given)]
        if items:
            merged["spec"][field] = items
    return merged
