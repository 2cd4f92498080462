"""Whom and what the parts of one scheduler share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from windlass.client.recorder import EventRecorder
from windlass.engine import deltas
from windlass.kits.clock import Clock
from windlass.kits.tasks import TaskGroup
from windlass.model.cluster.cluster_model import ClusterModel
from windlass.model.cluster.node_usage import NodeUsage
from windlass.observe.scheduling import SchedulerMetrics
from windlass.scheduler.autoscaling.provisioning import ProvisioningRequests
from windlass.scheduler.backpressure import Backpressure
from windlass.scheduler.commit.bind_guard import BindGuard
from windlass.scheduler.commit.binder import Binder
from windlass.scheduler.commit.conflict_detector import BindConflicts
from windlass.scheduler.commit.evictor import Evictor
from windlass.scheduler.commit.gang_timeout import GangWatch
from windlass.scheduler.commit.yield_to_others import YieldToOthers
from windlass.scheduler.estimates.run_times import LearnedRunTimes
from windlass.scheduler.estimates.start_estimates import StartEstimates
from windlass.scheduler.observability.group_counters import GroupCounters
from windlass.scheduler.observability.traces import SchedulingTraces
from windlass.scheduler.options import SchedulerOptions
from windlass.scheduler.status.event_buffer import EventBuffer
from windlass.scheduler.status.status_writer import StatusWriter


@dataclass(slots=True)
class SchedulerComponents:
    """``time()``: Unix seconds that never run backwards. ``options()``: those in force. ``wake()``: have a cycle soon.
    ``leads`` is set once this one decides, ``takes_over`` until it has taken in what others had begun. ``inbox``:
    what the engine is told in the next cycle besides the model's changes."""

    clock: Clock
    time: Callable[[], float]
    options: Callable[[], SchedulerOptions]
    wake: Callable[[], None]
    leads: asyncio.Event
    task_group: TaskGroup
    model: ClusterModel
    ledger: NodeUsage
    metrics: SchedulerMetrics
    recorder: EventRecorder
    conflicts: BindConflicts
    yield_to_others: YieldToOthers
    guard: BindGuard | None
    gangs: GangWatch
    run_times: LearnedRunTimes
    traces: SchedulingTraces | None
    group_counters: GroupCounters
    binder: Binder
    evictor: Evictor
    event_buffer: EventBuffer
    status_writer: StatusWriter
    nodes: ProvisioningRequests
    backpressure: Backpressure
    starts: StartEstimates
    takes_over: bool = True
    inbox: list[deltas.Delta] = field(default_factory=list)
