"""Explanations at the end of a plan, from Kubernetes objects to sentences."""

from __future__ import annotations

from typing import Any

import pytest
from explained_plan import explained
from kaiobjects import kai_group, kai_pod, kai_queue
from kubeobjects import group, node, pod, queue
from tier_configurations import config

GPU = "nvidia.com/gpu"
ONE_CPU = {"cpu": "1"}


def test_limit_that_several_plugins_reject_by_is_told_once() -> None:
    tiers = config(
        "enqueue allocate", "priority gang | predicates capacity", capacity={"enableHierarchy": True}
    )
    objects = [node("n1"), queue("root"), queue("org", parent="root", capability={"cpu": "2"})]
    for name in ("a", "b"):
        objects += [queue(f"q{name}", parent="org")]
        objects += [group(name, 2, queue=f"q{name}", minResources={"cpu": "2"})]
        objects += [pod(f"{name}-{i}", scheduler="volcano", group=name, requests=ONE_CPU) for i in range(2)]
    told = explained(objects, tiers)["b"]
    assert told.message.count("queue org has 0 left") == 1
    assert len(told.blockers) == 1
    assert told.remedies == (
        "Wait for work of queue org to end, or raise the limit: windlass queue set org capability.cpu=4",
    )


def test_remedy_for_a_plain_pod_group_of_kueue_names_its_annotation() -> None:
    about = {
        "labels": {"kueue.x-k8s.io/pod-group-name": "a"},
        "annotations": {"kueue.x-k8s.io/pod-group-total-count": "3"},
    }
    told = explained([node("n1"), *(pod(f"a{i}", requests=ONE_CPU, **about) for i in range(2))])["a"]
    assert told.remedies == (
        "Create the missing pods, or lower annotation kueue.x-k8s.io/pod-group-total-count to 2.",
    )


STUCK_SINCE = {"deletionTimestamp": "2025-12-31T00:00:00Z"}


def gang_with_stuck_members(running: int, stuck: int, gpus: int, *, kai: bool) -> list[dict[str, Any]]:
    """Return a gang on a node of ``gpus`` GPUs, with a new pod for each one that is stuck."""
    least = running + stuck
    names = [*(f"g-{i}" for i in range(least)), *(f"new-{i}" for i in range(stuck))]
    made: list[dict[str, Any]] = [node("n0", gpus=gpus)]
    if kai:
        made += [kai_queue("o"), kai_queue("p", "o"), kai_group("g", least, "p")]
    else:
        made += [group("g", least, phase="Running"), queue("default")]
    for at, name in enumerate(names):
        about: dict[str, Any] = {"node": "n0"} if at < least else {}
        if running <= at < least:
            about["metadata"] = STUCK_SINCE
        made.append(
            kai_pod(name, "g", "p", **about) if kai else pod(name, scheduler="volcano", group="g", **about)
        )
    return made


@pytest.mark.parametrize("kai", [False, True])
@pytest.mark.parametrize(("running", "stuck"), [(1, 1), (3, 2), (0, 2)])
def test_member_that_is_stuck_is_not_counted_and_named(running: int, stuck: int, kai: bool) -> None:
    told = explained(gang_with_stuck_members(running, stuck, running + stuck, kai=kai))["g"]
    assert (str(told.code), told.waiting_helps) == ("InsufficientResources", "maybe")
    stuck_name = f"g-{running}"
    assert (
        f"Pod default/{stuck_name} on n0 is stuck in termination since 2025-12-31T00:00:00Z" in told.message
    )
    assert f"kubectl delete pod {stuck_name} -n default --grace-period=0 --force" in " ".join(told.remedies)
    assert "must run together" not in told.message


def test_stuck_pod_of_another_group_is_named() -> None:
    told = explained([node("n0", gpus=1), pod("old", node="n0", metadata=STUCK_SINCE), pod("new")])["new"]
    assert told.waiting_helps == "maybe"
    assert "Pod default/old on n0 is stuck in termination" in told.message


def test_stuck_pod_beside_others_that_suffice_leaves_waiting_helpful() -> None:
    objects = [
        node("n0", gpus=2),
        pod("old", node="n0", metadata=STUCK_SINCE),
        pod("runs", node="n0"),
        pod("new"),
    ]
    told = explained(objects)["new"]
    assert told.waiting_helps == "yes"
    assert "Pod default/old on n0 is stuck" in told.message


