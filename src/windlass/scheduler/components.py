"""Whom and what the parts of one scheduler share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from windlass.client.recorder import EventRecorder
from windlass.engine import deltas
from windlass.kits.clock import Clock
from windlass.kits.tasks import Keeper
from windlass.model.cluster.cluster_model import ClusterModel
from windlass.model.cluster.node_usage import Ledger
from windlass.observe.scheduling import SchedulerMetrics
from windlass.scheduler.autoscaling.provisioning import NodeRequests
from windlass.scheduler.backpressure import Rush
from windlass.scheduler.commit.bind_guard import BindGuard
from windlass.scheduler.commit.binder import Binder
from windlass.scheduler.commit.conflict_detector import Contest
from windlass.scheduler.commit.evictor import Evictor
from windlass.scheduler.commit.gang_timeout import GangWatch
from windlass.scheduler.commit.yield_to_others import Courtesy
from windlass.scheduler.estimates.run_times import RunTimes
from windlass.scheduler.estimates.start_estimates import StartEstimates
from windlass.scheduler.observability.group_counters import Milestones
from windlass.scheduler.observability.traces import Journeys
from windlass.scheduler.options import SchedulerOptions
from windlass.scheduler.status.event_buffer import Announcer
from windlass.scheduler.status.status_writer import Publisher


@dataclass(slots=True)
class Crew:
    """``time()``: Unix seconds that never run backwards. ``options()``: those in force. ``wake()``: have a cycle soon.
    ``leads`` is set once this one decides, ``takes_over`` until it has taken in what others had begun. ``inbox``:
    what the engine is told in the next cycle besides the model's changes."""

    clock: Clock
    time: Callable[[], float]
    options: Callable[[], SchedulerOptions]
    wake: Callable[[], None]
    leads: asyncio.Event
    keeper: Keeper
    model: ClusterModel
    ledger: Ledger
    metrics: SchedulerMetrics
    recorder: EventRecorder
    contest: Contest
    courtesy: Courtesy
    guard: BindGuard | None
    gangs: GangWatch
    run_times: RunTimes
    journeys: Journeys | None
    milestones: Milestones
    binder: Binder
    evictor: Evictor
    announcer: Announcer
    publisher: Publisher
    nodes: NodeRequests
    rush: Rush
    starts: StartEstimates
    takes_over: bool = True
    inbox: list[deltas.Delta] = field(default_factory=list)
