"""Device claims: needs, writes, and errors of unsupported fields."""

from __future__ import annotations

from typing import Any

import pytest
from claimobjects import GPU, NVIDIA, claim, claimer, device_class, exactly, gpu_node, selector
from kubeobjects import node, pod

from windlass.api import views
from windlass.engine import deltas
from windlass.engine.decision import Bind, DeviceShare
from windlass.model.cluster.cluster_model import ClusterModel
from windlass.model.devices.dra_claims import ClaimsChanged
from windlass.spi.devices import DeviceMode, DeviceNeed, DeviceOption
from windlass.spi.objects import Needs, Task

NOW = 1_767_268_800.0  # 2026-01-01T12:00:00Z


class World:
    def __init__(self, *objects: tuple[str, dict[str, Any]]) -> None:
        self.model = ClusterModel(["windlass"])
        self.model.features.claims.upsert(views.decode_device_class(views.encode(NVIDIA)))
        for kind, obj in objects:
            self.add(kind, obj)

    def add(self, kind: str, obj: dict[str, Any]) -> World:
        raw = views.encode(obj)
        match kind:
            case "pod":
                self.model.objects.upsert_pod(views.decode_pod(raw))
            case "node":
                self.model.objects.upsert_node(views.decode_node(raw))
            case "claim":
                self.model.features.claims.upsert(views.decode_device_claim(raw))
            case "template":
                self.model.features.claims.upsert(views.decode_claim_template(raw))
            case "class":
                self.model.features.claims.upsert(views.decode_device_class(raw))
            case "slice":
                self.model.features.claims.upsert(views.decode_resource_slice(raw))
        return self

    def tasks(self) -> dict[str, Task]:
        return {d.task.key: d.task for d in self.model.take() if isinstance(d, deltas.TaskUpserted)}

    def needs(self, key: str = "default/a") -> Needs:
        return self.tasks()[key].needs

    def told(self, name: str = "a") -> str:
        assert f"default/{name}" not in self.tasks()
        found = self.model.explanation(f"default/pod:{name}")
        assert found is not None
        return found.message


def test_claim_is_a_need_of_whole_devices_and_charged_like_one() -> None:
    world = World(
        ("node", gpu_node("n")), ("claim", claim("c", exactly(count=2))), ("pod", claimer(claim="c"))
    )
    needs = world.needs()
    assert needs.devices == (DeviceNeed(GPU, 2, milli=1000),)
    assert dict(needs.request) == {"cpu": 1000, GPU: 2000}
    assert dict(needs.node_request) == {"cpu": 1000}


def test_template_determines_the_needs_of_its_pods() -> None:
    template = {
        "metadata": {"name": "t", "namespace": "default"},
        "spec": {"spec": {"devices": {"requests": [exactly()]}}},
    }
    world = World(("node", gpu_node("n")), ("template", template), ("pod", claimer(template="t")))
    assert world.needs().devices == (DeviceNeed(GPU, 1, milli=1000),)


def test_pod_waits_until_its_claim_is_created_in_a_live_cluster() -> None:
    template = {
        "metadata": {"name": "t", "namespace": "default"},
        "spec": {"spec": {"devices": {"requests": [exactly()]}}},
    }
    world = World(("node", gpu_node("n")), ("template", template), ("pod", claimer(template="t")))
    world.model.features.claims.index.generated = True
    assert "is being created" in world.told()
    made = claimer(template="t")
    made["status"] = {"resourceClaimStatuses": [{"name": "g", "resourceClaimName": "a-g-x"}]}
    world.add("claim", claim("a-g-x", exactly())).add("pod", made)
    assert world.needs().devices == (DeviceNeed(GPU, 1, milli=1000),)


@pytest.mark.parametrize(
    ("expression", "need"),
    [
        ("true", DeviceNeed(GPU, 1, milli=1000)),
        (
            "device.attributes['gpu.nvidia.com'].productName.contains('H100')",
            DeviceNeed(GPU, 1, milli=1000, models=("NVIDIA-H100-80GB-HBM3",)),
        ),
        (
            "device.capacity['gpu.nvidia.com'].memory.isGreaterThan(quantity('40Gi'))",
            DeviceNeed(GPU, 1, milli=1000, models=("NVIDIA-H100-80GB-HBM3",)),
        ),
    ],
)
def test_selectors_match_devices_that_nodes_report(expression: str, need: DeviceNeed) -> None:
    world = World(
        ("node", gpu_node("n")),
        ("node", gpu_node("t", 2, "Tesla-T4", 15360)),
        ("claim", claim("c", exactly(selectors=selector(expression)))),
        ("pod", claimer(claim="c")),
    )
    assert world.needs().devices == (need,)


