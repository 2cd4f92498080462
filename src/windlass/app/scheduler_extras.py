"""Companions of the scheduler's process: the settings follower and, optionally, the controllers.

The controllers hold their own lease also there. So a change between one process and two
never runs two of them at once.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Coroutine
from dataclasses import dataclass, field, replace
from typing import Any

from prometheus_client import CollectorRegistry

from windlass.app.options import RemoteOptions
from windlass.app.progress_endpoint import ProgressService
from windlass.app.settings import Values
from windlass.app.settings_follower import SettingsFile, own_pod
from windlass.client.client import Client
from windlass.controllers.aigc.platform import ClusterOutputs
from windlass.controllers.manager import ControllerManager
from windlass.kits.clock import Clock
from windlass.observe import logs
from windlass.scheduler.leader.election import LeaseOptions
from windlass.scheduler.leader.lease_thread import LeaseThread
from windlass.scheduler.main import Companion, ProcessContext
from windlass.scheduler.options import ReservationPodOptions

CONTROLLERS_LEASE = "windlass-controllers"
_TIMES = {
    "scheduler.bindConcurrency": "bind_concurrency",
    "scheduler.bindConcurrencyMax": "bind_concurrency_max",
    "scheduler.debounceSeconds": "debounce_seconds",
    "scheduler.assumeSeconds": "assume_seconds",
    "scheduler.gangSeconds": "gang_seconds",
    "scheduler.quietSeconds": "quiet_seconds",
    "scheduler.rewriteSeconds": "rewrite_seconds",
    "scheduler.podRewriteSeconds": "pod_rewrite_seconds",
    "scheduler.estimateSeconds": "estimate_seconds",
    "scheduler.provisioningClass": "provisioning_class",
    "scheduler.provisioningRetries": "provisioning_retries",
    "scheduler.provisioningBackoffSeconds": "provisioning_backoff_seconds",
    "scheduler.provisioningBackoffMaxSeconds": "provisioning_backoff_max_seconds",
}
log = logs.get("settings")


def times_of(values: Values) -> dict[str, Any]:
    """Return the fields of :class:`SchedulerOptions` that settings define."""
    return {name: values[path] for path, name in _TIMES.items()}


def reservation_pod_options(values: Values) -> ReservationPodOptions | None:
    """Return the options of reservation pods, which hold devices for sharing; ``None``:
    there are none."""
    image, secrets = str(values["scheduler.reservationImage"]), values["scheduler.reservationPullSecrets"]
    if not image:
        return None
    return ReservationPodOptions(
        image,
        pull_policy=str(values["scheduler.reservationPullPolicy"]),
        pull_secrets=tuple(secrets) if isinstance(secrets, tuple) else (),
        runtime_class=str(values["scheduler.reservationRuntimeClass"]),
        seconds=float(values["scheduler.reservationSeconds"]),  # type: ignore[arg-type]
        cdi=values["scheduler.deviceNames"] == "cdi",
    )


def workers_of(values: Values) -> int:
    return int(values["controllers.workers"])  # type: ignore[arg-type]


def job_kinds_of(values: Values) -> tuple[str, ...]:
    found = values["controllers.jobKinds"]
    return found if isinstance(found, tuple) else (str(found),)


def outputs_of(values: Values) -> ClusterOutputs:
    names = ("outputsFolder", "outputsClaim", "outputsClass", "modelsFolder")
    return ClusterOutputs(*(str(values[f"controllers.{name}"]) for name in names))


def lease_of(options: RemoteOptions, name: str) -> LeaseOptions:
    values = options.values
    return LeaseOptions(
        name=name,
        namespace=options.own_namespace,
        duration_seconds=int(values["leaderElection.leaseSeconds"]),  # type: ignore[arg-type]
        renew_seconds=float(values["leaderElection.renewSeconds"]),  # type: ignore[arg-type]
        retry_seconds=float(values["leaderElection.retrySeconds"]),  # type: ignore[arg-type]
    )


@dataclass(slots=True)
class _EmbeddedControllers:
    """Controllers in the scheduler's process, if there are any."""

    managers: list[ControllerManager] = field(default_factory=list)
    elections: list[LeaseThread] = field(default_factory=list)


