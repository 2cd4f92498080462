"""Generation job on simulated GPU nodes: a day of work of one worker, in groups and autoscaled.

``python -m benchmarks.fleet`` runs 100 000 rows in eight categories of 0.864 s each (24 h of
one worker) on 200 simulated nodes with one GPU. ``--rows``, ``--nodes`` and ``--item-seconds``
choose other sizes. Driver, ledger, scheduler and controllers are the real ones; only the time
of the model is simulated. One worker alone is counted with the time of the model only, without
its start and its requests.

It ends with 1 unless each row has exactly one output and at most ``--nodes`` nodes were used.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.jobs import WINDLASS, box
from benchmarks.report import add_output, show
from windlass.api.resources import AIGC_JOBS
from windlass.client.blocking import BlockingClient
from windlass.client.connection import Connection
from windlass.kits import durations
from windlass.kits.timestamps import parse_rfc3339

CATEGORIES = 8
PATIENCE_SECONDS = 3_600.0
Json = dict[str, Any]


def job(name: str, folder: Path, rows: int, seconds: float, most: int) -> Json:
    """Return a job with its file of rows."""
    table = folder / f"{name}.csv"
    lines = "".join(f"p{n},item {n},category {n % CATEGORIES}\n" for n in range(rows))
    table.write_text(f"id,name,category\n{lines}")
    return {
        "apiVersion": AIGC_JOBS.api_version,
        "kind": AIGC_JOBS.kind,
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "resources": {"limits": {"nvidia.com/gpu": 1}},
            "runtimeRef": {"name": "builtin-generate"},
            "template": {"metadata": {"annotations": {"windlass.dev/item-seconds": f"{seconds:g}"}}},
            "input": {
                "source": "file",
                "path": str(table),
                "format": "csv",
                "idField": "id",
                "prompt": "Describe {name}",
            },
            "grouping": {"by": "category"},
            "autoscale": {"min": 1, "max": most},
            "outputs": {"path": str(folder / f"{name}.jsonl")},
        },
    }


def run(client: BlockingClient, manifest: Json) -> Json:
    """Run a job and return its last status."""
    name = manifest["metadata"]["name"]
    client.create(AIGC_JOBS, manifest, "default")
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        status = client.get(AIGC_JOBS, name, "default").get("status") or {}
        if status.get("phase") in ("Succeeded", "Failed"):
            return status
        time.sleep(0.5)
    raise SystemExit(f"{name} did not end within {PATIENCE_SECONDS:g} s")


def wall(status: Json) -> float:
    return parse_rfc3339(status["completionTime"]) - parse_rfc3339(status["startTime"])


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--nodes", type=int, default=200)
    parser.add_argument("--item-seconds", type=float, default=0.864)
    add_output(parser)
    options = parser.parse_args()
    with box("--gpus", "none") as (state, folder):
        add = [WINDLASS, "node", "add-simulated", "--count", str(options.nodes), "--gpus", "1"]
        environment = {**os.environ, "WINDLASS_STATE": str(state.path)}
        subprocess.run(add, env=environment, check=True, capture_output=True)
        with BlockingClient(Connection(unix_socket=str(state.socket))) as client:
            grouped = run(client, job("fleet", folder, options.rows, options.item_seconds, options.nodes))
        written = [json.loads(line)["id"] for line in (folder / "fleet.jsonl").read_text().splitlines()]
    sequential = options.rows * options.item_seconds
    peak = grouped["workers"]["peakNodes"]
    once = len(written) == len(set(written)) == grouped["items"]["done"] == options.rows
    record = {
        "rows": options.rows,
        "one worker, time of the model": durations.write(sequential),
        "grouped and autoscaled": durations.write(wall(grouped)),
        "ratio": f"{sequential / wall(grouped):.0f}",
        "peak of nodes": peak,
        "each row exactly once": once,
        "groups": ", ".join(f"{one['name']}: {one['done']}" for one in grouped["groups"]),
        "GPU seconds allocated": round(grouped["gpuSeconds"]),
        "GPU seconds used": round(grouped["gpuBusySeconds"]),
    }
    show(record, options.output)
    return 0 if once and peak <= options.nodes else 1


if __name__ == "__main__":
    sys.exit(main())