def claimed(count: int, *, alternatives: bool = False, template: bool = False) -> list[dict[str, Any]]:
    """Return a node with one device, and a pod with a claim for ``count`` devices."""
    device = {"deviceClassName": "gpu.nvidia.com", "count": count}
    request: dict[str, Any] = {"name": "r", "exactly": device}
    if alternatives:
        valid = {"name": "one", "deviceClassName": "gpu.nvidia.com", "count": 1}
        request = {"name": "r", "firstAvailable": [valid, {"name": "other", **device}]}
    spec: dict[str, Any] = {"devices": {"requests": [request]}}
    kind, field = (
        ("ResourceClaimTemplate", "resourceClaimTemplateName")
        if template
        else ("ResourceClaim", "resourceClaimName")
    )
    named = {"name": "x", "namespace": "default", "uid": "u-x"}
    api = "resource.k8s.io/v1"
    slices = {
        "driver": "gpu.nvidia.com",
        "nodeName": "n1",
        "pool": {"name": "n1", "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": "gpu-0", "attributes": {"type": {"string": "gpu"}}}],
    }
    cel = {"cel": {"expression": "device.driver == 'gpu.nvidia.com'"}}
    return [
        node("n1", gpus=0),
        {"apiVersion": api, "kind": "ResourceSlice", "metadata": {"name": "s"}, "spec": slices},
        {
            "apiVersion": api,
            "kind": "DeviceClass",
            "metadata": {"name": "gpu.nvidia.com"},
            "spec": {"selectors": [cel]},
        },
        {"apiVersion": api, "kind": kind, "metadata": named, "spec": {"spec": spec} if template else spec},
        pod("p", requests=ONE_CPU, resourceClaims=[{"name": "c", field: "x"}]),
    ]


@pytest.mark.parametrize("template", [False, True])
@pytest.mark.parametrize("alternatives", [False, True])
@pytest.mark.parametrize("count", [0, -1])
def test_claim_for_less_than_one_device_is_misconfigured(
    count: int, alternatives: bool, template: bool
) -> None:
    told = explained(claimed(count, alternatives=alternatives, template=template))["p"]
    assert (str(told.code), told.waiting_helps) == ("Misconfigured", "no")
    assert f"has count {count}, which must be at least 1" in told.message
    assert "spec.resourceClaims[0] (request r)" in told.message


def test_claim_for_one_device_is_served() -> None:
    assert explained(claimed(1)) == {}


def test_quota_of_work_that_is_not_preemptible_is_not_called_a_limit() -> None:
    objects = [node("n1", gpus=8), kai_queue("o"), kai_queue("p", "o", gpus=1)]
    objects += [kai_group("runs", 2, "p", preemptibility="preemptible")]
    objects += [kai_pod(f"runs-{i}", "runs", "p", node="n1") for i in range(2)]
    for name, pods in (("wide", 2), ("late", 1)):
        objects += [kai_group(name, pods, "p", preemptibility="non-preemptible")]
        about = {"node": "n1"} if name == "late" else {}
        objects += [kai_pod(f"{name}-{i}", name, "p", **about) for i in range(pods)]
    objects += [kai_group("next", 1, "p", preemptibility="non-preemptible"), kai_pod("next-0", "next", "p")]
    told = explained(objects)
    assert told["wide"].message.startswith(
        "It needs 2 nvidia.com/gpu at once and is not preemptible. Such work may hold at most the quota of "
        "queue p, which is 1."
    )
    assert told["next"].message.startswith(
        "It needs 1 nvidia.com/gpu and is not preemptible. Such work has 0 left of its quota"
    )


BACKFILL = config("enqueue allocate backfill preempt reclaim")
APART = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"labelSelector": {"matchLabels": {"app": "z"}}, "topologyKey": "kubernetes.io/hostname"}
        ]
    }
}
NEAR = {
    "podAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"labelSelector": {"matchLabels": {"app": "db"}}, "topologyKey": "kubernetes.io/hostname"}
        ]
    }
}
PORT = {"containers": [{"name": "main", "image": "x", "ports": [{"containerPort": 80, "hostPort": 80}]}]}
SPREAD = {
    "topologySpreadConstraints": [
        {
            "maxSkew": 1,
            "topologyKey": "zone",
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": "z"}},
        }
    ]
}


