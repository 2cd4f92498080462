"""Volume of the ledger and the outputs of an AIGCJob that names no place for them. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from windlass.api.fields import aigc
from windlass.api.owner_references import owner_reference
from windlass.api.resources import AIGC_JOBS, PERSISTENT_VOLUME_CLAIMS
from windlass.jobs.aigc.job import AigcJob

CLAIM_SUFFIX = "-outputs"


@dataclass(frozen=True, slots=True)
class OutputsClaim:
    """PersistentVolumeClaim that each job gets. ``storage_class`` empty: the cluster's default."""

    size: str
    storage_class: str = ""


def claim_name(job: AigcJob) -> str:
    return f"{job.definition.name}{CLAIM_SUFFIX}"


def local_path(job: AigcJob) -> str:
    """Return the path of the outputs on a node or a volume; empty for none, and for an object store."""
    path = str(aigc.part(job.spec, "outputs").get("path") or "")
    return "" if "://" in path else path


def needs_claim(job: AigcJob) -> bool:
    """Return whether the job names neither a path nor a claim for its outputs, or an object for them."""
    outputs = aigc.part(job.spec, "outputs")
    return not local_path(job) and not aigc.part(outputs, "pvc").get("claimName")


def build_claim(job: AigcJob, template: OutputsClaim) -> dict[str, Any]:
    """Return the claim of a job. It stays after the job unless ``outputs.retain`` is false."""
    definition = job.definition
    metadata: dict[str, Any] = {
        "name": claim_name(job),
        "namespace": definition.namespace,
        "labels": {aigc.JOB_NAME: definition.name},
    }
    if aigc.part(job.spec, "outputs").get("retain") is False:
        metadata["ownerReferences"] = [owner_reference(AIGC_JOBS, definition.name, definition.uid)]
    spec: dict[str, Any] = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": template.size}},
    }
    if template.storage_class:
        spec["storageClassName"] = template.storage_class
    return {
        "apiVersion": PERSISTENT_VOLUME_CLAIMS.api_version,
        "kind": PERSISTENT_VOLUME_CLAIMS.kind,
        "metadata": metadata,
        "spec": spec,
    }
