"""Restart of all containers of a pod in place: by its own rules, and together with the pods of a JobSet."""

from __future__ import annotations

from typing import Any

from windlass.api import annotations as names
from windlass.node.lifecycle.events import (
    Exit,
    JoinBarrier,
    PodEvent,
    PodEventKind,
    SetTimer,
    StartContainer,
    StopContainer,
    TearDown,
)
from windlass.node.lifecycle.restart_rules import is_agent, worker_command
from windlass.node.lifecycle.state_machine import PodMachine, machine_of
from windlass.node.lifecycle.status import is_pod_ready, phase, status
from windlass.node.lifecycle.transitions import ContainerStep, PodStep

ALL = [{"action": "RestartAllContainers", "exitCodes": {"operator": "NotIn", "values": [0, 42]}}]
AGENT = {"name": "in-place-restart-agent", "image": "r.io/agent:1", "restartPolicy": "Always"}


def machine(*containers: dict[str, Any], init: Any = (), job_set: str = "") -> PodMachine:
    notes = {names.RESTART_IN_PLACE: job_set} if job_set else {}
    mains = containers or ({"name": "main", "command": ["x"]},)
    pod = {
        "metadata": {"uid": "u", "namespace": "ns", "name": "p", "annotations": notes},
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 5,
            "containers": list(mains),
            "initContainers": list(init),
        },
    }
    return machine_of(pod)


class Play:
    """Performs the starts and stops of a machine; ``codes``: exit code of a container that is stopped."""

    def __init__(self, of: PodMachine) -> None:
        self.machine, self.now, self.out, self.held = of, 1.0, [], False
        self._do(of.begin(self.now))
        self.tell(PodEventKind.PREPARED, address="10.0.0.9")

    def tell(self, kind: PodEventKind, container: str = "", **more: Any) -> None:
        self._do(self.machine.handle(PodEvent(kind, self.now, container, **more)))

    def end(self, container: str, code: int) -> None:
        exit_ = Exit(code, "Error" if code else "Completed", finished_at=self.now, started_at=self.now - 0.5)
        self.tell(PodEventKind.EXITED, container, exit=exit_)

    def _do(self, instructions: list[Any]) -> None:
        self.out += instructions
        for found in instructions:
            if isinstance(found, StartContainer):
                self.tell(PodEventKind.STARTED, found.container)
            elif isinstance(found, StopContainer) and not self.held:
                self.end(found.container, 143)

    def taken(self, kind: type) -> list[Any]:
        found = [one for one in self.out if isinstance(one, kind)]
        self.out = []
        return found


def test_rule_restarts_all_containers_from_the_first_init_container_on() -> None:
    play = Play(machine({"name": "a", "restartPolicyRules": ALL}, {"name": "b"}, init=[{"name": "i"}]))
    play.end("i", 0)
    assert play.taken(StartContainer) == [
        StartContainer("i", 0),
        StartContainer("a", 0),
        StartContainer("b", 0),
    ]
    play.end("a", 3)
    assert play.machine.step is PodStep.INITIALIZING
    assert phase(play.machine) == "Running"
    play.end("i", 0)
    starts = play.taken(StartContainer)
    assert starts == [StartContainer("i", 1), StartContainer("a", 1), StartContainer("b", 1)]
    record = {one["name"]: one for one in status(play.machine, "h")["containerStatuses"]}
    assert record["a"]["lastState"]["terminated"]["exitCode"] == 3
    assert record["b"]["lastState"]["terminated"]["exitCode"] == 143
    play.end("a", 42)  # no rule matches: the policy decides
    play.end("b", 0)
    assert play.taken(TearDown)
    assert play.machine.failed


def test_second_failure_waits_for_the_back_off_of_its_container() -> None:
    play = Play(machine({"name": "a", "restartPolicyRules": ALL}, {"name": "b"}))
    play.end("a", 1)
    play.taken(StartContainer)
    play.end("a", 1)
    assert play.taken(SetTimer) == [SetTimer(10.0, PodEventKind.RESTART_DUE)]
    assert play.machine.containers["b"].step is ContainerStep.DONE
    play.tell(PodEventKind.RESTART_DUE)
    assert play.taken(StartContainer) == [StartContainer("a", 2), StartContainer("b", 2)]
    play.tell(PodEventKind.DUE, "a")  # a timer from before the restart changes nothing
    assert play.machine.containers["a"].step is ContainerStep.RUNNING


