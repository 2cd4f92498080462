"""State machine of a pod on this node. Pure.

Events go in, instructions come out (:mod:`windlass.node.lifecycle.events`). Nothing here waits,
reads or runs anything. Two tables (:mod:`windlass.node.lifecycle.transitions`) list every
transition: one for the pod, one for each of its containers. A pair of state and event without
an entry raises :class:`ImpossibleTransition`.

The semantics are the kubelet's. Init containers run in order, and restartable init containers
(sidecars) stay. Restarts follow the policy with a back-off. The phase becomes terminal only
when no process is left.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from windlass.node.lifecycle.events import (
    DeleteObject,
    Exit,
    Instruction,
    PodEvent,
    PodEventKind,
    Prepare,
    RecordEvent,
    SetTimer,
    StartContainer,
    StopContainer,
    TearDown,
)
from windlass.node.lifecycle.probe_results import Health, probes_of
from windlass.node.lifecycle.transitions import CONTAINER_TABLE, POD_TABLE, ContainerStep, PodStep


class ImpossibleTransition(Exception):
    """An event arrived in a state without a transition for it: a bug.

    The message has the history of the pod.
    """


BACKOFF_FIRST_SECONDS = 10.0
BACKOFF_CAP_SECONDS = 300.0
HEALTHY_SECONDS = 600.0
"""Seconds of run time after which the back-off is reset (as in the kubelet: twice the cap)."""
PREPARE_RETRY_SECONDS = (1.0, 2.0, 5.0, 10.0, 20.0, 30.0)


@dataclass(slots=True)
class Container:
    """Container of a pod.

    ``role``: ``init``, ``sidecar`` (an init container with restartPolicy Always), ``main`` or
    ``ephemeral``.
    """

    name: str
    role: str
    policy: str
    image: str = ""
    step: ContainerStep = ContainerStep.WAITING
    attempt: int = 0
    started_at: float = 0.0
    started_once: bool = False
    waiting_reason: str = ""
    waiting_message: str = ""
    exit: Exit | None = None
    """End of the current attempt if it is done or backing off, else None."""
    last_exit: Exit | None = None
    """End of the previous attempt."""
    failures: int = 0
    """Restarts in a row since the back-off was reset."""
    adopted: bool = False
    """True if an earlier agent started the current attempt and reported its start."""
    post_start_running: bool = False
    """True while the command and its postStart hook run."""
    killed: bool = False
    """True if a failed probe kills it. It is then restarted unless its policy is ``Never``."""
    health: Health = field(default_factory=Health)

    @property
    def succeeded(self) -> bool:
        return self.step is ContainerStep.DONE and self.exit is not None and self.exit.code == 0


@dataclass(slots=True)
class PodMachine:
    """State machine of one pod. ``containers``: in the order of the manifest, init containers first."""

    uid: str
    key: str
    containers: dict[str, Container]
    restart_policy: str = "Always"
    grace_seconds: float = 30.0
    active_deadline_seconds: float | None = None
    step: PodStep = PodStep.SETUP
    address: str = ""
    started_at: float = 0.0
    initialized_at: float = 0.0
    failure_reason: str = ""
    failure_message: str = ""
    deleting: bool = False
    stop_grace: float | None = None
    gates: dict[str, str] = field(default_factory=dict)
    """Readiness gate → status of the condition on the server. Empty if it has none."""
    preparing_reason: str = ""
    preparing_message: str = ""
    preparations: int = 0
    _history: deque[tuple[float, str]] = field(default_factory=lambda: deque(maxlen=200))
    _instructions: list[Instruction] = field(default_factory=list)

    # -- entry points ----------------------------------------------------------------------

    def begin(self, at: float) -> list[Instruction]:
        """Begin a pod that is new to this node."""
        self.started_at = self.started_at or at
        self._instructions.append(Prepare())
        self._arm_deadline(at)
        return self._take_instructions()

    def handle(self, event: PodEvent) -> list[Instruction]:
        """Process one event and return the instructions. Raises :class:`ImpossibleTransition`."""
        if event.container:
            self._handle_container(self.containers[event.container], event)
        else:
            method = POD_TABLE.get((self.step, event.kind))
            if method is None:
                raise ImpossibleTransition(f"{self.key}: {event.kind} while {self.step}; {self.history()}")
            before = self.step
            getattr(self, method)(event)
            words = f" ({event.reason}: {event.message})" if event.reason else ""
            self._log(event.at, f"{event.kind}{words}: {before} → {self.step}")
        self._advance(event.at)
        return self._take_instructions()

    def add_ephemeral(self, pod: Mapping[str, Any], at: float) -> list[Instruction]:
        """Start the ephemeral containers of the object that are new. A pod that ends gets none."""
        if self.step in (PodStep.SETUP, PodStep.INITIALIZING, PodStep.RUNNING):
            fresh = {n: c for n, c in _ephemeral_containers(pod["spec"]).items() if n not in self.containers}
            self.containers |= fresh
            if fresh:
                self._advance(at)
        return self._take_instructions()

    def resume(self, at: float, attempts: Mapping[str, tuple[int, Exit | None]], address: str) -> None:
        """Resume a pod that an earlier agent started.

        ``attempts``: container → current attempt and the end of the previous one. The caller then
        sends how each attempt stands (started or exited), and RESUMED.
        """
        self.address = address
        self.step = PodStep.INITIALIZING if attempts else PodStep.SETUP
        for name, (attempt, last) in attempts.items():
            container = self.containers[name]
            container.step = ContainerStep.STARTING
            container.attempt = attempt
            container.failures = attempt
            container.last_exit = last
            container.started_once = attempt > 0
            container.health.begin()
        self._log(at, f"resumed with {len(attempts)} containers")
        self._arm_deadline(at)

    def pending(self) -> list[Instruction]:
        """Return the instructions of :meth:`resume`."""
        return self._take_instructions()

    def history(self) -> str:
        """Return the events so far, oldest first."""
        return "; ".join(f"{at:.3f} {line}" for at, line in self._history)

    @property
    def is_over(self) -> bool:
        return self.step in (PodStep.ENDED, PodStep.GONE)

    @property
    def failed(self) -> bool:
        if self.failure_reason:
            return True
        return any(c.role in ("init", "main") and not c.succeeded for c in self.containers.values())

    # -- the pod -------------------------------------------------------------------------------

    def _prepared(self, event: PodEvent) -> None:
        self.address = event.address
        self.preparing_reason = self.preparing_message = ""
        self.step = PodStep.INITIALIZING

    def _not_prepared(self, event: PodEvent) -> None:
        changed = (event.reason, event.message) != (self.preparing_reason, self.preparing_message)
        self.preparing_reason, self.preparing_message = event.reason, event.message
        if changed:
            self._instructions.append(RecordEvent("Warning", event.reason, event.message))
        wait = PREPARE_RETRY_SECONDS[min(self.preparations, len(PREPARE_RETRY_SECONDS) - 1)]
        self.preparations += 1
        self._instructions.append(SetTimer(wait, PodEventKind.RETRY))

    def _retry(self, _: PodEvent) -> None:
        self._instructions.append(Prepare())

    def _rejected(self, event: PodEvent) -> None:
        self.failure_reason, self.failure_message = event.reason, event.message
        self._instructions.append(RecordEvent("Warning", event.reason, event.message))
        self._end()

    def _delete(self, event: PodEvent) -> None:
        self.deleting = True
        self._delete_sooner(event)

    def _delete_sooner(self, event: PodEvent) -> None:
        """End the pod within a grace period. A later event can only shorten it."""
        grace = self.grace_seconds if event.grace_seconds is None else event.grace_seconds
        if self.stop_grace is not None and grace >= self.stop_grace:
            return
        self.stop_grace = grace
        if self.step in (PodStep.TEARDOWN, PodStep.ENDED):
            return
        for container in self._active():
            if container.step is ContainerStep.STOPPING:
                self._handle_container(
                    container, PodEvent(PodEventKind.STOP, event.at, container.name, grace_seconds=grace)
                )
        self._end()

    def _delete_ended(self, event: PodEvent) -> None:
        self.deleting = True
        self._instructions.append(DeleteObject())

    def _evict(self, event: PodEvent) -> None:
        self.failure_reason, self.failure_message = event.reason, event.message
        self._instructions.append(RecordEvent("Warning", event.reason, event.message))
        self._delete_sooner(event)

    def _deadline(self, event: PodEvent) -> None:
        self.failure_reason = "DeadlineExceeded"
        self.failure_message = "Pod was active on the node longer than the specified deadline"
        self._instructions.append(RecordEvent("Normal", "DeadlineExceeded", self.failure_message))
        self._end()

    def _torn_down(self, event: PodEvent) -> None:
        self.step = PodStep.ENDED
        if self.deleting:
            self._instructions.append(DeleteObject())

    def _gone(self, _: PodEvent) -> None:
        self.step = PodStep.GONE

    def _ignore(self, _: PodEvent) -> None:
        return

    def _end(self) -> None:
        if self.step is not PodStep.ENDING:
            self.step = PodStep.ENDING

    def _arm_deadline(self, at: float) -> None:
        if self.active_deadline_seconds is not None:
            left = max(0.0, (self.started_at or at) + self.active_deadline_seconds - at)
            self._instructions.append(SetTimer(left, PodEventKind.DEADLINE))

    def _advance(self, at: float) -> None:
        """Advance the pod as far as its containers allow."""
        if self.step in (PodStep.INITIALIZING, PodStep.RUNNING):
            for container in self.containers.values():
                if container.role == "ephemeral" and container.step is ContainerStep.WAITING:
                    self._handle_container(container, PodEvent(PodEventKind.START, at, container.name))
        if self.step is PodStep.INITIALIZING:
            self._initialize(at)
        if self.step is PodStep.RUNNING:
            mains = [c for c in self.containers.values() if c.role == "main"]
            for container in mains:
                if container.step is ContainerStep.WAITING:
                    self._handle_container(container, PodEvent(PodEventKind.START, at, container.name))
            if all(c.step is ContainerStep.DONE for c in mains):
                self._end()
        if self.step is PodStep.ENDING:
            self._stop_all(at)
            if all(c.step is ContainerStep.DONE for c in self.containers.values()):
                self.step = PodStep.TEARDOWN
                self._instructions.append(TearDown())

    def _initialize(self, at: float) -> None:
        past = any(c.role == "main" and c.step is not ContainerStep.WAITING for c in self.containers.values())
        for container in self.containers.values():
            if container.role in ("main", "ephemeral"):
                continue
            if container.step is ContainerStep.WAITING:
                self._handle_container(container, PodEvent(PodEventKind.START, at, container.name))
            if container.step is ContainerStep.DONE and not container.succeeded and container.role == "init":
                self._end()
                return
            ready = container.succeeded
            if container.role == "sidecar":
                ready = container.started_once and (container.health.started or past)
            if not ready:
                return
        self.initialized_at = at
        self.step = PodStep.RUNNING

    def _stop_all(self, at: float) -> None:
        """Stop main and init containers, and after their end the sidecars, last one first."""
        grace = self.grace_seconds if self.stop_grace is None else self.stop_grace
        first = [c for c in self.containers.values() if c.role != "sidecar"]
        for container in first:
            if container.step not in (ContainerStep.STOPPING, ContainerStep.DONE):
                self._handle_container(
                    container, PodEvent(PodEventKind.STOP, at, container.name, grace_seconds=grace)
                )
        if any(c.step is not ContainerStep.DONE for c in first):
            return
        for container in reversed([c for c in self.containers.values() if c.role == "sidecar"]):
            if container.step not in (ContainerStep.STOPPING, ContainerStep.DONE):
                self._handle_container(
                    container, PodEvent(PodEventKind.STOP, at, container.name, grace_seconds=grace)
                )
            if container.step is not ContainerStep.DONE:
                return

    def _active(self) -> list[Container]:
        return [c for c in self.containers.values() if c.step is not ContainerStep.DONE]

    # -- one container -------------------------------------------------------------------------

    def _handle_container(self, container: Container, event: PodEvent) -> None:
        method = CONTAINER_TABLE.get((container.step, event.kind))
        if method is None:
            raise ImpossibleTransition(
                f"{self.key}/{container.name}: {event.kind} while {container.step}; {self.history()}"
            )
        before = container.step
        getattr(self, method)(container, event)
        words = f" ({event.reason}: {event.message})" if event.reason else ""
        self._log(event.at, f"{container.name} {event.kind}{words}: {before} → {container.step}")

    def _container_start(self, container: Container, event: PodEvent) -> None:
        container.step = ContainerStep.STARTING
        container.health.begin()
        container.waiting_reason = container.waiting_message = ""
        self._instructions.append(StartContainer(container.name, container.attempt))

    def _container_runs(self, container: Container, event: PodEvent) -> None:
        container.post_start_running = True
        self._instructions.append(RecordEvent("Normal", "Started", f"Started container {container.name}"))

    def _container_started(self, container: Container, event: PodEvent) -> None:
        container.step = ContainerStep.RUNNING
        container.started_at = event.at
        container.started_once = True
        container.waiting_reason = container.waiting_message = ""
        if not container.adopted and not container.post_start_running:
            self._instructions.append(RecordEvent("Normal", "Started", f"Started container {container.name}"))
        container.post_start_running = False

    def _container_probed(self, container: Container, event: PodEvent) -> None:
        assert event.probe is not None
        if not container.health.count_result(event.probe, event.passed):
            return
        restarted = "" if container.policy == "Never" else ", will be restarted"
        kind = "Container" if container.role == "main" else "Init container"
        text = f"{kind} {container.name} failed {event.probe.value.lower()} probe{restarted}"
        grace = container.health.probes[event.probe].grace_seconds
        container.killed = True
        self._container_kill(container, replace(event, message=text, grace_seconds=grace))

    def _container_kill(self, container: Container, event: PodEvent) -> None:
        """Stop a container so that it restarts by its policy. A pod that is ending needs no restart."""
        if self.step is PodStep.ENDING:
            return
        grace = self.grace_seconds if event.grace_seconds is None else event.grace_seconds
        self._instructions.append(RecordEvent("Normal", "Killing", event.message))
        self._instructions.append(StopContainer(container.name, grace))

    def _container_started_too_late(self, container: Container, event: PodEvent) -> None:
        container.started_at = event.at
        container.started_once = True

    def _container_refused(self, container: Container, event: PodEvent) -> None:
        """Wait before the same attempt is retried: its configuration is incomplete."""
        if (event.reason, event.message) != (container.waiting_reason, container.waiting_message):
            self._instructions.append(RecordEvent("Warning", "Failed", f"Error: {event.message}"))
        container.step = ContainerStep.BACKOFF
        container.waiting_reason, container.waiting_message = event.reason, event.message
        self._instructions.append(SetTimer(5.0, PodEventKind.DUE, container.name))

    def _container_exited(self, container: Container, event: PodEvent) -> None:
        assert event.exit is not None
        stopping = container.step is ContainerStep.STOPPING
        container.exit = event.exit
        container.started_at = event.exit.started_at or container.started_at
        if event.exit.reason == "StartError":
            self._instructions.append(RecordEvent("Warning", "Failed", f"Error: {event.exit.message}"))
        if stopping or self.step is PodStep.ENDING or not self._will_restart(container):
            container.step = ContainerStep.DONE
            return
        ran = event.exit.finished_at - container.started_at if container.started_at else 0.0
        if ran >= HEALTHY_SECONDS:
            container.failures = 0
        container.step = ContainerStep.BACKOFF
        wait = self._backoff(container)
        if container.killed and event.exit.finished_at - _last_end(container) >= wait:
            wait = 0.0
        container.failures += 1
        if wait > 0:
            container.waiting_reason = "CrashLoopBackOff"
            container.waiting_message = (
                f"back-off {_duration(wait)} restarting failed container={container.name} "
                f"pod={self.key.replace('/', '_')}({self.uid})"
            )
            text = f"Back-off restarting failed container {container.name} in pod {self.key}"
            self._instructions.append(RecordEvent("Warning", "BackOff", text))
        self._instructions.append(SetTimer(wait, PodEventKind.DUE, container.name))

    def _will_restart(self, container: Container) -> bool:
        assert container.exit is not None
        if container.killed and container.policy != "Never":
            return True
        if container.role == "init" and container.exit.code == 0:
            return False
        if container.policy == "Always":
            return True
        return container.policy == "OnFailure" and container.exit.code != 0

    @staticmethod
    def _backoff(container: Container) -> float:
        """Return the back-off: none before the first restart, then 10 s doubling to 5 min.

        The formula is the kubelet's.
        """
        if container.failures == 0:
            return 0.0
        return min(BACKOFF_CAP_SECONDS, BACKOFF_FIRST_SECONDS * 2.0 ** (container.failures - 1))

    def _container_restart(self, container: Container, event: PodEvent) -> None:
        if container.exit is not None:
            container.last_exit, container.exit = container.exit, None
            container.attempt += 1
            container.adopted = container.killed = container.post_start_running = False
        container.health.begin()
        container.step = ContainerStep.STARTING
        self._instructions.append(StartContainer(container.name, container.attempt))

    def _container_stop(self, container: Container, event: PodEvent) -> None:
        container.step = ContainerStep.STOPPING
        grace = event.grace_seconds if event.grace_seconds is not None else self.grace_seconds
        self._instructions.append(RecordEvent("Normal", "Killing", f"Stopping container {container.name}"))
        self._instructions.append(StopContainer(container.name, grace))

    def _container_stop_sooner(self, container: Container, event: PodEvent) -> None:
        grace = event.grace_seconds if event.grace_seconds is not None else self.grace_seconds
        self._instructions.append(StopContainer(container.name, grace))

    def _container_never_ran(self, container: Container, event: PodEvent) -> None:
        container.step = ContainerStep.DONE

    def _container_give_up(self, container: Container, event: PodEvent) -> None:
        container.step = ContainerStep.DONE

    def _container_ignore(self, container: Container, event: PodEvent) -> None:
        return

    # -- helpers -------------------------------------------------------------------------------

    def _log(self, at: float, line: str) -> None:
        self._history.append((at, line))

    def _take_instructions(self) -> list[Instruction]:
        out, self._instructions = self._instructions, []
        return out


def _last_end(container: Container) -> float:
    """Return the end of the previous attempt. The kubelet bases the back-off of killed containers on it."""
    return container.last_exit.finished_at if container.last_exit is not None else 0.0


def _duration(seconds: float) -> str:
    """Format a duration as Go does: ``10s``, ``2m40s``."""
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}m{rest}s" if minutes else f"{rest}s"


def _container(record: Mapping[str, Any], role: str, policy: str) -> Container:
    health = Health(probes_of(record))
    return Container(record["name"], role, policy, record.get("image") or "", health=health)


def _ephemeral_containers(spec: Mapping[str, Any]) -> dict[str, Container]:
    """Return the containers that were added to a running pod. They are never restarted."""
    listed = spec.get("ephemeralContainers") or ()
    return {record["name"]: _container(record, "ephemeral", "Never") for record in listed}


def machine_of(pod: Mapping[str, Any]) -> PodMachine:
    """Return the state machine of a pod object."""
    metadata, spec = pod["metadata"], pod["spec"]
    policy = spec.get("restartPolicy") or "Always"
    containers: dict[str, Container] = {}
    for container in spec.get("initContainers") or ():
        sidecar = container.get("restartPolicy") == "Always"
        own = "Always" if sidecar else ("OnFailure" if policy == "Always" else policy)
        role = "sidecar" if sidecar else "init"
        containers[container["name"]] = _container(container, role, own)
    for container in spec.get("containers") or ():
        own = container.get("restartPolicy") or policy
        containers[container["name"]] = _container(container, "main", own)
    containers |= _ephemeral_containers(spec)
    grace = spec.get("terminationGracePeriodSeconds")
    deadline = spec.get("activeDeadlineSeconds")
    return PodMachine(
        uid=metadata["uid"],
        key=f"{metadata['namespace']}/{metadata['name']}",
        containers=containers,
        restart_policy=policy,
        grace_seconds=30.0 if grace is None else float(grace),
        active_deadline_seconds=None if deadline is None else float(deadline),
        gates=gates_of(pod),
    )


def gates_of(pod: Mapping[str, Any]) -> dict[str, str]:
    """Return readiness gate → status of its condition on the server. Empty if it has none."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    statuses = {condition["type"]: condition["status"] for condition in conditions}
    gates = pod["spec"].get("readinessGates") or ()
    return {gate["conditionType"]: statuses.get(gate["conditionType"], "") for gate in gates}
