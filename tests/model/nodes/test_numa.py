"""Zones of nodes by three sources, needs of pods, and what pods hold."""

from __future__ import annotations

from typing import Any

import pytest

from windlass.api import views
from windlass.api.devices import node_annotation, numa_annotations
from windlass.api.devices.node_annotation import DeviceRecord
from windlass.api.devices.numa_annotations import NumaNodeRecord, NumaZoneRecord
from windlass.engine import deltas
from windlass.model.cluster.snapshot import from_objects
from windlass.model.nodes import numa
from windlass.spi.numa import AlignmentPolicy, ContainerKind, NumaHolding

GPU = "nvidia.com/gpu"
GIB = 2**30


def node(**annotations: str) -> dict[str, Any]:
    allocatable = {"cpu": "16", "memory": "128Gi", "pods": "110", GPU: "4"}
    notes = {key.replace("__", "/").replace("_", "."): text for key, text in annotations.items()}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "n1", "annotations": notes},
        "status": {"allocatable": allocatable},
    }


def report(*zones_: dict[str, Any], **rest: Any) -> dict[str, Any]:
    return {
        "apiVersion": "topology.node.k8s.io/v1alpha2",
        "kind": "NodeResourceTopology",
        "metadata": {"name": "n1"},
        "zones": list(zones_),
        **rest,
    }


def zone(number: int, **amounts: str) -> dict[str, Any]:
    """Amounts as ``allocatable/available``."""
    found = []
    for name, text in amounts.items():
        has, _, left = text.partition("/")
        resource = {"gpu": GPU}.get(name, name)
        found.append(
            {"name": resource, "capacity": has, "allocatable": has} | ({"available": left} if left else {})
        )
    costs = [{"name": f"node-{other}", "value": 10 if other == number else 21} for other in range(2)]
    return {"name": f"node-{number}", "type": "Node", "costs": costs, "resources": found}


def zones_of(*objects: dict[str, Any]) -> Any:
    snapshot = from_objects([node(), *objects])
    (found,) = [d.node for d in snapshot.deltas if isinstance(d, deltas.NodeUpserted)]
    return found.zones


def attributes(**values: str) -> list[dict[str, str]]:
    return [{"name": name, "value": value} for name, value in values.items()]


def test_a_node_resource_topology_gives_zones_policy_and_distances() -> None:
    found = zones_of(
        report(
            zone(1, cpu="8/6", gpu="2/2"),
            zone(0, cpu="8/8", gpu="2/1"),
            {"name": "socket-0", "type": "Socket"},
            attributes=attributes(topologyManagerPolicy="restricted", topologyManagerScope="pod"),
        )
    )
    assert found.policy is AlignmentPolicy.RESTRICTED
    assert found.pod_scope
    assert found.exclusive_cpus
    assert found.pinned_memory
    assert not found.obeys
    assert [z.number for z in found.zones] == [0, 1]
    assert dict(found.zones[0].allocatable) == {"cpu": 8000, GPU: 2000}
    assert dict(found.zones[1].free) == {"cpu": 6000, GPU: 2000}
    assert found.zones[1].distances == (21, 10)
    assert found.cards == ((GPU, 0, 0), (GPU, 1, 0), (GPU, 2, 1), (GPU, 3, 1))


@pytest.mark.parametrize(
    ("legacy", "policy", "pod_scope"),
    [
        ("SingleNUMANodePodLevel", AlignmentPolicy.SINGLE_NUMA_NODE, True),
        ("SingleNUMANodeContainerLevel", AlignmentPolicy.SINGLE_NUMA_NODE, False),
        ("BestEffort", AlignmentPolicy.BEST_EFFORT, False),
        ("RestrictedPodLevel", AlignmentPolicy.RESTRICTED, True),
        ("None", AlignmentPolicy.NONE, False),
    ],
)
def test_the_deprecated_policies_are_read(legacy: str, policy: AlignmentPolicy, pod_scope: bool) -> None:
    found = zones_of(report(zone(0, cpu="8"), topologyPolicies=[legacy]))
    assert (found.policy, found.pod_scope) == (policy, pod_scope)
    assert found.zones[0].free is None


