"""Driver and workers of a batch are killed at random, again and again.

python -m tests.chaos.items --kills 50 --report docs/operations/chaos.md
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

sys.path.extend(map(str, Path(__file__).resolve().parents[1].glob("support/*/")))

from batch_run import BatchRun, digest, jsonl, rows_of
from tests.chaos.report import machine, write_section

TITLE = "Batch generation"
HEADER = """A batch runs with one driver and three workers, while one of these processes after the other is
killed with SIGKILL at a random time and started again. Afterwards the hash of the sorted outputs
equals that of a run without kills, and each id has one row. *Processed* counts the rows that
workers answered, so the surplus over the number of rows is what the kills cost.

"""


@dataclass(frozen=True)
class Played:
    """Result of one seed. ``processed``: number of answers of all workers."""

    seed: int
    seconds: float
    rows: int
    processed: int
    held: bool


COMMAND = """
import json, sys, time, zlib
calls = open(sys.argv[1], "a")
for line in sys.stdin:
    row = json.loads(line)
    time.sleep(float(sys.argv[2]))
    calls.write("1\\n"); calls.flush()
    print(json.dumps({"id": row["id"], "sum": zlib.crc32(row["text"].encode())}))
"""


def spec_of(folder: Path, rows: int, seconds: float) -> dict[str, object]:
    folder.mkdir(parents=True)
    texts = [{"id": f"row-{n}", "category": f"c{n % 8}", "text": f"text {n} " * 5} for n in range(rows)]
    (folder / "rows.jsonl").write_text(jsonl(texts))
    (folder / "command.py").write_text(COMMAND)
    command = [sys.executable, str(folder / "command.py"), str(folder / "calls"), str(seconds)]
    return {
        "input": {"path": str(folder / "rows.jsonl")},
        "grouping": {"by": "category"},
        "runtimeRef": {"name": "process"},
        "template": {"spec": {"containers": [{"command": command}]}},
        "items": {"leaseSeconds": 1, "infrastructureRetries": 200},
        "batching": {"targetSeconds": 1},
        "outputs": {"path": str(folder / "out.jsonl")},
    }


def play(folder: Path, seed: int, kills: int, rows: int, seconds: float) -> tuple[Played, str]:
    run = BatchRun(folder / "run", spec_of(folder / "data", rows, seconds), workers=3)
    started = time.monotonic()
    code = run.run_with_kills(seed, kills, 900.0, rows // (kills + 10))
    took = time.monotonic() - started
    output = folder / "data/out.jsonl"
    names = {row["id"] for row in rows_of(output) if "error" not in row}
    processed = (folder / "data/calls").read_text().count("1")
    held = code == 0 and len(names) == len(rows_of(output)) == rows
    return Played(seed, took, rows, processed, held), digest(output)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--rows", type=int, default=12_000)
    parser.add_argument("--seconds", type=float, default=0.006, help="time of one row")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--report", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="windlass-chaos-") as name:
        calm, expected = play(Path(name) / "calm", 0, 0, options.rows, options.seconds)
        wild, found = play(Path(name) / "wild", options.seed, options.kills, options.rows, options.seconds)
    held = calm.held and wild.held and found == expected
    lines = [
        "| kills | rows | processed | seconds | outputs |",
        "|---|---|---|---|---|",
        f"| 0 | {calm.rows:,} | {calm.processed:,} | {calm.seconds:.0f} | {expected[:16]} |",
        f"| {options.kills} | {wild.rows:,} | {wild.processed:,} | {wild.seconds:.0f} | {found[:16]} |",
        "",
        f"Seed {options.seed}, {machine()}: {'held' if held else 'BROKEN'}.",
    ]
    print("\n".join(lines))
    if options.report:
        write_section(options.report, TITLE, HEADER + "\n".join(lines))
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
