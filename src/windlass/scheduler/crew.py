"""Whom and what the parts of one scheduler share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from windlass.client.recorder import EventRecorder
from windlass.engine import deltas
from windlass.kits.clock import Clock
from windlass.model.cluster import ClusterModel
from windlass.model.ledger import Ledger
from windlass.observe.scheduling import SchedulerMetrics
from windlass.scheduler.announcer import Announcer
from windlass.scheduler.binder import Binder
from windlass.scheduler.contest import Contest
from windlass.scheduler.courtesy import Courtesy
from windlass.scheduler.evictor import Evictor
from windlass.scheduler.gangs import GangWatch
from windlass.scheduler.guard import BindGuard
from windlass.scheduler.journeys import Journeys
from windlass.scheduler.milestones import Milestones
from windlass.scheduler.nodesasked import NodeRequests
from windlass.scheduler.options import SchedulerOptions
from windlass.scheduler.publisher import Publisher
from windlass.scheduler.runtimes import RunTimes
from windlass.scheduler.rush import Rush
from windlass.scheduler.starts import StartEstimates
from windlass.scheduler.waiting import Keeper


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
