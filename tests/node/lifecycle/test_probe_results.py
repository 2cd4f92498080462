"""Health of a container by its probes, and the schedule of probes on a fake clock."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.kits.clock import FakeClock
from windlass.node.lifecycle.events import (
    Exit,
    PodEvent,
    PodEventKind,
    RecordEvent,
    SetTimer,
    StartContainer,
    StopContainer,
)
from windlass.node.lifecycle.probe_results import Health, Probe, ProbeKind, probes_of
from windlass.node.lifecycle.state_machine import PodMachine, machine_of
from windlass.node.lifecycle.status import is_pod_ready, status
from windlass.node.lifecycle.transitions import ContainerStep
from windlass.node.probes.handlers import HandlerOutcome, ProbeResult
from windlass.node.probes.prober import Prober

STARTUP, READINESS, LIVENESS = ProbeKind.STARTUP, ProbeKind.READINESS, ProbeKind.LIVENESS


def exec_probe(**more: Any) -> dict[str, Any]:
    return {"exec": {"command": ["true"]}, **more}


def machine(policy: str = "Always", init: Any = (), **probes: Any) -> PodMachine:
    return machine_of(
        {
            "metadata": {"uid": "u", "namespace": "ns", "name": "p"},
            "spec": {
                "restartPolicy": policy,
                "terminationGracePeriodSeconds": 20,
                "initContainers": list(init),
                "containers": [{"name": "main", **probes}],
            },
        }
    )


def run_to(found: PodMachine, name: str = "main") -> None:
    """Until the container runs."""
    found.begin(1.0)
    found.handle(PodEvent(PodEventKind.PREPARED, 1.0, address="10.0.0.9"))
    found.handle(PodEvent(PodEventKind.STARTED, 1.0, name))


def probed(found: PodMachine, kind: ProbeKind, passed: bool, name: str = "main") -> list[Any]:
    return found.handle(PodEvent(PodEventKind.PROBED, 2.0, name, probe=kind, passed=passed))


def exited(found: PodMachine, code: int, at: float, name: str = "main") -> list[Any]:
    exit_ = Exit(code, "Error" if code else "Completed", finished_at=at, started_at=1.0)
    return found.handle(PodEvent(PodEventKind.EXITED, at, name, exit_))


# -- the machine of one container ------------------------------------------------------------------


def test_a_probe_is_read_with_the_defaults_of_the_api() -> None:
    found = probes_of({"name": "m", "readinessProbe": exec_probe()})[READINESS]
    assert found == Probe(READINESS, "exec", {"command": ["true"]}, 0.0, 10.0, 1.0, 1, 3, None)
    full = exec_probe(
        initialDelaySeconds=4,
        periodSeconds=5,
        timeoutSeconds=6,
        failureThreshold=7,
        terminationGracePeriodSeconds=8,
    )
    assert probes_of({"name": "m", "livenessProbe": full})[LIVENESS] == Probe(
        LIVENESS, "exec", {"command": ["true"]}, 4.0, 5.0, 6.0, 1, 7, 8.0
    )
    assert probes_of({"name": "m", "livenessProbe": {"grpc": {"port": 1}}})[LIVENESS].action == "grpc"


def test_without_probes_a_container_is_started_and_ready_at_once() -> None:
    health = Health()
    health.begin()
    assert (health.started, health.ready) == (True, True)
    assert not any(health.is_due(kind) for kind in ProbeKind)


def of(**thresholds: tuple[int, int]) -> Health:
    """``of(readiness=(success, failure), …)``."""
    probes = {
        ProbeKind(name.title()): Probe(
            ProbeKind(name.title()), "exec", {}, success_threshold=passes, failure_threshold=fails
        )
        for name, (passes, fails) in thresholds.items()
    }
    health = Health(probes)
    health.begin()
    return health


def test_readiness_comes_and_goes_with_as_many_like_results_as_the_thresholds_say() -> None:
    health = of(readiness=(2, 3))
    seen = []
    for passed in (True, False, True, True, False, False, True, False, False, False, True, True):
        assert not health.count_result(READINESS, passed)
        seen.append(health.ready)
    #               p      f      p      p     f     f     p     f     f     f      p      p
    assert seen == [False, False, False, True, True, True, True, True, True, False, False, True]


def test_a_startup_probe_gates_the_others_and_is_then_over() -> None:
    health = of(startup=(1, 3), readiness=(1, 1), liveness=(1, 1))
    assert [kind for kind in ProbeKind if health.is_due(kind)] == [STARTUP]
    assert not health.count_result(LIVENESS, False)
    assert not health.count_result(READINESS, True)
    assert (health.started, health.ready, health.failed) == (False, False, None)
    assert not health.count_result(STARTUP, False)
    assert not health.count_result(STARTUP, True)
    assert health.started
    assert [kind for kind in ProbeKind if health.is_due(kind)] == [READINESS, LIVENESS]


def test_what_is_to_be_killed_is_asked_only_whether_it_is_ready() -> None:
    health = of(readiness=(1, 1), liveness=(1, 2))
    health.count_result(READINESS, True)
    assert not health.count_result(LIVENESS, False)
    assert health.count_result(LIVENESS, False)
    assert not health.count_result(LIVENESS, False), "one kill is enough"
    assert [kind for kind in ProbeKind if health.is_due(kind)] == [READINESS]
    health.begin()
    assert (health.ready, health.failed, health.is_due(LIVENESS)) == (False, None, True)
    assert not health.count_result(LIVENESS, False), "the count starts again"


def _tail(results: list[bool]) -> int:
    run = 0
    for result in reversed(results):
        if result is not results[-1]:
            break
        run += 1
    return run


@given(
    st.fixed_dictionaries(
        {}, optional={k.value.lower(): st.tuples(st.integers(1, 3), st.integers(1, 3)) for k in ProbeKind}
    ),
    st.lists(st.tuples(st.sampled_from(list(ProbeKind)), st.booleans()), max_size=40),
)
def test_whatever_comes_the_states_are_those_of_the_results(
    thresholds: dict[str, tuple[int, int]], results: list[tuple[ProbeKind, bool]]
) -> None:
    """Against a model that keeps every result that counted and looks at the end of the list."""
    if "startup" in thresholds:
        thresholds["startup"] = (1, thresholds["startup"][1])
    if "liveness" in thresholds:
        thresholds["liveness"] = (1, thresholds["liveness"][1])
    health = of(**thresholds)
    counted: dict[ProbeKind, list[bool]] = {kind: [] for kind in ProbeKind}
    started, ready, dead = STARTUP not in health.probes, READINESS not in health.probes, False
    for kind, passed in results:
        takes = kind in health.probes and started is not (kind is STARTUP) and (kind is READINESS or not dead)
        killed = health.count_result(kind, passed)
        if takes:
            counted[kind].append(passed)
            reached = _tail(counted[kind]) >= thresholds[kind.value.lower()][not passed]
            if kind is READINESS and reached:
                ready = passed
            elif reached and not passed:
                dead = True
                assert killed
            elif reached and kind is STARTUP:
                started = True
        assert killed is (takes and dead and kind is not READINESS)
        assert (health.started, health.ready, health.failed is not None) == (started, ready, dead)


# -- in the machine of the pod ---------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["Always", "OnFailure", "Never"])
@pytest.mark.parametrize("kind", [LIVENESS, STARTUP])
def test_a_failed_probe_kills_and_the_policy_decides_about_the_next_attempt(
    policy: str, kind: ProbeKind
) -> None:
    found = machine(policy, **{kind.field: exec_probe(failureThreshold=2, terminationGracePeriodSeconds=7)})
    run_to(found)
    assert probed(found, kind, False) == []
    word = kind.value.lower()
    ending = "" if policy == "Never" else ", will be restarted"
    assert probed(found, kind, False) == [
        RecordEvent("Normal", "Killing", f"Container main failed {word} probe{ending}"),
        StopContainer("main", 7.0),
    ]
    out = exited(found, 0, 9.0)  # however it ends
    assert any(isinstance(one, SetTimer) for one in out) is (policy != "Never")
    if policy != "Never":
        assert out == [SetTimer(0.0, PodEventKind.DUE, "main")]
        assert found.handle(PodEvent(PodEventKind.DUE, 9.0, "main")) == [StartContainer("main", 1)]


def test_the_back_off_of_what_is_killed_counts_from_the_end_before() -> None:
    """As in the kubelet: an attempt that has lived for longer than the back-off is followed at once."""
    found = machine(livenessProbe=exec_probe(failureThreshold=1))
    run_to(found)
    waits, at = [], 0.0
    for lived in (30.0, 30.0, 15.0, 50.0):
        at += lived
        probed(found, LIVENESS, False)
        waits.append(next(o.after_seconds for o in exited(found, 137, at) if isinstance(o, SetTimer)))
        found.handle(PodEvent(PodEventKind.DUE, at, "main"))
        found.handle(PodEvent(PodEventKind.STARTED, at, "main"))
    assert waits == [0.0, 0.0, 20.0, 0.0]


def test_a_failed_start_hook_is_an_ordinary_crash() -> None:
    found = machine("OnFailure")
    found.begin(1.0)
    found.handle(PodEvent(PodEventKind.PREPARED, 1.0, address="10.0.0.9"))
    assert found.handle(PodEvent(PodEventKind.RUNS, 1.0, "main")) == [
        RecordEvent("Normal", "Started", "Started container main")
    ]
    assert status(found, "h")["containerStatuses"][0]["state"] == {"waiting": {"reason": "ContainerCreating"}}
    assert found.handle(PodEvent(PodEventKind.KILL, 1.0, "main", message="FailedPostStartHook")) == [
        RecordEvent("Normal", "Killing", "FailedPostStartHook"),
        StopContainer("main", 20.0),
    ]
    assert exited(found, 143, 2.0) == [SetTimer(0.0, PodEventKind.DUE, "main")]


def test_a_start_hook_that_passes_lets_the_container_count_as_running() -> None:
    found = machine()
    found.begin(1.0)
    found.handle(PodEvent(PodEventKind.PREPARED, 1.0, address="10.0.0.9"))
    found.handle(PodEvent(PodEventKind.RUNS, 1.0, "main"))
    assert found.handle(PodEvent(PodEventKind.STARTED, 1.0, "main")) == [], "it was told that it started"
    assert is_pod_ready(found)


def test_status_and_conditions_follow_the_probes() -> None:
    found = machine(startupProbe=exec_probe(), readinessProbe=exec_probe())
    run_to(found)
    seen = []
    for kind in (STARTUP, READINESS):
        record = status(found, "h")
        main, conditions = record["containerStatuses"][0], {c["type"]: c for c in record["conditions"]}
        seen.append((main["started"], main["ready"]))
        assert conditions["Ready"]["status"] == conditions["ContainersReady"]["status"] == "False"
        assert conditions["Ready"]["message"] == "containers with unready status: [main]"
        assert record["phase"] == "Running"
        probed(found, kind, True)
    assert seen == [(False, False), (True, False)]
    assert status(found, "h")["containerStatuses"][0]["ready"]
    assert is_pod_ready(found)


def test_a_deleted_pod_is_not_killed_for_its_liveness() -> None:
    found = machine(livenessProbe=exec_probe(failureThreshold=1), readinessProbe=exec_probe())
    run_to(found)
    found.handle(PodEvent(PodEventKind.DELETE, 2.0))
    assert probed(found, LIVENESS, False) == []
    assert probed(found, READINESS, True) == []


def test_a_sidecar_lets_the_next_one_start_when_its_startup_probe_has_passed() -> None:
    sidecar = {"name": "s", "restartPolicy": "Always", "startupProbe": exec_probe(failureThreshold=1)}
    found = machine(init=[sidecar])
    run_to(found, "s")
    assert found.containers["main"].step is ContainerStep.WAITING
    conditions = {c["type"]: c for c in status(found, "h")["conditions"]}
    assert conditions["Initialized"]["message"] == "containers with incomplete status: [s]"
    assert (
        probed(found, STARTUP, False, "s")[0].message
        == "Init container s failed startup probe, will be restarted"
    )
    exited(found, 137, 3.0, "s")
    found.handle(PodEvent(PodEventKind.DUE, 3.0, "s"))
    found.handle(PodEvent(PodEventKind.STARTED, 3.0, "s"))
    assert found.containers["main"].step is ContainerStep.WAITING
    assert probed(found, STARTUP, True, "s") == [StartContainer("main", 0)]


def test_readiness_gates_hold_the_pod_back_and_only_the_pod() -> None:
    found = machine()
    found.gates = {"example.com/a": "", "example.com/b": "False", "example.com/c": "True"}
    run_to(found)
    conditions = {c["type"]: c for c in status(found, "h")["conditions"]}
    assert conditions["ContainersReady"]["status"] == "True"
    assert (conditions["Ready"]["status"], conditions["Ready"]["reason"]) == (
        "False",
        "ReadinessGatesNotReady",
    )
    assert conditions["Ready"]["message"] == (
        'corresponding condition of pod readiness gate "example.com/a" does not exist., '
        'the status of pod readiness gate "example.com/b" is not "True", but False'
    )
    found.gates = dict.fromkeys(found.gates, "True")
    assert is_pod_ready(found)


_VALID = {
    ContainerStep.STARTING: (PodEventKind.RUNS, PodEventKind.STARTED, PodEventKind.KILL, PodEventKind.EXITED),
    ContainerStep.RUNNING: (
        PodEventKind.PROBED,
        PodEventKind.PROBED,
        PodEventKind.PROBED,
        PodEventKind.EXITED,
    ),
    ContainerStep.STOPPING: (PodEventKind.PROBED, PodEventKind.EXITED),
    ContainerStep.BACKOFF: (PodEventKind.DUE,),
}


@given(st.data())
def test_in_whole_lives_ready_means_started_and_an_attempt_is_killed_once(data: st.DataObject) -> None:
    """Whatever probes, hooks, ends and a deletion come in whichever order can be."""
    probe = exec_probe(failureThreshold=2)
    found = machine(livenessProbe=probe, readinessProbe=probe, startupProbe=probe)
    found.begin(1.0)
    found.handle(PodEvent(PodEventKind.PREPARED, 1.0, address="10.0.0.9"))
    main, killed, at = found.containers["main"], set[int](), 1.0
    for _ in range(data.draw(st.integers(0, 40))):
        at += 1.0
        if main.step is ContainerStep.DONE:
            break
        kind = data.draw(st.sampled_from((*_VALID[main.step], PodEventKind.DELETE)))
        of_probe, passed = data.draw(st.sampled_from(list(ProbeKind))), data.draw(st.booleans())
        exit_ = Exit(data.draw(st.sampled_from([0, 1, 137])), "Error", finished_at=at, started_at=1.0)
        attempt, name = main.attempt, "" if kind is PodEventKind.DELETE else "main"
        out = found.handle(PodEvent(kind, at, name, exit_, message="why", probe=of_probe, passed=passed))
        if any(
            isinstance(one, RecordEvent) and "failed" in one.message and one.reason == "Killing"
            for one in out
        ):
            assert attempt not in killed
            assert any(isinstance(one, StopContainer) for one in out)
            killed.add(attempt)
        record = status(found, "h")["containerStatuses"][0]
        assert record["started"] or not record["ready"]
        assert "running" in record["state"] or not record["started"]
        assert is_pod_ready(found) is (
            record["ready"] and main.step is ContainerStep.RUNNING and not found.deleting
        )


# -- when --------------------------------------------------------------------------------------------


class Bench:
    """A pod's prober on a clock that stands still. ``answer`` says how a probe goes; ``at`` when each was asked."""

    def __init__(self, found: PodMachine, answer: Callable[[ProbeKind], HandlerOutcome]) -> None:
        self.machine = found
        self.clock = FakeClock(1.0)
        self.answer = answer
        self.at: list[tuple[ProbeKind, float]] = []
        self.notes: list[str] = []
        self.tasks: list[asyncio.Task[None]] = []
        self.prober = Prober(
            found,
            self.clock,
            random.Random(5),
            self._check,
            send=self._tell,
            record_event=lambda note: self.notes.append(f"{note.reason}: {note.message}"),
            spawn=self._spawn,
        )

    def _spawn(self, work: Any) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self.tasks.append(task)
        return task

    async def _check(self, _: str, probe: Probe) -> HandlerOutcome:
        self.at.append((probe.kind, self.clock.monotonic()))
        return self.answer(probe.kind)

    def _tell(self, event: PodEvent) -> None:
        self.machine.handle(event)
        self.prober.update()

    async def advance(self, seconds: float) -> list[tuple[ProbeKind, float]]:
        self.prober.update()
        await asyncio.sleep(0)
        await self.clock.advance(seconds)
        return self.at

    def times(self, kind: ProbeKind) -> list[float]:
        return [moment for one, moment in self.at if one is kind]


