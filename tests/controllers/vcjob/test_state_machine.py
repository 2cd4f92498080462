"""The life cycle table, pair by pair, against Volcano's description of it."""

from __future__ import annotations

import itertools

import pytest

from windlass.controllers.vcjob.state_machine import (
    ACTIONS,
    ACTIVE,
    ENDING,
    FINAL,
    RESTARTABLE,
    TARGETED,
    TRANSITIONS,
    JobTrigger,
    Phase,
    RestartScope,
    follow,
)

# One line per phase: trigger → next phase, +1 where the retry counts, the scope where pods are replaced.
EXPECTED = """
Pending     RestartJob          Restarting  +1 all
Pending     RestartTask         Restarting  +1 target
Pending     RestartPod          Restarting  +1 target
Pending     RestartPartition    Restarting  +1 target
Pending     AbortJob            Aborting
Pending     TerminateJob        Terminating
Pending     CompleteJob         Completing
Pending     Started             Running
Running     RestartJob          Restarting  +1 all
Running     RestartTask         Restarting  +1 target
Running     RestartPod          Restarting  +1 target
Running     RestartPartition    Restarting  +1 target
Running     AbortJob            Aborting
Running     TerminateJob        Terminating
Running     CompleteJob         Completing
Running     EnoughSucceeded     Completed
Running     TooFewSucceeded     Failed
Running     Stalled             Pending
Restarting  RetriesSpent        Failed
Restarting  Cleared             Pending
Restarting  RestartJob          Restarting  +0 all
Restarting  RestartTask         Restarting  +0 target
Restarting  RestartPod          Restarting  +0 target
Restarting  RestartPartition    Restarting  +0 target
Restarting  AbortJob            Aborting
Restarting  TerminateJob        Terminating
Restarting  CompleteJob         Completing
Aborting    ResumeJob           Restarting  +1 unsucceeded
Aborting    Quiet               Aborted
Aborted     ResumeJob           Restarting  +1 unsucceeded
Terminating Quiet               Terminated
Completing  Quiet               Completed
"""


def expected() -> dict[tuple[str, str], tuple[str, bool, str]]:
    table = {}
    for line in EXPECTED.strip().splitlines():
        phase, trigger, target, *rest = line.split()
        retry = bool(rest) and rest[0] == "+1"
        table[phase, trigger] = (target, retry, rest[1] if len(rest) > 1 else "none")
    return table


@pytest.mark.parametrize(("phase", "trigger"), list(itertools.product(Phase, JobTrigger)))
def test_every_pair(phase: Phase, trigger: JobTrigger) -> None:
    wanted = expected().get((str(phase), str(trigger)))
    found = follow(phase, trigger)
    if wanted is None:
        assert found is None
    else:
        assert found is not None
        assert (str(found.phase), found.retry, str(found.scope)) == wanted


def test_the_expectation_speaks_of_real_pairs_only() -> None:
    assert len(expected()) == len(TRANSITIONS)
    for phase, trigger in expected():
        assert phase in [str(p) for p in Phase]
        assert trigger in [str(t) for t in JobTrigger]


def test_no_way_leads_out_of_an_end() -> None:
    assert all(follow(phase, trigger) is None for phase in FINAL for trigger in JobTrigger)


def test_every_phase_can_be_reached_and_every_other_can_be_left() -> None:
    reached = {transition.phase for transition in TRANSITIONS.values()} | {Phase.PENDING}
    assert reached == set(Phase)
    assert {phase for phase, _ in TRANSITIONS} == set(Phase) - FINAL


def test_only_what_restarts_aims_at_pods() -> None:
    for (_, trigger), transition in TRANSITIONS.items():
        restarts = transition.phase is Phase.RESTARTING
        assert restarts == (transition.scope is not RestartScope.NONE)
        if trigger in TARGETED:
            assert transition.scope is RestartScope.TARGET


def test_the_named_sets_do_not_overlap() -> None:
    assert not ACTIVE & ENDING
    assert not FINAL & (ACTIVE | ENDING)
    assert RESTARTABLE > ACTIVE
    assert TARGETED < ACTIONS
