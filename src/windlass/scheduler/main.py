"""``windlass scheduler``: the scheduler as a process of its own, for any API server.

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
from windlass.kits import gc_tuning
from windlass.kits import rng as randomness
from windlass.kits.clock import Clock, SystemClock
from windlass.kits.rng import Random
from windlass.kits.tasks import run_event_loop, until_first
from windlass.observe import logs, metrics, tracing
from windlass.observe.endpoint import Endpoint, not_ready, parse_address
from windlass.scheduler.commit.bind_webhook import GuardServer
from windlass.scheduler.compat_metrics.registry import CompatMetrics
from windlass.scheduler.configuration import ConfigFile
from windlass.scheduler.leader.election import LeaderLost, LeaseOptions
from windlass.scheduler.leader.leader_label import LeaderLabel
from windlass.scheduler.leader.lease_thread import LeaseThread
from windlass.scheduler.options import SchedulerOptions
from windlass.scheduler.service import SchedulerService

log = logs.get("scheduler")
SETTLE_SECONDS = 5.0
"""Delay in seconds of the exclusion of synced objects from garbage collection."""
DRAIN_SECONDS = 4.0
"""Timeout in seconds of writing what was decided before the process stops."""


@dataclass(frozen=True, slots=True)
class ProcessContext:
    """Objects for companions of the scheduler.

    ``leads``: set once this instance decides.
    """

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
"""Other work of the process.

It is called before anything runs, and its coroutine runs to the end.
"""


@dataclass(frozen=True, slots=True)
class ProcessOptions:
    """Options of the process.

    ``metrics_bind``, ``bind_guard``: ``HOST:PORT``, empty for none.
    ``metrics_details``: what is exported one by one
    (:data:`windlass.scheduler.compat_metrics.families.DETAILS`).
    ``metrics_names``: optional names
    (:data:`windlass.scheduler.compat_metrics.registry.OPTIONAL`).
    ``config``: configuration file to follow.
    ``environment``: where OpenTelemetry's variables are read from.
    ``bind_guard_secret``: directory with ``tls.crt``, ``tls.key`` and ``token``.
    ``own_pod``: pod of this process, in the lease's namespace. It is labeled while it
    leads.
    """

    kubeconfig: str | None = None
    context: str | None = None
    metrics_bind: str = ""
    metrics_details: tuple[str, ...] = ()
    metrics_names: tuple[str, ...] = ()
    leader_elect: bool = False
    config: str = ""
    log_format: str = "text"
    log_level: str = "info"
    otlp_endpoint: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    bind_guard: str = ""
    bind_guard_secret: str = ""
    own_pod: str = ""
    companions: tuple[Companion, ...] = ()
    lease: LeaseOptions = field(default_factory=LeaseOptions)
    scheduler: SchedulerOptions = field(default_factory=SchedulerOptions)


def run(options: ProcessOptions) -> int:
    """Serve until a signal, and return the exit status.

    Raises :class:`WindlassError`.
    """
    logs.configure(style=options.log_format, level=options.log_level)
    run_event_loop(serve(options))
    return 0


async def serve(options: ProcessOptions) -> None:
    """Serve until a signal.

    Raises ``WindlassError`` (configuration, lost leadership).
    """
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
    context = ProcessContext(
        connection, client, informers, clock, rng, registry, service, election, asyncio.Event(), exporter
    )
    service.metrics.clock_ahead.set_function(lambda: election.ahead)
    CompatMetrics(registry, service.sources(options.metrics_details), options.metrics_names)
    await _serve(options, context, file)


async def _serve(options: ProcessOptions, context: ProcessContext, file: ConfigFile | None) -> None:
    """Run the endpoints and the work until a signal."""
    service, election = context.service, context.election
    endpoint = Endpoint(
        context.registry,
        lambda: not_ready(service.ready.is_set() or election.standing_by, context.informers.unsynced()),
    )
    if options.metrics_bind:
        await endpoint.start(*parse_address(options.metrics_bind))
    label = LeaderLabel(
        context.client, options.own_pod, options.lease.namespace, clock=context.clock, rng=context.rng
    )
    guard = None
    if options.bind_guard:
        guard = GuardServer(service.webhook().evaluate, Path(options.bind_guard_secret))
        await guard.start(*parse_address(options.bind_guard))
    stopped = _stop_signal()
    gc_tuning.tune_for_long_lived_objects()
    companions = [companion(context) for companion in options.companions]
    try:
        work = _work(context, options.leader_elect, label, file, companions)
        await _run_until(stopped, service, work)
    finally:
        await asyncio.gather(endpoint.stop(), *([guard.stop()] if guard is not None else []))
        if options.leader_elect:
            await election.leave()
        await context.client.close()
        if context.exporter is not None:
            await asyncio.to_thread(context.exporter.close)


async def _work(
    context: ProcessContext,
    elect: bool,
    label: LeaderLabel,
    file: ConfigFile | None,
    companions: list[Coroutine[Any, Any, None]],
) -> None:
    """Run everything.

    An instance that stands by follows the cluster, and leads without a delay.
    """
    service = context.service
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(context.informers.run(), name="informers")
            group.create_task(service.run(), name="scheduler")
            for companion in companions:
                group.create_task(companion, name="companion")
            group.create_task(freeze_after_sync(service, context.clock), name="memory")
            if file is not None:
                group.create_task(file.run(service.use), name="configuration")
            if elect:
                group.create_task(label.write(leads=False), name="label of an earlier process")
                group.create_task(_lead_when_elected(context, label), name="lease")
            else:
                context.leads.set()
                service.metrics.leader.set(1)
                await label.write(leads=True)
    except* LeaderLost as lost:
        raise lost.exceptions[0] from None
    finally:
        service.metrics.leader.set(0)


async def freeze_after_sync(service: SchedulerService, clock: Clock) -> None:
    """Exclude the initial cluster state from garbage collection, once the first binds are sent.

    A collection of a large cluster's objects takes a second.
    """
    await service.ready.wait()
    await clock.sleep(SETTLE_SECONDS)
    gc_tuning.tune_for_long_lived_objects()


async def _lead_when_elected(context: ProcessContext, label: LeaderLabel) -> None:
    service, election = context.service, context.election
    await election.acquire()
    service.metrics.leader.set(1)
    service.lead(election.holds_lease, election.ahead)
    context.leads.set()
    labeling = asyncio.create_task(label.write(leads=True), name="label")
    try:
        await election.hold()
    finally:
        labeling.cancel()


async def _run_until(
    stopped: asyncio.Event, service: SchedulerService, work: Coroutine[Any, Any, None]
) -> None:
    """Run ``work`` until it ends, or until a signal and the drain that follows."""

    async def drain_when_stopped() -> None:
        await stopped.wait()
        await service.drain(DRAIN_SECONDS)

    await until_first(work, drain_when_stopped())


def _stop_signal() -> asyncio.Event:
    """Return an event that is set by SIGINT or SIGTERM."""
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    return stopped
