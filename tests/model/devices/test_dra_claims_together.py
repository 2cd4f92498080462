"""Claims with joint requests: constraints, alternatives, all devices, taints, admin access."""

from __future__ import annotations

from typing import Any

import pytest
from claim_allocation import GPU, NIC, ROOT, ClaimScene, gpus, nics
from claimobjects import device, devices_of, exactly, gpu_node, selector

from windlass.api import views
from windlass.engine.engine import Engine
from windlass.model.devices.dra_claims import ClaimsChanged
from windlass.plugins.defaults import default_plugins

GPU_AND_NIC = (exactly("gpu", GPU), exactly("nic", NIC))
SAME_ROOT: dict[str, Any] = {"constraints": [{"matchAttribute": ROOT}]}


def first(*options: tuple[str, dict[str, Any]]) -> dict[str, Any]:
    return {"name": "any", "firstAvailable": [{"name": n, "deviceClassName": GPU, **f} for n, f in options]}


def index(number: int) -> list[dict[str, Any]]:
    return selector(f"device.attributes['{GPU}'].index == {number}")


def test_devices_match_in_a_required_attribute() -> None:
    scene = ClaimScene()
    scene.node("n", gpus("n", "r0", "r0", "r1"), nics("n", "r1", "r2"))
    scene.ask("a", *GPU_AND_NIC, **SAME_ROOT)
    assert scene.decide() == {"a": ("n", [("gpu", "gpu-2"), ("nic", "nic-0")])}
    scene.ask("b", *GPU_AND_NIC, **SAME_ROOT)
    assert scene.decide() == {}
    assert "agree in resource.kubernetes.io/pcieRoot" in scene.why("b")
    scene.end("a")
    assert scene.decide() == {"b": ("n", [("gpu", "gpu-2"), ("nic", "nic-0")])}


def test_constraint_applies_to_the_requests_that_it_names() -> None:
    scene = ClaimScene()
    scene.node("n", gpus("n", "r0", "r0", "r1", "r1"))
    requests = (exactly("a", GPU), exactly("b", GPU), exactly("c", GPU))
    scene.ask("x", *requests, constraints=[{"requests": ["a", "c"], "distinctAttribute": ROOT}])
    assert scene.decide() == {"x": ("n", [("a", "gpu-0"), ("b", "gpu-1"), ("c", "gpu-2")])}


def test_node_without_matching_devices_is_skipped() -> None:
    scene = ClaimScene()
    scene.node("a", gpus("a", "r0", "r1"))
    scene.node("b", gpus("b", "r0", "r0"))
    scene.ask("x", exactly("gpu", GPU, count=2), **SAME_ROOT)
    assert scene.decide() == {"x": ("b", [("gpu", "gpu-0"), ("gpu", "gpu-1")])}


def test_claim_that_no_node_can_serve_is_reported() -> None:
    scene = ClaimScene()
    scene.node("a", gpus("a", "r0", "r1"))
    scene.ask("x", exactly("gpu", GPU, count=2), **SAME_ROOT)
    assert scene.decide() == {}
    assert "agree in resource.kubernetes.io/pcieRoot" in scene.why("x")
    scene.ask("y", exactly("gpu", GPU), constraints=[{"matchAttribute": "x.com/none"}])
    assert scene.decide() == {}
    assert "matchAttribute: no device that could serve it has x.com/none" in scene.why("y")


def test_first_alternative_with_free_devices_is_used() -> None:
    scene = ClaimScene()
    scene.node("n", gpus("n", "r0", "r0", "r0"))
    two_or_one = first(("two", {"count": 2}), ("one", {}))
    for name in ("a", "b", "c"):
        scene.ask(name, two_or_one)
    assert scene.decide() == {
        "a": ("n", [("any/two", "gpu-0"), ("any/two", "gpu-1")]),
        "b": ("n", [("any/one", "gpu-2")]),
    }
    assert scene.charged("b") == {GPU + "/accelerator": 1000}
    assert scene.charged("c") == {GPU + "/accelerator": 2000}
    assert " or else " in scene.why("c")
    scene.end("b")
    assert scene.decide() == {"c": ("n", [("any/one", "gpu-2")])}


