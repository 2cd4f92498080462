"""A cluster that another gang scheduler serves, as its chart installs it, from which Windlass takes queues over.

What is the same whoever that is; :mod:`takeover_peers` says what is Volcano's and what is KAI's.
"""

from __future__ import annotations

import json
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

from clusters import Cluster, eventually
from installedkube import InstalledProcess, windlass
from realkube import RealKube, end

Json = dict[str, Any]
NODES = ("gpu-1", "gpu-2")


class Scene(ABC):
    """Two nodes of four GPUs, queues ``default``, ``research`` and ``prod``, and the other scheduler."""

    kind: ClassVar[str]
    """As ``--adopt`` calls it."""
    title: ClassVar[str]
    scheduler_name: ClassVar[str]
    groups_path: ClassVar[str]
    """Of its PodGroups, with the namespace left open."""

    def __init__(self, kube: RealKube, api: Cluster) -> None:
        self.kube, self.api = kube, api
        self.space = api.new_namespace("adopt")
        self.pods = f"/api/v1/namespaces/{self.space}/pods"
        self.groups = self.groups_path.format(self.space)
        self.processes: list[InstalledProcess] = []
        self._others: list[Any] = []
        """Its own processes, or the one that stands in for them."""

    # What is its own.

    @abstractmethod
    def install(self) -> None:
        """Its queues, Deployments and configuration."""

    @abstractmethod
    def own_processes(self) -> list[Any]:
        """Its scheduler, started; empty where it is not built."""

    @abstractmethod
    def passes_over(self, group: Json, queues: set[str]) -> bool:
        """Whether its scheduler has nothing to do with a PodGroup."""

    @abstractmethod
    def group_body(self, name: str, queue: str, pods: int) -> Json: ...

    @abstractmethod
    def pod_metadata(self, group: str, queue: str) -> Json:
        """By what a pod belongs to its group."""

    @abstractmethod
    def handed(self, name: str) -> bool:
        """Whether a gang is marked as handed over."""

    def tell_running(self, api: Cluster, group: Json) -> None:  # noqa: B027
        """As its scheduler does, where it says so on the group."""

    def shown_running(self, name: str) -> bool:
        """Whether its group says that it runs, where groups say so."""
        return True

    @abstractmethod
    def instances(self) -> int:
        """How many instances of its scheduler are asked for."""

    # The world.

    def world(self) -> None:
        for name in NODES:
            amounts = {"cpu": "16", "memory": "64Gi", "pods": "50", "nvidia.com/gpu": "4"}
            ready = [{"type": "Ready", "status": "True"}]
            status = {"allocatable": amounts, "capacity": amounts, "conditions": ready}
            self.api.post("/api/v1/nodes", {"metadata": {"name": name}, "status": status}).ok(201)
        self.install()

    def start_other(self) -> None:
        self._others = self.own_processes() or [Repeated(self.api, partial(stand_in, self))]

    def stop_other(self) -> None:
        for one in self._others:
            if isinstance(one, Repeated):
                one.stop()
            else:
                end(one)
        self._others = []

    def close(self) -> None:  # noqa: B027
        """What :meth:`install` has started ends."""

    def start_windlass(self) -> None:
        """As its Deployments say now."""
        self.stop_windlass()
        for part in ("controllers", "scheduler"):
            self.processes.append(InstalledProcess(self.kube, self.api, part))

    def stop_windlass(self) -> None:
        for process in self.processes:
            process.stop()
        self.processes.clear()

    def gang(self, name: str, queue: str, pods: int, **annotations: str) -> None:
        """``annotations``: of its pods, which then ask for no whole GPU."""
        self.api.post(self.groups, self.group_body(name, queue, pods)).ok(201)
        limits = {} if annotations else {"nvidia.com/gpu": "1"}
        for at in range(pods):
            container = {"name": "m", "image": "x", "resources": {"limits": limits}}
            metadata = {"name": f"{name}-{at}", **self.pod_metadata(name, queue)}
            metadata["annotations"] = {**metadata["annotations"], **annotations}
            spec = {
                "schedulerName": self.scheduler_name,
                "tolerations": [{"operator": "Exists"}],
                "terminationGracePeriodSeconds": 0,
                "containers": [container],
            }
            self.api.post(self.pods, {"metadata": metadata, "spec": spec}).ok(201)

    # What is seen of it.

    def group(self, name: str) -> Json:
        return self.api.get(f"{self.groups}/{name}").ok()

    def told(self, name: str) -> dict[str, str]:
        """The annotations of a gang."""
        return self.group(name)["metadata"].get("annotations") or {}

    def bound(self, name: str) -> list[Json]:
        items = self.api.get(self.pods).ok()["items"]
        return [
            p for p in items if p["metadata"]["name"].startswith(f"{name}-") and p["spec"].get("nodeName")
        ]

    def run(self, name: str) -> list[Json]:
        """Wait until a gang of two is bound, let it run, and return what must not change of it."""
        try:
            eventually(lambda: len(self.bound(name)) == 2)
        except AssertionError as error:
            raise AssertionError(f"{name}: {error}; {self.told(name)}\n{self.words()}") from None
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

    def end(self, name: str) -> None:
        """The pods of a gang are deleted."""
        for pod in self.api.get(self.pods).ok()["items"]:
            if pod["metadata"]["name"].startswith(f"{name}-"):
                self.api.delete(f"{self.pods}/{pod['metadata']['name']}").ok()

    def binders(self) -> dict[str, set[str]]:
        """Who asked for a binding of each pod with success: ``windlass`` or ``other``.

        The server writes the log after it has answered: ask again until what is wanted is there.
        """
        found: dict[str, set[str]] = {}
        whole, _, _ = self.kube.audit_log.read_text().rpartition("\n")  # the last line may be unfinished
        for line in whole.splitlines():
            entry = json.loads(line)
            about = entry.get("objectRef") or {}
            bound = (
                about.get("subresource") == "binding"
                and (entry.get("responseStatus") or {}).get("code") == 201
            )
            if bound and about.get("namespace") == self.space:
                ours = "windlass" in entry["user"]["username"]
                found.setdefault(about["name"], set()).add("windlass" if ours else "other")
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


