"""The pod's state machine: every pair of state and event, and whole lives."""

from __future__ import annotations

from typing import Any

import pytest
from example_counts import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from windlass.node.lifecycle import container
from windlass.node.lifecycle.events import (
    DeleteObject,
    Exit,
    PodEvent,
    PodEventKind,
    Prepare,
    RecordEvent,
    SetTimer,
    StartContainer,
    StopContainer,
    TearDown,
)
from windlass.node.lifecycle.state_machine import Container, ImpossibleTransition, PodMachine, machine_of
from windlass.node.lifecycle.status import phase, stamp_conditions, status
from windlass.node.lifecycle.transitions import CONTAINER_TABLE, POD_TABLE, ContainerStep, PodStep

POD_EVENTS = (
    PodEventKind.PREPARED,
    PodEventKind.NOT_PREPARED,
    PodEventKind.REJECTED,
    PodEventKind.DELETE,
    PodEventKind.DEADLINE,
    PodEventKind.EVICT,
    PodEventKind.RETRY,
    PodEventKind.RESUMED,
    PodEventKind.RESTART_ALL,
    PodEventKind.RESTART_DUE,
    PodEventKind.BARRIER_LIFTED,
    PodEventKind.TORN_DOWN,
    PodEventKind.REMOVED,
)
CONTAINER_EVENTS = (
    PodEventKind.START,
    PodEventKind.RUNS,
    PodEventKind.STARTED,
    PodEventKind.PROBED,
    PodEventKind.KILL,
    PodEventKind.REFUSED,
    PodEventKind.EXITED,
    PodEventKind.STOP,
    PodEventKind.DUE,
)

# What no sequence of events can lead to. A pair that leaves this list needs a row in the table.
POD_IMPOSSIBLE = {
    (PodStep.SETUP, PodEventKind.TORN_DOWN),
    (PodStep.SETUP, PodEventKind.REMOVED),
    (PodStep.SETUP, PodEventKind.RESTART_ALL),
    (PodStep.SETUP, PodEventKind.RESTART_DUE),
    (PodStep.SETUP, PodEventKind.BARRIER_LIFTED),
    *(
        (step, kind)
        for step in (PodStep.INITIALIZING, PodStep.RUNNING)
        for kind in (
            PodEventKind.PREPARED,
            PodEventKind.NOT_PREPARED,
            PodEventKind.REJECTED,
            PodEventKind.RETRY,
            PodEventKind.TORN_DOWN,
            PodEventKind.REMOVED,
        )
    ),
    *(
        (PodStep.ENDING, kind)
        for kind in (
            PodEventKind.PREPARED,
            PodEventKind.NOT_PREPARED,
            PodEventKind.REJECTED,
            PodEventKind.RETRY,
            PodEventKind.TORN_DOWN,
            PodEventKind.REMOVED,
        )
    ),
    (PodStep.TEARDOWN, PodEventKind.REMOVED),
    *(
        (step, kind)
        for step in (PodStep.ENDED, PodStep.GONE)
        for kind in (
            PodEventKind.PREPARED,
            PodEventKind.NOT_PREPARED,
            PodEventKind.REJECTED,
            PodEventKind.TORN_DOWN,
        )
    ),
    (PodStep.GONE, PodEventKind.REMOVED),
}
CONTAINER_IMPOSSIBLE = {
    *(
        (ContainerStep.WAITING, kind)
        for kind in (PodEventKind.STARTED, PodEventKind.REFUSED, PodEventKind.EXITED)
    ),
    (ContainerStep.STARTING, PodEventKind.START),
    # Probes and the hook's failure are told only of what runs, or is on its way out.
    *(
        (step, kind)
        for step in (ContainerStep.WAITING, ContainerStep.BACKOFF, ContainerStep.DONE)
        for kind in (PodEventKind.RUNS, PodEventKind.PROBED, PodEventKind.KILL)
    ),
    (ContainerStep.STARTING, PodEventKind.PROBED),
    (ContainerStep.RUNNING, PodEventKind.RUNS),
    (ContainerStep.RUNNING, PodEventKind.KILL),
    *(
        (ContainerStep.RUNNING, kind)
        for kind in (PodEventKind.START, PodEventKind.STARTED, PodEventKind.REFUSED)
    ),
    (ContainerStep.STOPPING, PodEventKind.START),
    *(
        (ContainerStep.BACKOFF, kind)
        for kind in (PodEventKind.START, PodEventKind.STARTED, PodEventKind.REFUSED, PodEventKind.EXITED)
    ),
    *(
        (ContainerStep.DONE, kind)
        for kind in (PodEventKind.START, PodEventKind.STARTED, PodEventKind.REFUSED, PodEventKind.EXITED)
    ),
}