@pytest.mark.parametrize("members", [1, 2])
@pytest.mark.parametrize(
    ("about", "pods", "code"),
    [
        ({}, 1, "TooManyPods"),
        ({"affinity": APART}, 9, "PodAntiAffinityConflict"),
        ({"affinity": NEAR}, 9, "PodAffinityMismatch"),
        (PORT, 9, "HostPortTaken"),
        ({"nodeSelector": {"disk": "ssd"}}, 9, "NodeSelectorMismatch"),
        (SPREAD, 9, "TopologySpreadConflict"),
    ],
)
def test_pod_without_requests_under_tiers_has_a_reason(
    about: dict[str, Any], pods: int, code: str, members: int
) -> None:
    """Each node is full, or holds what excludes the pods."""
    labels = {"app": "z"}
    port = {key: value for key, value in about.items() if key == "containers"}
    objects = [node("n1", pods=pods, labels={"zone": "a"}), queue("default"), group("z", members)]
    objects += [node("n2", labels={"zone": "b"}, unschedulable=True)] if about is SPREAD else []
    objects += [pod("w", node="n1", requests={}, labels=labels, **port)]
    objects += [
        pod(f"z-{i}", scheduler="volcano", group="z", requests={}, labels=labels, **about)
        for i in range(members)
    ]
    told = explained(objects, BACKFILL)["z"]
    assert str(told.code) != "PendingEvaluation"
    assert code in {str(blocker.code) for blocker in told.blockers}


@pytest.mark.parametrize("value", ["abc", "80Gi", "0", "-5", "99999999999999999999", ""])
def test_label_of_devices_that_cannot_be_read_is_named(value: str) -> None:
    labels = {"nvidia.com/gpu.memory": value}
    for name, objects in (
        ("k", [kai_queue("o"), kai_queue("p", "o"), kai_pod("k", queue="p", requests={})]),
        ("w", [pod("w", requests={}, annotations={"windlass.dev/gpu-memory": "4096Mi"})]),
    ):
        if name == "k":
            objects[-1]["metadata"]["annotations"] = {"gpu-memory": "4096"}
        told = explained([node("n1", gpus=1, labels=labels), *objects])[name]
        assert f'The label nvidia.com/gpu.memory of node n1 is "{value}".' in told.message
        assert told.remedies[0].endswith("kubectl label node n1 nvidia.com/gpu.memory=VALUE --overwrite")


def test_label_that_the_pod_does_not_need_is_not_named() -> None:
    labels = {"nvidia.com/gpu.memory": "abc"}
    told = explained([node("n1", gpus=1, labels=labels), pod("p", requests={GPU: "2"})])["p"]
    assert "label" not in told.message


def test_slots_of_a_device_plugin_that_are_used_up_are_told() -> None:
    register = (
        '[{"id":"GPU-0","index":0,"count":3,"devmem":24000,"devcore":100,"type":"NVIDIA-A10","numa":0,'
        '"mode":"hami-core","health":true}]'
    )
    share = {"resources": {"limits": {GPU: 1, "nvidia.com/gpumem": 1000}}, "image": "x"}
    made = node("n1", gpus=3)
    made["metadata"]["annotations"] = {"hami.io/node-nvidia-register": register}
    one = [{"name": "c0", **share}]
    objects = [made, pod("a", containers=one), pod("b", containers=one)]
    told = explained([*objects, pod("two", containers=[*one, {"name": "c1", **share}])])["two"]
    assert "the device plugin serves 3 containers of each GPU, and 1 slot is free" in told.message


def test_group_that_was_created_for_a_pod_is_named_by_the_pod_or_its_controller() -> None:
    owner = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "name": "web-5d4f",
        "uid": "u-rs",
        "controller": True,
    }
    objects = [node("n1", gpus=2), queue("default"), group("podgroup-u-bare", 1, phase="Running")]
    objects += [pod("bare", scheduler="volcano", uid="u-bare", group="podgroup-u-bare", node="n1")]
    objects += [group("podgroup-u-rs", 1, phase="Running")]
    about = {"metadata": {"ownerReferences": [owner]}, "scheduler": "volcano", "group": "podgroup-u-rs"}
    objects += [pod("web-5d4f-x", node="n1", **about)]
    told = explained([*objects, pod("new")])["new"]
    assert sorted(told.holders) == ["default/bare", "default/web-5d4f"]


