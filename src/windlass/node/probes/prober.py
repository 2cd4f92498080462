"""When the probes of a pod are carried out: a task per probe that waits for its next tick.

What a result means is the pod's state machine's business. As in the kubelet, the ticks of a probe go on from
the moment at which the pod came, whatever its containers do; a readiness probe is also carried out as soon as its
container has started; and after a restart of the agent each one waits for a random part of its period first.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any

from windlass.kits.clock import Clock
from windlass.kits.rng import Random
from windlass.node.lifecycle.events import Note, PodEvent, PodEventKind
from windlass.node.lifecycle.probe_results import Probe, ProbeKind
from windlass.node.lifecycle.state_machine import Container, PodMachine
from windlass.node.lifecycle.transitions import ContainerStep, PodStep
from windlass.node.probes.handlers import HandlerOutcome, ProbeResult

_Key = tuple[str, int, ProbeKind]
Check = Callable[[str, Probe], Awaitable[HandlerOutcome]]
"""Carries the probe of a container out."""
_ROUNDING = 1e-6
"""Of a period: so much too early may a sleeper wake without his tick coming twice."""
Spawn = Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]


class Prober:
    """Of one pod that has probes. Call :meth:`follow` after every event of its machine.

    ``tell`` takes the results, ``note`` what is to be recorded of them.
    """

    def __init__(
        self,
        machine: PodMachine,
        clock: Clock,
        rng: Random,
        check: Check,
        *,
        tell: Callable[[PodEvent], None],
        note: Callable[[Note], None],
        spawn: Spawn,
    ) -> None:
        self._machine = machine
        self._clock = clock
        self._rng = rng
        self._check = check
        self._tell = tell
        self._note = note
        self._spawn = spawn
        self._since = clock.monotonic()
        self._tasks: dict[_Key, asyncio.Task[None]] = {}
        self._started: dict[str, asyncio.Event] = {}

    def follow(self) -> None:
        """Begin what is to be probed now, and stop what is not any more."""
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
        """While it runs; in a pod that is ending only what tells its readiness."""
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
        """Set when the present attempt of the container has started."""
        gate = self._started.get(container.name)
        if gate is None or gate.is_set() is not container.health.started:
            gate = asyncio.Event()
            if container.health.started:
                gate.set()
        return gate

    async def _run(self, container: Container, probe: Probe, started: asyncio.Event) -> None:
        begun = self._clock.monotonic() - max(0.0, self._clock.now() - container.started_at)
        due, since = begun + probe.initial_delay_seconds, self._since
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
                if not container.health.wants(probe.kind):
                    return
                await self._once(container, probe)
            await self._tick(probe, since)

    async def _tick(self, probe: Probe, since: float) -> None:
        """Until the next multiple of the period after ``since``."""
        now = self._clock.monotonic()
        passed = math.floor((now - since) / probe.period_seconds + _ROUNDING)
        await self._clock.sleep(since + (passed + 1) * probe.period_seconds - now)

    async def _once(self, container: Container, probe: Probe) -> None:
        outcome = await self._check(container.name, probe)
        if outcome.result is ProbeResult.ERRORED:
            text = f"{probe.kind} probe errored and resulted in unknown state: {outcome.output}"
            self._note(Note("Warning", "Unhealthy", text))
            return
        if outcome.result is ProbeResult.WARNING:
            self._note(Note("Warning", "ProbeWarning", f"{probe.kind} probe warning: {outcome.output}"))
        if outcome.result is ProbeResult.FAILED:
            self._note(Note("Warning", "Unhealthy", f"{probe.kind} probe failed: {outcome.output}"))
        passed = outcome.result is not ProbeResult.FAILED
        self._tell(
            PodEvent(PodEventKind.PROBED, self._clock.now(), container.name, probe=probe.kind, passed=passed)
        )
