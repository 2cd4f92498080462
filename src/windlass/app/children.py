"""Programs of the three processes.

Each runs one asyncio program, stops in order on SIGTERM, and dies with the supervisor.
A failure that a retry cannot solve (such as a damaged database) is written to a file
for the supervisor and reported by the exit status ``EX_CONFIG``.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any

from windlass.api.errors import WindlassError
from windlass.app.failures import USELESS_TO_RETRY, failure_file
from windlass.app.options import ChildOptions
from windlass.app.sockets import bind_unix
from windlass.kits import gc_tuning, processes
from windlass.kits import rng as chance
from windlass.kits.clock import SystemClock
from windlass.kits.files import unlink_if_exists, write_atomic
from windlass.kits.tasks import run_event_loop
from windlass.observe import logs

if TYPE_CHECKING:
    from windlass.client.client import Client
    from windlass.controllers.aigc.platform import OwnMachine
    from windlass.scheduler.options import SchedulerOptions

STOP_GRACE_SECONDS = 10.0
"""Time (seconds) for pods to end on ``windlass down``; it also limits longer grace
periods of pods."""

_WORKERS = 32
"""Number of keys that each controller reconciles concurrently. A worker mostly waits for
the disk of the server, and writes of many workers share one commit."""

_STATUS_WRITES = 32
"""Maximum number of concurrent writes of status. They share commits, too."""

_DRAIN_SECONDS = 2.0
"""Timeout (seconds) for writing the scheduler's decisions."""


def run_child(options: ChildOptions) -> int:
    """Run the process named by ``options.role`` until it is stopped; return the exit status."""
    if not processes.die_with_parent(options.parent):
        return 0
    processes.set_name(f"wl-{options.role}")
    programs: dict[str, Callable[[ChildOptions], Coroutine[Any, Any, None]]] = {
        "server": _server,
        "control": _control,
        "node": _node,
    }
    logs.configure()
    try:
        run_event_loop(programs[options.role](options))
    except WindlassError as error:
        with contextlib.suppress(OSError):  # the failure may be a full disk
            print(f"error[{error.code}]: {error.message}\nwhy: {error.evidence}", file=sys.stderr, flush=True)
            write_atomic(
                failure_file(options.state, options.role), json.dumps(error.as_dict()), durable=False
            )
        return USELESS_TO_RETRY
    return 0


async def until_signal(work: Awaitable[None], stop: Callable[[int], Awaitable[None]] | None = None) -> None:
    """Run ``work`` until it ends or a signal arrives; then call ``stop(signum)`` and
    cancel the rest.

    Exceptions of ``work`` are raised here.
    """
    loop = asyncio.get_running_loop()
    received_signal: asyncio.Future[int] = loop.create_future()

    def receive(number: int) -> None:
        if not received_signal.done():
            received_signal.set_result(number)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT):
        loop.add_signal_handler(number, receive, number)
    task = asyncio.ensure_future(work)
    await asyncio.wait((task, received_signal), return_when=asyncio.FIRST_COMPLETED)
    if received_signal.done() and not task.done():
        if stop is not None:
            await stop(received_signal.result())
        task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def _server(options: ChildOptions) -> None:
    with gc_tuning.infrequent_collections():
        from windlass.node.runtime.log_reader import LogReader
        from windlass.node.runtime.process_log import ProcessLogReader
        from windlass.node.streams.client import AgentStreams
        from windlass.server.log_source import LogMissing
        from windlass.server.main import ServeConfig, serve
        from windlass.server.stream_source import refused

    clock = SystemClock()
    config = ServeConfig(options.state, tcp=_inherited(options.tcp), unix=_inherited(options.unix))
    containers = LogReader(options.state.node, clock=clock, missing=LogMissing)
    logs = ProcessLogReader(containers, options.state.log, clock=clock, missing=LogMissing)
    streams = AgentStreams(options.state.node_socket, refused=refused)
    await until_signal(serve(config, clock=clock, rng=chance.system(), logs=logs, streams=streams))