def replicas(kind: str, running: int, waiting: int, nodes: int, **spec: Any) -> list[dict[str, Any]]:
    """Return pods of one controller: ``running`` ones, each on a node of its own, and ``waiting`` ones."""
    owner = {"apiVersion": "apps/v1", "kind": kind, "name": "web", "uid": "u-web", "controller": True}
    made = [node(f"n{i}", gpus=0) for i in range(nodes)]
    for i in range(running + waiting):
        about = {"node": f"n{i}"} if i < running else {}
        made.append(pod(f"web-{i}", requests=ONE_CPU, metadata={"ownerReferences": [owner]}, **about, **spec))
    return made


HOST_NETWORK = {
    "hostNetwork": True,
    "containers": [
        {
            "name": "main",
            "image": "x",
            "ports": [{"containerPort": 80, "hostPort": 80}],
            "resources": {"requests": ONE_CPU},
        }
    ],
}


@pytest.mark.parametrize("kind", ["ReplicaSet", "StatefulSet"])
def test_replica_that_its_own_replicas_exclude_never_runs(kind: str) -> None:
    told = explained(replicas(kind, 1, 1, 1, **HOST_NETWORK))["web-1"]
    assert (str(told.code), told.waiting_helps) == ("ExceedsCluster", "no")
    assert f"2 pods of 1 cpu of {kind} web run at the same time" in told.message
    assert "because of host port 80/TCP" in told.message
    assert any("host port 80/TCP" in remedy for remedy in told.remedies)


def test_pod_that_waits_for_the_port_of_another_that_ends_is_told_that_waiting_helps() -> None:
    for objects in (
        replicas("Job", 1, 1, 1, **HOST_NETWORK),
        [*replicas("ReplicaSet", 0, 1, 1, **HOST_NETWORK), pod("other", node="n0", **HOST_NETWORK)],
    ):
        told = next(iter(explained(objects).values()))
        assert (str(told.code), told.waiting_helps) == ("HostPortTaken", "yes")


def test_replica_that_another_node_would_hold_is_bound() -> None:
    assert explained(replicas("ReplicaSet", 1, 1, 2, **HOST_NETWORK)) == {}


def test_member_on_a_cordoned_node_does_not_make_its_gang_exceed_the_cluster() -> None:
    objects = [node("n0", gpus=1, unschedulable=True), node("n1", gpus=1), queue("default")]
    objects += [group("g", 2, phase="Running"), pod("busy", node="n1")]
    objects += [
        pod("g-0", scheduler="volcano", group="g", node="n0"),
        pod("g-1", scheduler="volcano", group="g"),
    ]
    told = explained(objects)["g"]
    assert (str(told.code), told.waiting_helps) == ("InsufficientResources", "yes")


def test_stuck_pod_that_fills_a_limit_or_holds_a_port_is_named() -> None:
    stuck: dict[str, Any] = {"node": "n0", "metadata": STUCK_SINCE}
    port = [node("n0"), pod("old", **stuck, **PORT), pod("new", **PORT)]
    limit = [node("n0", gpus=2), queue("q", capability={GPU: "1"}), group("g", 1, queue="q", phase="Running")]
    limit += [
        pod("old", scheduler="volcano", group="g", **stuck),
        group("new", 1, queue="q", phase="Inqueue"),
    ]
    limit += [pod("new-0", scheduler="volcano", group="new")]
    for objects in (port, limit):
        told = explained(objects)["new"]
        assert told.waiting_helps == "maybe"
        assert "Pod default/old on n0 is stuck in termination" in told.message
        assert any("kubectl delete pod old -n default" in remedy for remedy in told.remedies)


def test_stuck_member_of_a_gang_of_several_kinds_is_not_counted() -> None:
    objects = [node("n0", gpus=2), queue("default"), group("g", 3, phase="Running")]
    objects += [pod("g-0", scheduler="volcano", group="g", node="n0")]
    objects += [pod("g-1", scheduler="volcano", group="g", node="n0", metadata=STUCK_SINCE)]
    objects += [pod("new", scheduler="volcano", group="g")]
    objects += [pod("m", scheduler="volcano", group="g", requests=ONE_CPU)]
    told = explained(objects)["g"]
    assert str(told.code) == "InsufficientResources"
    assert "need at least" not in told.message
    assert "Pod default/g-1 on n0 is stuck" in told.message