def test_devices_of_one_model_are_distinguished_by_memory() -> None:
    world = World(
        ("node", gpu_node("n", 1, "X", 80000)),
        ("node", gpu_node("t", 1, "X", 40000)),
        (
            "claim",
            claim(
                "c",
                exactly(
                    selectors=selector(
                        "device.capacity['gpu.nvidia.com'].memory.isGreaterThan(quantity('50Gi'))"
                    )
                ),
            ),
        ),
        ("pod", claimer(claim="c")),
    )
    assert world.needs().devices == (DeviceNeed(GPU, 1, milli=1000, min_memory_mib=80000),)


def test_all_devices_of_a_node_with_equal_counts_everywhere() -> None:
    every = claim("c", exactly(allocationMode="All"))
    world = World(
        ("node", gpu_node("n")), ("node", gpu_node("m")), ("claim", every), ("pod", claimer(claim="c"))
    )
    assert world.needs().devices == (DeviceNeed(GPU, 8, milli=1000),)
    world.add("node", gpu_node("odd", 2))
    (need,) = world.needs().devices
    assert need.joint is not None
    assert need.joint.claims == (((DeviceOption(DeviceNeed(GPU, 1, milli=1000), every=True),),),)


def test_first_alternative_that_the_cluster_can_serve_is_used() -> None:
    options = {
        "name": "any",
        "firstAvailable": [
            {"name": "b200", "deviceClassName": "none"},
            {"name": "many", "deviceClassName": "gpu.nvidia.com", "count": 16},
            {"name": "few", "deviceClassName": "gpu.nvidia.com", "count": 4},
        ],
    }
    world = World(("node", gpu_node("n")), ("claim", claim("c", options)), ("pod", claimer(claim="c")))
    assert world.needs().devices == (DeviceNeed(GPU, 4, milli=1000),)
    options["firstAvailable"] = options["firstAvailable"][:2]  # type: ignore[index]
    world.add("claim", claim("c", options))
    told = world.told()
    assert "DeviceClass none does not exist" in told
    assert "no node has 16 such devices" in told


@pytest.mark.parametrize(
    ("request_", "spec", "words"),
    [
        (exactly(device_class="none"), {}, "DeviceClass none does not exist"),
        (exactly(capacity={"requests": {"memory": "1Ti"}}), {}, "can give memory 1Ti"),
        (exactly(capacity={"requests": {"cores": "1"}}), {}, "can give cores 1"),
        (
            exactly(),
            {"constraints": [{"matchAttribute": "x.com/y"}]},
            "matchAttribute: no device that could serve it has x.com/y",
        ),
        (exactly(allocationMode="ExactCount", count=33), {}, "no node has 33 such devices"),
        (exactly(selectors=selector("cel.bind(a, b, c)")), {}, "not served at character 1"),
        (exactly(selectors=selector("device.attributes['x.com'].y == 1")), {}, "has no value for a device"),
        (exactly(selectors=selector("false")), {}, "no device of the cluster"),
        (exactly(count=9), {}, "no node has 9 such devices"),
    ],
)
def test_unsupported_fields_are_reported(request_: dict[str, Any], spec: dict[str, Any], words: str) -> None:
    world = World(
        ("node", gpu_node("n")), ("claim", claim("c", request_, **spec)), ("pod", claimer(claim="c"))
    )
    assert words in world.told()


def test_missing_claims_are_reported() -> None:
    assert "ResourceClaim default/c does not exist" in World(("pod", claimer(claim="c"))).told()
    assert "ResourceClaimTemplate default/t does not exist" in World(("pod", claimer(template="t"))).told()


def test_pod_starts_when_its_claim_is_created() -> None:
    world = World(("node", gpu_node("n")), ("pod", claimer(claim="c")))
    assert "does not exist" in world.told()
    assert world.add("claim", claim("c", exactly())).needs().devices


