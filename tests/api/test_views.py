"""Views: what of a wire object Windlass reads, and how it survives nonsense."""

from __future__ import annotations

import gc
import json
import tracemalloc
from typing import Any

import msgspec
import pytest
from example_counts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from kubeobjects import group, node, pod, priority_class, queue

from windlass.api import views
from windlass.api.quantities import MAX_REQUEST
from windlass.api.views.podshape import shapes_alive


def decode(obj: dict[str, Any]) -> views.Pod:
    return views.decode_pod(views.encode(obj))


def container(requests: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    return {"name": "c", "resources": {"requests": requests or {}}, **fields}


def test_request_is_the_sum_of_containers() -> None:
    found = decode(
        pod(
            "a",
            containers=[
                container({"cpu": "1", "memory": "1Gi"}),
                container({"cpu": "500m", "nvidia.com/gpu": 2}),
            ],
        )
    )
    assert found.shape.request == {"cpu": 1500, "memory": 2**30, "nvidia.com/gpu": 2000}


def test_init_containers_count_by_their_peak() -> None:
    found = decode(
        pod(
            "a",
            containers=[container({"cpu": "1", "memory": "1Gi"})],
            initContainers=[container({"cpu": "4"}), container({"memory": "3Gi"})],
        )
    )
    assert found.shape.request == {"cpu": 4000, "memory": 3 * 2**30}


def test_sidecars_add_to_containers_and_to_later_init_containers_only() -> None:
    early = container({"cpu": "5"})
    sidecar = container({"cpu": "1"}, restartPolicy="Always")
    late = container({"cpu": "4500m"})
    # peaks: 5 (early, no sidecar yet), 1 + 4.5 (late, with the sidecar); running: 2 + 1
    found = decode(pod("a", containers=[container({"cpu": "2"})], initContainers=[early, sidecar, late]))
    assert found.shape.request == {"cpu": 5500}
    found = decode(pod("a", containers=[container({"cpu": "6"})], initContainers=[early, sidecar, late]))
    assert found.shape.request == {"cpu": 7000}


def test_overhead_and_pod_level_resources() -> None:
    found = decode(
        pod(
            "a",
            containers=[container({"cpu": "2", "nvidia.com/gpu": "1"})],
            resources={"requests": {"cpu": "3"}},
            overhead={"cpu": "250m", "memory": "100Mi"},
        )
    )
    assert found.shape.request == {"cpu": 3250, "memory": 100 * 2**20, "nvidia.com/gpu": 1000}


def test_limit_replaces_a_missing_request() -> None:
    found = decode(
        pod(
            "a",
            containers=[
                {"resources": {"limits": {"nvidia.com/gpu": "2", "cpu": "4"}, "requests": {"cpu": "1"}}}
            ],
        )
    )
    assert found.shape.request == {"nvidia.com/gpu": 2000, "cpu": 1000}


def test_unreadable_quantity_is_reported_at_its_field() -> None:
    found = decode(
        pod("a", containers=[container({"cpu": "1"}), container({"cpu": "much", "memory": "1Gi"})])
    )
    assert [p.field for p in found.problems] == ["spec.containers[1].resources.requests[cpu]"]
    assert "'much' is not a quantity" in found.problems[0].message
    assert found.shape.request == {"cpu": 1000, "memory": 2**30}


def test_negative_quantities_are_rejected_and_huge_ones_lowered() -> None:
    found = decode(pod("a", containers=[container({"cpu": "-1", "memory": "9000E"})]))
    assert [p.field for p in found.problems] == ["spec.containers[0].resources.requests[cpu]"]
    assert found.shape.request == {"memory": MAX_REQUEST}


def test_a_field_of_the_wrong_type_does_not_hide_the_pod() -> None:
    found = decode(pod("a", node="n1", affinity={"nodeAffinity": 7}, tolerations="all"))
    assert (found.name, found.node_name, found.phase) == ("a", "n1", "Running")
    assert {p.field for p in found.problems} == {"spec.affinity.nodeAffinity", "spec.tolerations"}


def test_damaged_metadata_preserves_the_names() -> None:
    obj = pod("a", node="n1")
    obj["metadata"]["labels"] = {"x": 1}
    found = decode(obj)
    assert (found.key, found.uid, found.labels) == ("default/a", "uid-default-a", {})
    assert found.problems[0].field == "metadata.labels[...]"


def test_sidecars_have_host_ports_as_long_as_their_pod() -> None:
    """As kube-scheduler counts them; an init container's are free again before the others start."""
    ports = [{"containerPort": 9100, "hostPort": 9100}]
    inits = [container(ports=ports) | {"name": "exporter", "restartPolicy": "Always"}]
    inits.append(container(ports=[{"containerPort": 1, "hostPort": 1}]) | {"name": "first"})
    found = decode(pod("a", containers=[container()], initContainers=inits))
    assert found.shape.host_ports == (("TCP", 9100, ""),)


def test_host_ports() -> None:
    ports = [{"containerPort": 80, "hostPort": 8080}, {"containerPort": 53, "protocol": "UDP"}]
    assert decode(pod("a", containers=[container(ports=ports)])).shape.host_ports == (("TCP", 8080, ""),)
    on_host = decode(pod("a", hostNetwork=True, containers=[container(ports=ports)]))
    assert on_host.shape.host_ports == (("TCP", 8080, ""), ("UDP", 53, ""))


def test_pods_with_equal_needs_share_one_shape() -> None:
    left = decode(
        pod("a-0", node="n1", containers=[container({"cpu": "1"}, env=[{"name": "RANK", "value": "0"}])])
    )
    right = decode(pod("a-1", containers=[container({"cpu": "1"}, env=[{"name": "RANK", "value": "1"}])]))
    other = decode(pod("b", containers=[container({"cpu": "2"})]))
    assert left.shape is right.shape
    assert left.shape is not other.shape


def test_shapes_are_dropped_with_their_last_pod() -> None:
    gc.collect()
    before = shapes_alive()
    found = decode(pod("a", containers=[container({"cpu": "7777m"})]))
    assert shapes_alive() == before + 1
    del found
    gc.collect()
    assert shapes_alive() == before


def test_status_of_a_pod() -> None:
    obj = pod("a", node="n1", phase="Failed", metadata={"deletionTimestamp": "2026-01-01T12:00:05Z"})
    obj["status"] |= {
        "conditions": [
            {"type": "Ready", "status": "True"},
            {"type": "DisruptionTarget", "status": "True"},
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no"},
        ],
        "containerStatuses": [
            {
                "name": "m",
                "restartCount": 2,
                "state": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}},
            }
        ],
    }
    found = decode(obj)
    assert found.ready
    assert found.disrupted
    assert (found.waiting_reason, found.waiting_message) == ("Unschedulable", "no")
    assert (found.exits[0].exit_code, found.exits[0].reason, found.restarts) == (137, "OOMKilled", 2)
    assert found.deleting
    assert found.finished
    assert found.deleted - found.created == 5.0


