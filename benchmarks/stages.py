"""Generation job with two stages on simulated nodes: the split of one budget of workers.

``python -m benchmarks.stages`` runs 30 000 rows through stages of 0.17 s and 0.21 s that share
126 workers, the case of ray#65540. Driver, ledgers, scheduler and controllers are the real
ones; only the time of the programs is simulated. The closed-form bound is rows times the sum of
the seconds, divided by the workers.

It ends with 1 unless each row has one output and the split comes within two workers of 56 and
70.
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
from windlass.kits.timestamps import parse_rfc3339

SECONDS = {"map": 0.17, "infer": 0.21}
WORKERS = 126
PATIENCE_SECONDS = 900.0
Json = dict[str, Any]


def job(folder: Path, rows: int) -> Json:
    """Return the job with its file of rows."""
    table = folder / "rows.jsonl"
    table.write_text("".join(f'{{"id":"r{n}"}}\n' for n in range(rows)))
    simulated = {"key": "windlass.dev/simulated", "operator": "In", "values": ["true"]}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [simulated]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    stages = [
        {
            "name": name,
            "kind": "cpu",
            "runtimeRef": {"name": "noop"},
            "template": {
                "metadata": {"annotations": {"windlass.dev/item-seconds": f"{seconds:g}"}},
                "spec": {"affinity": affinity},
            },
        }
        for name, seconds in SECONDS.items()
    ]
    return {
        "apiVersion": AIGC_JOBS.api_version,
        "kind": AIGC_JOBS.kind,
        "metadata": {"name": "line", "namespace": "default"},
        "spec": {
            "input": {"source": "file", "path": str(table), "format": "jsonl", "idField": "id"},
            "batching": {"targetSeconds": 2},
            "parallelism": {"max": WORKERS},
            "stages": stages,
            "outputs": {"path": str(folder / "line.jsonl")},
        },
    }


def run(client: BlockingClient, manifest: Json) -> tuple[Json, list[tuple[float, list[int]]]]:
    """Run the job; return its last status and the split over the time since its start."""
    client.create(AIGC_JOBS, manifest, "default")
    begun = time.monotonic()
    splits: list[tuple[float, list[int]]] = []
    while time.monotonic() < begun + PATIENCE_SECONDS:
        status = client.get(AIGC_JOBS, "line", "default").get("status") or {}
        split = [stage["desired"] for stage in status.get("stages") or ()]
        if split and (not splits or splits[-1][1] != split):
            splits.append((round(time.monotonic() - begun, 1), split))
        if status.get("phase") in ("Succeeded", "Failed"):
            return status, splits
        time.sleep(0.25)
    raise SystemExit(f"the job did not end within {PATIENCE_SECONDS:g} s")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rows", type=int, default=30_000)
    add_output(parser)
    options = parser.parse_args()
    with box("--gpus", "none") as (state, folder):
        add = [WINDLASS, "node", "add-simulated", "--count", "20"]
        environment = {**os.environ, "WINDLASS_STATE": str(state.path)}
        subprocess.run(add, env=environment, check=True, capture_output=True)
        with BlockingClient(Connection(unix_socket=str(state.socket))) as client:
            status, splits = run(client, job(folder, options.rows))
        written = [json.loads(line)["id"] for line in (folder / "line.jsonl").read_text().splitlines()]
    once = len(written) == len(set(written)) == options.rows
    reached = next((at for at, split in splits if abs(split[0] - 56) <= 2 and sum(split) == WORKERS), None)
    took = parse_rfc3339(status["completionTime"]) - parse_rfc3339(status["startTime"])
    bound = options.rows * sum(SECONDS.values()) / WORKERS
    record = {
        "rows": options.rows,
        "closed-form bound (s)": round(bound, 1),
        "took, with the start of pods (s)": took,
        "part of the bound": f"{bound / took:.0%}",
        "56 and 70 workers, within 2, after (s)": reached,
        "splits": ", ".join(f"{at:g} s: {split[0]}/{split[1]}" for at, split in splits),
        "each row exactly once": once,
    }
    show(record, options.output)
    return 0 if once and reached is not None else 1


if __name__ == "__main__":
    sys.exit(main())