def test_pods_that_share_a_claim_need_its_devices_once_and_its_node() -> None:
    world = World(
        ("node", gpu_node("n")),
        ("claim", claim("c", exactly())),
        ("pod", claimer("a", claim="c", created="2026-01-01T00:00:00Z")),
        ("pod", claimer("b", claim="c", created="2026-01-01T00:00:01Z")),
    )
    tasks = world.tasks()
    assert set(tasks) == {"default/a"}
    told = world.model.explanation("default/pod:b")
    assert told is not None
    assert "pod default/a carries it" in told.message
    bound = claimer("a", claim="c", created="2026-01-01T00:00:00Z", node="n", phase="Running")
    bound["metadata"]["annotations"] = {"windlass.dev/devices": "3"}
    later = world.add("pod", bound).needs("default/b")
    assert later.devices == ()
    assert later.node_terms is not None
    assert later.node_terms[0].fields[0].values == ("n",)
    bind = Bind("default/b", "uid-default-b", "default/pod:b", "n")
    assert world.model.writes.annotations(bind, 0.0) == {"windlass.dev/devices": "3"}


def test_another_pod_carries_a_claim_after_its_carrier_ended() -> None:
    first = claimer("a", claim="c", created="2026-01-01T00:00:00Z", node="n", phase="Running")
    second = claimer("b", claim="c", created="2026-01-01T00:00:01Z", node="n", phase="Running")
    for one in (first, second):
        one["metadata"]["annotations"] = {"windlass.dev/devices": "3"}
    world = World(("node", gpu_node("n")), ("claim", claim("c", exactly())), ("pod", first), ("pod", second))
    tasks = world.tasks()
    assert tasks["default/a"].needs.devices
    assert not tasks["default/b"].needs.devices
    world.model.objects.remove_pod("default/a")
    after = world.tasks()["default/b"]
    assert after.needs.devices == (DeviceNeed(GPU, 1, milli=1000),)
    assert after.devices == (3,)


def test_no_eviction_frees_devices_that_other_pods_still_use() -> None:
    """A claim stays allocated until its last user is deleted, so evicting its carrier frees nothing."""
    carrier = claimer("a", claim="c", created="2026-01-01T00:00:00Z", node="n", phase="Running")
    user = claimer("b", claim="c", created="2026-01-01T00:00:01Z", node="n", phase="Running")
    for one in (carrier, user):
        one["metadata"]["annotations"] = {"windlass.dev/devices": "3"}
    world = World(("node", gpu_node("n")), ("claim", claim("c", exactly())), ("pod", carrier))
    assert world.tasks()["default/a"].preemptible
    tasks = world.add("pod", user).tasks()
    assert not tasks["default/a"].preemptible
    assert tasks["default/b"].preemptible, "it holds no device: its processors are its own"
    user["status"]["phase"] = "Succeeded"
    assert world.add("pod", user).tasks()["default/a"].preemptible


def test_writes_before_a_pod_with_a_claim_is_bound() -> None:
    world = World(
        ("node", gpu_node("n")), ("claim", claim("c", exactly(count=2))), ("pod", claimer(claim="c"))
    )
    assert world.needs()
    shares = (DeviceShare(1, GPU), DeviceShare(4, GPU))
    bind = Bind("default/a", "uid-default-a", "default/pod:a", "n", shares)
    write, kept = world.model.writes.claim_writes(bind, NOW)
    assert (write.namespace, write.name, write.subresource) == ("default", "c", "status")
    assert (kept.namespace, kept.name, kept.subresource) == ("default", "c", "")
    metadata: Any = kept.body["metadata"]
    assert metadata["finalizers"] == ["resource.kubernetes.io/delete-protection"]
    assert write.body == {
        "metadata": {"resourceVersion": "7"},
        "status": {
            "reservedFor": [{"resource": "pods", "name": "a", "uid": "uid-default-a"}],
            "allocation": {
                "devices": {
                    "results": [
                        {"request": "gpu", "driver": "gpu.nvidia.com", "pool": "n", "device": f"gpu-{at}"}
                        for at in (1, 4)
                    ]
                },
                "nodeSelector": {
                    "nodeSelectorTerms": [
                        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}
                    ]
                },
                "allocationTimestamp": "2026-01-01T12:00:00Z",
            },
        },
    }


def test_claim_of_a_failed_binding_is_allocated_again() -> None:
    stale = claim("c", exactly())
    stale["status"] = {
        "allocation": {
            "devices": {"results": [{"request": "gpu", "driver": "d", "pool": "m", "device": "x"}]}
        },
        "reservedFor": [{"resource": "pods", "name": "a", "uid": "uid-default-a"}],
    }
    world = World(("node", gpu_node("n")), ("claim", stale), ("pod", claimer(claim="c")))
    assert world.needs()
    bind = Bind("default/a", "uid-default-a", "default/pod:a", "n", (DeviceShare(1, GPU),))
    first, second, _ = world.model.writes.claim_writes(bind, NOW)
    assert first.body["status"] == {"allocation": None, "reservedFor": None}
    assert first.body["metadata"] == {"resourceVersion": "7"}
    status: Any = second.body["status"]
    assert status["allocation"]["devices"]["results"][0]["device"] == "gpu-1"
    assert "metadata" not in second.body


