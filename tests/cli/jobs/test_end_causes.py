"""Words for how a job ended: never a signal or a status that is not known."""

from __future__ import annotations

import example_cluster
import pytest
from fakecluster import FakeCluster

from windlass.api.resources import PODS, VOLCANO_JOBS

MESSAGE = 'exec: "./a.py": exec format error; python ./a.py'


@pytest.fixture
def cluster() -> FakeCluster:
    return example_cluster.busy()


def ended(cluster: FakeCluster, key: str = "containerStatuses", **terminated: object) -> None:
    """Add a bare pod with a container that ended so."""
    status = {
        "phase": "Failed",
        key: [{"name": "c", "restartCount": 0, "state": {"terminated": terminated}}],
    }
    spec = {"containers": [{"name": "c", "image": "i"}], "schedulerName": "windlass", "nodeName": "n0"}
    cluster.add(PODS, {"metadata": {"name": "a"}, "spec": spec, "status": status})


@pytest.mark.parametrize("key", ["containerStatuses", "initContainerStatuses"])
@pytest.mark.parametrize("reason", ["StartError", "ContainerCannotRun"])
def test_reason_of_a_failed_start_is_shown(windlass, cluster, key, reason):
    ended(cluster, key, reason=reason, exitCode=128, message=MESSAGE)
    short = f'exit 128 ({reason}): exec: "./a.py": exec format error'
    assert short in windlass("ps", "-a").out
    assert short in windlass("show", "a").out
    assert MESSAGE in windlass("explain", "a").out


def test_unknown_end_is_not_called_a_signal(windlass, cluster):
    message = "The container could not be located when the agent came back; how it ended is not known"
    ended(cluster, reason="ContainerStatusUnknown", exitCode=137, message=message)
    for words in (("ps", "-a"), ("show", "a"), ("explain", "a")):
        out = windlass(*words).out
        assert "exit status unknown (ContainerStatusUnknown)" in out
        assert "SIGKILL" not in out
    assert message in windlass("explain", "a").out


def test_signal_that_is_known_is_named(windlass, cluster):
    ended(cluster, reason="Error", exitCode=137)
    assert "exit 137 (SIGKILL)" in windlass("ps", "-a").out


@pytest.mark.parametrize("cause", ["StartError", "ContainerStatusUnknown"])
def test_help_explains_the_cause(windlass, cause):
    assert windlass("help", cause).code == 0


def test_job_of_which_some_replicas_failed_says_how_many(windlass, cluster):
    job = {
        "metadata": {"name": "sweep"},
        "spec": {"minAvailable": 1, "queue": "default", "tasks": [{"name": "t", "replicas": 200}]},
        "status": {"state": {"phase": "Completed"}, "succeeded": 171, "failed": 29},
    }
    cluster.add(VOLCANO_JOBS, job)
    cluster.add(PODS, replica("sweep", 0, "Succeeded"))
    assert "171 of 200 succeeded" in windlass("ps", "-a").out
    assert "Completed (171 of 200 succeeded)" in windlass("show", "sweep").out


def replica(job: str, index: int, phase: str) -> dict[str, object]:
    labels = {"volcano.sh/job-name": job, "volcano.sh/task-index": str(index), "volcano.sh/task-spec": "t"}
    metadata = {"name": f"{job}-t-{index}", "labels": labels}
    return {"metadata": metadata, "spec": {"containers": []}, "status": {"phase": phase}}


def test_crash_loop_shows_restarts_and_the_last_end(windlass, cluster):
    container = {
        "name": "c",
        "restartCount": 2,
        "state": {"waiting": {"reason": "CrashLoopBackOff"}},
        "lastState": {"terminated": {"exitCode": 3, "reason": "Error"}},
    }
    status = {
        "phase": "Running",
        "containerStatuses": [container],
        "conditions": [{"type": "Ready", "status": "False"}],
    }
    spec = {"containers": [{"name": "c", "image": "i"}], "schedulerName": "windlass", "nodeName": "n0"}
    cluster.add(PODS, {"metadata": {"name": "a"}, "spec": spec, "status": status})
    assert "restarted 2 times, last exit 3" in windlass("ps").out
