"""The job that ``windlass run`` and ``submit`` build of their options."""

from __future__ import annotations

import os
import sys
from typing import Any

import pytest

from windlass.api.resources import PODS
from windlass.cli.jobs.requests.job_builder import JobRequest, base_name, build_job, escape_expansion


def job(*words: str, environ: dict[str, str] | None = None, **wish: Any) -> dict[str, Any]:
    return build_job(
        JobRequest(words or ("true",), **{"time_seconds": 0, **wish}),
        "n",
        namespace="default",
        embedded=True,
        environ=environ or {},
    )


def pod_spec(made: dict[str, Any]) -> dict[str, Any]:
    return made["spec"]["tasks"][0]["template"]["spec"]


def notes(made: dict[str, Any]) -> dict[str, str]:
    return made["spec"]["tasks"][0]["template"].get("metadata", {}).get("annotations", {})


def test_a_part_of_each_gpu_is_asked_for_instead_of_whole_ones():
    made = job(gpus=2, gpu_memory="10Gi", gpu_model="H100")
    assert "resources" not in pod_spec(made)["containers"][0]
    assert notes(made) == {
        "windlass.dev/gpu-memory": "10Gi",
        "windlass.dev/gpu-count": "2",
        "windlass.dev/gpu-model": "H100",
    }
    assert notes(job(gpu_memory="4Gi")) == {"windlass.dev/gpu-memory": "4Gi"}
    assert notes(job(gpus=1)) == {}


def test_ranks_lie_near_one_another_and_in_zones():
    assert notes(job(near="rack", numa=True)) == {
        "kueue.x-k8s.io/podset-required-topology": "rack",
        "volcano.sh/numa-topology-policy": "single-numa-node",
    }


def test_the_environment_is_the_callers_without_secrets():
    environ = {
        "PATH": "/bin",
        "HOME": "/h",
        "VIRTUAL_ENV": "/v",
        "LC_ALL": "C",
        "HF_HOME": "/m",
        "HF_TOKEN": "secret",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "EDITOR": "vi",
        "MINE": "$(x)",
    }
    made = job(environ=environ, environment=("MINE", "A=b=c"))
    found = {entry["name"]: entry["value"] for entry in pod_spec(made)["containers"][0]["env"]}
    assert found == {
        "PATH": "/bin",
        "HOME": "/h",
        "VIRTUAL_ENV": "/v",
        "LC_ALL": "C",
        "HF_HOME": "/m",
        "PYTHONUNBUFFERED": "1",
        "MINE": "$$(x)",
        "A": "b=c",
    }


def test_one_rank_runs_here_and_never_again():
    spec = pod_spec(job())
    assert spec["restartPolicy"] == "Never"
    assert spec["containers"][0]["workingDir"] == os.getcwd()
    assert spec["containers"][0]["image"] == "windlass.dev/host"


def test_a_gang_knows_where_it_meets():
    made = job(nodes=4, gpus=1)
    assert made["spec"]["minAvailable"] == 4
    assert set(made["spec"]["plugins"]) == {"env", "svc"}
    assert {"event": "PodFailed", "action": "TerminateJob"} in made["spec"]["policies"]
    env = {entry["name"]: entry for entry in pod_spec(made)["containers"][0]["env"]}
    assert env["MASTER_ADDR"]["value"] == "n-main-0.n"
    assert env["WORLD_SIZE"]["value"] == "4"
    assert env["RANK"]["valueFrom"]["fieldRef"]["fieldPath"] == "metadata.labels['volcano.sh/task-index']"


def test_a_time_limit():
    assert pod_spec(job(time_seconds=90))["activeDeadlineSeconds"] == 90


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (("echo", "hi"), "echo"),
        (("python", "train.py"), "train"),
        (("python3.11", "-u", "/x/Train_Model.py", "--lr", "1"), "train-model"),
        (("torchrun", "--nproc-per-node", "2", "fine-tune.py"), "fine-tune"),
        (("./run.sh",), "run"),
        ((sys.executable, "-c", "print(1)"), "python"),
        (("42",), "job-42"),
        (("___",), "job"),
    ],
)
def test_names_from_commands(command: tuple[str, ...], name: str):
    found = base_name(command)
    assert found == name or found.startswith(name)
    assert found == found.lower()
    assert found[0].isalpha()


def test_dollar_signs_are_left_alone():
    assert escape_expansion("$$ $(A) ${B}") == "$$$$ $$(A) $${B}"


def test_the_pods_of_the_box_are_found():
    assert PODS.namespaced


@pytest.mark.parametrize("umask", [0o022, 0o077])
def test_job_has_the_umask_of_its_user(umask):
    before = os.umask(umask)
    try:
        made = job()
    finally:
        os.umask(before)
    annotations = made["spec"]["tasks"][0]["template"].get("metadata", {}).get("annotations", {})
    assert annotations.get("windlass.dev/umask") == (None if umask == 0o022 else "0077")


@pytest.mark.parametrize(("gpus", "set_"), [(0, True), (1, True), (8, False)])
def test_local_rank_is_set_for_a_rank_of_one_process(gpus, set_):
    env = {
        entry["name"]: entry.get("value")
        for entry in pod_spec(job(nodes=2, gpus=gpus))["containers"][0]["env"]
    }
    assert (env.get("LOCAL_RANK"), env.get("LOCAL_WORLD_SIZE")) == (("0", "1") if set_ else (None, None))