def test_protected_claim_is_not_written_again() -> None:
    guarded = claim("c", exactly())
    guarded["metadata"]["finalizers"] = ["example.com/x", "resource.kubernetes.io/delete-protection"]
    world = World(("node", gpu_node("n")), ("claim", guarded), ("pod", claimer(claim="c")))
    assert world.needs()
    bind = Bind("default/a", "uid-default-a", "default/pod:a", "n", (DeviceShare(1, GPU),))
    assert [write.subresource for write in world.model.writes.claim_writes(bind, NOW)] == ["status"]


def test_pod_that_shares_a_claim_is_added_to_its_users() -> None:
    taken = claim("c", exactly())
    taken["status"] = {
        "allocation": {"devices": {"results": []}},
        "reservedFor": [{"resource": "pods", "name": "a", "uid": "uid-default-a"}],
    }
    first = claimer("a", claim="c", node="n", phase="Running")
    world = World(("node", gpu_node("n")), ("claim", taken), ("pod", first), ("pod", claimer("b", claim="c")))
    assert world.tasks()
    (write,) = world.model.writes.claim_writes(Bind("default/b", "uid-default-b", "default/pod:b", "n"), NOW)
    status: Any = write.body["status"]
    assert [one["uid"] for one in status["reservedFor"]] == ["uid-default-a", "uid-default-b"]
    assert "allocation" not in status


def resource_slice(node_name: str, *devices: dict[str, Any], generation: int = 1) -> dict[str, Any]:
    return {
        "metadata": {"name": f"{node_name}-{generation}"},
        "spec": {
            "driver": "gpu.nvidia.com",
            "nodeName": node_name,
            "pool": {"name": node_name, "generation": generation, "resourceSliceCount": 1},
            "devices": list(devices),
        },
    }


def listed(name: str, product: str = "H100", **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "attributes": {"type": {"string": "gpu"}, "productName": {"string": product}},
        "capacity": {"memory": {"value": "80Gi"}},
        **more,
    }


def test_devices_of_slices_belong_to_their_node() -> None:
    world = World(
        ("node", node("n", gpus=0)),
        ("slice", resource_slice("n", listed("gpu-0"), listed("gpu-1", "A100"))),
        (
            "claim",
            claim(
                "c",
                exactly(selectors=selector("device.attributes['gpu.nvidia.com'].productName == 'A100'")),
            ),
        ),
        ("pod", claimer(claim="c")),
    )
    changes = world.model.take()
    (found,) = [d.node for d in changes if isinstance(d, deltas.NodeUpserted)]
    resource = "gpu.nvidia.com/accelerator"
    assert found.allocatable[resource] == 2000
    assert found.quota == {GPU: 2000}
    assert [(card.index, card.model, card.memory_mib) for card in found.devices] == [
        (0, "H100", 81920),
        (1, "A100", 81920),
    ]
    (task,) = [d.task for d in changes if isinstance(d, deltas.TaskUpserted)]
    assert task.needs.devices == (DeviceNeed(resource, 1, milli=1000, models=("A100",)),)
    assert dict(task.needs.request)[GPU] == 1000
    assert dict(task.needs.node_request) == {"cpu": 1000}
    bind = Bind("default/a", "uid-default-a", "default/pod:a", "n", (DeviceShare(1, resource),))
    write, _ = world.model.writes.claim_writes(bind, NOW)
    status: Any = write.body["status"]
    assert status["allocation"]["devices"]["results"][0]["device"] == "gpu-1"


def test_indistinguishable_slice_devices_are_selected_by_name() -> None:
    index = {"index": {"int": 1}, "type": {"string": "gpu"}, "productName": {"string": "H100"}}
    other = {**index, "index": {"int": 0}}
    chosen = selector("device.attributes['gpu.nvidia.com'].index == 1")
    world = World(
        ("node", node("n", gpus=0)),
        (
            "slice",
            resource_slice(
                "n", {"name": "gpu-0", "attributes": other}, {"name": "gpu-1", "attributes": index}
            ),
        ),
        ("claim", claim("c", exactly(selectors=chosen))),
        ("pod", claimer(claim="c")),
    )
    (found,) = world.needs().devices
    assert found.uuids == ("gpu.nvidia.com/n/gpu-1",)


