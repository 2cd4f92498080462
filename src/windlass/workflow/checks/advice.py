"""Fields of a workflow's spec that have no effect or another one than in Argo."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

Json = Mapping[str, Any]
_SPEC = {
    "archiveLogs": "logs stay with the pods",
    "artifactGC": "artifacts stay in the store until they are removed there",
    "artifactRepositoryRef": "artifacts are kept in the store of this platform",
    "metrics": "custom metrics of workflows are not published",
    "podDisruptionBudget": "create a PodDisruptionBudget yourself",
    "podSpecPatch": "set the fields in the template instead",
    "executor": "no executor runs next to the containers",
}
_SPEC |= {
    "priority": "workflows are not ordered: podPriorityClassName orders their pods",
    "volumeClaimGC": "claims of volumeClaimTemplates are deleted with the workflow",
    "workflowMetadata": "write labels and annotations in metadata",
    "retain": "all nodes and outputs are kept until the workflow is deleted",
    "scheduling": "write the queue into the metadata of the pods",
}
_SPEC_FIELDS = frozenset(
    [
        "templates",
        "entrypoint",
        "arguments",
        "serviceAccountName",
        "automountServiceAccountToken",
        "volumes",
        "volumeClaimTemplates",
        "parallelism",
        "suspend",
        "nodeSelector",
        "affinity",
        "tolerations",
        "imagePullSecrets",
        "hostNetwork",
        "dnsPolicy",
        "dnsConfig",
        "onExit",
        "ttlStrategy",
        "activeDeadlineSeconds",
        "schedulerName",
        "podGC",
        "podPriorityClassName",
        "podPriority",
        "hostAliases",
        "securityContext",
        "shutdown",
        "workflowTemplateRef",
        "synchronization",
        "retryStrategy",
        "podMetadata",
        "templateDefaults",
        "hooks",
    ]
) | set(_SPEC)
_TEMPLATE_FIELDS = frozenset(
    [
        "name",
        "inputs",
        "outputs",
        "nodeSelector",
        "affinity",
        "metadata",
        "daemon",
        "steps",
        "container",
        "containerSet",
        "script",
        "resource",
        "dag",
        "suspend",
        "data",
        "http",
        "plugin",
        "job",
        "function",
        "volumes",
        "initContainers",
        "sidecars",
        "archiveLocation",
        "activeDeadlineSeconds",
        "retryStrategy",
        "parallelism",
        "tolerations",
        "schedulerName",
        "priorityClassName",
        "serviceAccountName",
        "automountServiceAccountToken",
        "hostAliases",
        "securityContext",
        "podSpecPatch",
        "metrics",
        "synchronization",
        "memoize",
        "timeout",
        "annotations",
    ]
)
_TASK_FIELDS = frozenset(
    [
        "name",
        "template",
        "inline",
        "arguments",
        "templateRef",
        "dependencies",
        "depends",
        "withItems",
        "withParam",
        "withSequence",
        "when",
        "continueOn",
        "onExit",
        "hooks",
    ]
)
_TEMPLATE = {
    "daemon": "the container is run to its end like any other",
    "metrics": "custom metrics of templates are not published",
    "podSpecPatch": "set the fields in the template instead",
}


def advice(spec: Json, path: str) -> Iterator[str]:
    """Yield a sentence for each field that has no effect."""
    for field, why in _SPEC.items():
        if spec.get(field):
            yield f"{path}.{field} has no effect: {why}"
    yield from _unknown(spec, _SPEC_FIELDS, path)
    for at, template in enumerate(spec.get("templates") or ()):
        for field, why in _TEMPLATE.items():
            if template.get(field):
                yield f"{path}.templates[{at}].{field} has no effect: {why}"
        where = f"{path}.templates[{at}]"
        yield from _unknown(template, _TEMPLATE_FIELDS, where)
        for number, task in enumerate((template.get("dag") or {}).get("tasks") or ()):
            yield from _unknown(task, _TASK_FIELDS, f"{where}.dag.tasks[{number}]")
        for group, steps in enumerate(template.get("steps") or ()):
            for number, step in enumerate(steps if isinstance(steps, list) else ()):
                yield from _unknown(step, _TASK_FIELDS, f"{where}.steps[{group}][{number}]")
        job = template.get("job") or {}
        if (job.get("parallel") or {}).get("placement"):
            yield f"{path}.templates[{at}].job.parallel.placement has no effect: write the topology into the job"
        if (job.get("scheduling") or {}).get("gang") in ("PerWorkflow", "None"):
            where = f"{path}.templates[{at}].job.scheduling.gang"
            yield f"{where} has no effect: each job is the gang that its kind makes of it"
        for kind in ("inputs", "outputs"):
            for number, artifact in enumerate((template.get(kind) or {}).get("artifacts") or ()):
                found = [
                    place
                    for place in ("s3", "gcs", "oss", "azure", "hdfs", "artifactory")
                    if artifact.get(place)
                ]
                if found:
                    where = f"{path}.templates[{at}].{kind}.artifacts[{number}].{found[0]}"
                    yield f"{where} has no effect: artifacts are kept in the store of this platform"


def _unknown(value: Json, known: frozenset[str] | set[str], path: str) -> Iterator[str]:
    """Yield the fields that are not known, such as misspelled ones."""
    for field in sorted(set(value) - known):
        yield f"{path}.{field} is not a known field, and has no effect"