def of_scheduler(options: RemoteOptions) -> tuple[Companion, ...]:
    companions: list[Companion] = []
    embedded = _EmbeddedControllers()
    if options.values["scheduler.withControllers"]:
        companions.append(lambda process: _controllers(options, process, embedded))
    if options.settings is not None:
        companions.append(lambda process: _follower(options, process, embedded))
    return tuple(companions)


def _common(values: Values, changed: frozenset[str], elections: tuple[LeaseThread, ...]) -> None:
    """Apply the settings that both processes share."""
    if changed & {"log.level", "log.format"}:
        logs.configure(style=str(values["log.format"]), level=str(values["log.level"]))
    if "leaderElection.retrySeconds" in changed:
        for election in elections:
            try:
                election.set_retry_seconds(float(values["leaderElection.retrySeconds"]))  # type: ignore[arg-type]
            except ValueError as error:
                log.warning("retrySeconds needs a restart", why=str(error))


def _file(options: RemoteOptions, clock: Clock, registry: CollectorRegistry) -> SettingsFile:
    source = options.settings
    assert source is not None
    return SettingsFile(source.path, source.text, source.flags, options.role, clock, registry)


def _follower(
    options: RemoteOptions, process: ProcessContext, embedded: _EmbeddedControllers
) -> Coroutine[Any, Any, None]:
    file = _file(options, process.clock, process.registry)
    service = process.service

    def apply(values: Values, changed: frozenset[str]) -> None:
        _common(values, changed, (process.election, *embedded.elections))
        for manager in embedded.managers if "controllers.workers" in changed else ():
            manager.set_workers(workers_of(values))
        if changed & set(_TIMES):
            service.adjust(replace(service.options, **times_of(values)))

    return file.run(apply, service.recorder, own_pod(os.environ))


def controllers_follower(
    options: RemoteOptions,
    manager: ControllerManager,
    election: LeaseThread,
    clock: Clock,
    registry: CollectorRegistry,
) -> Awaitable[None] | None:
    """Return the settings follower of ``windlass controller``; ``None`` without a file."""
    if options.settings is None:
        return None
    file = _file(options, clock, registry)

    def apply(values: Values, changed: frozenset[str]) -> None:
        _common(values, changed, (election,))
        if "controllers.workers" in changed:
            manager.set_workers(workers_of(values))

    return file.run(apply, manager.recorder, own_pod(os.environ))


def _controllers(
    options: RemoteOptions, process: ProcessContext, embedded: _EmbeddedControllers
) -> Coroutine[Any, Any, None]:
    """Run the controllers on the scheduler's informers while this instance leads."""
    client = Client(
        process.client.transport, user_agent="windlass-controllers", clock=process.clock, rng=process.rng
    )
    manager = ControllerManager(
        client,
        clock=process.clock,
        rng=process.rng,
        embedded=False,
        informers=process.informers,
        registry=process.registry,
        other_schedulers=options.beside,
        workers=workers_of(options.values),
        job_kinds=job_kinds_of(options.values),
        outputs=outputs_of(options.values),
        exporter=process.exporter,
    )
    lease = lease_of(options, CONTROLLERS_LEASE)
    identity = process.election.identity
    election = LeaseThread(
        process.connection, identity, user_agent="windlass-controllers", clock=process.clock, options=lease
    )
    embedded.managers.append(manager)
    embedded.elections.append(election)

    async def run() -> None:
        await process.leads.wait()
        if not options.leader_elect:
            return await manager.run()
        await election.lead(manager.run, "controllers")

    return ProgressService(options, client, manager, process.clock).beside(run)


def owner_schedulers_of(options: RemoteOptions) -> tuple[str, ...]:
    """Return the scheduler names of pods that wait until they are grouped by their owner."""
    from windlass.controllers.manager import owner_schedulers

    kinds = [scheduler.kind for scheduler in options.beside]
    return owner_schedulers(embedded=False, beside=kinds)
