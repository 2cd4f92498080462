"""Schedule of a pod's probes: one task per probe that waits for the next tick.

The state machine interprets the results. As in the kubelet, the ticks of a probe count from the
time at which the pod was added, whatever its containers do. A readiness probe also runs as soon
as its container has started. After a restart of the agent each probe first waits for a random
part of its period.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any

from windlass.kits.clock import Clock
from windlass.kits.rng import Random
from windlass.node.lifecycle.events import PodEvent, PodEventKind, RecordEvent
from windlass.node.lifecycle.probe_results import Probe, ProbeKind
from windlass.node.lifecycle.state_machine import Container, PodMachine
from windlass.node.lifecycle.transitions import ContainerStep, PodStep
from windlass.node.probes.handlers import HandlerOutcome, ProbeResult

_Key = tuple[str, int, ProbeKind]
Check = Callable[[str, Probe], Awaitable[HandlerOutcome]]
"""Runs a probe of a container."""
_ROUNDING = 1e-6
"""Part of a period by which a timer may fire early without a second tick."""
Spawn = Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]


class Prober:
    """Prober of one pod. Call :meth:`update` after every event of its machine.

    ``send`` receives the results, ``record_event`` Kubernetes events.
    """

    def __init__(
        self,
        machine: PodMachine,
        clock: Clock,
        rng: Random,
        check: Check,
        *,
        send: Callable[[PodEvent], None],
        record_event: Callable[[RecordEvent], None],
        spawn: Spawn,
    ) -> None:
        self._machine = machine
        self._clock = clock
        self._rng = rng
        self._check = check
        self._send = send
        self._record_event = record_event
        self._spawn = spawn
        self._since = clock.monotonic()
        self._tasks: dict[_Key, asyncio.Task[None]] = {}
        self._started: dict[str, asyncio.Event] = {}

    def update(self) -> None:
        """Start the probes that are wanted now and stop all others."""
        wanted = {
            (container.name, container.attempt, kind): probe
            for container in self._machine.containers.values()
            for kind, probe in self._wanted(container).items()
        }
        for key in [key for key in self._tasks if key not in wanted]:
            self._tasks.pop(key).cancel()
        for container in self._machine.containers.values():
            if container.health.started and container.name in self._started:
                self._started[container.name].set()
        for key, probe in wanted.items():
            if key not in self._tasks:
                container = self._machine.containers[key[0]]
                started = self._started[key[0]] = self._gate(container)
                self._tasks[key] = self._spawn(self._run(container, probe, started))

    def _wanted(self, container: Container) -> Mapping[ProbeKind, Probe]:
        """Return the probes to run: none before the container runs, only readiness while the pod ends."""
        if (
            container.step not in (ContainerStep.RUNNING, ContainerStep.STOPPING)
            or not container.started_once
        ):
            return {}
        probes = container.health.probes
        if self._machine.step is PodStep.ENDING:
            return {kind: probe for kind, probe in probes.items() if kind is ProbeKind.READINESS}
        return probes

    def _gate(self, container: Container) -> asyncio.Event:
        """Return an event that is set when the current attempt of the container has started."""
        gate = self._started.get(container.name)
        if gate is None or gate.is_set() is not container.health.started:
            gate = asyncio.Event()
            if container.health.started:
                gate.set()
        return gate

    async def _run(self, container: Container, probe: Probe, started: asyncio.Event) -> None:
        started_at = self._clock.monotonic() - max(0.0, self._clock.now() - container.started_at)
        due, since = started_at + probe.initial_delay_seconds, self._since
        if container.adopted:
            await self._clock.sleep(self._rng.random() * probe.period_seconds)
            since = self._clock.monotonic()
        if probe.kind is not ProbeKind.STARTUP:
            await started.wait()
        if probe.kind is ProbeKind.READINESS:
            await self._clock.sleep(max(0.0, due - self._clock.monotonic()))
        elif not container.adopted:
            await self._tick(probe, since)
        while True:
            if self._clock.monotonic() >= due:
                if not container.health.is_due(probe.kind):
                    return
                await self._probe_once(container, probe)
            await self._tick(probe, since)

    async def _tick(self, probe: Probe, since: float) -> None:
        """Wait until the next multiple of the period after ``since``."""
        now = self._clock.monotonic()
        passed = math.floor((now - since) / probe.period_seconds + _ROUNDING)
        await self._clock.sleep(since + (passed + 1) * probe.period_seconds - now)

    async def _probe_once(self, container: Container, probe: Probe) -> None:
        outcome = await self._check(container.name, probe)
        if outcome.result is ProbeResult.ERRORED:
            text = f"{probe.kind} probe errored and resulted in unknown state: {outcome.output}"
            self._record_event(RecordEvent("Warning", "Unhealthy", text))
            return
        if outcome.result is ProbeResult.WARNING:
            self._record_event(
                RecordEvent("Warning", "ProbeWarning", f"{probe.kind} probe warning: {outcome.output}")
            )
        if outcome.result is ProbeResult.FAILED:
            self._record_event(
                RecordEvent("Warning", "Unhealthy", f"{probe.kind} probe failed: {outcome.output}")
            )
        passed = outcome.result is not ProbeResult.FAILED
        self._send(
            PodEvent(PodEventKind.PROBED, self._clock.now(), container.name, probe=probe.kind, passed=passed)
        )
