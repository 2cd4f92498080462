"""Devices that may be allocated more than once: parts of them, counted against what they have."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from claim_allocation import GPU, ClaimScene
from claimobjects import claimer, device, devices_of, exactly, resource_claim

from windlass.api import views
from windlass.engine.config import EngineConfig
from windlass.engine.engine import Engine
from windlass.engine.invariants import check
from windlass.model.cluster.node_usage import NodeUsage
from windlass.plugins.defaults import default_plugins


def shared(node: str, *gib: int, **policy: Any) -> dict[str, Any]:
    told = {"requestPolicy": policy} if policy else {}
    return devices_of(
        node,
        GPU,
        *(
            device(
                f"gpu-{at}",
                allowMultipleAllocations=True,
                capacity={"memory": {"value": f"{size}Gi", **told}},
            )
            for at, size in enumerate(gib)
        ),
    )


def memory(gib: int, name: str = "a", **fields: Any) -> dict[str, Any]:
    return exactly(name, GPU, capacity={"requests": {"memory": f"{gib}Gi"}}, **fields)


def results(scene: ClaimScene, name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = scene.claims[f"claim-{name}"]["status"]["allocation"]["devices"]["results"]
    return found


def test_pods_share_a_device_until_it_is_exhausted() -> None:
    scene = ClaimScene()
    scene.node("n", shared("n", 80, 20))
    for name in "abcd":
        scene.ask(name, memory(30))
    assert scene.decide() == {"a": ("n", [("a", "gpu-0")]), "b": ("n", [("a", "gpu-0")])}
    assert scene.decide() == {}
    assert (
        "needs memory 30Gi of one accelerator (gpu.example.com/n/gpu-0); other pods hold too much"
        in scene.why("c")
    )
    scene.end("a")
    assert sorted(scene.decide()) == ["c"]


def test_share_is_written_with_its_consumption_and_id() -> None:
    scene = ClaimScene()
    scene.node("n", shared("n", 80, default="10Gi"))
    scene.ask("x", memory(30), exactly("b", GPU))
    scene.decide()
    first, second = results(scene, "x")
    assert (first["consumedCapacity"], second["consumedCapacity"]) == ({"memory": "30Gi"}, {"memory": "10Gi"})
    assert first["shareID"] != second["shareID"]
    assert len(first["shareID"]) == 36
    assert scene.words["x"] == {
        "windlass.dev/devices": "0",
        "windlass.dev/device-shares": "0:0/0,0:0/0",
    }


def test_queue_is_charged_the_share() -> None:
    scene = ClaimScene()
    scene.node("n", shared("n", 80))
    scene.ask("x", memory(20))
    scene.ask("y", memory(70))
    scene.decide()
    assert scene.charged("y") == {"gpu.example.com/accelerator": 875}
    assert scene.charged("x") == {"gpu.example.com/accelerator": 250}


def test_foreign_allocations_count() -> None:
    scene = ClaimScene()
    scene.node("n", shared("n", 80))
    result = {"request": "a", "driver": GPU, "pool": "n", "device": "gpu-0", "shareID": "s"}
    result["consumedCapacity"] = {"memory": "60Gi"}  # type: ignore[assignment]
    field = {"key": "metadata.name", "operator": "In", "values": ["n"]}
    claim = resource_claim("theirs", memory(60))
    claim["status"] = {
        "allocation": {
            "devices": {"results": [result]},
            "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]},
        }
    }
    scene.model.features.claims.upsert(views.decode_device_claim(views.encode(claim)))
    scene.ask("x", memory(30))
    assert scene.decide() == {}
    scene.model.features.claims.remove(views.decode_device_claim(views.encode(claim)))
    assert sorted(scene.decide()) == ["x"]


def test_restarted_scheduler_knows_the_shares() -> None:
    scene = ClaimScene()
    scene.node("n", shared("n", 80, 80))
    scene.ask("a", memory(50), memory(20, "b"), memory(30, "c"))
    scene.decide()
    scene.model.resend()
    scene.engine = Engine(EngineConfig(), default_plugins())
    scene.engine.apply(scene.model.take(scene.now))
    check(scene.engine)
    scene.ask("b", memory(60))
    assert scene.decide() == {}
    scene.ask("c", memory(50))
    assert scene.decide() == {"c": ("n", [("a", "gpu-1")])}


@pytest.mark.parametrize("number", [1, 3])
def test_devices_without_consumption_are_shared_by_all(number: int) -> None:
    scene = ClaimScene()
    scene.node("n", devices_of("n", GPU, device("d", allowMultipleAllocations=True)))
    for at in range(number):
        scene.ask(f"p{at}", exactly("a", GPU))
    assert sorted(scene.decide()) == [f"p{at}" for at in range(number)]


def test_higher_priority_preempts_shares() -> None:
    scene = ClaimScene("allocate", "preempt")
    scene.node("n", shared("n", 80))
    scene.ask("low", memory(50))
    scene.ask("other", memory(20))
    scene.decide()
    scene.ask("high", memory(60), priority=100)
    assert scene.decide() == {}
    assert scene.evicted == ["low"]


@pytest.mark.parametrize("seed", range(8))
def test_devices_are_never_overcommitted_and_fitting_pods_start(seed: int) -> None:
    rng = Random(seed)
    scene = ClaimScene()
    sizes = {f"n{at}": [rng.choice((20, 40, 80)) for _ in range(rng.randrange(1, 3))] for at in range(2)}
    for node, gib in sizes.items():
        scene.node(node, shared(node, *gib))
    asked: dict[str, int] = {}
    placed: dict[str, tuple[str, str]] = {}
    for step in range(25):
        if placed and rng.random() < 0.4:
            gone = rng.choice(sorted(placed))
            scene.end(gone)
            del placed[gone], asked[gone]
        else:
            asked[f"p{step}"] = rng.randrange(1, 50)
            scene.ask(f"p{step}", memory(asked[f"p{step}"]))
        for name, (where, given) in scene.decide().items():
            placed[name] = (where, given[0][1])
        left = {(node, f"gpu-{at}"): size for node, gib in sizes.items() for at, size in enumerate(gib)}
        for name, place in placed.items():
            left[place] -= asked[name]
        assert min(left.values()) >= 0
        assert all(asked[name] > max(left.values()) for name in asked.keys() - placed.keys())


def test_overcommitted_device_is_reported() -> None:
    """Two schedulers have decided at the same time."""
    scene = ClaimScene()
    scene.node("n", shared("n", 80))
    scene.ask("a", memory(50))
    scene.decide()
    book, node = scene.model.features.claims.index, scene.model.objects.nodes["n"]
    ledger = NodeUsage(book)
    ledger.change(None, scene.model.objects.pods["default/a"])
    assert ledger.overflow(scene.model.objects.pods["default/a"], node) is None
    theirs = scene.claims["claim-a"] | {
        "metadata": {**scene.claims["claim-a"]["metadata"], "name": "claim-b"}
    }
    theirs["status"]["allocation"]["devices"]["results"][0]["shareID"] = "another"
    book.upsert(views.decode_device_claim(views.encode(theirs)))
    other = views.decode_pod(views.encode(claimer("b", claim="claim-b", node="n")))
    ledger.change(None, other)
    assert ledger.overflow(other, node) == (
        "node n: capacity memory of its devices is allocated to 1.25 of its total"
    )


def test_restored_engine_dump_contains_the_shares() -> None:
    scene = ClaimScene()
    scene.node("n", shared("n", 80, 80))
    scene.ask("a", memory(50), memory(20, "b"))
    scene.decide()
    scene.ask("b", memory(70))
    scene.engine.apply(scene.model.take(scene.now))
    scene.engine = Engine.load(scene.engine.dump(), default_plugins())
    check(scene.engine)
    assert scene.decide() == {"b": ("n", [("a", "gpu-1")])}
    scene.engine = Engine.load(scene.engine.dump(), default_plugins())
    scene.ask("c", memory(20))
    assert scene.decide() == {}
    scene.end("a")
    assert scene.decide() == {"c": ("n", [("a", "gpu-0")])}
