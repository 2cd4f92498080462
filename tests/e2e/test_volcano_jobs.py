"""Volcano's kinds on one box, with real programs: plugins of jobs, partial restarts, flows, cron jobs."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import field_manifests
import pytest
from single_node import Box

Json = dict[str, Any]

MESH = """
import json, os, socket, threading, time
config = json.loads(os.environ["TF_CONFIG"])
me = config["cluster"][config["task"]["type"]][config["task"]["index"]]
others = [host for hosts in config["cluster"].values() for host in hosts if host != me]
server = socket.create_server(("", int(me.rpartition(":")[2])))
server.settimeout(60)
def connect(address):
    host, _, port = address.rpartition(":")
    for attempt in range(600):
        try:
            return socket.create_connection((host, int(port)), 5)
        except OSError:
            time.sleep(0.1)
    raise SystemExit(f"{address} does not answer")
links = [connect(other) for other in others]
peers = [server.accept()[0] for other in others]
print(me, "met", len(peers))
"""
"""Program: every member of the cluster in ``TF_CONFIG`` connects to all others."""

RAY = """#!/usr/bin/env python3
import os, socket, sys, time
flags = dict(word.partition("=")[::2] for word in sys.argv[2:])
if "--head" in flags:
    while not os.path.exists(__file__ + ".go"):
        time.sleep(0.05)
    with socket.create_server(("", int(flags["--port"]))) as server:
        server.settimeout(60)
        peers = [server.accept()[0] for _ in range(2)]
    print("head of", len(peers))
else:
    host, _, port = flags["--address"].rpartition(":")
    for attempt in range(600):
        try:
            socket.create_connection((host, int(port)), 5)
            break
        except OSError:
            time.sleep(0.1)
    print("joined", flags["--address"])
"""
"""Program ``ray`` with the two commands of the plugin: the head waits for two workers."""


@pytest.fixture(scope="module")
def box() -> Iterator[Box]:
    with Box("--gpus", "none") as one:
        yield one


def task(name: str, replicas: int, *command: str, container: str = "main", **more: Any) -> Json:
    containers = [{"name": container, "image": "python", "command": list(command)}]
    template = {
        "spec": {"restartPolicy": "Never", "containers": containers, "terminationGracePeriodSeconds": 0}
    }
    return {"name": name, "replicas": replicas, "template": template, **more}


def apply(box: Box, kind: str, name: str, spec: Json, group: str = "batch") -> None:
    version = f"{group}.volcano.sh/v1alpha1"
    obj = {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec}
    box.windlass("apply", "-f", "-", stdin=json.dumps(obj))


def phase(box: Box, name: str) -> str:
    """Return the phase of a job; empty if it does not exist."""
    found = [job for job in box.items("vcjob") if job["metadata"]["name"] == name]
    return found[0].get("status", {}).get("state", {}).get("phase", "") if found else ""


def ended(box: Box, name: str) -> str:
    box.wait_for(f"{name} ends", lambda: phase(box, name) in ("Completed", "Failed", "Terminated"))
    return phase(box, name)


def output(box: Box, name: str) -> str:
    return box.windlass("logs", name, "--all").stdout


def uids(box: Box, name: str) -> dict[str, str]:
    """Pod → uid of the pods that run."""
    pods = box.items("pods", labels=f"volcano.sh/job-name={name}")
    return {
        pod["metadata"]["name"]: pod["metadata"]["uid"]
        for pod in pods
        if pod["status"].get("phase") == "Running" and not pod["metadata"].get("deletionTimestamp")
    }


@pytest.mark.skipif(shutil.which("mpirun") is None, reason="mpirun is not installed")
def test_mpirun_reaches_the_workers_of_plugin_mpi(box: Box) -> None:
    """The workers start an SSH server that this machine lacks, as Volcano's own example does."""
    master = """
        stat -L -c %a /root/.ssh/id_rsa /root/.ssh/config
        cut -c1-20 /root/.ssh/authorized_keys
        grep HostName /root/.ssh/config
        mpirun --allow-run-as-root --host $MPI_HOST -np 2 hostname
    """
    tasks = [
        task(
            "master",
            1,
            "sh",
            "-c",
            master,
            dependsOn={"name": ["worker"]},
            policies=[{"event": "TaskCompleted", "action": "CompleteJob"}],
        ),
        task("worker", 2, "/bin/sh", "-c", "mkdir -p /tmp/sshd; /missing/sbin/sshd -D;"),
    ]
    apply(box, "Job", "mpi", {"minAvailable": 2, "plugins": {"mpi": []}, "tasks": tasks})
    assert ended(box, "mpi") == "Completed", output(box, "mpi")
    lines = [line.partition("] ")[2] or line for line in output(box, "mpi").splitlines()]
    assert {"mpi-worker-0", "mpi-worker-1"} <= set(lines)
    assert lines.count("600") == 2
    assert any(line.startswith("ssh-rsa AAAA") for line in lines)
    assert "  HostName mpi-worker-1.mpi" in lines
    box.wait_for("it is told", lambda: "RemoteShell" in {event["reason"] for event in box.items("events")})
    box.wait_for(
        "its Secret is deleted",
        lambda: "mpi-ssh" not in {found["metadata"]["name"] for found in box.items("secrets")},
    )


