"""A cluster that runs Volcano is taken over queue by queue, and given back, while its pods run on.

With Volcano's own scheduler where it is built (``tools/kubernetes/build.sh --volcano``), else with a stand-in that
passes over groups without a queue, as Volcano does.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from clusters import Cluster, eventually
from installedkube import InstalledProcess, windlass
from realkube import RealKube, end, missing, serving, spawn, tools_folder

Json = dict[str, Any]
pytestmark = [pytest.mark.real, pytest.mark.timeout(240)]
VOLCANO = "/apis/scheduling.volcano.sh/v1beta1"
DEPLOYMENTS = "/apis/apps/v1/namespaces/volcano-system/deployments"
POLICY = """\
actions: "enqueue, allocate, backfill"
tiers:
- plugins:
  - name: priority
  - name: gang
    enablePreemptable: false
  - name: conformance
- plugins:
  - name: overcommit
  - name: drf
    enablePreemptable: false
  - name: predicates
  - name: proportion
  - name: nodeorder
  - name: binpack
"""
"""What Volcano's chart installs."""
SUFFIX = ".adopted.windlass.dev"


class Scene:
    """Two nodes of four GPUs, queues ``research`` and ``prod``, and Volcano as its chart installs it."""

    def __init__(self, kube: RealKube, api: Cluster) -> None:
        self.kube, self.api = kube, api
        self.space = api.new_namespace("adopt")
        self.pods = f"/api/v1/namespaces/{self.space}/pods"
        self.processes: list[InstalledProcess] = []
        self._volcano: Any = None

    def world(self) -> None:
        for name in ("gpu-1", "gpu-2"):
            amounts = {"cpu": "16", "memory": "64Gi", "pods": "50", "nvidia.com/gpu": "4"}
            ready = [{"type": "Ready", "status": "True"}]
            status = {"allocatable": amounts, "capacity": amounts, "conditions": ready}
            self.api.post("/api/v1/nodes", {"metadata": {"name": name}, "status": status}).ok(201)
        for name in ("default", "research", "prod"):
            queue = {
                "apiVersion": "scheduling.volcano.sh/v1beta1",
                "kind": "Queue",
                "metadata": {"name": name},
            }
            self.api.post(f"{VOLCANO}/queues", {**queue, "spec": {"weight": 1}}).ok(201)
            state = {"status": {"state": "Open"}}  # Volcano's queue controller writes it
            self.api.patch(f"{VOLCANO}/queues/{name}/status", state).ok()
        self.api.post("/api/v1/namespaces", {"metadata": {"name": "volcano-system"}}).ok(201)
        config = {
            "metadata": {"name": "volcano-scheduler-configmap"},
            "data": {"volcano-scheduler.conf": POLICY},
        }
        self.api.post("/api/v1/namespaces/volcano-system/configmaps", config).ok(201)
        for name, app in (
            ("volcano-scheduler", "volcano-scheduler"),
            ("volcano-controllers", "volcano-controller"),
        ):
            self.api.post(DEPLOYMENTS, deployment(name, app)).ok(201)

    def start_volcano(self) -> None:
        if missing(["volcano-scheduler"]):
            self._volcano = StandIn(self.api, self.pods)
            return
        conf = self.kube.folder / "volcano-scheduler.conf"
        conf.write_text(POLICY)
        argv = [
            str(tools_folder() / "volcano-scheduler"),
            f"--kubeconfig={self.kube.kubeconfig}",
            f"--scheduler-conf={conf}",
            "--scheduler-name=volcano",
            "--leader-elect=false",
            "--schedule-period=200ms",
            "--enable-healthz=false",
            "--enable-metrics=false",
            "--cache-dumper=false",
            "--listen-address=127.0.0.1:0",
        ]
        self._volcano = spawn(argv, self.kube.folder / "volcano.log", cwd=self.kube.folder)

    def stop_volcano(self) -> None:
        if isinstance(self._volcano, StandIn):
            self._volcano.stop()
        elif self._volcano is not None:
            end(self._volcano)
        self._volcano = None

    def start_windlass(self) -> None:
        """As its Deployments say now."""
        self.stop_windlass()
        for part in ("controllers", "scheduler"):
            self.processes.append(InstalledProcess(self.kube, self.api, part))

    def stop_windlass(self) -> None:
        for process in self.processes:
            process.stop()
        self.processes.clear()

    def gang(self, name: str, queue: str, pods: int) -> None:
        group = {
            "apiVersion": "scheduling.volcano.sh/v1beta1",
            "kind": "PodGroup",
            "metadata": {"name": name},
            "spec": {"minMember": pods, "queue": queue},
        }
        self.api.post(f"{VOLCANO}/namespaces/{self.space}/podgroups", group).ok(201)
        for at in range(pods):
            container = {"name": "m", "image": "x", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
            notes = {"scheduling.k8s.io/group-name": name}
            metadata = {"name": f"{name}-{at}", "annotations": notes}
            spec = {
                "schedulerName": "volcano",
                "tolerations": [{"operator": "Exists"}],
                "terminationGracePeriodSeconds": 0,
                "containers": [container],
            }
            self.api.post(self.pods, {"metadata": metadata, "spec": spec}).ok(201)

    def group(self, name: str) -> Json:
        return self.api.get(f"{VOLCANO}/namespaces/{self.space}/podgroups/{name}").ok()

    def bound(self, name: str) -> list[Json]:
        items = self.api.get(self.pods).ok()["items"]
        return [
            p for p in items if p["metadata"]["name"].startswith(f"{name}-") and p["spec"].get("nodeName")
        ]

    def run(self, name: str) -> list[Json]:
        """Wait until a gang of two is bound, let it run, and return what must not change of it."""
        eventually(lambda: len(self.bound(name)) == 2, 60)
        for pod in self.bound(name):
            status = {"status": {"phase": "Running", "startTime": "2026-01-01T00:00:00Z"}}
            self.api.patch(f"{self.pods}/{pod['metadata']['name']}/status", status).ok()
        return self.lasting(name)

    def lasting(self, name: str) -> list[Json]:
        kept = ("name", "uid", "creationTimestamp", "annotations")
        return [
            {
                **{k: p["metadata"].get(k) for k in kept},
                "node": p["spec"]["nodeName"],
                "start": p["status"]["startTime"],
            }
            for p in self.bound(name)
        ]

    def binders(self) -> dict[str, set[str]]:
        """Who asked for a binding of each pod with success: ``windlass`` or ``volcano``."""
        found: dict[str, set[str]] = {}
        for line in self.kube.audit_log.read_text().splitlines():
            entry = json.loads(line)
            about = entry.get("objectRef") or {}
            bound = (
                about.get("subresource") == "binding"
                and (entry.get("responseStatus") or {}).get("code") == 201
            )
            if bound and about.get("namespace") == self.space:
                ours = "windlass" in entry["user"]["username"]
                found.setdefault(about["name"], set()).add("windlass" if ours else "volcano")
        return found

    def say(self, *arguments: str) -> str:
        done = windlass(self.kube, *arguments)
        assert done.returncode == 0, done.stdout + done.stderr + self.words()
        return done.stdout

    def meanwhile(self, *arguments: str) -> Callable[[], str]:
        """Start a command; the result waits for its end."""
        said: list[str] = []
        worker = threading.Thread(target=lambda: said.append(self.say(*arguments)))
        worker.start()

        def finished() -> str:
            worker.join(150)
            assert said, self.words()
            return said[0]

        return finished

    def words(self) -> str:
        return "\n".join(process.text()[-1500:] for process in self.processes)


class StandIn:
    """Binds whole gangs of Volcano's whose queue exists, first node first, as the administrator."""

    def __init__(self, api: Cluster, pods: str) -> None:
        self._api = Cluster("real", api.connection, api.kubeconfig, api.forget_history)
        self._pods = pods
        self._over = threading.Event()
        self._worker = threading.Thread(target=self._run)
        self._worker.start()

    def stop(self) -> None:
        self._over.set()
        self._worker.join()
        self._api.close()

    def _run(self) -> None:
        while not self._over.wait(0.2):
            self._cycle()

    def _cycle(self) -> None:
        space = self._pods.removesuffix("/pods").rpartition("/")[2]
        queues = {queue["metadata"]["name"] for queue in self._api.get(f"{VOLCANO}/queues").ok()["items"]}
        pods = self._api.get(self._pods).ok()["items"]
        free = {"gpu-1": 4, "gpu-2": 4}
        for pod in pods:
            if pod["spec"].get("nodeName"):
                free[pod["spec"]["nodeName"]] -= 1
        for group in self._api.get(f"{VOLCANO}/namespaces/{space}/podgroups").ok()["items"]:
            name = group["metadata"]["name"]
            mine = [p for p in pods if p["metadata"]["annotations"]["scheduling.k8s.io/group-name"] == name]
            waiting = [p["metadata"]["name"] for p in mine if not p["spec"].get("nodeName")]
            fits = len(mine) >= group["spec"]["minMember"] and len(waiting) <= sum(free.values())
            if group["spec"]["queue"] not in queues or not waiting or not fits:
                continue
            for pod in waiting:
                node = next(name for name, room in free.items() if room)
                target = {"target": {"apiVersion": "v1", "kind": "Node", "name": node}}
                if (
                    self._api.post(
                        f"{self._pods}/{pod}/binding", {"metadata": {"name": pod}, **target}
                    ).status
                    == 201
                ):
                    free[node] -= 1


def deployment(name: str, app: str) -> Json:
    container = {
        "name": name,
        "image": f"docker.io/volcanosh/{name}:v1.15.0",
        "args": [
            "--logtostderr",
            "--scheduler-conf=/volcano.scheduler/volcano-scheduler.conf",
            "--scheduler-name=volcano",
        ],
        "volumeMounts": [{"name": "scheduler-config", "mountPath": "/volcano.scheduler"}],
    }
    volume = {"name": "scheduler-config", "configMap": {"name": "volcano-scheduler-configmap"}}
    template = {
        "metadata": {"labels": {"app": app}},
        "spec": {"containers": [container], "volumes": [volume]},
    }
    spec = {"replicas": 1, "selector": {"matchLabels": {"app": app}}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec}


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with serving(tmp_path_factory.mktemp("adoptkube"), crds=True) as kube:
        api = Cluster.of_real(kube)
        made = Scene(kube, api)
        try:
            made.world()
            made.start_volcano()
            yield made
        finally:
            made.stop_windlass()
            made.stop_volcano()
            api.close()


def test_queue_by_queue_and_back(scene: Scene) -> None:
    for name, queue in (("r1", "research"), ("p1", "prod")):
        scene.gang(name, queue, 2)
    before = {name: scene.run(name) for name in ("r1", "p1")}

    report = scene.say("install", "--adopt", "volcano", "--dry-run")
    assert "volcano-system/volcano-scheduler" in report
    assert "actions enqueue, allocate, backfill" in report
    assert scene.group("r1")["spec"]["queue"] == "research"

    scene.say("install", "--adopt", "volcano")  # beside: nobody's queue changes hands
    scene.start_windlass()
    handed = scene.say("install", "--adopt", "volcano", "-q", "research")
    assert "queue research: 1 gang handed over to Windlass; 0 pods wait, 2 run on untouched" in handed
    assert scene.group("r1")["spec"]["queue"] == f"research{SUFFIX}"
    assert scene.group("p1")["spec"]["queue"] == "prod"

    for name, queue in (("r2", "research"), ("p2", "prod")):
        scene.gang(name, queue, 2)
        scene.run(name)
    who = scene.binders()
    assert {pod: by for pod, by in who.items() if pod.startswith(("r2", "p2"))} == {
        "r2-0": {"windlass"},
        "r2-1": {"windlass"},
        "p2-0": {"volcano"},
        "p2-1": {"volcano"},
    }
    used = [pod["spec"]["nodeName"] for name in ("r1", "p1", "r2", "p2") for pod in scene.bound(name)]
    assert sorted(used) == ["gpu-1"] * 4 + ["gpu-2"] * 4  # each counted what the other had placed

    scene.gang("r3", "research", 2)  # no room: Windlass says why
    eventually(
        lambda: "windlass.dev/explanation" in (scene.group("r3")["metadata"].get("annotations") or {}), 30
    )
    back = scene.say("uninstall", "--adopted", "-q", "research")
    assert "queue research: 3 gangs given back to Volcano" in back
    assert scene.group("r3")["spec"]["queue"] == "research"
    for pod in scene.bound("p2"):
        scene.api.delete(f"{scene.pods}/{pod['metadata']['name']}").ok()
    scene.run("r3")
    assert scene.binders()["r3-0"] == {"volcano"}
    assert {name: scene.lasting(name) for name in before} == before


def test_all_queues_and_the_end_of_volcano_and_back_again(scene: Scene) -> None:
    for name in ("p2", "r2", "r3"):
        for pod in scene.bound(name):
            scene.api.delete(f"{scene.pods}/{pod['metadata']['name']}").ok()
    before = {name: scene.lasting(name) for name in ("r1", "p1")}
    refused = windlass(scene.kube, "install", "--adopt", "volcano", "--finish")
    assert refused.returncode == 5
    assert "WL-ADOPT-409" in refused.stderr
    assert "default, prod, research" in refused.stderr

    marked = [word for name in ("default", "prod", "research") for word in ("-q", name)]
    ended = scene.meanwhile("install", "--adopt", "volcano", "--finish", *marked)
    eventually(lambda: scene.api.get(f"{DEPLOYMENTS}/volcano-scheduler").ok()["spec"]["replicas"] == 0, 60)
    scene.stop_volcano()
    assert "Volcano decides nothing any more" in ended()
    scene.start_windlass()  # the Deployments have changed
    eventually(lambda: scene.group("r1")["spec"]["queue"] == "research", 30)
    scene.gang("r4", "research", 2)
    scene.run("r4")
    assert scene.binders()["r4-0"] == {"windlass"}

    returned = scene.meanwhile("uninstall", "--adopted")
    args = "/apis/apps/v1/namespaces/windlass-system/deployments/windlass-scheduler"

    def beside() -> bool:
        (container,) = scene.api.get(args).ok()["spec"]["template"]["spec"]["containers"]
        return "--beside=volcano" in container["args"]

    eventually(beside, 30)
    scene.start_windlass()
    eventually(lambda: scene.api.get(f"{DEPLOYMENTS}/volcano-scheduler").ok()["spec"]["replicas"] == 1, 60)
    scene.start_volcano()
    assert "queue research: 4 gangs given back to Volcano" in returned()
    assert scene.api.get(args).status == 404
    scene.stop_windlass()
    scene.gang("p3", "prod", 2)
    scene.run("p3")
    assert scene.binders()["p3-0"] == {"volcano"}
    assert {name: scene.lasting(name) for name in before} == before
