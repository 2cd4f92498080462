"""The packing tables of the documentation: every variant of OpenB, every policy, ten seeds.

``python -m benchmarks.packing_tables FOLDER [--seeds 42-51] [--jobs 2] [--keep FOLDER [--kept]] [--out FILE.md]``

``FOLDER`` holds ``openb_nodes.csv.gz``, ``pods_*.csv.gz`` and ``published_table.csv``. Only the figures are written;
the traces are not part of the project. With ``--keep`` every run is kept in a folder, and is not made again; with
``--kept`` no run is made, and each cell says of how many seeds it is if not of all.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from windlass.cli.simulate.sim_run import chosen_seeds
from windlass.kits.process_pool import map_in_processes
from windlass_lab.commands.pack_runs import PackWork, bounds, read_cluster, run_one
from windlass_lab.packing.packing import Cluster, Packed

PUBLISHED = {
    "random": "Random",
    "dotprod": "DotProd",
    "clustering": "GpuClustering",
    "packing": "GpuPacking",
    "bestfit": "BestFit",
    "fgd": "FGD",
}
POLICIES = (*PUBLISHED, "windlass")
Runs = dict[tuple[str, str], list[Packed]]
"""Variant and policy → the runs that there are."""
FIRST, LAST = "<!-- tables: made by make sim-tables -->", "<!-- end of tables -->"


def published(folder: Path) -> dict[tuple[str, str, int], float]:
    """(variant, policy, percent arrived) → percent allocated, as published."""
    with (folder / "published_table.csv").open() as lines:
        return {
            (row["workload"], row["policy"], int(row["arrived_pct"])): float(row["alloc_mean"])
            for row in csv.DictReader(lines)
        }


def main() -> int:
    given = arguments(__doc__)
    seeds, names = chosen_seeds(given.seeds, "--seeds 42-51"), given.policies.split(",")
    variants = given.variants.split(",") if given.variants else variants_of(given.folder)
    found: Runs = {}
    most: dict[str, float] = {}
    for variant in variants:
        cluster = read_cluster(
            str(given.folder / "openb_nodes.csv.gz"), str(given.folder / f"pods_{variant}.csv.gz"), 1.3
        )
        most[variant] = kept_figure(
            given.keep and given.keep / f"{variant}.bound" / f"{seeds[0]}.json",
            lambda cluster=cluster: bounds(cluster, seeds[:1])[seeds[0]],
        )
        for name in names:
            keep = given.keep / f"{variant}.{name}" if given.keep else None
            found[variant, name] = list(made(cluster, name, seeds, 0 if given.kept else given.jobs, keep))
        print(variant, file=sys.stderr, flush=True)
    put(tables(found, most, published(given.folder), seeds), given.out, FIRST, LAST)
    return 0


def put(text: str, page: Path | None, first: str, last: str) -> None:
    """Between two marks of a page; without one, on the standard output."""
    if page is None:
        print(text)
        return
    head, rest = page.read_text().split(first)
    page.write_text(f"{head}{first}\n{text}\n{last}{rest.split(last)[1]}")


def put_rows(rows: Iterable[str], page: Path | None, first: str, last: str) -> None:
    """:func:`put`, but without a page each row as soon as it is there."""
    if page is not None:
        put("\n".join(rows), page, first, last)
        return
    for row in rows:
        print(row, flush=True)


def arguments(about: str | None, seeds: str = "42-51") -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seeds", default=seeds)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--policies", default=",".join(POLICIES))
    parser.add_argument("--variants", default="")
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--kept", action="store_true")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    if given.kept and given.keep is None:
        parser.error("--kept needs --keep FOLDER")
    return given


def made(
    cluster: Cluster, name: str, seeds: Sequence[int], jobs: int, keep: Path | None, moves: float = 0.0
) -> Iterator[Packed]:
    """The runs of a policy; those that ``keep`` has, from there. No others without ``jobs``. ``moves``: percent of the
    running GPUs that may be moved; then those with moves alone."""
    missing = []
    for seed in seeds:
        if keep is not None and (file := keep / f"{seed}.json").exists():
            yield _of_figures(json.loads(file.read_text()))
        else:
            missing.append(seed)
    todo = [PackWork(cluster, name, seed, moves) for seed in missing] if jobs else []
    for _, run in map_in_processes(run_one, todo, jobs):
        if keep is not None:
            keep.mkdir(parents=True, exist_ok=True)
            (keep / f"{run.seed}.json").write_text(json.dumps(run.figures))
        yield run


def kept_figure(file: Path | None, figure: Callable[[], float]) -> float:
    """A figure that is not reckoned again if the file has it."""
    if file is not None and file.exists():
        return json.loads(file.read_text())
    found = figure()
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(found))
    return found


def _of_figures(kept: dict[str, Any]) -> Packed:
    """As far as the tables go."""
    shares = [
        {int(at): share for at, share in kept[which].items()}
        for which in ("allocation_percent", "fragmented_percent")
    ]
    return Packed(
        kept["policy"],
        kept["seed"],
        kept["nodes"],
        kept["arrived_pods"],
        {},
        shares[0],
        shares[1],
        kept["migrated_percent"],
        0.0,
        {int(at): share for at, share in kept.get("migrated_percent_by", {}).items()},
    )


def variants_of(folder: Path) -> list[str]:
    names = [path.name.removeprefix("pods_").removesuffix(".csv.gz") for path in folder.glob("pods_*.csv.gz")]
    return sorted(names, key=lambda name: (name != "default", name))


def tables(
    found: Runs, most: dict[str, float], table: dict[tuple[str, str, int], float], seeds: Sequence[int]
) -> str:
    """The tables as Markdown: policies of which there are runs, over the variants in ``most``."""
    names = list(dict.fromkeys(name for (_, name), some in found.items() if some))
    some_lack = any(len(found[variant, name]) < len(seeds) for variant in most for name in names)
    lines = [
        f"Means of {len(seeds)} seeds ({seeds[0]} to {seeds[-1]}). In brackets: the published mean of ten."
        + (" A small number: the mean of the first so many of them." if some_lack else "")
    ]
    for percent in (100, 130):
        lines += _allocated(found, most, table, names, percent, len(seeds))
    lines += ["", "Fragmented GPUs at 80 / 95 / 130 % arrived, percent of the capacity (default):", ""]
    lines += ["| policy | 80 % | 95 % | 130 % |", "|---|---|---|---|"]
    first = next(iter(most))
    for name in names:
        some = found[first, name]
        cells = [_mean([run.fragmented_percent[p] for run in some], len(seeds)) for p in (80, 95, 130)]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _allocated(
    found: Runs,
    most: dict[str, float],
    table: dict[tuple[str, str, int], float],
    names: Sequence[str],
    percent: int,
    whole: int,
) -> Iterator[str]:
    """The table of one percentage arrived, and how far it is from the published one."""
    yield from ("", f"GPUs allocated at {percent} % arrived, percent of the capacity:", "")
    both = {"windlass", "fgd"} <= set(names)
    head = ["variant", *names, *(["windlass − fgd"] if both else []), *(["bound"] if percent == 130 else [])]
    yield "| " + " | ".join(head) + " |"
    yield "|" + "---|" * len(head)
    gains: list[float] = []
    off: dict[str, list[tuple[float, str]]] = {}
    for variant in most:
        row = [variant]
        for name in names:
            shares = [run.allocation_percent[percent] for run in found[variant, name]]
            known = table.get((variant, PUBLISHED.get(name, ""), percent))
            row.append(_mean(shares, whole) + (f" ({known:.2f})" if known is not None else ""))
            if shares and known is not None:
                off.setdefault(name, []).append((fmean(shares) - known, variant))
        if both:
            gain = _gain(found, variant, percent)
            gains += [] if gain is None else [gain]
            row.append("–" if gain is None else _signed(gain))
        row += [f"{most[variant]:.2f}"] if percent == 130 else []
        yield "| " + " | ".join(row) + " |"
    if gains:
        yield from ("", f"Mean of windlass − fgd over the variants: {_signed(fmean(gains))}.")
    if off:
        furthest = {name: max(some, key=lambda one: abs(one[0])) for name, some in off.items()}
        words = [f"{name} {_signed(by)} ({variant})" for name, (by, variant) in furthest.items()]
        yield from ("", f"Furthest from what is published: {', '.join(words)}.")


def _signed(points: float) -> str:
    return f"{points:+.2f}".replace("-", "−")


def _mean(values: Sequence[float], whole: int) -> str:
    """A mean, and of how many values if not of as many as there are seeds."""
    if not values:
        return "–"
    return f"{fmean(values):.2f}" + (f"<sup>{len(values)}</sup>" if len(values) < whole else "")


def _gain(found: Runs, variant: str, percent: int) -> float | None:
    """Points that windlass has above fgd, on the seeds that both have."""
    ours, theirs = (
        {run.seed: run.allocation_percent[percent] for run in found[variant, name]}
        for name in ("windlass", "fgd")
    )
    common = ours.keys() & theirs.keys()
    return fmean(ours[seed] - theirs[seed] for seed in common) if common else None


if __name__ == "__main__":
    sys.exit(main())
