"""DaemonSets: one pod on each node that fits, updates, back-off, driver images."""

from __future__ import annotations

import contextlib
from typing import Any

from apps_world import AppsWorld, template, workload
from example_counts import examples
from fakeapi import Crash
from hypothesis import given, settings
from hypothesis import strategies as st

from windlass.api.nodes.driver_images import provided_part
from windlass.api.resources import DAEMON_SETS, NODES, PODS

Json = dict[str, Any]
GPU_TAINT = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}


def started(nodes: int = 2, **spec: Any) -> AppsWorld:
    world = AppsWorld((DAEMON_SETS, workload(**spec)), nodes=nodes)
    world.finish()
    return world


def places(world: AppsWorld) -> list[str]:
    return sorted(
        pod["spec"].get("nodeName", "")
        for pod in world.pods()
        if not pod["metadata"].get("deletionTimestamp")
    )


def status(world: AppsWorld) -> Json:
    return world.get(DAEMON_SETS, "web")["status"]


def leaving(world: AppsWorld) -> list[str]:
    return sorted(pod["spec"]["nodeName"] for pod in world.pods() if pod["metadata"].get("deletionTimestamp"))


def test_each_node_runs_one_pod() -> None:
    world = started(2)
    assert places(world) == ["n0", "n1"]
    assert status(world) == {
        "observedGeneration": 1,
        "currentNumberScheduled": 2,
        "numberMisscheduled": 0,
        "desiredNumberScheduled": 2,
        "numberReady": 2,
        "updatedNumberScheduled": 2,
        "numberAvailable": 2,
    }
    (revision,) = world.revisions()
    pod = world.pods()[0]
    assert pod["metadata"]["labels"] == {
        "app": "web",
        "controller-revision-hash": revision["metadata"]["labels"]["controller-revision-hash"],
        "pod-template-generation": "1",
    }
    tolerated = {(one["key"], one["effect"]) for one in pod["spec"]["tolerations"]}
    assert ("node.kubernetes.io/unschedulable", "NoSchedule") in tolerated
    assert ("node.kubernetes.io/not-ready", "NoExecute") in tolerated
    world.add_node("n2")
    world.finish()
    assert places(world) == ["n0", "n1", "n2"]
    world.api.remove(NODES, "n1")
    world.finish()
    assert status(world)["desiredNumberScheduled"] == 2


def test_nodes_are_chosen_by_labels_affinity_and_taints() -> None:
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    term = {"matchExpressions": [{"key": "zone", "operator": "NotIn", "values": ["b"]}]}
    affinity = {"nodeAffinity": {required: {"nodeSelectorTerms": [term]}}}
    cases: list[tuple[Json, list[str]]] = [
        ({}, ["plain", "zone-b"]),
        ({"nodeSelector": {"gpu": "yes"}}, []),
        ({"nodeSelector": {"gpu": "yes"}, "tolerations": [{"operator": "Exists"}]}, ["gpu"]),
        ({"tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}]}, ["gpu", "plain", "zone-b"]),
        ({"affinity": affinity}, ["plain"]),
        ({"nodeName": "plain"}, ["plain"]),
    ]
    for spec, expected in cases:
        world = AppsWorld((DAEMON_SETS, workload(template=template("v1", **spec))))
        world.add_node("gpu", {"gpu": "yes"}, [GPU_TAINT])
        world.add_node("plain")
        world.add_node("zone-b", {"zone": "b"})
        world.finish()
        assert places(world) == expected, spec


def test_taint_keeps_or_evicts_a_running_pod() -> None:
    world = started(1)
    taint = {"key": "work", "value": "", "effect": "NoSchedule"}
    world.api.change(NODES, "n0", spec={"taints": [taint]})
    world.finish()
    assert places(world) == ["n0"]
    assert (status(world)["desiredNumberScheduled"], status(world)["numberMisscheduled"]) == (0, 1)
    world.api.change(NODES, "n0", spec={"taints": [{**taint, "effect": "NoExecute"}]})
    world.finish()
    assert places(world) == []


def test_update_keeps_to_max_unavailable() -> None:
    rolling = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 2, "maxSurge": 0}}
    world = started(5, updateStrategy=rolling)
    world.set_image(DAEMON_SETS, "web", "v2")
    world.settle()
    assert len(leaving(world)) == 2
    world.finish()
    assert world.images() == ["v2"] * 5
    assert [one["revision"] for one in world.revisions()] == [1, 2]


def test_update_with_surge_starts_the_new_pod_first() -> None:
    rolling = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}}
    world = started(3, updateStrategy=rolling)
    world.set_image(DAEMON_SETS, "web", "v2")
    world.settle()
    assert world.images() == ["v1", "v1", "v1", "v2"]
    assert leaving(world) == []
    for _ in range(40):
        if not world.round() + world.kubelet(1):
            break
        ready = [
            pod
            for pod in world.pods()
            if not pod["metadata"].get("deletionTimestamp") and pod["status"]["phase"] == "Running"
        ]
        assert len({pod["spec"]["nodeName"] for pod in ready}) == 3
    assert world.images() == ["v2"] * 3


