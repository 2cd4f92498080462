"""HyperNodes, Topologies and annotations → what the engine is told about nodes and groups."""

from __future__ import annotations

from typing import Any

from kaiobjects import kai_group, kai_pod, kai_queue
from kubeobjects import pod

from windlass.api import views
from windlass.engine import deltas
from windlass.model.cluster.cluster_model import ClusterModel
from windlass.model.cluster.snapshot import EVERY_SCHEDULER, load
from windlass.spi.objects import Group, Node, Task
from windlass.spi.topology import HYPERNODE_PATH, TopologyNeed

Json = dict[str, Any]
NOW = 1_767_268_800.0


def node(name: str, **labels: str) -> Json:
    capacity = {"cpu": "8", "memory": "8Gi", "pods": "10", "nvidia.com/gpu": "4"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {key.replace("__", "/"): value for key, value in labels.items()},
        },
        "status": {"allocatable": capacity, "capacity": capacity},
    }


def exact(name: str, kind: str = "Node") -> Json:
    return {"type": kind, "selector": {"exactMatch": {"name": name}}}


def hypernode(name: str, tier: int, *members: Json, **spec: Any) -> Json:
    return {
        "apiVersion": "topology.volcano.sh/v1alpha1",
        "kind": "HyperNode",
        "metadata": {"name": name},
        "spec": {"tier": tier, "members": list(members), **spec},
    }


def topology(name: str, *levels: str | tuple[str, str]) -> Json:
    shown = [
        {"nodeLabel": level} if isinstance(level, str) else {"nodeLabel": level[0], "alias": level[1]}
        for level in levels
    ]
    return {
        "apiVersion": "kai.scheduler/v1alpha1",
        "kind": "Topology",
        "metadata": {"name": name},
        "spec": {"levels": shown},
    }


def volcano_group(name: str, *, notes: dict[str, str] | None = None, **spec: Any) -> Json:
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": "default", "annotations": notes or {}},
        "spec": {"minMember": 1, **spec},
    }


class Told:
    """A model and what it has told the engine."""

    def __init__(self, *objects: Json) -> None:
        self.model = ClusterModel(EVERY_SCHEDULER)
        self.nodes: dict[str, Node] = {}
        self.groups: dict[str, Group] = {}
        self.tasks: dict[str, Task] = {}
        self.last = 0
        self.more(*objects)

    def more(self, *objects: Json) -> Told:
        load(self.model, ((str(at), obj) for at, obj in enumerate(objects)))
        return self.take()

    def take(self) -> Told:
        found = self.model.take(NOW)
        self.last = len(found)
        for delta in found:
            match delta:
                case deltas.NodeUpserted(one):
                    self.nodes[one.name] = one
                case deltas.GroupUpserted(one):
                    self.groups[one.key] = one
                case deltas.TaskUpserted(one):
                    self.tasks[one.key] = one
        return self

    def need(self, key: str = "default/g") -> TopologyNeed:
        found = self.groups[key].topology
        assert found is not None
        return found

    def words(self, key: str = "default/g") -> str:
        explanation = self.model.explanation(key)
        return explanation.message if explanation is not None else ""


TREE = (
    *(node(f"n{i}", rack=f"r{i % 2}") for i in range(4)),
    hypernode("leaf0", 1, exact("n0"), exact("n2"), tierName="leaf"),
    hypernode("leaf1", 1, {"type": "Node", "selector": {"labelMatch": {"matchLabels": {"rack": "r1"}}}}),
    hypernode("top", 3, {"type": "HyperNode", "selector": {"regexMatch": {"pattern": "^leaf"}}}),
)


def hard(**limit: Any) -> Json:
    return {"networkTopology": {"mode": "hard", **limit}}


# ---------------------------------------------------------------------- HyperNodes