def passes(_: ProbeKind) -> HandlerOutcome:
    return HandlerOutcome(ProbeResult.PASSED)


async def test_ticks_are_multiples_of_the_period_after_the_initial_delay() -> None:
    found = machine(
        livenessProbe=exec_probe(periodSeconds=4, initialDelaySeconds=6),
        readinessProbe=exec_probe(periodSeconds=5, initialDelaySeconds=2),
    )
    bench = Bench(found, passes)
    run_to(found)
    await bench.advance(17)
    assert bench.times(LIVENESS) == [8.0, 12.0, 16.0]
    assert bench.times(READINESS) == [2.0, 5.0, 10.0, 15.0]
    assert is_pod_ready(found)


async def test_readiness_is_asked_as_soon_as_the_startup_probe_has_passed() -> None:
    found = machine(
        startupProbe=exec_probe(periodSeconds=3),
        readinessProbe=exec_probe(periodSeconds=10),
        livenessProbe=exec_probe(periodSeconds=10),
    )
    bench = Bench(
        found,
        lambda kind: HandlerOutcome(
            ProbeResult.PASSED if bench.clock.monotonic() > 5 else ProbeResult.FAILED, "no"
        ),
    )
    run_to(found)
    await bench.advance(25)
    assert bench.times(STARTUP) == [3.0, 6.0]
    assert bench.times(READINESS) == [6.0, 10.0, 20.0]
    assert bench.times(LIVENESS) == [10.0, 20.0]
    assert bench.notes == ["Unhealthy: Startup probe failed: no"]