def test_all_ranks_of_a_tf_config_meet(box: Box) -> None:
    command = ("python3", "-c", MESH)
    tasks = [task("ps", 1, *command), task("worker", 2, *command), task("chief", 1, *command)]
    apply(box, "Job", "tf", {"plugins": {"tensorflow": ["--port=2300"]}, "tasks": tasks})
    assert ended(box, "tf") == "Completed", output(box, "tf")
    found = output(box, "tf")
    for member in ("tf-ps-0", "tf-worker-0", "tf-worker-1", "tf-chief-0"):
        assert f"{member}.tf:2300 met 3" in found


def test_workers_of_plugin_ray_join_the_head(box: Box, tmp_path: Path) -> None:
    program = tmp_path / "ray"
    program.write_text(RAY)
    program.chmod(0o755)
    tasks = [
        task("head", 1, "replaced", container="head"),
        task("worker", 2, "replaced", container="worker"),
    ]
    for entry in tasks:
        path = {"name": "PATH", "value": f"{tmp_path}:{os.environ['PATH']}"}
        entry["template"]["spec"]["containers"][0]["env"] = [path]
    apply(box, "Job", "ray", {"plugins": {"ray": ["--port=6390"]}, "tasks": tasks})
    box.wait_for("the head has a Service", lambda: "ray-head-svc" in str(box.items("services")))
    (tmp_path / "ray.go").touch()  # the Service is deleted at the end of the job
    assert ended(box, "ray") == "Completed", output(box, "ray")
    assert "head of 2" in output(box, "ray")
    assert output(box, "ray").count("joined ray-head-0.ray:6390") == 2


def test_w1_restart_of_one_pod_keeps_the_group(box: Box, tmp_path: Path) -> None:
    go = tmp_path / "go"
    wait = f"while [ ! -e {go} ]; do sleep 0.1; done; rm {go}; exit 3"
    command = f"[ $VC_TASK_INDEX = 0 ] || [ -e {go}.done ] || {{ {wait}; }}; exec sleep 1000"
    policies = [{"event": "PodFailed", "action": "RestartPod"}]
    tasks = [task("w", 2, "sh", "-c", command)]
    apply(box, "Job", "one", {"plugins": {"env": []}, "policies": policies, "tasks": tasks})
    box.wait_for("both pods run", lambda: len(uids(box, "one")) == 2)
    before = uids(box, "one")
    name = f"one-{box.get('vcjob', 'one')['metadata']['uid']}"
    group = box.get("podgroups.scheduling.volcano.sh", name)["metadata"]["uid"]

    def replaced() -> bool:
        now = uids(box, "one")
        return len(now) == 2 and now["one-w-1"] != before["one-w-1"]

    (tmp_path / "go.done").touch()
    go.touch()
    box.wait_for("the failed pod is replaced", replaced)
    box.wait_for("the job runs", lambda: phase(box, "one") == "Running")
    assert uids(box, "one")["one-w-0"] == before["one-w-0"]
    assert box.get("podgroups.scheduling.volcano.sh", name)["metadata"]["uid"] == group
    box.wait_for("its restart is counted", lambda: box.get("vcjob", "one")["status"].get("retryCount") == 1)
    box.windlass("cancel", "one", "--wait")


