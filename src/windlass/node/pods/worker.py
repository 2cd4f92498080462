"""Worker of one pod: it executes the instructions of the pod's state machine.

The state machine is :mod:`windlass.node.lifecycle.state_machine`, and
:mod:`windlass.node.pods.launcher` starts the containers. Instructions run one after the other.
Waiting for the end of a container, timers and status updates run concurrently.

All state is in the pod's directory: ``pod.json`` (the object and its start time), the sandbox
and the attempts. A worker created from a directory resumes where an earlier agent stopped.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from windlass.api.errors import StatusError
from windlass.client.errors import Unreachable
from windlass.kits.clock import Clock
from windlass.kits.rng import Random
from windlass.kits.timestamps import parse_rfc3339
from windlass.node.devices.allocations import DeviceBusy
from windlass.node.devices.manager import Rejected
from windlass.node.devices.mig_instances import SliceBusy
from windlass.node.lifecycle.events import (
    DeleteObject,
    Exit,
    Instruction,
    JoinBarrier,
    PodEvent,
    PodEventKind,
    Prepare,
    RecordEvent,
    SetTimer,
    StartContainer,
    StopContainer,
    TearDown,
)
from windlass.node.lifecycle.state_machine import PodMachine, gates_of
from windlass.node.lifecycle.status import is_held_back, is_pod_ready
from windlass.node.lifecycle.transitions import ContainerStep, PodStep
from windlass.node.paths import NodePaths, attempt_numbers, remove_filled
from windlass.node.pods.environment import ContainerConfigError
from windlass.node.pods.launcher import ContainerLauncher
from windlass.node.pods.pod_events import PodEvents
from windlass.node.pods.pod_names import HostsFile, PodNames
from windlass.node.pods.pod_record import read_pod_record, write_pod_record
from windlass.node.pods.pod_tasks import PodTasks
from windlass.node.pods.probes_and_hooks import ProbesAndHooks
from windlass.node.pods.status_publisher import StatusPublisher
from windlass.node.probes.handlers import Actions
from windlass.node.runtime import attempt_files, log_reader
from windlass.node.runtime.runner import UNKNOWN_MESSAGE, UNKNOWN_REASON, Handle, exit_of
from windlass.node.sandbox.hosts import NamedPod
from windlass.node.sandbox.pod_network import NetworkError


class PodWorker:
    """Worker of one pod of this node.

    ``ended`` is set when no process of the pod is left. ``gone`` is set when the pod is also
    removed from the server.
    """

    def __init__(
        self,
        pod: dict[str, Any],
        machine: PodMachine,
        *,
        launcher: ContainerLauncher,
        publisher: StatusPublisher,
        actions: Actions,
        names: PodNames,
        paths: NodePaths,
        events: PodEvents,
        tasks: PodTasks,
        clock: Clock,
        rng: Random,
    ) -> None:
        self.pod = pod
        self.uid: str = pod["metadata"]["uid"]
        self.machine = machine
        self.publisher = publisher
        self.directory = paths.pod(self.uid)
        self.on_join: Callable[[], None] = lambda: None
        """Called when the pod waits for those that restart with it."""
        self.gone = asyncio.Event()
        self.ended = asyncio.Event()
        self._launcher = launcher
        self._names = names
        self._paths = paths
        self._events = events
        self._tasks = tasks
        self._clock = clock
        self._queue: asyncio.Queue[Instruction] = asyncio.Queue()
        self._handles: dict[str, Handle] = {}
        self._object_gone = False
        self._probes_and_hooks = ProbesAndHooks(
            machine,
            launcher,
            actions,
            paths,
            clock=clock,
            rng=rng,
            send=self.send,
            record_event=self._record_event,
            spawn=tasks.spawn,
        )
        self._ready = False
        tasks.spawn(self._work())
        tasks.spawn(self._publish())

    # -- life ----------------------------------------------------------------------------------

    def begin(self) -> None:
        """Start a pod that is new to this node.

        Its record is written once it is prepared. An agent that finds none begins the pod again.
        """
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        begun = (self.pod.get("status") or {}).get("startTime")
        self.machine.started_at = parse_rfc3339(begun) if begun else self._clock.now()
        for event in self._launcher.notices():
            self._record_event(event)
        self._do(self.machine.begin(self._clock.now()))
        self.publisher.changed()

    def resume(self, lost: Mapping[str, int] | None = None) -> None:
        """Resume a pod that an earlier agent started.

        ``lost``: container → attempt, of containers that left no record on this node.
        """
        now = self._clock.now()
        attempts: dict[str, tuple[int, Exit | None]] = {}
        for name in self.machine.containers:
            known = attempt_numbers(self._paths.attempts(self.uid, name))
            if known:
                attempts[name] = (known[-1], self._earlier_exit(name, known))
            elif lost and name in lost:
                attempts[name] = (lost[name], None)
        record = self._read_record()
        address = record.get("address") or ""
        self._launcher.address = address
        self.machine.resume(now, attempts, address)
        self.machine.resume_together(record.get("restarted") or {}, record.get("reported"))
        self._probes_and_hooks.recall(record.get("health"))
        if address:
            if not self._launcher.host_network:
                self._launcher.resources.adopt_address(address)
            self._publish_names()
        else:
            self.write_record()
        self._do(self.machine.pending())
        for name, (number, _) in attempts.items():
            directory = self._paths.attempt(self.uid, name, number)
            handle = self._launcher.adopt(name, number)
            if handle is not None:
                self._handles[name] = handle
                self.machine.containers[name].adopted = True
                self.publisher.expect(name)
                self._adopt_limits(name, directory)
                self._probes_and_hooks.adopt(name, directory)
                over = attempt_files.read(str(directory), attempt_files.EXIT) is not None
                self._tasks.spawn(self._follow_adopted(name, handle, over=over))
            elif lost and name in lost:
                exit_ = Exit(137, UNKNOWN_REASON, message=UNKNOWN_MESSAGE, finished_at=now)
                self.send(PodEvent(PodEventKind.EXITED, now, name, exit_))
            else:
                self._queue.put_nowait(StartContainer(name, number))
        self.send(PodEvent(PodEventKind.RESUMED, now))

    def restore_devices(self) -> None:
        """Allocate the pod's devices again after the allocation file was lost.

        Raises :class:`Rejected` and :class:`DeviceBusy`.
        """
        if self.machine.address and not self.machine.is_over:
            self._launcher.resources.allocate_devices(self.pod)

    def send(self, event: PodEvent) -> None:
        """Send ``event`` to the state machine and execute its instructions."""
        restarted = self.machine.together.ended
        instructions = self.machine.handle(event)
        if restarted != self.machine.together.ended:
            self.write_record()  # before the processes end: the next agent must know why
        self._do(instructions)
        self.publisher.changed()
        if self._probes_and_hooks.update():
            self.write_record()
        self._update_readiness()
        if self.machine.is_over:
            self.ended.set()
            if self._object_gone:
                self._forget()

    def update(self, pod: dict[str, Any]) -> None:
        """Process a change of the object.

        Deletion, readiness gates and annotations matter: a binding may add annotations late.
        """
        self.pod = self._launcher.pod = pod
        if instructions := self.machine.add_ephemeral(pod, self._clock.now()):
            self.write_record()
            for event in self._launcher.ephemeral_notices(instructions):
                self._record_event(event)
            self._do(instructions)
            self.publisher.changed()
        gates = gates_of(pod)
        if gates != self.machine.gates:
            self.machine.gates = gates
            self.publisher.changed()
            self._update_readiness()
        metadata = pod["metadata"]
        if metadata.get("deletionTimestamp"):
            self.delete(metadata.get("deletionGracePeriodSeconds"))

    def delete(self, grace_seconds: float | None) -> None:
        self.send(PodEvent(PodEventKind.DELETE, self._clock.now(), grace_seconds=grace_seconds))

    def object_removed(self) -> None:
        """End the pod's processes, then forget the pod: the server no longer has the object."""
        if self._object_gone:
            return
        self._object_gone = True
        self.publisher.removed.set()
        if self.machine.is_over:
            self._forget()
        else:
            grace = min(self.machine.grace_seconds, 30.0)
            self.delete(0.0 if self.machine.deleting else grace)

    def only_delete(self) -> None:
        """Delete the object of an ended pod that has nothing on this node."""
        self.machine.step = PodStep.ENDED
        self.publisher.mark_published()
        self.publisher.delete()

    def stop_now(self) -> None:
        """Kill the running containers without waiting for their end."""
        for handle in self._handles.values():
            handle.stop(0.0)

    async def close(self) -> None:
        """Stop the worker. The pod's processes keep running."""
        await self._tasks.close()

    def _do(self, instructions: list[Instruction]) -> None:
        for instruction in instructions:
            match instruction:
                case RecordEvent():
                    self._record_event(instruction)
                case SetTimer():
                    self._tasks.spawn(self._run_timer(instruction))
                case StopContainer(container, grace):
                    handle = self._handles.get(container)
                    if handle is None:  # its start is still in the queue: stop it after that
                        self._queue.put_nowait(instruction)
                    else:
                        self._probes_and_hooks.hooks.stop(container, handle, grace)
                case JoinBarrier():
                    self.on_join()
                case DeleteObject():
                    self.publisher.delete()
                case _:
                    self._queue.put_nowait(instruction)

    async def _run_timer(self, timer: SetTimer) -> None:
        await self._clock.sleep(timer.after_seconds)
        self.send(PodEvent(timer.kind, self._clock.now(), timer.container))

    async def _work(self) -> None:
        while True:
            instruction = await self._queue.get()
            match instruction:
                case Prepare():
                    await self._prepare()
                case StartContainer(container, attempt):
                    await self._start(container, attempt)
                case StopContainer(container, grace):
                    handle = self._handles.get(container)
                    if handle is not None:
                        self._probes_and_hooks.hooks.stop(container, handle, grace)
                case TearDown():
                    await self._tear_down()

    async def _publish(self) -> None:
        await self.publisher.run()
        self.object_removed()

    # -- record --------------------------------------------------------------------------------

    def write_record(self) -> None:
        """Write what the next agent must know."""
        write_pod_record(self.directory, self.pod, self.machine, self._probes_and_hooks.record())

    def _read_record(self) -> dict[str, Any]:
        """Restore the machine from the record, and return the record."""
        record = read_pod_record(self.directory) or {}
        self.machine.started_at = record.get("started_at") or self._clock.now()
        reason, message = record.get("failure") or ("", "")
        self.machine.failure_reason, self.machine.failure_message = reason, message
        return record

    def _earlier_exit(self, name: str, known: list[int]) -> Exit | None:
        if len(known) < 2:
            return None
        directory = str(self._paths.attempt(self.uid, name, known[-2]))
        record = attempt_files.read(directory, attempt_files.EXIT)
        if record is None:
            return None
        started_at = attempt_files.started_at(directory) or 0.0
        return exit_of(record, started_at, attempt_files.read(directory, attempt_files.SPEC) or {})

    def _adopt_limits(self, container: str, directory: Path) -> None:
        spec = attempt_files.read(str(directory), attempt_files.SPEC)
        if spec is not None and attempt_files.read(str(directory), attempt_files.EXIT) is None:
            definition = self._launcher.container(container)
            self._launcher.resources.adopt_limits(definition, spec.get("affinity") or ())

    # -- preparing -----------------------------------------------------------------------------

    async def _prepare(self) -> None:
        now = self._clock.now
        try:
            await self._launcher.resources.admit_devices(self.pod)
            address = await self._prepare_pod()
        except Rejected as rejected:
            reason = "UnexpectedAdmissionError"
            self.send(PodEvent(PodEventKind.REJECTED, now(), reason=reason, message=str(rejected)))
        except (DeviceBusy, SliceBusy) as busy:
            self.send(PodEvent(PodEventKind.NOT_PREPARED, now(), reason="DeviceInUse", message=str(busy)))
        except ContainerConfigError as error:
            self.send(PodEvent(PodEventKind.NOT_PREPARED, now(), reason=error.reason, message=error.message))
        except (NetworkError, OSError) as error:
            self.send(
                PodEvent(
                    PodEventKind.NOT_PREPARED, now(), reason="FailedCreatePodSandBox", message=str(error)
                )
            )
        except (Unreachable, StatusError) as error:
            self.send(PodEvent(PodEventKind.NOT_PREPARED, now(), reason="FailedMount", message=str(error)))
        else:
            self.machine.address = address
            self.write_record()
            self.send(PodEvent(PodEventKind.PREPARED, now(), address=address))

    async def _prepare_pod(self) -> str:
        """Prepare address, names, volumes and sandbox, and return the address.

        Raises the errors that :meth:`_prepare` handles.
        """
        (self.directory / "work").mkdir(exist_ok=True)
        address = self._launcher.resources.address(host_network=self._launcher.host_network)
        self.machine.address = self._launcher.address = address
        self._publish_names()
        await self._launcher.prepare_volumes()
        await self._names.settled()
        await self._launcher.prepare_sandbox()
        return address

    def _publish_names(self) -> None:
        """Publish the pod's names and address to the other pods of this node."""
        metadata, spec = self.pod["metadata"], self.pod["spec"]
        if self._launcher.resolves_names and self.uid not in self._names.hosts_files:
            file, aliases = self.directory / "hosts", spec.get("hostAliases") or []
            self._names.hosts_files[self.uid] = HostsFile(file, aliases, self._launcher.host_network)
        named = NamedPod(
            uid=self.uid,
            namespace=metadata["namespace"],
            name=metadata["name"],
            hostname=self._launcher.hostname if not self._launcher.host_network else metadata["name"],
            subdomain=spec.get("subdomain") or "",
            address=self.machine.address,
            labels=metadata.get("labels") or {},
            ready=is_pod_ready(self.machine),
            held_back=is_held_back(self.machine),
        )
        before = self._names.pods.get(self.uid)
        self._names.set_pod(self.uid, named)
        if before == named and self.uid in self._names.hosts_files:
            self._names.changed()  # its own file is new

    def _record_event(self, event: RecordEvent) -> None:
        self._events.record(self.pod, event)

    def _update_readiness(self) -> None:
        """Publish a change of readiness: services select only ready pods."""
        ready = is_pod_ready(self.machine)
        if ready is not self._ready:
            self._ready = ready
            if self.uid in self._names.pods:
                self._publish_names()

    # -- containers ----------------------------------------------------------------------------

    async def _start(self, name: str, attempt: int) -> None:
        now = self._clock.now
        try:
            handle = await self._launcher.launch(name, attempt)
        except ContainerConfigError as error:
            self.send(PodEvent(PodEventKind.REFUSED, now(), name, reason=error.reason, message=error.message))
            return
        except (Unreachable, StatusError) as error:
            self.send(
                PodEvent(
                    PodEventKind.REFUSED, now(), name, reason="CreateContainerConfigError", message=str(error)
                )
            )
            return
        except (NetworkError, OSError) as error:
            self.send(
                PodEvent(PodEventKind.REFUSED, now(), name, reason="CreateContainerError", message=str(error))
            )
            return
        self._handles[name] = handle
        await self._report_start(name, handle)

    async def _report_start(self, name: str, handle: Handle, *, adopted: bool = False) -> None:
        started = await handle.started()
        if isinstance(started, Exit):
            self._handles.pop(name, None)
            self.send(PodEvent(PodEventKind.EXITED, self._clock.now(), name, started))
            return
        self._probes_and_hooks.command_started(name)
        self._tasks.spawn(self._await_end(name, handle))
        if (
            not adopted
            and self._probes_and_hooks.hooks.has(name, "postStart")
            and not await self._post_start(name, started)
        ):
            return
        self.send(PodEvent(PodEventKind.STARTED, started, name))
        self._publish_names()

    async def _post_start(self, name: str, started: float) -> bool:
        """Run the hook. Return False if the container has ended meanwhile or is being killed."""
        self.send(PodEvent(PodEventKind.RUNS, started, name))
        passed = await self._probes_and_hooks.hooks.post_start(name)
        if (
            self.machine.containers[name].step not in (ContainerStep.STARTING, ContainerStep.STOPPING)
            or name not in self._handles
        ):
            return False
        if not passed:
            self.send(PodEvent(PodEventKind.KILL, self._clock.now(), name, message="FailedPostStartHook"))
        return passed

    async def _follow_adopted(self, name: str, handle: Handle, *, over: bool) -> None:
        """Report the start of an adopted container.

        ``over``: it has already ended. It must not be published as running in between.
        """
        await self._report_start(name, handle, adopted=True)
        if not over or name not in self._handles:
            self.publisher.confirm(name)

    async def _await_end(self, name: str, handle: Handle) -> None:
        exit_ = await handle.ended()
        self._handles.pop(name, None)
        self._probes_and_hooks.ended(name)
        await self._probes_and_hooks.finish(name)
        if not exit_.finished_at:
            exit_ = replace(exit_, finished_at=self._clock.now())
        policy = self._launcher.container(name).get("terminationMessagePolicy")
        if policy == "FallbackToLogsOnError" and exit_.code != 0 and not exit_.message:
            directory = self._paths.container_logs(self.pod["metadata"], name)
            exit_ = replace(
                exit_, message=log_reader.last_text(directory, self.machine.containers[name].attempt)
            )
        self.send(PodEvent(PodEventKind.EXITED, self._clock.now(), name, exit_))
        self.publisher.confirm(name)
        self._publish_names()

    # -- the end -------------------------------------------------------------------------------

    async def _tear_down(self) -> None:
        """End the sandbox, release the pod's resources and remove its scratch volumes."""
        await self._launcher.sandbox.end()
        self._launcher.resources.release()
        self._names.hosts_files.pop(self.uid, None)
        self._names.retire(self.uid)
        if self.machine.failure_reason and self.directory.is_dir():
            self.write_record()
        for name in ("volumes", "work", "shm"):
            remove_filled(self.directory / name)
        self.send(PodEvent(PodEventKind.TORN_DOWN, self._clock.now()))

    def _forget(self) -> None:
        """Remove the pod's directory. Its logs stay until the end of their retention."""
        if self.machine.step is PodStep.ENDED:
            self.machine.handle(PodEvent(PodEventKind.REMOVED, self._clock.now()))
        shutil.rmtree(self.directory, ignore_errors=True)
        self._names.set_pod(self.uid, None)
        self.gone.set()