def test_restart_rule_restarts_one_container() -> None:
    rule = {"action": "Restart", "exitCodes": {"operator": "In", "values": [7]}}
    play = Play(machine({"name": "a", "restartPolicyRules": [rule]}, {"name": "b"}))
    play.end("a", 7)
    assert play.taken(SetTimer) == [SetTimer(0.0, PodEventKind.DUE, "a")]
    assert play.machine.containers["b"].step is ContainerStep.RUNNING


def test_pod_of_a_job_set_waits_for_the_others_before_every_start() -> None:
    play = Play(machine(init=[AGENT], job_set="js"))
    assert list(play.machine.containers) == ["main"]  # the node does what the agent would do
    assert play.taken(JoinBarrier)
    assert not play.taken(StartContainer)
    waiting = status(play.machine, "h")["containerStatuses"][0]["state"]["waiting"]
    assert waiting == {"reason": "RestartBarrier", "message": "waiting for the other pods of JobSet js"}
    play.tell(PodEventKind.BARRIER_LIFTED)
    assert play.taken(StartContainer) == [StartContainer("main", 0)]
    assert is_pod_ready(play.machine)
    play.end("main", 1)
    assert play.taken(JoinBarrier)
    assert not is_pod_ready(play.machine)
    play.tell(PodEventKind.BARRIER_LIFTED)
    assert play.taken(StartContainer) == [StartContainer("main", 1)]
    play.tell(PodEventKind.RESTART_ALL, message="others")
    assert play.taken(JoinBarrier)
    assert phase(play.machine) == "Running"
    play.tell(PodEventKind.BARRIER_LIFTED)
    play.end("main", 0)
    assert play.taken(TearDown)
    assert not play.machine.failed


def test_deletion_ends_a_restart() -> None:
    for held in (True, False):
        play = Play(machine(job_set="js"))
        play.tell(PodEventKind.BARRIER_LIFTED)
        play.held = held
        play.tell(PodEventKind.RESTART_ALL)
        play.held = False
        play.tell(PodEventKind.DELETE, grace_seconds=0.0)
        assert play.taken(TearDown), held
        play.tell(PodEventKind.RESTART_DUE)
        play.tell(PodEventKind.BARRIER_LIFTED)
        assert not play.taken(StartContainer)


def test_next_agent_continues_a_restart_and_leaves_running_pods_alone() -> None:
    for recorded, attempt, restarts in (({"main": 0}, 0, True), ({"main": 0}, 1, False), ({}, 0, False)):
        resumed = machine(job_set="js")
        resumed.resume(1.0, {"main": (attempt, None)}, "10.0.0.9")
        resumed.resume_together(recorded)
        out = resumed.handle(PodEvent(PodEventKind.RESUMED, 1.0))
        assert any(isinstance(one, StopContainer) for one in out) is restarts
        if restarts:
            out = resumed.handle(PodEvent(PodEventKind.EXITED, 1.0, "main", Exit(0, "Completed")))
            assert out == [JoinBarrier()]
            assert resumed.containers["main"].attempt == 1
        else:
            assert not any(isinstance(one, JoinBarrier) for one in out)


def test_agent_of_job_set_is_recognised_by_its_image_or_bare_name() -> None:
    wrapped = {"name": "c", "image": "r.io/x/in-place-restart-agent:v1"}
    assert is_agent(wrapped)
    assert is_agent(AGENT)
    assert not is_agent({"name": "in-place-restart-agent", "image": "own", "command": ["x"]})
    assert worker_command(wrapped, {"WORKER_COMMAND": "echo hi"}) == ["bash", "-c", "echo hi"]
    assert worker_command(wrapped, {}) == []