def test_on_delete_leaves_pods_to_the_user() -> None:
    world = started(2, updateStrategy={"type": "OnDelete"})
    world.set_image(DAEMON_SETS, "web", "v2")
    world.finish()
    assert world.images() == ["v1", "v1"]
    world.api.remove(PODS, f"default/{world.pods()[0]['metadata']['name']}")
    world.finish()
    assert world.images() == ["v1", "v2"]


def test_failed_pod_is_replaced_with_a_growing_delay() -> None:
    world = started(1)
    world.end(world.pods()[0]["metadata"]["name"])
    world.finish()
    assert world.pods()[0]["status"]["phase"] == "Running"  # the first is replaced at once
    for delay in (1, 2, 4):
        world.end(world.pods()[0]["metadata"]["name"])
        world.settle()
        assert world.pods()[0]["status"]["phase"] == "Failed"
        world.reconcile("daemonset", "default/web")
        assert world.due == delay
        world.pass_time(delay)
        world.finish()
        assert world.pods()[0]["status"]["phase"] == "Running"
    assert ("FailedDaemonPod", "Warning") in {(reason, kind) for _, kind, reason, _ in world.words.said}


def test_driver_image_is_left_to_the_node_and_told() -> None:
    spec = template("x", {"app": "web"})
    spec["spec"]["containers"][0]["image"] = "nvcr.io/nvidia/k8s-device-plugin:v0.14.1"
    world = AppsWorld((DAEMON_SETS, workload(template=spec)), nodes=2)
    world.api.put(
        NODES, {"metadata": {"name": "real"}, "status": {"nodeInfo": {"kubeletVersion": "v1.36.3"}}}
    )
    world.finish()
    assert places(world) == ["real"]
    assert status(world)["desiredNumberScheduled"] == 1
    (told,) = {
        (kind, reason, message) for _, kind, reason, message in world.words.said if "Provided" in reason
    }
    assert told[:2] == ("Normal", "ProvidedByNode")
    assert "Windlass provides the devices (nvidia.com/gpu) on its nodes itself" in told[2]


def test_driver_images_are_found_by_name() -> None:
    cases = {
        "nvcr.io/nvidia/k8s-device-plugin:v0.14.1": True,
        "nvidia/dcgm-exporter@sha256:0123": True,
        "registry:5000/nvcr.io/nvidia/gpu-feature-discovery": True,
        "registry.k8s.io/nfd/node-feature-discovery:v0.16": True,
        "docker.io/projecthami/hami:v2.4": True,
        "python:3.11": False,
        "me/not-nvidia-driver": False,
        "": False,
    }
    for image, expected in cases.items():
        assert bool(provided_part({"containers": [{"image": image}]})[1]) is expected, image


EVENTS = st.one_of(
    st.tuples(st.just("image"), st.sampled_from(["v1", "v2", "v3"])),
    st.tuples(st.just("add"), st.integers(0, 4)),
    st.tuples(st.just("remove"), st.integers(0, 4)),
    st.tuples(st.just("lose"), st.integers(0, 2)),
)


@settings(max_examples=examples(30), deadline=None)
@given(
    surge=st.booleans(),
    history=st.lists(st.tuples(EVENTS, st.lists(st.integers(0, 4), max_size=3)), max_size=5),
)
def test_crashes_change_nothing(surge: bool, history: Any) -> None:
    rolling = {"maxUnavailable": 0, "maxSurge": 1} if surge else {"maxUnavailable": 1, "maxSurge": 0}
    strategy = {"type": "RollingUpdate", "rollingUpdate": rolling}
    calm, stormy = (started(2, updateStrategy=strategy) for _ in range(2))
    for (word, how), crashes in history:
        for world in (calm, stormy):
            _play(world, word, how)
        for writes in crashes:
            stormy.api.crash_after = writes
            with contextlib.suppress(Crash):
                stormy.round()
            stormy.restart()
        for world in (calm, stormy):
            world.finish()
        assert _picture(stormy) == _picture(calm), (word, how)


def _play(world: AppsWorld, word: str, how: Any) -> None:
    name = f"n{how}"
    match word:
        case "image":
            world.set_image(DAEMON_SETS, "web", how)
        case "add" if world.api.object(NODES, name) is None:
            world.add_node(name)
        case "remove" if world.api.object(NODES, name) is not None:
            world.api.remove(NODES, name)
            for pod in world.pods():
                if pod["spec"].get("nodeName") == name:
                    world.api.remove(PODS, f"default/{pod['metadata']['name']}")
        case "lose":
            for pod in world.pods():
                if pod["spec"].get("nodeName") == name:
                    world.api.remove(PODS, f"default/{pod['metadata']['name']}")


def _picture(world: AppsWorld) -> Any:
    pods = sorted(
        (pod["spec"]["nodeName"], pod["spec"]["containers"][0]["image"], str(pod["metadata"]["labels"]))
        for pod in world.pods()
    )
    revisions = [(one["metadata"]["name"], one["revision"]) for one in world.revisions()]
    return pods, revisions, status(world)
