"""Windlass and other gang schedulers, each its own program, on a real API server.

``python -m benchmarks.live_peers`` runs all of them in turns, each on a fresh server, and prints a table per scene.
``--schedulers`` chooses among windlass, together (Windlass in one process), volcano, kai, kueue, coscheduling, kube
(kube-scheduler, which knows no gangs) and none (create, then bind by 32 connections: what the server can do).
``--scenes`` chooses among:

``load``     ``--jobs`` gangs of ``--gang`` one-GPU pods on ``--nodes`` empty hollow nodes of 8 GPUs, room for all.
``crowded``  20 gangs of 20 one-GPU pods come at once, the first pod of each, then the second of each, and so on, and
             there is room for 10.4 of them.
``odd``      the same with gangs of 4 pods of 3 GPUs: by GPUs there is room for 17, by nodes, which hold 2 pods each,
             for 12.5.

Clients are without limits on requests unless ``--limited``: then each keeps to what its own installation says. Every
other setting is that of its installation (tests/support/peers: gang_schedulers.py and kube_scheduler_setups.py).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.extend(map(str, Path(__file__).resolve().parents[1].glob("tests/support/*/")))

from gang_schedulers import PEERS
from peer_scheduler import BUILD, GPU, Peer, lacking
from realkube import REQUIRED, RealKube, missing
from scheduler_processes import Part, usage

from benchmarks.live import alone
from benchmarks.live_gangs import by_gang, incomplete_seconds, most_incomplete
from benchmarks.live_load import Batch, Books
from benchmarks.live_server import GPUS, PATIENCE_SECONDS, server, server_cpu, since, spent
from benchmarks.report import percentile
from windlass.api.resources import Resource
from windlass.client.client import Client

APART_SECONDS = 1.0
"""Interval (seconds) between binds of a gang above which it counts as partly bound."""
QUIET_SECONDS = 12.0
"""Time (seconds) without a bind after which a crowded scene is over.

