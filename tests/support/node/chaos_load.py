"""Load while faults happen: a writer that remembers what was acknowledged, and gangs that come and go."""

from __future__ import annotations

import contextlib
import random
import sys
import threading
from pathlib import Path
from typing import Any

from single_node import Box

from windlass.api.errors import StatusError, WindlassError
from windlass.api.resources import CONFIG_MAPS, VOLCANO_JOBS
from windlass.client.blocking import BlockingClient
from windlass.client.errors import Unreachable
from windlass.client.kubeconfig import load

PAYLOAD = Path(__file__).parent / "chaos_payload.py"


def connect(box: Box) -> BlockingClient:
    return BlockingClient(load(str(box.state.kubeconfig)))


class Writer(threading.Thread):
    """Creates ConfigMaps as fast as it is answered, and keeps the name and version of each acknowledged one."""

    def __init__(self, box: Box) -> None:
        super().__init__(daemon=True)
        self._box = box
        self._stopped = threading.Event()
        self.acknowledged: dict[str, int] = {}
        self.refused = 0

    def run(self) -> None:
        number = 0
        client: BlockingClient | None = None
        while not self._stopped.wait(0.01):
            name = f"chaos-{number}"
            try:
                client = client or connect(self._box)
                made = client.create(
                    CONFIG_MAPS, {"metadata": {"name": name}, "data": {"n": str(number)}}, "default"
                )
                self.acknowledged[name] = int(made["metadata"]["resourceVersion"])
            except (StatusError, WindlassError, OSError):
                self.refused += 1
                if client is not None:
                    client.close()
                client = None
                self._stopped.wait(0.1)
            number += 1
        if client is not None:
            client.close()

    def stop(self) -> None:
        self._stopped.set()
        self.join(timeout=30)


def gang(name: str, size: int, seconds: float, evidence: Path) -> dict[str, Any]:
    """A Volcano Job of ``size`` one-GPU ranks that run the payload; a lost rank restarts the gang."""
    container = {
        "name": "rank",
        "image": "python",
        "command": [sys.executable, str(PAYLOAD), str(evidence), str(seconds)],
        "env": [
            {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "POD_UID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}},
        ],
        "resources": {"limits": {"nvidia.com/gpu": 1}},
    }
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {
            "minAvailable": size,
            "schedulerName": "windlass",
            "maxRetry": 20,
            "policies": [{"events": ["PodFailed", "PodEvicted"], "action": "RestartJob"}],
            "tasks": [
                {
                    "name": "rank",
                    "replicas": size,
                    "template": {"spec": {"restartPolicy": "Never", "containers": [container]}},
                }
            ],
        },
    }  # fmt: skip


def submit(box: Box, rng: random.Random, count: int, evidence: Path, prefix: str) -> list[str]:
    """Submit ``count`` gangs of 1 to 4 ranks; their names."""
    names = []
    with contextlib.closing(connect(box)) as client:
        for index in range(count):
            job = gang(f"{prefix}-{index}", rng.randint(1, 4), round(rng.uniform(0.5, 2.0), 2), evidence)
            client.create(VOLCANO_JOBS, job, "default")
            names.append(job["metadata"]["name"])
    return names


def phases(box: Box) -> dict[str, str]:
    """Job → phase; nothing while nobody answers."""
    try:
        with box.client() as client:
            jobs = client.list(VOLCANO_JOBS, "default").items
    except (StatusError, Unreachable):
        return {}
    return {job["metadata"]["name"]: job.get("status", {}).get("state", {}).get("phase", "") for job in jobs}
