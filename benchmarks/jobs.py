"""Jobs from submission to completion, interruption and resizing, on one box with simulated nodes.

``python -m benchmarks.jobs`` prints all parts, ``--only throughput`` one of them.
``--quick`` plays a tenth of the pods.

- throughput: Volcano Jobs of one shape on 100 simulated nodes, from the first create
  until every job is Completed. Volcano's own guide has 40 to 55 pods/s for the first
  shape. CPU time is that of the box's processes in this time, for each pod.
- restart: a gang of 5,000 pods of which one fails, by recreation and in place.
- notice: time from the eviction of a pod to SIGTERM in its program, behind a shell.
- resize: time from the end of a job that holds GPUs to the announced new world size.

Figures are printed and never checked: they depend on the machine.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.end_to_end import in_parallel, usage
from benchmarks.gang_restart import IN_PLACE, RECREATE, restart
from benchmarks.report import add_output, percentile, show
from windlass.api.annotations import WORLD
from windlass.api.resources import PODS, PYTORCH_JOBS, VOLCANO_JOBS
from windlass.client.client import Client
from windlass.client.connection import Connection
from windlass.client.http import HttpTransport
from windlass.kits.clock import SystemClock
from windlass.kits.state import StateFolder

GOAL_PODS_PER_SECOND = 1000
RESTARTED_PODS = 5000
QUICK = 10
"""Divisor of all numbers with ``--quick``."""
PARTS = ("notice", "resize", "throughput", "restart")
SHAPES = ((10_000, 1), (500, 20), (20, 500), (1, 10_000))
"""Jobs and pods of each."""
NODES = 100
CREATORS = 16
PATIENCE_SECONDS = 900.0
POLL_SECONDS = 0.25
NOTICES = 40
RESIZES = 5
WINDLASS = str(Path(sys.executable).parent / "windlass")
TRAP = """
import pathlib, signal, sys, time
def stop(*_):
    pathlib.Path(sys.argv[1]).write_text(repr(time.time()))
    sys.exit(143)
signal.signal(signal.SIGTERM, stop)
pathlib.Path(sys.argv[1] + ".up").touch()
while True:
    time.sleep(1)
