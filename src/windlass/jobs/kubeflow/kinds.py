"""The kinds of ``kubeflow.org/v1`` that Windlass runs."""

from __future__ import annotations

from collections.abc import Mapping

from windlass.api.resources import Resource
from windlass.jobs.kubeflow.jax import JAX_JOB
from windlass.jobs.kubeflow.job import KubeflowKind
from windlass.jobs.kubeflow.mpi import MPI_JOB
from windlass.jobs.kubeflow.paddle import PADDLE_JOB
from windlass.jobs.kubeflow.pytorch import PYTORCH_JOB
from windlass.jobs.kubeflow.tensorflow import TF_JOB
from windlass.jobs.kubeflow.xgboost import XGBOOST_JOB

KINDS: Mapping[Resource, KubeflowKind] = {
    kind.resource: kind for kind in (PYTORCH_JOB, TF_JOB, XGBOOST_JOB, PADDLE_JOB, JAX_JOB, MPI_JOB)
}
