"""Controller of attempt ledgers: the record of a job's run, and kills between any two writes."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest
from fakeapi import Crash
from kubeflow_cluster import KubeflowWorld, kubeflow_job, replica

from windlass.api import annotations as names
from windlass.api.resources import PODS, PYTORCH_JOBS
from windlass.controllers.attempts.controller import PODS_PER_SECOND, AttemptController
from windlass.controllers.attempts.kinds import KUBEFLOW_ATTEMPTS
from windlass.controllers.effects import Effects
from windlass.jobs.attempt_records import read_ledger
from windlass.jobs.attempts import AttemptLedger
from windlass.kits.timestamps import rfc3339

KEY = "default/train"
KIND = next(kind for kind in KUBEFLOW_ATTEMPTS if kind.resource is PYTORCH_JOBS)


class Recorded(KubeflowWorld):
    """A job with its own controller and that of its attempts."""

    def restart(self) -> None:
        super().restart()
        self.effects = Effects()
        self.attempts = AttemptController(KIND, self.api, self.api.clock)  # type: ignore[arg-type]

    def record(self) -> None:
        """One look at the attempts, carried out."""
        self.effects = asyncio.run(self.attempts.reconcile(KEY))
        try:
            asyncio.run(self.executor.perform(self.effects))
        except BaseExceptionGroup as group:
            raise Crash from group

    @property
    def ledger(self) -> AttemptLedger:
        annotations = self.job["metadata"].get("annotations") or {}
        return read_ledger(annotations.get(names.JOB_ATTEMPTS))


def world(**run: Any) -> Recorded:
    return Recorded(
        kubeflow_job(PYTORCH_JOBS, run or None, Master=replica(), Worker=replica(restartPolicy="ExitCode"))
    )


def settle(one: Recorded) -> None:
    for _ in range(20):
        one.api.finish_deletions()
        if one.group is not None and not (one.group.get("status") or {}).get("phase"):
            one.admit()
        one.reconcile()
        one.record()
        if not one.last.stages and not one.effects.stages:
            return
    raise AssertionError("does not settle")


def start(one: Recorded) -> None:
    for name in one.pods():
        if (one.pod(name).get("status") or {}).get("phase") in ("Pending", None):
            status = {"phase": "Running", "startTime": rfc3339(one.api.clock.now())}
            one.api.change(PODS, f"default/{name}", spec={"nodeName": "node-1"}, status=status)


HISTORY = (
    lambda one: None,
    start,
    lambda one: one.pass_time(60),
    lambda one: one.end("train-worker-0", 137),
    lambda one: one.pass_time(5),
    start,
    lambda one: one.change_run_policy(suspend=True),
    lambda one: one.pass_time(30),
    lambda one: one.change_run_policy(suspend=False),
    start,
    lambda one: one.pass_time(30),
    lambda one: one.end("train-master-0", 0),
)


def test_each_attempt_of_a_job_is_recorded() -> None:
    one = world()
    for step in HISTORY:
        step(one)
        settle(one)
    first, second, third = one.ledger.attempts
    assert [each.cause for each in one.ledger.attempts] == ["program", "user", "completed"]
    assert "pod train-worker-0 failed with exit code 137" in first.detail
    assert first.running_seconds(0) == 60.0
    assert (second.queue_seconds(0), second.detail) == (5.0, "suspended")
    assert third.started - second.ended == 30.0
    assert names.JOB_ATTEMPTS not in ((one.group or {"metadata": {}})["metadata"].get("annotations") or {})


@pytest.mark.parametrize("writes", [0, 1, 2])
def test_a_controller_killed_after_any_write_records_the_same(writes: int) -> None:
    calm, stormy = world(), world()
    for step in HISTORY:
        for one in (calm, stormy):
            step(one)
        settle(calm)
        for _ in range(3):
            stormy.api.crash_after = writes
            with contextlib.suppress(Crash):
                stormy.reconcile()
                stormy.record()
            stormy.restart()
        settle(stormy)
        assert times(stormy.ledger) == times(calm.ledger)
    for seen, true in zip(stormy.ledger.attempts, calm.ledger.attempts, strict=True):
        assert seen.cause in (true.cause, "unknown")  # The failed pod may be gone after a crash.


def times(ledger: AttemptLedger) -> list[tuple[int, float, float, float]]:
    return [(one.number, one.queued, one.started, one.ended) for one in ledger.attempts]


def test_a_gang_of_many_pods_is_not_looked_at_after_every_change() -> None:
    one = Recorded(kubeflow_job(PYTORCH_JOBS, None, Worker=replica(200)))
    for _ in range(4):
        one.reconcile()
        if one.group is not None:
            one.admit()
    one.run()
    one.record()
    assert one.ledger.attempts[0].started
    one.end("train-worker-7", 137)
    one.record()
    assert one.effects.requeue_after == pytest.approx(200 / PODS_PER_SECOND)
    one.pass_time(1)
    one.record()
    assert one.ledger.attempts[0].ended
