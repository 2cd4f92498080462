"""Pods of one gang that share ResourceClaims: they start together, on one node, with the devices counted once."""

from __future__ import annotations

from typing import Any

from claimobjects import NVIDIA, claim, claimer, exactly, gpu_node
from kaiobjects import kai_group, kai_pod, kai_queue
from kubeobjects import group, queue
from msgspec.structs import replace

from windlass.api import views
from windlass.engine.config import EngineConfig
from windlass.engine.decision import Bind
from windlass.engine.engine import Engine
from windlass.engine.invariants import check, check_decision
from windlass.model.cluster.cluster_model import ClusterModel
from windlass.model.devices.dra_claims import ClaimWrite
from windlass.plugins.defaults import default_plugins

NOW = 1_767_268_800.0


class World:
    """A model and the engine that it tells."""

    def __init__(self, *claims: str, **gpus: int) -> None:
        """``claims``: for one device each; ``gpus``: nodes with so many."""
        self.model = ClusterModel(["windlass", "kai-scheduler"])
        self.model.features.claims.upsert(views.decode_device_class(views.encode(NVIDIA)))
        self.model.objects.upsert_queue(views.decode_queue(views.encode(queue("q"))))
        self.engine = Engine(EngineConfig(), default_plugins())
        self.now = NOW
        self.words: dict[str, dict[str, str]] = {}
        for name, count in gpus.items():
            self.node(gpu_node(name, count))
        for name in claims:
            self.claim(name)

    def node(self, obj: dict[str, Any]) -> None:
        self.model.objects.upsert_node(views.decode_node(views.encode(obj)))

    def claim(self, name: str, count: int = 1) -> None:
        self.model.features.claims.upsert(
            views.decode_device_claim(views.encode(claim(name, exactly(count=count))))
        )

    def gang(self, name: str, minimum: int, **spec: Any) -> None:
        self.model.objects.upsert_group(
            views.decode_pod_group(views.encode(group(name, minimum, queue="q", **spec)))
        )

    def pods(
        self, gang: str, *numbers: int, claims: tuple[str, ...] = ("c",), cpu: str = "1", **fields: Any
    ) -> None:
        for number in numbers:
            obj = claimer(f"{gang}-{number}", claim="c", group=gang, **fields)
            named = [{"name": one} for one in claims]
            obj["spec"]["containers"][0]["resources"] |= {"requests": {"cpu": cpu}, "claims": named}
            obj["spec"]["resourceClaims"] = [{"name": one, "resourceClaimName": one} for one in claims]
            self.model.objects.upsert_pod(views.decode_pod(views.encode(obj)))

    def bound(self, name: str, where: str) -> None:
        """The server shows a pod as it was decided."""
        key = f"default/{name}"
        pod = self.model.objects.pods[key]
        words = self.words[key]
        self.model.binds.forget(key, pod.uid)
        self.model.objects.upsert_pod(replace(pod, node_name=where, annotations={**pod.annotations, **words}))

    def cycle(self) -> dict[str, Bind]:
        self.now += 1
        self.engine.apply(self.model.take(self.now))
        decision = self.engine.cycle(self.now)
        for bind in decision.binds:
            self.model.binds.assume(bind)
        self.words |= {bind.task: self.model.writes.annotations(bind, self.now) for bind in decision.binds}
        check(self.engine)
        check_decision(self.engine, decision)
        return {bind.task.partition("/")[2]: bind for bind in decision.binds}

    def told(self, gang: str) -> str:
        key = f"default/{gang}"
        found = self.model.explanation(key) or self.engine.explain(key, self.now)
        assert found is not None
        return str(found.message)

    def writes(self, binds: dict[str, Bind]) -> list[ClaimWrite]:
        together = self.model.writes.sharers(binds.values())
        return [
            write for bind in binds.values() for write in self.model.writes.claim_writes(bind, NOW, together)
        ]


def test_a_gang_that_shares_a_claim_starts_on_one_node_with_the_devices_counted_once() -> None:
    world = World(a=4, b=4)
    world.claim("c", 3)
    world.gang("g", 3)
    world.pods("g", 0, 1, 2)
    binds = world.cycle()
    assert sorted(binds) == ["g-0", "g-1", "g-2"]
    assert len({bind.node for bind in binds.values()}) == 1
    assert [len(binds[name].devices) for name in sorted(binds)] == [3, 0, 0]
    words = world.model.writes.annotations(binds["g-0"], NOW)
    assert world.model.writes.annotations(binds["g-1"], NOW) == {
        "windlass.dev/devices": words["windlass.dev/devices"]
    }


