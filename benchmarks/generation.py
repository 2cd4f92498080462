"""Items of batch generation: what the platform itself costs, with a runtime that does nothing.

``python -m benchmarks.generation`` prints all parts, ``--only throughput`` one of them.
``--rows 1000000`` plays another number of rows.

- throughput: rows of a JSONL file in ten groups, two workers, real processes. Admission is
  the time until the first lease. A state change is a lease of an item or its end. CPU is
  that of the driver.
- again: the same batch made again with the same outputs, which are taken over.
- ramp: time from the start of the processes until 96 workers have leased items.

Figures are printed and never checked: they depend on the machine.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.report import add_output, show

ROWS = 100_000
WORKERS = 2
RAMP_WORKERS = 96
GROUPS = 10
PATIENCE_SECONDS = 600.0
PARTS = ("throughput", "ramp")
Json = dict[str, Any]


class Batch:
    """Processes of one batch in a folder."""

    def __init__(self, folder: Path, spec: Json, uid: str) -> None:
        document = {"metadata": {"namespace": "bench", "name": "bench", "uid": uid}, "spec": spec}
        (folder / "batch.json").write_text(json.dumps(document))
        self.folder = folder
        self.port = folder / "port"
        self.port.unlink(missing_ok=True)
        self.environment = {
            **os.environ,
            "WINDLASS_BATCH": str(folder / "batch.json"),
            "WINDLASS_BATCH_LISTEN": "127.0.0.1:0",
            "WINDLASS_BATCH_PORT_FILE": str(self.port),
            "WINDLASS_BATCH_DRIVER_FILE": str(self.port),
            "WINDLASS_BATCH_LINGER": "1",
        }

    def start(self, role: str, name: str = "") -> subprocess.Popen[bytes]:
        environment = {**self.environment, "WINDLASS_BATCH_WORKER": name or role}
        with (self.folder / "log").open("ab") as log:
            module = [sys.executable, "-m", f"windlass.items.{role}"]
            return subprocess.Popen(module, env=environment, stdout=log, stderr=log)

    def status(self) -> Json:
        try:
            url = f"http://127.0.0.1:{self.port.read_text().strip()}/v1/status"
            with urllib.request.urlopen(url, timeout=30) as response:
                return json.loads(response.read())
        except (OSError, ValueError):
            return {}

    def wait(self, wanted: Callable[[Json], bool], poll: float = 0.05) -> float:
        """Return the time at which the status is as wanted."""
        deadline = time.perf_counter() + PATIENCE_SECONDS
        while time.perf_counter() < deadline:
            if wanted(self.status()):
                return time.perf_counter()
            time.sleep(poll)
        raise SystemExit(f"the batch did not get there: {(self.folder / 'log').read_text()[-2000:]}")


def write_rows(path: Path, rows: int) -> None:
    with path.open("w") as stream:
        for number in range(rows):
            row = {"id": f"product-{number}", "category": f"c{number % GROUPS}", "name": f"Product {number}"}
            stream.write(json.dumps(row) + "\n")


def spec_of(folder: Path, runtime: Json) -> Json:
    return {
        "input": {"path": str(folder / "rows.jsonl"), "prompt": "Describe {name}"},
        "grouping": {"by": "category"},
        "runtimeRef": runtime,
        "outputs": {"path": str(folder / "outputs.jsonl")},
    }


def play(folder: Path, uid: str) -> Json:
    """Play one batch to its end and return its figures."""
    batch = Batch(folder, spec_of(folder, {"name": "noop"}), uid)
    started = time.perf_counter()
    driver = batch.start("driver")
    workers = [batch.start("worker", f"worker-{number}") for number in range(WORKERS)]
    leased = batch.wait(lambda status: status.get("finished") or status.get("items", {}).get("done", 0) > 0)
    _, code, used = os.wait4(driver.pid, 0)
    driver.returncode = os.waitstatus_to_exitcode(code)
    ended = time.perf_counter()
    working = sum(_cpu_of(worker) for worker in workers)
    if driver.returncode:
        raise SystemExit(f"the driver ended with {driver.returncode}: {(folder / 'log').read_text()[-2000:]}")
    return {
        "admission": leased - started,
        "seconds": ended - started,
        "cpu": used.ru_utime + used.ru_stime,
        "workers": working,
        "memory": used.ru_maxrss / 1024,
        "rate": json.loads((folder / ".outputs.jsonl.windlass/status.json").read_text())["items"][
            "perSecond"
        ],
    }


def _cpu_of(process: subprocess.Popen[bytes]) -> float:
    """Wait for the end of a process and return the CPU time that it used."""
    _, code, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(code)
    return used.ru_utime + used.ru_stime


def throughput(rows: int) -> Json:
    with tempfile.TemporaryDirectory(prefix="windlass-bench-") as name:
        folder = Path(name)
        write_rows(folder / "rows.jsonl", rows)
        ledger = folder / ".outputs.jsonl.windlass/ledger.sqlite"
        first = play(folder, "first")
        sizes = [ledger.stat().st_size]
        again = play(folder, "second")
        sizes.append(ledger.stat().st_size)
        with (folder / "outputs.jsonl").open("rb") as stream:
            written = sum(1 for _ in stream)
        if written != rows:
            raise SystemExit(f"{written} rows instead of {rows}")
    return {
        "rows": rows,
        "admission": f"{first['admission']:.1f} s (goal: 10 s for 100,000)",
        "first lease to last output": f"{first['seconds'] - first['admission']:.1f} s",
        "items/s": f"{first['rate']:,.0f}",
        "state changes/s": f"{2 * first['rate']:,.0f} (goal: 2,000)",
        "CPU of the driver for 1,000 items": f"{first['cpu'] / rows * 1e6:.0f} ms",
        "CPU of driver and workers": f"{first['cpu'] + first['workers']:.1f} s",
        "memory of the driver": f"{first['memory']:.0f} MiB",
        "ledger, again": f"{sizes[0] / 1e6:.1f} MB, {sizes[1] / 1e6:.1f} MB (goal: 50 MB for 1,000,000)",
        "the same batch again": f"{again['seconds']:.1f} s, CPU {again['cpu'] + again['workers']:.1f} s, "
        f"memory of the driver {again['memory']:.0f} MiB",
        "load average": f"{os.getloadavg()[0]:.0f} on {os.cpu_count()} cores",
    }


def ramp() -> Json:
    with tempfile.TemporaryDirectory(prefix="windlass-bench-") as name:
        folder = Path(name)
        write_rows(folder / "rows.jsonl", 20_000)
        runtime = {"parameters": {"secondsPerItem": 2.0}}
        batch = Batch(folder, spec_of(folder, runtime), "ramp")
        driver = batch.start("driver")
        batch.wait(lambda status: status.get("items", {}).get("total", 0) == 20_000)
        started = time.perf_counter()
        workers = [batch.start("worker", f"worker-{number}") for number in range(RAMP_WORKERS)]
        ended = batch.wait(lambda status: status.get("workers", 0) >= RAMP_WORKERS)
        for process in (*workers, driver):
            process.kill()
        used = sum(_cpu_of(process) for process in workers)
        driver.wait()
    return {
        f"workers 0 to {RAMP_WORKERS}": f"{ended - started:.1f} s (goal: 5 s)",
        f"CPU of the {RAMP_WORKERS} workers": f"{used:.1f} s, {used / (os.cpu_count() or 1):.1f} s on all cores",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", choices=PARTS)
    parser.add_argument("--rows", type=int, default=ROWS)
    add_output(parser)
    options = parser.parse_args()
    record: Json = {}
    if options.only in (None, "throughput"):
        record |= throughput(options.rows)
    if options.only in (None, "ramp"):
        record |= ramp()
    show(record, options.output)


if __name__ == "__main__":
    main()
