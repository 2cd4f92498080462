"""Jobs that can never run are told by what they lack, and only they: what is told never ends in a replay."""

from __future__ import annotations

from dataclasses import replace

import pytest

from windlass.sim.cluster import NodeShape, make_nodes
from windlass.sim.jobs import TraceJob
from windlass.sim.replay.policies import POLICIES
from windlass.sim.replay.replay import ReplayOptions, replay
from windlass.sim.replay.unschedulable import nowhere

PLAIN = TraceJob("a", 0.0, 10.0, 2, cpu_milli=4000, memory_bytes=4 << 30)
NODES = make_nodes(
    [NodeShape(2, 4, "H100", cpu_milli=16_000, memory_bytes=16 << 30), NodeShape(1, 2, "T4", 4000, 8 << 30)]
)


@pytest.mark.parametrize(
    ("job", "lack"),
    [
        (PLAIN, ""),
        (replace(PLAIN, gpus=10), ""),
        (replace(PLAIN, gpus=11), "more than the 10 GPUs there are"),
        (replace(PLAIN, gpus=11, min_gpus=10), ""),
        (replace(PLAIN, gpus=3, gpu_models=("T4",)), "more than the 2 GPUs T4 there are"),
        (replace(PLAIN, gpu_models=("V100", "A100")), "a V100 or A100, and there are H100, T4"),
        (replace(PLAIN, gpus=8, gpu_models=("H100",)), ""),
        (replace(PLAIN, gpus=9, gpu_models=("H100", "T4")), ""),
        (replace(PLAIN, cpu_milli=17_000), "more cpu for a pod than any node has"),
        (replace(PLAIN, gpus=8, cpu_milli=32_000), ""),
        (replace(PLAIN, memory_bytes=17 << 30), "more memory for a pod than any node has"),
        (replace(PLAIN, gpus=0, cpu_milli=16_001), "more cpu for a pod than any node has"),
        (replace(PLAIN, gpu_models=("h1",)), ""),
        (replace(PLAIN, gpus=3, gpu_models=("t4", "v100")), "more than the 2 GPUs t4 or v100 there are"),
        (replace(PLAIN, gpus=18, gpu_milli=500), ""),
        (replace(PLAIN, gpus=26, gpu_milli=300), ""),
        (
            replace(PLAIN, gpus=31, gpu_milli=300),
            "more than the 30 parts of 300/1000 of 10 GPUs there are",
        ),
        (replace(PLAIN, gpus=10, min_gpus=5, gpu_milli=600), ""),
        (replace(PLAIN, gpus=8, cpu_milli=34_000), "more cpu for a pod than any node has"),
        (
            replace(PLAIN, gpus=8, min_gpus=7, cpu_milli=64_000, memory_bytes=0),
            "room for 7 pods of 1 GPU, and there is room for 4",
        ),
        (replace(PLAIN, gpus=9, pod_gpus=3), "room for 3 pods of 3 GPUs, and there is room for 2"),
        (replace(PLAIN, gpus=9, pod_gpus=3, min_gpus=6), ""),
        (replace(PLAIN, gpus=4, pod_gpus=1, gpu_models=("T4",), gpu_milli=500), ""),
    ],
)
def test_what_can_never_run_is_told_and_never_ends(job: TraceJob, lack: str) -> None:
    found = nowhere([job], NODES)
    assert dict(found) == ({lack: 1} if lack else {})
    outcome = replay([job], NODES, POLICIES["fifo-backfill"])
    assert (outcome.jobs[0].ended is None) == bool(lack)


def test_pods_are_as_large_as_the_largest_node() -> None:
    nodes = make_nodes([NodeShape(1, 8, "H100"), NodeShape(2, 4, "V100")])
    job = TraceJob("a", 0.0, 10.0, 8, gpu_models=("V100",))
    assert dict(nowhere([job], nodes)) == {
        "pods of 8 GPUs V100, which no node has (--pod-gpus 4 makes smaller ones)": 1
    }
    assert not nowhere([job], nodes, pod_gpus=4)
    wide = TraceJob("b", 0.0, 10.0, 16)
    assert dict(nowhere([wide], nodes)) == {"room for 2 pods of 8 GPUs, and there is room for 1": 1}
    for pods, lacking in ((0, True), (4, False)):
        outcome = replay([wide], nodes, POLICIES["fifo-backfill"], ReplayOptions(pod_gpus=pods))
        assert (outcome.jobs[0].ended is None) is lacking


def test_jobs_are_counted_by_what_they_lack() -> None:
    many = [replace(PLAIN, id=str(n), gpus=11 + n) for n in range(3)] + [replace(PLAIN, gpu_models=("X",))]
    assert dict(nowhere(many, NODES)) == {
        "more than the 10 GPUs there are": 3,
        "a X, and there are H100, T4": 1,
    }
