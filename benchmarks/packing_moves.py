"""Table of moves in the documentation: every variant of OpenB, one seed, 2 % of the
running GPUs.

``python -m benchmarks.packing_moves FOLDER [--seeds 42] [--jobs 2] [--keep FOLDER
[--kept]] [--out FILE.md]``

It shares the runs of ``--keep`` with :mod:`benchmarks.packing_tables`. The columns are
for arrivals of 100 and 130 percent of the capacity: the allocation of fgd and windlass,
that of windlass with moves, that of moving everything at no cost (``repacked``), and
the bound of all policies for the pods that have arrived (both linear programs).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean

from benchmarks.packing_tables import arguments, kept_figure, made, put, variants_of
from windlass.cli.simulate.sim_run import chosen_seeds
from windlass.kits.rng import seeded
from windlass.sim.traces.openb import OpenbPod
from windlass_lab.commands.pack_runs import read_cluster
from windlass_lab.packing.lp_bound import packing_bound, repacked
from windlass_lab.packing.packing import WITH_MOVES, Cluster, Packed, sequence

PERCENT = 2.0
AT = (100, 130)
FIRST, LAST = "<!-- moves: made by make sim-moves -->", "<!-- end of moves -->"
HEAD = (
    "variant",
    "fgd",
    "windlass",
    "with moves",
    "moved",
    "everything moved",
    "closed of that",
    "bound",
    "closed of that",
)


def main() -> int:
    given = arguments(__doc__, seeds="42")
    seeds = chosen_seeds(given.seeds, "--seeds 42-51")
    rows: dict[int, list[list[str]]] = {at: [] for at in AT}
    parts: dict[int, list[tuple[float, float]]] = {at: [] for at in AT}
    for variant in given.variants.split(",") if given.variants else variants_of(given.folder):
        cluster = read_cluster(
            str(given.folder / "openb_nodes.csv.gz"), str(given.folder / f"pods_{variant}.csv.gz"), 1.3
        )
        jobs = 0 if given.kept else given.jobs
        fgd, plain, moved = (
            list(
                made(cluster, name, seeds, jobs, given.keep and given.keep / f"{variant}.{name}{moves}", part)
            )
            for name, moves, part in (
                ("fgd", "", 0.0),
                ("windlass", "", 0.0),
                ("windlass", WITH_MOVES, PERCENT),
            )
        )
        if not fgd or not plain or not moved:
            continue
        for at in AT:
            most = [_most(cluster, seed, at, given.keep, variant) for seed in seeds]
            cells, closed = _row(at, fgd, plain, moved, most)
            rows[at].append([variant, *cells])
            parts[at].append(closed)
        print(variant, file=sys.stderr, flush=True)
    put("\n".join(_text(rows, parts, seeds)), given.out, FIRST, LAST)
    return 0


def _most(cluster: Cluster, seed: int, at: int, keep: Path | None, variant: str) -> tuple[float, float]:
    """Return the allocation of moving everything at no cost, and of any policy, for the
    arrived pods."""
    coming = _come(sequence(cluster.pods, cluster.capacity, seeded(seed), cluster.tune), cluster, at)

    def everything() -> float:
        let_in = repacked(cluster.nodes, coming)
        taken = sum(pod.demand for pod, one in zip(coming, let_in, strict=True) if one)
        return 100.0 * taken / cluster.capacity

    return (
        kept_figure(keep and keep / f"{variant}.repacked{at}" / f"{seed}.json", everything),
        kept_figure(
            keep and keep / f"{variant}.bound{at}" / f"{seed}.json",
            lambda: packing_bound(cluster.nodes, coming).percent,
        ),
    )


def _come(coming: Sequence[OpenbPod], cluster: Cluster, at: int) -> list[OpenbPod]:
    """Return the pods that arrived by the last time at which the percentage is ``at``."""
    found: list[OpenbPod] = []
    arrived = 0
    for pod in coming:
        arrived += pod.demand
        if round(100 * arrived / cluster.capacity) > at:
            break
        found.append(pod)
    return found


def _row(
    at: int,
    fgd: Sequence[Packed],
    plain: Sequence[Packed],
    moved: Sequence[Packed],
    most: Sequence[tuple[float, float]],
) -> tuple[list[str], tuple[float, float]]:
    """The cells, and which parts of the two gaps are closed."""
    base, without, got = (fmean(run.allocation_percent[at] for run in runs) for runs in (fgd, plain, moved))
    everything, bound = (fmean(pair[which] for pair in most) for which in (0, 1))
    closed = ((got - base) / (everything - base), (got - base) / (bound - base))
    part = fmean(run.migrated_by[at] for run in moved)
    cells = [f"{base:.2f}", f"{without:.2f}", f"{got:.2f}", f"{part:.2f} %", f"{everything:.2f}"]
    return [*cells, f"{closed[0]:.0%}", f"{bound:.2f}", f"{closed[1]:.0%}"], closed


def _text(
    rows: dict[int, list[list[str]]], parts: dict[int, list[tuple[float, float]]], seeds: Sequence[int]
) -> Iterator[str]:
    yield f"Seeds: {', '.join(map(str, seeds))}. Moved: by then, of the GPUs that run then."
    for at in AT:
        yield from ("", f"At {at} % arrived, percent of the capacity:", "")
        yield "| " + " | ".join(HEAD) + " |"
        yield "|" + "---|" * len(HEAD)
        yield from ("| " + " | ".join(cells) + " |" for cells in rows[at])
        if parts[at]:
            means = [fmean(closed[which] for closed in parts[at]) for which in (0, 1)]
            yield from ("", f"Closed on average: {means[0]:.0%} and {means[1]:.0%}.")


if __name__ == "__main__":
    sys.exit(main())