def test_newest_generation_of_a_pool_counts() -> None:
    world = World(
        ("node", node("n", gpus=0)),
        ("slice", resource_slice("n", listed("old"))),
        (
            "slice",
            resource_slice(
                "n",
                listed("a"),
                listed("mig", consumesCounters=[{"counterSet": "x"}]),
                listed("many", allowMultipleAllocations=True),
                listed("bad", taints=[{"key": "k", "effect": "NoExecute"}]),
                generation=2,
            ),
        ),
    )
    (found,) = [d.node for d in world.model.take() if isinstance(d, deltas.NodeUpserted)]
    assert [(card.uuid, card.mode) for card in found.devices] == [
        ("gpu.nvidia.com/n/a", DeviceMode.PLAIN),
        ("gpu.nvidia.com/n/mig", DeviceMode.PLAIN),
        ("gpu.nvidia.com/n/many", DeviceMode.PLAIN),
        ("gpu.nvidia.com/n/bad", DeviceMode.NAMED),
    ]
    assert found.allocatable["gpu.nvidia.com/accelerator"] == 3000


@pytest.mark.parametrize("reach", [{"allNodes": True}, {"nodeSelector": {"nodeSelectorTerms": []}}])
def test_devices_that_several_nodes_reach_are_reported(reach: dict[str, Any]) -> None:
    far = resource_slice("n", listed("a"))
    del far["spec"]["nodeName"]
    far["spec"] |= reach
    world = World(("node", gpu_node("n")), ("slice", far), ("claim", claim("c", exactly("gpu", "far"))))
    world.add(
        "class", device_class("far", "gpu.nvidia.com", selectors=selector("device.driver == 'far.com'"))
    )
    world.add("pod", claimer(claim="c"))
    assert "no device of the cluster" in world.told()
    far["spec"]["driver"] = "far.com"
    world.add("slice", far)
    assert (
        f"device far.com/n/a is in ResourceSlice {far['metadata']['name']}, which several nodes"
        in world.told()
    )


def test_devices_disappear_with_their_slice() -> None:
    text = views.encode(resource_slice("n", listed("gpu-0")))
    world = World(("node", node("n", gpus=0)), ("claim", claim("c", exactly())), ("pod", claimer(claim="c")))
    assert "no device of the cluster" in world.told()
    world.model.features.claims.upsert(views.decode_resource_slice(text))
    assert world.needs().devices
    world.model.features.claims.remove(views.decode_resource_slice(text))
    changes = world.model.take()
    (found,) = [d.node for d in changes if isinstance(d, deltas.NodeUpserted)]
    assert found.devices == ()
    assert found.quota == {}
    assert [d.key for d in changes if isinstance(d, deltas.TaskRemoved)] == ["default/a"]


def test_claims_templates_and_classes_can_be_deleted() -> None:
    world = World(("node", gpu_node("n")), ("claim", claim("c", exactly())), ("pod", claimer(claim="c")))
    assert world.needs().devices
    world.model.features.claims.remove(world.model.features.claims.index.classes["gpu.nvidia.com"])
    world.model.take()  # the class of the driver is known without an object
    world.model.features.claims.remove(world.model.features.claims.index.claims["default/c"])
    world.model.take()
    told = world.model.explanation("default/pod:a")
    assert told is not None
    assert "does not exist" in told.message


def test_container_can_name_a_class_directly() -> None:
    obj = pod("a", requests={"cpu": "1"})
    obj["spec"]["containers"][0]["resources"]["claims"] = [
        {"name": "gpu-claim", "deviceClassName": "nvidia.com/gpu"}
    ]
    world = World(("node", gpu_node("n")), ("pod", obj))
    assert world.needs().devices == (DeviceNeed(GPU, 1, milli=1000),)