def test_alternative_that_blocks_another_request_is_skipped() -> None:
    scene = ClaimScene()
    scene.node("n", gpus("n", "r0", "r0"))
    scene.ask(
        "a",
        first(("zero", {"selectors": index(0)}), ("one", {"selectors": index(1)})),
        exactly("b", GPU, selectors=index(0)),
    )
    assert scene.decide() == {"a": ("n", [("any/one", "gpu-1"), ("b", "gpu-0")])}


def test_requests_of_overlapping_kinds_use_different_devices() -> None:
    scene = ClaimScene()
    scene.node("n", gpus("n", "r0", "r0"))
    scene.ask("a", exactly("any", GPU), exactly("zero", GPU, selectors=index(0)))
    assert scene.decide() == {"a": ("n", [("any", "gpu-1"), ("zero", "gpu-0")])}


def test_all_devices_of_a_node_with_any_count() -> None:
    scene = ClaimScene()
    scene.node("a", gpus("a", "r0", "r0"))
    scene.node("b", gpus("b", "r0", "r0", "r0"))
    scene.ask("one", exactly("gpu", GPU, selectors=selector(f"device.attributes['{GPU}'].index == 2")))
    assert scene.decide() == {"one": ("b", [("gpu", "gpu-2")])}
    scene.ask("x", exactly("gpu", GPU, allocationMode="All"))
    scene.ask("y", exactly("gpu", GPU, allocationMode="All"))
    assert scene.decide() == {"x": ("a", [("gpu", "gpu-0"), ("gpu", "gpu-1")])}
    assert "every device of a node" in scene.why("y")


def test_tainted_devices_are_allocated_to_tolerating_requests() -> None:
    taints = [{"key": "example.com/ecc", "value": "9", "effect": "NoSchedule"}]
    scene = ClaimScene()
    scene.node("n", gpus("n", "r0", taints=taints))
    assert scene.amounts("n") == {GPU + "/accelerator": 0}
    scene.ask("a", exactly("gpu", GPU))
    scene.ask("b", exactly("gpu", GPU, tolerations=[{"key": "example.com/ecc", "operator": "Exists"}]))
    assert scene.decide() == {"b": ("n", [("gpu", "gpu-0")])}
    assert "tainted (example.com/ecc=9:NoSchedule)" in scene.why("a")
    scene.end("b")
    scene.slice(gpus("n", "r0"))
    assert scene.decide() == {"a": ("n", [("gpu", "gpu-0")])}


def test_one_tainted_device_blocks_all_devices_of_its_node() -> None:
    """As in kube-scheduler. A randomised test compares the results elsewhere."""
    taint = {"key": "k", "value": "v", "effect": "NoSchedule"}
    scene = ClaimScene()
    scene.node("a", devices_of("a", GPU, device("gpu-0"), device("gpu-1", taints=[taint]), device("gpu-2")))
    scene.ask("x", exactly("gpu", GPU, allocationMode="All"))
    assert scene.decide() == {}
    assert "on every node some of the devices" in scene.why("x")
    scene.node("b", devices_of("b", GPU, device("gpu-0")))
    assert scene.decide() == {"x": ("b", [("gpu", "gpu-0")])}
    scene.ask("y", exactly("gpu", GPU, allocationMode="All", tolerations=[{"operator": "Exists"}]))
    assert scene.decide() == {"y": ("a", [("gpu", f"gpu-{at}") for at in range(3)])}


def test_a_device_that_is_tainted_while_it_is_held_stays_held() -> None:
    scene = ClaimScene()
    scene.node("n", gpus("n", "r0", "r0"))
    scene.ask("a", exactly("gpu", GPU))
    assert scene.decide() == {"a": ("n", [("gpu", "gpu-0")])}
    scene.slice(gpus("n", "r0", "r0", taints=[{"key": "k", "effect": "NoExecute"}]))
    scene.ask("b", exactly("gpu", GPU, tolerations=[{"operator": "Exists"}]))
    assert scene.decide() == {"b": ("n", [("gpu", "gpu-1")])}