def test_managers_reported_by_an_exporter_count() -> None:
    said = attributes(
        topologyManagerPolicy="best-effort",
        cpuManagerPolicy="none",
        memoryManagerPolicy="None",
        topologyManagerPolicyOptions="prefer-closest-numa-nodes=true",
    )
    found = zones_of(report(zone(0, cpu="8"), attributes=said))
    assert not found.exclusive_cpus
    assert not found.pinned_memory
    assert found.closest


def test_invalid_policy_is_reported() -> None:
    odd = report(zone(0, cpu="x"), attributes=attributes(topologyManagerPolicy="sideways"))
    view = views.decode_node_resource_topology(views.encode(odd))
    assert [problem.field for problem in view.problems] == [
        "attributes[topologyManagerPolicy]",
        "zones[0].resources[0].allocatable",
        "zones[0].resources[0].capacity",
        "zones[0].resources[0].capacity",
    ]


def test_a_numatopology_lists_processors() -> None:
    cpus = {str(i): {"numa": i // 4, "socket": i // 4, "core": i % 4} for i in range(8)}
    memory = {
        str(n): {"memoryMap": {"memory": {"total": 9, "systemReserved": 1, "allocatable": 8, "free": 5 + n}}}
        for n in range(2)
    }
    found = zones_of(
        {
            "apiVersion": "nodeinfo.volcano.sh/v1alpha1",
            "kind": "Numatopology",
            "metadata": {"name": "n1"},
            "spec": {
                "policies": {"CPUManagerPolicy": "static", "TopologyManagerPolicy": "single-numa-node"},
                "resReserved": {"cpu": "500m"},
                "numares": {"cpu": {"allocatable": "0-2,6-7", "capacity": 8}},
                "cpuDetail": cpus,
                "MemoryDetail": memory,
            },
        }
    )
    assert found.policy is AlignmentPolicy.SINGLE_NUMA_NODE
    assert found.exclusive_cpus
    assert not found.pinned_memory
    assert not found.pod_scope
    first, second = found.zones
    assert dict(first.capacity) == {"cpu": 4000, "memory": 9}
    assert dict(first.allocatable) == {"cpu": 3000, "memory": 8}  # the lowest core is the system's
    assert dict(first.free) == {"cpu": 2000, "memory": 5}
    assert dict(second.free) == {"cpu": 2000, "memory": 6}


def published(policy: str = "none") -> dict[str, Any]:
    record = NumaNodeRecord((NumaZoneRecord(0, "0-7", 64 * GIB), NumaZoneRecord(1, "8-15", 64 * GIB)), policy)
    listed = [DeviceRecord(index=i, numa=i // 2, healthy=i != 3) for i in range(4)]
    spec = node()
    spec["metadata"]["annotations"] = {
        numa_annotations.NUMA: numa_annotations.write(record),
        node_annotation.NODE_DEVICES: node_annotation.write(listed),
    }
    return spec


def test_agents_record_counts_without_a_report() -> None:
    view = views.decode_node(views.encode(published()))
    found = numa.numa_zones_of(view, None)
    assert found is not None
    assert found.obeys
    assert not found.pinned_memory
    assert dict(found.zones[1].capacity) == {"cpu": 8000, "memory": 64 * GIB, GPU: 2000}
    assert dict(found.zones[1].allocatable)[GPU] == 1000  # one is ill
    assert found.cards[2] == (GPU, 2, 1)
    other = views.decode_node_resource_topology(views.encode(report(zone(0, cpu="16"))))
    reported = numa.numa_zones_of(view, other)
    assert reported is not None
    assert len(reported.zones) == 1
    assert not reported.obeys


def test_too_many_zones_are_ignored() -> None:
    assert zones_of(report(*(zone(number, cpu="2") for number in range(9)))) is None
    assert len(zones_of(report(*(zone(number, cpu="2") for number in range(8)))).zones) == 8


def test_deleted_report_removes_the_zones() -> None:
    reports = numa.NumaReports()
    first = views.decode_node_resource_topology(views.encode(report(zone(0, cpu="8/8"))))
    assert reports.upsert(first)
    assert not reports.upsert(first)
    assert reports.upsert(views.decode_node_resource_topology(views.encode(report(zone(0, cpu="8/4")))))
    assert reports.of("n1") is not None
    assert reports.remove(first)
    assert not reports.remove(first)
    assert reports.of("n1") is None


# ---------------------------------------------------------------------- pods


def pod(*containers: dict[str, Any], **rest: Any) -> views.Pod:
    spec = {"containers": [{"name": f"c{i}", "resources": r} for i, r in enumerate(containers)], **rest}
    return views.decode_pod(
        views.encode(
            {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "d"}, "spec": spec}
        )
    )


WHOLE = {"limits": {"cpu": "2", "memory": "1Gi", GPU: "1"}}


def test_a_pod_whose_limits_are_its_requests_is_guaranteed() -> None:
    need = numa.need_of(pod(WHOLE).shape)
    assert need is not None
    assert need.guaranteed
    assert need.containers[0].amounts == (("cpu", 2000), ("memory", GIB), (GPU, 1000))
    less = {"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": "1"}}
    assert numa.need_of(pod(less).shape) is None
    mixed = numa.need_of(pod(WHOLE, less).shape)
    assert mixed is not None
    assert not mixed.guaranteed
    assert numa.need_of(pod({}).shape) is None


def test_device_shares_are_not_aligned_to_zones() -> None:
    need = numa.need_of(pod(WHOLE).shape, "", frozenset({GPU}))
    assert need is not None
    assert need.containers[0].amounts == (("cpu", 2000), ("memory", GIB))


def test_containers_are_in_their_start_order() -> None:
    sidecar = {"name": "s", "restartPolicy": "Always", "resources": WHOLE}
    need = numa.need_of(pod(WHOLE, initContainers=[{"name": "i", "resources": WHOLE}, sidecar]).shape)
    assert need is not None
    kinds = [container.kind for container in need.containers]
    assert kinds == [ContainerKind.INIT, ContainerKind.SIDECAR, ContainerKind.MAIN]


def test_policy_of_a_pod_applies_to_any_request() -> None:
    need = numa.need_of(pod({"requests": {"cpu": "1"}}).shape, "single-numa-node")
    assert need is not None
    assert need.policy is AlignmentPolicy.SINGLE_NUMA_NODE
    assert numa.need_of(pod({"requests": {"cpu": "1"}}).shape, "sideways") is None


def test_observed_placement_takes_precedence() -> None:
    foreseen = NumaHolding(((0, (("cpu", 2000), ("memory", GIB))),), ((0,),))
    words = numa.annotations_of(foreseen)
    assert numa.holding_of(words) == foreseen
    observed = {
        numa_annotations.OBSERVED_KAI: '[{"zone":"node-1","amount":{"nvidia.com/gpu":"2","cpu":"8"}}]'
    }
    assert numa.holding_of(words | observed) == NumaHolding(((1, (("cpu", 8000), (GPU, 2000))),))
    assert numa.holding_of({numa_annotations.PLACEMENT: "nonsense"}) is None
    assert numa.annotations_of(None) == {}


def test_numa_needs_are_sent_once_a_node_has_zones() -> None:
    plain = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "d"}}
    plain["spec"] = {"schedulerName": "windlass", "containers": [{"name": "c", "resources": WHOLE}]}
    snapshot = from_objects([node(), plain])
    (task,) = [d.task for d in snapshot.deltas if isinstance(d, deltas.TaskUpserted)]
    assert task.needs.zones is None
    snapshot.model.objects.upsert_numa_report(
        views.decode_node_resource_topology(views.encode(report(zone(0, cpu="16"))))
    )
    (told,) = [d.task for d in snapshot.model.take() if isinstance(d, deltas.TaskUpserted)]
    assert told.needs.zones is not None