def test_change_of_a_claim_marks_only_its_own_pods() -> None:
    """Otherwise each allocation would translate all of ten thousand pods with claims again."""
    world = World(("node", gpu_node("n1")))
    for i in range(5):
        world.add("claim", claim(f"c{i}", exactly())).add("pod", claimer(f"p{i}", claim=f"c{i}"))
    made = claimer("own", template="t")
    made["status"] = {"resourceClaimStatuses": [{"name": "g", "resourceClaimName": "own-g"}]}
    world.add("pod", made).add("pod", claimer("also", claim="c1"))
    world.model.take()
    world.add("claim", claim("c1", exactly(count=2)))
    assert world.model.marked_pods == 2
    world.model.take()
    world.add("claim", claim("own-g", exactly()))
    assert world.model.marked_pods == 1
    world.add("claim", claim("nobodys", exactly()))
    assert world.model.marked_pods == 1
    for key in list(world.model.objects.pods):
        world.model.objects.remove_pod(key)
    assert (world.model.features.claims.index.users, world.model.features.claims.index._owners) == ({}, {})


def test_allocation_contains_configuration_of_class_and_claim() -> None:
    """As kube-scheduler copies it: a driver reads nothing but the allocation."""
    opaque = {"opaque": {"driver": "gpu.nvidia.com", "parameters": {"sharing": {"strategy": "MPS"}}}}
    other = {"opaque": {"driver": "gpu.nvidia.com", "parameters": {"channel": 7}}}
    made = {**NVIDIA, "spec": {**NVIDIA["spec"], "config": [opaque]}}
    first = {
        "name": "b",
        "firstAvailable": [
            {"name": "none", "deviceClassName": "none"},
            {"name": "one", "deviceClassName": "gpu.nvidia.com"},
        ],
    }
    config = [
        {**other},
        {"requests": ["a"], **other},
        {"requests": ["b/one"], **other},
        {"requests": ["b/none"], **other},
    ]
    world = World(
        ("class", made),
        ("node", gpu_node("n")),
        ("claim", claim("c", exactly("a"), first, config=config)),
        ("pod", claimer(claim="c")),
    )
    assert world.needs()
    shares = (DeviceShare(0, GPU), DeviceShare(1, GPU))
    write, _ = world.model.writes.claim_writes(
        Bind("default/a", "uid-default-a", "default/pod:a", "n", shares), NOW
    )
    status: Any = write.body["status"]
    devices = status["allocation"]["devices"]
    assert [one["request"] for one in devices["results"]] == ["a", "b/one"]
    assert devices["config"] == [
        {"source": "FromClass", "requests": ["a", "b/one"], **opaque},
        {"source": "FromClaim", **other},
        {"source": "FromClaim", "requests": ["a"], **other},
        {"source": "FromClaim", "requests": ["b/one"], **other},
    ]


def test_tolerations_of_a_request_are_written_with_its_devices() -> None:
    """The controller that evicts pods from tainted devices reads them."""
    tolerations = [{"key": "example.com/slow", "operator": "Exists"}]
    world = World(
        ("node", gpu_node("n")),
        ("claim", claim("c", exactly(tolerations=tolerations))),
        ("pod", claimer(claim="c")),
    )
    assert world.needs()
    bind = Bind("default/a", "uid-default-a", "default/pod:a", "n", (DeviceShare(1, GPU),))
    status: Any = world.model.writes.claim_writes(bind, NOW)[0].body["status"]
    assert status["allocation"]["devices"]["results"][0]["tolerations"] == tolerations


def test_claim_without_requests_is_allocated_too() -> None:
    """A kubelet starts no pod with a claim that has no allocation."""
    world = World(("node", gpu_node("n")), ("claim", claim("c")), ("pod", claimer(claim="c")))
    assert world.needs().devices == ()
    write, kept = world.model.writes.claim_writes(
        Bind("default/a", "uid-default-a", "default/pod:a", "n"), NOW
    )
    status: Any = write.body["status"]
    assert status["allocation"]["devices"] == {"results": []}
    assert kept.body["metadata"]


def allocated(name: str, result: dict[str, Any], user: str, **fields: Any) -> dict[str, Any]:
    """As another scheduler has allocated it."""
    made = claim(name, exactly(**fields))
    made["status"] = {
        "allocation": {"devices": {"results": [result]}},
        "reservedFor": [{"resource": "pods", "name": user, "uid": f"uid-default-{user}"}],
    }
    return made


def test_admin_access_holds_no_device() -> None:
    result = {"request": "gpu", "driver": "gpu.nvidia.com", "pool": "n", "device": "gpu-1"}
    world = World(
        ("node", node("n", gpus=0)),
        ("slice", resource_slice("n", listed("gpu-0"), listed("gpu-1"))),
        ("claim", allocated("c", {**result, "adminAccess": True}, "monitor", adminAccess=True)),
        ("claim", allocated("d", {**result, "device": "gpu-0"}, "user")),
        ("pod", claimer("monitor", claim="c", node="n", scheduler="default-scheduler")),
        ("pod", claimer("user", claim="d", node="n", scheduler="default-scheduler")),
    )
    tasks = world.tasks()
    assert tasks["default/user"].devices == (0,)
    assert tasks["default/monitor"].devices == ()
    assert tasks["default/monitor"].needs.devices == ()


