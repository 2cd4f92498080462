"""Every vocabulary of parts of cards through the whole scheduler: as `windlass plan` decides it."""

from __future__ import annotations

from typing import Any

import pytest
from example_counts import examples
from hypothesis import given as over
from hypothesis import settings
from hypothesis import strategies as st
from kaiobjects import kai_group, kai_pod, kai_queue
from kubeobjects import node, pod, queue

from windlass.cli.simulate import live_cluster
from windlass.cli.simulate import plan as simulate_plan
from windlass.model import scheduler_config
from windlass.model.cluster.cluster_model import ClusterModel
from windlass.model.cluster.node_usage import NodeUsage
from windlass.model.cluster.snapshot import EVERY_SCHEDULER, KINDS, Counted, load

GPU = "nvidia.com/gpu"


def gpu_node(name: str = "n", gpus: int = 1, mib: int = 24576, **labels: str) -> dict[str, Any]:
    obj = node(name, gpus=gpus)
    told = {"nvidia.com/gpu.memory": str(mib), "nvidia.com/gpu.product": "NVIDIA-A30"}
    obj["metadata"]["labels"] = {**(obj["metadata"].get("labels") or {}), **told, **labels}
    return obj


def asking(name: str, annotations: dict[str, str] | None = None, **limits: str) -> dict[str, Any]:
    return pod(name, requests={"cpu": "1", **limits}, annotations=annotations)


def plan(*objects: dict[str, Any]) -> dict[str, Any]:
    return planned(*objects)[0]


def planned(*objects: dict[str, Any]) -> tuple[dict[str, Any], ClusterModel]:
    """The plan, and the cluster as it is afterwards."""
    parsed = scheduler_config.parse("actions: enqueue, allocate, backfill, preempt, reclaim")
    model = ClusterModel(EVERY_SCHEDULER)
    counted = Counted()
    load(model, ((str(at), obj) for at, obj in enumerate(objects)), strict=True, counted=counted)
    request = simulate_plan.PlanRequest(files=(), now=1_800_000_000.0, cycles=1, until_stable=True)
    return simulate_plan.run(model, parsed, request, lambda _text: None, counted), model


def given(*objects: dict[str, Any]) -> dict[str, list[Any]]:
    """Pod → its cards; only those that are bound."""
    return {
        bind["pod"]: [
            (card["index"], card.get("profile") or card["share"]) for card in bind.get("devices", ())
        ]
        for bind in plan(*objects)["binds"]
    }


def why(name: str, *objects: dict[str, Any]) -> str:
    waiting = {entry["podGroup"]: entry for entry in plan(*objects)["pending"]}
    return f"{waiting[name]['code']}: {waiting[name]['message']}"


GIB = {"aliyun.com/gpu-mem": "10"}


def test_two_claims_of_10_gib_fit_on_a_card_of_24_and_three_do_not() -> None:
    pods = [asking(name, **GIB) for name in "abc"]
    assert given(gpu_node(), *pods) == {"a": [(0, 0.417)], "b": [(0, 0.417)]}
    assert "c" in {entry["podGroup"] for entry in plan(gpu_node(), *pods)["pending"]}


@pytest.mark.parametrize(
    ("annotations", "limits"),
    [
        ({"gpu-fraction": "0.5"}, {}),
        ({"gpu-memory": "12288"}, {}),
        ({"windlass.dev/gpu-memory": "12Gi"}, {}),
        ({"windlass.dev/gpu-compute": "50"}, {}),
        ({}, {"volcano.sh/vgpu-memory": "12288"}),
        ({}, {"volcano.sh/vgpu-memory-percentage": "50"}),
        (
            {},
            {"volcano.sh/vgpu-number": "1", "volcano.sh/vgpu-memory": "12288", "volcano.sh/vgpu-cores": "50"},
        ),
        ({}, {"volcano.sh/gpu-memory": "12288"}),
        ({}, {GPU: "1", "nvidia.com/gpumem": "12288"}),
        ({}, {"nvidia.com/gpumem-percentage": "50"}),
        ({}, {"aliyun.com/gpu-mem": "12"}),
        ({}, {"aliyun.com/gpu-core.percentage": "50"}),
        ({}, {"tke.cloud.tencent.com/qgpu-core": "50", "tke.cloud.tencent.com/qgpu-memory": "1"}),
    ],
)
def test_two_halves_share_a_card_in_every_vocabulary(
    annotations: dict[str, str], limits: dict[str, str]
) -> None:
    pods = [asking(name, annotations, **limits) for name in "abc"]
    found = given(gpu_node(), *pods)
    assert found == {"a": [(0, 0.5)], "b": [(0, 0.5)]}


