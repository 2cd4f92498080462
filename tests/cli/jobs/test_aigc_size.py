"""``windlass scale`` of generation jobs: bounds, nodes, and the decision that follows."""

from __future__ import annotations

from typing import Any

from fakecluster import FakeCluster

from windlass.api.resources import AIGC_JOBS
from windlass.cli.generation.shards import named_shards
from windlass.cli.jobs.aigc_size import refused_size, size_patch
from windlass.jobs.aigc.node_capacity import capacity_problem

ELASTIC = {"autoscale": {"min": 1, "max": 2}}
NODE = {"status": {"allocatable": {"pods": "110", "nvidia.com/gpu": "4"}}}


def spec_of(cluster: FakeCluster, name: str) -> dict[str, Any]:
    return cluster.objects[AIGC_JOBS, "default", name]["spec"]


def test_bounds_of_an_elastic_job_hold_and_the_autoscaler_is_named(windlass, cluster):
    spec = {"runtimeRef": {"name": "noop"}, "shards": 2, **ELASTIC}
    job = {"metadata": {"name": "gang"}, "spec": spec, "status": {"workers": {"running": 1}}}
    cluster.add(AIGC_JOBS, job)
    refused = windlass("scale", "gang", "5000000")
    assert refused.code != 0
    assert "spec.autoscale.max is 2: the job may have 1 to 2 workers, not 5000000" in refused.err
    assert "windlass scale gang 2\n" in refused.err
    assert "kubectl" not in refused.err  # no node holds them
    larger = """kubectl patch aigcjob gang --type merge -p '{"spec":{"autoscale":{"max":3}}}'"""
    assert larger in windlass("scale", "gang", "3").err
    assert "windlass suspend gang" in windlass("scale", "gang", "0").err
    assert "replicas" not in spec_of(cluster, "gang")
    assert windlass("scale", "gang", "2").out == (
        "gang is asked for 2 workers of 2 pods, and 1 runs now. Its autoscaler (pendingItems) decides the next "
        "number, between 1 and 2: windlass explain gang\n"
    )
    assert spec_of(cluster, "gang")["replicas"] == 2
    cluster.add(AIGC_JOBS, {"metadata": {"name": "fixed"}, "spec": {"runtimeRef": {"name": "noop"}}})
    assert windlass("scale", "fixed", "3").out.startswith("fixed is asked for 3 workers, and 0 run now. Each")


def test_fixed_number_moves_its_bounds_up_to_what_the_nodes_hold():
    fixed = {"parallelism": {"min": 2, "max": 2}, "minAvailable": 2}
    changed = {"replicas": 1, "parallelism": {"min": 1, "max": 1}, "minAvailable": 1}
    assert size_patch(fixed, 1) == changed
    assert refused_size("job", fixed, 3, [NODE]) is None
    least = refused_size("job", {"parallelism": {"min": 2}, "replicas": 4}, 1, [NODE])
    assert least is not None
    assert "at least 2 workers" in least[0]
    assert least[1][0] == "windlass scale job 2"
    gpus = {"replicas": 1, "shards": 2, "resources": {"limits": {"nvidia.com/gpu": 1}}}
    assert refused_size("job", gpus, 2, [NODE]) is None
    refused = refused_size("job", gpus, 3, [NODE])
    assert refused is not None
    assert "hold at most 2 of its workers" in refused[0]
    assert "they have 4 GPUs in all, and 1 worker of 2 pods needs 2" in refused[0]
    assert refused[1] == ["windlass scale job 2", "windlass node ls"]
    assert refused_size("job", gpus, 3, []) is None


def test_worker_that_no_node_holds_is_told_with_the_field_of_its_pods():
    gpus = {"shards": 9, "resources": {"limits": {"nvidia.com/gpu": 1}}}
    told = capacity_problem(gpus, [NODE])
    assert "they have 4 GPUs in all, and 1 worker of 9 pods needs 9" in told
    assert "set spec.shards (windlass generate --shards) to at most 4, or add nodes" in told
    assert capacity_problem({**gpus, "shards": 4}, [NODE]) == ""
    assert capacity_problem(gpus, []) == ""
    large = {"resources": {"limits": {"nvidia.com/gpu": 8}}}
    assert "the largest has 4 GPUs, and each pod of a worker needs 8" in capacity_problem(large, [NODE, NODE])
    job = {"kind": "AIGCJob", "spec": gpus}
    remedy = "Ask for at most 4 pods at once, or add nodes."
    assert named_shards(job, remedy) == (
        "Set spec.shards (windlass generate --shards) to at most 4: a worker of 9 pods starts as a whole. "
        "Or add nodes."
    )
    assert named_shards({"kind": "Job", "spec": {}}, remedy) == remedy