def spec(
    policy: str = "Never", init: Any = (), names: tuple[str, ...] = ("main",), **more: Any
) -> PodMachine:
    pod = {
        "metadata": {"uid": "u1", "namespace": "ns", "name": "p"},
        "spec": {
            "restartPolicy": policy,
            "terminationGracePeriodSeconds": 5,
            "containers": [{"name": name, "image": "i"} for name in names],
            "initContainers": list(init),
            **more,
        },
    }
    return machine_of(pod)


def ended(code: int = 0, at: float = 100.0) -> Exit:
    return Exit(code, "Completed" if code == 0 else "Error", finished_at=at, started_at=1.0)


class World:
    """Performs instructions as a machine would, by hand."""

    def __init__(self, machine: PodMachine) -> None:
        self.machine = machine
        self.now = 1.0
        self.out: list[Any] = machine.begin(self.now)

    def tell(self, kind: PodEventKind, container: str = "", **more: Any) -> list[Any]:
        out = self.machine.handle(PodEvent(kind, self.now, container, **more))
        self.out += out
        return out

    def up(self) -> None:
        self.tell(PodEventKind.PREPARED, address="10.0.0.9")
        for name in self.machine.containers:
            if self.machine.containers[name].step is ContainerStep.STARTING:
                self.tell(PodEventKind.STARTED, name)

    @property
    def starts(self) -> list[StartContainer]:
        return [o for o in self.out if isinstance(o, StartContainer)]


def test_every_pair_is_either_in_the_table_or_known_to_be_impossible() -> None:
    pods = {(step, kind) for step in PodStep for kind in POD_EVENTS}
    # RESUMED only follows resume(), which leaves SETUP or INITIALIZING (and whatever that led to at once).
    resumed = {(s, PodEventKind.RESUMED) for s in PodStep} - set(POD_TABLE)
    assert pods - set(POD_TABLE) - resumed == POD_IMPOSSIBLE - set(POD_TABLE)
    assert not POD_IMPOSSIBLE & set(POD_TABLE)
    containers = {(step, kind) for step in ContainerStep for kind in CONTAINER_EVENTS}
    assert containers - set(CONTAINER_TABLE) == CONTAINER_IMPOSSIBLE
    for method in (*POD_TABLE.values(), *CONTAINER_TABLE.values()):
        assert callable(getattr(PodMachine, method))


@pytest.mark.parametrize(("step", "kind"), sorted(CONTAINER_IMPOSSIBLE))
def test_impossible_container_events_raise_with_the_story(step: ContainerStep, kind: PodEventKind) -> None:
    machine = spec()
    machine.step = PodStep.RUNNING
    machine.containers["main"].step = step
    with pytest.raises(ImpossibleTransition, match="ns/p/main"):
        machine.handle(PodEvent(kind, 1.0, "main", exit=ended()))


@pytest.mark.parametrize(("step", "kind"), sorted(POD_IMPOSSIBLE))
def test_impossible_pod_events_raise(step: PodStep, kind: PodEventKind) -> None:
    machine = spec()
    machine.step = step
    with pytest.raises(ImpossibleTransition, match="ns/p"):
        machine.handle(PodEvent(kind, 1.0))


