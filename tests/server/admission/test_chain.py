"""The admission chain: namespaces, priority, limits, quota, addresses, deletion."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from memory_admission import Caller, World, pod, refused

from windlass.api import resources
from windlass.api.errors import StatusError
from windlass.server.admission import AdmissionOptions

Obj = dict[str, Any]


@pytest.fixture
def world() -> World:
    return World()


def config_map(name: str = "c", namespace: str = "default") -> Obj:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": namespace}}


# --- namespaces ---------------------------------------------------------------------------------------


def test_namespace_must_exist(world: World) -> None:
    error = refused(world.create, config_map(namespace="nowhere"))
    assert (error.code, error.message) == (404, 'namespaces "nowhere" not found')


def test_terminating_namespace_rejects_new_objects(world: World) -> None:
    going = {"metadata": {"name": "tns", "deletionTimestamp": "2026-01-01T00:00:00Z"}}
    world.objects.put(resources.NAMESPACES, going)
    error = refused(world.create, config_map("k2", "tns"))
    assert error.message == (
        'configmaps "k2" is forbidden: unable to create new content in namespace tns because it is being terminated'
    )
    assert error.details["causes"] == [
        {
            "reason": "NamespaceTerminating",
            "message": "namespace tns is being terminated",
            "field": "metadata.namespace",
        }
    ]
    world.objects.put(resources.CONFIG_MAPS, {"metadata": {"name": "old", "namespace": "tns"}})
    world.update(config_map("old", "tns"))  # what is there may still change


@pytest.mark.parametrize("name", ["default", "kube-system", "kube-public"])
def test_some_namespaces_stay(world: World, name: str) -> None:
    world.objects.put(resources.NAMESPACES, {"metadata": {"name": name}})
    error = refused(world.delete, resources.NAMESPACES, name)
    assert error.message == f'namespaces "{name}" is forbidden: this namespace may not be deleted'


# --- priority -----------------------------------------------------------------------------------------


def priority_class(name: str, value: int, **more: Any) -> Obj:
    head = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
    return {**head, "metadata": {"name": name}, "value": value, **more}


def test_a_class_becomes_a_number(world: World) -> None:
    world.create(priority_class("high", 1000, preemptionPolicy="Never"))
    spec = world.create(pod(priorityClassName="high")).object["spec"]
    assert (spec["priority"], spec["preemptionPolicy"]) == (1000, "Never")
    plain = world.create(pod("q")).object["spec"]
    assert (plain["priority"], plain["preemptionPolicy"]) == (0, "PreemptLowerPriority")
    assert "priorityClassName" not in plain


def test_global_default_applies_to_pods_without_a_class(world: World) -> None:
    world.create(priority_class("usual", 100, globalDefault=True))
    spec = world.create(pod()).object["spec"]
    assert (spec["priority"], spec["priorityClassName"]) == (100, "usual")


def test_only_one_global_default(world: World) -> None:
    world.create(priority_class("usual", 100, globalDefault=True))
    error = refused(world.create, priority_class("other", 5, globalDefault=True))
    assert "PriorityClass usual is already marked as default. Only one default can exist" in error.message
    world.update(priority_class("usual", 100, globalDefault=True))


@pytest.mark.parametrize("field", ["annotations", "labels"])
def test_kai_protection_of_a_class_has_no_effect_and_a_warning(world: World, field: str) -> None:
    name = "kai.scheduler/preemptibility"
    body = priority_class("safe", 1000)
    body["metadata"][field] = {name: "false"}
    (warning,) = world.create(body).warnings
    assert warning.startswith(f"ignored: metadata.{field}[{name}] has no effect on a PriorityClass")
    assert 'set annotation volcano.sh/preemptable: "false" on the PriorityClass' in warning
    assert world.update(body).warnings == []
    obeyed = priority_class("kept", 1000)
    obeyed["metadata"][field] = {"volcano.sh/preemptable": "false"}
    assert world.create(obeyed).warnings == []


def test_priority_value_must_match_the_class(world: World) -> None:
    assert (
        "no PriorityClass with name nope was found"
        in refused(world.create, pod(priorityClassName="nope")).message
    )
    assert (
        "integer value of priority (7) must not be provided" in refused(world.create, pod(priority=7)).message
    )
    words = refused(world.create, pod(preemptionPolicy="Never")).message
    assert "string value of PreemptionPolicy (Never) must not be provided" in words


def test_never_preempting_class_causes_a_warning(world: World) -> None:
    assert world.create(priority_class("a", 1)).warnings == []
    (warning,) = world.create(priority_class("b", 1, preemptionPolicy="Never")).warnings
    assert warning.startswith("advice: preemptionPolicy Never means that pods of this class preempt nobody")


# --- limit ranges -------------------------------------------------------------------------------------


def limit_range(*items: Obj) -> Obj:
    return {
        "apiVersion": "v1",
        "kind": "LimitRange",
        "metadata": {"name": "l"},
        "spec": {"limits": list(items)},
    }


def test_limit_range_fills_in_missing_amounts(world: World) -> None:
    world.create(
        limit_range(
            {"type": "Container", "default": {"cpu": "2"}, "defaultRequest": {"cpu": "1", "memory": "1Gi"}}
        )
    )
    made = world.create(pod()).object
    assert made["spec"]["containers"][0]["resources"] == {
        "requests": {"cpu": "1", "memory": "1Gi"},
        "limits": {"cpu": "2"},
    }
    assert made["metadata"]["annotations"]["kubernetes.io/limit-ranger"] == (
        "LimitRanger plugin set: cpu, memory request for container c; cpu limit for container c"
    )
    assert made["status"]["qosClass"] == "Burstable"
    given = world.create(pod("q", {"cpu": "3"})).object["spec"]["containers"][0]["resources"]
    assert given["limits"] == {"cpu": "3"}
    assert given["requests"]["cpu"] == "3"


@pytest.mark.parametrize(
    ("item", "limits", "words"),
    [
        (
            {"type": "Container", "max": {"cpu": "2"}},
            {"cpu": "3"},
            'pods "p" is forbidden: maximum cpu usage per Container is 2, but limit is 3',
        ),
        (
            {"type": "Pod", "max": {"memory": "1Gi"}},
            {"cpu": "1"},
            "maximum memory usage per Pod is 1Gi.  No limit is specified",
        ),
        (
            {"type": "Container", "min": {"cpu": "500m"}},
            {"cpu": "100m"},
            "minimum cpu usage per Container is 500m, but request is 100m",
        ),
        (
            {"type": "Pod", "min": {"cpu": "1"}},
            None,
            "minimum cpu usage per Pod is 1.  No request is specified",
        ),
        (
            {"type": "Pod", "maxLimitRequestRatio": {"cpu": "2"}},
            None,
            "cpu max limit to request ratio per Pod is 2, but no request is specified or request is 0",
        ),
    ],
)
def test_bounds(world: World, item: Obj, limits: Obj | None, words: str) -> None:
    world.create(limit_range(item))
    error = refused(world.create, pod(limits=limits))
    assert error.code == 403
    assert words in error.message


def test_a_ratio(world: World) -> None:
    world.create(limit_range({"type": "Container", "maxLimitRequestRatio": {"cpu": "2"}}))
    wide = pod()
    wide["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "100m"}, "limits": {"cpu": "1"}}
    assert "ratio per Container is 2, but provided ratio is 10.000000" in refused(world.create, wide).message


def test_several_errors_are_reported_together(world: World) -> None:
    world.create(limit_range({"type": "Container", "max": {"cpu": "1", "memory": "1Gi"}}))
    error = refused(world.create, pod(limits={"cpu": "2", "memory": "2Gi"}))
    assert error.message == (
        'pods "p" is forbidden: [maximum cpu usage per Container is 1, but limit is 2, '
        "maximum memory usage per Container is 1Gi, but limit is 2Gi]"
    )


def test_claims_have_bounds_too(world: World) -> None:
    world.create(limit_range({"type": "PersistentVolumeClaim", "max": {"storage": "1Gi"}}))
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "c"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "2Gi"}}},
    }
    words = refused(world.create, claim).message
    assert "maximum storage usage per PersistentVolumeClaim is 1Gi, but request is 2Gi" in words


# --- quota --------------------------------------------------------------------------------------------


def quota(name: str = "rq", hard: Obj | None = None, **spec: Any) -> Obj:
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": name},
        "spec": {"hard": hard or {}, **spec},
    }


GPU = "nvidia.com/gpu"


def test_over_quota(world: World) -> None:
    world.create(quota(hard={f"requests.{GPU}": "2"}))
    error = refused(world.create, pod("a", {GPU: "3"}))
    assert (error.code, error.message) == (
        403,
        'pods "a" is forbidden: exceeded quota: rq, requested: requests.nvidia.com/gpu=3, '
        "used: requests.nvidia.com/gpu=0, limited: requests.nvidia.com/gpu=2",
    )
    world.create(pod("b", {GPU: "2"}))
    assert "used: requests.nvidia.com/gpu=2" in refused(world.create, pod("c", {GPU: "1"})).message
    world.create(pod("d"))  # asks for none


def test_finished_or_deleted_pods_release_their_quota(world: World) -> None:
    world.create(quota(hard={f"requests.{GPU}": "2", "pods": "5"}))
    made = world.create(pod("a", {GPU: "2"})).object
    ended = {**made, "status": {"phase": "Succeeded"}}
    world.objects.put(resources.PODS, ended)
    world.create(pod("b", {GPU: "2"}))
    refused(world.create, pod("c", {GPU: "1"}))
    world.objects.drop(resources.PODS, world.objects.get(resources.PODS, "default", "b") or {})
    world.create(pod("d", {GPU: "1"}))


def test_limits_of_devices_are_kept_but_not_counted(world: World) -> None:
    reviewed = world.create(quota(hard={f"requests.{GPU}": "50", f"limits.{GPU}": "1"}))
    assert reviewed.object["spec"]["hard"][f"limits.{GPU}"] == "1"
    assert reviewed.warnings == [
        "advice: limits.nvidia.com/gpu is kept but not counted (request equals limit for extended resources); "
        "the cap is requests.nvidia.com/gpu 50"
    ]
    world.create(pod("a", {GPU: "2"}))
    assert (
        "set requests.nvidia.com/gpu to cap it"
        in world.create(quota("r2", {f"limits.{GPU}": "1"})).warnings[0]
    )


def test_compute_quota_requires_requests_of_every_container(world: World) -> None:
    world.create(quota(hard={"requests.cpu": "4", "limits.memory": "1Gi"}))
    error = refused(world.create, pod("a"))
    assert error.message == (
        'pods "a" is forbidden: failed quota: rq: must specify limits.memory for: c; requests.cpu for: c'
    )
    world.create(pod("b", {"cpu": "4", "memory": "1Gi"}))
    words = refused(world.create, pod("c", {"cpu": "500m", "memory": "1Mi"})).message
    assert "exceeded quota: rq, requested: limits.memory=1Mi,requests.cpu=500m" in words


def test_several_quotas_all_hold(world: World) -> None:
    world.create(quota("a", {"pods": "2"}))
    world.create(quota("b", {"pods": "1"}))
    world.create(pod("x"))
    assert "exceeded quota: b" in refused(world.create, pod("y")).message


def test_scoped_quota_counts_its_priority_class_only(world: World) -> None:
    world.create(priority_class("slurm", 1000))
    scope = {"matchExpressions": [{"operator": "In", "scopeName": "PriorityClass", "values": ["slurm"]}]}
    world.create(quota(hard={f"requests.{GPU}": "2"}, scopeSelector=scope))
    world.create(pod("free", {GPU: "8"}))
    world.create(pod("a", {GPU: "2"}, priorityClassName="slurm"))
    refused(world.create, pod("b", {GPU: "1"}, priorityClassName="slurm"))


def test_scopes_of_time_and_effort(world: World) -> None:
    world.create(quota("best", {"pods": "1"}, scopes=["BestEffort"]))
    world.create(quota("ending", {"pods": "1"}, scopes=["Terminating"]))
    world.create(pod("a"))
    assert "exceeded quota: best" in refused(world.create, pod("b")).message
    world.create(pod("c", {"cpu": "1"}))
    world.create(pod("d", {"cpu": "1"}, activeDeadlineSeconds=5))
    assert (
        "exceeded quota: ending"
        in refused(world.create, pod("e", {"cpu": "1"}, activeDeadlineSeconds=5)).message
    )


def test_objects_are_counted_by_kind(world: World) -> None:
    world.create(quota(hard={"configmaps": "1", "count/leases.coordination.k8s.io": "0"}))
    world.create(config_map("a"))
    refused(world.create, config_map("b"))
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "l"}, "spec": {}}
    refused(world.create, lease)
    world.update(config_map("a"))


def test_changed_quota_is_counted_again(world: World) -> None:
    world.create(quota(hard={"pods": "1"}, scopes=["BestEffort"]))
    world.create(pod("a", {"cpu": "1"}))
    replaced = quota(hard={"pods": "1"})
    stored = world.objects.get(resources.RESOURCE_QUOTAS, "default", "rq")
    assert stored is not None
    world.objects.put(resources.RESOURCE_QUOTAS, {**stored, "spec": replaced["spec"]})
    refused(world.create, pod("b", {"cpu": "1"}))


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(["make", "end", "drop"]), st.integers(0, 9), st.integers(0, 4)), max_size=25
    )
)
def test_a_quota_is_never_exceeded(steps: list[tuple[str, int, int]]) -> None:
    """Whatever is made, ends and goes: the sum over what holds devices stays within the cap."""
    world = World()
    world.create(quota(hard={f"requests.{GPU}": "6"}))
    for act, index, gpus in steps:
        name = f"p{index}"
        known = world.objects.get(resources.PODS, "default", name)
        if act == "make" and known is None:
            try:
                world.create(pod(name, {GPU: str(gpus)} if gpus else None))
            except StatusError:
                assert gpus  # pods without GPUs are admitted
        elif act == "end" and known is not None:
            world.objects.put(resources.PODS, {**known, "status": {"phase": "Failed"}})
        elif act == "drop" and known is not None:
            world.objects.drop(resources.PODS, known)
        held = 0
        for one in world.objects.list(resources.PODS, "default"):
            if one["status"]["phase"] != "Failed":
                limits = one["spec"]["containers"][0].get("resources", {}).get("limits", {})
                held += int(limits.get(GPU, "0"))
        assert held <= 6


# --- pods ---------------------------------------------------------------------------------------------


def test_every_pod_tolerates_an_unreachable_node_for_five_minutes(world: World) -> None:
    tolerations = world.create(pod()).object["spec"]["tolerations"]
    assert [t["key"] for t in tolerations] == [
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
    ]
    assert {t["tolerationSeconds"] for t in tolerations} == {300}
    own = [{"operator": "Exists"}]
    assert world.create(pod("q", tolerations=own)).object["spec"]["tolerations"] == own


def test_gated_pods_have_the_scheduled_condition(world: World) -> None:
    made = world.create(pod(schedulingGates=[{"name": "x/y"}])).object
    (condition,) = made["status"]["conditions"]
    assert (condition["type"], condition["status"], condition["reason"]) == (
        "PodScheduled",
        "False",
        "SchedulingGated",
    )


def test_a_missing_image_is_filled_in(world: World) -> None:
    body = pod("llm")
    del body["spec"]["containers"][0]["image"]
    reviewed = world.create(body)
    assert reviewed.object["spec"]["containers"][0]["image"] == AdmissionOptions().default_image
    assert reviewed.warnings == [
        "default: container c of Pod llm has no image -> configured default image "
        "(placeholder process on the embedded box)"
    ]
    other = World(AdmissionOptions(default_image="mine:1"))
    assert other.create(body).object["spec"]["containers"][0]["image"] == "mine:1"


def test_writes_to_status_pass_unchanged(world: World) -> None:
    made = world.create(pod()).object
    new = {**made, "status": {"phase": "Running"}}
    reviewed = world.admission.review(
        "UPDATE", resources.PODS, new, made, Caller("default", "p", subresource="status")
    )
    assert reviewed.object["status"] == {"phase": "Running"}
    assert reviewed.warnings == []


# --- services -----------------------------------------------------------------------------------------


def service(name: str = "s", **spec: Any) -> Obj:
    spec.setdefault("ports", [{"port": 80}])
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec}


def test_addresses_are_allocated_once() -> None:
    world = World(AdmissionOptions(service_cidr="10.9.0.0/29"))
    addresses = {world.create(service(f"s{i}")).object["spec"]["clusterIP"] for i in range(5)}
    assert addresses == {f"10.9.0.{i}" for i in range(2, 7)}
    assert "no service address is free" in refused(world.create, service("one-more")).message


def test_an_address_may_be_requested(world: World) -> None:
    made = world.create(service("a", clusterIP="10.96.0.7")).object["spec"]
    assert made["clusterIPs"] == ["10.96.0.7"]
    assert (
        "provided IP is already allocated"
        in refused(world.create, service("b", clusterIP="10.96.0.7")).message
    )
    assert "not in the valid range" in refused(world.create, service("c", clusterIP="10.1.0.1")).message
    world.create(service("headless", clusterIP="None", selector={"a": "b"}))
    world.create(service("headless2", clusterIP="None"))


def test_an_update_keeps_its_address_and_ports(world: World) -> None:
    first = world.create(service(type="NodePort")).object["spec"]
    again = world.update(service(type="NodePort")).object["spec"]
    assert (again["clusterIP"], again["ports"]) == (first["clusterIP"], first["ports"])
    assert 30000 <= first["ports"][0]["nodePort"] <= 32767
    taken = service("t", type="NodePort", ports=[{"port": 1, "nodePort": first["ports"][0]["nodePort"]}])
    assert "provided port is already allocated" in refused(world.create, taken).message
    far = service("f", type="NodePort", ports=[{"port": 1, "nodePort": 80}])
    assert "not in the valid range" in refused(world.create, far).message


def test_external_names_have_no_address(world: World) -> None:
    spec = world.create(service(type="ExternalName", externalName="a.example", ports=[])).object["spec"]
    assert "clusterIP" not in spec