def test_a_hundred_thousand_pods_fit_in_two_kib_each() -> None:
    """Measured on 5 000 of the realistic training pods (3.8 kB as the server returns them)."""
    raw = [json.dumps(_training_pod(i)).encode() for i in range(5000)]
    assert 3400 < len(raw[0]) < 4200
    views.decode_pod(raw[0])
    gc.collect()
    tracemalloc.start()
    kept = {}
    for text in raw:
        found = views.decode_pod(text)
        kept[found.key] = found
    gc.collect()
    count = len(kept)
    held = tracemalloc.get_traced_memory()[0]
    del kept, found
    gc.collect()
    freed = held - tracemalloc.get_traced_memory()[0]  # other threads of this process allocate meanwhile too
    tracemalloc.stop()
    assert 200 < freed / count <= 2048


def test_node() -> None:
    obj = node("n1", labels={"zone": "a"}, unschedulable=True, taints=[{"key": "k", "effect": "NoExecute"}])
    found = views.decode_node(views.encode(obj))
    assert found.allocatable == {"cpu": 64_000, "memory": 512 * 2**30, "pods": 110, "nvidia.com/gpu": 8000}
    assert (found.unschedulable, found.ready, found.labels["zone"]) == (True, "True", "a")
    assert (found.taints[0].key, found.taints[0].value, found.taints[0].effect) == ("k", "", "NoExecute")


def test_unreadable_allocatable_counts_as_absent() -> None:
    obj = node("n1")
    obj["status"]["allocatable"]["memory"] = "plenty"
    found = views.decode_node(views.encode(obj))
    assert "memory" not in found.allocatable
    assert found.problems[0].field == "status.allocatable[memory]"


def test_pod_group_and_queue_and_class() -> None:
    obj = group(
        "g", 3, minTaskMember={"w": 2}, priorityClassName="high", minResources={"cpu": "2"}, phase="Inqueue"
    )
    found = views.decode_pod_group(views.encode(obj))
    assert (found.min_member, found.min_task_member, found.priority_class) == (3, {"w": 2}, "high")
    assert (found.min_resources, found.phase, found.queue) == ({"cpu": 2000}, "Inqueue", "default")

    obj = queue(
        "q", weight=2, capability={"cpu": "1500m"}, guarantee={"resource": {"cpu": 1}}, reclaimable=False
    )
    found_queue = views.decode_queue(views.encode(obj))
    assert (found_queue.weight, found_queue.capability, found_queue.guarantee) == (
        2,
        {"cpu": 1500},
        {"cpu": 1000},
    )
    assert not found_queue.reclaimable

    obj = priority_class("high", 1000, preemptionPolicy="Never", globalDefault=True)
    assert views.decode_priority_class(views.encode(obj)) == views.PriorityClass("high", 1000, True, "Never")


