"""A real etcd and kube-apiserver, hollow nodes, and gangs of one-GPU pods: three ways to bind them, side by side.

``python -m benchmarks.live --nodes 1000 --jobs 100 --gang 20 --schedulers windlass,kube,none -o json``

``none`` is the server alone (create, then bind by 32 connections), ``kube`` is kube-scheduler without gangs,
``windlass`` its scheduler and controllers as two processes, ``together`` the same as one. Each gets a fresh server.
A pod is bound when a watch shows it; Scheduled events, PodScheduled conditions and PodGroup statuses are waited for
and counted, and it is told when the last of them was there: a scheduler that binds first and tells afterwards cannot
hide what that takes.
For Windlass the rate of its binds once pods exist is compared with the same client binding blindly, with a pod watch
open, in turns on the same server, 32 at a time both. ``--restart N`` times a start with N bound pods.

``python -m benchmarks.live --table`` runs the shapes of ``make bench-live`` and prints one table.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

sys.path.extend(map(str, Path(__file__).resolve().parents[1].glob("tests/support/*/")))

from realkube import REQUIRED, RealKube, missing
from scheduler_processes import KubeScheduler, Part, WindlassPart, usage

from benchmarks.end_to_end import in_parallel, until_ready
from benchmarks.live_load import (
    Batch,
    Books,
    each,
    fill,
    requests,
    settled_events,
    settled_groups,
)
from benchmarks.live_server import (
    GPUS,
    PATIENCE_SECONDS,
    client,
    server,
    server_cpu,
    since,
    spent,
    warmed,
)
from benchmarks.live_table import PLAN, table
from benchmarks.report import percentile
from windlass.api.resources import PODS, QUEUES
from windlass.client.client import Client

ROOT = Path(__file__).resolve().parents[1]
ROUNDS = 6
"""An even number: each comes first equally often."""
EQUALLY_MANY = "scheduler: {{bindConcurrency: {0}, bindConcurrencyMax: {0}}}\n"
"""Settings of a scheduler with as many concurrent bindings as the blind binder."""
LINGER_SECONDS = 2.0
"""Time (seconds) for which the blind binder stays, so that its CPU time can be read."""
TELLING_SECONDS = 60.0
"""Timeout (seconds) for events and statuses after all pods are bound; missing ones are
reported."""


async def load(
    kube: RealKube, api: Client, books: Books, batch: Batch, part: Part, **others: int
) -> dict[str, Any]:
    """From the first create to all bound, and until the last event and the last status is written. ``others``:
    processes that are at work, too."""
    cpu, _ = usage(part.pid)
    all_before = spent(kube, scheduler=part.pid, **others)
    asked = await requests(api)
    server_before = server_cpu(kube)
    begun = time.monotonic()
    created = await batch.create(api)
    await books.until(batch, PATIENCE_SECONDS)
    bound_cpu = usage(part.pid)[0] - cpu
    by_process = since(all_before, spent(kube, scheduler=part.pid, **others))
    until_bound = each(asked, await requests(api), batch.pods)
    server_bound = server_cpu(kube) - server_before
    ended = max(books.bound[name] for name in batch.created)
    waits = [books.bound[name] - at for name, at in batch.created.items()]
    events = await settled_events(api, batch.pods + 1, TELLING_SECONDS)
    phases = await settled_groups(api, batch, TELLING_SECONDS)
    told = time.monotonic() - begun
    all_cpu, peak = usage(part.pid)
    server_after = server_cpu(kube)
    return {
        "seconds": round(ended - begun, 3),
        "pods_per_second": round(batch.pods / (ended - begun)),
        "created_in_seconds": round(created, 3),
        "create_to_bind_p50_seconds": round(percentile(waits, 0.5), 3),
        "create_to_bind_p99_seconds": round(percentile(waits, 0.99), 3),
        "cpu_seconds_until_bound": round(bound_cpu, 2),
        "cpu_seconds": round(all_cpu - cpu, 2),
        "peak_mib": peak,
        "server_cpu_seconds_until_bound": round(server_bound, 2),
        "server_cpu_seconds": round(server_after - server_before, 2),
        "cpu_seconds_until_bound_by_process": by_process,
        "requests_per_pod_until_bound": until_bound,
        "requests_per_pod": each(asked, await requests(api), batch.pods),
        "all_told_seconds": round(told, 2),
        "scheduled_events": events - 1,
        "podgroup_phases": phases,
        "pod_scheduled_conditions": books.conditions(batch),
    }


async def alone(shape: argparse.Namespace) -> dict[str, Any]:
    """Create, then bind with 32 connections, without any scheduler; only the counting
    watch runs."""
    async with server(shape.nodes, crds=False) as (kube, api, books):
        batch = Batch("gang", shape.jobs, shape.gang, "nobody")
        cpu, before = server_cpu(kube), spent(kube)
        created = await batch.create(api)
        begun = time.monotonic()
        places = list(zip(batch.created, books.free(shape.nodes), strict=False))
        await in_parallel([lambda p=p: bind(api, *p) for p in places], shape.concurrency)
        seconds = time.monotonic() - begun
        await books.until(batch, PATIENCE_SECONDS)
        return {
            "seconds": round(created + seconds, 3),
            "pods_per_second": round(batch.pods / (created + seconds)),
            "creates_per_second": round(batch.pods / created),
            "binds_per_second": round(batch.pods / seconds),
            "server_cpu_seconds": round(server_cpu(kube) - cpu, 2),
            "cpu_seconds_until_bound_by_process": since(before, spent(kube)),
            "server_peak_mib": usage(kube.pid("kube-apiserver"))[1],
        }


async def bind(api: Client, name: str, where: str) -> None:
    await api.bind("default", name, where, uid="")


async def peer(shape: argparse.Namespace) -> dict[str, Any]:
    """kube-scheduler."""
    if missing((KubeScheduler.BINARY,)):
        raise SystemExit("no kube-scheduler: build it with tools/kubernetes/build.sh kube-scheduler")
    async with server(shape.nodes, crds=False) as (kube, api, books):
        part = KubeScheduler(kube)
        try:
            await warmed(api, part, "default-scheduler", books)
            return await load(
                kube, api, books, Batch("gang", shape.jobs, shape.gang, "default-scheduler"), part
            )
        finally:
            part.stop()


async def together(shape: argparse.Namespace) -> dict[str, Any]:
    """Windlass in one process, as the chart's ``oneProcess`` has it: the controllers see the pods that the scheduler
    reads, by one watch."""
    async with server(shape.nodes, crds=True) as (kube, api, books):
        part = WindlassPart(kube, "scheduler", "--with-controllers=true")
        try:
            await until_ready(api, lambda: api.find(QUEUES, "default"), "the controllers")
            await warmed(api, part, "windlass", books)
            return await load(kube, api, books, Batch("gang", shape.jobs, shape.gang, "windlass"), part)
        finally:
            part.stop()


async def own(shape: argparse.Namespace) -> dict[str, Any]:
    """Windlass: end to end, then its binds against blind ones, then a restart."""
    async with server(shape.nodes, crds=True) as (kube, api, books):
        parts = [WindlassPart(kube, "controller"), WindlassPart(kube, "scheduler")]
        controller, scheduler = parts
        try:
            await until_ready(api, lambda: api.find(QUEUES, "default"), "the controllers")
            await warmed(api, scheduler, "windlass", books)
            batch = Batch("gang", shape.jobs, shape.gang, "windlass")
            result = await load(kube, api, books, batch, scheduler, controllers=controller.pid)
            result["status_writes"] = {
                what: scheduler.value(f'windlass_scheduler_status_writes_total{{what="{what}"}}')
                for what in ("podgroup", "pod", "explanation", "queue", "queue-share")
            }
            result["controllers_cpu_seconds"], result["controllers_peak_mib"] = usage(controller.pid)
            result["server_peak_mib"] = usage(kube.pid("kube-apiserver"))[1]
            scheduler.stop()
            if shape.rounds:
                result["once_pods_exist"] = await once_pods_exist(shape, kube, api, books, controller)
            if shape.restart:
                result["restart"] = await restart(shape, kube, api, books)
            return result
        except BaseException:
            print(scheduler.text()[-3000:], file=sys.stderr)
            raise
        finally:
            for part in parts:
                part.stop()


async def once_pods_exist(
    shape: argparse.Namespace, kube: RealKube, api: Client, books: Books, controller: Part
) -> dict[str, Any]:
    """Bind existing batches alternately: by a scheduler that starts then, and blindly.

    The order changes from round to round, as the server has more objects each time.
    Both rates run from the first bind to the last, by the same watch.
    ``ratio_over_all`` covers all rounds together, since the server's garbage collector,
    the cause of half the spread, hits either side by chance. Batches are smaller if the
    nodes could not hold them all. The result includes the CPU time that all processes
    together spent on a bind: on a shared machine the rate would follow it.
    """
    rounds: list[dict[str, Any]] = []
    room = shape.nodes * GPUS - len(books.bound) - shape.gang
    jobs = min(shape.jobs, room // (2 * shape.rounds * shape.gang))
    for number in range(shape.rounds):
        blind = Batch(f"blind-{number}", jobs, shape.gang, "nobody")
        batch = Batch(f"round-{number}", jobs, shape.gang, "windlass")
        blind_cpu: dict[str, int] = {}
        own: dict[str, Any] = {}
        for turn in ("blind", "own") if number % 2 == 0 else ("own", "blind"):
            if turn == "blind":
                await blind.create(api)
                blind_cpu = await bind_blindly(kube, blind, books, shape, controller)
            else:
                own = await bind_by_scheduler(kube, batch, books, shape, api, controller)
        rates = (books.rate(batch), books.rate(blind))
        cpu = own["cpu_us_per_bind"]
        rounds.append(
            {
                "binds_per_second": round(rates[0]),
                "blind_binds_per_second": round(rates[1]),
                "ratio": round(rates[0] / rates[1], 3),
                "blind_cpu_us_per_bind": blind_cpu,
                "cpu_ratio": round(sum(blind_cpu.values()) / sum(cpu.values()), 3),
                **own,
            }
        )
    middle = {
        what: round(statistics.median(one[what] for one in rounds), 3) for what in ("ratio", "cpu_ratio")
    }
    times = [sum(1 / one[rate] for one in rounds) for rate in ("binds_per_second", "blind_binds_per_second")]
    over_all = round(times[1] / times[0], 3)
    return {"rounds": rounds, **middle, "ratio_over_all": over_all, "concurrency": shape.concurrency}


async def bind_by_scheduler(
    kube: RealKube, batch: Batch, books: Books, shape: argparse.Namespace, api: Client, controller: Part
) -> dict[str, Any]:
    """Create the batch, start a scheduler, and return what is told of it once all is bound."""
    await batch.create(api)
    settings = kube.folder / "equally-many.yaml"
    settings.write_text(EQUALLY_MANY.format(shape.concurrency))
    begun, asked = time.monotonic(), await requests(api)
    part = WindlassPart(kube, "scheduler", "--settings", str(settings), name=f"scheduler-{batch.prefix}")
    try:
        cpu = await cpu_of_binds(kube, batch, books, part.pid, controller)
        told = each(asked, await requests(api), batch.pods)
    finally:
        part.stop()
    return {
        "cpu_us_per_bind": cpu,
        "requests_per_bind": told,
        "start_to_first_bind_seconds": round(min(books.bound[name] for name in batch.created) - begun, 2),
    }


async def cpu_of_binds(
    kube: RealKube, batch: Batch, books: Books, binder: int, controller: Part
) -> dict[str, int]:
    """Microseconds of CPU per bind, by process, from the first bind of the batch to its last."""

    def spent() -> dict[str, float]:
        pids = {"binder": binder, "controllers": controller.pid, "counting": os.getpid()}
        pids.update((name, kube.pid(name)) for name in REQUIRED[:2])
        return {name: usage(pid)[0] for name, pid in pids.items()}

    await books.until(batch, PATIENCE_SECONDS, first=True)
    there, before = books.there(batch), spent()
    await books.until(batch, PATIENCE_SECONDS)
    binds = max(1, batch.pods - there)
    return {name: round((now - before[name]) * 1e6 / binds) for name, now in spent().items()}


async def bind_blindly(
    kube: RealKube, batch: Batch, books: Books, shape: argparse.Namespace, controller: Part
) -> dict[str, int]:
    """In a process of its own, as the scheduler has one. Returns what :func:`cpu_of_binds` does."""
    places = dict(zip(batch.created, books.free(shape.nodes), strict=False))
    command = [sys.executable, "-m", "benchmarks.live", "--blind", str(kube.kubeconfig)]
    command += ["--concurrency", str(shape.concurrency)]
    process = await asyncio.create_subprocess_exec(*command, stdin=asyncio.subprocess.PIPE, cwd=ROOT)
    measured = asyncio.create_task(cpu_of_binds(kube, batch, books, process.pid, controller))
    assert process.stdin is not None
    process.stdin.write(json.dumps(places).encode())
    process.stdin.write_eof()
    try:
        await asyncio.wait(
            {measured, asyncio.create_task(process.wait())}, return_when=asyncio.FIRST_COMPLETED
        )
        if not measured.done() and process.returncode != 0:
            raise SystemExit(f"binding blindly ended with {process.returncode}")
        return await measured
    finally:
        measured.cancel()
        await process.wait()


async def blind(path: Path, concurrency: int) -> None:
    """Bind the pods of standard input (name → node) with one pod watch open."""
    places: dict[str, str] = json.load(sys.stdin)
    api = client(path, "bench-blind")
    opened = asyncio.Event()

    async def watch() -> None:
        async with api.watch(PODS, resource_version=start.resource_version) as events:
            opened.set()
            async for _ in events:
                pass

    start = await api.list(PODS, limit=1)
    watching = asyncio.create_task(watch())
    await opened.wait()
    await in_parallel([lambda p=p: bind(api, *p) for p in places.items()], concurrency)
    await asyncio.sleep(LINGER_SECONDS)
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)
    await api.close()


async def restart(shape: argparse.Namespace, kube: RealKube, api: Client, books: Books) -> dict[str, Any]:
    """A scheduler that starts in a full cluster: seconds until it binds a gang that waits."""
    filling = time.monotonic()
    await fill(api, kube.etcd_url, shape.restart, shape.nodes)
    filled = time.monotonic() - filling
    batch = Batch("late", 1, 20, "windlass")
    await batch.create(api)
    begun, server_before = time.monotonic(), server_cpu(kube)
    part = WindlassPart(kube, "scheduler", name="scheduler-restart")
    try:
        await books.until(batch, 2 * PATIENCE_SECONDS, first=True)
        server = server_cpu(kube) - server_before
        await books.until(batch, 2 * PATIENCE_SECONDS)
        cpu, peak = usage(part.pid)
    except SystemExit:
        print(f"after {usage(part.pid)} (CPU s, MiB): {part.text()[-2000:]}", file=sys.stderr)
        raise
    finally:
        part.stop()
    first = min(books.bound[name] for name in batch.created)
    return {
        "pods": shape.restart,
        "seconds_to_first_bind": round(first - begun, 2),
        "cpu_seconds": round(cpu, 2),
        "server_cpu_seconds": round(server, 2),
        "peak_mib": peak,
        "filled_in_seconds": round(filled, 1),
        "server_peak_mib": {name: usage(kube.pid(name))[1] for name in REQUIRED[:2]},
    }


RUNS = {"none": alone, "kube": peer, "windlass": own, "together": together}


async def measure(shape: argparse.Namespace) -> dict[str, Any]:
    found: dict[str, Any] = {"nodes": shape.nodes, "jobs": shape.jobs, "gang": shape.gang}
    found["load_before"] = round(os.getloadavg()[0], 2)
    for name in shape.schedulers.split(","):
        print(f"{name}: {shape.nodes} nodes, {shape.jobs} x {shape.gang}", file=sys.stderr, flush=True)
        found[name] = await RUNS[name](shape)
    return found


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, default=1000, help="hollow nodes with 8 GPUs each")
    parser.add_argument("--jobs", type=int, default=100)
    parser.add_argument("--gang", type=int, default=20)
    parser.add_argument("--schedulers", default="windlass,together,kube,none")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="comparisons with blind binding")
    parser.add_argument(
        "--concurrency",
        type=int,
        default=32,
        help="binds under way at once in these comparisons, on either side",
    )
    parser.add_argument("--restart", type=int, default=0, metavar="PODS", help="time a start with so many")
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text")
    parser.add_argument("--table", action="store_true", help="all shapes, one table")
    parser.add_argument("--blind", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    unknown = set(given.schedulers.split(",")) - set(RUNS)
    if unknown:
        parser.error(f"unknown schedulers: {', '.join(sorted(unknown))}")
    return given


def main() -> int:
    given = arguments()
    import uvloop

    if given.blind:
        uvloop.run(blind(given.blind, given.concurrency))
        return 0
    absent = missing(REQUIRED[:2])
    if absent:
        raise SystemExit(f"no {', '.join(absent)}: build them with tools/kubernetes/build.sh")
    shapes = [argparse.Namespace(**{**vars(given), **one}) for one in PLAN] if given.table else [given]
    found = []
    for shape in shapes:
        found.append(uvloop.run(measure(shape)))
        if given.table:
            print(json.dumps(found[-1]), flush=True)
    if given.output == "json" and not given.table:
        print(json.dumps(found[0]))
    else:
        print("", *table(found), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
