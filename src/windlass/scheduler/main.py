"""``windlass scheduler``: the scheduler alone, against any API server.

``run(ProcessOptions(...))`` serves until SIGINT or SIGTERM and returns the exit code.
"""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

from windlass.client import kubeconfig
from windlass.client.client import Client
from windlass.client.http import HttpTransport
from windlass.kits import garbage
from windlass.kits import rng as randomness
from windlass.kits.clock import SystemClock
from windlass.observe import logs, metrics, tracing
from windlass.observe.endpoint import Endpoint, parse_address
from windlass.scheduler.configuration import ConfigFile
from windlass.scheduler.leader import Election, LeaderLost, LeaseOptions
from windlass.scheduler.options import SchedulerOptions
from windlass.scheduler.service import SchedulerService

log = logs.get("scheduler")


@dataclass(frozen=True, slots=True)
class ProcessOptions:
    """``metrics_bind`` ``HOST:PORT``, empty for none. ``config``: a scheduler configuration to follow."""

    kubeconfig: str | None = None
    context: str | None = None
    metrics_bind: str = ""
    leader_elect: bool = False
    config: str = ""
    log_format: str = "text"
    log_level: str = "info"
    otlp_endpoint: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Where OpenTelemetry's variables are read from."""
    lease: LeaseOptions = field(default_factory=LeaseOptions)
    scheduler: SchedulerOptions = field(default_factory=SchedulerOptions)


def run(options: ProcessOptions) -> int:
    """Serve until told to stop; the exit status. Raises :class:`WindlassError`."""
    logs.configure(style=options.log_format, level=options.log_level)
    import uvloop

    uvloop.run(serve(options))
    return 0


async def serve(options: ProcessOptions) -> None:
    """The process's body. Raises ``WindlassError`` (configuration, lost leadership)."""
    clock, rng = SystemClock(), randomness.system()
    scheduling = options.scheduler
    file = ConfigFile(options.config, clock) if options.config else None
    if file is not None:
        scheduling = replace(scheduling, policy=file.start())
    connection = kubeconfig.load(options.kubeconfig, options.context)
    client = Client(HttpTransport(connection), user_agent="windlass-scheduler", clock=clock, rng=rng)
    registry = metrics.registry()
    identity = f"{socket.gethostname()}_{randomness.uid(rng)}"
    exporter = tracing.exporter(options.otlp_endpoint, options.environment, "windlass-scheduler", identity)
    service = SchedulerService(
        client,
        clock=clock,
        rng=rng,
        options=scheduling,
        registry=registry,
        stands_by=options.leader_elect,
        exporter=exporter,
    )
    election = Election(client, identity, clock=clock, rng=rng, options=options.lease)
    endpoint = Endpoint(registry, lambda: service.ready.is_set() or election.standing_by)
    if options.metrics_bind:
        await endpoint.start(*parse_address(options.metrics_bind))
    stopped = _stop_signal()
    garbage.expect_long_lives()
    try:
        await _until(stopped, _lead(service, election, options.leader_elect, file))
    finally:
        await endpoint.stop()
        if options.leader_elect:
            with suppress(TimeoutError):
                async with asyncio.timeout(5.0):
                    await election.release()
        await client.close()
        if exporter is not None:
            await asyncio.to_thread(exporter.close)


async def _lead(service: SchedulerService, election: Election, elect: bool, file: ConfigFile | None) -> None:
    """Follow the cluster from the start, so that whoever comes to lead need not read it first."""
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(service.run(), name="scheduler")
            group.create_task(set_aside_once_read(service), name="memory")
            if file is not None:
                group.create_task(file.run(service.use), name="configuration")
            if elect:
                group.create_task(_elected(service, election), name="lease")
            else:
                service.metrics.leader.set(1)
    except* LeaderLost as lost:
        raise lost.exceptions[0] from None
    finally:
        service.metrics.leader.set(0)


async def set_aside_once_read(service: SchedulerService) -> None:
    """Have the collector look no more at the cluster as it was found."""
    await service.ready.wait()
    garbage.expect_long_lives()


async def _elected(service: SchedulerService, election: Election) -> None:
    await election.acquire()
    service.metrics.leader.set(1)
    service.lead()
    await election.hold()


async def _until(stopped: asyncio.Event, work: object) -> None:
    task = asyncio.ensure_future(work)  # type: ignore[arg-type]
    stop = asyncio.ensure_future(stopped.wait())
    try:
        await asyncio.wait({task, stop}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()
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