def test_admin_request_gets_allocated_devices_and_holds_none() -> None:
    scene = ClaimScene()
    scene.node("n", gpus("n", "r0"))
    scene.ask("user", exactly("gpu", GPU))
    assert scene.decide() == {"user": ("n", [("gpu", "gpu-0")])}
    scene.ask("watch", exactly("all", GPU, allocationMode="All", adminAccess=True))
    assert scene.decide() == {"watch": ("n", [("all", "gpu-0")])}
    assert scene.claims["claim-watch"]["status"]["allocation"]["devices"]["results"][0]["adminAccess"] is True
    assert scene.charged("watch") == {}
    scene.end("user")
    scene.ask("next", exactly("gpu", GPU))
    assert scene.decide() == {"next": ("n", [("gpu", "gpu-0")])}


def test_incomplete_pool_allocates_nothing() -> None:
    scene = ClaimScene()
    pool = {"resourceSliceCount": 2}
    scene.node("n", devices_of("n", GPU, device("gpu-0"), pool=pool))
    scene.ask("a", exactly("gpu", GPU))
    assert scene.decide() == {}
    scene.slice(devices_of("n", GPU, device("gpu-1"), part="-2", pool=pool))
    assert scene.decide() == {"a": ("n", [("gpu", "gpu-0")])}


def test_pool_of_several_nodes_becomes_complete_on_all_at_once() -> None:
    pool = {"name": "rack", "resourceSliceCount": 2}
    scene = ClaimScene()
    scene.node("a", devices_of("a", GPU, device("gpu-0"), pool=pool))
    scene.ask("x", exactly("gpu", GPU, allocationMode="All"))
    assert scene.decide() == {}
    scene.node("b", devices_of("b", GPU, device("gpu-1"), device("gpu-2"), pool=pool))
    assert scene.decide() == {"x": ("a", [("gpu", "gpu-0")])}
    scene.model.features.claims.remove(
        views.decode_resource_slice(views.encode(devices_of("b", GPU, pool=pool)))
    )
    scene.ask("y", exactly("gpu", GPU))
    assert scene.decide() == {}


def test_devices_that_nodes_report_serve_alternatives_too() -> None:
    """Without a driver: the nodes of a box."""
    scene = ClaimScene()
    for obj in (gpu_node("h", 1), gpu_node("t", 2, "Tesla-T4", 15360)):
        scene.model.objects.upsert_node(views.decode_node(views.encode(obj)))
    name = "device.attributes['gpu.nvidia.com'].productName.contains"
    options = [
        {"name": "h100", "deviceClassName": "gpu.nvidia.com", "selectors": selector(f"{name}('H100')")},
        {"name": "t4", "deviceClassName": "gpu.nvidia.com", "selectors": selector(f"{name}('T4')")},
    ]
    for pod in ("a", "b", "c", "d"):
        scene.ask(pod, {"name": "any", "firstAvailable": options})
    decided = scene.decide()
    assert sorted((where, request) for where, ((request, _),) in decided.values()) == [
        ("h", "any/h100"),
        ("t", "any/t4"),
        ("t", "any/t4"),
    ]


def test_a_claim_holds_at_most_32_devices() -> None:
    scene = ClaimScene()
    scene.node("n", gpus("n", *["r0"] * 33))
    scene.ask("a", exactly("gpu", GPU, count=33))
    assert scene.decide() == {}
    assert "a claim holds at most 32 devices, not 33" in scene.why("a")
    scene.ask("b", exactly("x", GPU, count=32), exactly("y", GPU, selectors=index(0)))
    assert scene.decide() == {}
    scene.ask("c", exactly("x", GPU, count=31), exactly("y", GPU, selectors=index(0)))
    ((where, found),) = scene.decide().values()
    assert (where, len(found)) == ("n", 32)


