"""Queues and groups of Volcano, of KAI and of Kubernetes' own API, side by side in one model."""

from __future__ import annotations

from typing import Any

import pytest
from kaiobjects import kai_group, kai_pod, kai_queue
from kubeobjects import group, node, pod, priority_class, queue
from model_deltas import NOW, Sent, model_of

from windlass.api import views
from windlass.api.reasons import Blocker, Explanation, Reason
from windlass.model.cluster.display_names import DisplayNames
from windlass.spi.objects import Dialect, SubGroup, TaskState


def test_equal_names_of_both_apis_are_two_queues() -> None:
    model = model_of(queue("train"), kai_queue("org"), kai_queue("train", "org", gpus=2, weight=0))
    sent = Sent(model)
    assert sorted(sent.queues) == ["kai/org", "kai/train", "root", "train"]
    assert (sent.queues["train"].dialect, sent.queues["train"].parent) == (Dialect.VOLCANO, "root")
    kai = sent.queues["kai/train"]
    assert (kai.dialect, kai.parent, sent.queues["kai/org"].parent) == (Dialect.KAI, "kai/org", "")
    assert kai.deserved == {"nvidia.com/gpu": 2000}
    assert kai.unlimited == ("cpu", "memory")
    assert kai.surplus_weights == {"nvidia.com/gpu": 0.0, "cpu": 1.0, "memory": 1.0}
    assert model.objects.both_apis()


def test_amounts_of_a_kai_queue() -> None:
    raw = kai_queue("q", priority=7, preemptMinRuntime="1h30m", reclaimMinRuntime="10s")
    raw["spec"]["resources"] = {
        "gpu": {"quota": 1.5, "limit": 4, "overQuotaWeight": 2.5},
        "cpu": {"quota": 1500, "limit": 0},
        "memory": {"quota": 200, "limit": -1},
    }
    found = Sent(model_of(raw)).queues["kai/q"]
    assert found.deserved == {"nvidia.com/gpu": 1500, "cpu": 1500, "memory": 200 * 10**6}
    assert found.capability == {"nvidia.com/gpu": 4000, "cpu": 0}
    assert found.surplus_weights == {"nvidia.com/gpu": 2.5, "cpu": 1.0, "memory": 1.0}
    assert (found.priority, found.preempt_min_runtime, found.reclaim_min_runtime) == (7, 5400.0, 10.0)


def test_kai_queue_without_limits_is_unlimited() -> None:
    raw = kai_queue("q")
    raw["spec"] = {}
    found = Sent(model_of(raw)).queues["kai/q"]
    assert (found.deserved, found.capability, found.unlimited, found.priority) == ({}, {}, (), 100)
    assert set(found.surplus_weights.values()) == {1.0}


def test_invalid_amounts_are_reported_at_their_field() -> None:
    raw = kai_queue("q", reclaimMinRuntime="soon")
    raw["spec"]["resources"]["gpu"] = {"quota": -2, "overQuotaWeight": -1}
    view = views.decode_kai_queue(views.encode(raw))
    assert [problem.field for problem in view.problems] == [
        "spec.resources.gpu.quota",
        "spec.resources.gpu.overQuotaWeight",
        "spec.reclaimMinRuntime",
    ]


def test_only_a_cluster_without_any_queue_has_an_implied_one() -> None:
    model = model_of(node("n"))
    sent = Sent(model)
    assert sorted(sent.queues) == ["default", "root"]
    model.objects.upsert_kai_queue(views.decode_kai_queue(views.encode(kai_queue("q"))))
    sent.take(model)
    assert sorted(sent.queues) == ["kai/q"]
    model.objects.upsert_queue(views.decode_queue(views.encode(queue("v"))))
    sent.take(model)
    assert sorted(sent.queues) == ["kai/q", "root", "v"]
    model.objects.remove_queue("v")
    model.objects.remove_kai_queue("q")
    sent.take(model)
    assert sorted(sent.queues) == ["default", "root"]


def test_groups_of_one_name_in_both_apis_are_two() -> None:
    model = model_of(
        queue("v"),
        kai_queue("k"),
        group("g", 1, queue="v"),
        kai_group("g", 2, "k"),
        pod("a", group="g"),
        kai_pod("b", "g"),
    )
    sent = Sent(model)
    assert sent.groups["default/g"].queue == "v"
    assert (sent.groups["default/kai:g"].queue, sent.groups["default/kai:g"].min_member) == ("kai/k", 2)
    assert sent.tasks["default/a"].group == "default/g"
    assert sent.tasks["default/b"].group == "default/kai:g"
    assert sent.tasks["default/b"].needs.dialect is Dialect.KAI


