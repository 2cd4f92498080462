"""Restart of a scheduler in a large cluster: from encoded objects to its first decision.

``python -m benchmarks.restart --nodes 5000 --pods 150000 -o json``

The objects are JSON as an API server lists them. The time covers decoding, the model,
the engine's tables, and the first cycle with its explanations: everything but the
network.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

import msgspec

from benchmarks.report import add_output, show
from benchmarks.timing import memory_mib
from windlass.api import views
from windlass.kits import gc_tuning
from windlass.model.cluster.cluster_model import ClusterModel
from windlass.model.cluster.engine_factory import default_engine

GPU = "nvidia.com/gpu"


def node(i: int) -> bytes:
    amounts = {"cpu": "128", "memory": "1024Gi", "pods": "250", GPU: "8"}
    name = f"node-{i:05d}"
    return msgspec.json.encode(
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "uid": name, "labels": {"kubernetes.io/hostname": name}},
            "status": {
                "allocatable": amounts,
                "capacity": amounts,
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        }
    )


def pod(i: int, nodes: int, waiting: int) -> bytes:
    requests = {"cpu": str(1 + i % 3), "memory": f"{2 + i % 5}Gi"}
    bound = i >= waiting
    if not bound or i // nodes < 6:
        requests[GPU] = "1"
    spec = {
        "schedulerName": "windlass",
        "containers": [
            {
                "name": "main",
                "image": "registry.example/train:1",
                "command": ["python", "train.py", "--rank", str(i)],
                "env": [{"name": f"OPTION_{n}", "value": f"value {n} of {i}"} for n in range(8)],
                "resources": {"requests": requests, "limits": requests},
            }
        ],
    }
    if bound:
        spec["nodeName"] = f"node-{i % nodes:05d}"
    return msgspec.json.encode(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": f"pod-{i}",
                "namespace": f"team-{i % 40}",
                "uid": f"uid-{i}",
                "creationTimestamp": "2026-01-01T00:00:00Z",
                "labels": {"app": f"app-{i % 100}"},
            },
            "spec": spec,
            "status": {"phase": "Running" if bound else "Pending"},
        }
    )


def run(nodes: int, pods: int, waiting: int) -> dict[str, float]:
    listed_nodes = [node(i) for i in range(nodes)]
    listed_pods = [pod(i, nodes, waiting) for i in range(pods)]
    gc_tuning.tune_for_long_lived_objects()  # as the scheduler's process does
    began, cpu = time.perf_counter(), time.process_time()
    model, engine = ClusterModel(("windlass",)), default_engine()
    for raw in listed_nodes:
        model.objects.upsert_node(views.decode_node(raw))
    for raw in listed_pods:
        model.objects.upsert_pod(views.decode_pod(raw))
    decoded = time.perf_counter()
    deltas = model.take()
    translated = time.perf_counter()
    engine.apply(deltas)
    decision = engine.cycle(1_800_000_000.0)
    done = time.perf_counter()
    assert len(decision.binds) == waiting, f"{len(decision.binds)} of {waiting} waiting pods were placed"
    return {
        "seconds": round(done - began, 3),
        "cpu_seconds": round(time.process_time() - cpu, 3),
        "decode_seconds": round(decoded - began, 3),
        "model_seconds": round(translated - decoded, 3),
        "engine_seconds": round(done - translated, 3),
        "first_binds": len(decision.binds),
        "rss_mib": memory_mib(),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.restart", description=__doc__)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--pods", type=int, default=150_000)
    parser.add_argument("--waiting", type=int, default=100, help="of the pods, those without a node")
    add_output(parser)
    options = parser.parse_args(arguments)
    record = run(options.nodes, options.pods, options.waiting)
    show(record, options.output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
