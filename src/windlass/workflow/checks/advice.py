"""Fields of a workflow's spec that have no effect or another one than in Argo."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from windlass.workflow.checks.artifacts import sent_to

Json = Mapping[str, Any]
_SPEC = {
    "artifactRepositoryRef": "artifacts are kept in the store of this platform",
    "metrics": "custom metrics of workflows are not published",
    "podDisruptionBudget": "create a PodDisruptionBudget yourself",
    "executor": "no executor runs next to the containers",
}
_PLACES = ("s3", "gcs", "oss", "azure", "hdfs", "artifactory", "http")
_SPEC |= {
    "priority": "workflows are not ordered: podPriorityClassName orders their pods",
    "volumeClaimGC": "claims of volumeClaimTemplates are deleted with the workflow",
    "workflowMetadata": "write labels and annotations in metadata",
}
_SPEC_FIELDS = frozenset(
    [
        "archiveLogs",
        "artifactGC",
        "retain",
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
        "scheduling",
        "podSpecPatch",
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
        "contextCache",
        "when",
        "continueOn",
        "onExit",
        "hooks",
    ]
)
_TEMPLATE = {
    "metrics": "custom metrics of templates are not published",
}


def advice(spec: Json, path: str) -> Iterator[str]:
    """Yield a sentence for each field that has no effect."""
    for field, why in _SPEC.items():
        if spec.get(field):
            yield f"{path}.{field} has no effect: {why}"
    yield from _unknown(spec, _SPEC_FIELDS, path)
    yield from _artifact_gc(spec, path)
    if (spec.get("scheduling") or {}).get("lookahead") is not None:
        yield f"{path}.scheduling.lookahead has no effect: nothing is planned for tasks that have not begun"
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
        for number, artifact in enumerate((template.get("outputs") or {}).get("artifacts") or ()):
            for place in _PLACES:
                if artifact.get(place) and place != sent_to(artifact):
                    where = f"{path}.templates[{at}].outputs.artifacts[{number}].{place}"
                    needed = ": endpoint, bucket and key are needed" if place == "s3" else ""
                    yield f"{where} has no effect: the artifact is kept in the store of this platform{needed}"


def _artifact_gc(spec: Json, path: str) -> Iterator[str]:
    """Yield fields of the removal of artifacts that have an effect with others only."""
    if not spec.get("ttlStrategy") and (spec.get("retain") or {}).get("until") == "ttl":
        yield f"{path}.retain.until ttl has an effect with ttlStrategy only"


def _unknown(value: Json, known: frozenset[str] | set[str], path: str) -> Iterator[str]:
    """Yield the fields that are not known, such as misspelled ones."""
    for field in sorted(set(value) - known):
        yield f"{path}.{field} is not a known field, and has no effect"