def test_halves_of_different_vocabularies_share_a_card() -> None:
    pods = [asking("a", {"gpu-fraction": "0.5"}), asking("b", **GIB), asking("c", {"gpu-fraction": "0.2"})]
    assert given(gpu_node(), *pods) == {"a": [(0, 0.5)], "b": [(0, 0.417)]}


def test_a_card_is_whole_or_shared() -> None:
    pods = [asking("a", {"gpu-fraction": "0.5"}), asking("b", **{GPU: "1"})]
    assert given(gpu_node(), *pods) == {"a": [(0, 0.5)]}
    assert given(gpu_node(gpus=2), *pods) == {"a": [(0, 0.5)], "b": [(1, 1.0)]}


def test_the_cards_of_one_request_are_distinct() -> None:
    two = asking("a", **{"volcano.sh/vgpu-number": "2", "volcano.sh/vgpu-memory": "1024"})
    assert given(gpu_node(gpus=1), two) == {}
    assert [index for index, _ in given(gpu_node(gpus=2), two)["a"]] == [0, 1]


def test_all_cores_are_exclusive_and_no_cores_find_no_place_where_all_are_given() -> None:
    every = {"volcano.sh/vgpu-memory": "1024", "volcano.sh/vgpu-cores": "100"}
    none = {"volcano.sh/vgpu-memory": "1024"}
    assert set(given(gpu_node(), asking("a", **every), asking("b", **none))) == {"a"}
    assert set(given(gpu_node(), asking("a", **none), asking("b", **every))) == {"a"}
    half = {**none, "volcano.sh/vgpu-cores": "50"}
    halves = [asking("a", **half), asking("b", **half)]
    assert set(given(gpu_node(), *halves, asking("c", **none))) == {"a", "b"}


def test_pods_of_a_group_on_different_cards() -> None:
    apart = [kai_pod(name, "g", requests={"volcano.sh/vgpu-memory": "1024"}) for name in "ab"]
    for one in apart:
        one["metadata"]["annotations"]["volcano.sh/vgpu-podgroup-policy"] = "spread"
    found = given(gpu_node(gpus=2), kai_queue("q"), kai_group("g", 2, "q"), *apart)
    assert sorted(cards[0][0] for cards in found.values()) == [0, 1]


def test_only_cards_of_the_kind_that_is_wished_for() -> None:
    other = gpu_node("t", gpus=1, mib=15360)
    other["metadata"]["labels"]["nvidia.com/gpu.product"] = "Tesla-T4"
    wish = asking("a", {"nvidia.com/use-gputype": "t4"}, **{GPU: "1"})
    (bind,) = plan(gpu_node(), other, wish)["binds"]
    assert bind["node"] == "t"
    large = asking("a", {"windlass.dev/gpu-min-memory": "20Gi", "gpu-fraction": "0.1"})
    (bind,) = plan(other, gpu_node(), large)["binds"]
    assert bind["node"] == "n"
    assert given(gpu_node(), asking("a", {"windlass.dev/gpu-model": "H100"}, **{GPU: "1"})) == {}