@pytest.mark.parametrize(("code", "expected"), [(0, "Succeeded"), (3, "Failed")])
def test_a_life_with_restart_policy_never(code: int, expected: str) -> None:
    world = World(spec())
    assert world.out == [Prepare()]
    assert phase(world.machine) == "Pending"
    assert world.tell(PodEventKind.PREPARED, address="10.0.0.9") == [StartContainer("main", 0)]
    world.tell(PodEventKind.STARTED, "main")
    assert phase(world.machine) == "Running"
    assert world.tell(PodEventKind.EXITED, "main", exit=ended(code)) == [TearDown()]
    assert phase(world.machine) == "Running"  # not before devices and network are given back
    world.tell(PodEventKind.TORN_DOWN)
    assert phase(world.machine) == expected
    assert world.tell(PodEventKind.DELETE) == [DeleteObject()]


def test_always_restarts_at_once_then_backs_off_doubling_to_five_minutes() -> None:
    world = World(spec("Always"))
    world.up()
    waits = []
    for attempt in range(8):
        out = world.tell(PodEventKind.EXITED, "main", exit=ended(0 if attempt % 2 else 1, at=2.0))
        waits.append(next(o.after_seconds for o in out if isinstance(o, SetTimer)))
        container = world.machine.containers["main"]
        assert container.step is ContainerStep.BACKOFF
        assert (container.waiting_reason == "CrashLoopBackOff") == (attempt > 0)
        assert world.tell(PodEventKind.DUE, "main") == [StartContainer("main", attempt + 1)]
        world.tell(PodEventKind.STARTED, "main")
    assert waits == [0.0, 10.0, 20.0, 40.0, 80.0, 160.0, 300.0, 300.0]
    record = status(world.machine, "h")["containerStatuses"][0]
    assert record["restartCount"] == 8
    assert record["lastState"]["terminated"]["containerID"].endswith("/main/7")


def test_ten_healthy_minutes_reset_the_back_off() -> None:
    world = World(spec("Always"))
    world.up()
    for _ in range(4):
        world.tell(PodEventKind.EXITED, "main", exit=ended(1, at=2.0))
        world.tell(PodEventKind.DUE, "main")
        world.tell(PodEventKind.STARTED, "main")
    out = world.tell(PodEventKind.EXITED, "main", exit=Exit(1, "Error", finished_at=1000.0, started_at=1.0))
    assert [o.after_seconds for o in out if isinstance(o, SetTimer)] == [0.0]


def test_on_failure_restarts_only_failures() -> None:
    world = World(spec("OnFailure"))
    world.up()
    world.tell(PodEventKind.EXITED, "main", exit=ended(1))
    world.tell(PodEventKind.DUE, "main")
    world.tell(PodEventKind.STARTED, "main")
    assert TearDown() in world.tell(PodEventKind.EXITED, "main", exit=ended(0))
    world.tell(PodEventKind.TORN_DOWN)
    assert phase(world.machine) == "Succeeded"


def test_init_containers_run_one_after_the_other_before_the_main_ones() -> None:
    world = World(spec(init=[{"name": "i1"}, {"name": "i2"}]))
    world.up()
    assert world.starts == [StartContainer("i1", 0)]
    record = status(world.machine, "h")
    assert record["containerStatuses"][0]["state"] == {"waiting": {"reason": "PodInitializing"}}
    initialized = next(c for c in record["conditions"] if c["type"] == "Initialized")
    assert initialized["status"] == "False"
    assert initialized["message"] == "containers with incomplete status: [i1 i2]"
    world.tell(PodEventKind.EXITED, "i1", exit=ended(0))
    assert world.starts[-1] == StartContainer("i2", 0)
    world.tell(PodEventKind.STARTED, "i2")
    assert phase(world.machine) == "Pending"
    world.tell(PodEventKind.EXITED, "i2", exit=ended(0))
    assert world.starts[-1] == StartContainer("main", 0)


