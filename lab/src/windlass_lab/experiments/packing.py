"""E4, E10, E12: how full nodes get, and how fast the engine decides."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import fmean
from typing import cast

from windlass.engine.engine import Engine
from windlass.kits import gc_tuning
from windlass.kits.rng import seeded
from windlass.sim.cluster import NodeShape, make_nodes
from windlass.sim.replay.metrics import percentile
from windlass.sim.replay.pass_times import TimedEngine
from windlass.sim.replay.policies import POLICIES
from windlass.sim.replay.replay import Replay, ReplayOptions
from windlass.sim.traces import openb
from windlass_lab.experiments.claim import Experiment, ExperimentFinding, Figure, Goal
from windlass_lab.experiments.lab import OPENB_CPU200, OPENB_NODES, OPENB_PODS, Lab
from windlass_lab.packing.packing import Packed, sequence

SEEDS = (42, 43, 44)
NAMES = ("random", "kube", "fgd", "windlass")
END = 130
MOST_FRAGMENTED = 4.5
LEAST_DECISIONS = 500.0


def fragments(lab: Lab) -> ExperimentFinding:
    """E4."""
    found = {name: [lab.packed(OPENB_PODS, name, seed) for seed in seeds(lab)] for name in NAMES}
    ours = found.pop("windlass")
    figures = [
        Figure(
            f"fragmented at {percent} % arrived, {name}",
            _fragmented(runs, percent),
            _fragmented(ours, percent),
            "%",
            2,
        )
        for percent in (80, 95)
        for name, runs in found.items()
    ]
    figures.append(
        Figure("GPUs allocated at 130 % arrived, fgd", _allocated(found["fgd"]), _allocated(ours), "%", 2)
    )
    return ExperimentFinding(
        figures,
        (
            Goal("at most 4.5 % at 95 % arrived", _fragmented(ours, 95) <= MOST_FRAGMENTED),
            Goal("at most 5.9 % at 80 % arrived", _fragmented(ours, 80) <= 5.9),
        ),
        note=f"Seeds {', '.join(map(str, seeds(lab)))}; means.",
    )


def seeds(lab: Lab) -> tuple[int, ...]:
    """One where time is short."""
    return SEEDS[:1] if lab.brief else SEEDS


def _fragmented(runs: Iterable[Packed], percent: int) -> float:
    return fmean(run.fragmented_percent[percent] for run in runs)


def _allocated(runs: Iterable[Packed]) -> float:
    return fmean(run.allocation_percent[END] for run in runs)


def both(lab: Lab) -> ExperimentFinding:
    """E10."""
    cpu: dict[str, float] = {}
    gpu: dict[str, float] = {}
    for name in ("kube", "bestfit", "fgd", "windlass"):
        runs = [lab.packed(OPENB_CPU200, name, seed) for seed in seeds(lab)]
        cpu[name] = fmean(cpu_percent(lab, run) for run in runs)
        gpu[name] = _allocated(runs)
    others = ("kube", "bestfit", "fgd")
    ours = cpu["windlass"], gpu["windlass"]
    return ExperimentFinding(
        (
            *(Figure(f"CPU allocated, {name}", cpu[name], ours[0], "%", 2) for name in others),
            *(Figure(f"GPUs allocated, {name}", gpu[name], ours[1], "%", 2) for name in others),
            *(Figure(f"their sum, {name}", cpu[name] + gpu[name], sum(ours), "points", 2) for name in others),
            Figure("more CPU allocated than with kube", None, 100.0 * (ours[0] / cpu["kube"] - 1.0), "%", 1),
        ),
        (
            Goal("as claimed, 15 % more CPU allocated than with kube", ours[0] >= 1.15 * cpu["kube"]),
            Goal("more of both than with bestfit", ours[0] > cpu["bestfit"] and ours[1] > gpu["bestfit"]),
            Goal(
                "read as CPU and GPUs together: their sum above all others",
                all(sum(ours) > cpu[name] + gpu[name] for name in others),
            ),
        ),
        note=f"Seeds {', '.join(map(str, seeds(lab)))}; means; 130 % of the GPUs asked for.",
    )


def cpu_percent(lab: Lab, run: Packed) -> float:
    """CPU that the placed pods of a run ask for, of what all nodes have."""
    cluster = lab.cluster(OPENB_CPU200)
    coming = sequence(cluster.pods, cluster.capacity, seeded(run.seed), cluster.tune)
    held = sum(coming[number].cpu_milli for number in run.placed)
    return 100.0 * held / sum(node.cpu_milli for node in cluster.nodes)


def speed(lab: Lab) -> ExperimentFinding:
    """E12."""
    nodes = make_nodes(
        [
            NodeShape(1, host.gpus, host.model, host.cpu_milli, host.memory_mib * openb.MIB)
            for host in openb.read_nodes(lab.read(OPENB_NODES), OPENB_NODES)
        ]
    )
    jobs = lab.jobs(OPENB_PODS)
    run = Replay(jobs, nodes, POLICIES["windlass"], ReplayOptions(timeline=False))
    timed = TimedEngine(run.deciding.engine, lab.processor)
    run.deciding.engine = cast(Engine, timed)
    gc_tuning.tune_for_long_lived_objects()
    run.run(lambda done: lab.tell("windlass by time of creation", done, len(jobs)))
    ordered = sorted(timed.seconds)
    each = timed.decided / sum(ordered)
    return ExperimentFinding(
        (
            Figure("decisions a second", None, each, "", 0, steady=False),
            Figure("p50 of a decision", None, 1000 * percentile(ordered, 50), "ms", 2, steady=False),
            Figure("p99 of a decision", None, 1000 * percentile(ordered, 99), "ms", 2, steady=False),
            Figure("decisions", None, timed.decided),
        ),
        (
            Goal(
                "at least 500 decisions a second, p99 within a second",
                each >= LEAST_DECISIONS and percentile(ordered, 99) <= 1.0,
            ),
        ),
        note="Processor time of the machine that made this page. A decision: what is told of one moment and a cycle.",
    )


_OPENB = "OpenB: 8,152 pods, shuffled and drawn again until they ask for 130 % of the GPUs; they never leave"
_NODES = "OpenB: 1,213 nodes, 6,212 GPUs"
EXPERIMENTS = (
    Experiment(
        "E4",
        "fragmentation falls from 15 to 20 % to under 5 %",
        _OPENB,
        _NODES,
        "random; kube: LeastAllocated and BalancedAllocation; fgd, the published policy, which knows the mix of pods",
        "windlass: the default policy, which learns the mix",
        "idle GPUs that typical pods cannot use, in percent of all (the measure of FGD)",
        (OPENB_NODES, OPENB_PODS),
        "Pods come one after the other and stay: the hardest case for packing.",
        fragments,
    ),
    Experiment(
        "E10",
        "CPU utilisation rises by 15 to 20 %",
        "OpenB, variant cpu200 (twice the pods that ask for CPU alone); likewise",
        _NODES,
        "kube, bestfit, fgd",
        "windlass: the default policy",
        "CPU and GPUs allocated in the end, in percent of all",
        (OPENB_NODES, OPENB_CPU200),
        "Allocation is not load: how busy the cores are is in no trace. Of CPU alone the claim does not hold: where"
        " kube allocates 91 % of it, 15 % more is impossible, and a policy that fills CPU first (bestfit)"
        " allocates most of it and leaves GPUs idle. Packing for GPUs gains GPUs and some CPU: that is the sum, and not"
        " what is claimed.",
        both,
    ),
    Experiment(
        "E12",
        "scheduling takes seconds",
        "OpenB: 7,255 pods by their times of creation and deletion",
        _NODES,
        "none",
        "windlass: the engine alone",
        "decisions a second; p99 of one",
        (OPENB_NODES, OPENB_PODS),
        "Depends on the machine; requests to a server are not in it (see the live benchmark).",
        speed,
    ),
)
