"""Decision about a job: restarts, limits, success, clean-up."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.jobs.decision import (
    BACKOFF_LIMIT_EXCEEDED,
    DEADLINE_EXCEEDED,
    LifecycleState,
    RestartCounts,
    decide_job,
)
from windlass.jobs.definition import (
    CleanPodPolicy,
    GangPolicy,
    JobDefinition,
    Quorum,
    RestartRule,
    Role,
    RunPolicy,
    SuccessRule,
)
from windlass.jobs.lifecycle import FINAL, JobPhase
from windlass.jobs.members import LossCause, RolePod

P = JobPhase
NOW = 1000.0


def role(
    name: str = "Worker", replicas: int = 2, restart: RestartRule = RestartRule.ON_FAILURE, **more
) -> Role:
    return Role(name, name.lower(), replicas, replicas, {}, restart, **more)


def job(*roles: Role, success: tuple[SuccessRule, ...] = (), **run) -> JobDefinition:
    found = roles or (role(),)
    return JobDefinition(
        "default",
        "j",
        "uid",
        found,
        success or (SuccessRule((found[0].name,)),),
        RunPolicy(**run),
        GangPolicy("default"),
    )


def pod(index: int = 0, phase: str = "Running", name: str = "Worker", **more) -> RolePod:
    return RolePod(f"j-{name.lower()}-{index}", f"{name}{index}", name, index, phase, **more)


RUNNING = LifecycleState(P.RUNNING, started=900.0)


def test_missing_pods_are_created():
    decision = decide_job(job(), LifecycleState(), [pod(0, "Pending")], NOW)
    assert [(found.name, index) for found, index in decision.create] == [("Worker", 1)]
    assert decision.state == LifecycleState(started=NOW)


def test_no_pod_is_created_while_the_old_one_terminates():
    decision = decide_job(job(), RUNNING, [pod(0), pod(1, deleting=True)], NOW)
    assert decision.create == ()


@pytest.mark.parametrize(
    ("restart", "exit_code", "phase"),
    [
        (RestartRule.ON_FAILURE, 1, P.RESTARTING),
        (RestartRule.ALWAYS, 1, P.RESTARTING),
        (RestartRule.NEVER, 1, P.FAILED),
        (RestartRule.NEVER, 137, P.FAILED),
        (RestartRule.EXIT_CODE, 1, P.FAILED),
        (RestartRule.EXIT_CODE, 127, P.FAILED),
        (RestartRule.EXIT_CODE, 128, P.RESTARTING),
        (RestartRule.EXIT_CODE, 137, P.RESTARTING),
    ],
)
def test_failed_pod_restarts_or_fails_the_job_by_its_rule(restart, exit_code, phase):
    failed = pod(1, "Failed", exit_code=exit_code)
    decision = decide_job(job(role(restart=restart)), RUNNING, [pod(0), failed], NOW)
    assert decision.state.phase is phase
    assert decision.delete == ((failed,) if phase is P.RESTARTING else ())
    if phase is P.FAILED:
        assert f"exit code {exit_code}" in decision.state.message


@pytest.mark.parametrize("restart", list(RestartRule))
def test_evicted_pod_is_replaced_whatever_the_rule_is(restart):
    evicted = pod(1, "Failed", exit_code=143, disrupted=True)
    decision = decide_job(job(role(restart=restart), backoff_limit=0), RUNNING, [pod(0), evicted], NOW)
    assert (decision.state.phase, decision.delete) == (P.RESTARTING, (evicted,))
    assert decision.state.restarts.by_cause == {LossCause.PREEMPTION: 1}


def test_pod_of_a_lost_node_counts_as_the_nodes_fault():
    lost = pod(1, "Failed", disrupted=True, reason="NodeLost")
    decision = decide_job(job(), RUNNING, [pod(0), lost], NOW)
    assert decision.state.restarts.by_cause == {LossCause.NODE: 1}


def test_lost_pod_is_counted_once_however_often_it_is_seen():
    pods = [pod(0), pod(1, "Failed", exit_code=1)]
    state = RUNNING
    for _ in range(3):
        state = decide_job(job(), state, pods, NOW).state
    assert state.restarts == RestartCounts({LossCause.PROGRAM: 1}, frozenset({"Worker1"}))
    gone = decide_job(job(), state, [pod(0)], NOW).state
    assert gone.restarts == RestartCounts({LossCause.PROGRAM: 1})


@pytest.mark.parametrize(
    ("limit", "restarts", "failed"), [(3, 2, False), (3, 3, True), (0, 0, False), (0, 1, True)]
)
def test_restarts_by_the_node_count_against_the_limit(limit, restarts, failed):
    pods = [pod(0, restarts=restarts), pod(1)]
    decision = decide_job(job(backoff_limit=limit), RUNNING, pods, NOW)
    assert (decision.state.phase is P.FAILED) == failed


@pytest.mark.parametrize(
    ("limit", "before", "failed"), [(2, 1, False), (2, 2, True), (0, 0, True), (None, 99, False)]
)
def test_one_failure_more_than_the_limit_fails_the_job(limit, before, failed):
    state = replace(RUNNING, restarts=RestartCounts({LossCause.PROGRAM: before}))
    pods = [pod(0), pod(1, "Failed", exit_code=1)]
    decision = decide_job(job(backoff_limit=limit), state, pods, NOW)
    assert (decision.state.phase is P.FAILED) == failed
    if failed:
        assert decision.state.cause == BACKOFF_LIMIT_EXCEEDED
        assert decision.delete == tuple(pods)


def test_deadline_counts_from_the_start_and_deletes_all_pods():
    definition = job(deadline_seconds=150)
    before = decide_job(definition, RUNNING, [pod(0), pod(1)], NOW)
    assert (before.state.phase, before.due_seconds) == (P.RUNNING, 50.0)
    after = decide_job(definition, RUNNING, [pod(0), pod(1)], NOW + 50)
    assert (after.state.phase, after.state.cause, len(after.delete)) == (P.FAILED, DEADLINE_EXCEEDED, 2)


MASTER = role("Master", 1)


@pytest.mark.parametrize(
    ("rule", "done", "succeeded"),
    [
        (SuccessRule(("Master",)), [("Master", 0)], True),
        (SuccessRule(("Master",)), [("Worker", 0), ("Worker", 1)], False),
        (SuccessRule(("Worker",)), [("Worker", 0)], False),
        (SuccessRule(("Worker",)), [("Worker", 0), ("Worker", 1)], True),
        (SuccessRule(("Worker",), Quorum.ANY), [("Worker", 1)], True),
        (SuccessRule(("Worker",), Quorum.FIRST), [("Worker", 1)], False),
        (SuccessRule(("Worker",), Quorum.FIRST), [("Worker", 0)], True),
        (SuccessRule(("Chief",)), [("Worker", 0)], False),
    ],
)
def test_success_rules(rule, done, succeeded):
    pods = [
        pod(index, "Succeeded" if (name, index) in done else "Running", name)
        for name, index in (("Master", 0), ("Worker", 0), ("Worker", 1))
    ]
    decision = decide_job(job(MASTER, role(), success=(rule,)), RUNNING, pods, NOW)
    assert (decision.state.phase is P.SUCCEEDED) == succeeded
    assert decision.state.completed == (NOW if succeeded else 0.0)


@pytest.mark.parametrize(
    ("policy", "deleted"),
    [(CleanPodPolicy.NONE, []), (CleanPodPolicy.RUNNING, [1]), (CleanPodPolicy.ALL, [0, 1])],
)
def test_clean_pod_policy(policy, deleted):
    pods = [pod(0, "Succeeded"), pod(1)]
    state = LifecycleState(P.SUCCEEDED, 900.0, 950.0)
    decision = decide_job(job(clean_pods=policy), state, pods, NOW)
    assert [found.index for found in decision.delete] == deleted
    assert decision.create == ()


def test_finished_job_expires_after_its_time_to_live():
    state = LifecycleState(P.FAILED, 900.0, 950.0)
    assert decide_job(job(ttl_seconds=60), state, [], NOW).due_seconds == 10.0
    assert decide_job(job(ttl_seconds=50), state, [], NOW).expired
    assert not decide_job(job(), state, [], NOW).expired


def test_suspended_job_has_no_pods_and_starts_anew():
    suspended = decide_job(job(suspend=True), RUNNING, [pod(0), pod(1)], NOW)
    assert (suspended.state.phase, suspended.state.started, len(suspended.delete)) == (P.SUSPENDED, 0.0, 2)
    resumed = decide_job(job(), suspended.state, [], NOW + 5)
    assert (resumed.state.phase, resumed.state.started, len(resumed.create)) == (P.CREATED, NOW + 5, 2)


def test_pods_beyond_the_replicas_are_deleted():
    decision = decide_job(job(role(replicas=1)), RUNNING, [pod(0), pod(1)], NOW)
    assert [found.index for found in decision.delete] == [1]


def test_failure_of_a_pod_that_does_not_count_changes_nothing():
    roles = (MASTER, role(restart=RestartRule.NEVER, counts=False))
    pods = [pod(0, name="Master"), pod(0, "Failed", exit_code=1), pod(1)]
    decision = decide_job(job(*roles), RUNNING, pods, NOW)
    assert (decision.state.phase, decision.delete, decision.create) == (P.RUNNING, (), ())


PHASES = st.sampled_from(["Pending", "Running", "Succeeded", "Failed"])


@st.composite
def scenes(draw):
    definition = job(
        role("Master", 1, draw(st.sampled_from(list(RestartRule)))),
        role("Worker", draw(st.integers(1, 3)), draw(st.sampled_from(list(RestartRule)))),
        suspend=draw(st.booleans()),
        backoff_limit=draw(st.none() | st.integers(0, 2)),
        deadline_seconds=draw(st.none() | st.integers(1, 200)),
        clean_pods=draw(st.sampled_from(list(CleanPodPolicy))),
    )
    pods = [
        pod(
            index,
            draw(PHASES),
            found.name,
            exit_code=draw(st.sampled_from([0, 1, 137])),
            deleting=draw(st.booleans()),
            disrupted=draw(st.booleans()),
            restarts=draw(st.integers(0, 2)),
        )
        for found, index in definition.pods()
        if draw(st.booleans())
    ]
    state = LifecycleState(draw(st.sampled_from(list(JobPhase))), draw(st.sampled_from([0.0, 900.0])))
    return definition, state, pods


@given(scenes())
def test_decision_is_stable_and_final_phases_stay(scene):
    definition, state, pods = scene
    first = decide_job(definition, state, pods, NOW)
    again = decide_job(definition, first.state, pods, NOW)
    if state.phase in FINAL:
        assert first.state == state
    names = {found.name for found in pods}
    assert not {definition.pod_name(*place) for place in first.create} & names
    assert not any(found.deleting for found in first.delete)
    if first.state.phase in FINAL:
        assert again.state == first.state
    assert again.state.restarts == first.state.restarts


def test_an_elastic_job_that_has_its_minimum_goes_on():
    elastic = replace(role(replicas=3), minimum=2)
    lost = pod(2, deleting=True, disrupted=True, node="n")
    running = [pod(0, node="n"), pod(1, node="n"), lost]
    assert decide_job(job(elastic), RUNNING, running, NOW).state.phase is P.RUNNING
    below = decide_job(job(elastic), RUNNING, [*running[:1], lost], NOW)
    assert below.state.phase is P.RESTARTING
    assert decide_job(job(role(replicas=3)), RUNNING, running, NOW).state.phase is P.RESTARTING


def test_a_finished_elastic_job_deletes_pods_without_a_node():
    elastic = replace(role(replicas=3), minimum=1)
    done = (SuccessRule(("Worker",), Quorum.ANY),)
    pods = [pod(0, "Succeeded", node="n"), pod(1, node="n"), pod(2, "Pending")]
    decision = decide_job(job(elastic, success=done), RUNNING, pods, NOW)
    assert decision.state.phase is P.SUCCEEDED
    assert [found.name for found in decision.delete] == ["j-worker-2"]
