"""The bind guard as ``windlass install --bind-guard`` puts it into a real cluster: webhook, Service, Secret, label.

There is no pod network. Services have loopback addresses, and what kube-proxy does for the guard's one is played: a
connection to its address goes to the process whose pod its selector finds. Only its port is another one (443 needs
rights that a test does not have). The API server finds the Service, checks the certificate against its name and asks.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from clusters import Cluster, eventually
from installedkube import SPACE, InstalledProcess, windlass
from realkube import REQUIRED, RealKube, free_ports, missing

Json = dict[str, Any]
pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.timeout(500)]
HOOKS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/windlass-bind-guard"
SERVICE = f"/api/v1/namespaces/{SPACE}/services/windlass-bind-guard"
SYSTEM_PODS = f"/api/v1/namespaces/{SPACE}/pods"
PODS = "/api/v1/namespaces/default/pods"
ANSWERS = 'windlass_scheduler_bind_guard_total{answer="%s"}'
TIMEOUT_SECONDS = 3
PATIENT_SECONDS = 9
"""What the API server is told here instead: on a busy machine an answer may take longer than three seconds."""


class GuardedInstance(InstalledProcess):
    """One instance of the scheduler's Deployment, with its pod."""

    def __init__(self, kube: RealKube, api: Cluster, number: int) -> None:
        self.pod = f"windlass-scheduler-{number}"
        (self.guard_port,) = free_ports(1)
        template = api.get(f"/apis/apps/v1/namespaces/{SPACE}/deployments/windlass-scheduler").ok()
        made = template["spec"]["template"]
        made["metadata"] = {"name": self.pod, "labels": made["metadata"]["labels"]}
        made["spec"]["schedulerName"] = "nobody"
        api.post(SYSTEM_PODS, {"apiVersion": "v1", "kind": "Pod", **made}).ok(201)
        super().__init__(kube, api, "scheduler", number)

    def _here(self, word: str, cluster: Cluster, kube: RealKube) -> str:
        if word.startswith("--bind-guard="):
            return f"--bind-guard=127.0.0.1:{self.guard_port}"
        if word.startswith("--bind-guard-secret="):
            folder = kube.folder / "guard-secret"
            folder.mkdir(exist_ok=True)
            path = f"/api/v1/namespaces/{SPACE}/secrets/windlass-bind-guard"
            for name, text in cluster.get(path).ok()["data"].items():
                (folder / name).write_bytes(base64.b64decode(text))
            return f"--bind-guard-secret={folder}"
        return super()._here(word.replace("$(POD_NAME)", self.pod), cluster, kube)