def test_group_of_the_pods_scheduler_takes_precedence() -> None:
    both = {"annotations": {"pod-group-name": "k", "scheduling.k8s.io/group-name": "v"}}
    sent = Sent(model_of(pod("a", scheduler="kai-scheduler", **both), pod("b", scheduler="volcano", **both)))
    assert (sent.tasks["default/a"].group, sent.tasks["default/b"].group) == ("default/kai:k", "default/v")


@pytest.mark.parametrize(
    ("classes", "named", "stated", "expected"),
    [
        ((), "", "", (50, True)),
        ((priority_class("high", 100),), "high", "", (100, False)),
        ((priority_class("high", 100),), "high", "preemptible", (100, True)),
        ((priority_class("low", 10),), "low", "non-preemptible", (10, False)),
        ((priority_class("usual", 70, globalDefault=True),), "", "", (70, True)),
        ((), "unknown", "", (0, True)),
    ],
)
def test_priority_and_preemptibility_of_kai_groups(
    classes: tuple[dict[str, Any], ...], named: str, stated: str, expected: tuple[int, bool]
) -> None:
    spec = {"priorityClassName": named, "preemptibility": stated}
    found = Sent(model_of(*classes, kai_group("g", 1, "q", **spec))).groups["default/kai:g"]
    assert (found.priority, found.preemptible) == expected


def test_deleted_class_still_applies_to_groups_of_other_apis() -> None:
    native = _native("n", None)
    native["spec"]["priorityClassName"] = "high"
    member = {"schedulingGroup": {"podGroupName": "n"}}
    model = model_of(
        kai_queue("q"),
        priority_class("high", 100),
        native,
        pod("a", priorityClassName="high", priority=100, **member),
        kai_group("g", 1, "q", priorityClassName="high"),
        kai_pod("b", "g", priorityClassName="high", priority=100),
        kai_pod("c", queue="q", priorityClassName="high", priority=100),
    )
    sent = Sent(model)
    keys = ("default/native:n", "default/kai:g", "default/pod:c")
    before = {key: sent.groups[key] for key in keys}
    assert [(one.priority, one.preemptible) for one in before.values()][1:] == [(100, False)] * 2
    model.objects.remove_class("high")
    sent.take(model)
    assert {key: sent.groups[key] for key in keys} == before


def test_times_of_a_kai_group() -> None:
    notes = {
        "kai.scheduler/stale-podgroup-timestamp": "2026-01-01T11:59:00Z",
        "kai.scheduler/last-start-timestamp": "2026-01-01T11:00:00Z",
        "kai.scheduler/last-eviction-timestamp": "nonsense",
        "kai.scheduler/preemption-delay": "30s",
        "kai.scheduler/staleness-grace-period": "-1s",
    }
    found = Sent(model_of(kai_group("g", 1, "q", notes=notes))).groups["default/kai:g"]
    assert (found.stale_since, found.started, found.last_eviction) == (NOW - 60, NOW - 3600, None)
    assert (found.preemption_delay, found.stale_grace) == (30.0, -1.0)
    stated = Sent(
        model_of(kai_group("g", 1, "q", notes=notes, preemptionDelay="2m", stalenessGracePeriod="5s"))
    )
    assert stated.groups["default/kai:g"].preemption_delay == 120.0
    assert stated.groups["default/kai:g"].stale_grace == 5.0
    assert Sent(model_of(kai_group("g", 1, "q"))).groups["default/kai:g"].stale_grace == 60.0


def test_kai_group_without_annotation_started_with_its_minimum() -> None:
    at = "2026-01-01T11:{:02}:00Z"
    pods = [kai_pod(f"p{i}", "g", node="n") for i in range(3)]
    for minute, obj in zip((10, 30, 20), pods, strict=True):
        obj["status"]["startTime"] = at.format(minute)
    assert Sent(model_of(kai_group("g", 2, "q"), *pods)).groups["default/kai:g"].started == NOW - 40 * 60
    assert Sent(model_of(kai_group("g", 4, "q"), *pods)).groups["default/kai:g"].started is None


