"""Attempt ledger: the split of each attempt, causes of the end, storage, property of repeated observations."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from windlass.jobs.attempt_records import ledger_text, read_ledger, read_report, report_text
from windlass.jobs.attempts import (
    MAX_ATTEMPTS,
    Attempt,
    AttemptLedger,
    AttemptPod,
    CheckpointReport,
    EndCause,
    JobObservation,
    JobOutcome,
    advance,
    best_interval,
)


def pod(index: int = 0, phase: str = "Running", run: int = 1, **more: object) -> AttemptPod:
    given = {"created": 100.0 * run, "started": 100.0 * run + 10, "node": "n1", **more}
    uid = str(given.pop("uid", f"u-{run}-{index}"))
    return AttemptPod(f"w-{index}", uid, phase, **given)  # type: ignore[arg-type]


def seen(
    now: float, *pods: AttemptPod, outcome: JobOutcome = JobOutcome.ACTIVE, **more: object
) -> JobObservation:
    given = {"minimum": 2, "created": 90.0, **more}
    return JobObservation(outcome=outcome, pods=pods, now=now, **given)  # type: ignore[arg-type]


def history(*observations: JobObservation) -> AttemptLedger:
    ledger = AttemptLedger()
    for observed in observations:
        ledger = advance(ledger, observed)
        assert advance(ledger, observed) == ledger  # repeated after a crash
        assert read_ledger(ledger_text(ledger)) == ledger
    return ledger


def test_an_undisturbed_job_has_one_useful_attempt() -> None:
    ledger = history(
        seen(95, pod(0, "Pending", started=0.0)),
        seen(112, pod(0), pod(1, started=112.0)),
        seen(
            160,
            pod(0, "Succeeded", ended=150.0),
            pod(1, "Succeeded", ended=155.0),
            outcome=JobOutcome.SUCCEEDED,
        ),
    )
    (only,) = ledger.attempts
    assert (only.queued, only.started, only.ended, only.cause) == (90.0, 112.0, 155.0, "completed")
    assert (only.queue_seconds(999), only.useful_seconds(999), only.lost_seconds()) == (22.0, 43.0, 0.0)


def test_an_end_by_a_signal_is_none_of_the_program_for_kinds_that_say_so() -> None:
    for says, code, reason, cause in (
        (True, 137, "", "signal"),
        (True, 137, "OOMKilled", "program"),
        (True, 1, "", "program"),
        (False, 137, "", "program"),
    ):
        lost = pod(1, "Failed", ended=140.0, exit_code=code, reason=reason)
        ledger = history(seen(112, pod(0), pod(1)), replace(seen(141, pod(0), lost), signals_disrupt=says))
        assert ledger.attempts[0].cause == cause


@pytest.mark.parametrize(
    ("lost", "cause", "words"),
    [
        (pod(1, "Failed", ended=140.0, exit_code=3), "program", "pod w-1 failed with exit code 3 on node n1"),
        (pod(1, "Failed", ended=140.0, disrupted=True), "preemption", "pod w-1 was evicted on node n1"),
        (pod(1, "Running", deleted=140.0, disrupted=True), "preemption", "pod w-1 was evicted on node n1"),
        (pod(1, "Failed", ended=140.0, node_lost=True), "node", "pod w-1 was lost on node n1"),
        (pod(1, "Failed", ended=140.0, reason="NodeLost"), "node", "pod w-1 was lost on node n1"),
        (pod(1, "Failed", ended=140.0, reason="DeadlineExceeded"), "time limit", "ran longer"),
        (pod(1, "Running", deleted=140.0), "user", "pod w-1 was deleted"),
    ],
)
def test_the_cause_of_an_end_and_the_next_attempt(lost: AttemptPod, cause: str, words: str) -> None:
    ledger = history(
        seen(112, pod(0), pod(1)),
        seen(141, pod(0), lost),
        seen(143, pod(0)),
        seen(220, pod(0), pod(1, run=2)),
    )
    first, second = ledger.attempts
    assert (first.ended, first.cause) == (140.0, cause)
    assert words in first.detail
    assert (second.number, second.queued, second.started, second.ended) == (
        2,
        140.0,
        210.0,
        0.0,
    )
    assert first.lost_seconds() is None  # no checkpoint is declared


def test_lost_time_counts_from_the_checkpoint_that_landed() -> None:
    report = CheckpointReport(signalled=141.0, saved=142.5, seconds=1.5, watched=True)
    dying = pod(1, deleted=171.0, disrupted=True, report=CheckpointReport(signalled=141.0, watched=True))
    ledger = history(
        seen(112, pod(0), pod(1)),
        seen(141, pod(0), dying),
        seen(144, pod(0), replace(dying, phase="Failed", ended=143.5, report=report)),
    )
    first = ledger.attempts[0]
    assert (first.ended, first.saved, first.signalled) == (143.5, 142.5, 141.0)
    assert first.lost_seconds() == 1.0
    assert first.useful_seconds(0) == pytest.approx(143.5 - 110 - 1.0 - 1.5)
    assert not first.checkpoint_missed


def test_a_signal_without_a_checkpoint_is_told() -> None:
    report = CheckpointReport(signalled=141.0, saved=120.0, watched=True)
    ledger = history(
        seen(112, pod(0), pod(1)),
        seen(144, pod(0), pod(1, "Failed", ended=143.0, disrupted=True, report=report)),
    )
    first = ledger.attempts[0]
    assert first.checkpoint_missed
    assert first.lost_seconds() == 23.0
    never = replace(first, saved=0.0)
    assert never.lost_seconds() == never.running_seconds(0)


def test_suspension_and_time_limit_of_the_job() -> None:
    running = seen(112, pod(0), pod(1))
    stopped = history(running, seen(150, outcome=JobOutcome.STOPPED, message="suspended"))
    assert [(one.cause, one.detail, one.ended) for one in stopped.attempts] == [("user", "suspended", 150.0)]
    resumed = advance(stopped, seen(310, pod(0, run=3), pod(1, run=3)))
    assert [(one.queued, one.started) for one in resumed.attempts[1:]] == [(300.0, 310.0)]
    late = history(running, seen(150, outcome=JobOutcome.FAILED, time_limit=True, message="too long"))
    assert late.attempts[0].cause == EndCause.TIME_LIMIT


def test_pods_of_a_suspended_attempt_belong_to_no_later_one() -> None:
    """The pods still run when the suspension is seen, and their ends are seen after the resume."""
    ends = [pod(index, "Failed", deleted=153.0, ended=152.0, exit_code=143) for index in (0, 1)]
    new = [pod(index, run=3) for index in (0, 1)]
    ledger = history(
        seen(112, pod(0), pod(1)),
        seen(150, pod(0), pod(1), outcome=JobOutcome.STOPPED, message="suspended"),
        seen(153, *ends, outcome=JobOutcome.STOPPED, message="suspended"),
        seen(312, *ends, *new),
        seen(313, ends[1], *new),
        seen(314, *ends, *new),
        seen(320, *ends, *new, outcome=JobOutcome.STOPPED),
        seen(420, *ends, *(replace(one, phase="Failed", ended=321.0) for one in new), pod(0, run=4)),
    )
    assert [one.cause for one in ledger.attempts] == ["user", "user", ""]
    assert [one.started for one in ledger.attempts] == [110.0, 310.0, 0.0]


def test_successor_of_the_same_second_makes_no_attempt_with_an_evicted_pod() -> None:
    """Times of pods are whole seconds. Both pods were evicted, and the second one took its grace period."""
    first = [pod(index, "Failed", ended=140.0 + index, disrupted=True) for index in (0, 1)]
    new = [pod(index, run=2, created=141.0, started=141.0) for index in (0, 1)]
    ledger = history(
        seen(112, pod(0), pod(1)),
        seen(140, first[0], pod(1)),
        seen(142, *first, *new),
        seen(150, *first, *new),
    )
    assert [(one.cause, one.started) for one in ledger.attempts] == [("preemption", 110.0), ("", 141.0)]


def test_failed_job_that_deleted_its_pods_was_ended_by_its_program() -> None:
    words = "its pods were restarted 2 times (backoffLimit)"
    deleted = pod(1, "Failed", deleted=140.0, ended=140.0, exit_code=143)
    for pods in ((), (pod(0, deleted=140.0), deleted)):
        ended = seen(141, *pods, outcome=JobOutcome.FAILED, message=words)
        (only,) = history(seen(112, pod(0), pod(1)), ended).attempts
        assert (only.cause, only.detail) == ("program", words)
    failed = pod(0, "Failed", ended=140.5, exit_code=3)
    ended = seen(141, failed, deleted, outcome=JobOutcome.FAILED, message=words)
    (only,) = history(seen(112, pod(0), pod(1)), ended).attempts
    assert only.detail == "pod w-0 failed with exit code 3 on node n1"


def test_an_elastic_attempt_goes_on_above_its_minimum() -> None:
    four = [pod(index) for index in range(4)]
    ledger = history(
        seen(112, *four),
        seen(130, *four[:3], pod(3, "Failed", ended=129.0, exit_code=1)),
        seen(150, *four[:3], pod(3, run=2, started=149.0)),
    )
    (only,) = ledger.attempts
    assert [size for _, size in only.sizes] == [4, 3, 4]
    assert not only.ended


def test_old_attempts_are_summed() -> None:
    ledger = AttemptLedger()
    for run in range(1, 31):
        ledger = advance(ledger, seen(100 * run + 12, pod(0, run=run), minimum=1))
        failed = pod(0, "Failed", run=run, ended=100.0 * run + 50, exit_code=1)
        ledger = advance(ledger, seen(100 * run + 51, failed, minimum=1))
    assert ledger.count == 31  # the last one is in the queue
    assert len(ledger.attempts) == MAX_ATTEMPTS
    assert (ledger.dropped, ledger.dropped_running_seconds) == (11, 440.0)
    ended = advance(ledger, seen(3160, minimum=1, outcome=JobOutcome.FAILED))
    assert (ended.count, ended.attempts[-1].cause) == (30, "program")
    assert len(ledger_text(ledger)) < 4000


def test_the_advised_interval_is_that_of_young_and_daly() -> None:
    attempts = tuple(
        Attempt(
            n, 0.0, started=1.0, ended=3601.0, cause="node", saved=2.0, checkpoint_seconds=8.0, watched=True
        )
        for n in (1, 2)
    )
    advised = best_interval(AttemptLedger(attempts), 9999.0)
    assert advised == pytest.approx((2 * 8.0 * 3600.0) ** 0.5)
    assert best_interval(AttemptLedger(), 1.0) is None


def test_reports_and_ledgers_that_a_user_overwrote_are_empty() -> None:
    report = CheckpointReport(141.0, 142.0, 1.5, True)
    assert read_report(report_text(report)) == report
    for text in (None, "", "{", "[]", '{"attempts": 3}', '{"saved": "x"}'):
        assert read_report(text) == CheckpointReport()
        assert read_ledger(text) == AttemptLedger()


PODS = st.lists(
    st.builds(
        pod,
        st.integers(0, 3),
        st.sampled_from(["Pending", "Running", "Succeeded", "Failed"]),
        run=st.integers(1, 3),
        ended=st.sampled_from([0.0, 140.0, 260.0]),
        deleted=st.sampled_from([0.0, 150.0]),
        disrupted=st.booleans(),
    ),
    max_size=4,
)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(PODS, st.sampled_from(list(JobOutcome))), max_size=6))
def test_every_history_keeps_the_order_of_times(steps: list[tuple[list[AttemptPod], JobOutcome]]) -> None:
    ledger = AttemptLedger()
    for number, (pods, outcome) in enumerate(steps):
        observed = seen(400.0 + number, *pods, outcome=outcome)
        ledger = advance(ledger, observed)
        settled = advance(ledger, observed)
        assert advance(settled, observed) == settled
        for one in ledger.attempts:
            assert one.queued <= (one.started or one.queued)
            assert not one.ended or one.ended >= max(one.started, one.queued)
            assert bool(one.ended) == bool(one.cause)
        assert [one.number for one in ledger.attempts] == list(range(1, ledger.count + 1))
        assert all(one.ended for one in ledger.attempts[:-1])
        assert read_ledger(ledger_text(ledger)) == ledger


def test_a_failed_pod_whose_successor_has_succeeded_is_an_attempt() -> None:
    failed = pod(0, "Failed", ended=111.0, exit_code=137, uid="old")
    done = pod(0, "Succeeded", ended=113.0, started=112.0)
    ledger = history(seen(113, failed, done, minimum=1, outcome=JobOutcome.SUCCEEDED))
    assert [one.cause for one in ledger.attempts] == ["program", "completed"]
    assert [one.ended for one in ledger.attempts] == [111.0, 113.0]