def test_a_failed_init_container_fails_the_pod_or_is_tried_again() -> None:
    world = World(spec(init=[{"name": "i1"}]))
    world.up()
    assert TearDown() in world.tell(PodEventKind.EXITED, "i1", exit=ended(2))
    world.tell(PodEventKind.TORN_DOWN)
    assert phase(world.machine) == "Failed"
    again = World(spec("Always", init=[{"name": "i1"}]))
    again.up()
    again.tell(PodEventKind.EXITED, "i1", exit=ended(2))
    assert again.tell(PodEventKind.DUE, "i1") == [StartContainer("i1", 1)]


def test_sidecars_start_before_and_stop_after_the_main_containers() -> None:
    sidecars = [{"name": "s1", "restartPolicy": "Always"}, {"name": "s2", "restartPolicy": "Always"}]
    world = World(spec(init=sidecars))
    world.tell(PodEventKind.PREPARED, address="a")
    assert world.starts == [StartContainer("s1", 0)]
    world.tell(PodEventKind.STARTED, "s1")
    assert world.starts[-1] == StartContainer("s2", 0)
    world.tell(PodEventKind.STARTED, "s2")
    assert world.starts[-1] == StartContainer("main", 0)
    world.tell(PodEventKind.STARTED, "main")
    out = world.tell(PodEventKind.EXITED, "main", exit=ended(0))
    assert [o for o in out if isinstance(o, StopContainer)] == [StopContainer("s2", 5.0)]
    out = world.tell(PodEventKind.EXITED, "s2", exit=ended(143))
    assert [o for o in out if isinstance(o, StopContainer)] == [StopContainer("s1", 5.0)]
    assert TearDown() in world.tell(PodEventKind.EXITED, "s1", exit=ended(143))
    world.tell(PodEventKind.TORN_DOWN)
    assert phase(world.machine) == "Succeeded"  # how sidecars end does not count


def test_a_sidecar_that_dies_is_started_again_while_the_pod_runs() -> None:
    world = World(spec(init=[{"name": "s1", "restartPolicy": "Always"}]))
    world.up()
    world.tell(PodEventKind.EXITED, "s1", exit=ended(1))
    assert world.tell(PodEventKind.DUE, "s1") == [StartContainer("s1", 1)]


def test_ephemeral_containers_start_once_and_decide_nothing() -> None:
    world = World(spec())
    added = {"spec": {"ephemeralContainers": [{"name": "d", "image": "i"}]}}
    assert world.machine.add_ephemeral(added, 1.0) == []  # no sandbox yet
    world.up()
    assert StartContainer("d", 0) in world.starts
    assert world.machine.add_ephemeral(added, 2.0) == []
    world.tell(PodEventKind.EXITED, "d", exit=ended(1))
    assert phase(world.machine) == "Running"
    (shown,) = status(world.machine, "")["ephemeralContainerStatuses"]
    assert (shown["state"]["terminated"]["exitCode"], shown["ready"]) == (1, False)
    late = {"spec": {"ephemeralContainers": [{"name": "d"}, {"name": "e"}]}}
    world.machine.add_ephemeral(late, 3.0)
    out = world.tell(PodEventKind.EXITED, "main", exit=ended())
    assert [one.container for one in out if isinstance(one, StopContainer)] == ["e"]
    world.tell(PodEventKind.EXITED, "e", exit=ended(143))
    world.tell(PodEventKind.TORN_DOWN)
    assert phase(world.machine) == "Succeeded"
    assert world.machine.add_ephemeral({"spec": {"ephemeralContainers": [{"name": "f"}]}}, 4.0) == []


def test_deletion_stops_everything_and_removes_the_object_last() -> None:
    world = World(spec("Always", names=("a", "b")))
    world.up()
    out = world.tell(PodEventKind.DELETE, grace_seconds=7.0)
    assert [o for o in out if isinstance(o, StopContainer)] == [
        StopContainer("a", 7.0),
        StopContainer("b", 7.0),
    ]
    assert world.tell(PodEventKind.DELETE, grace_seconds=9.0) == []  # never longer
    out = world.tell(PodEventKind.DELETE, grace_seconds=1.0)
    assert [o for o in out if isinstance(o, StopContainer)] == [
        StopContainer("a", 1.0),
        StopContainer("b", 1.0),
    ]
    world.tell(PodEventKind.EXITED, "a", exit=ended(143))
    assert TearDown() in world.tell(PodEventKind.EXITED, "b", exit=ended(137))
    assert world.tell(PodEventKind.TORN_DOWN) == [DeleteObject()]
    assert phase(world.machine) == "Failed"
    world.tell(PodEventKind.REMOVED)
    assert world.machine.step is PodStep.GONE