def test_nodes_carry_their_hypernodes_inside_the_engine() -> None:
    told = Told(*TREE)
    assert told.nodes["n2"].labels[HYPERNODE_PATH] == "1=leaf0,3=top"
    assert told.nodes["n3"].labels["hypernode.windlass.dev/tier-1"] == "leaf1"
    assert told.model.features.topology.index.nodes_of("top") == {"n0", "n1", "n2", "n3"}
    assert told.model.features.topology.index.tightest(["n0", "n2"]) == "leaf0"
    assert told.model.features.topology.index.tightest(["n0", "n1"]) == "top"
    assert told.model.features.topology.index.tightest([]) == ""


def test_only_nodes_with_other_hypernodes_are_sent_again() -> None:
    told = Told(*TREE)
    told.more(node("n1", rack="r0"))
    assert told.last == 1
    assert told.nodes["n1"].labels.get(HYPERNODE_PATH) is None
    told.more(node("n4", rack="r1"))
    assert told.nodes["n4"].labels[HYPERNODE_PATH] == "1=leaf1,3=top"
    told.model.features.topology.remove(told.model.features.topology.index.hypernodes["top"])
    told.take()
    assert told.nodes["n0"].labels[HYPERNODE_PATH] == "1=leaf0"


def test_tiers_are_levels_below_the_cluster() -> None:
    told = Told(*TREE, volcano_group("g", **hard(highestTierAllowed=2)))
    need = told.need()
    assert [level.shown for level in need.levels] == ["the whole cluster", "tier 3", "tier 1"]
    assert (need.required, need.preferred, list(need.tried())) == (2, 2, [2])


def test_how_high_a_tier_may_be() -> None:
    def required(**spec: Any) -> int | None:
        found = Told(*TREE, volcano_group("g", **spec)).groups["default/g"].topology
        return None if found is None else found.required

    assert required(**hard(highestTierAllowed=1)) == 2
    assert required(**hard(highestTierAllowed=3)) == 1
    assert required(**hard(highestTierAllowed=4)) == 0  # the cluster itself
    assert required(**hard(highestTierName="leaf")) == 2
    assert required(**hard()) == -1
    assert required(networkTopology={"mode": "soft", "highestTierAllowed": 1}) == -1
    assert required() is None


def test_a_tier_that_does_not_exist_holds_the_group() -> None:
    told = Told(
        *TREE, volcano_group("g", **hard(highestTierAllowed=0)), pod("p", group="g", scheduler="volcano")
    )
    assert told.groups["default/g"].held
    assert "spec.networkTopology.highestTierAllowed" in told.words()
    assert "the lowest tier of any HyperNode is 1" in told.words()
    told.more(volcano_group("g", **hard(highestTierName="rack")))
    assert "no HyperNode has this tier name; known names: leaf" in told.words()
    told.more(hypernode("shelf", 0, exact("n0"), tierName="rack"))
    assert not told.groups["default/g"].held
    assert told.need().levels[-1].shown == "tier 0 (rack)"


def test_without_hypernodes_the_cluster_is_of_tier_one() -> None:
    told = Told(node("n0"), volcano_group("g", **hard(highestTierAllowed=1)))
    assert told.groups["default/g"].topology is None
    assert not told.groups["default/g"].held


def test_previous_hypernode_is_sent() -> None:
    notes = {"volcano.sh/job-allocated-hypernode": "leaf1"}
    assert Told(*TREE, volcano_group("g", notes=notes, **hard(highestTierAllowed=1))).need().anchor == "leaf1"


