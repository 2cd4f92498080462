"""Where the OpenB trace lies, its published table, and runs of the product's own replay over it."""

from __future__ import annotations

import gzip
import random
import sys
from collections.abc import Sequence
from pathlib import Path

from windlass.sim.traces.openb import OpenbNode, OpenbPod, read_nodes, read_pods
from windlass_lab.packing.packing import PackRun
from windlass_lab.packing.packing_metrics import PackingMetrics
from windlass_lab.packing.packing_policies import mix_of

ROOT = Path(__file__).resolve().parents[3]
if str(ROOT) not in sys.path:  # the benchmarks are no installed package
    sys.path.append(str(ROOT))

from benchmarks.packing_tables import published  # noqa: E402

__all__ = ["FOLDER", "allocated", "nodes", "packed", "pods", "published"]

FOLDER = ROOT.parent / "shared" / "traces" / "openb"


def nodes() -> list[OpenbNode]:
    return read_nodes(_lines("openb_nodes"), "openb_nodes")


def pods(workload: str = "default") -> list[OpenbPod]:
    return read_pods(_lines(f"pods_{workload}"), workload)


def _lines(name: str) -> list[str]:
    return gzip.decompress((FOLDER / f"{name}.csv.gz").read_bytes()).decode().splitlines()


def packed(
    hosts: Sequence[OpenbNode],
    policies: Sequence[object],
    chance: random.Random,
    coming: Sequence[OpenbPod],
    batch: int,
) -> dict[int, int]:
    """Number of the pod → number of the node, in the order that ``chance`` gives them."""
    order = list(hosts)
    chance.shuffle(order)
    run = PackRun(order, policies, batch)
    run.play(coming)
    return {number: at for number, (at, _) in run.placed.items()}


def allocated(
    hosts: Sequence[OpenbNode],
    policies: Sequence[object],
    chance: random.Random,
    coming: Sequence[OpenbPod],
    points: Sequence[int],
) -> dict[int, float]:
    """Percent arrived → percent of the capacity allocated."""
    order = list(hosts)
    chance.shuffle(order)
    run = PackRun(order, policies, 64)
    run.play(coming)
    book = PackingMetrics(order, mix_of(coming), points)
    for number, pod in enumerate(coming):
        book.enter(pod, run.placed.get(number))
    book.close(max(points))
    return book.allocated()