def test_slices_that_nodes_list() -> None:
    listed = gpu_node(gpus=0)
    listed["status"]["allocatable"]["nvidia.com/mig-1g.6gb"] = "2"
    pods = [asking(name, **{"nvidia.com/mig-1g.6gb": "1"}) for name in "abc"]
    assert given(listed, *pods) == {"a": [(0, "1g.6gb")], "b": [(1, "1g.6gb")]}


def carved_node() -> dict[str, Any]:
    obj = gpu_node(gpus=1, mib=81920, **{"windlass.dev/mig": "dynamic"})
    obj["metadata"]["labels"]["nvidia.com/gpu.product"] = "NVIDIA-A100-SXM4-80GB"
    return obj


def test_slices_that_are_carved_by_profile_and_by_memory() -> None:
    by_profile = asking("a", **{"nvidia.com/mig-3g.40gb": "1"})
    by_memory = asking("b", {"windlass.dev/gpu-memory": "9Gi"})
    by_mode = asking("c", {"volcano.sh/vgpu-mode": "mig"}, **{"volcano.sh/vgpu-memory": "15000"})
    found = given(carved_node(), by_profile, by_memory, by_mode)
    assert {name: cards[0][1] for name, cards in found.items()} == {
        "a": "3g.40gb",
        "b": "1g.10gb",
        "c": "1g.20gb",
    }
    assert given(carved_node(), asking("a", {"gpu-fraction": "0.5"})) == {}
    assert given(carved_node(), asking("a", {"volcano.sh/vgpu-mode": "hami-core"}, **GIB)) == {}


def test_replicas_of_cards_are_not_shared_again() -> None:
    replicas = gpu_node(gpus=4, **{"nvidia.com/gpu.sharing-strategy": "time-slicing"})
    assert given(replicas, asking("a", {"gpu-fraction": "0.5"})) == {}
    assert given(replicas, asking("a", **{GPU: "1"})) == {"a": [(0, 1.0)]}


def test_a_queues_limit_of_gpus_counts_parts() -> None:
    small = queue("default", capability={GPU: "1"})
    pods = [asking(name, {"gpu-fraction": "0.4"}) for name in "abc"]
    assert set(given(gpu_node(gpus=4), small, *pods)) == {"a", "b"}
    assert why("c", gpu_node(gpus=4), small, *pods).startswith(
        ("ExceedsQueueLimit", "WaitingForQuota", "QueueLimit")
    )


def test_a_queue_may_limit_the_memory_of_virtual_gpus() -> None:
    small = queue("default", capability={"volcano.sh/vgpu-memory": "3000"})
    pods = [asking(name, **{"volcano.sh/vgpu-memory": "1500"}) for name in "abc"]
    assert set(given(gpu_node(gpus=4), small, *pods)) == {"a", "b"}


def test_kais_quota_counts_claims_and_slices() -> None:
    listed = gpu_node(gpus=0)
    listed["status"]["allocatable"]["nvidia.com/mig-3g.40gb"] = "4"
    poor = kai_queue("q", gpus=1)
    poor["spec"]["resources"]["gpu"]["limit"] = 1
    work = [
        (kai_group(f"g{at}", 1, "q"), kai_pod(f"p{at}", f"g{at}", requests={"nvidia.com/mig-3g.40gb": "1"}))
        for at in range(3)
    ]
    found = given(listed, poor, *(obj for pair in work for obj in pair))
    assert len(found) == 2  # 3 of 7 compute slices each


def test_devices_of_claims_count_for_quota_like_ordinary_ones() -> None:
    poor = kai_queue("q", gpus=1)
    poor["spec"]["resources"]["gpu"]["limit"] = 1
    template = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "t", "namespace": "default"},
        "spec": {
            "spec": {
                "devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}]}
            }
        },
    }
    objects = [gpu_node(gpus=4), poor, template]
    for name in "ab":
        claimer = kai_pod(name, f"g{name}", requests={"cpu": "1"})
        claimer["spec"]["resourceClaims"] = [{"name": "g", "resourceClaimTemplateName": "t"}]
        objects += [kai_group(f"g{name}", 1, "q"), claimer]
    assert given(*objects) == {"a": [(0, 1.0)]}
    assert "quota" in why("gb", *objects).lower() or "limit" in why("gb", *objects).lower()


