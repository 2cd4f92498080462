"""Probes and lifecycle hooks of one pod, as its worker uses them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any

from windlass.kits.clock import Clock
from windlass.kits.rng import Random
from windlass.node.lifecycle.events import PodEvent, RecordEvent
from windlass.node.lifecycle.probe_results import Probe
from windlass.node.lifecycle.state_machine import PodMachine
from windlass.node.paths import NodePaths
from windlass.node.pods.checkpoints import HOOK as CHECKPOINT
from windlass.node.pods.checkpoints import CheckpointWatch
from windlass.node.pods.launch_spec import commands_of
from windlass.node.pods.launcher import ContainerLauncher
from windlass.node.probes.handlers import Actions, HandlerOutcome
from windlass.node.probes.lifecycle_hooks import LifecycleHooks
from windlass.node.probes.prober import Prober
from windlass.node.runtime import attempt_files, syscalls
from windlass.node.runtime.attempt_files import ATTEMPT_MARK


class ProbesAndHooks:
    """Probes and lifecycle hooks of one pod.

    ``hooks`` starts and stops containers as their lifecycle hooks require. ``send`` receives probe
    results, ``record_event`` Kubernetes events.
    """

    def __init__(
        self,
        machine: PodMachine,
        launcher: ContainerLauncher,
        actions: Actions,
        paths: NodePaths,
        *,
        clock: Clock,
        rng: Random,
        send: Callable[[PodEvent], None],
        record_event: Callable[[RecordEvent], None],
        spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
    ) -> None:
        self._paths = paths
        self._machine = machine
        self._launcher = launcher
        self._actions = actions
        self._clock = clock
        self._record_event = record_event
        self.checkpoints = CheckpointWatch(
            lambda: launcher.pod, launcher.client, clock, self._main_spec, spawn
        )
        self.hooks = LifecycleHooks(
            _hooks_of(launcher),
            clock,
            self._run_hook,
            record_event=record_event,
            spawn=spawn,
            signalled=self._signalled,
        )
        self._probed = [container for container in machine.containers.values() if container.health.probes]
        self._prober = None
        if self._probed:
            self._prober = Prober(
                machine, clock, rng, self._run_probe, send=send, record_event=record_event, spawn=spawn
            )
        self._last_record = self.record()

    async def _run_probe(self, container: str, probe: Probe) -> HandlerOutcome:
        return await self._actions.check(self._launcher.container(container), probe)

    async def _run_hook(self, container: str, hook: str) -> None:
        begun = self._clock.monotonic()
        await self._actions.hook(self._launcher.container(container), hook)
        if hook == CHECKPOINT:
            self.checkpoints.hook_passed(self._clock.monotonic() - begun)

    def _signalled(self, container: str) -> None:
        if container == _main_container(self._launcher.pod):
            self.checkpoints.signalled()

    def _main_spec(self) -> Mapping[str, Any]:
        """Return the record of the main container's attempt."""
        name = _main_container(self._launcher.pod)
        attempt = self._machine.containers[name].attempt
        directory = self._paths.attempt(self._machine.uid, name, attempt)
        return attempt_files.read(str(directory), attempt_files.SPEC) or {}

    def command_started(self, container: str) -> None:
        """Allow the hooks of this container, and watch its checkpoints: its command is running."""
        self.hooks.command_started(container)
        if container == _main_container(self._launcher.pod):
            self.checkpoints.started()

    async def finish(self, container: str) -> None:
        """Report the checkpoints of an ended container before its pod may be deleted."""
        if container == _main_container(self._launcher.pod):
            await self.checkpoints.finish()

    def update(self) -> bool:
        """Update the probes after an event of the machine. Return whether :meth:`record` has changed."""
        if self._prober is None:
            return False
        self._prober.update()
        before, self._last_record = self._last_record, self.record()
        return before != self._last_record

    def record(self) -> dict[str, list[Any]]:
        """Return container → attempt, started, ready, of the containers with probes.

        The next agent needs this record.
        """
        return {
            container.name: [container.attempt, container.health.started, container.health.ready]
            for container in self._probed
        }

    def recall(self, record: Mapping[str, list[Any]] | None) -> None:
        """Restore the probe results of running containers. They hold until the next result.

        None: the earlier agent ran no probes, and every running container counted as ready.
        """
        for container in self._probed:
            unknown = (container.attempt, True, True) if record is None else (None, False, False)
            attempt, started, ready = (record or {}).get(container.name) or unknown
            if container.attempt == attempt:
                container.health.restore(started, ready)

    def adopt(self, container: str, directory: Path) -> None:
        """Take over an attempt of an earlier agent.

        Its hooks may run from now on. A spec of an agent without probes gets the commands of the
        probes and hooks.
        """
        path = str(directory)
        if (
            attempt_files.started_at(path) is not None
            and attempt_files.read(path, attempt_files.EXIT) is None
        ):
            self.command_started(container)
        spec = attempt_files.read(path, attempt_files.SPEC)
        if spec is not None and "commands" not in spec:
            commands = commands_of(self._launcher.container(container))
            attempt_files.write(path, attempt_files.SPEC, {**spec, "commands": commands})

    def ended(self, container: str) -> None:
        """Cancel the hooks of an ended container, and kill what its hooks and probes left running.

        In a pid namespace the kernel has killed it already.
        """
        self.hooks.ended(container)
        attempt = self._machine.containers[container].attempt
        directory = self._paths.attempt(self._machine.uid, container, attempt)
        spec = attempt_files.read(str(directory), attempt_files.SPEC)
        if spec and spec.get("commands") and not spec.get("pid_namespace"):
            syscalls.kill_marked(f"{ATTEMPT_MARK}={spec['env'][ATTEMPT_MARK]}")


def _main_container(pod: Mapping[str, Any]) -> str:
    return pod["spec"]["containers"][0]["name"]


def _hooks_of(launcher: ContainerLauncher) -> dict[str, frozenset[str]]:
    """Return container → names of its hooks. Containers without hooks are left out."""
    spec = launcher.pod["spec"]
    every = [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]
    lifecycles = {one["name"]: launcher.container(one["name"]).get("lifecycle") or {} for one in every}
    return {
        name: frozenset(hook for hook in ("postStart", "preStop", CHECKPOINT) if lifecycle.get(hook))
        for name, lifecycle in lifecycles.items()
        if lifecycle
    }
