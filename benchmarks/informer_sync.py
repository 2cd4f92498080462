"""Listing and informer sync of many pods from the embedded server over its Unix socket, with memory.

``python -m benchmarks.informer_sync [--pods 100000] [-o json]``

The server runs as its own process on a state folder filled beforehand; each measurement is a fresh process,
so that its memory is its own. ``sync`` is what the scheduler does at its start: every pod decoded into the
record it keeps (``api.views.Pod``), over the Unix socket and over TLS.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import msgspec
import uvloop

from benchmarks.store_wire import fill, start_server
from windlass.api.resources import PODS
from windlass.api.views import decode_pod
from windlass.client.client import Client
from windlass.client.connection import Connection
from windlass.client.http import HttpTransport
from windlass.client.informers import SharedInformers
from windlass.client.kubeconfig import load, over_socket
from windlass.client.transport import Request
from windlass.kits import rng
from windlass.kits.clock import SystemClock
from windlass.kits.state import StateFolder

GOALS = {"list_s": 10.0, "sync_s": 10.0, "sync_kib_per_pod": 2.0}
MODES = ("list", "sync", "sync_tls")


def memory_kib(field: str = "VmRSS") -> int:
    """Resident memory of this process: now (``VmRSS``) or at its highest (``VmHWM``)."""
    status = Path("/proc/self/status").read_text()
    return int(status.split(f"{field}:")[1].split()[0])


async def list_all(client: Client) -> int:
    return len((await client.list(PODS, type=msgspec.Raw)).items)


async def sync(client: Client) -> tuple[int, SharedInformers]:
    informers = SharedInformers(client, SystemClock(), rng.system())
    pods = informers.informer(PODS, decode=decode_pod)
    running = asyncio.create_task(informers.run())
    await pods.wait_synced()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    return len(pods.items), informers


async def measured(connection: Connection, mode: str) -> dict[str, Any]:
    """One measurement in this process."""
    client = Client(HttpTransport(connection), clock=SystemClock(), rng=rng.system())
    await client.call(Request("GET", "/version"))  # connected, everything imported
    gc.collect()
    before, cpu, begin = memory_kib(), time.process_time(), time.perf_counter()
    kept: object = None
    if mode == "list":
        count = await list_all(client)
    else:
        count, kept = await sync(client)
    seconds, cpu = time.perf_counter() - begin, time.process_time() - cpu
    peak = memory_kib("VmHWM")
    gc.collect()
    after = memory_kib()
    del kept
    await client.close()
    return {
        "pods": count,
        "s": round(seconds, 2),
        "cpu_s": round(cpu, 2),
        "pods_per_s": round(count / seconds),
        "kib_per_pod": round((after - before) / max(count, 1), 2),
        "rss_mib": after // 1024,
        "peak_rss_mib": peak // 1024,
    }


def in_child(state: StateFolder, mode: str) -> dict[str, Any]:
    command = [
        sys.executable,
        "-m",
        "benchmarks.informer_sync",
        "--measure",
        mode,
        "--state",
        str(state.path),
    ]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=Path(__file__).resolve().parent.parent
    )
    if done.returncode != 0:
        raise RuntimeError(done.stderr)
    return json.loads(done.stdout)


def run(pods: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="windlass-bench-") as folder:
        state = StateFolder(folder)
        state.prepare()
        uvloop.run(fill(state, pods))
        process, _, _ = start_server(state)
        try:
            result = {mode: in_child(state, mode) for mode in MODES}
        finally:
            process.terminate()
            process.wait(30)
    for mode, figures in result.items():
        if figures["pods"] != pods:
            raise RuntimeError(f"{mode}: {figures['pods']} pods came, {pods} are there")
    return result


def judged(result: dict[str, Any], pods: int) -> dict[str, Any]:
    found = {
        "list_s": result["list"]["s"],
        "sync_s": result["sync"]["s"],
        "sync_kib_per_pod": result["sync"]["kib_per_pod"],
    }
    goals = {
        name: {"goal": GOALS[name], "measured": value, "ratio": round(GOALS[name] / max(value, 1e-9), 2)}
        for name, value in found.items()
    }
    return {"benchmark": "informer_sync", "pods": pods, "figures": result, "goals": goals}


def show(report: dict[str, Any]) -> None:
    print(f"{report['pods']} pods, Unix socket (and TLS)")
    print(f"{'':16} {'s':>7} {'CPU s':>7} {'pods/s':>9} {'KiB/pod':>8} {'RSS MiB':>8} {'peak':>6}")
    for mode, figures in report["figures"].items():
        print(
            f"{mode:16} {figures['s']:7} {figures['cpu_s']:7} {figures['pods_per_s']:9} "
            f"{figures['kib_per_pod']:8} {figures['rss_mib']:8} {figures['peak_rss_mib']:6}"
        )
    for name, goal in report["goals"].items():
        print(f"{name}: {goal['measured']} (goal {goal['goal']}, ratio {goal['ratio']})")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pods", type=int, default=100_000)
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text")
    parser.add_argument("--measure", choices=MODES, help=argparse.SUPPRESS)
    parser.add_argument("--state", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        state = StateFolder(options.state)
        tls = options.measure.endswith("_tls")
        connection = load(state.kubeconfig) if tls else over_socket(state.socket)
        print(json.dumps(uvloop.run(measured(connection, options.measure))))
        return 0
    report = judged(run(options.pods), options.pods)
    if options.output == "json":
        print(json.dumps(report, indent=1))
    else:
        show(report)
    return 0


if __name__ == "__main__":
    sys.exit(main())
