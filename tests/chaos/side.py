"""Windlass beside kube-scheduler in one cluster: random pods, half by each, on the same nodes.

python -m tests.chaos.side --pods 10000 --report docs/operations/chaos.md
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from pathlib import Path

sys.path.extend(map(str, Path(__file__).resolve().parents[1].glob("support/*/")))

from realkube import REQUIRED, missing
from scheduler_processes import KubeScheduler
from side_by_side import Result, SideBySide
from tests.chaos.report import machine, write_section

TITLE = "Next to kube-scheduler"
HEADER = """Pods of random size (CPU, memory, up to 8 GPUs) arrive as fast as the server accepts them, half for
each scheduler, on the same nodes. Each holds its resources for about two seconds. The log of every
version of every pod shows for each time whether a node exceeded its capacity, which pod came last,
and for how long. If two schedulers bind to the same capacity at the same time, neither can know of
the other: Windlass then evicts its own pod.

"""

GUARDED_TITLE = "Next to kube-scheduler, with the bind guard"
GUARDED_HEADER = """The same, while the API server asks Windlass before kube-scheduler binds: no node may ever exceed
its capacity, not for a moment.

"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pods", type=int, default=10_000)
    parser.add_argument("--nodes", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--guard", action="store_true", help="the API server asks Windlass before others bind"
    )
    parser.add_argument("--seconds", type=float, default=1800.0, help="how long it may take")
    parser.add_argument("--report", type=Path)
    options = parser.parse_args()
    absent = missing((*REQUIRED[:2], KubeScheduler.BINARY))
    if absent:
        print(f"no {', '.join(absent)}: build them with tools/kubernetes/build.sh", file=sys.stderr)
        return 3
    with tempfile.TemporaryDirectory(prefix="windlass-side-") as folder:
        played = SideBySide(
            Path(folder), pods=options.pods, nodes=options.nodes, seed=options.seed, guard=options.guard
        )
        result = played.run(options.seconds)
    text = words(result, options.nodes, options.seed)
    print(text)
    if options.report:
        if options.guard:
            title = f"{GUARDED_TITLE}, {options.nodes} nodes"
            write_section(options.report, title, GUARDED_HEADER + text)
        else:
            write_section(options.report, TITLE, HEADER + text)
    exact = options.guard and result.excesses
    return 1 if result.problems or result.lasting or exact else 0


def words(result: Result, nodes: int, seed: int) -> str:
    by = Counter(one.by for one in result.excesses)
    longest = max((one.end - one.begin for one in result.excesses), default=0.0)
    counted = ", ".join(f"{name} {number}" for name, number in sorted(result.bound_by.items()))
    lines = [
        f"{result.pods} pods on {nodes} nodes (seed {seed}) in {result.seconds:g} s, {machine()}; bound: {counted}.",
        f"A node exceeded its capacity {len(result.excesses)} times: Windlass' pod came last {by['windlass']} times, "
        f"kube-scheduler's {by['default-scheduler']} times; the longest for {longest:.1f} s, "
        f"{len(result.lasting)} of them lasted to the end. Windlass evicted {result.evicted} of its pods for it.",
        *([f"The guard rejected {result.refused} bindings."] if result.refused else []),
        *result.problems[:5],
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
