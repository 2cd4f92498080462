"""Kills of the control plane, the node agent, the driver and the workers of one AIGCJob.

python -m tests.chaos.items_box --kills 12 --report docs/operations/chaos.md
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import yaml

sys.path.extend(map(str, Path(__file__).resolve().parents[1].glob("support/*/")))

from batch_run import digest, rows_of
from chaos_rounds import pids
from single_node import Box
from tests.chaos.items import spec_of
from tests.chaos.report import machine, write_section

TITLE = "Batch generation in single-node mode"
HEADER = """One AIGCJob with three workers runs in single-node mode, while the API server, the scheduler
with its controllers, the node agent, the driver or a worker is killed with SIGKILL at random times.
Afterwards the hash of the sorted outputs equals that of a run without kills.

"""
PARTS = ("server", "control", "node", "driver", "worker")
PATIENCE_SECONDS = 900.0


def processes(folder: Path, role: str) -> list[int]:
    """Return the pids of drivers or workers below a folder."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if (
                f"windlass.items.{role}" in command
                and str(folder).encode() in (entry / "environ").read_bytes()
            ):
                found.append(int(entry.name))
    return found


def manifest(folder: Path, rows: int, seconds: float) -> dict[str, Any]:
    spec = spec_of(folder, rows, seconds)
    container = {"name": "worker", "image": "python:3", **spec["template"]["spec"]["containers"][0]}  # type: ignore[index]
    return {
        "apiVersion": "kurator.dev/v1alpha1",
        "kind": "AIGCJob",
        "metadata": {"name": "chaos"},
        "spec": {
            **spec,
            "replicas": 3,
            "policy": {"backoffLimit": 100},
            "template": {"spec": {"containers": [container]}},
        },
    }


def play(folder: Path, seed: int, kills: int, rows: int, seconds: float) -> tuple[Counter[str], float]:
    """Run the job to its end; return what was killed and the seconds."""
    chance = random.Random(seed)
    killed: Counter[str] = Counter()
    with Box("--gpus", "none") as box:
        (box.folder / "job.yaml").write_text(yaml.safe_dump(manifest(folder, rows, seconds)))
        box.windlass("apply", "-f", str(box.folder / "job.yaml"))
        started = time.monotonic()
        due = started + 4.0
        while time.monotonic() - started < PATIENCE_SECONDS:
            phase = ""
            with contextlib.suppress(AssertionError):
                phase = box.get("aigcjob/chaos").get("status", {}).get("phase", "")
            if phase in ("Succeeded", "Failed"):
                print(f"phase {phase}, killed {dict(killed)}", flush=True)
                return killed, time.monotonic() - started
            if kills and time.monotonic() > due:
                part = chance.choice(PARTS)
                if strike(box, part, chance):
                    killed[part] += 1
                    kills -= 1
                due = time.monotonic() + chance.uniform(0.5, 2.5)
            time.sleep(0.1)
        raise SystemExit(f"the job did not end: {box.logs()}")


def strike(box: Box, part: str, chance: random.Random) -> bool:
    """Kill one process of a part; return whether there was one."""
    if part in ("driver", "worker"):
        running = processes(box.folder, part)
    else:
        running = [pid for name, pid in pids(box).items() if name == part]
    if not running:
        return False
    with contextlib.suppress(ProcessLookupError):
        os.kill(chance.choice(running), signal.SIGKILL)
    return True


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kills", type=int, default=12)
    parser.add_argument("--rows", type=int, default=6000)
    parser.add_argument("--seconds", type=float, default=0.01, help="time of one row")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--report", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="windlass-chaos-") as name:
        calm, wild = Path(name) / "calm", Path(name) / "wild"
        _, calm_seconds = play(calm, 0, 0, options.rows, options.seconds)
        killed, seconds = play(wild, options.seed, options.kills, options.rows, options.seconds)
        expected, found = digest(calm / "out.jsonl"), digest(wild / "out.jsonl")
        good = sum("error" not in row for row in rows_of(wild / "out.jsonl"))
        processed = (wild / "calls").read_text().count("1")
    held = expected == found and good == options.rows
    what = ", ".join(f"{count} × {part}" for part, count in sorted(killed.items()))
    lines = [
        "| killed | rows | processed | seconds | outputs |",
        "|---|---|---|---|---|",
        f"| – | {options.rows:,} | | {calm_seconds:.0f} | {expected[:16]} |",
        f"| {what} | {options.rows:,} | {processed:,} | {seconds:.0f} | {found[:16]} |",
        "",
        f"Seed {options.seed}, {machine()}: {'held' if held else 'BROKEN'}.",
    ]
    print("\n".join(lines))
    if options.report:
        write_section(options.report, TITLE, HEADER + "\n".join(lines))
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
