"""Explanations at the end of a plan, from Kubernetes objects to sentences."""

from __future__ import annotations

from explained_plan import explained
from kubeobjects import group, node, pod, queue
from tier_configurations import config

ONE_CPU = {"cpu": "1"}


def test_limit_that_several_plugins_reject_by_is_told_once() -> None:
    tiers = config(
        "enqueue allocate", "priority gang | predicates capacity", capacity={"enableHierarchy": True}
    )
    objects = [node("n1"), queue("root"), queue("org", parent="root", capability={"cpu": "2"})]
    for name in ("a", "b"):
        objects += [queue(f"q{name}", parent="org")]
        objects += [group(name, 2, queue=f"q{name}", minResources={"cpu": "2"})]
        objects += [pod(f"{name}-{i}", scheduler="volcano", group=name, requests=ONE_CPU) for i in range(2)]
    told = explained(objects, tiers)["b"]
    assert told.message.count("queue org has 0 left") == 1
    assert len(told.blockers) == 1
    assert told.remedies == (
        "Wait for work of queue org to end, or raise the limit: windlass queue set org capability.cpu=4.",
    )


def test_remedy_for_a_plain_pod_group_of_kueue_names_its_annotation() -> None:
    about = {
        "labels": {"kueue.x-k8s.io/pod-group-name": "a"},
        "annotations": {"kueue.x-k8s.io/pod-group-total-count": "3"},
    }
    told = explained([node("n1"), *(pod(f"a{i}", requests=ONE_CPU, **about) for i in range(2))])["a"]
    assert told.remedies == (
        "Create the missing pods, or lower annotation kueue.x-k8s.io/pod-group-total-count to 2.",
    )
