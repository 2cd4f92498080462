"""Carries out, for one pod, what its state machine (:mod:`windlass.node.lifecycle.state_machine`) says.

Containers are started by :mod:`windlass.node.pods.launcher`. Instructions run one after the other; waiting for
an end, timers and writing the status run beside. The folder of the pod is the memory: ``pod.json`` (the
object and when it began), the sandbox, the attempts. A worker made from a folder goes on where an earlier
agent stopped.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shutil
from collections.abc import Coroutine, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from windlass.api.errors import StatusError
from windlass.client.errors import Unreachable
from windlass.kits.files import write_atomic
from windlass.node.devices.allocations import DeviceBusy
from windlass.node.devices.manager import Rejected
from windlass.node.devices.mig_instances import SliceBusy
from windlass.node.lifecycle.events import (
    DeleteObject,
    Exit,
    Instruction,
    Note,
    PodEvent,
    PodEventKind,
    Prepare,
    Remind,
    StartContainer,
    StopContainer,
    TearDown,
)
from windlass.node.lifecycle.state_machine import PodMachine, gates_of, machine_of
from windlass.node.lifecycle.status import is_held_back, is_pod_ready
from windlass.node.lifecycle.transitions import ContainerStep, PodStep
from windlass.node.paths import numbers
from windlass.node.pods.context import PodsContext
from windlass.node.pods.environment import ContainerConfigError
from windlass.node.pods.launcher import ContainerLauncher
from windlass.node.pods.notices import notices
from windlass.node.pods.pod_names import HostsFile
from windlass.node.pods.probes_and_hooks import ProbesAndHooks
from windlass.node.pods.status_publisher import StatusPublisher
from windlass.node.runtime import attempt_files, log_reader
from windlass.node.runtime.runner import UNKNOWN_MESSAGE, UNKNOWN_REASON, Handle, exit_of
from windlass.node.sandbox.hosts import NamedPod
from windlass.node.sandbox.pod_network import NetworkError

_log = logging.getLogger("windlass.node")
_RECORD = "pod.json"


class PodWorker:
    """One pod of this machine. ``gone`` is set when nothing of it is left, here or on the server."""

    def __init__(self, context: PodsContext, pod: dict[str, Any]) -> None:
        self.context = context
        self.pod = pod
        self.uid: str = pod["metadata"]["uid"]
        self.folder = context.paths.pod(self.uid)
        self.machine: PodMachine = machine_of(pod)
        self.gone = asyncio.Event()
        self.ended = asyncio.Event()
        """Set when no process of the pod is left."""
        self._queue: asyncio.Queue[Instruction] = asyncio.Queue()
        self._tasks: set[asyncio.Task[None]] = set()
        self._handles: dict[str, Handle] = {}
        self._object_gone = False
        self._launcher = ContainerLauncher(context, pod, self.folder, self._spawn)
        self._probes_and_hooks = ProbesAndHooks(
            self.machine,
            self._launcher,
            context.network,
            context.paths,
            clock=context.clock,
            rng=context.rng,
            tell=self.send,
            note=self._note,
            spawn=self._spawn,
        )
        self._ready = False
        self.publisher = StatusPublisher(
            context.client, context.clock, pod, self.machine, context.host_address
        )
        self._spawn(self._work())
        self._spawn(self._publish())

    # -- life ----------------------------------------------------------------------------------

    def begin(self) -> None:
        """A pod that this machine sees for the first time."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.machine.started_at = self.context.clock.now()
        self._remember()
        own_uid = os.geteuid()
        for note in notices(
            self.pod, self.context.options.images, self.context.capabilities, own_uid=own_uid
        ):
            self.context.note(self.pod, note)
        self._do(self.machine.begin(self.context.clock.now()))
        self.publisher.changed()

    def resume(self, lost: Mapping[str, int] | None = None) -> None:
        """A pod that ran before this agent did. ``lost``: containers (and attempts) of which nothing is known."""
        now = self.context.clock.now()
        attempts: dict[str, tuple[int, Exit | None]] = {}
        for name in self.machine.containers:
            known = numbers(self.context.paths.attempts(self.uid, name))
            if known:
                attempts[name] = (known[-1], self._earlier_exit(name, known))
            elif lost and name in lost:
                attempts[name] = (lost[name], None)
        address, health = self._recall()
        self._launcher.address = address
        self.machine.resume(now, attempts, address)
        self._probes_and_hooks.recall(health)
        if address:
            if not self._launcher.host_network:
                self.context.network.adopt(self.uid, address)
            self._announce()
        else:
            self._remember()
        self._do(self.machine.pending())
        for name, (number, _) in attempts.items():
            folder = self.context.paths.attempt(self.uid, name, number)
            handle = self.context.runner.adopt(folder)
            if handle is not None:
                self._handles[name] = handle
                self.machine.containers[name].adopted = True
                self.publisher.learn(name)
                self._adopt_cores(name, folder)
                self._probes_and_hooks.adopt(name, folder)
                over = attempt_files.read(str(folder), attempt_files.EXIT) is not None
                self._spawn(self._follow_adopted(name, handle, over=over))
            elif lost and name in lost:
                exit_ = Exit(137, UNKNOWN_REASON, message=UNKNOWN_MESSAGE, finished_at=now)
                self.send(PodEvent(PodEventKind.EXITED, now, name, exit_))
            else:
                self._queue.put_nowait(StartContainer(name, number))
        self.send(PodEvent(PodEventKind.RESUMED, now))

    def take_cards_again(self) -> None:
        """Once nobody knows who holds which device: what this pod was prepared with is its own. Raises
        :class:`Rejected`, :class:`DeviceBusy`."""
        if self.machine.address and not self.machine.is_over:
            self.context.cards.take(self.uid, self.machine.key, self.pod)

    def send(self, event: PodEvent) -> None:
        """Tell the machine; carry out what it answers."""
        self._do(self.machine.handle(event))
        self.publisher.changed()
        if self._probes_and_hooks.follow():
            self._remember()
        self._look_at_readiness()
        if self.machine.is_over:
            self.ended.set()
            if self._object_gone:
                self._forget()

    def update(self, pod: dict[str, Any]) -> None:
        """The object changed. What counts here: deletion, readiness gates, and the annotations that a binding may
        add late."""
        self.pod = self._launcher.pod = pod
        gates = gates_of(pod)
        if gates != self.machine.gates:
            self.machine.gates = gates
            self.publisher.changed()
            self._look_at_readiness()
        metadata = pod["metadata"]
        if metadata.get("deletionTimestamp"):
            self.delete(metadata.get("deletionGracePeriodSeconds"))

    def delete(self, grace_seconds: float | None) -> None:
        self.send(PodEvent(PodEventKind.DELETE, self.context.clock.now(), grace_seconds=grace_seconds))

    def object_removed(self) -> None:
        """The object is gone from the server: end what runs, then forget it."""
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
        """Nothing of the pod is on this machine and it has ended: only its object is left to delete."""
        self.machine.step = PodStep.ENDED
        self.publisher.nothing_to_tell()
        self.publisher.delete()

    def stop_now(self) -> None:
        """Kill what runs; nobody waits."""
        for handle in self._handles.values():
            handle.stop(0.0)

    async def close(self) -> None:
        """Stop working; processes keep running."""
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            _log.error("pod %s: %s", self.machine.key, self.machine.tell(), exc_info=task.exception())

    def _do(self, instructions: list[Instruction]) -> None:
        for instruction in instructions:
            match instruction:
                case Note():
                    self._note(instruction)
                case Remind():
                    self._spawn(self._remind(instruction))
                case StopContainer(container, grace):
                    handle = self._handles.get(container)
                    if handle is None:  # it is being started: behind that in the queue
                        self._queue.put_nowait(instruction)
                    else:
                        self._probes_and_hooks.hooks.stop(container, handle, grace)
                case DeleteObject():
                    self.publisher.delete()
                case _:
                    self._queue.put_nowait(instruction)

    async def _remind(self, reminder: Remind) -> None:
        await self.context.clock.sleep(reminder.after_seconds)
        self.send(PodEvent(reminder.kind, self.context.clock.now(), reminder.container))

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

    # -- memory --------------------------------------------------------------------------------

    def _remember(self) -> None:
        record = {
            "pod": self.pod,
            "started_at": self.machine.started_at,
            "address": self.machine.address,
            "failure": [self.machine.failure_reason, self.machine.failure_message],
            "health": self._probes_and_hooks.record(),
        }
        write_atomic(self.folder / _RECORD, msgspec.json.encode(record), durable=False)

    def _recall(self) -> tuple[str, dict[str, list[Any]] | None]:
        """Take back what :meth:`_remember` wrote; the pod's address, and what its probes had said."""
        record = read_pod_record(self.folder) or {}
        self.machine.started_at = record.get("started_at") or self.context.clock.now()
        reason, message = record.get("failure") or ("", "")
        self.machine.failure_reason, self.machine.failure_message = reason, message
        return record.get("address") or "", record.get("health")

    def _earlier_exit(self, name: str, known: list[int]) -> Exit | None:
        if len(known) < 2:
            return None
        where = str(self.context.paths.attempt(self.uid, name, known[-2]))
        record, started = (
            attempt_files.read(where, attempt_files.EXIT),
            attempt_files.read(where, attempt_files.STARTED),
        )
        if record is None:
            return None
        at = started["started_at_ns"] / 1e9 if started else 0.0
        return exit_of(record, at, attempt_files.read(where, attempt_files.SPEC) or {})

    def _adopt_cores(self, container: str, folder: Path) -> None:
        spec = attempt_files.read(str(folder), attempt_files.SPEC)
        if spec is not None and attempt_files.read(str(folder), attempt_files.EXIT) is None:
            self.context.limiter.adopt(self.uid, container, spec.get("affinity") or ())

    # -- preparing -----------------------------------------------------------------------------

    async def _prepare(self) -> None:
        now = self.context.clock.now
        try:
            await self.context.cards.admit(self.uid, self.machine.key, self.pod)
            address = await self._prepare_parts()
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
            self._remember()
            self.send(PodEvent(PodEventKind.PREPARED, now(), address=address))

    async def _prepare_parts(self) -> str:
        """Network, names, volumes, sandbox. Raises what :meth:`_prepare` tells."""
        context = self.context
        (self.folder / "work").mkdir(exist_ok=True)
        address = (
            context.machine_address if self._launcher.host_network else context.network.address(self.uid)
        )
        self.machine.address = self._launcher.address = address
        self._announce()
        await self._launcher.prepare_volumes()
        await context.names.settled()
        await self._launcher.prepare_sandbox()
        return address

    def _announce(self) -> None:
        """Tell the others under which names and address this pod is found."""
        metadata, spec = self.pod["metadata"], self.pod["spec"]
        if self._launcher.named and self.uid not in self.context.names.hosts_files:
            file, aliases = self.folder / "hosts", spec.get("hostAliases") or []
            self.context.names.hosts_files[self.uid] = HostsFile(file, aliases, self._launcher.host_network)
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
        before = self.context.names.pods.get(self.uid)
        self.context.names.set_pod(self.uid, named)
        if before == named and self.uid in self.context.names.hosts_files:
            self.context.names.changed()  # its own file is new

    def _note(self, note: Note) -> None:
        self.context.note(self.pod, note)

    def _look_at_readiness(self) -> None:
        """Services lead only to pods that are ready."""
        ready = is_pod_ready(self.machine)
        if ready is not self._ready:
            self._ready = ready
            if self.uid in self.context.names.pods:
                self._announce()

    # -- containers ----------------------------------------------------------------------------

    async def _start(self, name: str, attempt: int) -> None:
        now = self.context.clock.now
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
            self.send(PodEvent(PodEventKind.EXITED, self.context.clock.now(), name, started))
            return
        self._probes_and_hooks.hooks.runs(name)
        self._spawn(self._await_end(name, handle))
        if (
            not adopted
            and self._probes_and_hooks.hooks.has(name, "postStart")
            and not await self._post_start(name, started)
        ):
            return
        self.send(PodEvent(PodEventKind.STARTED, started, name))
        self._announce()

    async def _post_start(self, name: str, started: float) -> bool:
        """Carry out the hook; False when the container ended meanwhile, or has to."""
        self.send(PodEvent(PodEventKind.RUNS, started, name))
        passed = await self._probes_and_hooks.hooks.post_start(name)
        if (
            self.machine.containers[name].step not in (ContainerStep.STARTING, ContainerStep.STOPPING)
            or name not in self._handles
        ):
            return False
        if not passed:
            self.send(
                PodEvent(PodEventKind.KILL, self.context.clock.now(), name, message="FailedPostStartHook")
            )
        return passed

    async def _follow_adopted(self, name: str, handle: Handle, *, over: bool) -> None:
        """``over``: it has ended already; until that is known too, it must not seem to run."""
        await self._report_start(name, handle, adopted=True)
        if not over or name not in self._handles:
            self.publisher.learned(name)

    async def _await_end(self, name: str, handle: Handle) -> None:
        exit_ = await handle.ended()
        self._handles.pop(name, None)
        self._probes_and_hooks.ended(name)
        if not exit_.finished_at:
            exit_ = replace(exit_, finished_at=self.context.clock.now())
        policy = self._launcher.container(name).get("terminationMessagePolicy")
        if policy == "FallbackToLogsOnError" and exit_.code != 0 and not exit_.message:
            folder = self.context.paths.container_logs(self.pod["metadata"], name)
            exit_ = replace(
                exit_, message=log_reader.last_text(folder, self.machine.containers[name].attempt)
            )
        self.send(PodEvent(PodEventKind.EXITED, self.context.clock.now(), name, exit_))
        self.publisher.learned(name)
        self._announce()

    # -- the end -------------------------------------------------------------------------------

    async def _tear_down(self) -> None:
        """No container runs: end the sandbox, give back devices, address, limits, scratch volumes."""
        await self._launcher.sandbox.end()
        self.context.cards.release(self.uid)
        self.context.limiter.release(self.uid)
        self.context.names.hosts_files.pop(self.uid, None)
        self.context.network.release(self.uid)
        self.context.names.retire(self.uid)
        if self.machine.failure_reason and self.folder.is_dir():
            self._remember()
        for name in ("volumes", "work", "shm"):
            shutil.rmtree(self.folder / name, ignore_errors=True)
        self.send(PodEvent(PodEventKind.TORN_DOWN, self.context.clock.now()))

    def _forget(self) -> None:
        """The object is gone and so are the processes: remove the folder (logs stay for their time)."""
        if self.machine.step is PodStep.ENDED:
            self.machine.handle(PodEvent(PodEventKind.REMOVED, self.context.clock.now()))
        shutil.rmtree(self.folder, ignore_errors=True)
        self.context.names.set_pod(self.uid, None)
        self.gone.set()


def read_pod_record(folder: Path) -> dict[str, Any] | None:
    """What a worker remembered about its pod, or None when the folder holds nothing readable."""
    try:
        record = json.loads((folder / _RECORD).read_bytes())
    except (FileNotFoundError, ValueError):
        return None
    return record if isinstance(record, dict) and "pod" in record else None
