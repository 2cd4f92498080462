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
    for at, template in enumerate(spec.get("templates") or ()):
        for field, why in _TEMPLATE.items():
            if template.get(field):
                yield f"{path}.templates[{at}].{field} has no effect: {why}"
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