def test_w2_an_eviction_restarts_exactly_its_partition(box: Box) -> None:
    partition = {"totalPartitions": 2, "partitionSize": 2, "minPartitions": 2}
    policies = [{"event": "PodEvicted", "action": "RestartPartition"}]
    tasks = [
        task("w", 4, "sleep", "1000", partitionPolicy=partition, policies=policies),
        task("x", 1, "sleep", "1000"),
    ]
    apply(box, "Job", "parts", {"tasks": tasks})
    box.wait_for("all pods run", lambda: len(uids(box, "parts")) == 5)
    before = uids(box, "parts")
    box.windlass("delete", "pod", "parts-w-3")

    def restarted() -> set[str]:
        now = uids(box, "parts")
        return {name for name in now if now[name] != before[name]} if len(now) == 5 else set()

    box.wait_for("its partition is new", lambda: restarted() == {"parts-w-2", "parts-w-3"})
    box.wait_for("the job runs", lambda: phase(box, "parts") == "Running")
    box.windlass("cancel", "parts", "--wait")


def test_a_flow_probes_patches_and_deletes_its_jobs(box: Box) -> None:
    serve = "sleep 0.5; timeout 600 python3 -m http.server 8080 || true"
    for name, command in (("server", serve), ("client", "exit 1"), ("last", "true")):
        policies = [{"event": "TaskCompleted", "action": "CompleteJob"}]
        spec = {"tasks": [task("t", 1, "sh", "-c", command, policies=policies)]}
        apply(box, "JobTemplate", name, spec, "flow")
    patch = {"containers": [{"name": "main", "command": ["true"]}]}
    probe = {"taskStatusList": [{"taskName": "t", "phase": "Running"}]}
    if os.geteuid() == 0:  # without it, the addresses of pods cannot be reached from outside of pods
        probe["httpGetList"] = [{"taskName": "t", "port": 8080, "path": "/"}]
    flows = [
        {"name": "server"},
        {
            "name": "client",
            "dependsOn": {"targets": ["server"], "probe": probe},
            "patch": {"jobSpec": {"tasks": [{"template": {"spec": patch}}]}},
        },
    ]
    apply(box, "JobFlow", "f", {"flows": flows}, "flow")
    assert ended(box, "f-client") == "Completed"
    assert phase(box, "f-server") == "Running"

    def flow() -> str:
        return box.get("jobflows", "f")["status"]["state"]["phase"]

    box.wait_for("the flow runs", lambda: flow() == "Running")
    box.windlass("cancel", "f-server")
    box.wait_for("the flow fails with a terminated job", lambda: flow() == "Failed")
    apply(box, "JobFlow", "g", {"flows": [{"name": "last"}], "jobRetainPolicy": "delete"}, "flow")
    box.wait_for(
        "its job is deleted", lambda: box.get("jobflows", "g").get("status", {}).get("completedJobs")
    )
    box.wait_for("no job is left", lambda: "g-last" not in str(box.items("vcjob")))
    box.wait_for(
        "the template names its job",
        lambda: (box.get("jobtemplates", "last").get("status") or {}).get("jobDependsOnList") == ["g-last"],
    )


def test_a_cron_job_runs_on_its_schedule(box: Box) -> None:
    job = {"spec": {"tasks": [task("t", 1, "true")]}}
    spec = {
        "schedule": "@every 1s",
        "concurrencyPolicy": "Forbid",
        "successfulJobsHistoryLimit": 1,
        "jobTemplate": job,
    }
    apply(box, "CronJob", "tick", spec)

    def completed() -> str:
        return box.get("cronjobs.batch.volcano.sh", "tick").get("status", {}).get("lastSuccessfulTime", "")

    box.wait_for("a job has completed", completed)
    owned = [found for found in box.items("vcjob") if found["metadata"]["name"].startswith("tick-")]
    assert owned[0]["metadata"]["ownerReferences"][0]["kind"] == "CronJob"
    box.windlass("delete", "cronvcjob", "tick")
    box.wait_for(
        "its jobs are gone", lambda: "tick-" not in str([j["metadata"]["name"] for j in box.items("vcjob")])
    )


SLEEPING = """
apiVersion: kubeflow.org/v1
kind: JAXJob
metadata: {name: jx}
spec: {jaxReplicaSpecs: {Worker: {replicas: 2, template: {spec: POD}}}}
---
apiVersion: batch/v1
kind: Job
metadata: {name: bj}
spec: {parallelism: 2, template: {spec: POD}}
---
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata: {name: vj}
spec: {maxRetry: 5, tasks: [{name: a, replicas: 2, template: {spec: POD}}]}
"""
SLEEPING_POD = task("a", 1, "sleep", "1000", container="jax")["template"]["spec"]


