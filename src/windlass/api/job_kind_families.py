"""Names of the families of job kinds that Windlass operates where their own operator does not run.

The folder ``crds`` has one folder for each that another project defines;
``controllers.job_kinds.families`` says what belongs to it.
"""

from __future__ import annotations

JOB_KIND_FAMILIES = (
    "kubeflow",
    "mpi",
    "volcano",
    "jobset",
    "trainer",
    "ray",
    "leaderworkerset",
    "aigc",
    "models",
    "argo",
    "aigcworkflow",
)
OWN_FAMILIES = ("aigc", "models", "aigcworkflow")
"""Families of Windlass alone: their kinds are installed with Windlass' other kinds."""