def test_the_allocation_is_written_once_for_all_that_start() -> None:
    world = World("c", a=4)
    world.gang("g", 3)
    world.pods("g", 0, 1, 2)
    status, kept = world.writes(world.cycle())
    written: Any = status.body["status"]
    assert [one["name"] for one in written["reservedFor"]] == ["g-0", "g-1", "g-2"]
    assert len(written["allocation"]["devices"]["results"]) == 1
    assert kept.subresource == ""


def test_node_has_capacity_for_all_sharing_pods() -> None:
    """The fullest node has capacity for the carrier of the claim, and not for the others."""
    world = World()
    small, large = gpu_node("small", 1), gpu_node("large", 8)
    small["status"]["allocatable"]["cpu"] = "5"
    large["status"]["allocatable"]["cpu"] = "16"
    world.node(small)
    world.node(large)
    world.claim("c")
    world.gang("g", 3)
    world.pods("g", 0, 1, 2, cpu="4")
    binds = world.cycle()
    assert {name: bind.node for name, bind in binds.items()} == dict.fromkeys(("g-0", "g-1", "g-2"), "large")


def test_none_starts_without_a_node_for_all() -> None:
    world = World()
    for name in ("a", "b"):
        obj = gpu_node(name, 8)
        obj["status"]["allocatable"]["cpu"] = "8"
        world.node(obj)
    world.claim("c")
    world.gang("g", 3)
    world.pods("g", 0, 1, 2, cpu="4")
    assert world.cycle() == {}
    assert world.told("g") == (
        "3 pods that share ResourceClaim c must lie on one node; of 2 none would hold them even if empty: "
        "a would hold 2."
    )
    found = world.engine.explain("default/g", world.now)
    assert found is not None
    assert found.remedies[:2] == (  # nodes cannot be added to a node
        "Add a node that holds 3 pods, or ask for less per pod.",
        "Let at most 2 pods share ResourceClaim c, "
        "or give each pod a claim of its own (resourceClaimTemplateName).",
    )


def test_later_pod_is_placed_on_the_node_of_the_claim() -> None:
    world = World("c", a=4, b=4)
    world.gang("g", 2)
    world.pods("g", 0, 1)
    node = world.cycle()["g-0"].node
    world.pods("g", 2)
    assert (
        world.cycle() == {}
    )  # the claim is being allocated: reservedFor contains the pods that start with it
    assert "pod default/g-0 carries it" in world.told("g")
    world.bound("g-0", node)
    world.bound("g-1", node)
    late = world.cycle()
    assert {name: bind.node for name, bind in late.items()} == {"g-2": node}
    assert late["g-2"].devices == ()


def test_pods_that_share_claims_transitively_are_together() -> None:
    world = World(a=8, b=8)
    world.claim("c", 2)
    world.claim("d", 3)
    world.gang("g", 5)
    world.pods("g", 0)
    world.pods("g", 1, claims=("c", "d"))
    world.pods("g", 2, claims=("d",))
    world.pods("g", 3, 4, claims=("e",))
    world.claim("e", 8)
    binds = world.cycle()
    assert len(binds) == 5
    assert len({binds[name].node for name in ("g-0", "g-1", "g-2")}) == 1
    assert binds["g-3"].node == binds["g-4"].node != binds["g-0"].node
    assert [len(binds[f"g-{at}"].devices) for at in range(5)] == [2, 3, 0, 8, 0]
    written = {write.name: write for write in world.writes(binds) if write.subresource}
    users = {name: [one["name"] for one in _status(write)["reservedFor"]] for name, write in written.items()}
    assert users == {"c": ["g-0", "g-1"], "d": ["g-1", "g-2"], "e": ["g-3", "g-4"]}


def test_elastic_gang_starts_without_unplaceable_sharing_pods() -> None:
    world = World(a=4)
    world.claim("c", 4)
    world.claim("d", 4)
    world.gang("g", 2)
    world.pods("g", 0, 1)
    world.pods("g", 2, 3, claims=("d",))
    assert sorted(world.cycle()) == ["g-0", "g-1"]


def test_pods_of_another_gang_wait_for_the_carrier_of_the_claim() -> None:
    world = World("c", a=4)
    world.gang("g", 2)
    world.gang("h", 2)
    world.pods("g", 0, 1)
    world.pods("h", 0, 1)
    assert sorted(world.cycle()) == ["g-0", "g-1"]
    world.bound("g-0", "a")
    world.bound("g-1", "a")
    assert sorted(world.cycle()) == ["h-0", "h-1"]


def divided(size: int) -> list[dict[str, Any]]:
    return [{"name": "p", "subGroupSize": size, "matchLabelKeys": ["part"]}]


def test_pods_of_different_subgroups_wait_for_the_carrier_of_the_claim() -> None:
    world = World("c", a=4)
    for number in range(2):
        world.pods("g", number, labels={"part": str(number)})
    world.gang("g", 2)
    world.model.take(NOW)
    world.gang("g", 2, subGroupPolicy=divided(1))
    assert world.cycle() == {}
    assert "pod default/g-0 carries it and waits" in world.told("g")


