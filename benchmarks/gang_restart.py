"""Restart of a gang on simulated nodes: its pods created again, or restarted in place.

A JobSet has one Job of workers and one of a single pod, which fails once. The time is
from that failure, as a watch shows it, until all pods run again.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from typing import Any

import msgspec

from windlass.api.resources import JOB_SETS, PODS
from windlass.client.client import Client

GOAL_SECONDS = 10.0
RECREATE, IN_PLACE = "Recreate", "InPlaceRestart"
NAME = "gang"
PATIENCE_SECONDS = 900.0
START_SECONDS, PODS_STARTED_PER_SECOND = 10.0, 50.0
"""The pod fails so late that all pods run by then, also on a busy machine."""
_FOREVER = 2**31 - 1


def job_set(pods: int, strategy: str) -> dict[str, Any]:
    """Return a JobSet of ``pods`` pods, one of which fails in its first run."""

    def job(name: str, count: int, annotations: dict[str, str]) -> dict[str, Any]:
        container = {
            "name": "main",
            "image": "train:1",
            "command": ["true"],
            "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}},
        }
        spec = {
            "restartPolicy": "Never",
            "containers": [container],
            "nodeSelector": {"windlass.dev/simulated": "true"},
        }
        in_place = {"backoffLimit": _FOREVER, "podReplacementPolicy": "Failed"}
        return {
            "name": name,
            "template": {
                "spec": {
                    "completionMode": "Indexed",
                    "parallelism": count,
                    "completions": count,
                    **(in_place if strategy == IN_PLACE else {"backoffLimit": 0}),
                    "template": {"metadata": {"annotations": annotations}, "spec": spec},
                }
            },
        }

    seconds = round(START_SECONDS + pods / PODS_STARTED_PER_SECOND)
    failing = {"windlass.dev/run-seconds": f"{seconds},36000", "windlass.dev/exit-code": "1,0"}
    return {
        "apiVersion": JOB_SETS.api_version,
        "kind": JOB_SETS.kind,
        "metadata": {"name": NAME, "namespace": "default"},
        "spec": {
            "failurePolicy": {"maxRestarts": 5, "restartStrategy": strategy},
            "replicatedJobs": [job("workers", pods - 1, {}), job("failing", 1, failing)],
        },
    }


class _Meta(msgspec.Struct):
    name: str = ""
    uid: str = ""


class _State(msgspec.Struct):
    running: dict[str, Any] | None = None


class _Container(msgspec.Struct, rename="camel"):
    restart_count: int = 0
    state: _State | None = None


class _Status(msgspec.Struct, rename="camel"):
    phase: str = ""
    container_statuses: list[_Container] | None = None


class _Pod(msgspec.Struct):
    metadata: _Meta
    status: _Status = msgspec.field(default_factory=_Status)


class Gang:
    """Pods of the JobSet, as a watch shows them."""

    def __init__(self) -> None:
        self.running: dict[str, int] = {}
        """uid → restarts of a pod that runs."""
        self.failed_at = 0.0
        self.first: frozenset[str] = frozenset()
        """Pods of the first attempt."""

    def see(self, kind: str, pod: _Pod, now: float) -> None:
        """Take in one event."""
        uid, container = pod.metadata.uid, (pod.status.container_statuses or [_Container()])[0]
        runs = pod.status.phase == "Running" and container.state is not None and container.state.running
        ended = pod.status.phase == "Failed" or (not runs and uid in self.running)
        if ended and kind == "MODIFIED" and not self.failed_at and "-failing-" in pod.metadata.name:
            self.failed_at = now
        if kind == "DELETED" or not runs:
            self.running.pop(uid, None)
        else:
            self.running[uid] = container.restart_count

    @property
    def restarted(self) -> int:
        """Number of pods that run again."""
        return sum(1 for uid, count in self.running.items() if count or uid not in self.first)


async def _follow(api: Client, gang: Gang, started: asyncio.Event) -> None:
    decode = msgspec.json.Decoder(_Pod).decode
    begin = await api.list(PODS, limit=1)
    async with api.watch(PODS, resource_version=begin.resource_version) as watch:
        started.set()
        async for batch in watch:
            now = time.monotonic()
            for event in batch:
                if event.type in ("ADDED", "MODIFIED", "DELETED"):
                    gang.see(event.type, decode(event.object), now)


async def _until(condition: Callable[[], bool], what: str) -> float:
    """Return the time at which the condition holds."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit(f"{what}: not within {PATIENCE_SECONDS:.0f} s")
        await asyncio.sleep(0.02)
    return time.monotonic()


async def restart(api: Client, pods: int, strategy: str) -> dict[str, Any]:
    """Start a gang, and time its restart after the failure of one pod."""
    gang, started = Gang(), asyncio.Event()
    following = asyncio.create_task(_follow(api, gang, started))
    await started.wait()
    begun = time.monotonic()
    await api.create(JOB_SETS, job_set(pods, strategy))
    running_at = await _until(lambda: len(gang.running) == pods or bool(gang.failed_at), "start of the gang")
    if gang.failed_at:
        raise SystemExit(f"only {len(gang.running)} of {pods} pods ran before one of them failed")
    gang.first = frozenset(gang.running)
    await _until(lambda: bool(gang.failed_at), "failure of one pod")
    again_at = await _until(lambda: gang.restarted == pods, "restart of the gang")
    await api.delete(JOB_SETS, NAME, "default", propagation="Background")
    await _until(lambda: not gang.running, "end of the gang")
    while (await api.list(PODS, "default", limit=1)).items:
        await asyncio.sleep(0.25)
    following.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await following
    seconds = again_at - gang.failed_at
    return {
        "restart": "in place" if strategy == IN_PLACE else "by recreation",
        "pods": pods,
        "started s": round(running_at - begun, 2),
        "restarted s": round(seconds, 2),
        "goal s": GOAL_SECONDS,
        "ratio": round(GOAL_SECONDS / seconds, 2),
    }
