"""JobSets that restart in place: real programs, simulated pods, and a pod that cannot restart."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from single_node import Box

MEET = """
import os, socket, sys, time
folder, rank = sys.argv[1], int(os.environ["JOB_INDEX"]) * 2 + int(os.environ["JOB_COMPLETION_INDEX"])
began = time.time()
def wanted(name):
    try:
        os.remove(f"{folder}/{name}")
    except FileNotFoundError:
        return False
    return True
if rank == 0:
    server = socket.create_server(("", 29511))
    peers = [server.accept()[0] for _ in range(3)]
    for peer in peers:
        peer.sendall(b"go")
else:
    while True:  # as long as the first one takes to begin
        try:
            peers = [socket.create_connection((os.environ["MASTER"], 29511), 1)]
            break
        except OSError:
            time.sleep(0.05)
    assert peers[0].recv(2) == b"go"
print(f"met {rank} {began:.3f} {os.getpid()}", flush=True)
while not os.path.exists(f"{folder}/done"):
    if wanted(f"fail-{rank}"):
        os._exit(3)
    time.sleep(0.05)
"""
INDEX = {"valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['jobset.sigs.k8s.io/job-index']"}}}
RULES = [{"action": "RestartAllContainers", "exitCodes": {"operator": "NotIn", "values": [0]}}]


@pytest.fixture(scope="module")
def box() -> Iterator[Box]:
    with Box("--gpus", "none") as one:
        yield one


def job_set(name: str, pod: Any, replicas: int = 2, pods: int = 2, **template: Any) -> Any:
    job = {
        "completions": pods,
        "parallelism": pods,
        "backoffLimit": 2147483647,
        "podReplacementPolicy": "Failed",
        "template": {
            **template,
            "spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, **pod},
        },
    }
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name},
        "spec": {
            "failurePolicy": {"maxRestarts": 3, "restartStrategy": "InPlaceRestart"},
            "replicatedJobs": [{"name": "w", "replicas": replicas, "template": {"spec": job}}],
        },
    }


def apply(box: Box, obj: Any) -> None:
    box.windlass("apply", "-f", "-", stdin=json.dumps(obj))


def status(box: Box, name: str) -> Any:
    return box.get("jobsets", name).get("status") or {}


def pods(box: Box, name: str) -> dict[str, Any]:
    """Return the pods by the names of their Jobs and indices."""
    found = box.items("pods", labels=f"jobset.sigs.k8s.io/jobset-name={name}")
    return {pod["metadata"]["name"].rpartition("-")[0]: pod for pod in found}


def attempt(box: Box, name: str) -> int:
    """Return the restart attempt that all pods have reached and run; -1 while they do not."""
    current = status(box, name).get("currentInPlaceRestartAttempt", -1)
    found = [
        one
        for pod in pods(box, name).values()
        for one in pod["status"].get("containerStatuses") or [{"state": {}}]
    ]
    return (
        current
        if found and all("running" in one["state"] and one["restartCount"] == current for one in found)
        else -1
    )


def record(box: Box) -> Any:
    return json.loads((box.state.path / "supervisor.json").read_text())


def met(box: Box, name: str) -> list[list[str]]:
    """Return what the ranks of the present attempt printed when they had met."""
    texts = [box.windlass("logs", pod["metadata"]["name"]).stdout for pod in pods(box, name).values()]
    return sorted(text.split() for text in texts if text.startswith("met"))


def test_ranks_of_all_pods_restart_together_in_the_same_pods(box: Box, tmp_path: Path) -> None:
    program = tmp_path / "meet.py"
    program.write_text(MEET)
    agent = {
        "name": "in-place-restart-agent",
        "image": "registry.example.com/jobset/in-place-restart-agent:v0.11",
        "restartPolicy": "Always",
        "restartPolicyRules": RULES,
        "startupProbe": {"httpGet": {"path": "/barrier-is-down", "port": 8081}},
    }
    worker = {
        "name": "worker",
        "image": "debian:12",
        "command": ["python3", str(program), str(tmp_path)],
        "restartPolicy": "Never",
        "restartPolicyRules": RULES,
        "env": [{"name": "JOB_INDEX", **INDEX}, {"name": "MASTER", "value": "meet-w-0-0.meet"}],
    }
    apply(box, job_set("meet", {"initContainers": [agent], "containers": [worker]}))
    box.wait_for("all ranks", lambda: len(met(box, "meet")) == 4)
    first, before = pods(box, "meet"), met(box, "meet")
    (tmp_path / "fail-2").touch()
    box.wait_for("attempt 1", lambda: attempt(box, "meet") == 1 and len(met(box, "meet")) == 4)
    after, seen = pods(box, "meet"), met(box, "meet")
    for name, pod in after.items():
        assert pod["metadata"]["uid"] == first[name]["metadata"]["uid"], name
        assert pod["status"]["podIP"] == first[name]["status"]["podIP"], name
    assert [line[1] for line in seen] == ["0", "1", "2", "3"]
    starts = [float(line[2]) for line in seen]
    assert min(starts) > max(float(line[2]) for line in before)  # no rank of the former attempt was left
    assert status(box, "meet")["previousInPlaceRestartAttempt"] == 0
    assert status(box, "meet")["restarts"] == 0
    words = "restarting the containers of all pods in place: attempt 1"
    box.wait_for("it is told", lambda: words in box.windlass("get", "events").stdout)

    # The next agent finds the pods that the first one started, and restarts them too.
    supervisor = record(box)
    os.kill(supervisor["processes"]["node"]["pid"], signal.SIGKILL)
    node = supervisor["processes"]["node"]["pid"]
    box.wait_for("another agent", lambda: record(box)["processes"]["node"]["pid"] != node)
    box.wait_for("a ready node", lambda: attempt(box, "meet") == 1)
    time.sleep(2.0)
    assert status(box, "meet")["currentInPlaceRestartAttempt"] == 1  # its end restarts nothing
    (tmp_path / "fail-1").touch()
    box.wait_for("attempt 2", lambda: attempt(box, "meet") == 2 and len(met(box, "meet")) == 4)
    assert {name: pod["metadata"]["uid"] for name, pod in pods(box, "meet").items()} == {
        name: pod["metadata"]["uid"] for name, pod in first.items()
    }
    (tmp_path / "done").touch()
    box.wait_for("the end", lambda: status(box, "meet").get("terminalState") == "Completed")


def test_pod_that_has_succeeded_is_told_and_the_jobs_are_recreated(box: Box, tmp_path: Path) -> None:
    script = (
        f'[ "$JOB_COMPLETION_INDEX" = 1 ] && exit 0; [ -e {tmp_path}/again ] && exit 0; '
        f"while ! [ -e {tmp_path}/fail ]; do sleep 0.05; done; touch {tmp_path}/again; exit 1"
    )
    container = {
        "name": "in-place-restart-agent",
        "image": "x",
        "env": [{"name": "WORKER_COMMAND", "value": script}],
    }
    apply(box, job_set("ended", {"containers": [container]}, replicas=1))
    box.wait_for(
        "the first pod's end",
        lambda: any(pod["status"]["phase"] == "Succeeded" for pod in pods(box, "ended").values()),
    )
    before = {pod["metadata"]["uid"] for pod in pods(box, "ended").values()}
    (tmp_path / "fail").touch()
    box.wait_for("the end", lambda: status(box, "ended").get("terminalState") == "Completed")
    assert not before & {pod["metadata"]["uid"] for pod in pods(box, "ended").values()}
    assert status(box, "ended")["restarts"] == 1
    words = "has succeeded and cannot be restarted in place: all Jobs are recreated"
    box.wait_for("it is told", lambda: words in box.windlass("get", "events").stdout)


def test_simulated_pods_restart_in_place(box: Box) -> None:
    box.windlass("node", "add-simulated", "--count", "2", "--gpus", "8", "--prefix", "played")
    limits = {"resources": {"limits": {"nvidia.com/gpu": "2"}}}
    metadata = {"annotations": {"windlass.dev/run-seconds": "4,2", "windlass.dev/exit-code": "9,0"}}
    pod = {"containers": [{"name": "main", "image": "x", **limits}]}
    apply(box, job_set("sim", pod, replicas=2, pods=4, metadata=metadata))
    box.wait_for("all pods", lambda: len(pods(box, "sim")) == 8)
    first = {pod["metadata"]["uid"] for pod in pods(box, "sim").values()}
    box.wait_for("the end", lambda: status(box, "sim").get("terminalState") == "Completed")
    found = pods(box, "sim").values()
    assert {pod["metadata"]["uid"] for pod in found} == first
    assert {pod["status"]["containerStatuses"][0]["restartCount"] for pod in found} == {1}
    counters = status(box, "sim")
    assert (counters["currentInPlaceRestartAttempt"], counters["restarts"]) == (1, 0)