class Repeated:
    """Something done again and again, as the administrator, until it is stopped."""

    def __init__(self, api: Cluster, do: Callable[[Cluster], None]) -> None:
        self._api = Cluster("real", api.connection, api.kubeconfig, api.forget_history)
        self._do = do
        self._over = threading.Event()
        self._worker = threading.Thread(target=self._run)
        self._worker.start()

    def stop(self) -> None:
        self._over.set()
        self._worker.join()
        self._api.close()

    def _run(self) -> None:
        while not self._over.wait(0.2):
            self._do(self._api)


def stand_in(scene: Scene, api: Cluster) -> None:
    """Bind whole gangs that the scheduler does not pass over, first node first."""
    pods = api.get(scene.pods).ok()["items"]
    free: dict[str, int] = dict.fromkeys(NODES, 4)
    for pod in pods:
        if pod["spec"].get("nodeName"):
            free[pod["spec"]["nodeName"]] -= 1
    for group in api.get(scene.groups).ok()["items"]:
        name = group["metadata"]["name"]
        mine = [p for p in pods if p["metadata"]["name"].rpartition("-")[0] == name]
        waiting = [p["metadata"]["name"] for p in mine if not p["spec"].get("nodeName") and asks(p)]
        fits = len(mine) >= group["spec"]["minMember"] and len(waiting) <= sum(free.values())
        if scene.passes_over(group, {"default", "research", "prod"}):
            continue
        if mine and all((p.get("status") or {}).get("phase") == "Running" for p in mine):
            scene.tell_running(api, group)
        if not waiting or not fits:
            continue
        for pod in waiting:
            node = next(name for name, room in free.items() if room)
            target = {"target": {"apiVersion": "v1", "kind": "Node", "name": node}}
            answer = api.post(f"{scene.pods}/{pod}/binding", {"metadata": {"name": pod}, **target})
            if answer.status == 201:
                free[node] -= 1


def asks(pod: Json) -> bool:
    """Whether the pod asks for whole GPUs."""
    return bool(pod["spec"]["containers"][0]["resources"].get("limits"))