def test_parts_of_a_kai_group() -> None:
    parts = [{"name": "a", "minSubGroup": 1}, {"name": "a1", "parent": "a", "minMember": 2}, {"name": "b"}]
    sent = Sent(
        model_of(
            kai_group("g", None, "q", subGroups=parts, minSubGroup=2),
            kai_pod(
                "p", "g", labels={"kai.scheduler/subgroup-name": "a1", "kai.scheduler/task-priority": "3"}
            ),
        )
    )
    found = sent.groups["default/kai:g"]
    assert found.subgroups == (SubGroup("a", "", 0, 1), SubGroup("a1", "a", 2), SubGroup("b"))
    assert (found.min_member, found.min_subgroups) == (0, 2)
    assert (sent.tasks["default/p"].subgroup, sent.tasks["default/p"].priority) == ("a1", 3)


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"preemptibility": "maybe"}, "spec.preemptibility"),
        ({"subGroups": [{"name": "a", "parent": "b"}]}, "spec.subGroups[0].parent"),
        (
            {"subGroups": [{"name": "a", "parent": "b"}, {"name": "b", "parent": "a"}]},
            "spec.subGroups[0].parent",
        ),
        ({"subGroups": [{"name": "a"}, {"name": "a"}]}, "spec.subGroups"),
        ({"minSubGroup": -1}, "spec.minSubGroup"),
    ],
)
def test_contradictory_kai_group_is_held_with_its_fields(spec: dict[str, Any], field: str) -> None:
    model = model_of(kai_group("g", 1, "q", **spec), kai_pod("p", "g"))
    assert Sent(model).groups["default/kai:g"].held
    told = model.explanation("default/kai:g")
    assert told is not None
    assert told.code is Reason.MISCONFIGURED
    assert f"PodGroup default/g: {field}" in told.message


def test_pod_with_an_invalid_share_request_does_not_start() -> None:
    wish = kai_pod("p", "g", requests={})
    wish["metadata"]["annotations"]["gpu-fraction"] = "half"
    model = model_of(kai_queue("q"), kai_group("g", 1, "q"), wish)
    assert Sent(model).tasks == {}
    told = model.explanation("default/kai:g")
    assert told is not None
    assert "metadata.annotations[gpu-fraction]" in told.message


def test_bare_pods_of_kai() -> None:
    model = model_of(
        kai_queue("q"),
        queue("v"),
        kai_pod("a", queue="q", priority=0),
        pod("b", labels={"kai.scheduler/queue": "v"}),
        pod("c", labels={"kai.scheduler/queue": "q"}, annotations={"scheduling.volcano.sh/queue-name": "v"}),
    )
    sent = Sent(model)
    a, b, c = (sent.groups[f"default/pod:{name}"] for name in "abc")
    assert (a.queue, a.dialect, a.priority, a.preemptible) == ("kai/q", Dialect.KAI, 50, True)
    assert (b.queue, c.queue) == ("v", "v")


