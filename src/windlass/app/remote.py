"""Scheduler or controllers as a separate process, against the API server of a kubeconfig."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import Awaitable
from types import TracebackType

from windlass.api.error_codes import exit_status_of
from windlass.api.errors import WindlassError
from windlass.app.options import RemoteOptions
from windlass.app.progress import tell
from windlass.kits.tasks import run_event_loop, until_first
from windlass.observe import logs


def run_remote(options: RemoteOptions) -> int:
    """Serve until stopped and return the exit status.

    With a JSON log the reason for the end is a log line, so that log collectors can
    parse it, too.
    """
    sys.excepthook = _tell_defect
    try:
        return _scheduler(options) if options.role == "scheduler" else _controller(options)
    except WindlassError as error:
        if logs.in_json() and not options.errors_as_json:
            details = {"code": error.code, "why": error.evidence, "remedies": error.remedies}
            _log.error(error.message, **{name: value for name, value in details.items() if value})
        else:
            tell(error, as_json=options.errors_as_json)
        return exit_status_of(error.code)


def _tell_defect(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if logs.in_json():
        _log.exception("ended by a defect", error)
    else:
        sys.__excepthook__(kind, error, trace)


_log = logs.get("process")


def _scheduler(options: RemoteOptions) -> int:
    from windlass.app import scheduler_extras
    from windlass.scheduler.main import ProcessOptions, run
    from windlass.scheduler.options import SchedulerOptions

    return run(
        ProcessOptions(
            kubeconfig=str(options.kubeconfig) if options.kubeconfig else None,
            context=options.context,
            metrics_bind=options.metrics,
            metrics_details=options.metrics_details,
            metrics_names=options.metrics_names,
            leader_elect=options.leader_elect,
            config=str(options.config) if options.config else "",
            log_format=options.log_format,
            log_level=options.log_level,
            otlp_endpoint=options.otlp_endpoint,
            environment=os.environ,
            lease=scheduler_extras.lease_of(options, "windlass-scheduler"),
            companions=scheduler_extras.of_scheduler(options),
            scheduler=SchedulerOptions(
                **scheduler_extras.times_of(options.values),
                scheduler_names=options.scheduler_names,
                own_namespace=options.own_namespace,
                other_schedulers=options.beside,
                wait_for_group=options.wait_for_group,
                wait_for_owner=scheduler_extras.owner_schedulers_of(options),
                bind_guard=bool(options.bind_guard),
                reservation_pods=scheduler_extras.reservation_pod_options(options.values),
            ),
            bind_guard=options.bind_guard,
            bind_guard_secret=options.bind_guard_secret,
            own_pod=options.own_pod,
        )
    )


def _controller(options: RemoteOptions) -> int:
    logs.configure(style=options.log_format, level=options.log_level)
    run_event_loop(_control(options))
    return 0


async def run_with(follow: Awaitable[None] | None, work: Awaitable[None]) -> None:
    """Run ``work``, and ``follow`` while it runs; raise what either raises."""
    if follow is None:
        return await work
    await until_first(work, follow)


async def _control(options: RemoteOptions) -> None:
    from windlass.app import scheduler_extras
    from windlass.app.children import until_signal
    from windlass.app.progress_endpoint import ProgressService
    from windlass.client import kubeconfig
    from windlass.client.client import Client
    from windlass.client.http import HttpTransport
    from windlass.controllers.manager import ControllerManager
    from windlass.kits import gc_tuning
    from windlass.kits import rng as chance
    from windlass.kits.clock import SystemClock
    from windlass.observe import metrics, tracing
    from windlass.observe.endpoint import Endpoint, not_ready, parse_address
    from windlass.scheduler.leader.lease_thread import LeaseThread

    clock, rng = SystemClock(), chance.system()
    path = str(options.kubeconfig) if options.kubeconfig else None
    connection = kubeconfig.load(path, options.context)
    client = Client(HttpTransport(connection), user_agent="windlass-controllers", clock=clock, rng=rng)
    registry = metrics.registry()
    identity = f"{socket.gethostname()}_{chance.uid(rng)}"
    exporter = tracing.exporter(options.otlp_endpoint, os.environ, "windlass-controllers", identity)
    manager = ControllerManager(
        client,
        clock=clock,
        rng=rng,
        embedded=False,
        registry=registry,
        other_schedulers=options.beside,
        workers=scheduler_extras.workers_of(options.values),
        job_kinds=scheduler_extras.job_kinds_of(options.values),
        outputs=scheduler_extras.outputs_of(options.values),
        exporter=exporter,
    )
    lease = scheduler_extras.lease_of(options, scheduler_extras.CONTROLLERS_LEASE)
    gc_tuning.tune_for_long_lived_objects()
    election = LeaseThread(
        connection, identity, user_agent="windlass-controllers", clock=clock, options=lease
    )
    endpoint = Endpoint(
        registry, lambda: not_ready(manager.synced or election.standing_by, manager.informers.unsynced())
    )
    if options.metrics:
        await endpoint.start(*parse_address(options.metrics))

    follow = scheduler_extras.controllers_follower(options, manager, election, clock, registry)

    progress = ProgressService(options, client, manager, clock)

    async def work() -> None:
        await (election.lead(manager.run, "controllers") if options.leader_elect else manager.run())

    try:
        await until_signal(run_with(follow, progress.beside(work)))
    finally:
        await endpoint.stop()
        await client.close()
        if exporter is not None:
            await asyncio.to_thread(exporter.close)
