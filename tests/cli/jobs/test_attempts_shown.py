"""Attempts in ``windlass show``: rows, words about checkpoints, the JSON record."""

from __future__ import annotations

import json
from typing import Any

from windlass.cli.jobs import attempts
from windlass.cli.jobs.jobs import Job
from windlass.jobs.attempt_records import ledger_text
from windlass.jobs.attempts import Attempt, AttemptLedger

NOW = 1_000_000.0
LEDGER = AttemptLedger(
    (
        Attempt(
            3,
            1000.0,
            started=1010.0,
            ended=1110.0,
            cause="preemption",
            detail="pod w-1 was evicted on node n1",
            signalled=1105.0,
            saved=1050.0,
            watched=True,
        ),
        Attempt(
            4,
            1110.0,
            started=1200.0,
            ended=1300.0,
            cause="node",
            signalled=1290.0,
            saved=1292.5,
            checkpoint_seconds=2.5,
            watched=True,
            sizes=((1200.0, 4), (1250.0, 3)),
        ),
        Attempt(5, 1300.0),
    ),
    dropped=2,
    dropped_queue_seconds=60.0,
    dropped_running_seconds=600.0,
)


def job(**record: Any) -> Job:
    notes = {
        "windlass.dev/job-attempts": ledger_text(LEDGER),
        "windlass.dev/job-record": json.dumps(record),
    }
    return Job(
        "PyTorchJob",
        {"metadata": {"name": "j", "annotations": notes}, "spec": {"runPolicy": {"backoffLimit": 3}}},
    )


def test_rows_tell_what_was_lost_and_why() -> None:
    first, second, third = attempts.table(attempts.ledger_of(job()), NOW)
    assert first[0] == "3"
    assert first[3:6] == ["100s", "40s", "60s"]
    assert first[6] == "preemption: pod w-1 was evicted on node n1, SIGTERM arrived, no checkpoint landed"
    assert second[6] == "node, a checkpoint landed 2.5 s after SIGTERM, pods 4 → 3"
    assert third[2:] == ["-", "-", "-", "-", "in the queue"]


def test_facts_tell_sums_restarts_and_the_best_interval() -> None:
    found = dict(attempts.facts(job(restarts={"program": 1, "node": 2}), LEDGER, NOW))
    assert found["Before"] == "2 older attempts: 60s in the queue, 10m running"
    assert found["Restarts"] == "2 by node, 1 by program (backoffLimit 3)"
    assert found["Checkpoint"].startswith("best interval 22s ")


def test_the_record_has_every_attempt() -> None:
    record = attempts.as_record(job(restarts={"node": 2}), NOW)
    assert (record["attemptCount"], record["restartsByCause"]) == (5, {"node": 2})
    first, second, third = record["attempts"]
    assert (first["lostSeconds"], first["usefulSeconds"], first["checkpointMissed"]) == (60.0, 40.0, True)
    assert (second["lostSeconds"], second["usefulSeconds"], second["checkpointSeconds"]) == (7.5, 90.0, 2.5)
    assert (third["started"], third["lostSeconds"], third["cause"]) == (None, 0.0, None)
    assert attempts.as_record(Job("Job", {"metadata": {"name": "j"}, "spec": {}}), NOW) == {}


def test_an_annotation_that_a_user_overwrote_is_no_record() -> None:
    broken = Job(
        "Job", {"metadata": {"name": "j", "annotations": {"windlass.dev/job-record": "["}}, "spec": {}}
    )
    assert attempts.restarts_by_cause(broken) == {}