class ServiceAddress:
    """What kube-proxy does for one Service: a connection goes to an instance whose pod the selector finds."""

    def __init__(self, address: str, port: int, target: Callable[[], int]) -> None:
        self._target = target
        self._open: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._listener = socket.create_server((address, port))
        self._start(self._serve)

    def close(self) -> None:
        for one in (self._listener, *self._open):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(10)
        for one in (self._listener, *self._open):
            one.close()

    def _start(self, work: Callable[..., None], *arguments: socket.socket) -> None:
        thread = threading.Thread(target=work, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _serve(self) -> None:
        while True:
            try:
                inward, _ = self._listener.accept()
            except OSError:
                return
            try:
                outward = socket.create_connection(("127.0.0.1", self._target()), 5)
            except OSError:
                inward.close()
                continue
            outward.settimeout(None)
            self._open += [inward, outward]
            self._start(self._copy, inward, outward)
            self._start(self._copy, outward, inward)

    @staticmethod
    def _copy(one: socket.socket, other: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := one.recv(65536):
                other.sendall(data)
        for each in (one, other):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def kube(tmp_path: Path) -> Iterator[RealKube]:
    absent = missing(REQUIRED)
    if absent:
        pytest.skip(f"no {', '.join(absent)}: build them with tools/kubernetes/build.sh")
    made = RealKube(tmp_path)
    made.services = "127.77.0.0/16"
    made.start()
    try:
        yield made
    finally:
        made.stop()


def node(api: Cluster, name: str, gpus: int) -> None:
    amounts = {"cpu": "64", "memory": "64Gi", "pods": "64", "nvidia.com/gpu": str(gpus)}
    ready = [{"type": "Ready", "status": "True", "reason": "Here"}]
    status = {"capacity": amounts, "allocatable": amounts, "conditions": ready}
    api.post("/api/v1/nodes", {"metadata": {"name": name}, "status": status}).ok(201)
    api.patch(f"/api/v1/nodes/{name}", {"spec": {"taints": None}}).ok()


def pod(api: Cluster, name: str, gpus: int, scheduler: str = "other") -> None:
    limits = {"nvidia.com/gpu": str(gpus)}
    container = {"name": "c", "image": "i", "resources": {"limits": limits, "requests": limits}}
    spec = {"schedulerName": scheduler, "containers": [container]}
    api.post(PODS, {"metadata": {"name": name}, "spec": spec}).ok(201)


def bind(api: Cluster, name: str, where: str = "gpu1") -> tuple[int, str]:
    """As another scheduler would."""
    target = {"kind": "Node", "name": where}
    body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
    answer = api.post(f"{PODS}/{name}/binding", body)
    return answer.status, "" if answer.status == 201 else json.loads(answer.body)["message"]


def test_the_guard_as_it_is_installed_and_while_its_leader_is_away(kube: RealKube) -> None:
    api = Cluster.of_real(kube)
    installed = windlass(kube, "install", "--bind-guard")
    assert installed.returncode == 0, installed.stderr
    hooks = api.get(HOOKS).ok()["webhooks"]
    assert {(hook["failurePolicy"], hook["timeoutSeconds"]) for hook in hooks} == {
        ("Ignore", TIMEOUT_SECONDS)
    }
    policy = api.get(f"/apis/networking.k8s.io/v1/namespaces/{SPACE}/networkpolicies/windlass").ok()
    ports = {port["port"] for rule in policy["spec"]["ingress"] for port in rule["ports"]}
    assert "bind-guard" in ports

    (port,) = free_ports(1)
    api.patch(
        SERVICE, {"spec": {"ports": [{"name": "bind-guard", "port": port, "targetPort": "bind-guard"}]}}
    )
    for hook in hooks:
        hook["clientConfig"]["service"]["port"] = port
        hook["timeoutSeconds"] = PATIENT_SECONDS
    api.patch(HOOKS, {"webhooks": hooks}).ok()
    service = api.get(SERVICE).ok()["spec"]
    selector = ",".join(f"{name}={value}" for name, value in service["selector"].items())
    instances: dict[str, GuardedInstance] = {}

    proxys = Cluster.of_real(kube)  # of the thread that accepts

    def chosen(asks: Cluster = api) -> list[str]:
        found = asks.get(f"{SYSTEM_PODS}?labelSelector={selector}").ok()["items"]
        return [obj["metadata"]["name"] for obj in found]

    def target() -> int:
        """Of a pod whose process has ended a kubelet would say that it is not ready."""
        alive = [instances[name] for name in chosen(proxys) if instances[name].status() != 0]
        return alive[0].guard_port if alive else 1

    proxy = ServiceAddress(service["clusterIP"], port, target)
    try:
        _play(kube, api, instances, chosen)
    finally:
        proxy.close()
        for one in instances.values():
            os.kill(one.pid, signal.SIGCONT)
            one.stop()
        proxys.close()
        api.close()


def _play(
    kube: RealKube, api: Cluster, instances: dict[str, GuardedInstance], chosen: Callable[[], list[str]]
) -> None:
    node(api, "gpu1", 4)
    pod(api, "early", 1)
    assert bind(api, "early")[0] == 201  # nobody answers yet, and nobody is held up
    first = instances["windlass-scheduler-0"] = GuardedInstance(kube, api, 0)
    eventually(lambda: chosen() == [first.pod])
    eventually(lambda: first.status() == 200)

    # A leader answers: what fits is let through and counted, what does not is refused.
    pod(api, "fits", 2)
    pod(api, "does-not", 2)
    eventually(lambda: _asked(api, first))
    assert bind(api, "fits") == (201, "")
    status, why = bind(api, "does-not")
    assert status == 403, why
    assert "node gpu1 has too little capacity for pod default/does-not: 2 nvidia.com/gpu of 1 left" in why
    pod(api, "ours", 1, "windlass")
    eventually(lambda: api.get(f"{PODS}/ours").ok()["spec"].get("nodeName") == "gpu1")
    status, why = bind(api, "does-not")
    assert (status, "of 0 left" in why) == (403, True)

    # It does not answer in time: the binding goes on after the time-out, not sooner.
    os.kill(first.pid, signal.SIGSTOP)
    pod(api, "waits", 1)
    begun = time.monotonic()
    assert bind(api, "waits") == (201, "")
    assert time.monotonic() - begun >= PATIENT_SECONDS - 0.5
    os.kill(first.pid, signal.SIGCONT)

    # It is gone, its label is still there: bindings go on at once, until another one leads.
    os.kill(first.pid, signal.SIGKILL)
    first.stop()
    pod(api, "meanwhile", 1)
    assert bind(api, "meanwhile") == (201, "")
    second = instances["windlass-scheduler-1"] = GuardedInstance(kube, api, 1)
    eventually(lambda: second.pod in chosen())
    eventually(lambda: _asked(api, second))
    status, why = bind(api, "does-not")
    assert (status, "has too little capacity" in why) == (403, True)

    # Who begins takes its label off before anything else: it may be a leader that has crashed.
    again = instances[first.pod] = GuardedInstance.__new__(GuardedInstance)
    again.pod = first.pod
    (again.guard_port,) = free_ports(1)
    InstalledProcess.__init__(again, kube, api, "scheduler", 0)
    eventually(lambda: chosen() == [second.pod])
    assert bind(api, "does-not")[0] == 403


def _asked(api: Cluster, instance: GuardedInstance) -> bool:
    """Whether the API server has asked this instance: about a pod that does not exist."""
    before = instance.value(ANSWERS % "unknown")
    target = {"kind": "Node", "name": "gpu1"}
    body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "none"}, "target": target}
    assert api.post(f"{PODS}/none/binding?dryRun=All", body).status == 404
    return instance.value(ANSWERS % "unknown") > max(0.0, before)