def test_deletion_while_a_container_is_starting_stops_it() -> None:
    world = World(spec())
    world.tell(PodEventKind.PREPARED, address="a")
    assert StopContainer("main", 3.0) in world.tell(PodEventKind.DELETE, grace_seconds=3.0)
    world.tell(PodEventKind.STARTED, "main")
    assert world.machine.containers["main"].step is ContainerStep.STOPPING
    assert TearDown() in world.tell(PodEventKind.EXITED, "main", exit=ended(143))


def test_deletion_before_anything_ran_and_while_it_is_being_prepared() -> None:
    world = World(spec())
    assert world.tell(PodEventKind.DELETE) == [TearDown()]
    assert world.tell(PodEventKind.PREPARED, address="late") == []
    assert world.tell(PodEventKind.TORN_DOWN) == [DeleteObject()]


def test_deletion_during_back_off_does_not_wait_for_it() -> None:
    world = World(spec("Always"))
    world.up()
    world.tell(PodEventKind.EXITED, "main", exit=ended(1))
    assert TearDown() in world.tell(PodEventKind.DELETE)
    assert world.tell(PodEventKind.DUE, "main") == []


def test_the_deadline_fails_the_pod() -> None:
    machine = spec("Always", activeDeadlineSeconds=60)
    world = World(machine)
    assert SetTimer(60.0, PodEventKind.DEADLINE) in world.out
    world.up()
    assert StopContainer("main", 5.0) in world.tell(PodEventKind.DEADLINE)
    world.tell(PodEventKind.EXITED, "main", exit=ended(0))
    world.tell(PodEventKind.TORN_DOWN)
    record = status(machine, "h")
    assert (record["phase"], record["reason"]) == ("Failed", "DeadlineExceeded")


def test_the_deadline_counts_from_the_first_start_also_after_a_restart_of_the_agent() -> None:
    machine = spec("Always", activeDeadlineSeconds=60)
    machine.started_at = 100.0
    machine.resume(145.0, {"main": (0, None)}, "10.0.0.1")
    assert SetTimer(15.0, PodEventKind.DEADLINE) in machine.pending()


def test_a_pod_whose_containers_were_all_lost_is_over_and_may_be_deleted() -> None:
    world = World(spec("Never"))
    world.machine.resume(50.0, {"main": (0, None)}, "10.0.0.1")
    world.tell(PodEventKind.EXITED, "main", exit=ended(137))
    world.tell(PodEventKind.RESUMED)
    world.tell(PodEventKind.DELETE, grace_seconds=30)
    assert TearDown() in world.out
    assert world.tell(PodEventKind.TORN_DOWN) == [DeleteObject()]


def test_what_cannot_be_prepared_is_told_once_and_tried_again_ever_more_rarely() -> None:
    world = World(spec())
    why = {"reason": "FailedMount", "message": 'configmap "x" not found'}
    first = world.tell(PodEventKind.NOT_PREPARED, **why)
    assert RecordEvent("Warning", "FailedMount", 'configmap "x" not found') in first
    waits = [next(o.after_seconds for o in first if isinstance(o, SetTimer))]
    for _ in range(6):
        assert world.tell(PodEventKind.RETRY) == [Prepare()]
        out = world.tell(PodEventKind.NOT_PREPARED, **why)
        assert not [o for o in out if isinstance(o, RecordEvent)]
        waits.append(next(o.after_seconds for o in out if isinstance(o, SetTimer)))
    assert waits == [1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 30.0]
    state = status(world.machine, "h")["containerStatuses"][0]["state"]["waiting"]
    assert state == {"reason": "ContainerCreating", "message": 'configmap "x" not found'}
    assert world.tell(PodEventKind.RETRY) == [Prepare()]
    assert world.tell(PodEventKind.PREPARED, address="a") == [StartContainer("main", 0)]


