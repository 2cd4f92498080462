"""``windlass scheduler``: the scheduler alone, against any API server.

``run(ProcessOptions(...))`` serves until SIGINT or SIGTERM and returns the exit code.
"""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry

from windlass.client import kubeconfig
from windlass.client.client import Client
from windlass.client.connection import Connection
from windlass.client.http import HttpTransport
from windlass.client.informers import SharedInformers
from windlass.kits import event_loop, gc_tuning
from windlass.kits import rng as randomness
from windlass.kits.clock import Clock, SystemClock
from windlass.kits.rng import Random
from windlass.observe import logs, metrics, tracing
from windlass.observe.endpoint import Endpoint, not_ready, parse_address
from windlass.scheduler.commit.bind_webhook import GuardServer, Mark
from windlass.scheduler.compat_metrics.registry import FieldMetrics
from windlass.scheduler.configuration import ConfigFile
from windlass.scheduler.leader.election import LeaderLost, LeaseOptions
from windlass.scheduler.leader.lease_thread import LeaseThread
from windlass.scheduler.options import SchedulerOptions
from windlass.scheduler.service import SchedulerService

log = logs.get("scheduler")
SETTLE_SECONDS = 5.0
"""So long after a cluster has been read what comes first is done."""
WIND_DOWN_SECONDS = 4.0
"""So long may what was decided take to be bound and told when the process is asked to end."""


@dataclass(frozen=True, slots=True)
class ProcessContext:
    """What the process has, for whoever rides along. ``leads``: set once this instance decides."""

    connection: Connection
    client: Client
    informers: SharedInformers
    clock: Clock
    rng: Random
    registry: CollectorRegistry
    service: SchedulerService
    election: LeaseThread
    leads: asyncio.Event
    exporter: tracing.Exporter | None = None


Companion = Callable[[ProcessContext], Coroutine[Any, Any, None]]
"""Work beside the scheduler's. Called before anything runs; what it returns runs as long as the process."""


@dataclass(frozen=True, slots=True)
class ProcessOptions:
    """``metrics_bind`` ``HOST:PORT``, empty for none. ``config``: a scheduler configuration to follow."""

    kubeconfig: str | None = None
    context: str | None = None
    metrics_bind: str = ""
    metrics_details: tuple[str, ...] = ()
    """What is told one by one (:data:`windlass.scheduler.compat_metrics.families.DETAILS`)."""
    leader_elect: bool = False
    config: str = ""
    log_format: str = "text"
    log_level: str = "info"
    otlp_endpoint: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Where OpenTelemetry's variables are read from."""
    bind_guard: str = ""
    """``HOST:PORT``, empty for none."""
    bind_guard_secret: str = ""
    """A folder with ``tls.crt``, ``tls.key`` and ``token``."""
    own_pod: str = ""
    """The pod in which this runs, in the lease's namespace: marked while it leads."""
    companions: tuple[Companion, ...] = ()
    lease: LeaseOptions = field(default_factory=LeaseOptions)
    scheduler: SchedulerOptions = field(default_factory=SchedulerOptions)


def run(options: ProcessOptions) -> int:
    """Serve until told to stop; the exit status. Raises :class:`WindlassError`."""
    logs.configure(style=options.log_format, level=options.log_level)
    event_loop.run(serve(options))
    return 0


