"""Fields and names of ``trainer.kubeflow.org/v1alpha1``, as in Kubeflow Trainer 2.3."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windlass.api.resources import CLUSTER_TRAINING_RUNTIMES, TRAINING_RUNTIMES, Resource

GROUP = "trainer.kubeflow.org"
CONTROLLER_NAME = f"{GROUP}/trainjob-controller"
"""Value of ``managedBy`` that means: this controller."""
MULTIKUEUE = "kueue.x-k8s.io/multikueue"
ANCESTOR = f"{GROUP}/trainjob-ancestor-step"
"""Label on a replicated job of a runtime: the step of the TrainJob that it carries out."""
FRAMEWORK = f"{GROUP}/framework"
SUPPORT = f"{GROUP}/support"
TRAINER_STEP, DATASET_STEP, MODEL_STEP = "trainer", "dataset-initializer", "model-initializer"
NODE, LAUNCHER = "node", "launcher"
"""Names of replicated jobs, and of the container that runs the program (``node``)."""
CONTAINERS = {TRAINER_STEP: NODE, DATASET_STEP: DATASET_STEP, MODEL_STEP: MODEL_STEP}
"""Step → container that each replicated job of that step has."""
PORT = 29500
TORCH_RESERVED = ("PET_NNODES", "PET_NPROC_PER_NODE", "PET_NODE_RANK", "PET_MASTER_ADDR", "PET_MASTER_PORT")
XGBOOST_RESERVED = ("DMLC_TRACKER_URI", "DMLC_TRACKER_PORT", "DMLC_TASK_ID", "DMLC_NUM_WORKER")
MPI_RESERVED = (
    "OMPI_MCA_orte_default_hostfile",
    "OMPI_MCA_plm_rsh_args",
    "OMPI_MCA_orte_keep_fqdn_hostnames",
    "OMPI_MCA_orte_set_default_slots",
)
RESERVED: Mapping[str, tuple[str, ...]] = {
    "torch": TORCH_RESERVED,
    "xgboost": XGBOOST_RESERVED,
    "mpi": MPI_RESERVED,
}
"""Policy of a runtime → variables that a TrainJob must not set."""

Json = Mapping[str, Any]


def runtime_kind(reference: Json) -> Resource | None:
    """Return the kind that a ``runtimeRef`` names; ``None`` if it is not one of Trainer's."""
    if (reference.get("apiGroup") or GROUP) != GROUP:
        return None
    kind = reference.get("kind") or CLUSTER_TRAINING_RUNTIMES.kind
    return next(
        (found for found in (CLUSTER_TRAINING_RUNTIMES, TRAINING_RUNTIMES) if found.kind == kind), None
    )


def step_of(replicated_job: Json) -> str:
    """Return the step of a replicated job; empty if it has none."""
    metadata = (replicated_job.get("template") or {}).get("metadata") or {}
    return (metadata.get("labels") or {}).get(ANCESTOR) or ""


def patches(spec: Json) -> list[Json]:
    """Return the ``runtimePatches`` of a TrainJob, with the former ``podTemplateOverrides`` before them."""
    found: list[Json] = []
    for override in spec.get("podTemplateOverrides") or ():
        template = {name: override[name] for name in ("metadata", "spec") if override.get(name)}
        jobs = [
            {"name": target.get("name"), "template": {"spec": {"template": template}}}
            for target in override.get("targetJobs") or ()
        ]
        found.append({"trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": jobs}}}})
    return [*found, *(spec.get("runtimePatches") or ())]


def patched_jobs(patch: Json) -> list[Json]:
    """Return the replicated jobs that a patch changes."""
    template = (patch.get("trainingRuntimeSpec") or {}).get("template") or {}
    return list((template.get("spec") or {}).get("replicatedJobs") or ())
