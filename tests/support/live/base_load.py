"""What lives on the cluster of the live faults: nodes, gangs that come, run and go, and their kubelet."""

from __future__ import annotations

import random
import threading
import time
from typing import Any

from device_plugin_kubelet import PlugKubelet
from pod_log import GPU, Books, PodLog, amounts

from windlass.api.errors import StatusError
from windlass.api.resources import NODES, POD_GROUPS, PODS, Resource
from windlass.client.blocking import BlockingClient
from windlass.client.connection import Connection
from windlass.client.errors import Unreachable
from windlass.client.responses import is_another

Json = dict[str, Any]
Pods = list[tuple[str, str]]
"""Keys and uids."""
NODE_COUNT = 6
GPUS = 8
HAS = {"cpu": "64", "memory": "256Gi", "pods": "40", GPU: str(GPUS)}
LARGE = 64
"""Members of the gang for which there is never room."""


def node_amounts() -> dict[str, dict[str, int]]:
    return {f"live-{i}": amounts(HAS) for i in range(NODE_COUNT)}


def make_nodes(client: BlockingClient) -> None:
    for name in node_amounts():
        client.create(NODES, node_of(name))


def node_of(name: str) -> Json:
    status = {"capacity": HAS, "allocatable": HAS, "conditions": [{"type": "Ready", "status": "True"}]}
    return {"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}}, "status": status}


def pod(gang: str, rank: int, gpus: int, scheduler: str = "windlass", **spec: Any) -> Json:
    asked = {"cpu": "1", "memory": "1Gi", **({GPU: str(gpus)} if gpus else {})}
    container = {"name": "rank", "image": "train", "resources": {"requests": asked, "limits": asked}}
    return {
        "metadata": {
            "name": f"{gang}-{rank}",
            "labels": {"gang": gang},
            "annotations": {"scheduling.k8s.io/group-name": gang},
        },
        "spec": {"schedulerName": scheduler, "restartPolicy": "Never", "containers": [container], **spec},
    }


def group(name: str, members: int, **spec: Any) -> Json:
    return {"metadata": {"name": name}, "spec": {"minMember": members, "queue": "default", **spec}}


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
        return self._ask(verb, *arguments, **options)[1]

    def surely(self, verb: str, *arguments: Any, seconds: float = 90.0, **options: Any) -> Any:
        """Asked until it is answered. None where it is not there (any more), or another by now."""
        deadline = time.monotonic() + seconds
        while True:
            answered, found = self._ask(verb, *arguments, **options)
            if answered:
                return found
            if time.monotonic() > deadline:
                raise RuntimeError(f"nobody answered {verb} {arguments} in {seconds:g} s")
            time.sleep(0.1)

    def _ask(self, verb: str, *arguments: Any, **options: Any) -> tuple[bool, Any]:
        """Whether somebody answered, and what."""
        try:
            if self._client is None:
                self._client = BlockingClient(self._connection, timeout_seconds=10)
            return True, getattr(self._client, verb)(*arguments, **options)
        except (Unreachable, OSError):
            self.close()
        except StatusError as error:
            no = error.code in (404, 409) or is_another(error)
            if not no and error.code not in (429, 500, 503, 504):
                raise
            return no, None
        return False, None

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
    """Admits pods that are bound (or refuses them, as :mod:`device_plugin_kubelet` does), ends gangs that have run for
    ``seconds``, and lets pods go that are being deleted."""

    def __init__(self, connection: Connection, log: PodLog, seconds: float = 2.0) -> None:
        super().__init__(name="kubelet", daemon=True)
        cards = {name: [f"GPU-{name}-{card}" for card in range(GPUS)] for name in log.books.nodes}
        self._plug = PlugKubelet(cards)
        self._statuses: dict[str, Json] = {}
        """Uid → what is said of a pod."""
        self._client = Patient(connection)
        self._log = log
        self._seconds = seconds
        self._stopped = threading.Event()
        self.error: BaseException | None = None

    @property
    def refused(self) -> list[str]:
        """Pods for which a node had not cards enough."""
        return self._plug.refused

    def run(self) -> None:
        try:
            while not self._stopped.wait(0.2):
                self._step()
        except BaseException as error:
            self.error = error
            raise
        finally:
            self._client.close()

    def _step(self) -> None:
        with self._log.lock:
            leaving, begun, ended = self._look(self._log.books, time.monotonic())
        for key, uid in leaving:
            namespace, name = key.split("/")
            self._client.once("delete", PODS, name, namespace, grace_seconds=0, uid=uid)
        for key, uid in begun:
            if uid in self._statuses:
                self._say(key, uid, self._statuses[uid])
        for key, uid in ended:
            self._say(key, uid, {"phase": "Succeeded"})

    def _say(self, key: str, uid: str, status: Json) -> None:
        namespace, name = key.split("/")
        patch = {"metadata": {"uid": uid}, "status": status}
        self._client.once("patch", PODS, name, patch, namespace, kind="strategic", subresource="status")

    def stop(self) -> None:
        self._stopped.set()
        self.join(30)

    def _look(self, books: Books, now: float) -> tuple[Pods, Pods, Pods]:
        """What is to go, what is to be told how it stands, and what is to end: whole gangs."""
        leaving, begun, since, running = [], [], {}, {}
        self._plug.forget([entry.pod for entry in books.pods.values()])
        for key, entry in books.pods.items():
            if entry.pod["metadata"].get("deletionTimestamp"):
                leaving.append((key, entry.uid))
            elif entry.node and entry.phase not in ("Succeeded", "Failed"):
                if entry.gang:
                    since[entry.gang] = max(since.get(entry.gang, 0.0), entry.at)
                    running.setdefault(entry.gang, []).append((key, entry.uid))
                if entry.phase == "Pending":
                    begun.append((key, entry.uid))
                    if (status := self._plug.judge(entry.pod)) is not None:
                        self._statuses[entry.uid] = status
        ended = []
        for gang, at in since.items():
            if gang in books.stays:
                continue
            if now - at > self._seconds and len(books.placed.get(gang, ())) >= books.minima.get(gang, 1):
                ended += running[gang]
        return leaving, begun, ended
