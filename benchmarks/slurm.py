"""Windlass and a real Slurm on one machine: the same work, alternating in one run.

``python -m benchmarks.slurm [--jobs 500] [--rounds 5] [-o json]``; needs slurmctld,
slurmd and munged, see :mod:`benchmarks.slurm_lab`. Both serve one node of 8 simulated
GPUs. There are three sides: Slurm with its defaults; Slurm with a queue check each
second (``QUICK``); Windlass as installed. Only one of them runs at a time, except for
the mixed list, because its jobs only sleep.

- one job: until the submitting command returns, until it runs, until its first line is
  seen, until its end is seen;
- many jobs that do nothing: as one array (Windlass: one Job of as many pods), and one
  command after the other;
- a gang of four tasks with a GPU each: until the last of them runs;
- a mixed list of jobs with time limits (:mod:`benchmarks.slurm_mixed`): waiting times.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any

from benchmarks import slurm_mixed
from benchmarks.cold_start import Home
from benchmarks.report import add_output, show
from benchmarks.slurm_lab import Nodes, Slurm, missing
from benchmarks.slurm_sides import (
    BoxSide,
    CpuBook,
    Side,
    SlurmSide,
    Work,
    adopt_orphans,
    first_line,
    memory_mib,
)

QUICK = "batch_sched_delay=0,sched_interval=1,bf_interval=1"
TASKS = 4
GPUS = 8
MIXED = "mixed list"
Found = dict[str, float]


@contextmanager
def slurm(name: str, scheduler: str) -> Iterator[Side]:
    with Slurm(Nodes(gpus=GPUS), scheduler) as lab:
        yield SlurmSide(name, lab)


@contextmanager
def box() -> Iterator[Side]:
    with Home() as home:
        done = home.run("up", "--detach", "--gpus", f"simulated:{GPUS}", "--node-name", "n1")
        if done.returncode:
            raise RuntimeError(done.stderr.decode())
        yield BoxSide(home)


SIDES = {
    "Slurm": lambda: slurm("Slurm", ""),
    "Slurm, quick": lambda: slurm("Slurm, quick", QUICK),
    "Windlass": box,
}


def latencies(side: Side, rounds: int) -> Found:
    """Medians, in seconds from before the command."""
    found: dict[str, list[float]] = {}
    first_line(side, side.following(Work("warm")))
    for number in range(rounds):
        queued = Work(f"one{number}")
        begin = time.time()
        side.command(side.submitting(queued))
        _add(found, "queued", time.time() - begin)
        _add(found, "queued runs", side.until(1, queued.name)[0] - begin)
        followed = Work(f"two{number}")
        begin = time.time()
        line, end = first_line(side, side.following(followed))
        _add(found, "followed runs", side.until(1, followed.name)[0] - begin)
        _add(found, "first line", line)
        _add(found, "end", end)
        gang = Work(f"gang{number}")
        begin = time.time()
        line, end = first_line(side, side.following(gang, TASKS))
        _add(found, "gang runs", side.until(TASKS, gang.name)[-1] - begin)
        _add(found, "gang ends", end)
    return {name: round(statistics.median(values), 3) for name, values in found.items()}


def _add(found: dict[str, list[float]], name: str, value: float) -> None:
    found.setdefault(name, []).append(value)


def many(side: Side, count: int, *, batch: bool) -> Found:
    """Run ``count`` empty jobs, at once or by one command each. CPU in milliseconds per job."""
    work = Work("many")
    words = [side.batch(work, count)] if batch else [side.submitting(Work(f"j{i}")) for i in range(count)]
    book, begin = CpuBook(side), time.time()
    for each in words:
        book.client(lambda each=each: side.command(each))
    queued = time.time() - begin
    ran = side.until(count)
    cpu = book.close()
    return {
        "jobs": count,
        "queued after": round(queued, 2),
        "all ran after": round(ran[-1] - begin, 2),
        "jobs/s": round(count / (ran[-1] - begin), 1),
        "CPU ms a job": round(1000 * cpu.whole / count, 1),
        "of it clients": round(1000 * cpu.clients / count, 1),
        "of it daemons": round(1000 * cpu.daemons / count, 1),
        "of it starting and running": round(1000 * cpu.rest / count, 1),
        "daemons MiB": memory_mib(side),
    }


def run(options: argparse.Namespace) -> dict[str, Any]:
    measures: dict[str, Callable[[Side], Found]] = {
        "one job": lambda side: latencies(side, options.rounds),
        "an array": lambda side: many(side, options.jobs, batch=True),
        "one by one": lambda side: many(side, options.jobs // 5, batch=False),
    }
    chosen = [name for name in (*measures, MIXED) if options.only in name]
    if not chosen:
        raise SystemExit(f"none of these has {options.only!r} in it: {', '.join((*measures, MIXED))}")
    found: dict[str, Any] = {}
    for measure in chosen:
        if measure == MIXED:
            found[measure] = _mixed(slurm_mixed.mixed(options.mixed, GPUS, options.pace))
            continue
        for name, side in SIDES.items():
            with side() as one:
                found.setdefault(measure, {})[name] = measures[measure](one)
    return found


def _mixed(arrivals: Sequence[slurm_mixed.Arrival]) -> dict[str, Found]:
    """On all sides at once: jobs only sleep."""
    with ExitStack() as stack, ThreadPoolExecutor(len(SIDES)) as threads:
        sides = {name: stack.enter_context(side()) for name, side in SIDES.items()}
        plays = {name: threads.submit(slurm_mixed.play, side, arrivals) for name, side in sides.items()}
        return {name: play.result() for name, play in plays.items()}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.slurm", description=__doc__)
    parser.add_argument("--jobs", type=int, default=500, help="of the array; a fifth of them one by one")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--mixed", type=int, default=32, help="jobs of the mixed list")
    parser.add_argument("--pace", type=float, default=15, help="seconds that they last a minute of limit")
    parser.add_argument("--only", default="", help="measures with this in their name")
    add_output(parser)
    options = parser.parse_args(arguments)
    if lacking := missing():
        print(f"skipped: this machine has no {', '.join(lacking)}", file=sys.stderr)
        return 0
    adopt_orphans()
    found = run(options)
    if options.output == "json":
        show(found, "json")
    else:
        for measure, sides in found.items():
            print(*_table(measure, sides), "", sep="\n")
    return 0


def _table(measure: str, sides: dict[str, Found]) -> list[str]:
    """Lines of Markdown: a figure a row, a side a column."""
    rows = dict.fromkeys(name for found in sides.values() for name in found)
    return [
        f"| {measure} | {' | '.join(sides)} |",
        "|---|" + "---:|" * len(sides),
        *(f"| {row} | {' | '.join(str(found.get(row, '')) for found in sides.values())} |" for row in rows),
    ]


if __name__ == "__main__":
    sys.exit(main())