def test_what_waits_says_what_it_lacks() -> None:
    told = why("a", gpu_node(mib=8192), asking("a", **GIB))
    assert "10240 MiB of its memory" in told
    wrong = why("a", gpu_node(), asking("a", {"gpu-fraction": "2"}))
    assert wrong.startswith("Misconfigured")
    assert "metadata.annotations[gpu-fraction]" in wrong


def test_the_same_claim_as_a_resource_and_as_a_claim() -> None:
    fragment = pod("a", requests={"cpu": "1"})
    fragment["spec"]["containers"][0]["resources"]["claims"] = [
        {"name": "gpu-claim", "deviceClassName": "nvidia.com/gpu"}
    ]
    assert given(gpu_node(gpus=2), fragment) == given(gpu_node(gpus=2), asking("a", **{GPU: "1"}))


_WORDS = st.sampled_from(
    [
        ({"gpu-fraction": "0.3"}, {}),
        ({"gpu-fraction": "0.5", "gpu-fraction-num-devices": "2"}, {}),
        ({"gpu-memory": "9000"}, {}),
        ({"windlass.dev/gpu-memory": "9Gi"}, {}),
        ({"windlass.dev/gpu-memory": "30Gi", "windlass.dev/gpu-sharing": "slices"}, {}),
        ({"windlass.dev/gpu-compute": "70"}, {}),
        ({}, GIB),
        (
            {},
            {"volcano.sh/vgpu-number": "2", "volcano.sh/vgpu-memory": "7000", "volcano.sh/vgpu-cores": "40"},
        ),
        ({}, {"volcano.sh/vgpu-cores": "100"}),
        ({}, {"nvidia.com/gpumem-percentage": "60"}),
        ({}, {"nvidia.com/mig-2g.20gb": "1"}),
        ({}, {"nvidia.com/mig-1g.10gb": "2"}),
        ({}, {GPU: "1"}),
        ({"windlass.dev/gpu-model": "A100"}, {GPU: "2"}),
    ]
)


@settings(max_examples=examples(40), deadline=None)
@over(st.lists(_WORDS, min_size=1, max_size=14), st.booleans())
def test_no_card_is_given_beyond_what_it_has(
    wished: list[tuple[dict[str, str], dict[str, str]]], carved: bool
) -> None:
    """By the ledger, which knows nothing of the engine."""
    nodes = [gpu_node("n", 2), gpu_node("m", 2, 81920, **{"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"})]
    if carved:
        nodes.append(carved_node())
        nodes[-1]["metadata"]["name"] = "c"
    pods = [asking(f"p{at}", notes, **limits) for at, (notes, limits) in enumerate(wished)]
    found, model = planned(*nodes, *pods)
    ledger = NodeUsage()
    for one in model.objects.pods.values():
        ledger.change(None, one)
    for one in model.objects.pods.values():
        if one.node_name:
            assert ledger.overflow(one, model.objects.nodes[one.node_name]) is None
    waiting = {name for entry in found["pending"] for name in entry["pods"]}
    assert len(waiting) + len(found["binds"]) == len(pods)


def test_a_plan_of_a_running_cluster_reads_what_the_scheduler_reads() -> None:
    """Storage classes, drivers and pools too; other versions of a kind and Workload are read from dumps alone."""
    read = {f"{kind.api_version}/{kind.kind}" for kind in live_cluster.read_kinds()}
    versions = {f"scheduling.k8s.io/{version}/PodGroup" for version in ("v1alpha2", "v1alpha3")}
    topologies = {f"topology.node.k8s.io/{v}/NodeResourceTopology" for v in ("v1alpha1", "v1alpha2")}
    assert set(KINDS) - read < versions | topologies | {"scheduling.k8s.io/v1alpha1/Workload"}
    assert len(read & versions) == len(read & topologies) == 1
