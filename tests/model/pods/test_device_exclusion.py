"""Exclusion from sharing a device: labels of pods, and Volcano's exclusive GPU rules."""

from __future__ import annotations

from typing import Any

import pytest

from windlass.model.cluster.cluster_model import ClusterModel
from windlass.model.cluster.engine_factory import default_engine
from windlass.model.cluster.snapshot import EVERY_SCHEDULER, load
from windlass.model.pods.device_exclusion import Rules, exclusive_rules
from windlass.model.scheduler_config import parse

TRAINING = {"windlass.dev/device-sharing-label": "training"}
APART = {
    "windlass.dev/device-sharing-label": "inference",
    "windlass.dev/device-sharing-exclude": "training, batch",
}


def node() -> dict[str, Any]:
    amounts = {"cpu": "64", "memory": "256Gi", "pods": "110", "nvidia.com/gpu": "2"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "n", "labels": {"nvidia.com/gpu.memory": "24576"}},
        "status": {"allocatable": amounts, "conditions": [{"type": "Ready", "status": "True"}]},
    }


def pod(name: str, notes: dict[str, str], labels: dict[str, str], gpus: str = "") -> dict[str, Any]:
    amounts = {"nvidia.com/gpu": gpus} if gpus else {"aliyun.com/gpu-mem": "8"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": name,
            "annotations": notes,
            "labels": labels,
            "creationTimestamp": f"2026-01-01T00:00:0{name[-1]}Z",
        },
        "spec": {
            "schedulerName": "windlass",
            "containers": [{"name": "c", "resources": {"limits": amounts}}],
        },
        "status": {"phase": "Pending"},
    }


def placed(
    *pods: tuple[dict[str, str], dict[str, str]], rules: Rules = (), gpus: str = ""
) -> list[int | None]:
    """Return the device of each pod, in the order of their creation."""
    model = ClusterModel(EVERY_SCHEDULER, exclusive=rules)
    objects = [node(), *(pod(f"p{at}", notes, labels, gpus) for at, (notes, labels) in enumerate(pods))]
    load(model, ((str(at), each) for at, each in enumerate(objects)))
    engine = default_engine()
    engine.apply(model.take(0.0))
    found = {bind.task: bind.devices[0].index for bind in engine.cycle(0.0).binds}
    return [found.get(f"default/p{at}") for at in range(len(pods))]


def test_pods_without_annotations_share_the_fullest_device():
    assert placed(({}, {}), ({}, {}), ({}, {})) == [0, 0, 0]


@pytest.mark.parametrize("order", [(TRAINING, APART), (APART, TRAINING)])
def test_annotation_of_one_side_is_sufficient(order):
    first, second = order
    assert placed((first, {}), (second, {}), ({}, {})) == [0, 1, 0]


@pytest.mark.parametrize("label", ["windlass.dev/card-role", "windlass.dev/device-sharing-label"])
@pytest.mark.parametrize("exclude", ["windlass.dev/card-avoids", "windlass.dev/device-sharing-exclude"])
def test_former_spelling_of_the_annotations_is_read(label, exclude):
    assert placed(({label: "training"}, {}), ({exclude: "training"}, {}), ({}, {})) == [0, 1, 0]


def test_roles_that_no_pod_avoids_share():
    assert placed((TRAINING, {}), (TRAINING, {}), ({"windlass.dev/device-sharing-exclude": "batch"}, {})) == [
        0,
        0,
        0,
    ]


def test_pods_that_avoid_their_own_role_do_not_share():
    alone = {"windlass.dev/device-sharing-label": "x", "windlass.dev/device-sharing-exclude": "x"}
    assert placed((alone, {}), (alone, {}), (alone, {})) == [0, 1, None]


def test_pods_that_match_a_rule_share_with_others_only():
    rules: Rules = ((("app", "serve"), ("tier", "gold")), (("app", "train"),))
    gold, train, half = {"app": "serve", "tier": "gold"}, {"app": "train"}, {"app": "serve"}
    assert placed(({}, gold), ({}, train), ({}, half), rules=rules) == [0, 1, 0]
    assert placed(({}, gold), ({}, gold), ({}, gold), rules=rules) == [0, 1, None]


def test_whole_devices_need_no_annotation():
    assert placed((TRAINING, {}), (APART, {}), gpus="1") == [0, 1]


def test_rules_are_read_from_the_configuration():
    text = """
actions: allocate
tiers:
- plugins:
  - name: deviceshare
    arguments:
      deviceshare.GPUExclusiveRules:
      - {tier: gold, app: serve}
      - {}
      - nonsense
      - {app: 7}
"""
    assert exclusive_rules(parse(text).config) == ((("app", "serve"), ("tier", "gold")), (("app", "7"),))
    assert exclusive_rules(parse("actions: allocate\n").config) == ()
    plain = "actions: allocate\ntiers:\n- plugins:\n  - name: deviceshare\n"
    assert exclusive_rules(parse(plain).config) == ()


def test_new_configuration_applies_to_existing_pods():
    model = ClusterModel(EVERY_SCHEDULER)
    objects = [node(), pod("p0", {}, {"app": "serve"})]
    load(model, ((str(at), each) for at, each in enumerate(objects)))
    assert not any(task.needs.devices[0].avoids for task in tasks_of(model))
    model.configure(tiers=False, exclusive=((("app", "serve"),),))
    model.resend()
    assert [task.needs.devices[0].avoids for task in tasks_of(model)] == [("exclusive",)]


def tasks_of(model: ClusterModel) -> list[Any]:
    return [
        delta.task for delta in model.take(0.0) if hasattr(delta, "task") and hasattr(delta.task, "needs")
    ]
