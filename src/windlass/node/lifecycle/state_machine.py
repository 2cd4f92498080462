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
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from windlass.node.lifecycle import restart_rules as rules
from windlass.node.lifecycle.container import Container, backoff_after, duration, last_end
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
from windlass.node.lifecycle.probe_results import Health, probes_of
from windlass.node.lifecycle.restart_rules import RestartTogether
from windlass.node.lifecycle.transitions import CONTAINER_TABLE, POD_TABLE, ContainerStep, PodStep


class ImpossibleTransition(Exception):
    """An event arrived in a state without a transition for it: a bug.

    The message has the history of the pod.
    """


PREPARE_RETRY_SECONDS = (1.0, 2.0, 5.0, 10.0, 20.0, 30.0)


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
    job_set: str = ""
    """Name of the JobSet with which the pod restarts in place. Empty if the pod takes no part in this."""
    together: RestartTogether = field(default_factory=RestartTogether)
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

    def resume_together(self, ended: Mapping[str, int], reported: int | None = None) -> None:
        """Continue the restart of all containers that an earlier agent began.

        ``ended``, ``reported``: as that agent recorded them. The caller sends RESUMED after this.
        """
        mains = [c for c in self._active() if c.role == "main" and c.step is not ContainerStep.WAITING]
        if any(c.attempt <= ended.get(c.name, -1) for c in mains):
            self.together = RestartTogether(stopping=True, ended=ended, reported=reported)
        elif mains:
            self.together = RestartTogether(ended=ended, joined=True, lifted=True, reported=reported)

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
        if self.together.stopping and self.step in (PodStep.INITIALIZING, PodStep.RUNNING):
            self._stop_all(at, self._restartable())
            if all(c.step is ContainerStep.DONE for c in self._restartable()):
                self._all_stopped(at)
        if self.step is PodStep.INITIALIZING and not self.together.stopping:
            self._initialize(at)
        if self.step is PodStep.RUNNING and not self.together.stopping and self._may_start(at):
            mains = [c for c in self.containers.values() if c.role == "main"]
            for container in mains:
                if container.step is ContainerStep.WAITING:
                    self._handle_container(container, PodEvent(PodEventKind.START, at, container.name))
            if all(c.step is ContainerStep.DONE for c in mains):
                self._end()
        if self.step is PodStep.ENDING:
            self._stop_all(at, self.containers.values())
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

    def _stop_all(self, at: float, containers: Iterable[Container]) -> None:
        """Stop main and init containers, and after their end the sidecars, last one first."""
        containers = tuple(containers)
        grace = self.grace_seconds if self.stop_grace is None else self.stop_grace
        first = [c for c in containers if c.role != "sidecar"]
        for container in first:
            if container.step not in (ContainerStep.STOPPING, ContainerStep.DONE):
                self._handle_container(
                    container, PodEvent(PodEventKind.STOP, at, container.name, grace_seconds=grace)
                )
        if any(c.step is not ContainerStep.DONE for c in first):
            return
        for container in reversed([c for c in containers if c.role == "sidecar"]):
            if container.step not in (ContainerStep.STOPPING, ContainerStep.DONE):
                self._handle_container(
                    container, PodEvent(PodEventKind.STOP, at, container.name, grace_seconds=grace)
                )
            if container.step is not ContainerStep.DONE:
                return

    def _active(self) -> list[Container]:
        return [c for c in self.containers.values() if c.step is not ContainerStep.DONE]

    # -- restart of all containers -------------------------------------------------------------

    def _restart_all(self, event: PodEvent) -> None:
        """Stop all containers. Their next start is one of all of them, in their order."""
        if self.together.stopping:
            return
        self._instructions.append(RecordEvent("Normal", "RestartingAllContainers", event.message))
        self._stop_together()

    def _restartable(self) -> list[Container]:
        """Return the containers of the pod without those that were added to debug it."""
        return [c for c in self.containers.values() if c.role != "ephemeral"]

    def _stop_together(self) -> None:
        ended = {c.name: c.attempt for c in self._restartable() if c.step is not ContainerStep.WAITING}
        self.together = RestartTogether(stopping=True, ended=ended, wait_seconds=self.together.wait_seconds)

    def _restarts_pod(self, container: Container) -> bool:
        """Return whether the end of this container restarts all containers of the pod."""
        assert container.exit is not None
        action = rules.action_of(container.rules, container.exit.code)
        if action == rules.RESTART_ALL:
            return True
        if not self.job_set or container.role != "main":
            return False
        return action == rules.RESTART or (not container.rules and container.exit.code != 0)

    def _fail_together(self, container: Container, end: Exit) -> None:
        """Restart all containers because one has failed, after its back-off."""
        self.together.wait_seconds = backoff_after(container, end)
        container.step = ContainerStep.DONE
        text = f"container {container.name} exited with code {end.code}: restarting all containers of the pod"
        self._instructions.append(RecordEvent("Warning", "RestartingAllContainers", text))
        self._stop_together()

    def _all_stopped(self, at: float) -> None:
        """Start again, at once or after the back-off of the container that failed."""
        if self.together.wait_seconds > 0 and not self.together.backing_off:
            self.together.backing_off = True
            self._instructions.append(SetTimer(self.together.wait_seconds, PodEventKind.RESTART_DUE))
        elif not self.together.backing_off:
            self._begin_again()

    def _restart_due(self, event: PodEvent) -> None:
        if self.together.backing_off:
            self._begin_again()

    def _begin_again(self) -> None:
        """Return all containers to the state before their first start, with the next attempt."""
        for container in self._restartable():
            if container.exit is not None:
                container.last_exit, container.exit = container.exit, None
                container.attempt += 1
            container.step = ContainerStep.WAITING
            container.adopted = container.killed = container.post_start_running = False
            container.waiting_reason = container.waiting_message = ""
            container.health.begin()
        self.together = RestartTogether(ended=self.together.ended, reported=self.together.reported)
        self.step = PodStep.INITIALIZING

    def _may_start(self, at: float) -> bool:
        """Return whether the main containers may run; first join the other pods of the JobSet."""
        if not self.job_set or self.together.lifted:
            return True
        if not self.together.joined:
            self.together.joined = True
            self._instructions.append(JoinBarrier())
            for container in self.containers.values():
                if container.role == "main":
                    container.waiting_reason = "RestartBarrier"
                    container.waiting_message = f"waiting for the other pods of JobSet {self.job_set}"
        return False

    def _lift_barrier(self, event: PodEvent) -> None:
        self.together.lifted = self.together.joined

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
        if stopping or self.step is PodStep.ENDING or self.together.stopping:
            container.step = ContainerStep.DONE
            return
        if self._restarts_pod(container):
            self._fail_together(container, event.exit)
            return
        if not self._will_restart(container):
            container.step = ContainerStep.DONE
            return
        container.step = ContainerStep.BACKOFF
        wait = backoff_after(container, event.exit)
        if container.killed and event.exit.finished_at - last_end(container) >= wait:
            wait = 0.0
        if wait > 0:
            container.waiting_reason = "CrashLoopBackOff"
            container.waiting_message = (
                f"back-off {duration(wait)} restarting failed container={container.name} "
                f"pod={self.key.replace('/', '_')}({self.uid})"
            )
            text = f"Back-off restarting failed container {container.name} in pod {self.key}"
            self._instructions.append(RecordEvent("Warning", "BackOff", text))
        self._instructions.append(SetTimer(wait, PodEventKind.DUE, container.name))

    def _will_restart(self, container: Container) -> bool:
        assert container.exit is not None
        if container.killed and container.policy != "Never":
            return True
        if rules.action_of(container.rules, container.exit.code) == rules.RESTART:
            return True
        if container.role == "init" and container.exit.code == 0:
            return False
        if container.policy == "Always":
            return True
        return container.policy == "OnFailure" and container.exit.code != 0

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