_json = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=10,
)
_PATHS = [
    ("metadata", "labels"),
    ("metadata", "annotations"),
    ("metadata", "ownerReferences"),
    ("metadata", "deletionTimestamp"),
    ("metadata", "creationTimestamp"),
    ("spec",),
    ("spec", "containers"),
    ("spec", "initContainers"),
    ("spec", "affinity"),
    ("spec", "tolerations"),
    ("spec", "nodeSelector"),
    ("spec", "overhead"),
    ("spec", "resources"),
    ("spec", "schedulingGates"),
    ("spec", "priority"),
    ("spec", "nodeName"),
    ("spec", "unschedulable"),
    ("spec", "taints"),
    ("spec", "capability"),
    ("spec", "guarantee"),
    ("spec", "minMember"),
    ("spec", "minTaskMember"),
    ("spec", "minResources"),
    ("status",),
    ("status", "phase"),
    ("status", "conditions"),
    ("status", "allocatable"),
    ("status", "containerStatuses"),
]
_DECODERS = [
    views.decode_pod,
    views.decode_node,
    views.decode_pod_group,
    views.decode_queue,
    views.decode_priority_class,
    views.decode_namespace,
    views.decode_resource_quota,
]


@settings(max_examples=examples(300), deadline=None)
@given(st.sampled_from(_DECODERS), st.dictionaries(st.sampled_from(_PATHS), _json, max_size=4))
def test_any_json_with_a_name_is_decoded(decoder: Any, changes: dict[tuple[str, ...], Any]) -> None:
    obj: dict[str, Any] = {"metadata": {"name": "x", "namespace": "y", "uid": "z"}}
    for path, value in changes.items():
        target = obj
        for step in path[:-1]:
            inner = target.get(step)
            if not isinstance(inner, dict):
                inner = target[step] = {}
            target = inner
        target[path[-1]] = value
    found = decoder(msgspec.json.encode(obj))
    assert found.name == "x"


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(_DECODERS), st.binary(max_size=60))
def test_bytes_that_are_no_object_raise_a_decode_error(decoder: Any, raw: bytes) -> None:
    with pytest.raises((msgspec.DecodeError, UnicodeDecodeError)):
        decoder(raw)


def _training_pod(i: int) -> dict[str, Any]:
    job, rank = divmod(i, 20)
    names = {
        "volcano.sh/job-name": f"train-{job}",
        "volcano.sh/job-namespace": f"team-{job % 10}",
        "volcano.sh/task-spec": "worker",
        "volcano.sh/task-index": str(rank),
        "volcano.sh/queue-name": "research",
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"train-{job}-worker-{rank}",
            "namespace": f"team-{job % 10}",
            "uid": f"{i:08x}-1234-4abc-8def-0123456789ab",
            "resourceVersion": str(1_000_000 + i),
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {**names, "app": "train", "team": f"team-{job % 10}", "pod-template-hash": "abcdef"},
            "annotations": {
                **names,
                "scheduling.k8s.io/group-name": f"train-{job}-0a1b2c3d",
                "volcano.sh/job-version": "0",
                "volcano.sh/template-uid": f"train-{job}-worker",
                "volcano.sh/job-retry-count": "0",
                "windlass.dev/devices": str(rank % 8),
                "kubectl.kubernetes.io/last-applied-configuration": "x" * 300,
            },
            "ownerReferences": [
                {
                    "apiVersion": "batch.volcano.sh/v1alpha1",
                    "kind": "Job",
                    "name": f"train-{job}",
                    "uid": f"{job:08x}-aaaa-bbbb-cccc-0123456789ab",
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
        },
        "spec": _training_spec(i),
        "status": {
            "phase": "Running",
            "podIP": f"10.{i // 65000}.{i // 250 % 250}.{i % 250}",
            "conditions": [
                {"type": kind, "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
                for kind in ("PodScheduled", "Initialized", "ContainersReady", "Ready")
            ],
            "containerStatuses": [
                {"name": "worker", "restartCount": 0, "ready": True, "state": {"running": {}}, "image": "x"}
            ],
        },
    }


def _training_spec(i: int) -> dict[str, Any]:
    return {
        "schedulerName": "volcano",
        "priority": 100,
        "nodeName": f"node-{i % 5000}",
        "containers": [
            {
                "name": "worker",
                "image": "registry/train:1",
                "command": ["python", "train.py", "--epochs", "90"],
                "env": [{"name": f"NAME_{j}", "value": f"value-{j}-{i}"} for j in range(16)],
                "resources": {
                    "requests": {"cpu": "8", "memory": "64Gi", "nvidia.com/gpu": "1"},
                    "limits": {"cpu": "8", "memory": "64Gi", "nvidia.com/gpu": "1"},
                },
                "volumeMounts": [{"name": f"data-{j}", "mountPath": f"/data/{j}"} for j in range(4)],
            }
        ],
        "volumes": [{"name": f"data-{j}", "emptyDir": {"medium": "Memory"}} for j in range(4)],
        "nodeSelector": {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"},
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
    }