def _scheduler_options() -> SchedulerOptions:
    from windlass.controllers import manager
    from windlass.scheduler.options import EMBEDDED_NAMES, SchedulerOptions

    return SchedulerOptions(
        scheduler_names=EMBEDDED_NAMES,
        config_map=True,
        await_volumes=False,
        write_concurrency=_STATUS_WRITES,
        wait_for_owner=manager.owner_schedulers(embedded=True, beside=()),
    )


def _machine(options: ChildOptions) -> OwnMachine:
    """Return the folders of this machine that pods of the platform use."""
    from windlass.controllers.aigc.platform import OwnMachine
    from windlass.node.paths import NodePaths

    state = options.state
    return OwnMachine(str(state.socket), str(state.path / "outputs"), str(NodePaths(state.node).models))


async def _control(options: ChildOptions) -> None:
    """Run scheduler and controllers on shared informers; if one of them fails, the process ends."""
    with gc_tuning.infrequent_collections():
        from windlass.client.informers import SharedInformers
        from windlass.controllers import manager
        from windlass.observe import metrics
        from windlass.observe.endpoint import Endpoint, not_ready
        from windlass.scheduler.compat_metrics.families import DEVICES, LEGACY_DEVICES
        from windlass.scheduler.compat_metrics.registry import OPTIONAL, CompatMetrics
        from windlass.scheduler.main import freeze_after_sync
        from windlass.scheduler.service import SchedulerService

    clock, rng = SystemClock(), chance.system()
    client = _client(options, "windlass-control")
    informers = SharedInformers(client, clock, rng)
    registry = metrics.registry()
    scheduler = SchedulerService(
        client,
        clock=clock,
        rng=rng,
        options=_scheduler_options(),
        informers=informers,
        registry=registry,
    )
    controllers = manager.ControllerManager(
        client,
        clock=clock,
        rng=rng,
        embedded=True,
        informers=informers,
        registry=registry,
        machine=_machine(options),
    )
    controllers.set_workers(_WORKERS)
    scheduler.metrics.leader.set(1)  # the only instance
    CompatMetrics(registry, scheduler.sources((DEVICES, LEGACY_DEVICES)), OPTIONAL)
    endpoint = Endpoint(registry, lambda: not_ready(scheduler.ready.is_set(), informers.unsynced()))
    await endpoint.serve_on(bind_unix(options.state.control_socket))
    gc_tuning.tune_for_long_lived_objects(collect=False)

    async def work() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(informers.run(), name="informers")
            group.create_task(scheduler.run(), name="scheduler")
            group.create_task(freeze_after_sync(scheduler, clock), name="memory")
            group.create_task(controllers.run(), name="controllers")

    async def drain(_: int) -> None:
        await scheduler.drain(_DRAIN_SECONDS)

    try:
        await until_signal(work(), drain)
    finally:
        await endpoint.stop()
        unlink_if_exists(options.state.control_socket)
        await client.close()


async def _node(options: ChildOptions) -> None:
    with gc_tuning.infrequent_collections():
        from windlass.node import kubelet_flags
        from windlass.node.agent import NodeAgent
        from windlass.node.images import load_stored
        from windlass.node.options import AgentOptions

    clock = SystemClock()
    client = _client(options, "windlass-node")
    agent = NodeAgent(
        client,
        state=options.state,
        clock=clock,
        rng=chance.system(),
        options=kubelet_flags.applied(
            AgentOptions(
                node_name=options.node_name, gpus=options.gpus, images=load_stored(options.state.node)
            ),
            options.state.node,
        ),
    )

    async def stop(signum: int) -> None:
        await agent.stop_pods(0.0 if signum == signal.SIGQUIT else STOP_GRACE_SECONDS)

    try:
        await until_signal(agent.run(), stop)
    finally:
        await client.close()


def _client(options: ChildOptions, name: str) -> Client:
    from windlass.client.batching import BatchingTransport
    from windlass.client.client import Client
    from windlass.client.connection import Connection
    from windlass.client.http import HttpTransport

    transport = BatchingTransport(HttpTransport(Connection(unix_socket=str(options.state.socket))))
    return Client(transport, user_agent=name, clock=SystemClock(), rng=chance.system())


def _inherited(descriptor: int) -> socket.socket:
    listener = socket.socket(fileno=descriptor)
    os.set_inheritable(descriptor, False)
    listener.setblocking(False)
    return listener
