"""The packing tables of the documentation: every variant of OpenB, every policy, ten seeds.

``python -m benchmarks.packing_tables FOLDER [--seeds 42-51] [--jobs 2] [--keep FOLDER] [--out FILE.md]``

``FOLDER`` holds ``openb_nodes.csv.gz``, ``pods_*.csv.gz`` and ``published_table.csv``. Only the figures are written;
the traces are not part of the project. With ``--keep`` every run is kept in a folder, and is not made again.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from windlass.cli.packing import bounds, chosen_seeds, read_cluster, runs
from windlass.sim.packing import Cluster, Packed
from windlass.sim.packpolicies import PACK_POLICIES

PUBLISHED = {
    "random": "Random",
    "dotprod": "DotProd",
    "clustering": "GpuClustering",
    "packing": "GpuPacking",
    "bestfit": "BestFit",
    "fgd": "FGD",
}
POLICIES = (*PUBLISHED, "windlass")
FIRST, LAST = "<!-- tables: made by make sim-tables -->", "<!-- end of tables -->"


def published(folder: Path) -> dict[tuple[str, str, int], float]:
    """(variant, policy, percent arrived) → percent allocated, as published."""
    with (folder / "published_table.csv").open() as lines:
        return {
            (row["workload"], row["policy"], int(row["arrived_pct"])): float(row["alloc_mean"])
            for row in csv.DictReader(lines)
        }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seeds", default="42-51")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--policies", default=",".join(POLICIES))
    parser.add_argument("--variants", default="")
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    seeds, names = chosen_seeds(given.seeds), given.policies.split(",")
    variants = given.variants.split(",") if given.variants else _variants(given.folder)
    found: dict[tuple[str, str], list[Packed]] = {}
    most: dict[str, float] = {}
    for variant in variants:
        cluster = read_cluster(
            str(given.folder / "openb_nodes.csv.gz"), str(given.folder / f"pods_{variant}.csv.gz"), 1.3
        )
        most[variant] = fmean(bounds(cluster, seeds[:1]).values())
        for name in names:
            keep = given.keep / f"{variant}.{name}" if given.keep else None
            found[variant, name] = list(made(cluster, name, seeds, given.jobs, keep))
        print(variant, file=sys.stderr, flush=True)
    text = tables(found, most, published(given.folder), names, variants, seeds)
    if given.out is None:
        print(text)
        return 0
    page = given.out.read_text()
    head, rest = page.split(FIRST)
    given.out.write_text(f"{head}{FIRST}\n{text}\n{LAST}{rest.split(LAST)[1]}")
    return 0


def made(cluster: Cluster, name: str, seeds: Sequence[int], jobs: int, keep: Path | None) -> Iterator[Packed]:
    """The runs of a policy; those that ``keep`` has, from there."""
    missing = []
    for seed in seeds:
        if keep is not None and (file := keep / f"{seed}.json").exists():
            yield _of_figures(json.loads(file.read_text()))
        else:
            missing.append(seed)
    for run in runs(cluster, [PACK_POLICIES[name]], missing, jobs):
        if keep is not None:
            keep.mkdir(parents=True, exist_ok=True)
            (keep / f"{run.seed}.json").write_text(json.dumps(run.figures))
        yield run


def _of_figures(kept: dict[str, Any]) -> Packed:
    """As far as the tables go."""
    shares = [
        {int(at): share for at, share in kept[which].items()}
        for which in ("allocation_percent", "fragmented_percent")
    ]
    return Packed(kept["policy"], kept["seed"], kept["nodes"], kept["arrived_pods"], {}, shares[0], shares[1])


def _variants(folder: Path) -> list[str]:
    names = [path.name.removeprefix("pods_").removesuffix(".csv.gz") for path in folder.glob("pods_*.csv.gz")]
    return sorted(names, key=lambda name: (name != "default", name))


def tables(
    found: dict[tuple[str, str], list[Packed]],
    most: dict[str, float],
    table: dict[tuple[str, str, int], float],
    names: list[str],
    variants: list[str],
    seeds: list[int],
) -> str:
    """The tables as Markdown."""
    lines = ["Seeds " + ", ".join(map(str, seeds)) + "; means. In brackets: the published mean of ten seeds."]
    for percent in (100, 130):
        lines += ["", f"GPUs allocated at {percent} % arrived, percent of the capacity:", ""]
        head = ["variant", *names, "windlass − fgd", *(["bound"] if percent == 130 else [])]
        lines += ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
        gains = []
        for variant in variants:
            row = [variant]
            for name in names:
                mean = fmean(run.allocation_percent[percent] for run in found[variant, name])
                known = table.get((variant, PUBLISHED.get(name, ""), percent))
                row.append(f"{mean:.2f}" + (f" ({known:.2f})" if known is not None else ""))
            if {"windlass", "fgd"} <= set(names):
                gains.append(_gain(found, variant, percent))
                row.append(f"{gains[-1]:+.2f}")
            row += [f"{most[variant]:.2f}"] if percent == 130 else []
            lines.append("| " + " | ".join(row) + " |")
        if gains:
            lines += ["", f"Mean of windlass − fgd over the variants: {fmean(gains):+.2f}."]
    lines += ["", "Fragmented GPUs at 80 / 95 / 130 % arrived, percent of the capacity (default):", ""]
    lines += ["| policy | 80 % | 95 % | 130 % |", "|---|---|---|---|"]
    for name in names:
        some = found[variants[0], name]
        cells = [f"{fmean(run.fragmented_percent[p] for run in some):.2f}" for p in (80, 95, 130)]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _gain(found: dict[tuple[str, str], list[Packed]], variant: str, percent: int) -> float:
    by_name = [
        {run.seed: run.allocation_percent[percent] for run in found[variant, name]}
        for name in ("windlass", "fgd")
    ]
    return fmean(by_name[0][seed] - by_name[1][seed] for seed in by_name[0])


if __name__ == "__main__":
    sys.exit(main())
