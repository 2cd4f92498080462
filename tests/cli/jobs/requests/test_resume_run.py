"""``windlass submit --resume``: the next attempt of a job that has ended, and refusals with a remedy."""

from __future__ import annotations

import json
from typing import Any

import example_cluster
import pytest
from fakecluster import FakeCluster

from windlass.api.annotations import CHECKPOINT_PATH, JOB_ATTEMPTS, JOB_RECORD
from windlass.api.resources import BATCH_JOBS, VOLCANO_JOBS
from windlass.jobs.attempt_records import ledger_text
from windlass.jobs.attempts import Attempt, AttemptLedger

LEDGER = ledger_text(AttemptLedger((Attempt(1, 1.0, 2.0, 3.0, "program"),)))


@pytest.fixture
def cluster() -> FakeCluster:
    return example_cluster.busy()


def end(cluster: FakeCluster, name: str, phase: str = "Failed", **annotations: str) -> dict[str, Any]:
    job = cluster.objects[VOLCANO_JOBS, "default", name]
    job["status"] = {"state": {"phase": phase}}
    job["metadata"]["annotations"] = {"team": "a", JOB_ATTEMPTS: LEDGER, JOB_RECORD: "{}", **annotations}
    return job


def test_job_is_repeated_with_its_ledger(windlass: Any, cluster: FakeCluster) -> None:
    before = end(cluster, "train")
    spec, uid = json.loads(json.dumps(before["spec"])), before["metadata"].get("uid")
    done = windlass("submit", "--resume", "train")
    assert (done.code, done.out) == (0, "train\n")
    assert "attempt 2 of train (end of the last one: program)" in done.err
    after = cluster.objects[VOLCANO_JOBS, "default", "train"]
    assert after["spec"] == spec
    assert after["metadata"].get("uid") != uid
    assert after["metadata"]["annotations"] == {"team": "a", JOB_ATTEMPTS: LEDGER}
    assert not (after.get("status") or {}).get("state")


@pytest.mark.parametrize(
    ("arguments", "phase", "words", "remedy"),
    [
        (["nope"], "Failed", 'there is no job "nope"', "windlass submit --name nope -- COMMAND"),
        (["train"], "Running", "it has not ended: Running", "windlass logs -f train"),
        (["train"], "Aborted", "it is suspended", "windlass resume train"),
        (["train"], "Completed", "it has completed", "windlass submit --resume train -- COMMAND"),
        (["train", "--gpus", "1"], "Failed", "--gpus would have no effect", "--resume train … -- COMMAND"),
        (["train", "--kind", "job", "--", "true"], "Failed", "describe a Job", "--kind vcjob --resume train"),
        (["--", "true"], "Failed", 'there is no job "true"', "windlass ps -a"),
        ([], "Failed", "--resume needs the name of a job", "windlass submit --resume NAME"),
    ],
)
def test_nothing_to_resume_is_refused_with_a_remedy(
    windlass: Any, cluster: FakeCluster, arguments: list[str], phase: str, words: str, remedy: str
) -> None:
    before = end(cluster, "train", phase)
    done = windlass("submit", "--resume", *arguments)
    assert done.code != 0
    assert words in done.err
    assert remedy in done.err
    assert cluster.objects[VOLCANO_JOBS, "default", "train"] == before


def test_no_checkpoint_at_the_declared_place_is_told(
    windlass: Any, cluster: FakeCluster, tmp_path: Any
) -> None:
    end(cluster, "train", **{CHECKPOINT_PATH: str(tmp_path / "step")})
    refused = windlass("submit", "--resume", "train")
    assert f"no checkpoint of train is at {tmp_path}/step" in refused.err
    assert "windlass delete vcjob train" in refused.err
    (tmp_path / "step").touch()
    assert windlass("submit", "--resume", "train").code == 0


def test_command_finds_its_newest_job_and_keeps_the_checkpoint_path(
    windlass: Any, cluster: FakeCluster, tmp_path: Any
) -> None:
    (tmp_path / "step").touch()
    end(cluster, "train", **{CHECKPOINT_PATH: str(tmp_path / "step")})
    script = tmp_path / "train.sh"
    script.touch()
    done = windlass("submit", "--resume", "--", "sh", str(script))
    assert done.code == 0, done.err
    after = cluster.objects[VOLCANO_JOBS, "default", "train"]
    assert after["spec"]["tasks"][0]["template"]["metadata"]["annotations"][CHECKPOINT_PATH]
    assert after["metadata"]["annotations"][JOB_ATTEMPTS] == LEDGER


def test_selector_that_the_server_added_is_not_repeated(windlass: Any, cluster: FakeCluster) -> None:
    labels = {"batch.kubernetes.io/controller-uid": "u", "app": "x"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    job = {
        "metadata": {"name": "sweep"},
        "spec": {"selector": {"matchLabels": labels}, "template": template},
        "status": {"conditions": [{"type": "Failed", "status": "True"}]},
    }
    cluster.add(BATCH_JOBS, job)
    assert windlass("submit", "--resume", "sweep").code == 0
    spec = cluster.objects[BATCH_JOBS, "default", "sweep"]["spec"]
    assert "selector" not in spec
    assert spec["template"]["metadata"]["labels"] == {"app": "x"}
