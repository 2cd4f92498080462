"""Families of job kinds: their kinds, their own operators and Windlass' reconcilers.

In single-node mode Windlass operates every family. In a cluster it operates those with served kinds and without
a running operator of their own (:mod:`windlass.controllers.job_kinds.operation`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from windlass.api.resources import (
    AIGC_JOBS,
    AIGC_WORKFLOWS,
    CLUSTER_TRAINING_RUNTIMES,
    CLUSTER_WORKFLOW_TEMPLATES,
    CRON_WORKFLOWS,
    JOB_FLOWS,
    JOB_SETS,
    JOB_TEMPLATES,
    LEADER_WORKER_SETS,
    MODEL_CACHES,
    MPI_JOBS,
    PYTORCH_JOBS,
    RAY_CLUSTERS,
    RAY_CRON_JOBS,
    RAY_JOBS,
    RAY_SERVICES,
    TRAIN_JOBS,
    TRAINING_RUNTIMES,
    VOLCANO_CRON_JOBS,
    WORKFLOW_TEMPLATES,
    WORKFLOWS,
    Resource,
)
from windlass.client.client import Client
from windlass.controllers.aigc.controller import AigcJobController
from windlass.controllers.aigc.platform import ClusterOutputs, OwnMachine, driver_of, platform_of
from windlass.controllers.aigc.preload import ModelPreloadController
from windlass.controllers.aigc_scaling.controller import AigcScalingController
from windlass.controllers.attempts.controller import AttemptController
from windlass.controllers.attempts.kinds import (
    AIGC_ATTEMPTS,
    JOBSET_ATTEMPTS,
    KUBEFLOW_ATTEMPTS,
    RAY_ATTEMPTS,
    TRAINER_ATTEMPTS,
)
from windlass.controllers.cron_workflow.controller import CronWorkflowController
from windlass.controllers.jobflow.controller import JobFlowController, JobTemplateController
from windlass.controllers.jobset.controller import JobSetController
from windlass.controllers.kubeflow.controller import KubeflowController
from windlass.controllers.leaderworkerset.controller import LeaderWorkerSetController
from windlass.controllers.ray.cluster_controller import RayClusterController
from windlass.controllers.ray.cron_controller import RayCronJobController
from windlass.controllers.ray.job_controller import RayJobController
from windlass.controllers.ray.service_controller import RayServiceController
from windlass.controllers.rendezvous.controller import RendezvousController
from windlass.controllers.runner import Informers, Reconciler
from windlass.controllers.trainer.controller import TrainJobController
from windlass.controllers.volcano_cronjob.controller import VolcanoCronJobController
from windlass.controllers.workflow.controller import WorkflowController
from windlass.jobs.kubeflow.kinds import KINDS as KUBEFLOW_KINDS
from windlass.jobs.kubeflow.mpi_in_cluster import in_cluster
from windlass.kits.clock import Clock
from windlass.workflow.locks import LockTable


@dataclass(frozen=True, slots=True)
class FamilyContext:
    """Dependencies of the reconcilers of a family.

    ``scheduler``: default scheduler of pods.
    ``embedded``: single-node mode, in which controllers do not reach the network of pods.
    ``machine``: the machine of single-node mode; ``None`` in a cluster.
    ``outputs``: place for outputs of generation jobs in a cluster.
    """

    client: Client
    informers: Informers
    clock: Clock
    scheduler: str
    embedded: bool = False
    machine: OwnMachine | None = None
    outputs: ClusterOutputs | None = None


@dataclass(frozen=True, slots=True)
class KindFamily:
    """Kinds that one operator keeps.

    ``name``: name in the setting ``controllers.jobKinds``.
    ``kinds``: kinds that the API server must serve.
    ``deployments``, ``images``: names of Deployments and of images (without registry and tag) by which the family's
        own operator is recognised.
    """

    name: str
    kinds: tuple[Resource, ...]
    deployments: frozenset[str]
    images: tuple[str, ...]
    reconcilers: Callable[[FamilyContext], list[Reconciler]]


def _operates(kinds: tuple[Resource, ...]) -> Callable[[FamilyContext], list[Reconciler]]:
    def reconcilers(context: FamilyContext) -> list[Reconciler]:
        informers, clock = context.informers, context.clock
        return [
            *(
                KubeflowController(
                    KUBEFLOW_KINDS[kind] if context.embedded else in_cluster(KUBEFLOW_KINDS[kind]),
                    informers,
                    clock,
                    context.scheduler,
                )
                for kind in kinds
            ),
            *(
                AttemptController(kind, informers, clock)
                for kind in KUBEFLOW_ATTEMPTS
                if kind.resource in kinds
            ),
            *([RendezvousController(informers)] if PYTORCH_JOBS in kinds and not context.embedded else []),
        ]

    return reconcilers


_TRAINING = tuple(kind for kind in KUBEFLOW_KINDS if kind is not MPI_JOBS)

KUBEFLOW = KindFamily(
    "kubeflow",
    _TRAINING,
    frozenset({"training-operator"}),
    ("training-operator",),
    _operates(_TRAINING),
)

MPI = KindFamily(
    "mpi",
    (MPI_JOBS,),
    frozenset({"mpi-operator", "training-operator"}),
    ("mpi-operator", "training-operator"),
    _operates((MPI_JOBS,)),
)

JOBSET = KindFamily(
    "jobset",
    (JOB_SETS,),
    frozenset({"jobset-controller-manager", "jobset-controller"}),
    ("jobset",),
    lambda context: [
        JobSetController(context.informers, context.clock, context.scheduler),
        AttemptController(JOBSET_ATTEMPTS, context.informers, context.clock),
    ],
)


def _volcano(context: FamilyContext) -> list[Reconciler]:
    return [
        VolcanoCronJobController(context.informers, context.clock),
        JobFlowController(context.informers, context.clock),
        JobTemplateController(context.informers),
    ]


VOLCANO = KindFamily(
    "volcano",
    (VOLCANO_CRON_JOBS, JOB_FLOWS, JOB_TEMPLATES),
    frozenset({"volcano-controllers"}),
    ("vc-controller-manager",),
    _volcano,
)
"""Kinds that create Volcano Jobs. Windlass keeps the jobs themselves in every cluster without Volcano."""

TRAINER = KindFamily(
    "trainer",
    (TRAIN_JOBS, TRAINING_RUNTIMES, CLUSTER_TRAINING_RUNTIMES),
    frozenset({"kubeflow-trainer-controller-manager"}),
    ("trainer-controller-manager",),
    lambda context: [
        TrainJobController(context.client, context.informers, context.clock),
        AttemptController(TRAINER_ATTEMPTS, context.informers, context.clock),
    ],
)

RAY = KindFamily(
    "ray",
    (RAY_CLUSTERS, RAY_JOBS, RAY_SERVICES, RAY_CRON_JOBS),
    frozenset({"kuberay-operator"}),
    ("kuberay/operator",),
    lambda context: [
        RayClusterController(context.informers, context.clock, context.scheduler, roles=not context.embedded),
        RayJobController(context.informers, context.clock),
        RayServiceController(context.informers, context.clock),
        RayCronJobController(context.informers, context.clock),
        AttemptController(RAY_ATTEMPTS, context.informers, context.clock),
    ],
)

LEADER_WORKER_SET = KindFamily(
    "leaderworkerset",
    (LEADER_WORKER_SETS,),
    frozenset({"lws-controller-manager"}),
    ("lws/lws",),
    lambda context: [
        LeaderWorkerSetController(
            context.informers, context.clock, "" if context.embedded else context.scheduler
        )
    ],
)

AIGC = KindFamily(
    "aigc",
    (AIGC_JOBS,),
    frozenset(),
    (),
    lambda context: [
        AigcJobController(
            context.client,
            context.informers,
            context.clock,
            context.scheduler,
            driver_of(context.machine),
            platform_of(context.machine, context.outputs),
        ),
        AigcScalingController(context.client, context.informers, context.clock, driver_of(context.machine)),
        AttemptController(AIGC_ATTEMPTS, context.informers, context.clock),
    ],
)
"""Kinds of Windlass alone: no other operator has them."""


MODELS = KindFamily(
    "models",
    (MODEL_CACHES,),
    frozenset(),
    (),
    lambda context: [ModelPreloadController(context.informers, agents=not context.embedded)],
)
"""Models of waiting AIGCJobs."""


def _workflows(kind: Resource) -> Callable[[FamilyContext], list[Reconciler]]:
    def reconcilers(context: FamilyContext) -> list[Reconciler]:
        templates = context.embedded or kind is WORKFLOWS
        return [
            WorkflowController(
                kind,
                context.client,
                context.informers,
                context.clock,
                LockTable(),
                templates=templates,
                scheduler="" if context.embedded else context.scheduler,
            )
        ]

    return reconcilers


ARGO = KindFamily(
    "argo",
    (WORKFLOWS, WORKFLOW_TEMPLATES, CLUSTER_WORKFLOW_TEMPLATES, CRON_WORKFLOWS),
    frozenset({"workflow-controller", "argo-workflows-workflow-controller"}),
    ("argoproj/workflow-controller", "workflow-controller"),
    lambda context: [
        *_workflows(WORKFLOWS)(context),
        CronWorkflowController(context.informers, context.clock),
    ],
)

AIGC_WORKFLOW = KindFamily(
    "aigcworkflow",
    (AIGC_WORKFLOWS,),
    frozenset(),
    (),
    _workflows(AIGC_WORKFLOWS),
)

FAMILIES: tuple[KindFamily, ...] = (
    KUBEFLOW,
    MPI,
    VOLCANO,
    JOBSET,
    TRAINER,
    RAY,
    LEADER_WORKER_SET,
    AIGC,
    MODELS,
    ARGO,
    AIGC_WORKFLOW,
)


def family_of(kind: Resource) -> KindFamily | None:
    """Return the family of a kind."""
    return next((family for family in FAMILIES if kind in family.kinds), None)
