"""All reconcilers of one control plane, on one set of informers.

On a real cluster kube-controller-manager looks after namespaces, garbage, quota, disruption budgets and
nodes; embedded, Windlass does (``embedded=True``).
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
from windlass.controllers.deviceclaims.controller import DeviceClaimController
from windlass.controllers.disruption.controller import DisruptionController
from windlass.controllers.garbage.controller import GarbageController
from windlass.controllers.gputier.controller import GpuTierController
from windlass.controllers.metrics import ControllerMetrics
from windlass.controllers.namespace.controller import NamespaceController
from windlass.controllers.nodehealth.controller import NodeHealthController
from windlass.controllers.normalising.controller import NormalisingController
from windlass.controllers.podgroup.controller import PodGroupController
from windlass.controllers.priorityclasses.controller import PriorityClassController
from windlass.controllers.queue.controller import QueueController
from windlass.controllers.quota.controller import QuotaController
from windlass.controllers.runner import Reconciler, ReconcilerRunner, RunnerContext
from windlass.controllers.vcjob.controller import JobController
from windlass.controllers.vcjob.spec import DEFAULT_SCHEDULER
from windlass.kits.clock import Clock
from windlass.kits.rng import Random
from windlass.model.cluster.ownership import VOLCANO, OtherScheduler
from windlass.observe.tracing import Exporter

COMPONENT = "windlass-controllers"


class ControllerManager:
    """Made once per process. ``informers``: those of the process, which somebody else runs; None: its own.

    The informers must not have been started when the manager is made, else it gets streams of its own.
    ``registry`` receives the figures of ``controllers.metrics``.
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
        beside: Collection[OtherScheduler] = (),
        workers: int = 4,
        exporter: Exporter | None = None,
    ) -> None:
        """``beside``: schedulers that still run; Volcano's controllers then keep jobs, groups and queues.
        ``workers``: of each. ``exporter``: takes spans of jobs."""
        self._own_informers = informers is None
        self.informers = informers or SharedInformers(client, clock, rng)
        self.recorder = EventRecorder(client, COMPONENT, clock, rng)
        metrics = ControllerMetrics(registry or CollectorRegistry())
        around = RunnerContext(client, self.recorder, clock, rng, metrics)
        self.runners = {
            reconciler.name: ReconcilerRunner(reconciler, around, workers=workers)
            for reconciler in _reconcilers(client, self.informers, clock, embedded, beside, exporter)
        }

    @property
    def synced(self) -> bool:
        """Whether all that the reconcilers look at is known."""
        return self.informers.synced

    def use_workers(self, workers: int) -> None:
        """So many keys of each controller are looked at side by side from now on."""
        for runner in self.runners.values():
            runner.use_workers(workers)

    async def run(self) -> None:
        """Work until cancelled. Raises (in an exception group) what no single key is to blame for."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.recorder.run(), name="controller events")
            if self._own_informers:
                group.create_task(self.informers.run(), name="controller informers")
            for runner in self.runners.values():
                group.create_task(runner.run(), name=f"controller {runner.name}")


def _reconcilers(
    client: Client,
    informers: SharedInformers,
    clock: Clock,
    embedded: bool,
    beside: Collection[OtherScheduler],
    exporter: Exporter | None,
) -> list[Reconciler]:
    kinds = [peer.kind for peer in beside]
    if VOLCANO in kinds:
        return [AdoptionController(client, informers, beside=kinds)]
    # A box serves every name; in a cluster "volcano" is Volcano's, unless Windlass was told to serve it too.
    placed_by = DEFAULT_SCHEDULER if embedded else SCHEDULER_NAMES[0]
    reconcilers: list[Reconciler] = [
        QueueController(informers),
        PodGroupController(client, informers),
        JobController(client, informers, clock, exporter, placed_by),
        GpuTierController(informers),
    ]
    if not embedded:
        reconcilers += [
            AdoptionController(client, informers, beside=kinds),
            NormalisingController(client, informers, clock),
        ]
    if embedded:
        reconcilers += [
            PriorityClassController(informers),
            DeviceClaimController(client, informers),
            NamespaceController(client, informers, clock),
            GarbageController(client, informers),
            QuotaController(client, informers, clock),
            DisruptionController(informers, clock),
            NodeHealthController(client, informers, clock),
        ]
    return reconcilers
