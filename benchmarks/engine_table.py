"""`make bench-engine`: all scenes of the scheduling engine, then one table with the goals.

Each scene is a process of its own, checked by a replay that is independent of the
engine. ``--only NAME`` runs the scenes with the text in their name; ``--repeat N`` runs
each N times and shows the median.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from benchmarks.__main__ import run
from benchmarks.goals import cells

Found = Any
"""Decoded output of a scene."""


class Figure(NamedTuple):
    """``goal``: ``None`` where nothing is asked. ``read``: from what the scene printed."""

    what: str
    unit: str
    goal: float | None
    more_is_better: bool
    read: Callable[[Found], float]


class Scene(NamedTuple):
    name: str
    module: str
    arguments: tuple[str, ...]
    figures: tuple[Figure, ...]
    anchor: str


def rate(goal: float) -> Figure:
    return Figure("decisions", "/s", goal, True, lambda f: f["decisions_per_second"])


def latency(goal: float | None) -> Figure:
    return Figure("p99", "ms", goal, False, lambda f: f["p99_ms"])


MEMORY = Figure("memory", "MiB", None, False, lambda f: f["rss_mib"])
BIG = ("--nodes", "5000", "--gpus", "8")


def eviction(name: str, nodes: int, title: str, goal: float, anchor: str) -> Scene:
    """A scene of ``benchmarks.evictions``."""
    figure = Figure("decision", "s", goal, False, lambda found: found[0]["seconds"])
    return Scene(title, "evictions", ("--nodes", str(nodes), "--scene", name), (figure,), anchor)


SCENES: tuple[Scene, ...] = (
    Scene(
        "50 000 one-GPU pods, 4 classes",
        "engine",
        (*BIG, "--pods", "50000", "--gang", "1", "--classes", "4"),
        (rate(40_000), latency(5), MEMORY),
        "kube-scheduler 810/s (180/s with counted devices)",
    ),
    Scene(
        "the same, 500 classes",
        "engine",
        (*BIG, "--pods", "50000", "--gang", "1", "--classes", "500"),
        (rate(10_000), latency(None), MEMORY),
        "",
    ),
    Scene(
        "1 000 gangs of 8 apart by host, spread by zone",
        "engine",
        (*BIG, "--pods", "8000", "--gang", "8", "--anti-affinity", "host", "--spread", "zone"),
        (rate(5_000), latency(None), MEMORY),
        "",
    ),
    *(
        Scene(
            f"gangs of {size}",
            "engine",
            (*BIG, "--pods", "40000", "--gang", str(size)),
            (rate(100_000), latency(None), MEMORY),
            "615 to 975 pods/s",
        )
        for size in (20, 200, 1000)
    ),
    *(
        Scene(
            f"gangs of {size}, each in one of 50 racks",
            "engine",
            (*BIG[:-1], "16", "--pods", "40000", "--gang", str(size), "--topology", "50"),
            (rate(50_000), latency(20 if size == 1000 else None), MEMORY),
            "kube-scheduler 492 to 975 pods/s",
        )
        for size in (4, 20, 1000)
    ),
    *(
        Scene(
            f"1 000 nodes of {zones} NUMA zones, single-numa-node, gangs of 8",
            "zones",
            ("--nodes", "1000", "--zones", str(zones), "--pods", str(1600 * zones)),
            (
                Figure("decisions", "/s", None, True, lambda f: f["decisions_per_second"]),
                latency(None),
                MEMORY,
            ),
            "",
        )
        for zones in (2, 4)
    ),
    Scene(
        "28 000 MIG slices and fractions on 500 x 8 GPUs",
        "parts",
        ("--nodes", "500", "--cards", "8", "--pods", "28000"),
        (rate(10_000), latency(None), MEMORY),
        "kube-scheduler with DRA 51 to 81/s",
    ),
    Scene(
        "30 000 nodes, 800 000 pods, 10 000 arrivals/s",
        "churn",
        ("--nodes", "30000", "--pods", "800000", "--rate", "10000", "--classes", "50"),
        (
            Figure("sustained", "/s", 10_000, True, lambda f: f["sustained_per_second"]),
            latency(50),
            MEMORY,
        ),
        "Gödel 1 000 to 1 300/s on 96 threads",
    ),
    Scene(
        "a gang of 6 x 4 GPUs comes to 140 000 running pods",
        "arrival",
        ("--nodes", "4000", "--running", "140000", "--members", "6", "--gpus-each", "4"),
        (latency(10), MEMORY),
        "KAI 2.35 s",
    ),
    eviction("reclaim-whole", 500, "500 full nodes, reclaim for a gang of 250 x 8 GPUs", 0.5, "KAI 102 s"),
    eviction("hopeless", 500, "500 full nodes, proof that 80 GPUs cannot be had", 0.1, "KAI 249 s"),
    eviction("preempt", 500, "2 000 nodes, a gang preempts among 700 victims", 0.2, "Kueue 40 s"),
    eviction("preempt-near", 500, "2 000 nodes, the same into one of 20 racks", 0.2, "Kueue 40 s"),
    Scene(
        "1 000 queues in 10 cohorts, 50 000 workloads",
        "queues",
        ("--queues", "1000", "--cohorts", "10", "--workloads", "50000"),
        (Figure("CPU in all", "s", 10, False, lambda f: f["cpu_seconds"]), MEMORY),
        "Kueue 1 179 s",
    ),
    Scene(
        "10 000 groups parked",
        "parked",
        ("--parked", "10000", "--pairs", "10"),
        (Figure("CPU more", "%", 5, False, lambda f: f["overhead_percent"]),),
        "kube-scheduler 590/s",
    ),
    Scene(
        "restart with 150 000 pods on 5 000 nodes",
        "restart",
        ("--nodes", "5000", "--pods", "150000"),
        (Figure("first decision", "s", 10, False, lambda f: f["seconds"]), MEMORY),
        "Volcano 497 s",
    ),
)


def rows(scene: Scene, found: Sequence[Found]) -> list[str]:
    """The scene's lines of the table; the median of its runs counts."""
    lines = []
    for at, figure in enumerate(scene.figures):
        value = statistics.median(float(figure.read(one)) for one in found)
        measured, goal, ratio = cells(value, figure.unit, figure.goal, figure.more_is_better)
        name, anchor = (scene.name, scene.anchor) if at == 0 else ("", "")
        lines.append(f"| {name} | {figure.what} | {measured} | {goal} | {ratio} | {anchor} |")
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(prog="make bench-engine", description=__doc__)
    parser.add_argument("--only", default="", help="run only the scenes with this text in their name")
    parser.add_argument("--repeat", type=int, default=1, help="runs of each scene")
    options = parser.parse_args()
    chosen = [scene for scene in SCENES if options.only in scene.name]
    if not chosen:
        parser.error(f"no scene contains {options.only!r}; there are: {'; '.join(s.name for s in SCENES)}")
    print(f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}", flush=True)
    lines = [
        "| Scene | Figure | Measured | Goal | Ratio | Others |",
        "| --- | --- | ---: | ---: | ---: | --- |",
    ]
    failed = 0
    for scene in chosen:
        found = [run(scene.module, *scene.arguments) for _ in range(options.repeat)]
        good = [one for one in found if one is not None]
        failed += len(found) - len(good)
        if good:
            lines += rows(scene, good)
    print("", *lines, sep="\n")
    print(f"\n{len(chosen)} scenes, {failed} failed", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
