"""Minimum and end of a job of each kind, as the attempt ledger reads them."""

from __future__ import annotations

from typing import Any

import pytest

from windlass.controllers.attempts.kinds import (
    BATCH_ATTEMPTS,
    JOBSET_ATTEMPTS,
    KUBEFLOW_ATTEMPTS,
    RAY_ATTEMPTS,
    TRAINER_ATTEMPTS,
    VOLCANO_ATTEMPTS,
    AttemptKind,
)
from windlass.jobs.attempts import JobOutcome

OUTCOMES = JobOutcome
PYTORCH = next(kind for kind in KUBEFLOW_ATTEMPTS if kind.resource.kind == "PyTorchJob")


def conditions(kind: str, **more: Any) -> dict[str, Any]:
    return {"conditions": [{"type": kind, "status": "True", **more}]}


@pytest.mark.parametrize(
    ("kind", "status", "outcome", "time_limit"),
    [
        (VOLCANO_ATTEMPTS, {"state": {"phase": "Running"}}, OUTCOMES.ACTIVE, False),
        (VOLCANO_ATTEMPTS, {"state": {"phase": "Completed"}}, OUTCOMES.SUCCEEDED, False),
        (VOLCANO_ATTEMPTS, {"state": {"phase": "Aborted"}}, OUTCOMES.STOPPED, False),
        (PYTORCH, conditions("Succeeded"), OUTCOMES.SUCCEEDED, False),
        (PYTORCH, conditions("Suspended"), OUTCOMES.STOPPED, False),
        (BATCH_ATTEMPTS, conditions("Complete"), OUTCOMES.SUCCEEDED, False),
        (BATCH_ATTEMPTS, conditions("Failed", reason="DeadlineExceeded"), OUTCOMES.FAILED, True),
        (JOBSET_ATTEMPTS, conditions("Completed"), OUTCOMES.SUCCEEDED, False),
        (JOBSET_ATTEMPTS, conditions("Failed"), OUTCOMES.FAILED, False),
        (TRAINER_ATTEMPTS, conditions("Complete"), OUTCOMES.SUCCEEDED, False),
        (TRAINER_ATTEMPTS, {}, OUTCOMES.ACTIVE, False),
        (RAY_ATTEMPTS, {"jobDeploymentStatus": "Running"}, OUTCOMES.ACTIVE, False),
        (RAY_ATTEMPTS, {"jobDeploymentStatus": "Complete"}, OUTCOMES.SUCCEEDED, False),
        (
            RAY_ATTEMPTS,
            {"jobDeploymentStatus": "Failed", "reason": "DeadlineExceeded"},
            OUTCOMES.FAILED,
            True,
        ),
        (RAY_ATTEMPTS, {"jobDeploymentStatus": "Suspended"}, OUTCOMES.STOPPED, False),
    ],
)
def test_the_end_of_a_job(
    kind: AttemptKind, status: dict[str, Any], outcome: JobOutcome, time_limit: bool
) -> None:
    end = kind.end({"metadata": {"name": "j"}, "spec": {}, "status": status})
    assert (end.outcome, end.time_limit) == (outcome, time_limit)


def test_a_job_that_is_suspended_by_its_spec_has_stopped() -> None:
    for kind in (BATCH_ATTEMPTS, JOBSET_ATTEMPTS, TRAINER_ATTEMPTS):
        assert kind.end({"metadata": {}, "spec": {"suspend": True}}).outcome is JobOutcome.STOPPED


@pytest.mark.parametrize(
    ("kind", "spec", "minimum"),
    [
        (VOLCANO_ATTEMPTS, {"tasks": [{"replicas": 2}, {}]}, 3),
        (VOLCANO_ATTEMPTS, {"minAvailable": 1, "tasks": [{"replicas": 2}]}, 1),
        (PYTORCH, {"pytorchReplicaSpecs": {"Worker": {"replicas": 3}}}, 3),
        (
            PYTORCH,
            {"elasticPolicy": {"minReplicas": 2}, "pytorchReplicaSpecs": {"Worker": {"replicas": 3}}},
            2,
        ),
        (BATCH_ATTEMPTS, {"parallelism": 5}, 1),
        (
            JOBSET_ATTEMPTS,
            {
                "replicatedJobs": [
                    {"replicas": 2, "template": {"spec": {"parallelism": 4, "completions": 3}}},
                    {"template": {"spec": {}}},
                ]
            },
            7,
        ),
        (TRAINER_ATTEMPTS, {"trainer": {"numNodes": 4}}, 4),
        (TRAINER_ATTEMPTS, {}, 1),
        (
            RAY_ATTEMPTS,
            {
                "rayClusterSpec": {
                    "headGroupSpec": {},
                    "workerGroupSpecs": [{"groupName": "w", "replicas": 2}],
                }
            },
            3,
        ),
        (RAY_ATTEMPTS, {"clusterSelector": {}}, 1),
    ],
)
def test_the_pods_without_which_a_job_does_not_run(
    kind: AttemptKind, spec: dict[str, Any], minimum: int
) -> None:
    assert kind.minimum({"metadata": {"name": "j", "uid": "u"}, "spec": spec}) == minimum