async def test_what_could_not_be_carried_out_counts_for_nothing_and_a_warning_as_passed() -> None:
    found = machine(readinessProbe=exec_probe(periodSeconds=2, failureThreshold=1))
    answers = iter(
        [
            HandlerOutcome(ProbeResult.WARNING, "odd"),
            HandlerOutcome(ProbeResult.ERRORED, "broken"),
            HandlerOutcome(ProbeResult.FAILED, "x"),
        ]
    )
    bench = Bench(found, lambda _: next(answers))
    run_to(found)
    await bench.advance(0)
    assert is_pod_ready(found)
    await bench.advance(2)
    assert is_pod_ready(found)
    await bench.advance(2)
    assert not is_pod_ready(found)
    assert bench.notes == [
        "ProbeWarning: Readiness probe warning: odd",
        "Unhealthy: Readiness probe errored and resulted in unknown state: broken",
        "Unhealthy: Readiness probe failed: x",
    ]


async def test_probes_of_a_container_end_with_it_and_begin_with_the_next() -> None:
    found = machine(livenessProbe=exec_probe(periodSeconds=2, failureThreshold=1))
    bench = Bench(found, lambda _: HandlerOutcome(ProbeResult.FAILED, "dead"))
    run_to(found)
    await bench.advance(7)
    assert bench.times(LIVENESS) == [2.0], "one failure, then a container that is being killed is not probed"
    bench._tell(
        PodEvent(PodEventKind.EXITED, 8.0, "main", Exit(137, "Error", finished_at=8.0, started_at=1.0))
    )
    bench._tell(PodEvent(PodEventKind.DUE, 8.0, "main"))
    bench._tell(PodEvent(PodEventKind.STARTED, 8.0, "main"))
    await bench.advance(2)
    assert bench.times(LIVENESS) == [2.0, 8.0]
    found.handle(PodEvent(PodEventKind.DELETE, 9.0))
    bench.prober.update()
    await bench.clock.advance(10)
    assert all(task.done() for task in bench.tasks)