def test_kai_batch_job_is_one_gang() -> None:
    owner = {
        "ownerReferences": [
            {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u", "controller": True}
        ]
    }

    def member(name: str, minute: int) -> dict[str, Any]:
        made = kai_pod(
            name, queue="q", metadata={**owner, "creationTimestamp": f"2026-01-01T11:{minute:02}:00Z"}
        )
        made["metadata"]["annotations"] = {"kai.scheduler/batch-min-member": "2"}
        return made

    model = model_of(kai_queue("q"), member("b", 5), member("a", 3), kai_pod("c", queue="q", metadata=owner))
    sent = Sent(model)
    found = sent.groups["default/owner:j"]
    assert (found.min_member, found.queue, found.uid, found.created) == (2, "kai/q", "u", NOW - 57 * 60)
    assert sent.tasks["default/a"].group == sent.tasks["default/b"].group == "default/owner:j"
    assert sent.tasks["default/c"].group == "default/pod:c"
    for name in ("a", "b"):
        model.objects.remove_pod(f"default/{name}")
    sent.take(model)
    assert "default/owner:j" not in sent.groups


def test_label_names_a_plain_queue_without_kai_queues() -> None:
    model = model_of(queue("q"), pod("p", labels={"kai.scheduler/queue": "q"}))
    sent = Sent(model)
    assert sent.groups["default/pod:p"].queue == "q"
    model.objects.upsert_kai_queue(views.decode_kai_queue(views.encode(kai_queue("q"))))
    sent.take(model)
    assert sent.groups["default/pod:p"].queue == "kai/q"
    model.objects.remove_kai_queue("q")
    sent.take(model)
    assert sent.groups["default/pod:p"].queue == "q"


@pytest.mark.parametrize(
    ("scheduler", "kai", "tiers", "expected"),
    [
        ("windlass", False, False, Dialect.WINDLASS),
        ("windlass", False, True, Dialect.VOLCANO),
        ("windlass", True, True, Dialect.WINDLASS),
        ("volcano", False, False, Dialect.VOLCANO),
        ("kai-scheduler", True, False, Dialect.KAI),
        ("volcano", True, False, Dialect.KAI),
    ],
)
def test_placement_rules_follow_the_queue_api(
    scheduler: str, kai: bool, tiers: bool, expected: Dialect
) -> None:
    note = {"pod-group-name": "g"} if kai else {"scheduling.k8s.io/group-name": "g"}
    model = model_of(kai_queue("q"), queue("v"), pod("p", scheduler=scheduler, annotations=note), tiers=tiers)
    assert Sent(model).tasks["default/p"].needs.dialect is expected


def _native(name: str, minimum: int | None, **meta: Any) -> dict[str, Any]:
    policy = {"basic": {}} if minimum is None else {"gang": {"minCount": minimum}}
    return {
        "apiVersion": "scheduling.k8s.io/v1alpha2",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": "default", **meta},
        "spec": {"schedulingPolicy": policy},
    }


def test_gangs_of_kubernetes_own_api() -> None:
    member = {"schedulingGroup": {"podGroupName": "g"}}
    model = model_of(
        priority_class("high", 9),
        kai_queue("q"),
        _native("g", 3, labels={"kai.scheduler/queue": "q"}),
        pod("a", priorityClassName="high", priority=9, **member),
        pod("b", **member),
    )
    sent = Sent(model)
    found = sent.groups["default/native:g"]
    assert (found.min_member, found.queue, found.dialect, found.priority) == (3, "kai/q", Dialect.KAI, 9)
    assert sent.tasks["default/b"].group == "default/native:g"
    model.objects.upsert_native_group(views.decode_native_group(views.encode(_native("g", None))))
    sent.take(model)
    assert (sent.groups["default/native:g"].min_member, sent.groups["default/native:g"].queue) == (
        1,
        "default",
    )
    model.objects.remove_native_group("default/g")
    sent.take(model)
    told = model.explanation("default/native:g")
    assert told is not None
    assert "PodGroup default/g does not exist" in told.message
    assert "spec.schedulingGroup.podGroupName" in told.remedies[0]


def test_replicas_of_a_workload_pod_group_are_separate_gangs() -> None:
    workload = {
        "apiVersion": "scheduling.k8s.io/v1alpha1",
        "kind": "Workload",
        "metadata": {"name": "w", "namespace": "default"},
        "spec": {"podGroups": [{"name": "workers", "policy": {"gang": {"minCount": 2}}}]},
    }
    reference = {"name": "w", "podGroup": "workers"}
    model = model_of(
        workload,
        pod("a", workloadRef={**reference, "podGroupReplicaKey": "0"}),
        pod("b", workloadRef={**reference, "podGroupReplicaKey": "1"}),
        pod("c", workloadRef=reference),
    )
    sent = Sent(model)
    keys = {name: sent.tasks[f"default/{name}"].group for name in "abc"}
    assert keys == {
        "a": "default/native:w.workers:0",
        "b": "default/native:w.workers:1",
        "c": "default/native:w.workers",
    }
    assert all(sent.groups[key].min_member == 2 for key in keys.values())


def test_volcanos_policies_divide_a_gang_by_labels() -> None:
    policies = [
        {"name": "ranks", "matchLabelKeys": ["rank"], "subGroupSize": 2, "minSubGroups": 1},
        {"name": "rest", "labelSelector": {"matchLabels": {"role": "x"}}, "subGroupSize": 1},
    ]
    model = model_of(
        group("g", 3, subGroupPolicy=policies),
        pod("a", group="g", labels={"rank": "0"}),
        pod("b", group="g", labels={"rank": "1", "role": "x"}),
        pod("c", group="g", labels={"role": "x"}),
        pod("d", group="g"),
    )
    sent = Sent(model)
    assert {name: sent.tasks[f"default/{name}"].subgroup for name in "abcd"} == {
        "a": "ranks/0",
        "b": "ranks/1",
        "c": "rest",
        "d": "",
    }
    assert sent.groups["default/g"].subgroups == (
        SubGroup("ranks", "", 0, 1),
        SubGroup("rest/", "", 0, 0),
        SubGroup("ranks/0", "ranks", 2),
        SubGroup("ranks/1", "ranks", 2),
        SubGroup("rest", "rest/", 1),
    )
    model.objects.remove_pod("default/a")
    sent.take(model)
    names = [part.name for part in sent.groups["default/g"].subgroups]
    assert names == ["ranks", "rest/", "ranks/1", "rest"]


def test_a_termination_that_takes_too_long_is_stuck_from_then_on() -> None:
    doomed = pod("p", node="n", metadata={"deletionTimestamp": "2026-01-01T12:00:00Z"})
    model = model_of(doomed)
    sent = Sent(model, NOW + 60)
    assert sent.tasks["default/p"].state is TaskState.RELEASING
    assert model.next_change() == NOW + 120
    sent.take(model, NOW + 120)
    assert sent.tasks["default/p"].state is TaskState.STUCK
    assert model.next_change() is None


@pytest.mark.parametrize("phase", ["Pending", "Succeeded", "Failed"])
def test_time_alone_changes_nothing_of_a_termination_that_is_never_stuck(phase: str) -> None:
    """A pod that lost its node while its image was pulled, or has a finalizer, may terminate for days."""
    doomed = pod("p", node="n", phase=phase, metadata={"deletionTimestamp": "2026-01-01T12:00:00Z"})
    model = model_of(doomed)
    for moment in (NOW + 60, NOW + 121, NOW + 300):
        model.take(moment)
        assert model.next_change() is None


def test_protected_pod_can_be_evicted_after_its_protection() -> None:
    model = model_of(node("n"), pod("p", node="n"))
    sent = Sent(model, NOW)
    model.protect("default/p", NOW + 30)
    sent.take(model, NOW)
    assert not sent.tasks["default/p"].preemptible
    assert model.next_change() == NOW + 30
    sent.take(model, NOW + 30)
    assert sent.tasks["default/p"].preemptible
    assert model.next_change() is None


def test_resend_returns_the_whole_state() -> None:
    objects = (
        node("n"),
        queue("v"),
        kai_queue("k"),
        kai_group("g", 1, "k"),
        kai_pod("a", "g"),
        pod("b"),
        group("h", 1),
    )
    model = model_of(*objects, _native("m", 1), pod("c", schedulingGroup={"podGroupName": "m"}))
    first = Sent(model)
    assert model.take(NOW) == []
    model.resend()
    second = Sent(model)
    assert (first.queues, first.groups, first.tasks) == (second.queues, second.groups, second.tasks)


def test_critical_pods_and_run_times() -> None:
    sent = Sent(
        model_of(
            pod("a", namespace="kube-system"),
            pod("b", priorityClassName="system-node-critical"),
            pod("c", activeDeadlineSeconds=60, annotations={"windlass.dev/run-estimate": "2h"}),
        )
    )
    assert sent.tasks["kube-system/a"].critical
    assert sent.tasks["default/b"].critical
    assert not sent.tasks["default/c"].critical
    assert sent.tasks["default/c"].run_limit == 60.0
    assert sent.groups["default/pod:c"].run_estimate == 7200.0


def test_display_names() -> None:
    told = Explanation(
        Reason.BEHIND_IN_QUEUE,
        "It waits in queue kai/train, behind default/kai:a and default/pod:b.",
        blockers=(Blocker(Reason.WAITING_FOR_QUOTA, detail="limit of queue research"),),
        holders=("default/kai:a", "ns/native:w.workers:0"),
        ahead=("default/c",),
    )
    alone = DisplayNames().explanation(told)
    assert alone.message == "It waits in queue train, behind default/a and default/b."
    assert alone.holders == ("default/a", "ns/w.workers:0")
    both = DisplayNames(True, {"research"}).explanation(told)
    assert both.message == "It waits in queue kai/train, behind default/a and default/b."
    assert both.blockers[0].detail == "limit of queue volcano/research"
    assert DisplayNames().explanation(alone) is alone


@pytest.mark.parametrize(("text", "grace"), [("5m", 300.0), ("", None), ("soon", None)])
def test_volcano_gang_can_have_a_staleness_grace(text: str, grace: float | None) -> None:
    obj = group("g", 2)
    obj["metadata"]["annotations"] = {"windlass.dev/staleness-grace-period": text}
    assert Sent(model_of(obj)).groups["default/g"].stale_grace == grace