"""


@contextlib.contextmanager
def box(*options: str) -> Iterator[tuple[StateFolder, Path]]:
    """Run ``windlass up`` in a directory of its own until the block ends."""
    with tempfile.TemporaryDirectory(prefix="windlass-bench-") as folder:
        state = Path(folder) / "state"
        environment = {**os.environ, "WINDLASS_STATE": str(state)}
        run = [WINDLASS, "up", "--detach", *options]
        subprocess.run(run, env=environment, check=True, capture_output=True)
        try:
            yield StateFolder(state), Path(folder)
        finally:
            down = [WINDLASS, "down", "--purge", "--yes"]
            subprocess.run(down, env=environment, check=False, capture_output=True)


def client(state: StateFolder) -> Client:
    transport = HttpTransport(Connection(unix_socket=str(state.socket)))
    return Client(transport, user_agent="bench-jobs", clock=SystemClock(), rng=random.Random(1))


def volcano_job(name: str, pods: int) -> dict[str, Any]:
    requests = {"cpu": "100m", "memory": "64Mi"}
    container = {"name": "main", "image": "train:1", "command": ["true"], "resources": {"requests": requests}}
    template = {
        "metadata": {"annotations": {"windlass.dev/run-seconds": "1"}},
        "spec": {
            "restartPolicy": "Never",
            "containers": [container],
            "nodeSelector": {"windlass.dev/simulated": "true"},
        },
    }
    return {
        "apiVersion": VOLCANO_JOBS.api_version,
        "kind": "Job",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "minAvailable": pods,
            "schedulerName": "windlass",
            "tasks": [{"name": "w", "replicas": pods, "template": template}],
        },
    }


class _Meta(msgspec.Struct):
    name: str = ""


class _State(msgspec.Struct):
    phase: str = ""


class _Status(msgspec.Struct):
    state: _State | None = None


class _Job(msgspec.Struct):
    metadata: _Meta
    status: _Status | None = None


async def completed(api: Client, wanted: int, started: asyncio.Event) -> int:
    """Follow the jobs until ``wanted`` are Completed, or the patience is over. Return their number."""
    decode = msgspec.json.Decoder(_Job).decode
    done: set[str] = set()
    start = await api.list(VOLCANO_JOBS, limit=1)
    with contextlib.suppress(TimeoutError):
        async with (
            asyncio.timeout(PATIENCE_SECONDS),
            api.watch(VOLCANO_JOBS, resource_version=start.resource_version) as watch,
        ):
            started.set()
            async for batch in watch:
                for event in batch:
                    if event.type != "MODIFIED":
                        continue
                    job = decode(event.object)
                    state = job.status.state if job.status is not None else None
                    if state is not None and state.phase == "Completed":
                        done.add(job.metadata.name)
                if len(done) >= wanted:
                    break
    return len(done)


def cpu_seconds(state: StateFolder) -> dict[str, float]:
    """Return the CPU seconds so far of each process of the box, by its role."""
    found: dict[str, float] = {}
    supervisor = (state.read_supervisor() or {}).get("pid", 0)
    for directory in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            name = (directory / "comm").read_text().strip()
            parent = int((directory / "stat").read_text().rsplit(")", 1)[1].split()[1])
            if parent == supervisor and name.startswith("wl-"):
                found[name.removeprefix("wl-")] = usage(int(directory.name))["cpu_seconds"]
    return found


async def throughput(api: Client, state: StateFolder, jobs: int, pods: int) -> dict[str, Any]:
    """Submit the jobs and wait until all are Completed."""
    prefix = f"t{jobs}x{pods}"
    started = asyncio.Event()
    following = asyncio.create_task(completed(api, jobs, started))
    await started.wait()
    before = cpu_seconds(state)
    begun = time.monotonic()
    work = [lambda i=i: api.create(VOLCANO_JOBS, volcano_job(f"{prefix}-{i}", pods)) for i in range(jobs)]
    await in_parallel(work, CREATORS)
    submitted = time.monotonic() - begun
    done = await following
    seconds = time.monotonic() - begun
    used = {role: after - before.get(role, 0.0) for role, after in cpu_seconds(state).items()}
    await in_parallel(
        [lambda i=i: api.delete(VOLCANO_JOBS, f"{prefix}-{i}", "default") for i in range(jobs)], CREATORS
    )
    while (await api.list(PODS, "default", limit=1)).items:
        await asyncio.sleep(POLL_SECONDS)
    return {
        "jobs": jobs,
        "pods of each": pods,
        "submitted s": round(submitted, 2),
        "completed s": round(seconds, 2) if done >= jobs else f"only {done} jobs after {seconds:.0f}",
        "pods/s": round(done * pods / seconds),
        "goal pods/s": GOAL_PODS_PER_SECOND,
        "ratio": round(done * pods / seconds / GOAL_PODS_PER_SECOND, 2),
        **{f"{role} ms/pod": round(1000 * spent / jobs / pods, 2) for role, spent in used.items()},
        "load average": round(os.getloadavg()[0], 1),
    }


def process_pod(name: str, folder: Path) -> dict[str, Any]:
    command = ["sh", "-c", f"{sys.executable} {folder}/trap.py {folder}/{name}; exit $?"]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "restartPolicy": "Never",
            "containers": [{"name": "m", "image": "python", "command": command}],
        },
    }


async def until(condition: Any, seconds: float = 120.0) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        await asyncio.sleep(0.02)
    return False


async def notice(api: Client, folder: Path, pods: int) -> dict[str, Any]:
    """Evict running programs one by one, and time SIGTERM in the program."""
    (folder / "trap.py").write_text(TRAP)
    names = [f"notice-{i}" for i in range(pods)]
    waits: list[float] = []
    for name in names:
        await api.create(PODS, process_pod(name, folder))
    for name in names:
        if not await until((folder / f"{name}.up").exists):
            raise SystemExit(f"{name} did not start")
        begun = time.time()
        await api.delete(PODS, name, "default")
        if not await until(lambda name=name: (folder / name).exists() and (folder / name).read_text()):
            raise SystemExit(f"{name} got no SIGTERM")
        waits.append(float((folder / name).read_text()) - begun)
    return {
        "notices": len(waits),
        "to SIGTERM p50 ms": round(1000 * percentile(waits, 0.5)),
        "to SIGTERM p99 ms": round(1000 * percentile(waits, 0.99)),
        "goal p99 ms": 1000,
    }


def elastic_job() -> dict[str, Any]:
    container = {
        "name": "pytorch",
        "image": "python",
        "command": ["sleep", "3600"],
        "resources": {"limits": {"nvidia.com/gpu": 1}},
    }
    return {
        "apiVersion": PYTORCH_JOBS.api_version,
        "kind": PYTORCH_JOBS.kind,
        "metadata": {"name": "elastic", "namespace": "default"},
        "spec": {
            "elasticPolicy": {"minReplicas": 2, "maxReplicas": 4},
            "pytorchReplicaSpecs": {
                "Worker": {
                    "replicas": 4,
                    "template": {"spec": {"terminationGracePeriodSeconds": 1, "containers": [container]}},
                }
            },
        },
    }


async def world(api: Client) -> str:
    found = await api.find(PODS, "elastic-worker-0", "default")
    return ((found or {}).get("metadata", {}).get("annotations") or {}).get(WORLD, "")


async def resize(api: Client, rounds: int) -> dict[str, Any]:
    """Take two of four GPUs for another job and free them again. Time both new world sizes."""
    await api.create(PYTORCH_JOBS, elastic_job())
    smaller: list[float] = []
    larger: list[float] = []

    async def becomes(text: str) -> float:
        begun = time.monotonic()
        while await world(api) != text:
            if time.monotonic() - begun > PATIENCE_SECONDS:
                raise SystemExit(f"the world is {await world(api)!r}, not {text!r}")
            await asyncio.sleep(0.01)
        return time.monotonic() - begun

    await becomes("0-3")
    for number in range(rounds):
        name = f"holder-{number}"
        holder = volcano_job(name, 1)
        holder["spec"]["priorityClassName"] = "high-priority"
        template = holder["spec"]["tasks"][0]["template"]
        template["spec"].pop("nodeSelector")
        template["spec"]["terminationGracePeriodSeconds"] = 1
        template["spec"]["containers"][0].update(
            command=["sleep", "3600"], resources={"limits": {"nvidia.com/gpu": 2}}
        )
        await api.create(VOLCANO_JOBS, holder)
        smaller.append(await becomes("0-1"))
        while ((await api.find(PODS, f"{name}-w-0", "default")) or {}).get("status", {}).get(
            "phase"
        ) != "Running":
            await asyncio.sleep(0.02)
        await api.delete(VOLCANO_JOBS, name, "default")
        larger.append(await becomes("0-3"))
    return {
        "resizes": rounds,
        "wanted GPUs to smaller world ms": round(1000 * percentile(smaller, 0.5)),
        "freed GPUs to larger world ms": round(1000 * percentile(larger, 0.5)),
        "worst ms": round(1000 * max(smaller + larger)),
        "goal ms": 2000,
    }


async def measure_programs(parts: tuple[str, ...], shrink: int, output: str) -> None:
    """Measure what happens to running programs."""
    with box("--gpus", "simulated:4") as (state, folder):
        api = client(state)
        if "notice" in parts:
            show(await notice(api, folder, max(2, NOTICES // shrink)), output)
        if "resize" in parts:
            show(await resize(api, max(1, RESIZES // shrink)), output)
        await api.close()


async def measure_simulated(parts: tuple[str, ...], shrink: int, output: str) -> None:
    """Measure jobs on simulated nodes. Each shape gets a box of its own."""
    runs: list[Callable[[Client, StateFolder], Awaitable[dict[str, Any]]]] = []
    if "throughput" in parts:
        for jobs, pods in SHAPES:
            scaled = (jobs // shrink, pods) if jobs > shrink else (jobs, pods // shrink)
            runs.append(lambda api, state, scaled=scaled: throughput(api, state, *scaled))
    if "restart" in parts:
        for strategy in (RECREATE, IN_PLACE):
            pods = RESTARTED_PODS // shrink
            runs.append(lambda api, _, pods=pods, strategy=strategy: restart(api, pods, strategy))
    for run in runs:
        with box("--gpus", "none") as (state, _):
            environment = {**os.environ, "WINDLASS_STATE": str(state.path)}
            add = [WINDLASS, "node", "add-simulated", "--count", str(NODES)]
            subprocess.run(add, env=environment, check=True, capture_output=True)
            api = client(state)
            await throughput(api, state, 20, 1)  # the first jobs pay for imports
            show(await run(api, state), output)
            await api.close()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a tenth of the pods")
    parser.add_argument("--only", choices=PARTS, action="append", help="measure this part; repeatable")
    add_output(parser)
    given = parser.parse_args()
    parts, shrink = tuple(given.only or PARTS), QUICK if given.quick else 1
    if {"notice", "resize"} & set(parts):
        asyncio.run(measure_programs(parts, shrink, given.output))
    if {"throughput", "restart"} & set(parts):
        asyncio.run(measure_simulated(parts, shrink, given.output))


if __name__ == "__main__":
    main()