It is longer than the plugin coscheduling holds an incomplete gang.
"""
LONGEST_SECONDS = 90.0
CROWD = 20
NONE = "none"


@dataclass(frozen=True)
class Crowd:
    """More gangs than there is room for. ``gpus``: of each pod."""

    nodes: int
    pods: int
    gpus: int


CROWDS = {"crowded": Crowd(26, 20, 1), "odd": Crowd(26, 4, 3)}
SCENES = ("load", *CROWDS)


@dataclass
class Gangs(Batch):
    """Written as the users of a peer would."""

    peer: Peer = field(kw_only=True)
    gpus: int = 1

    def written(self, name: str) -> tuple[Resource, dict[str, Any]] | None:
        return self.peer.group(name, self.gang, self.gpus)

    def member(self, name: str, rank: int) -> dict[str, Any]:
        made = super().member(name, rank)
        for amounts in made["spec"]["containers"][0]["resources"].values():
            amounts[GPU] = str(self.gpus)
        self.peer.mark(made, name, self.gang)
        return made


@dataclass
class World:
    """A server with one peer at work, which has bound a pod already."""

    kube: RealKube
    api: Client
    books: Books
    peer: Peer
    parts: list[Part]

    def gangs(self, prefix: str, jobs: int, pods: int, gpus: int = 1) -> Gangs:
        return Gangs(prefix, jobs, pods, self.peer.scheduler_name, peer=self.peer, gpus=gpus)

    def pids(self) -> dict[str, int]:
        return {part.log.stem: part.pid for part in self.parts}


@asynccontextmanager
async def world(kind: type[Peer], nodes: int, *, limited: bool, gpus: int = 1) -> AsyncIterator[World]:
    """``gpus``: of each pod. Raises ``SystemExit`` with its log where a process of the peer ends or binds nothing."""
    async with server(nodes, crds=False, pods_per_node=GPUS // gpus) as (kube, api, books):
        peer = kind(kube, nodes * GPUS, limited=limited)
        await asyncio.to_thread(peer.install)
        parts = peer.start()
        made = World(kube, api, books, peer, parts)
        try:
            warm = made.gangs("warm", 1, 1, gpus)
            await warm.create(api)
            await books.until(warm, PATIENCE_SECONDS)
            yield made
        except BaseException:
            for part in parts:
                print(f"{part.log.name}: {part.text()[-2000:]}", file=sys.stderr)
            raise
        finally:
            for part in parts:
                part.stop()


async def load(kind: type[Peer], shape: argparse.Namespace) -> dict[str, Any]:
    """From the first create to all bound."""
    async with world(kind, shape.nodes, limited=shape.limited) as at:
        batch = at.gangs("gang", shape.jobs, shape.gang)
        before, server_before = spent(at.kube, **at.pids()), server_cpu(at.kube)
        begun = time.monotonic()
        created = await batch.create(at.api)
        await at.books.until(batch, PATIENCE_SECONDS)
        by_process = since(before, spent(at.kube, **at.pids()))
        binds = at.books.bound
        ended = max(binds[name] for name in batch.created)
        waits = [binds[name] - moment for name, moment in batch.created.items()]
        moments = by_gang(batch.created, binds)
        return {
            "seconds": round(ended - begun, 2),
            "pods_per_second": round(batch.pods / (ended - begun)),
            "created_in_seconds": round(created, 2),
            "create_to_bind_p50_seconds": round(percentile(waits, 0.5), 2),
            "create_to_bind_p99_seconds": round(percentile(waits, 0.99), 2),
            "cpu_seconds": round(sum(by_process[name] for name in at.pids()), 2),
            "server_cpu_seconds": round(server_cpu(at.kube) - server_before, 2),
            "cpu_seconds_by_process": by_process,
            "peak_mib": round(sum(usage(pid)[1] for pid in at.pids().values())),
            "gangs_apart": sum(max(one) - min(one) > APART_SECONDS for one in moments.values()),
            "most_pods_of_incomplete_gangs": most_incomplete(list(moments.values()), shape.gang),
        }


async def crowded(kind: type[Peer], crowd: Crowd, *, limited: bool) -> dict[str, Any]:
    """Return the binds once nothing changes any more."""
    async with world(kind, crowd.nodes, limited=limited, gpus=crowd.gpus) as at:
        batch = at.gangs("gang", CROWD, crowd.pods, crowd.gpus)
        begun = time.monotonic()
        await batch.create_interleaved(at.api)
        await settled(at.books, batch, begun)
        ended = time.monotonic()
        stay = {name: moment for name, moment in at.books.bound.items() if name not in at.books.ended}
        moments = by_gang(batch.created, stay)
        gangs = list(moments.values())
        whole = [one for one in gangs if len(one) == crowd.pods]
        kept = sum(map(len, gangs)) - len(whole) * crowd.pods
        held = incomplete_seconds(gangs, crowd.pods, ended)
        room = crowd.nodes * (GPUS // crowd.gpus) - 1
        return {
            "room_for_gangs": room // crowd.pods,
            "gangs": CROWD,
            "whole_gangs": len(whole),
            "whole_after_seconds": round(max((max(one) for one in whole), default=begun) - begun, 1),
            "gpus_of_incomplete_gangs": kept * crowd.gpus,
            "gpu_seconds_of_incomplete_gangs": round(held * crowd.gpus),
            "pods_ended": sum(name in at.books.ended for name in batch.created),
            "watched_seconds": round(ended - begun, 1),
        }


async def settled(books: Books, batch: Batch, begun: float) -> None:
    """Return when nothing of the batch was bound for ``QUIET_SECONDS``, or after ``LONGEST_SECONDS``."""
    while (now := time.monotonic()) < begun + LONGEST_SECONDS:
        latest = max((books.bound.get(name, 0.0) for name in batch.created), default=0.0)
        if now - max(latest, begun) > QUIET_SECONDS:
            return
        await asyncio.sleep(0.25)


async def measure(shape: argparse.Namespace) -> dict[str, Any]:
    found: dict[str, Any] = {name: getattr(shape, name) for name in ("nodes", "jobs", "gang", "limited")}
    found["load_before"] = round(os.getloadavg()[0], 2)
    for scene in shape.scenes.split(","):
        for name in shape.schedulers.split(","):
            print(f"{scene}: {name}", file=sys.stderr, flush=True)
            if name != NONE:
                told = found.setdefault(scene, {})
                try:
                    told[name] = await play(scene, PEERS[name], shape)
                except SystemExit as error:
                    told[name] = {"failed": str(error)[:500]}
            elif scene == "load":
                found.setdefault(scene, {})[NONE] = await alone(shape)
    return found


async def play(scene: str, kind: type[Peer], shape: argparse.Namespace) -> dict[str, Any]:
    if scene in CROWDS:
        return await crowded(kind, CROWDS[scene], limited=shape.limited)
    return await load(kind, shape)


LOAD_HEAD = (
    "| | pods/s | create to bind p50 / p99 s | scheduler CPU s | server CPU s | MiB | gangs bound in more than 1 s "
    "| most pods of incomplete gangs |",
    "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
)
CROWD_HEAD = (
    "| | whole gangs | the last whole after s | GPUs that incomplete gangs keep | GPU-seconds they held | watched s |",
    "| --- | ---: | ---: | ---: | ---: | ---: |",
)


def table(found: Mapping[str, Any]) -> list[str]:
    """Lines of Markdown."""
    lines = []
    for scene in SCENES:
        if scene in found:
            head, row = (CROWD_HEAD, crowd_row) if scene in CROWDS else (LOAD_HEAD, load_row)
            shown = [f"| {title(name)} | {row(one)} |" for name, one in found[scene].items()]
            lines += ["", scene, "", *head, *shown]
    played = {name for scene in SCENES for name in found.get(scene, ())}
    lines += [""] + [f"* {about(peer)}" for name, peer in PEERS.items() if name in played and peer.rates]
    return lines


def about(peer: type[Peer]) -> str:
    """Return a note on the interpretation of the results."""
    without = f"without {peer.left_out}; " if peer.left_out else ""
    return f"{peer.title}: {without}its client's rate by itself: {peer.rates}"


def title(name: str) -> str:
    return "the server alone" if name == NONE else PEERS[name].title


def load_row(one: Mapping[str, Any]) -> str:
    if "failed" in one:
        return " | ".join((f"failed: {one['failed'][:80]}", *[""] * 6))
    if "cpu_seconds" not in one:
        return f"{one['pods_per_second']} | | | {one['server_cpu_seconds']:.1f} | | | "
    waits = f"{one['create_to_bind_p50_seconds']:.1f} / {one['create_to_bind_p99_seconds']:.1f}"
    cpu = f"{one['cpu_seconds']:.1f} | {one['server_cpu_seconds']:.1f}"
    apart = f"{one['gangs_apart']} | {one['most_pods_of_incomplete_gangs']}"
    return f"{one['pods_per_second']} | {waits} | {cpu} | {one['peak_mib']} | {apart}"


def crowd_row(one: Mapping[str, Any]) -> str:
    if "failed" in one:
        return " | ".join((f"failed: {one['failed'][:80]}", *[""] * 4))
    whole = f"{one['whole_gangs']} of {one['room_for_gangs']} | {one['whole_after_seconds']}"
    held = f"{one['gpus_of_incomplete_gangs']} | {one['gpu_seconds_of_incomplete_gangs']}"
    return f"{whole} | {held} | {one['watched_seconds']}"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, default=1000, help="hollow nodes with 8 GPUs each, in `load`")
    parser.add_argument("--jobs", type=int, default=100)
    parser.add_argument("--gang", type=int, default=20)
    parser.add_argument("--concurrency", type=int, default=32, help="connections of `none`")
    parser.add_argument("--schedulers", default=",".join((*PEERS, NONE)))
    parser.add_argument("--scenes", default="load,crowded")
    parser.add_argument(
        "--limited", action="store_true", help="clients keep to the rates of their installation"
    )
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text")
    given = parser.parse_args()
    for what, known in (("schedulers", (*PEERS, NONE)), ("scenes", SCENES)):
        unknown = set(getattr(given, what).split(",")) - set(known)
        if unknown:
            parser.error(f"unknown {what}: {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    return given


def refuse_missing(schedulers: Sequence[str]) -> None:
    """Raises ``SystemExit`` with the command that builds what is not there."""
    if absent := missing(REQUIRED[:2]):
        raise SystemExit(f"no {', '.join(absent)}: build them with tools/kubernetes/build.sh")
    for name in schedulers:
        if name != NONE and (absent := lacking(PEERS[name])):
            raise SystemExit(f"{name}: no {', '.join(absent)}: build with {BUILD}, or leave it out")


def main() -> int:
    given = arguments()
    import uvloop

    refuse_missing(given.schedulers.split(","))
    found = uvloop.run(measure(given))
    print(json.dumps(found)) if given.output == "json" else print(*table(found), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