def test_jobs_of_each_kind_are_requeued_suspended_scaled_and_resumed(box: Box) -> None:
    box.windlass("apply", "-f", "-", stdin=SLEEPING.replace("POD", json.dumps(SLEEPING_POD)))

    def running() -> dict[str, set[str]]:
        found: dict[str, set[str]] = {"jx": set(), "bj": set(), "vj": set()}
        for pod in box.items("pods"):
            job = pod["metadata"]["name"][:2]
            leaving = pod["metadata"].get("deletionTimestamp") or pod["status"].get("phase") != "Running"
            if job in found and not leaving:
                found[job].add(pod["metadata"]["uid"])
        return found

    def counts() -> list[int]:
        return [len(pods) for pods in running().values()]

    box.wait_for("all jobs run", lambda: counts() == [2, 2, 2])
    before = running()
    box.windlass("requeue", "jx", "bj", "vj")
    box.wait_for(
        "all pods are new",
        lambda: counts() == [2, 2, 2] and not any(before[job] & pods for job, pods in running().items()),
    )
    box.windlass("suspend", "jx", "bj", "vj")
    box.wait_for("no pod is left", lambda: counts() == [0, 0, 0])

    def stopped() -> bool:
        shown = box.windlass("ps").stdout
        return shown.count("Suspended") == 2 and "Aborted" in shown

    box.wait_for("all jobs have stopped", stopped)
    for name in ("jx", "bj", "vj"):
        box.windlass("scale", name, "3")
    box.windlass("resume", "jx", "bj", "vj")
    box.wait_for("all jobs run with their new size", lambda: counts() == [3, 3, 3])
    box.windlass("scale", "vj", "1")
    box.wait_for("two pods end", lambda: counts() == [3, 3, 1])
    box.windlass("cancel", "jx", "bj", "vj", "--wait")


@pytest.mark.parametrize("kind", ["tfjob", "jobset"])
def test_submitted_jobs_of_other_kinds_end(box: Box, kind: str) -> None:
    name = f"s-{kind}"
    box.windlass(
        "submit", "--kind", kind, "-n", "2", "--name", name, "--", "sh", "-c", "echo rank of $HOSTNAME"
    )

    def completed() -> bool:
        jobs = json.loads(box.windlass("ps", "--all", "-o", "json").stdout)["items"]
        return any(job["name"] == name and job["state"] == "Completed" for job in jobs)

    box.wait_for("the job completes", completed)
    assert "rank of" in output(box, name)


REFUSED = {"08-invalid-minavailable": "spec.minAvailable", "19-podgroup-with-status": "resourceVersion"}
"""Users' manifests that are rejected, as in Volcano, and the field that is named."""


def test_users_manifests_are_accepted_or_refused_with_the_field(box: Box) -> None:
    manifests = field_manifests.family("volcano")
    for queue in ("test-queue", "test"):
        box.windlass("queue", "create", queue)
    for name, path in manifests.items():
        done = box.windlass("apply", "--dry-run", "-f", str(path), check=False)
        assert (done.returncode != 0) is (name in REFUSED), (name, done.stderr)
        assert REFUSED.get(name, "") in done.stderr, (name, done.stderr)


def test_users_flow_and_mpi_job_run_as_they_are_written(box: Box, tmp_path: Path) -> None:
    """Only the programs are replaced by ones of this machine."""
    manifests = field_manifests.family("volcano")
    templates = (
        manifests["04-jobtemplates"]
        .read_text()
        .replace("sleep 10s", "sleep 0")
        .replace('cpu: "1"', 'cpu: "10m"')
    )
    (tmp_path / "t.yaml").write_text(templates)
    box.windlass("apply", "-f", str(tmp_path / "t.yaml"), "-f", str(manifests["03-jobflow"]))
    box.wait_for("the flow succeeds", lambda: "Succeed" in box.windlass("get", "jobflow", "test").stdout)
    entries = box.get("jobflows", "test")["status"]["jobStatusList"]
    assert sorted(entry["name"] for entry in entries) == [f"test-{name}" for name in "abcde"]
    if shutil.which("mpirun") is None:
        return
    text = manifests["02-vcjob-mpi-dependson"].read_text()
    (tmp_path / "m.yaml").write_text(text.replace("mpi_hello_world", "hostname"))
    box.windlass("apply", "-f", str(tmp_path / "m.yaml"))
    assert ended(box, "lm-mpi-job") == "Completed"
    lines = {line.rpartition(" ")[2] for line in output(box, "lm-mpi-job").splitlines()}
    assert {f"lm-mpi-job-mpiworker-{index}" for index in range(10)} <= lines
