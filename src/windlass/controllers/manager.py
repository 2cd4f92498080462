"""Reconcilers of one control plane, on one set of informers.

On a real cluster kube-controller-manager reconciles namespaces, garbage, quota,
disruption budgets and nodes. The embedded server has none, so Windlass does
(``embedded=True``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from prometheus_client import CollectorRegistry

from windlass.api.annotations import SCHEDULER_NAMES
from windlass.client.client import Client
from windlass.client.informers import SharedInformers
from windlass.client.recorder import EventRecorder
from windlass.controllers.adoption.controller import AdoptionController
from windlass.controllers.aigc.platform import ClusterOutputs, OwnMachine
from windlass.controllers.apps.catalogue import apps_controllers
from windlass.controllers.attempts.controller import AttemptController
from windlass.controllers.attempts.kinds import BATCH_ATTEMPTS, VOLCANO_ATTEMPTS
from windlass.controllers.batch.controller import BatchJobController
from windlass.controllers.cronjob.controller import CronJobController
from windlass.controllers.definitions.controller import DefinitionController
from windlass.controllers.deviceclaims.controller import DeviceClaimController
from windlass.controllers.disruption.controller import DisruptionController
from windlass.controllers.garbage.controller import GarbageController
from windlass.controllers.gputier.controller import GpuTierController
from windlass.controllers.job_kinds.families import FAMILIES, FamilyContext
from windlass.controllers.job_kinds.operation import AUTO, JobKindOperation
from windlass.controllers.metrics import ControllerMetrics
from windlass.controllers.namespace.controller import NamespaceController
from windlass.controllers.nodehealth.controller import NodeHealthController
from windlass.controllers.nodenotices.controller import NodeNoticeController
from windlass.controllers.normalising.controller import NormalisingController
from windlass.controllers.podgroup.controller import PodGroupController
from windlass.controllers.priorityclasses.controller import PriorityClassController
from windlass.controllers.progress.injection import adjusted
from windlass.controllers.queue.controller import QueueController
from windlass.controllers.quota.controller import QuotaController
from windlass.controllers.runner import Reconciler, ReconcilerRunner, RunnerContext
from windlass.controllers.services.controller import EndpointsController
from windlass.controllers.storage.controller import ClaimController, VolumeController
from windlass.controllers.trainer.runtimes import TrainingRuntimeController
from windlass.controllers.vcjob.controller import JobController
from windlass.controllers.vcjob.spec import DEFAULT_SCHEDULER
from windlass.jobs.progress_access import ProgressAccess
from windlass.kits.clock import Clock
from windlass.kits.rng import Random
from windlass.model.cluster.ownership import VOLCANO, OtherScheduler
from windlass.observe.tracing import Exporter

COMPONENT = "windlass-controllers"


class ControllerManager:
    """Reconcilers of one process, with their runners.

    ``informers`` are those of the process, which another component runs, or ``None``
    for own ones. They must not have been started before: otherwise the manager opens
    its own watches. ``registry`` receives the metrics of ``controllers.metrics``.
    """

    def __init__(
        self,
        client: Client,
        *,
        clock: Clock,
        rng: Random,
        embedded: bool,
        informers: SharedInformers | None = None,
        registry: CollectorRegistry | None = None,
        other_schedulers: Collection[OtherScheduler] = (),
        workers: int = 4,
        exporter: Exporter | None = None,
        job_kinds: Collection[str] = (AUTO,),
        machine: OwnMachine | None = None,
        outputs: ClusterOutputs | None = None,
    ) -> None:
        """``other_schedulers``: schedulers that still run.

        With Volcano among them its own controllers keep jobs, groups and queues.
        ``workers``: number of workers per controller.
        ``exporter``: receives spans of jobs.
        ``job_kinds``: setting ``controllers.jobKinds``, which matters in a cluster only.
        ``machine``: the machine of single-node mode.
        ``outputs``: place for outputs of generation jobs in a cluster.
        """
        self._own_informers = informers is None
        self.informers = informers or SharedInformers(client, clock, rng)
        self.recorder = EventRecorder(client, COMPONENT, clock, rng)
        metrics = ControllerMetrics(registry or CollectorRegistry())
        self.progress_access: ProgressAccess | None = None
        """Endpoint to which the pods of jobs report progress, once it is served in a cluster."""
        context = RunnerContext(
            client,
            self.recorder,
            clock,
            rng,
            metrics,
            lambda effects: adjusted(effects, self.progress_access),
        )
        self._workers = workers

        def start(reconciler: Reconciler) -> ReconcilerRunner:
            return ReconcilerRunner(reconciler, context, workers=self._workers)

        found = _reconcilers(
            client, self.informers, clock, rng, embedded, other_schedulers, exporter, metrics, machine
        )
        self.runners = {reconciler.name: start(reconciler) for reconciler in found}
        self.job_kinds: JobKindOperation | None = None
        if not embedded:
            family = FamilyContext(client, self.informers, clock, SCHEDULER_NAMES[0], outputs=outputs)
            self.job_kinds = JobKindOperation(client, family, clock, start, setting=job_kinds)

    @property
    def synced(self) -> bool:
        """Return whether the caches of all reconcilers are synced."""
        return self.informers.synced

    def set_workers(self, workers: int) -> None:
        """Set the number of keys that each controller reconciles concurrently."""
        self._workers = workers
        for runner in (*self.runners.values(), *(self.job_kinds.running if self.job_kinds else ())):
            runner.set_workers(workers)

    async def run(self) -> None:
        """Work until cancelled.

        Raises, in an exception group, errors that do not belong to a single key.
        """
        async with asyncio.TaskGroup() as group:
            group.create_task(self.recorder.run(), name="controller events")
            if self._own_informers:
                group.create_task(self.informers.run(), name="controller informers")
            for runner in self.runners.values():
                group.create_task(runner.run(), name=f"controller {runner.name}")
            if self.job_kinds is not None:
                group.create_task(self.job_kinds.run(), name="controllers of job kinds")


def owner_schedulers(*, embedded: bool, beside: Collection[str]) -> tuple[str, ...]:
    """Return the scheduler names of pods that are grouped by their top owner.

    ``beside``: kinds of schedulers that still run. Volcano groups the pods of its own name.
    """
    if embedded:
        return (SCHEDULER_NAMES[0], "volcano", "default-scheduler")
    return SCHEDULER_NAMES[:1] if VOLCANO in beside else (SCHEDULER_NAMES[0], "volcano")


def _reconcilers(
    client: Client,
    informers: SharedInformers,
    clock: Clock,
    rng: Random,
    embedded: bool,
    other_schedulers: Collection[OtherScheduler],
    exporter: Exporter | None,
    metrics: ControllerMetrics,
    machine: OwnMachine | None = None,
) -> list[Reconciler]:
    kinds = [scheduler.kind for scheduler in other_schedulers]
    by_owner = owner_schedulers(embedded=embedded, beside=kinds)
    if VOLCANO in kinds:
        return [
            AdoptionController(client, informers, other_schedulers=kinds),
            PodGroupController(client, informers, clock, owner_schedulers=by_owner, volcano_pods=False),
        ]
    # The embedded server serves every scheduler name. In a cluster "volcano" is
    # Volcano's, unless Windlass is configured to serve it.
    placed_by = DEFAULT_SCHEDULER if embedded else SCHEDULER_NAMES[0]
    reconcilers: list[Reconciler] = [
        QueueController(informers),
        PodGroupController(client, informers, clock, owner_schedulers=by_owner),
        JobController(client, informers, clock, exporter, placed_by),
        GpuTierController(informers),
        AttemptController(VOLCANO_ATTEMPTS, informers, clock),
    ]
    if not embedded:
        reconcilers += [
            AdoptionController(client, informers, other_schedulers=kinds),
            NormalisingController(client, informers, clock),
        ]
    if embedded:
        context = FamilyContext(client, informers, clock, placed_by, embedded=True, machine=machine)
        reconcilers += [
            *(reconciler for family in FAMILIES for reconciler in family.reconcilers(context)),
            *apps_controllers(informers, clock, rng),
            BatchJobController(informers, clock, rng),
            AttemptController(BATCH_ATTEMPTS, informers, clock),
            CronJobController(informers, clock),
            PriorityClassController(informers),
            TrainingRuntimeController(informers),
            DeviceClaimController(client, informers),
            DefinitionController(client, informers, clock),
            NamespaceController(client, informers, clock),
            GarbageController(client, informers),
            EndpointsController(informers),
            ClaimController(informers),
            VolumeController(informers),
            QuotaController(client, informers, clock),
            DisruptionController(client, informers, clock),
            NodeHealthController(client, informers, clock),
            NodeNoticeController(client, informers, clock, metrics),
        ]
    return reconcilers