def test_devices_allocated_by_kube_scheduler_for_an_amount_are_held() -> None:
    """``extendedResourceName`` of a class: the claim is named in the pod's status alone, and no amount is held."""
    result = {"request": "container-0-request-0", "driver": "gpu.nvidia.com", "pool": "n", "device": "gpu-1"}
    user = pod("user", requests={"cpu": "1", GPU: "1"}, node="n", scheduler="default-scheduler")
    user["status"]["extendedResourceClaimStatus"] = {
        "resourceClaimName": "user-extended",
        "requestMappings": [
            {"containerName": "main", "resourceName": GPU, "requestName": "container-0-request-0"}
        ],
    }
    world = World(
        ("node", node("n", gpus=0)),
        ("slice", resource_slice("n", listed("gpu-0"), listed("gpu-1"))),
        ("claim", allocated("user-extended", result, "user")),
        ("pod", user),
    )
    task = world.tasks()["default/user"]
    assert task.devices == (1,)
    resource = "gpu.nvidia.com/accelerator"
    assert task.needs.devices == (DeviceNeed(resource, 1, milli=1000),)
    assert dict(task.needs.node_request) == {"cpu": 1000}
    assert dict(task.needs.request) == {"cpu": 1000, GPU: 1000}


def test_kubelet_only_serves_devices_that_a_driver_lists() -> None:
    """A cluster that migrates from device plugins to drivers has nodes of both kinds."""
    by_plugin = gpu_node("old")
    by_plugin["status"]["nodeInfo"] = {"kubeletVersion": "v1.36.3"}
    world = World(("node", by_plugin), ("claim", claim("c", exactly())), ("pod", claimer(claim="c")))
    assert "that a driver lists in ResourceSlices" in world.told()
    world.add("node", node("new", gpus=0)).add("slice", resource_slice("new", listed("gpu-0")))
    assert world.needs().devices == (DeviceNeed("gpu.nvidia.com/accelerator", 1, milli=1000),)


def test_devices_of_an_agent_serve_claims() -> None:
    own = gpu_node("n")
    own["status"]["nodeInfo"] = {"kubeletVersion": "v1.35.0+windlass"}
    world = World(("node", own), ("claim", claim("c", exactly())), ("pod", claimer(claim="c")))
    assert world.needs().devices == (DeviceNeed(GPU, 1, milli=1000),)


def test_pools_with_devices_to_prepare_come_last() -> None:
    far = resource_slice("n", listed("far", bindingConditions=["example.com/there"]), listed("near"))
    far["spec"]["pool"]["name"] = "a"
    far["metadata"]["name"] = "far"
    world = World(("node", node("n", gpus=0)), ("slice", far), ("slice", resource_slice("n", listed("a"))))
    (found,) = [d.node for d in world.model.take() if isinstance(d, deltas.NodeUpserted)]
    assert [(card.uuid, card.late) for card in found.devices] == [
        ("gpu.nvidia.com/n/a", False),
        ("gpu.nvidia.com/a/far", True),
        ("gpu.nvidia.com/a/near", True),
    ]


def test_foreign_allocation_holds_devices_before_its_pod_is_bound() -> None:
    """kube-scheduler writes the allocation first, and the pod may then wait ten minutes for a volume."""
    result = {"request": "gpu", "driver": "gpu.nvidia.com", "pool": "n", "device": "gpu-1"}
    theirs = allocated("c", result, "theirs")
    field = {"key": "metadata.name", "operator": "In", "values": ["n"]}
    theirs["status"]["allocation"]["nodeSelector"] = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    world = World(
        ("node", node("n", gpus=0)),
        ("slice", resource_slice("n", listed("gpu-0"), listed("gpu-1"))),
        ("pod", claimer("theirs", claim="c", scheduler="default-scheduler")),
        ("claim", claim("c", exactly())),
    )

    def usable() -> list[bool]:
        (found,) = [d.node for d in world.model.take() if isinstance(d, deltas.NodeUpserted)]
        return [card.healthy for card in found.devices]

    assert usable() == [True, True]
    world.add("claim", theirs)
    task = world.tasks()["default/theirs"]
    assert (task.node, task.devices) == ("n", (1,))
    world.add("pod", claimer("theirs", claim="c", scheduler="default-scheduler", node="n"))
    task = world.tasks()["default/theirs"]
    assert (task.node, task.devices) == ("n", (1,))
    world.model.objects.remove_pod("default/theirs")
    assert usable() == [True, False]  # until the claim is given back
    world.add("claim", claim("c", exactly()))
    assert usable() == [True, True]
    world.add("claim", theirs)
    assert usable() == [True, False]
    world.model.features.claims.remove(world.model.features.claims.index.claims["default/c"])
    assert usable() == [True, True]


