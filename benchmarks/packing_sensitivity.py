"""Sensitivity of the learned packing score to its constants: each halved and doubled,
next to FGD.

    python -m benchmarks.packing_sensitivity TRACES/openb [--seed 42] [--out FILE.md]

Five variants of OpenB, one seed, through the engine. The result is a table in Markdown,
of differences to FGD in points of GPUs allocated. With ``--out`` it is put into a page,
between two marks.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean

from benchmarks.packing_tables import put_rows
from windlass.kits.clock import SystemClock
from windlass.plugins.devices.fgd import SHORT, STEP, Fgd
from windlass.plugins.devices.scarcity import Scarcity
from windlass.plugins.nodes.binpack import Binpack
from windlass_lab.commands.pack_runs import read_cluster
from windlass_lab.packing.packing import POINTS, Cluster, Packed, pack
from windlass_lab.packing.packing_policies import ALL, PACK_POLICIES, PackingPolicy

FIRST, LAST = "<!-- sensitivity: made by make sim-sensitivity -->", "<!-- end of sensitivity -->"
VARIANTS = ("default", "cpu200", "gpushare40", "gpuspec20", "multigpu30")


def tuned(short: int, step: int) -> PackingPolicy:
    """The default policy with other constants."""

    def make(*_: object) -> list[object]:
        fgd = Fgd(dialects=ALL, short=short, step=step)
        return [Binpack(dialects=ALL, yields_to=fgd), fgd, Scarcity(dialects=ALL)]

    return PackingPolicy(f"{short} | {step}", "", make, learns=True)


def line(policy: PackingPolicy, clusters: dict[str, Cluster], fgd: dict[str, Packed], seed: int) -> str:
    """One row of the table."""
    found = {name: pack(cluster, policy, seed, SystemClock()) for name, cluster in clusters.items()}
    gains = {
        percent: [
            run.allocation_percent[percent] - fgd[name].allocation_percent[percent]
            for name, run in found.items()
        ]
        for percent in POINTS
    }
    cells = [f"{fmean(gains[percent]):+.2f}" for percent in POINTS]
    cells += [f"{min(gains[POINTS[-1]]):+.2f}", f"{found[VARIANTS[0]].fragmented_percent[95]:.2f}"]
    return f"| {policy.name} | " + " | ".join(cells) + " |"


def table(folder: str, seed: int) -> Iterator[str]:
    """Its lines, as they are done."""
    clusters = {
        name: read_cluster(f"{folder}/openb_nodes.csv.gz", str(Path(folder) / f"pods_{name}.csv.gz"), 1.3)
        for name in VARIANTS
    }
    fgd = {
        name: pack(cluster, PACK_POLICIES["fgd"], seed, SystemClock()) for name, cluster in clusters.items()
    }
    points = " | ".join(f"{percent} %" for percent in POINTS)
    yield f"| shortage counts | milli a point | {points} | worst variant at 130 % | fragmented at 95 %, default |"
    yield "|---" * (len(POINTS) + 4) + "|"
    rows = [(SHORT, STEP), (SHORT // 2, STEP), (SHORT * 2, STEP), (SHORT, STEP // 2), (SHORT, STEP * 2)]
    for short, step in rows:
        yield line(tuned(short, step), clusters, fgd, seed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    put_rows(table(given.folder, given.seed), given.out, FIRST, LAST)


if __name__ == "__main__":
    main()
