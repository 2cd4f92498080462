"""Cost of groups that cannot run for all others.

``python -m benchmarks.parked --parked 10000 --pairs 10 -o json``

Two engines get the same arrivals, one of them with ``--parked`` waiting groups that fit
on no node. Runs alternate (A/B, B/A, …) in one process. The result is the median over
pairs of the CPU time with them divided by that without. Both place the same pods.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
from collections.abc import Sequence

from benchmarks.engine import Shape, make_nodes, make_units, parked_load
from benchmarks.report import add_output, show
from windlass.engine.deltas import Delta, NodeUpserted, QueueUpserted
from windlass.kits import gc_tuning
from windlass.model.cluster.engine_factory import default_engine
from windlass.spi.objects import Queue


def measure(shape: Shape) -> tuple[float, int]:
    """CPU seconds of the arrivals, and how many pods were placed."""
    engine = default_engine()
    engine.apply([QueueUpserted(Queue("q0"))])
    engine.apply([NodeUpserted(node) for node in make_nodes(shape)])
    engine.apply(parked_load(shape))
    engine.cycle(0.0)
    units = list(make_units(shape, random.Random(shape.seed)))
    per_batch = max(1, shape.batch // shape.gang)
    batches: list[list[Delta]] = [
        [delta for unit in units[i : i + per_batch] for delta in unit]
        for i in range(0, len(units), per_batch)
    ]
    gc_tuning.tune_for_long_lived_objects()  # as the scheduler's process does
    placed = 0
    began = time.process_time()
    for now, batch in enumerate(batches, start=1):
        engine.apply(batch)
        placed += len(engine.cycle(float(now)).binds)
    return time.process_time() - began, placed


def run(options: argparse.Namespace) -> dict[str, float]:
    shape = Shape(nodes=options.nodes, gpus=8, pods=options.pods, gang=1)
    burdened = Shape(nodes=options.nodes, gpus=8, pods=options.pods, gang=1, parked=options.parked)
    ratios, without = [], []
    for number in range(options.pairs):
        order = (shape, burdened) if number % 2 == 0 else (burdened, shape)
        found = {one.parked: measure(one) for one in order}
        assert found[0][1] == found[options.parked][1], "the two did not place the same"
        ratios.append(found[options.parked][0] / found[0][0])
        without.append(found[0][0])
    return {
        "parked": options.parked,
        "overhead_percent": round(100 * (statistics.median(ratios) - 1), 2),
        "lowest_percent": round(100 * (min(ratios) - 1), 2),
        "highest_percent": round(100 * (max(ratios) - 1), 2),
        "cpu_seconds_without": round(statistics.median(without), 3),
        "pairs": options.pairs,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.parked", description=__doc__)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--pods", type=int, default=20_000)
    parser.add_argument("--parked", type=int, default=10_000)
    parser.add_argument("--pairs", type=int, default=10)
    add_output(parser)
    options = parser.parse_args(arguments)
    record = run(options)
    show(record, options.output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
