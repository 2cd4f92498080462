"""Runner of ``same_decision_cases`` for a scheduler on a real API server, with a list of differing decisions."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

from clusters import Cluster, eventually
from same_decision_cases import GPU, PRIORITIES, Case, Gang, Json

_VOLCANO = "/apis/scheduling.volcano.sh/v1beta1"
_CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"


def make_priorities(api: Cluster) -> None:
    """For all cases, once."""
    for name, value in PRIORITIES.items():
        policy = {"preemptionPolicy": "Never"} if name == "polite" else {}
        api.post(_CLASSES, {"metadata": {"name": name}, "value": value, **policy}).ok(201)


def open_queue(api: Cluster, name: str, **spec: Any) -> None:
    """As Volcano's queue controller would open it."""
    kind = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue"}
    body = {**kind, "metadata": {"name": name}, "spec": {"weight": 1, "reclaimable": True, **spec}}
    api.post(f"{_VOLCANO}/queues", body).ok(201)
    api.patch(f"{_VOLCANO}/queues/{name}/status", {"status": {"state": "Open"}}).ok()


class Stage:
    """One case before one scheduler, in a namespace of its own, whose nodes and queues are gone afterwards."""

    def __init__(self, api: Cluster, case: Case, scheduler_name: str) -> None:
        self._api, self._case, self._scheduler = api, case, scheduler_name
        self._space = api.new_namespace("case")
        self._queue_of: dict[str, str] = {}

    def play(self, seconds: float, hold: float) -> None:
        """Raises ``AssertionError`` where other pods are bound than the case says within ``seconds``, or where they do
        not stay for ``hold`` seconds."""
        case = self._case
        try:
            for name, spec in case.queues.items():
                open_queue(self._api, name, **spec)
            self._make(case.gangs)
            self._hear(seconds)
            for number, gpus in enumerate(case.nodes):
                self._make_node(f"{self._space}-{number}", gpus)
            if case.later:
                self._reach(case.first, seconds)
                self._run()
                self._make(case.later)
            self._reach(case.bound, seconds)
            time.sleep(hold)
            self._reach(case.bound, 0.0)
            eventually(self._told_how_they_stand, seconds)
        finally:
            self._clear()

    def _hear(self, seconds: float) -> None:
        """Return once the scheduler has heard of all gangs so far: a pod that came after them is bound, and no GPU is
        there yet."""
        node, last = f"{self._space}-none", Gang("last", 1, gpus=0)
        self._make_node(node, 0)
        self._make((last,))
        eventually(lambda: self._by_gang()[last.name], seconds)
        for path in (f"{self._pods}/{last.name}-0", f"{self._groups}/{last.name}", f"/api/v1/nodes/{node}"):
            self._api.delete(path).ok()

    def _run(self) -> None:
        """As a node agent would: none but pods that run are ever evicted."""
        for pod in self._api.get(self._pods).ok()["items"]:
            if pod["spec"].get("nodeName"):
                path = f"{self._pods}/{pod['metadata']['name']}/status"
                self._api.patch(path, {"status": {"phase": "Running"}}).ok()

    def _reach(self, wanted: dict[str, int], seconds: float) -> None:
        def there() -> bool:
            found = self._bound()
            assert found == wanted, f"{self._case.name}, {self._scheduler}: bound are {found}, not {wanted}"
            return True

        eventually(there, seconds)

    def _bound(self) -> dict[str, int]:
        """By gang, or by queue where the case counts so."""
        found: Counter[str] = Counter()
        by_queue = any(name.startswith("@") for name in self._case.bound)
        for gang, pods in self._by_gang().items():
            found[f"@{self._queue_of[gang]}" if by_queue else gang] += pods
        return dict(found)

    def _by_gang(self, phase: str = "") -> Counter[str]:
        """Pods that are bound and not told to end, and of this ``phase``."""
        return Counter(
            pod["metadata"]["labels"]["gang"]
            for pod in self._api.get(self._pods).ok()["items"]
            if pod["spec"].get("nodeName") and not pod["metadata"].get("deletionTimestamp")
            if not phase or pod["status"].get("phase") == phase
        )

    def _told_how_they_stand(self) -> bool:
        """Whether every gang that has its minimum says that it runs, one that has less and of which something runs
        that it is of unknown fate, and no other either."""
        found, running, wrong = self._by_gang(), self._by_gang("Running"), {}
        for group in self._api.get(self._groups).ok()["items"]:
            name, phase = group["metadata"]["name"], (group.get("status") or {}).get("phase", "")
            whole = found[name] >= group["spec"]["minMember"]
            wanted = "Running" if whole else "Unknown" if running[name] else ""
            if (phase if phase in ("Running", "Unknown", "Completed") else "") != wanted:
                wrong[name] = phase
        assert not wrong, f"{self._case.name}, {self._scheduler}: {wrong}, and bound are {dict(found)}"
        return True

    @property
    def _pods(self) -> str:
        return f"/api/v1/namespaces/{self._space}/pods"

    @property
    def _groups(self) -> str:
        return f"{_VOLCANO}/namespaces/{self._space}/podgroups"

    def _make_node(self, name: str, gpus: int) -> None:
        amounts = {"cpu": "64", "memory": "256Gi", "pods": "110", GPU: str(gpus)}
        ready = [{"type": "Ready", "status": "True", "reason": "Simulated"}]
        status = {"capacity": amounts, "allocatable": amounts, "conditions": ready}
        metadata = {"name": name, "labels": {"kubernetes.io/hostname": name}}
        self._api.post("/api/v1/nodes", {"metadata": metadata, "status": status}).ok(201)

    def _make(self, gangs: tuple[Gang, ...]) -> None:
        for gang in gangs:
            self._queue_of[gang.name] = gang.queue
            members = gang.minimum or gang.pods
            spec = {"minMember": members, "queue": gang.queue, "priorityClassName": gang.priority}
            if gang.least:
                spec["minTaskMember"] = gang.least
            if gang.gpus:
                spec["minResources"] = {GPU: str(members * gang.gpus)}
            kind = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup"}
            self._api.post(self._groups, {**kind, "metadata": {"name": gang.name}, "spec": spec}).ok(201)
            for rank in range(gang.pods):
                self._api.post(self._pods, self._pod(gang, rank)).ok(201)

    def _pod(self, gang: Gang, rank: int) -> Json:
        limits = {GPU: str(gang.gpus), "cpu": "1"} if gang.gpus else {}
        metadata = {
            "name": f"{gang.name}-{rank}",
            "labels": {"gang": gang.name},
            "annotations": {
                "scheduling.k8s.io/group-name": gang.name,
                "volcano.sh/task-spec": gang.task(rank),
            },
        }
        spec = {
            "schedulerName": self._scheduler,
            "priorityClassName": gang.priority,
            "tolerations": [{"operator": "Exists"}],
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "main", "image": "x", "resources": {"limits": limits}}],
        }
        return {"metadata": metadata, "spec": spec}

    def _clear(self) -> None:
        for path in (self._pods, self._groups):
            self._api.delete(path).ok()
        eventually(lambda: not self._api.get(self._pods).ok()["items"])
        for number in range(len(self._case.nodes)):
            self._api.delete(f"/api/v1/nodes/{self._space}-{number}")
        for name in reversed(self._case.queues):
            self._api.delete(f"{_VOLCANO}/queues/{name}").ok()
