"""``--elastic MIN:MAX``: the PyTorchJob that is created, and ranges that are refused."""

from __future__ import annotations

import pytest

from windlass.api.errors import WindlassError
from windlass.api.resources import PYTORCH_JOBS
from windlass.cli.jobs.requests.elastic_job import elastic_job, elastic_range
from windlass.cli.jobs.requests.job_builder import JobRequest, build_job
from windlass.jobs.kubeflow.job import read_job
from windlass.jobs.kubeflow.kinds import KINDS


def test_an_elastic_job_is_a_pytorchjob_with_both_bounds() -> None:
    request = JobRequest(
        ("torchrun", "train.py"),
        gpus=2,
        queue="team",
        priority="high-priority",
        time_seconds=60,
        elastic=(2, 8),
        checkpoint_path="/data/out",
        checkpoint_hook="http://:8080/save",
    )
    built = build_job(request, "n", namespace="default", embedded=True, environ={})
    job = elastic_job(built, (2, 8))
    found = read_job(KINDS[PYTORCH_JOBS], job).definition
    assert (found.min_available, found.replicas, found.gang.queue) == (2, 8, "team")
    assert (found.run.deadline_seconds, found.gang.priority_class) == (60, "high-priority")
    template = job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]
    assert template["metadata"]["annotations"] == {
        "windlass.dev/checkpoint-path": "/data/out",
        "windlass.dev/checkpoint-hook": "http://:8080/save",
    }
    (container,) = template["spec"]["containers"]
    assert (container["name"], container["command"]) == ("pytorch", ["torchrun", "train.py"])


@pytest.mark.parametrize("text", ["2", "8:2", "0:4", "a:b", "2:", "2:8:9", "-1:2"])
def test_other_texts_are_refused_with_an_example(text: str) -> None:
    with pytest.raises(WindlassError) as caught:
        elastic_range(text, 1, "windlass run")
    assert "windlass run --elastic 2:8" in caught.value.remedies[0]


def test_nodes_and_elastic_exclude_each_other() -> None:
    assert elastic_range("2:8", 1, "windlass run") == (2, 8)
    assert elastic_range("", 4, "windlass run") is None
    with pytest.raises(WindlassError, match="both"):
        elastic_range("2:8", 4, "windlass run")