def _container(record: Mapping[str, Any], role: str, policy: str) -> Container:
    return Container(
        record["name"],
        role,
        policy,
        record.get("image") or "",
        health=Health(probes_of(record)),
        rules=rules.rules_of(record),
    )


def _ephemeral_containers(spec: Mapping[str, Any]) -> dict[str, Container]:
    """Return the containers that were added to a running pod. They are never restarted."""
    listed = spec.get("ephemeralContainers") or ()
    return {record["name"]: _container(record, "ephemeral", "Never") for record in listed}


def machine_of(pod: Mapping[str, Any]) -> PodMachine:
    """Return the state machine of a pod object."""
    metadata, spec = pod["metadata"], pod["spec"]
    policy = spec.get("restartPolicy") or "Always"
    containers: dict[str, Container] = {}
    job_set = rules.job_set_of(pod)
    for container in spec.get("initContainers") or ():
        if job_set and rules.is_agent(container):
            continue  # the agent of this node does what it would do
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
        job_set=job_set,
    )


def gates_of(pod: Mapping[str, Any]) -> dict[str, str]:
    """Return readiness gate → status of its condition on the server. Empty if it has none."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    statuses = {condition["type"]: condition["status"] for condition in conditions}
    gates = pod["spec"].get("readinessGates") or ()
    return {gate["conditionType"]: statuses.get(gate["conditionType"], "") for gate in gates}