async def test_after_a_restart_of_the_agent_states_are_kept_and_probes_spread() -> None:
    found = machine(startupProbe=exec_probe(), readinessProbe=exec_probe(), livenessProbe=exec_probe())
    bench = Bench(found, passes)
    found.resume(1.0, {"main": (0, None)}, "10.0.0.9")
    found.containers["main"].adopted = True
    found.containers["main"].health.restore(True, True)
    found.handle(PodEvent(PodEventKind.STARTED, -500.0, "main"))
    found.handle(PodEvent(PodEventKind.RESUMED, 1.0))
    assert is_pod_ready(found)
    await bench.advance(10)
    first = {kind: bench.times(kind)[0] for kind in (READINESS, LIVENESS)}
    assert bench.times(STARTUP) == []
    assert all(0 < moment < 10 for moment in first.values())
    assert len(set(first.values())) == 2
    await bench.advance(10)
    for kind in (READINESS, LIVENESS):
        assert bench.times(kind)[1] == pytest.approx(first[kind] + 10)


async def test_a_pod_that_ran_through_is_not_set_back_by_a_restarted_sidecar() -> None:
    """Its sidecar is being restarted when another agent starts: what has run already runs on."""
    sidecar = {"name": "s", "restartPolicy": "Always", "startupProbe": exec_probe()}
    found = machine(init=[sidecar])
    found.resume(1.0, {"s": (3, None), "main": (0, None)}, "10.0.0.9")
    found.handle(PodEvent(PodEventKind.STARTED, 1.0, "main"))
    assert status(found, "h")["phase"] == "Running"
