"""Windlass and kube-scheduler in one cluster, on the same nodes: random pods, half by each, on nodes that are
full most of the time. The log of all versions of all pods tells whether a node ever held more than it has.
"""

from __future__ import annotations

import random
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from base_load import Patient
from bind_guard_process import GuardedScheduler
from fault_rounds import wait_for
from overcommitment import Excess, FullBooks
from pod_log import GPU, Entry, PodLog, amounts
from realkube import RealKube
from scheduler_processes import KubeScheduler, Part, WindlassPart

from windlass.api.resources import NODES, PODS, QUEUES
from windlass.client.blocking import BlockingClient

SCHEDULERS = ("default-scheduler", "windlass")
HAS = {"cpu": "32", "memory": "128Gi", "pods": "24", GPU: "8"}
NAMESPACE = "default"
HANDS = 4
"""Threads that create, and threads that end."""


@dataclass
class Result:
    """Times in seconds."""

    pods: int
    seconds: float = 0.0
    bound_by: dict[str, int] = field(default_factory=dict)
    excesses: list[Excess] = field(default_factory=list)
    evicted: int = 0
    refused: int = 0
    """Bindings that the guard refused."""
    problems: list[str] = field(default_factory=list)

    @property
    def lasting(self) -> list[Excess]:
        """Those that nobody ended."""
        return [one for one in self.excesses if not one.end]


def random_pod(rng: random.Random, number: int) -> dict[str, Any]:
    asked = {
        "cpu": f"{rng.choice((250, 500, 1000, 2000, 4000, 8000))}m",
        "memory": f"{rng.choice((256, 1024, 4096, 16384))}Mi",
    }
    gpus = rng.choice((0, 0, 0, 1, 1, 2, 4, 8))
    if gpus:
        asked[GPU] = str(gpus)
    container = {"name": "main", "image": "any", "resources": {"requests": asked, "limits": asked}}
    name = SCHEDULERS[number % 2]
    return {
        "metadata": {"name": f"side-{number}", "labels": {"scheduler": name}},
        "spec": {"schedulerName": name, "restartPolicy": "Never", "containers": [container]},
    }


class SideBySide:
    """``run()`` plays it all. ``life_seconds``: the mean for which a pod holds its room."""

    def __init__(
        self,
        folder: Path,
        *,
        pods: int,
        nodes: int,
        seed: int,
        life_seconds: float = 2.0,
        backlog: int = 200,
        guard: bool = False,
    ) -> None:
        self._guard = guard
        self.kube = RealKube(folder, controllers=False, audit=False, readable=True)
        self.result = Result(pods)
        self.books = FullBooks({f"side-{i}": amounts(HAS) for i in range(nodes)})
        self._log = PodLog(self.kube.etcd_url, self.books)
        self._seed = seed
        self._life_seconds = life_seconds
        self._backlog = backlog
        self._made = 0
        self._next = 0
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._errors: list[BaseException] = []

    def run(self, seconds: float) -> Result:
        """Raises ``RuntimeError`` when not all pods were bound within ``seconds``."""
        self.kube.start()
        parts: list[Part] = []
        try:
            self._prepare()
            parts = [
                WindlassPart(self.kube, "controller"),
                GuardedScheduler(self.kube) if self._guard else WindlassPart(self.kube, "scheduler"),
                KubeScheduler(self.kube),
            ]
            wait_for(lambda: all(part.ready for part in parts) and self._queue(), "not all are ready")
            if isinstance(parts[1], GuardedScheduler):
                parts[1].put_in_force(self.kube)
            self._play(parts, seconds)
            if isinstance(parts[1], GuardedScheduler):
                self.result.refused = int(parts[1].answers("refused"))
        finally:
            for part in parts:
                part.stop()
            self.kube.stop()
        return self.result

    def _prepare(self) -> None:
        self.kube.install_crds()
        with BlockingClient(self.kube.connection) as client:
            for name in self.books.nodes:
                conditions = [{"type": "Ready", "status": "True"}]
                status = {"capacity": HAS, "allocatable": HAS, "conditions": conditions}
                labels = {"kubernetes.io/hostname": name}
                client.create(NODES, {"metadata": {"name": name, "labels": labels}, "status": status})

    def _queue(self) -> bool:
        with BlockingClient(self.kube.connection) as client:
            return client.find(QUEUES, "default") is not None

    def _play(self, parts: list[Part], seconds: float) -> None:
        self._log.start()
        begun = time.monotonic()
        hands = [threading.Thread(target=self._guarded, args=(work,), daemon=True) for work in self._works()]
        for hand in hands:
            hand.start()
        while len(self.books.binds) < self.result.pods:
            if time.monotonic() > begun + seconds or self._errors or not all(part.alive for part in parts):
                dead = [part.text()[-2000:] for part in parts if not part.alive]
                raise RuntimeError(
                    f"{len(self.books.binds)} of {self.result.pods} bound; {self._errors} {dead}\n"
                    + parts[1].text()[-2000:]
                )
            time.sleep(0.1)
        deadline = time.monotonic() + 120.0
        while not self._settled() and time.monotonic() < deadline:
            time.sleep(0.1)
        self._stopped.set()
        for hand in hands:
            hand.join(60)
        self._log.stop()
        result, books = self.result, self.books
        result.seconds = round(time.monotonic() - begun, 1)
        result.bound_by = books.bound_by
        result.excesses = [*books.excesses, *books.now_over.values()]
        result.evicted = len(books.evicted)
        result.problems = books.problems

    def _settled(self) -> bool:
        with self._log.lock:
            return not self.books.now_over

    def _works(self) -> list[Any]:
        return [self._create] * HANDS + [lambda share=share: self._end(share) for share in range(HANDS)]

    def _guarded(self, work: Any) -> None:
        try:
            work()
        except BaseException as error:
            self._errors.append(error)
            raise

    def _create(self) -> None:
        """Pods one after the other, while not too many wait."""
        client = Patient(self.kube.connection)
        while not self._stopped.is_set():
            with self._lock:
                number, self._next = self._next, self._next + 1
            if number >= self.result.pods:
                break
            while number - len(self.books.binds) > self._backlog and not self._stopped.is_set():
                time.sleep(0.02)
            made = random_pod(random.Random(f"{self._seed} {number}"), number)
            client.make(PODS, made, NAMESPACE)
        client.close()

    def _end(self, share: int) -> None:
        """Delete what has had its time, and what was told to go."""
        client = Patient(self.kube.connection)
        done: set[str] = set()
        while not self._stopped.wait(0.05):
            now = time.monotonic()
            with self._log.lock:
                due = [
                    (key, entry.uid)
                    for key, entry in self.books.pods.items()
                    if hash(entry.uid) % HANDS == share and entry.uid not in done and self._due(entry, now)
                ]
            for key, uid in due:
                done.add(uid)
                client.once("delete", PODS, key.split("/")[1], NAMESPACE, grace_seconds=0, uid=uid)
        client.close()

    def _due(self, entry: Entry, now: float) -> bool:
        if entry.pod["metadata"].get("deletionTimestamp"):
            return True
        life = 2 * self._life_seconds * random.Random(entry.uid).random()
        return bool(entry.node) and now - entry.at > life
