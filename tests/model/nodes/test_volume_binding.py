"""Claims, volumes and storage classes: what they say about nodes."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kubeobjects import node, pod

from windlass.api.views import (
    Pod,
    decode_node,
    decode_persistent_volume_claim,
    decode_pod,
    decode_storage_capacity,
    decode_storage_class,
    decode_volume,
)
from windlass.engine import deltas
from windlass.engine.config import EngineConfig
from windlass.engine.engine import Engine
from windlass.model.cluster.cluster_model import ClusterModel
from windlass.model.cluster.snapshot import from_objects, load
from windlass.model.nodes.volume_binding import VolumeIndex
from windlass.plugins.defaults import default_plugins
from windlass.spi.objects import Expression, NodeTerm, VolumeNeed, VolumeOption

ZONE = "topology.kubernetes.io/zone"


def claim(name: str = "data", **spec: Any) -> dict[str, Any]:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "5Gi"}}, **spec}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": "default"},
        "spec": spec,
    }


def volume(name: str, labels: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    spec = {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "10Gi"}, **spec}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name, "labels": labels or {}},
        "spec": spec,
    }


def storage_class(name: str, *, waits: bool = True, default: bool = False, **rest: Any) -> dict[str, Any]:
    annotations = {"storageclass.kubernetes.io/is-default-class": "true"} if default else {}
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name, "annotations": annotations},
        "provisioner": "disk.example.com",
        "volumeBindingMode": "WaitForFirstConsumer" if waits else "Immediate",
        **rest,
    }


def on(*hosts: str) -> dict[str, Any]:
    expression = {"key": "kubernetes.io/hostname", "operator": "In", "values": list(hosts)}
    return {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}


def on_term(*hosts: str) -> NodeTerm:
    return NodeTerm((Expression("kubernetes.io/hostname", "In", hosts),))


def needs(*objects: dict[str, Any], uses: str = "data") -> tuple[VolumeNeed, ...]:
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": uses}}, {"name": "e", "emptyDir": {}}]
    found = from_objects([pod("a", volumes=volumes), *objects])
    (task,) = [d.task for d in found.deltas if isinstance(d, deltas.TaskUpserted)]
    return task.needs.volumes


def test_claims_are_ignored_without_a_storage_provider() -> None:
    assert needs() == ()
    assert needs(claim()) == ()
    assert needs(volume("v1")) == ()
    assert needs(claim(), volume("v1")) == ()
    others = volume("v1", claimRef={"namespace": "default", "name": "x"})
    assert needs(claim(), others)[0].fault == "pod has unbound immediate PersistentVolumeClaims: default/data"


def test_unbound_claim_holds_its_pod_if_the_server_has_classes() -> None:
    """As kube-scheduler does, also in a cluster that has no class and no claim at all."""
    for objects, problem in (
        ((), 'persistentvolumeclaim "data" not found'),
        ((claim(),), "pod has unbound immediate PersistentVolumeClaims: default/data"),
        (
            (claim(storageClassName="gone"), volume("v1")),
            "pod has unbound immediate PersistentVolumeClaims: default/data",
        ),
    ):
        volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]
        model = from_objects([pod("a", volumes=volumes), pod("b"), *objects]).model
        model.features.volumes.set_served()
        (task,) = [d.task for d in model.take() if isinstance(d, deltas.TaskUpserted)]  # that of the one pod
        assert [need.fault for need in task.needs.volumes] == [problem]
        model.features.volumes.set_served()
        assert model.take() == []


def test_a_bound_claim_is_where_its_volume_is() -> None:
    (need,) = needs(claim(volumeName="v1"), volume("v1", nodeAffinity=on("n1", "n2")))
    assert need == VolumeNeed("default/data", terms=(on_term("n1", "n2"),))
    assert needs(claim(volumeName="v1"), volume("v1")) == ()


def test_zone_labels_of_a_volume_count() -> None:
    labels = {ZONE: "b__a"}
    zones = Expression(ZONE, "In", ("a", "b"))
    (need,) = needs(claim(volumeName="v1"), volume("v1", labels))
    assert need.terms == (NodeTerm((zones,)),)
    (need,) = needs(claim(volumeName="v1"), volume("v1", labels, nodeAffinity=on("n1")))
    assert need.terms == (NodeTerm((*on_term("n1").labels, zones)),)


def test_volumes_of_a_driver_are_counted() -> None:
    csi = {"driver": "disk.example.com", "volumeHandle": "h-1"}
    (need,) = needs(claim(volumeName="v1"), volume("v1", csi=csi))
    assert need == VolumeNeed(
        "default/data",
        limit="attachable-volumes-csi-disk.example.com",
        identity="disk.example.com^h-1",
    )


def test_a_claim_for_one_pod_alone() -> None:
    (need,) = needs(claim(volumeName="v1", accessModes=["ReadWriteOncePod"]), volume("v1"))
    assert need == VolumeNeed("default/data", exclusive=True)


def test_problems_of_a_claim_are_reported() -> None:
    class_ = storage_class("fast", waits=False)
    assert needs(class_, claim("other"))[0].fault == 'persistentvolumeclaim "data" not found'
    gone = claim(volumeName="v9")
    assert needs(class_, gone)[0].fault == "volume v9 of claim default/data does not exist"
    assert needs(class_, claim(storageClassName="fast"))[0].fault == (
        "pod has unbound immediate PersistentVolumeClaims: default/data"
    )
    assert needs(class_, claim(storageClassName="none"))[0].fault != ""
    dying = claim()
    dying["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert needs(class_, dying)[0].fault == 'persistentvolumeclaim "data" is being deleted'


def test_delayed_claim_can_be_provisioned_where_its_class_allows() -> None:
    (need,) = needs(storage_class("fast"), claim(storageClassName="fast"))
    assert (need.terms, need.options, need.problem) == (None, None, "")
    assert (need.limit, need.identity) == ("attachable-volumes-csi-disk.example.com", "default/data")
    topology = [{"matchLabelExpressions": [{"key": ZONE, "values": ["a", "b"]}]}]
    (need,) = needs(
        storage_class("fast", default=True, allowedTopologies=topology),
        claim(),
        volume("v1", storageClassName="fast", nodeAffinity=on("n9")),
    )
    assert need.terms == (NodeTerm((Expression(ZONE, "In", ("a", "b")),)), on_term("n9"))


def test_smallest_suitable_volume_serves_a_claim() -> None:
    local = storage_class("local", provisioner="kubernetes.io/no-provisioner")
    named = {"storageClassName": "local"}
    (need,) = needs(
        local,
        claim(**named, selector={"matchLabels": {"disk": "ssd"}}),
        volume("big", {"disk": "ssd"}, **named, capacity={"storage": "20Gi"}, nodeAffinity=on("n1")),
        volume("good", {"disk": "ssd"}, **named, nodeAffinity=on("n2")),
        volume("mine", {"disk": "ssd"}, **named, claimRef={"namespace": "default", "name": "data"}),
        volume("slow", {"disk": "hdd"}, **named),
        volume("small", {"disk": "ssd"}, **named, capacity={"storage": "1Gi"}),
        volume("taken", {"disk": "ssd"}, **named, claimRef={"namespace": "default", "name": "x"}),
        volume("elsewhere", {"disk": "ssd"}, storageClassName="other"),
        volume("readonly", {"disk": "ssd"}, **named, accessModes=["ReadOnlyMany"]),
        volume("raw", {"disk": "ssd"}, **named, volumeMode="Block"),
    )
    assert need.options == (
        VolumeOption("good", (on_term("n2"),)),
        VolumeOption("mine"),
        VolumeOption("big", (on_term("n1"),)),
    )


def test_a_claim_that_comes_with_the_pod_is_named_after_both() -> None:
    spec = {"volumeClaimTemplate": {"spec": {}}}
    found = from_objects(
        [pod("a", volumes=[{"name": "scratch", "ephemeral": spec}]), storage_class("fast"), claim("other")]
    )
    (task,) = [d.task for d in found.deltas if isinstance(d, deltas.TaskUpserted)]
    assert task.needs.volumes[0].fault == 'persistentvolumeclaim "a-scratch" not found'


def test_change_of_storage_marks_its_pods() -> None:
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]
    found = from_objects([pod("a", volumes=volumes), pod("b"), storage_class("fast", waits=False), claim()])
    model = found.model
    model.features.volumes.upsert(_claim_view(claim(volumeName="v1")))
    model.features.volumes.upsert(_volume_view(volume("v1", nodeAffinity=on("n1"))))
    changed = [d.task for d in model.take() if isinstance(d, deltas.TaskUpserted)]
    assert [task.key for task in changed] == ["default/a"]
    assert changed[0].needs.volumes == (VolumeNeed("default/data", terms=(on_term("n1"),)),)
    model.features.volumes.upsert(_claim_view(claim(volumeName="v1")))
    assert model.take() == []
    model.features.volumes.remove(_volume_view(volume("v1")))
    (again,) = [d.task for d in model.take() if isinstance(d, deltas.TaskUpserted)]
    assert again.needs.volumes[0].fault.startswith("volume v1")


def test_change_of_a_claim_marks_only_its_own_pods() -> None:
    """Otherwise each bound claim would translate all of ten thousand pods with claims again."""

    def user(name: str, claim_name: str) -> dict[str, Any]:
        return pod(name, volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": claim_name}}])

    objects = [storage_class("fast", waits=False), *[claim(f"c{i}") for i in range(9)]]
    model = from_objects([*objects, *[user(f"p{i}", f"c{i}") for i in range(9)], user("late", "c9")]).model
    assert model.marked_pods == 0
    model.features.volumes.upsert(_claim_view(claim("c3", volumeName="v3")))
    assert model.marked_pods == 1
    model.take()
    model.features.volumes.upsert(_claim_view(claim("c9")))  # one that was missing
    assert model.marked_pods == 1
    for i in range(9):
        model.objects.remove_pod(f"default/p{i}")
    model.objects.remove_pod("default/late")
    assert model.features.volumes.users == {}


_CLAIMS, _VOLUMES = st.sampled_from(["c0", "c1", "c2"]), st.sampled_from(["v0", "v1"])
_CHANGES = st.lists(
    st.one_of(
        st.tuples(st.just("claim"), _CLAIMS, st.sampled_from(["", "v0", "v1", "gone"])),
        st.tuples(st.just("volume"), _VOLUMES, st.sampled_from(["n1", "n2", "gone"])),
        st.tuples(st.just("class"), st.just("local"), st.sampled_from(["waits", "at once", "gone"])),
    ),
    max_size=14,
)


def _object(kind: str, name: str, how: str) -> Any:
    if kind == "claim":
        volume_name = "" if how == "gone" else how
        return decode_persistent_volume_claim(
            msgspec.json.encode(claim(name, storageClassName="local", volumeName=volume_name))
        )
    if kind == "volume":
        nodes = on("n1" if how == "gone" else how)
        return decode_volume(msgspec.json.encode(volume(name, nodeAffinity=nodes, storageClassName="local")))
    made = storage_class(name, waits=how != "at once", provisioner="kubernetes.io/no-provisioner")
    return decode_storage_class(msgspec.json.encode(made))


def _with_claim(i: int) -> Pod:
    """Pod ``pi``, which uses the claim ``ci``."""
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": f"c{i}"}}]
    return decode_pod(msgspec.json.encode(pod(f"p{i}", volumes=volumes)))


@given(_CHANGES)
@settings(max_examples=60, deadline=None)
def test_incremental_changes_equal_a_full_translation(changes: list[tuple[str, str, str]]) -> None:
    """Only pods that a change may concern are looked at again."""

    def model() -> ClusterModel:
        made = ClusterModel(["windlass"])
        made.features.volumes.set_served()
        for i in range(3):
            made.objects.upsert_pod(_with_claim(i))
        return made

    def needs_in(one: ClusterModel) -> dict[str, Any]:
        return {key: task.needs.volumes for key, task in one.sent_tasks().items()}

    followed = model()
    followed.take()
    there: dict[tuple[str, str], Any] = {}
    for kind, name, how in changes:
        item = _object(kind, name, how)
        if how == "gone":
            there.pop((kind, name), None)
            followed.features.volumes.remove(item)
        else:
            there[kind, name] = item
            followed.features.volumes.upsert(item)
        followed.take()
    fresh = model()
    for item in there.values():
        fresh.features.volumes.upsert(item)
    fresh.take()
    assert needs_in(followed) == needs_in(fresh)


def test_change_of_a_volume_marks_only_the_pods_that_it_can_serve() -> None:
    made = ClusterModel(["windlass"])
    made.features.volumes.set_served()
    for i in range(50):
        made.objects.upsert_pod(_with_claim(i))
        made.features.volumes.upsert(_object("claim", f"c{i}", f"v{i}"))
    made.take()
    made.features.volumes.upsert(_object("volume", "v7", "n1"))
    assert made.marked_pods == 1
    made.features.volumes.upsert(_object("claim", "c8", ""))
    made.take()
    made.features.volumes.upsert(_object("volume", "v9", "n1"))
    assert made.marked_pods == 2  # the pod that has it, and the pod that has none yet


def test_first_claim_marks_every_pod_with_a_claim() -> None:
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "missing"}}]
    model = from_objects([storage_class("fast"), pod("a", volumes=volumes)]).model
    model.features.volumes.upsert(
        _claim_view(claim("another"))
    )  # until now the cluster might not have let claims be read
    (task,) = [d.task for d in model.take() if isinstance(d, deltas.TaskUpserted)]
    assert task.needs.volumes[0].fault == 'persistentvolumeclaim "missing" not found'


def test_node_has_the_limits_of_its_drivers() -> None:
    csi = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSINode",
        "metadata": {"name": "n1"},
        "spec": {"drivers": [{"name": "d", "allocatable": {"count": 7}}, {"name": "e"}]},
    }
    found = from_objects([node("n1"), csi])
    (upserted,) = [d.node for d in found.deltas if isinstance(d, deltas.NodeUpserted)]
    assert upserted.allocatable["attachable-volumes-csi-d"] == 7
    assert "attachable-volumes-csi-e" not in upserted.allocatable


def test_delayed_claim_gets_the_node_of_its_pod() -> None:
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]
    found = from_objects(
        [pod("a", volumes=volumes), node("n1"), storage_class("fast", default=True), claim()]
    )
    (write,) = found.model.writes.storage_writes("default/a", "n1")
    assert (write.namespace, write.name) == ("default", "data")
    assert write.body == {"metadata": {"annotations": {"volume.kubernetes.io/selected-node": "n1"}}}
    assert found.model.writes.storage_writes("default/a", "nowhere") == []
    found.model.features.volumes.upsert(_claim_view(claim(volumeName="v1")))
    assert found.model.writes.storage_writes("default/a", "n1") == []


def test_existing_volume_is_assigned_to_one_claim() -> None:
    named = {"storageClassName": "local"}

    def uses(name: str) -> dict[str, Any]:
        return pod(name, volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": name}}])

    found = from_objects(
        [
            uses("a"),
            uses("b"),
            node("n1"),
            storage_class("local", provisioner="kubernetes.io/no-provisioner"),
            claim("a", **named),
            claim("b", **named),
            volume("far", **named, capacity={"storage": "6Gi"}, nodeAffinity=on("n2")),
            volume("near", **named, nodeAffinity=on("n1")),
        ]
    )
    (write,) = found.model.writes.storage_writes("default/a", "n1")
    assert (write.namespace, write.name) == ("", "near")
    assert write.body["spec"]["claimRef"]["name"] == "a"
    assert found.model.writes.storage_writes("default/b", "n1") == []
    assert found.model.writes.storage_writes("default/a", "n1") == [write]
    # The binding failed, its pod goes elsewhere, and its claim is bound there: the first is free.
    found.model.objects.upsert_node(decode_node(msgspec.json.encode(node("n2"))))
    found.model.take()
    (elsewhere,) = found.model.writes.storage_writes("default/a", "n2")
    assert elsewhere.name == "far"
    assert (
        found.model.writes.storage_writes("default/b", "n1") == []
    )  # the first patch may be on its way still
    found.model.features.volumes.upsert(_claim_view(claim("a", **named, volumeName="far")))
    assert found.model.features.volumes.index._assigned == {"far": "default/a"}
    (now,) = found.model.writes.storage_writes("default/b", "n1")
    assert (now.name, now.body["spec"]["claimRef"]["name"]) == ("near", "b")
    found.model.features.volumes.remove(_claim_view(claim("b", **named)))
    assert found.model.features.volumes.index._assigned == {"far": "default/a"}


def _claim_view(obj: dict[str, Any]):
    from windlass.api import views

    return views.decode_persistent_volume_claim(views.encode(obj))


def _volume_view(obj: dict[str, Any]):
    from windlass.api import views

    return views.decode_volume(views.encode(obj))


# ---------------------------------------------------------------------- storage pools


def driver(counts: bool | None = True) -> dict[str, Any]:
    spec = {} if counts is None else {"storageCapacity": counts}
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSIDriver",
        "metadata": {"name": "disk.example.com"},
        "spec": spec,
    }


def pool(
    name: str, size: str | None, nodes: dict[str, Any] | None, of: str = "fast", **rest: Any
) -> dict[str, Any]:
    found = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSIStorageCapacity",
        "metadata": {"name": name, "namespace": "kube-system"},
        "storageClassName": of,
        **rest,
    }
    if size is not None:
        found["capacity"] = size
    if nodes is not None:
        found["nodeTopology"] = nodes
    return found


def in_zone(zone: str) -> dict[str, Any]:
    return {"matchLabels": {ZONE: zone}}


def pooled(*objects: dict[str, Any], counts: bool | None = True, **rest: Any) -> VolumeNeed:
    (need,) = needs(claim(storageClassName="fast"), storage_class("fast", **rest), driver(counts), *objects)
    return need


def zones(*names: str) -> tuple[NodeTerm, ...]:
    return (NodeTerm((Expression(ZONE, "In", names),)),)


def test_volume_is_provisioned_only_where_a_pool_has_capacity() -> None:
    found = pooled(
        pool("a", "5Gi", in_zone("a")), pool("b", "4Gi", in_zone("b")), pool("c", "9Gi", in_zone("c"))
    )
    assert found.terms == zones("a", "c")
    assert found.problem == ""


def test_maximum_volume_size_of_a_pool_takes_precedence() -> None:
    small = pool("a", "100Gi", in_zone("a"), maximumVolumeSize="4Gi")
    large = pool("b", "1Gi", in_zone("b"), maximumVolumeSize="5Gi")
    assert pooled(small, large).terms == zones("b")


def test_pool_without_capacity_or_topology_is_ignored() -> None:
    found = pooled(
        pool("a", None, in_zone("a")), pool("b", "9Gi", None), pool("c", "9Gi", in_zone("c"), "slow")
    )
    assert found.problem == "no storage pool of class fast has 5Gi for claim default/data"
    assert pooled().problem == found.problem


def test_pool_that_all_nodes_reach_excludes_none() -> None:
    assert pooled(pool("a", "9Gi", {}), pool("b", "9Gi", in_zone("b"))).terms is None


def test_driver_without_capacity_tracking_needs_no_pools() -> None:
    for counts in (False, None):
        assert pooled(pool("a", "1Gi", in_zone("a")), counts=counts).terms is None
    (need,) = needs(claim(storageClassName="fast"), storage_class("fast"), pool("a", "1Gi", in_zone("a")))
    assert need.terms is None


def test_pool_is_within_the_topologies_of_its_class() -> None:
    topologies = [{"matchLabelExpressions": [{"key": ZONE, "values": ["a", "b"]}]}]
    found = pooled(pool("x", "9Gi", {"matchLabels": {"rack": "r1"}}), allowedTopologies=topologies)
    assert found.terms == (NodeTerm((Expression(ZONE, "In", ("a", "b")), Expression("rack", "In", ("r1",)))),)


def test_existing_volume_needs_no_pool() -> None:
    there = volume("v1", storageClassName="fast", nodeAffinity=on("n1"))
    assert pooled(there).terms == (on_term("n1"),)
    assert pooled(there, pool("a", "9Gi", in_zone("a"))).terms == (*zones("a"), on_term("n1"))
    assert pooled(volume("v1", storageClassName="fast")).terms is None


def test_other_selectors_of_a_pool_are_unchanged() -> None:
    selector = {
        "matchLabels": {"b": "2", "a": "1"},
        "matchExpressions": [{"key": "old", "operator": "DoesNotExist"}],
    }
    expected = (
        Expression("a", "In", ("1",)),
        Expression("b", "In", ("2",)),
        Expression("old", "DoesNotExist"),
    )
    assert pooled(pool("x", "9Gi", selector)).terms == (NodeTerm(expected),)


@pytest.mark.parametrize(
    ("before", "after", "matters"),
    [
        ("5Gi", "9Gi", False),
        ("5Gi", "4Gi", True),
        ("4Gi", "5Gi", True),
        ("1Gi", "2Gi", False),
        (None, "1Gi", False),
    ],
)
def test_change_of_a_pool_marks_only_affected_claims(before: str | None, after: str, matters: bool) -> None:
    book = VolumeIndex()
    book.upsert(decode_persistent_volume_claim(msgspec.json.encode(claim(storageClassName="fast"))))
    assert book.upsert(decode_storage_capacity(msgspec.json.encode(pool("a", before, in_zone("a")))))
    said = decode_storage_capacity(msgspec.json.encode(pool("a", after, in_zone("a"))))
    assert book.upsert(said) is matters
    assert not book.upsert(said)
    moved = decode_storage_capacity(msgspec.json.encode(pool("a", after, in_zone("b"))))
    assert book.upsert(moved)
    assert book.remove(moved)
    assert not book.remove(moved)


def placed(*objects: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    return [(str(at), found) for at, found in enumerate(objects)]


def test_pod_waits_for_a_pool_and_is_placed_at_it() -> None:
    found = from_objects([])
    model = found.model
    engine = Engine(EngineConfig(), default_plugins())
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]
    objects = [
        node("n1", labels={ZONE: "a"}),
        node("n2", labels={ZONE: "b"}),
        pod("p", volumes=volumes),
        claim(storageClassName="fast"),
        storage_class("fast"),
        driver(),
        pool("pa", "1Gi", in_zone("a")),
        pool("pb", "1Gi", in_zone("b")),
    ]
    load(model, placed(*objects))
    engine.apply([*found.deltas, *model.take()])
    assert engine.cycle(1.0).binds == ()
    (group,) = engine.state.groups
    said = engine.explain(group, 1.0)
    assert said is not None
    assert "no storage pool of class fast has 5Gi for claim default/data" in said.message
    load(model, placed(pool("pb", "6Gi", in_zone("b"))))
    engine.apply(model.take())
    assert [bind.node for bind in engine.cycle(2.0).binds] == ["n2"]