def test_allocation_of_an_owned_pod_is_not_released() -> None:
    """Its bind is in flight, or has failed, and the claim is then allocated again."""
    result = {"request": "gpu", "driver": "gpu.nvidia.com", "pool": "n", "device": "gpu-0"}
    own = allocated("c", result, "a")
    field = {"key": "metadata.name", "operator": "In", "values": ["n"]}
    own["status"]["allocation"]["nodeSelector"] = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    world = World(
        ("node", node("n", gpus=0)),
        ("slice", resource_slice("n", listed("gpu-0"))),
        ("claim", own),
        ("pod", claimer(claim="c")),
    )
    (found,) = [d.node for d in world.model.take() if isinstance(d, deltas.NodeUpserted)]
    assert [card.healthy for card in found.devices] == [True]


def allocated_on(name: str, device: str, user: str) -> dict[str, Any]:
    """As it is written before a pod is bound to node ``n``."""
    result = {"request": "gpu", "driver": "gpu.nvidia.com", "pool": "n", "device": device}
    made = allocated(name, result, user)
    field = {"key": "metadata.name", "operator": "In", "values": ["n"]}
    made["status"]["allocation"]["nodeSelector"] = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    return made


def test_devices_of_a_finished_pod_are_held_until_its_claim_is_released() -> None:
    """Kubernetes' controller does that, which may be late or away: until then its driver may have them prepared."""
    done = claimer("a", claim="c", node="n", phase="Running")
    world = World(
        ("node", node("n", gpus=0)),
        ("slice", resource_slice("n", listed("gpu-0"), listed("gpu-1"))),
        ("claim", allocated_on("c", "gpu-0", "a")),
        ("pod", done),
    )

    def usable() -> list[bool]:
        (found,) = [d.node for d in world.model.take() if isinstance(d, deltas.NodeUpserted)]
        return [card.healthy for card in found.devices]

    assert usable() == [True, True], "the pod holds one"
    done["status"]["phase"] = "Succeeded"
    world.add("pod", done)
    assert usable() == [False, True]
    world.add("claim", claim("c", exactly()))
    assert usable() == [True, True]


def test_new_allocation_releases_a_claim_of_a_pod_that_was_never_bound() -> None:
    """Its scheduler died between the allocation and the binding, or that failed; no device has two claims, not for a
    moment."""
    world = World(
        ("node", node("n", gpus=0)),
        ("slice", resource_slice("n", listed("gpu-0"), listed("gpu-1"))),
        ("claim", allocated_on("late", "gpu-0", "late")),
        ("pod", claimer("late", claim="late")),
        ("claim", claim("c", exactly())),
        ("pod", claimer("a", claim="c")),
    )
    assert world.tasks()
    resource = "gpu.nvidia.com/accelerator"

    def written(device: int) -> list[tuple[str, Any]]:
        bind = Bind("default/a", "uid-default-a", "default/pod:a", "n", (DeviceShare(device, resource),))
        writes = world.model.writes.claim_writes(bind, NOW)
        return [(one.name, one.body["status"]["allocation"]) for one in writes if one.subresource]  # type: ignore[index]

    (freed, nothing), (name, allocation) = written(0)
    assert (freed, nothing, name) == ("late", None, "c")
    assert [one["device"] for one in allocation["devices"]["results"]] == ["gpu-0"]
    assert [name for name, _ in written(1)] == ["c"]
    world.add("pod", claimer("late", claim="late", node="n"))
    with pytest.raises(ClaimsChanged, match="claim default/late of pod default/late holds gpu-0 on n by now"):
        written(0)
    assert [name for name, _ in written(1)] == ["c"]
    world.add("pod", claimer("late", claim="late", scheduler="default-scheduler"))
    with pytest.raises(
        ClaimsChanged, match="holds gpu-0 on n by now"
    ):  # another scheduler is about to bind it
        written(0)