def test_a_rejected_pod_fails_with_the_reason() -> None:
    world = World(spec())
    world.tell(PodEventKind.REJECTED, reason="UnexpectedAdmissionError", message="no such device")
    world.tell(PodEventKind.TORN_DOWN)
    record = status(world.machine, "h")
    assert (record["phase"], record["reason"]) == ("Failed", "UnexpectedAdmissionError")


def test_a_refused_configuration_tries_the_same_attempt_again() -> None:
    world = World(spec())
    world.tell(PodEventKind.PREPARED, address="a")
    world.tell(PodEventKind.REFUSED, "main", reason="CreateContainerConfigError", message="secret missing")
    waiting = status(world.machine, "h")["containerStatuses"][0]["state"]["waiting"]
    assert waiting == {"reason": "CreateContainerConfigError", "message": "secret missing"}
    assert world.tell(PodEventKind.DUE, "main") == [StartContainer("main", 0)]
    world.tell(PodEventKind.STARTED, "main")
    assert phase(world.machine) == "Running"


def test_resuming_takes_up_where_it_was_and_starts_nothing_twice() -> None:
    machine = spec("Always", init=[{"name": "i1"}])
    machine.resume(50.0, {"i1": (0, None), "main": (2, ended(1))}, "10.0.0.1")
    out = machine.pending()
    out += machine.handle(PodEvent(PodEventKind.RESUMED, 50.0))
    out += machine.handle(PodEvent(PodEventKind.STARTED, 50.0, "main"))
    out += machine.handle(PodEvent(PodEventKind.EXITED, 50.0, "i1", ended(0)))
    assert not [o for o in out if isinstance(o, StartContainer | Prepare)]
    assert phase(machine) == "Running"
    assert status(machine, "h")["containerStatuses"][0]["restartCount"] == 2


def test_an_unknown_end_is_never_success() -> None:
    world = World(spec())
    world.up()
    world.tell(PodEventKind.EXITED, "main", exit=Exit(137, "ContainerStatusUnknown"))
    world.tell(PodEventKind.TORN_DOWN)
    assert phase(world.machine) == "Failed"


def test_transition_times_stay_while_a_condition_stays_and_stale_words_are_removed() -> None:
    before = [{"type": "Ready", "status": "False", "lastTransitionTime": "T0"}]
    same = stamp_conditions(9.0, [{"type": "Ready", "status": "False"}], before)
    assert same == [
        {"type": "Ready", "status": "False", "reason": None, "message": None, "lastTransitionTime": "T0"}
    ]
    changed = stamp_conditions(0.0, [{"type": "Ready", "status": "True"}], before)
    assert changed[0]["lastTransitionTime"] == "1970-01-01T00:00:00Z"