def test_partitions_are_allocated_while_counters_last() -> None:
    """A driver that carves: a GPU, and the slices that could be made of it."""
    whole = {"consumesCounters": [{"counterSet": "g", "counters": {"memory": {"value": "40Gi"}}}]}
    half = {"consumesCounters": [{"counterSet": "g", "counters": {"memory": {"value": "20Gi"}}}]}
    pool = {"resourceSliceCount": 2}
    scene = ClaimScene()
    scene.node(
        "n",
        devices_of(
            "n",
            GPU,
            part="-counters",
            pool=pool,
            sharedCounters=[{"name": "g", "counters": {"memory": {"value": "40Gi"}}}],
        ),
        devices_of(
            "n",
            GPU,
            *[device(f"half-{at}", {"type": "mig"}, **half) for at in range(3)],
            device("whole", {"type": "gpu"}, **whole),
            pool=pool,
        ),
    )
    assert scene.amounts("n") == {GPU + "/accelerator": 1000}
    mig = exactly("mig", GPU, selectors=selector(f"device.attributes['{GPU}'].type == 'mig'"))
    gpu = exactly("gpu", GPU, selectors=selector(f"device.attributes['{GPU}'].type == 'gpu'"))
    scene.ask("a", mig)
    assert scene.decide() == {"a": ("n", [("mig", "half-0")])}
    assert scene.charged("a") == {GPU + "/accelerator": 500}
    scene.ask("w", gpu)
    assert scene.decide() == {}
    scene.ask("b", mig)
    scene.ask("c", mig)
    assert scene.decide() == {"b": ("n", [("mig", "half-1")])}
    for name in ("a", "b"):
        scene.end(name)
    assert set(scene.decide()) in ({"w"}, {"c"})


def test_outdated_selection_is_not_written() -> None:
    scene = ClaimScene()
    scene.node("n", gpus("n", "r0", "r0"))
    scene.ask("x", exactly("gpu", GPU, count=2), **SAME_ROOT)
    scene.engine.apply(scene.model.take(scene.now))
    (bind,) = scene.engine.cycle(scene.now).binds
    scene.model.binds.assume(bind)
    assert scene.model.writes.claim_writes(bind, scene.now)
    scene.slice(gpus("n", "r0", "r1"))
    with pytest.raises(ClaimsChanged, match="on n serve its claims no longer"):
        scene.model.writes.claim_writes(bind, scene.now)


def test_higher_priority_preempts_for_matching_devices() -> None:
    """One of four pods with a GPU each is below the root of the network adapter. Only it is evicted."""
    scene = ClaimScene("allocate", "preempt")
    scene.node("n", gpus("n", "r0", "r1", "r2", "r3"), nics("n", "r2"))
    for at in range(4):
        scene.ask(f"low-{at}", exactly("gpu", GPU, selectors=index(at)))
    assert len(scene.decide()) == 4
    scene.ask("high", *GPU_AND_NIC, priority=100, **SAME_ROOT)
    assert scene.decide() == {}
    assert scene.evicted == ["low-2"]
    scene.end("low-2")
    assert scene.decide() == {"high": ("n", [("gpu", "gpu-2"), ("nic", "nic-0")])}


def test_restored_engine_dump_contains_claim_needs() -> None:
    scene = ClaimScene()
    scene.node("n", gpus("n", "r0", "r0", "r1"), nics("n", "r1"))
    scene.ask("a", *GPU_AND_NIC, **SAME_ROOT)
    assert len(scene.decide()) == 1
    scene.ask("b", first(("two", {"count": 3}), ("one", {"count": 2})))
    scene.engine.apply(scene.model.take(scene.now))
    scene.engine = Engine.load(scene.engine.dump(), default_plugins())
    assert scene.decide() == {"b": ("n", [("any/one", "gpu-0"), ("any/one", "gpu-1")])}
    scene.engine = Engine.load(scene.engine.dump(), default_plugins())
    scene.end("a")
    scene.ask("c", *GPU_AND_NIC, **SAME_ROOT)
    assert scene.decide() == {"c": ("n", [("gpu", "gpu-2"), ("nic", "nic-0")])}