async def serve(options: ProcessOptions) -> None:
    """The process's body. Raises ``WindlassError`` (configuration, lost leadership)."""
    clock, rng = SystemClock(), randomness.system()
    scheduling = options.scheduler
    registry = metrics.registry()
    file = ConfigFile(options.config, clock, registry) if options.config else None
    if file is not None:
        scheduling = replace(scheduling, policy=file.start())
    connection = kubeconfig.load(options.kubeconfig, options.context)
    client = Client(HttpTransport(connection), user_agent="windlass-scheduler", clock=clock, rng=rng)
    identity = f"{socket.gethostname()}_{randomness.uid(rng)}"
    exporter = tracing.exporter(options.otlp_endpoint, options.environment, "windlass-scheduler", identity)
    informers = SharedInformers(client, clock, rng)
    service = SchedulerService(
        client,
        clock=clock,
        rng=rng,
        options=scheduling,
        informers=informers,
        registry=registry,
        stands_by=options.leader_elect,
        exporter=exporter,
    )
    election = LeaseThread(
        connection, identity, user_agent="windlass-scheduler", clock=clock, options=options.lease
    )
    process = ProcessContext(
        connection, client, informers, clock, rng, registry, service, election, asyncio.Event(), exporter
    )
    service.metrics.clock_ahead.set_function(lambda: election.ahead)
    FieldMetrics(registry, service.sources(options.metrics_details))
    endpoint = Endpoint(
        registry, lambda: not_ready(service.ready.is_set() or election.standing_by, informers.unsynced())
    )
    if options.metrics_bind:
        await endpoint.start(*parse_address(options.metrics_bind))
    mark = Mark(client, options.own_pod, options.lease.namespace, clock=clock, rng=rng)
    guard = (
        GuardServer(service.questions().judge, Path(options.bind_guard_secret))
        if options.bind_guard
        else None
    )
    if guard is not None:
        await guard.start(*parse_address(options.bind_guard))
    stopped = _stop_signal()
    gc_tuning.expect_long_lives()
    beside = [companion(process) for companion in options.companions]
    try:
        await _until(stopped, service, _lead(process, options.leader_elect, mark, file, beside))
    finally:
        await endpoint.stop()
        if guard is not None:
            await guard.stop()
        if options.leader_elect:
            await election.leave()
        await client.close()
        if exporter is not None:
            await asyncio.to_thread(exporter.close)


async def _lead(
    process: ProcessContext,
    elect: bool,
    mark: Mark,
    file: ConfigFile | None,
    beside: list[Coroutine[Any, Any, None]],
) -> None:
    """Follow the cluster from the start, so that whoever comes to lead need not read it first."""
    service = process.service
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(process.informers.run(), name="informers")
            group.create_task(service.run(), name="scheduler")
            for work in beside:
                group.create_task(work, name="companion")
            group.create_task(set_aside_once_read(service, process.clock), name="memory")
            if file is not None:
                group.create_task(file.run(service.use), name="configuration")
            if elect:
                group.create_task(mark.write(leads=False), name="mark of a former life")
                group.create_task(_elected(process, mark), name="lease")
            else:
                process.leads.set()
                service.metrics.leader.set(1)
                await mark.write(leads=True)
    except* LeaderLost as lost:
        raise lost.exceptions[0] from None
    finally:
        service.metrics.leader.set(0)


async def set_aside_once_read(service: SchedulerService, clock: Clock) -> None:
    """Have the collector look no more at the cluster as it was found, once the first binds are out: a look at a large
    one takes a second."""
    await service.ready.wait()
    await clock.sleep(SETTLE_SECONDS)
    gc_tuning.expect_long_lives()


async def _elected(process: ProcessContext, mark: Mark) -> None:
    service, election = process.service, process.election
    await election.acquire()
    service.metrics.leader.set(1)
    service.lead(lambda: election.sure, election.ahead)
    process.leads.set()
    marking = asyncio.create_task(mark.write(leads=True), name="mark")
    try:
        await election.hold()
    finally:
        marking.cancel()


async def _until(stopped: asyncio.Event, service: SchedulerService, work: Coroutine[Any, Any, None]) -> None:
    async def asked_to_end() -> None:
        await stopped.wait()
        await service.wind_down(WIND_DOWN_SECONDS)

    task = asyncio.ensure_future(work)
    stop = asyncio.ensure_future(asked_to_end())
    try:
        done, _ = await asyncio.wait({task, stop}, return_when=asyncio.FIRST_COMPLETED)
        for one in done:
            one.result()
    finally:
        for one in (task, stop):
            one.cancel()
        await asyncio.gather(task, stop, return_exceptions=True)


def _stop_signal() -> asyncio.Event:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    return stopped
