"""What lives on the cluster of the live faults: nodes, gangs that come, run and go, and their kubelet."""

from __future__ import annotations

import random
import threading
import time
from typing import Any

from podlog import GPU, Books, PodLog, amounts

from windlass.api.errors import StatusError
from windlass.api.resources import NODES, POD_GROUPS, PODS, Resource
from windlass.client.blocking import BlockingClient
from windlass.client.connection import Connection
from windlass.client.errors import Unreachable

Json = dict[str, Any]
NODE_COUNT = 6
GPUS = 8
HAS = {"cpu": "64", "memory": "256Gi", "pods": "40", GPU: str(GPUS)}
LARGE = 64
"""Members of the gang for which there is never room."""


def node_amounts() -> dict[str, dict[str, int]]:
    return {f"live-{i}": amounts(HAS) for i in range(NODE_COUNT)}


def make_nodes(client: BlockingClient) -> None:
    for name in node_amounts():
        status = {"capacity": HAS, "allocatable": HAS, "conditions": [{"type": "Ready", "status": "True"}]}
        made = {"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}}, "status": status}
        client.create(NODES, made)


def pod(gang: str, rank: int, gpus: int, scheduler: str = "windlass") -> Json:
    asked = {"cpu": "1", "memory": "1Gi", **({GPU: str(gpus)} if gpus else {})}
    container = {"name": "rank", "image": "train", "resources": {"requests": asked, "limits": asked}}
    return {
        "metadata": {
            "name": f"{gang}-{rank}",
            "labels": {"gang": gang},
            "annotations": {"scheduling.k8s.io/group-name": gang},
        },
        "spec": {"schedulerName": scheduler, "restartPolicy": "Never", "containers": [container]},
    }


def group(name: str, members: int) -> Json:
    return {"metadata": {"name": name}, "spec": {"minMember": members, "queue": "default"}}


class Patient:
    """A client to which outages happen: it asks until it is answered."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._client: BlockingClient | None = None

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def once(self, verb: str, *arguments: Any, **options: Any) -> Any:
        """None when nobody answers, or it is not there (any more)."""
        try:
            if self._client is None:
                self._client = BlockingClient(self._connection, timeout_seconds=10)
            return getattr(self._client, verb)(*arguments, **options)
        except (Unreachable, OSError):
            self.close()
        except StatusError as error:
            if error.code not in (404, 409, 429, 500, 503, 504):
                raise
        return None

    def make(self, resource: Resource, made: Json, namespace: str, seconds: float = 90.0) -> None:
        """Create it; it is there when this returns."""
        name, deadline = made["metadata"]["name"], time.monotonic() + seconds
        while self.once("create", resource, made, namespace) is None:
            if self.once("get", resource, name, namespace) is not None:
                return
            if time.monotonic() > deadline:
                raise RuntimeError(f"{resource.kind} {name} could not be created in {seconds:g} s")
            time.sleep(0.1)


class Load(threading.Thread):
    """Gangs at random moments of ``seconds``, for half as many GPUs again as there are, and one too large."""

    def __init__(self, connection: Connection, namespace: str, rng: random.Random, seconds: float) -> None:
        super().__init__(name="load", daemon=True)
        self._client = Patient(connection)
        self._namespace = namespace
        self._rng = rng
        self._seconds = seconds
        self.large = f"{namespace}-large"
        self.gangs = self._draw()
        self.error: BaseException | None = None

    def _draw(self) -> dict[str, tuple[int, int]]:
        """Gang → members, GPUs each."""
        found: dict[str, tuple[int, int]] = {self.large: (LARGE, 1)}
        asked = 0
        while asked < 1.5 * NODE_COUNT * GPUS:
            members, gpus = self._rng.randint(2, 8), self._rng.choice((1, 1, 2))
            found[f"{self._namespace}-{len(found)}"] = (members, gpus)
            asked += members * gpus
        return found

    def run(self) -> None:
        try:
            names = list(self.gangs)
            self._rng.shuffle(names)
            for name in names:
                members, gpus = self.gangs[name]
                self._client.make(POD_GROUPS, group(name, members), self._namespace)
                for rank in range(members if name != self.large else 6):
                    self._client.make(PODS, pod(name, rank, gpus), self._namespace)
                time.sleep(self._rng.uniform(0, 2 * self._seconds / len(names)))
        except BaseException as error:
            self.error = error
            raise
        finally:
            self._client.close()


class Kubelet(threading.Thread):
    """Runs pods that are bound, ends gangs that have run for ``seconds``, and lets pods go that are being deleted."""

    def __init__(self, connection: Connection, log: PodLog, seconds: float = 2.0) -> None:
        super().__init__(name="kubelet", daemon=True)
        self._client = Patient(connection)
        self._log = log
        self._seconds = seconds
        self._stopped = threading.Event()

    def run(self) -> None:
        while not self._stopped.wait(0.2):
            with self._log.lock:
                leaving, begun, ended = self._look(self._log.books, time.monotonic())
            for key, uid in leaving:
                namespace, name = key.split("/")
                self._client.once("delete", PODS, name, namespace, grace_seconds=0, uid=uid)
            for phase, keys in (("Running", begun), ("Succeeded", ended)):
                for key in keys:
                    self._say(key, {"phase": phase})
        self._client.close()

    def _say(self, key: str, status: Json) -> None:
        namespace, name = key.split("/")
        self._client.once("patch", PODS, name, {"status": status}, namespace, subresource="status")

    def stop(self) -> None:
        self._stopped.set()
        self.join(30)

    def _look(self, books: Books, now: float) -> tuple[list[tuple[str, str]], list[str], list[str]]:
        """What is to go, what is to run, and what is to end: whole gangs."""
        leaving, begun, since, running = [], [], {}, {}
        for key, entry in books.pods.items():
            if entry.pod["metadata"].get("deletionTimestamp"):
                leaving.append((key, entry.uid))
            elif entry.node and entry.phase not in ("Succeeded", "Failed"):
                since[entry.gang] = max(since.get(entry.gang, 0.0), entry.at)
                running.setdefault(entry.gang, []).append(key)
                if entry.phase == "Pending":
                    begun.append(key)
        ended = []
        for gang, at in since.items():
            if now - at > self._seconds and len(books.placed[gang]) >= books.minima.get(gang, 1):
                ended += running[gang]
        return leaving, begun, ended
