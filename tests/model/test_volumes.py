"""Claims, volumes and storage classes: what they say about nodes."""

from __future__ import annotations

from typing import Any

from kubeobjects import node, pod

from windlass.engine import deltas
from windlass.model.snapshot import from_objects
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


def test_where_nobody_provides_storage_claims_say_nothing() -> None:
    assert needs() == ()
    assert needs(claim()) == ()
    assert needs(volume("v1")) == ()
    assert needs(claim(), volume("v1")) == ()
    others = volume("v1", claimRef={"namespace": "default", "name": "x"})
    assert needs(claim(), others)[0].problem == "claim default/data is not bound to a volume yet"


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


def test_what_is_wrong_with_a_claim_is_said() -> None:
    class_ = storage_class("fast", waits=False)
    assert needs(class_, claim("other"))[0].problem == "claim default/data does not exist"
    gone = claim(volumeName="v9")
    assert needs(class_, gone)[0].problem == "volume v9 of claim default/data does not exist"
    assert needs(class_, claim(storageClassName="fast"))[0].problem == (
        "claim default/data is not bound to a volume yet"
    )
    assert needs(class_, claim(storageClassName="none"))[0].problem != ""
    dying = claim()
    dying["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert needs(class_, dying)[0].problem == "claim default/data is being deleted"


def test_what_waits_for_its_first_consumer_can_be_made_where_the_class_allows() -> None:
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


def test_volumes_that_exist_serve_claims_that_they_suit_the_smallest_first() -> None:
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
    assert task.needs.volumes[0].problem == "claim default/a-scratch does not exist"


def test_a_change_of_storage_is_a_change_of_the_pods_that_use_it() -> None:
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]
    found = from_objects([pod("a", volumes=volumes), pod("b"), storage_class("fast", waits=False), claim()])
    model = found.model
    model.upsert_storage(_claim_view(claim(volumeName="v1")))
    model.upsert_storage(_volume_view(volume("v1", nodeAffinity=on("n1"))))
    changed = [d.task for d in model.take() if isinstance(d, deltas.TaskUpserted)]
    assert [task.key for task in changed] == ["default/a"]
    assert changed[0].needs.volumes == (VolumeNeed("default/data", terms=(on_term("n1"),)),)
    model.upsert_storage(_claim_view(claim(volumeName="v1")))
    assert model.take() == []
    model.remove_storage(_volume_view(volume("v1")))
    (again,) = [d.task for d in model.take() if isinstance(d, deltas.TaskUpserted)]
    assert again.needs.volumes[0].problem.startswith("volume v1")


def test_a_node_has_what_its_drivers_attach() -> None:
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


def test_a_claim_that_waits_is_told_where_its_pod_goes() -> None:
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]
    found = from_objects(
        [pod("a", volumes=volumes), node("n1"), storage_class("fast", default=True), claim()]
    )
    (write,) = found.model.storage_writes("default/a", "n1")
    assert (write.namespace, write.name) == ("default", "data")
    assert write.body == {"metadata": {"annotations": {"volume.kubernetes.io/selected-node": "n1"}}}
    assert found.model.storage_writes("default/a", "nowhere") == []
    found.model.upsert_storage(_claim_view(claim(volumeName="v1")))
    assert found.model.storage_writes("default/a", "n1") == []


def test_a_volume_that_exists_is_given_to_one_claim() -> None:
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
    (write,) = found.model.storage_writes("default/a", "n1")
    assert (write.namespace, write.name) == ("", "near")
    assert write.body["spec"]["claimRef"]["name"] == "a"
    assert found.model.storage_writes("default/b", "n1") == []
    assert found.model.storage_writes("default/a", "n1") == [write]


def _claim_view(obj: dict[str, Any]):
    from windlass.api import views

    return views.decode_claim(views.encode(obj))


def _volume_view(obj: dict[str, Any]):
    from windlass.api import views

    return views.decode_volume(views.encode(obj))
