"""``windlass scheduler`` as a process: metrics, readiness, leader election and fail-over, clean stop."""

from __future__ import annotations

import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from clusters import Cluster, eventually, pod
from realkube import free_ports, spawn


class Scheduler:
    """One process of it."""

    def __init__(self, cluster: Cluster, folder: Path, name: str, *options: str) -> None:
        self.log = folder / f"{name}.log"
        (self.port,) = free_ports(1)
        command = [sys.executable, "-m", "windlass.app", "scheduler", "--kubeconfig", str(cluster.kubeconfig)]
        command += ["--metrics-bind", f"127.0.0.1:{self.port}", *options]
        self.process = spawn(command, self.log)

    def get(self, path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=30) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()
        except OSError as error:
            return 0, str(error)

    def value(self, metric: str) -> float:
        for line in self.get("/metrics")[1].splitlines():
            if line.startswith(f"{metric} "):
                return float(line.split(" ")[1])
        return 0.0

    def stop(self, number: int = signal.SIGTERM) -> int:
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            return self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise

    def text(self) -> str:
        return self.log.read_text(errors="replace")


@pytest.fixture
def api(cluster: Cluster) -> Iterator[Cluster]:
    yield cluster
    cluster.close()


def test_a_process_says_when_it_is_ready_and_ends_in_order(api: Cluster, tmp_path: Path) -> None:
    scheduler = Scheduler(api, tmp_path, "only", "--scheduler-name", "nobody-names-this")
    try:
        eventually(lambda: scheduler.get("/readyz")[0] == 200)
        assert scheduler.get("/healthz") == (200, "ok\n")
        assert scheduler.value("windlass_scheduler_leader") == 1.0
        assert "windlass_scheduler_cycle_duration_seconds" in scheduler.get("/metrics")[1]
        assert "info scheduler synced" in scheduler.text()
    finally:
        assert scheduler.stop() == 0, scheduler.text()


def test_the_second_takes_over_when_the_leader_goes(api: Cluster, tmp_path: Path) -> None:
    namespace = api.new_namespace("lead")
    name = f"windlass-{namespace}"
    settings = tmp_path / "settings.yaml"  # who waited for the lease to run out would be seen
    settings.write_text("leaderElection: {leaseSeconds: 300, renewSeconds: 200, retrySeconds: 1}\n")
    options = ("--scheduler-name", name, "--leader-elect=true", f"--settings={settings}")
    node = f"{namespace}-n"
    amounts = {"cpu": "4", "pods": "10"}
    conditions = [{"type": "Ready", "status": "True"}]
    api.post(
        "/api/v1/nodes",
        {
            "metadata": {"name": node, "labels": {"scene": namespace}},
            "status": {"allocatable": amounts, "capacity": amounts, "conditions": conditions},
        },
    ).ok(201)
    queue = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": name}}
    api.post("/apis/scheduling.volcano.sh/v1beta1/queues", queue).ok(201)
    processes = [Scheduler(api, tmp_path, f"s{i}", *options) for i in range(2)]
    pods = f"/api/v1/namespaces/{namespace}/pods"

    def bound(pod_name: str) -> bool:
        return bool(api.get(f"{pods}/{pod_name}").ok()["spec"].get("nodeName"))

    def ask(pod_name: str) -> None:
        notes = {"annotations": {"scheduling.volcano.sh/queue-name": name}}
        spec = {
            "schedulerName": name,
            "nodeSelector": {"scene": namespace},
            "tolerations": [{"operator": "Exists"}],
            "terminationGracePeriodSeconds": 0,
        }
        api.post(pods, pod(pod_name, metadata=notes, spec=spec)).ok(201)

    def leaders() -> list[Scheduler]:
        return [p for p in processes if p.value("windlass_scheduler_leader") == 1.0]

    try:
        (leader,) = eventually(leaders)
        ask("before")
        eventually(lambda: bound("before"))
        assert len(leaders()) == 1
        follower = next(p for p in processes if p is not leader)
        eventually(lambda: follower.get("/readyz")[0] == 200)  # it stands by
        assert leader.stop() == 0, leader.text()  # and so gives the lease back
        ask("after")
        eventually(lambda: bound("after"))
        assert leaders() == [follower]
    finally:
        for process in processes:
            process.stop()
        for pod_name in ("before", "after"):
            api.delete(f"{pods}/{pod_name}", query="gracePeriodSeconds=0")
        api.delete(f"/api/v1/nodes/{node}")


def test_who_is_asked_to_end_tells_of_every_bind_first(api: Cluster, tmp_path: Path) -> None:
    namespace = api.new_namespace("told")
    name = f"windlass-{namespace}"
    node, amounts = f"{namespace}-n", {"cpu": "4", "pods": "100"}
    conditions = [{"type": "Ready", "status": "True"}]
    status = {"allocatable": amounts, "capacity": amounts, "conditions": conditions}
    api.post(
        "/api/v1/nodes", {"metadata": {"name": node, "labels": {"scene": namespace}}, "status": status}
    ).ok(201)
    queue = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": name}}
    api.post("/apis/scheduling.volcano.sh/v1beta1/queues", queue).ok(201)
    pods, events = f"/api/v1/namespaces/{namespace}/pods", f"/api/v1/namespaces/{namespace}/events"
    notes = {"annotations": {"scheduling.volcano.sh/queue-name": name}}
    spec = {
        "schedulerName": name,
        "nodeSelector": {"scene": namespace},
        "tolerations": [{"operator": "Exists"}],
        "terminationGracePeriodSeconds": 0,
    }
    wanted = {f"p{i}" for i in range(40)}
    for each in sorted(wanted):
        api.post(pods, pod(each, metadata=notes, spec=spec)).ok(201)
    scheduler = Scheduler(api, tmp_path, "ends", "--scheduler-name", name)

    def bound() -> set[str]:
        return {p["metadata"]["name"] for p in api.get(pods).ok()["items"] if p["spec"].get("nodeName")}

    try:
        eventually(bound)  # the first of them; most events, and perhaps binds, are still to come
        assert scheduler.stop() == 0, scheduler.text()
        told = {
            event["involvedObject"]["name"]
            for event in api.get(events).ok()["items"]
            if event["reason"] == "Scheduled"
        }
        assert told == bound()
    finally:
        scheduler.stop()
        for each in wanted:
            api.delete(f"{pods}/{each}", query="gracePeriodSeconds=0")
        api.delete(f"/api/v1/nodes/{node}")


def test_a_wrong_kubeconfig_and_address_are_told(tmp_path: Path) -> None:
    def run(*options: str) -> tuple[int, str]:
        command = [sys.executable, "-m", "windlass.app", "scheduler", *options]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        return done.returncode, done.stderr

    code, said = run("--kubeconfig", str(tmp_path / "none"))
    assert code == 3
    assert str(tmp_path / "none") in said
    code, said = run("--log-level", "loud")
    assert code == 2
    assert "--log-level" in said
    code, said = run("--leader-elect=perhaps")
    assert code == 2
    assert "neither true nor false" in said