def test_pods_of_one_sub_group_start_together_with_what_they_share() -> None:
    """Each sub-group has its own claim, and one pod that uses none of it; no node holds two of them."""
    world = World("c", "d", a=1, b=1)
    world.gang("g", 6, subGroupPolicy=divided(3))
    for at, name in enumerate("cd"):
        for number in (0, 1):
            world.pods("g", 3 * at + number, claims=(name,), labels={"part": name})
        world.pods("g", 3 * at + 2, claims=(), labels={"part": name})
    binds = world.cycle()
    assert sorted(binds) == [f"g-{at}" for at in range(6)]
    assert binds["g-0"].node == binds["g-1"].node != binds["g-3"].node == binds["g-4"].node
    assert [len(binds[f"g-{at}"].devices) for at in range(6)] == [1, 0, 0, 1, 0, 0]


def test_pods_of_a_sub_group_of_kai_start_together_inside_its_rack() -> None:
    """A sub-group keeps to a rack, and of its four pods the two that share a claim to a node."""
    world = World()
    for name, gpus in (("a1", 1), ("a2", 0), ("b1", 1), ("b2", 1)):
        obj = gpu_node(name, gpus)
        obj["metadata"]["labels"]["rack"] = name[0]
        obj["status"]["allocatable"]["cpu"] = "2"
        world.node(obj)
    levels = {"levels": [{"nodeLabel": "rack"}, {"nodeLabel": "kubernetes.io/hostname"}]}
    tree = {"metadata": {"name": "t"}, "spec": levels}
    world.model.features.topology.upsert(views.decode_topology(views.encode(tree)))
    for one in (kai_queue("root"), kai_queue("team", "root")):
        world.model.objects.upsert_kai_queue(views.decode_kai_queue(views.encode(one)))
    near = {"topology": "t", "requiredTopologyLevel": "rack"}
    parts = [{"name": name, "minMember": 4, "topologyConstraint": near} for name in "xy"]
    gang = kai_group("g", None, "team", subGroups=parts)
    world.model.objects.upsert_kai_group(views.decode_kai_pod_group(views.encode(gang)))
    for at, part in enumerate("xy"):
        world.claim(part)
        for number in range(4):
            labels = {"kai.scheduler/subgroup-name": part}
            obj = kai_pod(f"g-{4 * at + number}", "g", "team", labels=labels, requests={"cpu": "1"})
            if number < 2:
                obj["spec"]["resourceClaims"] = [{"name": "c", "resourceClaimName": part}]
            world.model.objects.upsert_pod(views.decode_pod(views.encode(obj)))
    binds = world.cycle()
    racks = [{binds[f"g-{4 * at + number}"].node[0] for number in range(4)} for at in range(2)]
    assert [len(rack) for rack in racks] == [1, 1]
    assert racks[0] != racks[1]
    for at in (0, 4):
        assert binds[f"g-{at}"].node == binds[f"g-{at + 1}"].node
        assert [len(binds[f"g-{at + number}"].devices) for number in range(4)] == [1, 0, 0, 0]


def test_subgroup_that_fits_on_no_node_holds_its_gang() -> None:
    world = World("c", a=1)
    world.gang("g", 3, subGroupPolicy=divided(3))
    world.pods("g", 0, 1, 2, cpu="60", labels={"part": "x"})
    assert world.cycle() == {}
    assert world.told("g").startswith("Together its pods need at least 180 cpu (all nodes have 64). 3 pods")


def test_subgroup_starts_without_unplaceable_sharing_pods() -> None:
    world = World("c", a=4)
    world.claim("d", 4)
    world.gang("g", 2, subGroupPolicy=divided(2))
    world.pods("g", 0, 1, labels={"part": "x"})
    world.pods("g", 2, 3, claims=("d",), labels={"part": "x"})
    assert sorted(world.cycle()) in (["g-0", "g-1"], ["g-2", "g-3"])


def test_too_many_pods_of_a_claim_are_reported() -> None:
    world = World("c", a=4)
    world.gang("g", 257)
    world.pods("g", *range(257), cpu="10m")
    assert world.cycle() == {}
    assert "257 pods name ResourceClaim c, which serves 256" in world.told("g")


def test_pod_that_left_its_gang_blocks_no_pod() -> None:
    """A pod that is deleted before it is bound carries nothing any more."""
    world = World("c", a=4)
    world.gang("g", 2)
    world.pods("g", 0, metadata={"deletionTimestamp": "2026-01-01T12:00:00Z"})
    world.pods("g", 1, 2)
    binds = world.cycle()
    assert sorted(binds) == ["g-1", "g-2"]
    assert len(binds["g-1"].devices) == 1


def _status(write: ClaimWrite) -> Any:
    return write.body["status"]
