"""``apps/v1`` on one box with kubectl: rollouts, scaling, order, daemons, drivers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from single_node import Box

Json = dict[str, Any]
SERVER = """
import http.server, os, signal, sys, threading, time
last = time.monotonic()
class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        global last
        if self.path == "/":  # of a client, and no probe
            last = time.monotonic()
        text = os.environ["VERSION"].encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)
    def log_message(self, *words): pass
server = http.server.ThreadingHTTPServer(("", 8080), Page)
# As web servers do: serve on until clients have followed the list of endpoints.
def leave():
    while time.monotonic() - last < 3.0:
        time.sleep(0.1)
    os._exit(0)
signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=leave).start())
server.serve_forever()
"""
CLIENT = """
import time, urllib.request
seen, failed = [], 0
while True:
    try:
        text = urllib.request.urlopen("http://web/", timeout=30).read().decode()
        if text not in seen:
            seen.append(text)
            print("now", text, flush=True)
    except OSError as error:
        failed += 1
        print("failed", failed, error, flush=True)
    time.sleep(0.02)
"""


def workload(kind: str, name: str, command: list[str], **spec: Any) -> Json:
    container: Json = {"name": "main", "image": "python:3.11", "command": command}
    container |= spec.pop("container", {})
    pod = {"containers": [container], "terminationGracePeriodSeconds": 10, **spec.pop("pod", {})}
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": spec.pop("namespace", "default")},
        "spec": {
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": pod},
            **spec,
        },
    }


@pytest.fixture(scope="module")
def box() -> Iterator[Box]:
    with Box("--gpus", "simulated:2") as one:
        yield one


def apply(box: Box, *objects: Json) -> str:
    document = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
    done = box.kubectl("apply", "-f", "-", stdin=json.dumps(document))
    return done.stdout + done.stderr


def rolled_out(box: Box, what: str) -> str:
    return box.kubectl("rollout", "status", what, "--timeout=180s").stdout


def test_rollout_undo_and_scale_without_a_gap(box: Box) -> None:
    probe = {"httpGet": {"port": 8080, "path": "/ready"}, "periodSeconds": 1}
    web = workload(
        "Deployment",
        "web",
        ["python3", "-c", SERVER],
        replicas=2,
        strategy={"rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}},
        container={"env": [{"name": "VERSION", "value": "v1"}], "readinessProbe": probe},
        pod={"terminationGracePeriodSeconds": 100},
    )
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "web"},
        "spec": {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 8080}]},
    }
    apply(box, web, service)
    assert "successfully rolled out" in rolled_out(box, "deployment/web")
    box.kubectl("run", "client", "--image=python", "--command", "--", "python3", "-c", CLIENT)
    box.wait_for("the client reads", lambda: "now v1" in _logs(box, "client"))

    box.kubectl("set", "env", "deployment/web", "VERSION=v2")
    rolled_out(box, "deployment/web")
    box.wait_for("v2 is served", lambda: "now v2" in _logs(box, "client"))
    box.kubectl("rollout", "undo", "deployment/web")
    rolled_out(box, "deployment/web")
    history = box.kubectl("rollout", "history", "deployment/web").stdout.split()
    assert [word for word in history if word.isdigit()] == ["2", "3"]

    box.kubectl("scale", "deployment/web", "--replicas=3")
    rolled_out(box, "deployment/web")
    box.kubectl("scale", "deployment/web", "--replicas=1")
    box.wait_for("one pod is left", lambda: len(box.items("pods", labels="app=web")) == 1)
    assert "failed" not in _logs(box, "client"), _logs(box, "client")

    shown = box.windlass("ps").stdout
    assert [line.split()[0] for line in shown.splitlines()[1:]].count("web") == 1
    assert "Deployment" in box.windlass("show", "web").stdout
    everything = box.kubectl("get", "all").stdout
    assert "deployment.apps/web" in everything
    assert "replicaset.apps/web-" in everything
    box.windlass("cancel", "web")
    box.wait_for("its pods are gone", lambda: not box.items("pods", labels="app=web"))
    box.wait_for("its ReplicaSets, too", lambda: not box.items("replicasets"))
    box.kubectl("delete", "pod", "client", "--now")


def _logs(box: Box, pod: str) -> str:
    return box.kubectl("logs", pod, check=False).stdout


def test_crashing_container_is_restarted_and_holds_the_rollout(box: Box) -> None:
    """A new version that crashes leaves the old pods in place and times out."""
    stays = ["python3", "-c", "import time; time.sleep(1e6)"]
    apply(box, workload("Deployment", "frail", stays, replicas=1, minReadySeconds=2))
    rolled_out(box, "deployment/frail")
    crashes = workload(
        "Deployment",
        "frail",
        ["sh", "-c", "exit 3"],
        replicas=1,
        minReadySeconds=2,
        progressDeadlineSeconds=4,
    )
    apply(box, crashes)

    def reason() -> str:
        conditions = box.get("deployments", "frail")["status"].get("conditions") or ()
        return next((one["reason"] for one in conditions if one["type"] == "Progressing"), "")

    box.wait_for("the rollout times out", lambda: reason() == "ProgressDeadlineExceeded")
    status = box.get("deployments", "frail")["status"]
    assert (status["availableReplicas"], status["updatedReplicas"]) == (1, 1)

    def restarts() -> list[int]:
        pods = box.items("pods", labels="app=frail")
        return [one["restartCount"] for pod in pods for one in pod["status"].get("containerStatuses") or ()]

    box.wait_for("the container is started again", lambda: any(restarts()))
    failed = box.kubectl("rollout", "status", "deployment/frail", "--timeout=5s", check=False)
    assert failed.returncode != 0
    box.kubectl("rollout", "undo", "deployment/frail")
    rolled_out(box, "deployment/frail")
    box.kubectl("delete", "deployment", "frail", "--wait=false")


def test_stateful_pods_start_in_order_and_find_each_other(box: Box, tmp_path: Any) -> None:
    program = (
        "import os, socket, time\n"
        "name = socket.gethostname()\n"
        f"open('{tmp_path}/order', 'a').write(name + '\\n')\n"
        "time.sleep(0.3)\n"
        f"open('{tmp_path}/' + name + os.environ.get('X', ''), 'w').close()\n"
        "for _ in range(600):\n"
        "    try:\n"
        "        print('peer', socket.gethostbyname('db-0.peers'), flush=True)\n"
        "        break\n"
        "    except OSError:\n"
        "        time.sleep(0.1)\n"
        "time.sleep(1e6)\n"
    )
    ready = {"exec": {"command": ["sh", "-c", f"test -e {tmp_path}/$(hostname)$X"]}, "periodSeconds": 1}
    peers = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "peers"},
        "spec": {"clusterIP": "None", "selector": {"app": "db"}, "ports": [{"port": 7000}]},
    }
    command = ["python3", "-c", program]
    container = {"readinessProbe": ready}
    pod = {"terminationGracePeriodSeconds": 0}
    db = workload("StatefulSet", "db", command, replicas=2, serviceName="peers", container=container, pod=pod)
    apply(box, peers, db)
    rolled_out(box, "statefulset/db")
    assert (tmp_path / "order").read_text().split() == ["db-0", "db-1"]
    address = box.get("pods", "db-0")["status"]["podIP"]
    box.wait_for("db-1 finds db-0", lambda: f"peer {address}" in _logs(box, "db-1"))

    box.kubectl("set", "env", "statefulset/db", "X=1")
    rolled_out(box, "statefulset/db")
    assert (tmp_path / "order").read_text().split() == ["db-0", "db-1", "db-1", "db-0"]
    box.kubectl("rollout", "undo", "statefulset/db")
    rolled_out(box, "statefulset/db")
    assert [one["revision"] for one in box.items("controllerrevisions")] in ([2, 3], [3, 2])
    box.kubectl("scale", "statefulset/db", "--replicas=0")
    box.wait_for("no pod is left", lambda: not box.items("pods", labels="app=db"))


def test_daemon_runs_on_each_node_and_is_updated(box: Box) -> None:
    box.windlass("node", "add-simulated", "--gpus", "1")
    box.wait_for("two nodes", lambda: len(box.items("nodes")) == 2)
    command = ["python3", "-c", "import time; time.sleep(1e6)"]
    tolerates = {"tolerations": [{"operator": "Exists"}]}
    apply(box, workload("DaemonSet", "watch", command, pod={**tolerates, "terminationGracePeriodSeconds": 0}))
    rolled_out(box, "daemonset/watch")
    pods = box.items("pods", labels="app=watch")
    nodes = sorted(node["metadata"]["name"] for node in box.items("nodes"))
    assert sorted(pod["spec"]["nodeName"] for pod in pods) == nodes
    box.kubectl("set", "env", "daemonset/watch", "X=1")
    rolled_out(box, "daemonset/watch")
    updated = box.items("pods", labels="app=watch")
    assert {pod["metadata"]["uid"] for pod in updated}.isdisjoint(pod["metadata"]["uid"] for pod in pods)
    status = box.get("daemonsets", "watch")["status"]
    assert (status["desiredNumberScheduled"], status["updatedNumberScheduled"]) == (2, 2)
    box.kubectl("delete", "daemonset", "watch", "--wait=false")


def test_device_plugin_is_accepted_and_left_to_the_node(box: Box) -> None:
    """C2: the counts of devices stay, and an event says why no pod starts."""

    def gpus() -> list[str]:
        return [node["status"]["allocatable"].get("nvidia.com/gpu", "0") for node in box.items("nodes")]

    before = gpus()
    plugin = workload(
        "DaemonSet",
        "nvidia-device-plugin-daemonset",
        [],
        namespace="kube-system",
        container={"image": "nvcr.io/nvidia/k8s-device-plugin:v0.17.1"},
        pod={"priorityClassName": "system-node-critical"},
    )
    told = apply(box, plugin)
    assert "daemonset.apps/nvidia-device-plugin-daemonset created" in told
    assert "Windlass provides the devices (nvidia.com/gpu) on its nodes itself" in told

    def words() -> list[str]:
        events = box.items("events", namespace="kube-system")
        return [one["message"] for one in events if one["reason"] == "ProvidedByNode"]

    box.wait_for("the event", words)
    assert "k8s-device-plugin:v0.17.1" in words()[0]
    done = box.kubectl(
        "-n", "kube-system", "rollout", "status", "daemonset/nvidia-device-plugin-daemonset", "--timeout=90s"
    )
    assert "successfully rolled out" in done.stdout
    assert gpus() == before
    owned = [
        pod
        for pod in box.items("pods", namespace="kube-system")
        if any(one["kind"] == "DaemonSet" for one in pod["metadata"].get("ownerReferences") or ())
    ]
    assert owned == []


def test_budget_in_percent_refers_to_the_deployment(box: Box) -> None:
    command = ["python3", "-c", "import time; time.sleep(1e6)"]
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "half"},
        "spec": {"maxUnavailable": "50%", "selector": {"matchLabels": {"app": "guarded"}}},
    }
    apply(box, workload("Deployment", "guarded", command, replicas=2), budget)
    rolled_out(box, "deployment/guarded")

    def allowed() -> int:
        status = box.get("poddisruptionbudgets", "half").get("status") or {}
        return status.get("disruptionsAllowed", 0) if status.get("expectedPods") == 2 else 0

    box.wait_for("one disruption is allowed", lambda: allowed() == 1)
    box.kubectl("delete", "deployment", "guarded", "--wait=false")
