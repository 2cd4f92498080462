"""Life cycle of a job: every pair of phase and trigger."""

from __future__ import annotations

import itertools

import pytest

from windlass.jobs.lifecycle import FINAL, TABLE, JobPhase, LifecycleTrigger, next_phase

P, T = JobPhase, LifecycleTrigger


@pytest.mark.parametrize(("phase", "trigger"), list(itertools.product(JobPhase, LifecycleTrigger)))
def test_each_pair_has_the_phase_of_its_row(phase, trigger):
    expected = {
        P.CREATED: {
            T.STARTED: P.RUNNING,
            T.POD_LOST: P.RESTARTING,
            T.SUCCEEDED: P.SUCCEEDED,
            T.FAILED: P.FAILED,
            T.SUSPENDED: P.SUSPENDED,
        },
        P.RUNNING: {
            T.POD_LOST: P.RESTARTING,
            T.SUCCEEDED: P.SUCCEEDED,
            T.FAILED: P.FAILED,
            T.SUSPENDED: P.SUSPENDED,
        },
        P.RESTARTING: {
            T.STARTED: P.RUNNING,
            T.SUCCEEDED: P.SUCCEEDED,
            T.FAILED: P.FAILED,
            T.SUSPENDED: P.SUSPENDED,
        },
        P.SUSPENDED: {T.RESUMED: P.CREATED},
        P.SUCCEEDED: {},
        P.FAILED: {},
    }
    assert next_phase(phase, trigger) is expected[phase].get(trigger, phase)


def test_no_phase_follows_a_final_one():
    assert not any(phase in FINAL for phase, _ in TABLE)


def test_each_phase_can_be_reached():
    reached = {P.CREATED, *TABLE.values()}
    assert reached == set(JobPhase)
