"""Probes and lifecycle hooks of one pod: what its worker (:mod:`windlass.node.pods.worker`) has of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any

from windlass.kits.clock import Clock
from windlass.kits.rng import Random
from windlass.node.lifecycle.events import Note, PodEvent
from windlass.node.lifecycle.probe_results import Probe
from windlass.node.lifecycle.state_machine import PodMachine
from windlass.node.paths import NodePaths
from windlass.node.pods.launch_spec import commands_of
from windlass.node.pods.launcher import ContainerLauncher
from windlass.node.probes.handlers import Actions, HandlerOutcome
from windlass.node.probes.lifecycle_hooks import LifecycleHooks
from windlass.node.probes.prober import Prober
from windlass.node.runtime import attempt_files, syscalls
from windlass.node.runtime.attempt_files import ATTEMPT_MARK
from windlass.node.sandbox.pod_network import Network


class ProbesAndHooks:
    """``hooks`` starts and stops containers as their lifecycle asks. A pod without probes costs nothing here."""

    def __init__(
        self,
        machine: PodMachine,
        launcher: ContainerLauncher,
        network: Network,
        paths: NodePaths,
        *,
        clock: Clock,
        rng: Random,
        tell: Callable[[PodEvent], None],
        note: Callable[[Note], None],
        spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
    ) -> None:
        self._paths = paths
        self._machine = machine
        self._launcher = launcher
        self._actions = Actions(
            network,
            clock,
            attempt=lambda name: paths.attempt(machine.uid, name, machine.containers[name].attempt),
            address=lambda: machine.address,
        )
        self.hooks = LifecycleHooks(_hooks_of(launcher.pod), clock, self._carry_hook, note=note, spawn=spawn)
        self._probed = [one for one in machine.containers.values() if one.health.probes]
        self._prober = None
        if self._probed:
            self._prober = Prober(machine, clock, rng, self._carry_probe, tell=tell, note=note, spawn=spawn)
        self._before = self.record()

    async def _carry_probe(self, container: str, probe: Probe) -> HandlerOutcome:
        return await self._actions.check(self._launcher.container(container), probe)

    async def _carry_hook(self, container: str, hook: str) -> None:
        await self._actions.hook(self._launcher.container(container), hook)

    def follow(self) -> bool:
        """After every event of the machine. Whether :meth:`record` has changed."""
        if self._prober is None:
            return False
        self._prober.follow()
        before, self._before = self._before, self.record()
        return before != self._before

    def record(self) -> dict[str, list[Any]]:
        """What another agent has to know: per container with probes its attempt, and whether it is started, ready."""
        return {one.name: [one.attempt, one.health.started, one.health.ready] for one in self._probed}

    def recall(self, record: Mapping[str, list[Any]] | None) -> None:
        """What was known of containers that run on holds until a probe says otherwise. None: an agent left them that
        carried no probes out, and to which whatever ran was ready."""
        for container in self._probed:
            unknown = (container.attempt, True, True) if record is None else (None, False, False)
            attempt, started, ready = (record or {}).get(container.name) or unknown
            if container.attempt == attempt:
                container.health.keep(started, ready)

    def adopt(self, container: str, folder: Path) -> None:
        """An attempt of an earlier agent: its hooks are about what runs. Add to its record what an agent that carried
        no probes out left out of it."""
        where = str(folder)
        if (
            attempt_files.read(where, attempt_files.STARTED) is not None
            and attempt_files.read(where, attempt_files.EXIT) is None
        ):
            self.hooks.runs(container)
        spec = attempt_files.read(where, attempt_files.SPEC)
        if spec is not None and "commands" not in spec:
            commands = commands_of(self._launcher.container(container))
            attempt_files.write(where, attempt_files.SPEC, {**spec, "commands": commands})

    def ended(self, container: str) -> None:
        """The container has ended: so do its hooks, and what they or its probes left running inside. (Where it has
        a pid namespace, that has seen to it.)"""
        self.hooks.ended(container)
        attempt = self._machine.containers[container].attempt
        folder = self._paths.attempt(self._machine.uid, container, attempt)
        spec = attempt_files.read(str(folder), attempt_files.SPEC)
        if spec and spec.get("commands") and not spec.get("pid_namespace"):
            syscalls.kill_marked(f"{ATTEMPT_MARK}={spec['env'][ATTEMPT_MARK]}")


def _hooks_of(pod: Mapping[str, Any]) -> dict[str, frozenset[str]]:
    """Container → the names of its lifecycle hooks, of those that have any."""
    spec = pod["spec"]
    every = [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]
    found = {one["name"]: one.get("lifecycle") or {} for one in every}
    return {
        name: frozenset(hook for hook in ("postStart", "preStop") if lifecycle.get(hook))
        for name, lifecycle in found.items()
        if lifecycle
    }