def test_contradictory_hypernodes_are_reported() -> None:
    told = Told(
        *TREE,
        hypernode("leaf9", 1, exact("n0"), exact("n1"), exact("gone")),
        hypernode("other", 3, exact("leaf0", "HyperNode"), exact("absent", "HyperNode")),
        hypernode("loop", 1, exact("top", "HyperNode")),
    )
    assert told.nodes["n0"].labels[HYPERNODE_PATH] == "1=leaf0,3=other"
    assert told.model.features.topology.index.problems == (
        "HyperNode loop (tier 1) has top (tier 3) as a member, which is ignored: members must be of lower tiers",
        "HyperNode other has a member absent that does not exist",
        "HyperNode leaf0 is a member of both other and top; it counts as one of other",
        "HyperNodes leaf0 and leaf9 (both tier 1) have 1 node in common; leaf0 keeps it",
        "HyperNodes leaf1 and leaf9 (both tier 1) have 1 node in common; leaf1 keeps it",
        "HyperNodes other and top (both tier 3) have 1 node in common; other keeps it",
    )


def test_subgroups_have_their_own_constraint() -> None:
    policy = {
        "name": "pair",
        "matchLabelKeys": ["at"],
        "subGroupSize": 2,
        "networkTopology": {"mode": "hard", "highestTierAllowed": 1},
    }
    told = Told(
        *TREE,
        volcano_group("g", subGroupPolicy=[policy], **hard(highestTierAllowed=3)),
        *(pod(f"p{i}", group="g", scheduler="volcano", labels={"at": str(i // 2)}) for i in range(4)),
    )
    assert told.need().required == 1
    parts = {part.name: part.topology for part in told.groups["default/g"].subgroups}
    assert {name: need and need.required for name, need in parts.items()} == {
        "pair": None,
        "pair/0": 2,
        "pair/1": 2,
    }


# ---------------------------------------------------------------------- Topologies

KAI = (kai_queue("q"), topology("net", ("zone", "z"), "rack"), node("n0", zone="a", rack="r"))


def constraint(required: str = "", preferred: str = "", name: str = "net") -> Json:
    return {
        "topology": name,
        **({"requiredTopologyLevel": required} if required else {}),
        **({"preferredTopologyLevel": preferred} if preferred else {}),
    }


def test_levels_by_label_and_by_alias() -> None:
    told = Told(*KAI, kai_group("g", 2, "q", topologyConstraint=constraint("z", "rack")))
    need = told.need("default/kai:g")
    assert (need.topology, need.required, need.preferred, need.nested) == ("net", 0, 1, True)
    assert list(need.tried()) == [1, 0]
    assert [level.label for level in need.levels] == ["zone", "rack"]


def test_a_topology_or_level_that_does_not_exist() -> None:
    told = Told(*KAI, kai_group("g", 1, "q", topologyConstraint=constraint("row")), kai_pod("p", "g"))
    assert "Topology net has no such level; its levels: zone (z), rack" in told.words("default/kai:g")
    told.more(kai_group("g", 1, "q", topologyConstraint=constraint("rack", name="web")))
    assert "the Topology does not exist; known Topologies: net" in told.words("default/kai:g")
    told.more(topology("web", "rack"))
    assert not told.words("default/kai:g")
    assert told.need("default/kai:g").topology == "web"


def test_invalid_annotation_is_reported() -> None:
    level = {"kai.scheduler/topology": "net", "kai.scheduler/topology-required-placement": "row"}
    told = Told(
        *KAI, volcano_group("g"), pod("p", annotations={"scheduling.k8s.io/group-name": "g", **level})
    )
    said = told.words()
    assert 'metadata.annotations[kai.scheduler/topology-required-placement]: Invalid value: "row"' in said
    nowhere = {"kai.scheduler/topology": "web", "kai.scheduler/topology-required-placement": "rack"}
    told = Told(
        *KAI, volcano_group("g"), pod("p", annotations={"scheduling.k8s.io/group-name": "g", **nowhere})
    )
    said = told.words()
    assert 'metadata.annotations[kai.scheduler/topology]: Invalid value: "web"' in said


def test_parts_of_a_kai_group() -> None:
    parts = [{"name": "a", "minMember": 1, "topologyConstraint": constraint("rack")}]
    told = Told(*KAI, kai_group("g", None, "q", subGroups=parts))
    (part,) = told.groups["default/kai:g"].subgroups
    assert part.topology is not None
    assert part.topology.required == 1


# ---------------------------------------------------------------------- annotations of pods


def noted(name: str, group: str = "g", index: int | None = None, **notes: str) -> Json:
    labels = {} if index is None else {"batch.kubernetes.io/job-completion-index": str(index)}
    return pod(
        name,
        group=group,
        scheduler="volcano",
        labels=labels,
        annotations={f"kueue.x-k8s.io/{key.replace('_', '-')}": value for key, value in notes.items()},
    )


def test_kueue_annotations_name_a_label() -> None:
    told = Told(node("n0"), volcano_group("g"), noted("p", podset_required_topology="nvidia.com/gpu.clique"))
    need = told.need()
    assert (need.topology, need.required, need.preferred) == ("nvidia.com/gpu.clique", 0, -1)
    told = Told(node("n0"), volcano_group("g"), noted("p", podset_preferred_topology="rack"))
    assert (told.need().required, told.need().preferred) == (-1, 0)
    told.more(topology("net", "zone", "rack"))
    assert (told.need().topology, told.need().preferred) == ("net", 1)
    told = Told(node("n0"), volcano_group("g"), noted("p", podset_unconstrained_topology="true"))
    assert told.groups["default/g"].topology is None


def test_pods_of_one_gang_with_different_constraints() -> None:
    told = Told(
        node("n0"),
        volcano_group("g"),
        noted("p0", podset_required_topology="rack"),
        noted("p1", podset_required_topology="zone"),
    )
    assert "pods p0 and p1 of one gang ask for different topologies" in told.words()
    told = Told(
        node("n0"),
        volcano_group("g"),
        noted("p", podset_required_topology="rack", podset_preferred_topology="zone"),
    )
    assert "a gang sets only one of them" in told.words()


def test_slices_are_subgroups_by_index() -> None:
    words = {"podset_slice_required_topology": "rack", "podset_slice_size": "2"}
    told = Told(
        node("n0"), volcano_group("g", minMember=5), *(noted(f"p{i}", index=i, **words) for i in range(5))
    )
    group = told.groups["default/g"]
    assert [(part.name, part.min_members) for part in group.subgroups] == [
        ("segment-0", 2),
        ("segment-1", 2),
        ("segment-2", 1),
    ]
    assert group.min_subgroups == 3
    assert all(part.topology and part.topology.required == 0 for part in group.subgroups)
    assert told.tasks["default/p3"].subgroup == "segment-1"


def test_segments_are_subgroups_by_index() -> None:
    notes = {
        "kai.scheduler/topology": "net",
        "kai.scheduler/topology-required-placement": "zone",
        "kai.scheduler/segment-size": "2",
        "kai.scheduler/segment-topology-required-placement": "rack",
        "pod-group-name": "g",
    }
    pods = [
        pod(
            f"p{i}",
            scheduler="kai-scheduler",
            annotations=notes,
            labels={"training.kubeflow.org/replica-index": str(i)},
        )
        for i in range(3)
    ]
    told = Told(*KAI, kai_group("g", 3, "q"), *pods)
    group = told.groups["default/kai:g"]
    assert group.topology is not None
    assert group.topology.required == 0
    assert [part.topology.required for part in group.subgroups if part.topology] == [1, 1]
    assert told.tasks["default/p2"].subgroup == "segment-1"


def test_single_pod_can_have_a_constraint() -> None:
    told = Told(node("n0"), noted("p", group="", podset_required_topology="rack"))
    assert told.need("default/pod:p").required == 0


def test_status_of_a_hypernode_changes_nothing() -> None:
    told = Told(*TREE)
    again = views.decode_hypernode(views.encode({**TREE[4], "status": {"nodeCount": 2}}))
    told.model.features.topology.upsert(again)
    assert told.take().last == 0
    assert again.node_count == 2