class Chance:
    """Answers every instruction sooner or later, in an order and with exits that are drawn; nothing may be asked of
    it that makes no sense."""

    def __init__(self, machine: PodMachine, data: st.DataObject) -> None:
        self.machine = machine
        self.draw = data.draw
        self.worker: list[PodEvent] = []  # a worker does one thing after the other
        self.timers: list[PodEvent] = []
        self.live: set[str] = set()
        self.started: set[tuple[str, int]] = set()
        self.refused: set[str] = set()
        self.deleted = False

    def perform(self, instructions: list[Any]) -> None:
        for instruction in instructions:
            match instruction:
                case Prepare():
                    self.worker.append(PodEvent(PodEventKind.PREPARED, 1.0, address="a"))
                case StartContainer(name, attempt):
                    assert name not in self.live
                    assert (name, attempt) not in self.started or name in self.refused
                    self.started.add((name, attempt))
                    self.live.add(name)
                    self.worker.append(PodEvent(PodEventKind.STARTED, 1.0, name))
                case StopContainer(name, _):
                    assert name in self.live
                case SetTimer(_, kind, name):
                    self.timers.append(PodEvent(kind, 1.0, name))
                case TearDown():
                    assert not self.live
                    self.worker.append(PodEvent(PodEventKind.TORN_DOWN, 1.0))
                case DeleteObject():
                    assert not self.live
                    assert self.machine.step is PodStep.ENDED
                    self.worker.append(PodEvent(PodEventKind.REMOVED, 1.0))

    def tell(self, event: PodEvent) -> None:
        self.perform(self.machine.handle(event))

    def something_happens(self) -> None:
        """The worker's next answer, a timer, an exit, or a deletion."""
        answers = [*self.worker[:1], *self.timers]
        starting = {event.container for event in self.worker if event.kind is PodEventKind.STARTED}
        up = (ContainerStep.RUNNING, ContainerStep.STOPPING)
        exits = [
            name
            for name in sorted(self.live)
            if self.machine.containers[name].step in up and name not in starting
        ]
        pick = self.draw(st.integers(0, len(answers) + len(exits)))
        if pick < len(answers):
            self.answer(answers[pick])
        elif pick < len(answers) + len(exits):
            self.exit(exits[pick - len(answers)], self.draw(st.sampled_from([0, 1])), 2.0)
        else:
            self.delete()

    def answer(self, event: PodEvent) -> None:
        (self.worker if self.worker and event is self.worker[0] else self.timers).remove(event)
        if event.kind is PodEventKind.STARTED and self.draw(st.integers(0, 5)) == 0:
            self.live.discard(event.container)
            self.refused.add(event.container)
            event = PodEvent(PodEventKind.REFUSED, 1.0, event.container, reason="R", message="m")
        self.tell(event)

    def exit(self, name: str, code: int, at: float) -> None:
        self.live.discard(name)
        self.tell(PodEvent(PodEventKind.EXITED, at, name, ended(code, at)))

    def delete(self) -> None:
        if not self.deleted:
            self.deleted = True
            self.tell(PodEvent(PodEventKind.DELETE, 3.0, grace_seconds=1.0))

    def all_happens(self) -> None:
        """Draw requests and every kind of exit."""
        if self.worker or self.timers:
            self.tell((self.worker or self.timers).pop(0))
        elif self.live:
            self.exit(min(self.live), 143, 4.0)


@settings(max_examples=examples(150), deadline=None)
@given(st.data())
def test_no_life_starts_an_attempt_twice_or_ends_before_its_processes(data: st.DataObject) -> None:
    """A random world, and then a deletion."""
    policy = data.draw(st.sampled_from(["Always", "OnFailure", "Never"]))
    init = data.draw(st.lists(st.sampled_from(["init", "sidecar"]), max_size=2))
    machine = spec(
        policy,
        init=[
            {"name": f"i{n}", **({"restartPolicy": "Always"} if kind == "sidecar" else {})}
            for n, kind in enumerate(init)
        ],
        names=("a", "b")[: data.draw(st.integers(1, 2))],
    )
    world = Chance(machine, data)
    world.perform(machine.begin(1.0))
    for _ in range(60):
        status(machine, "h")
        if machine.step is not PodStep.GONE:
            world.something_happens()
    world.delete()
    for _ in range(100):
        if machine.step is not PodStep.GONE:
            world.all_happens()
    assert machine.step is PodStep.GONE, machine.history()
    assert not world.live


def test_container_records_are_those_of_the_manifest() -> None:
    machine = spec("Always", init=[{"name": "i"}, {"name": "s", "restartPolicy": "Always"}])
    assert [(c.name, c.role, c.policy) for c in machine.containers.values()] == [
        ("i", "init", "OnFailure"),
        ("s", "sidecar", "Always"),
        ("main", "main", "Always"),
    ]
    assert isinstance(machine.containers["i"], Container)
    assert container.BACKOFF_CAP_SECONDS == 300.0
