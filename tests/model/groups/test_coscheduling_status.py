"""Gangs of the coscheduling plugin, and plain pod groups of Kueue.

The tests cover their pods, queue, priority, and the status of those that have one.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from coschedulingobjects import LABEL, coscheduling_group, member
from kaiobjects import kai_group, kai_queue
from kubeobjects import group, namespace, pod, priority_class, queue
from model_deltas import Sent, model_of

from windlass.api import views
from windlass.api.reasons import Reason
from windlass.model.cluster.cluster_model import ClusterModel
from windlass.model.groups import coscheduling_status
from windlass.model.groups.coscheduling_status import CoschedulingStatus
from windlass.model.groups.member_counts import Members
from windlass.spi.objects import Dialect

KEY = "default/coscheduling:train"


def view_of(obj: dict[str, Any]) -> views.CoschedulingGroup:
    return views.decode_coscheduling_group(views.encode(obj))


# ------------------------------------------------------------------ the group


def test_gang_of_kubeflow_trainer() -> None:
    train = coscheduling_group("train", 2, needs={"nvidia.com/gpu": 2, "cpu": "8"})
    sent = Sent(model_of(train, member("a", "train"), member("b", "train")))
    found = sent.groups[KEY]
    assert (found.min_member, found.queue, found.dialect) == (2, "default", Dialect.VOLCANO)
    assert found.min_resources == {"nvidia.com/gpu": 2000, "cpu": 8000}
    assert not found.admitted  # its queue has to have room for that first
    assert (found.uid, found.held, found.preemptible) == ("uid-train", False, True)
    assert {task.group for task in sent.tasks.values()} == {KEY}


def test_gang_without_resources_is_admitted_at_once() -> None:
    found = Sent(model_of(coscheduling_group("train"))).groups[KEY]
    assert (found.min_member, found.admitted, found.min_resources) == (1, True, {})


@pytest.mark.parametrize(
    ("on_group", "on_pod", "on_namespace", "expected"),
    [
        ({}, {}, "", "default"),
        ({}, {}, "team", "team"),
        ({}, {"scheduling.volcano.sh/queue-name": "mine"}, "team", "mine"),
        (
            {"scheduling.volcano.sh/queue-name": "ours"},
            {"scheduling.volcano.sh/queue-name": "mine"},
            "team",
            "ours",
        ),
    ],
)
def test_queue_is_named_by_the_gang_its_pods_or_its_namespace(
    on_group: dict[str, str], on_pod: dict[str, str], on_namespace: str, expected: str
) -> None:
    said = {"scheduling.volcano.sh/queue-name": on_namespace} if on_namespace else {}
    home = namespace("default", annotations=said)
    found = Sent(
        model_of(
            home,
            coscheduling_group("train", 1, annotations=on_group),
            member("a", "train", annotations=on_pod),
        )
    )
    assert found.groups[KEY].queue == expected


def test_kai_queue_uses_kais_rules() -> None:
    labels = {"kai.scheduler/queue": "q"}
    model = model_of(coscheduling_group("train", 1), member("a", "train", labels=labels))
    sent = Sent(model)
    assert (sent.groups[KEY].queue, sent.groups[KEY].dialect) == ("q", Dialect.VOLCANO)
    model.objects.upsert_kai_queue(views.decode_kai_queue(views.encode(kai_queue("q"))))
    sent.take(model)
    assert (sent.groups[KEY].queue, sent.groups[KEY].dialect) == ("kai/q", Dialect.KAI)
    model.objects.remove_kai_queue("q")
    sent.take(model)
    assert (sent.groups[KEY].queue, sent.groups[KEY].dialect) == ("q", Dialect.VOLCANO)


def test_it_is_as_urgent_as_the_most_urgent_of_its_pods() -> None:
    low, high = {"priorityClassName": "low", "priority": 1}, {"priorityClassName": "high", "priority": 9}
    model = model_of(
        priority_class("low", 1),
        priority_class("high", 9),
        coscheduling_group("train", 2),
        member("a", "train", preemptionPolicy="Never", **low),
    )
    sent = Sent(model)
    assert (sent.groups[KEY].priority, sent.groups[KEY].never_preempts) == (1, True)
    model.objects.upsert_pod(views.decode_pod(views.encode(member("b", "train", **high))))
    sent.take(model)
    assert (sent.groups[KEY].priority, sent.groups[KEY].never_preempts) == (9, False)


def test_annotations_of_pods_apply_where_the_object_has_none() -> None:
    """An operator creates the object, so users can annotate only the pods."""
    said = {"volcano.sh/preemptable": "false", "windlass.dev/run-estimate": "1h", "windlass.dev/model": "big"}
    pods = [member("a", "train", annotations=said), member("b", "train")]
    found = Sent(model_of(coscheduling_group("train", 2), *pods)).groups[KEY]
    assert (found.preemptible, found.run_estimate) == (False, 3600.0)
    own = {"volcano.sh/preemptable": "true", "windlass.dev/run-estimate": "2h"}
    found = Sent(model_of(coscheduling_group("train", 2, annotations=own), *pods)).groups[KEY]
    assert (found.preemptible, found.run_estimate) == (True, 7200.0)


def test_groups_of_one_name_in_all_apis_are_different() -> None:
    model = model_of(
        group("train", 1),
        kai_queue("q"),
        kai_group("train", 1, "q"),
        coscheduling_group("train", 1),
        member("a", "train"),
        pod("b", group="train", labels={LABEL: "train"}),  # Volcano's word goes first
        pod("c", annotations={"pod-group-name": "train"}, labels={LABEL: "train"}),
    )
    sent = Sent(model)
    of = {name: sent.tasks[f"default/{name}"].group for name in "abc"}
    assert of == {"a": KEY, "b": "default/train", "c": "default/kai:train"}


def test_pods_wait_for_a_missing_group() -> None:
    model = model_of(member("a", "train"), member("b", "train"))
    sent = Sent(model)
    assert sent.groups == {}
    told = model.explanation(KEY)
    assert told is not None
    assert told.code is Reason.WAITING_FOR_MEMBERS
    assert told.message == (
        "PodGroup (scheduling.x-k8s.io/v1alpha1) default/train does not exist; 2 pods that name it wait for it"
    )
    assert told.remedies == (
        "create PodGroup (scheduling.x-k8s.io/v1alpha1) default/train, "
        "or correct the pods' label scheduling.x-k8s.io/pod-group",
    )
    model.objects.upsert_coscheduling_group(view_of(coscheduling_group("train", 2)))
    sent.take(model)
    assert sent.groups[KEY].min_member == 2
    assert model.explanation(KEY) is None
    model.objects.remove_coscheduling_group("default/train")
    sent.take(model)
    assert sent.groups == {}
    assert model.explanation(KEY) is not None


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"minMember": 0}, "spec.minMember"),
        ({"minMember": "three"}, "spec.minMember"),
        ({"minMember": 2, "minResources": {"cpu": "much"}}, "spec.minResources[cpu]"),
        ({"minMember": 2, "minResources": {"cpu": "-1"}}, "spec.minResources[cpu]"),
        ({"minMember": 2, "minResources": [1]}, "spec.minResources"),
    ],
)
def test_invalid_field_is_reported_and_holds_the_gang(spec: dict[str, Any], field: str) -> None:
    wrong = coscheduling_group("train")
    wrong["spec"] = spec
    model = ClusterModel(("windlass",))
    model.objects.upsert_coscheduling_group(view_of(wrong))
    model.objects.upsert_pod(views.decode_pod(views.encode(member("a", "train"))))
    assert Sent(model).groups[KEY].held
    told = model.explanation(KEY)
    assert told is not None
    assert told.code is Reason.MISCONFIGURED
    assert told.message.startswith(f"PodGroup default/train: {field}: ")


def test_group_of_foreign_pods_is_ignored() -> None:
    model = ClusterModel(("windlass",))
    model.objects.upsert_coscheduling_group(view_of(coscheduling_group("train", 1)))
    sent = Sent(model)
    assert model.groups.known(KEY)
    model.objects.upsert_pod(
        views.decode_pod(views.encode(member("a", "train", scheduler="scheduler-plugins")))
    )
    sent.take(model)
    assert not model.groups.known(KEY)
    assert sent.groups == {}


def test_whole_state_is_sent_to_another_engine() -> None:
    model = model_of(coscheduling_group("train", 2), queue("default"))
    Sent(model)
    model.resend()
    assert KEY in Sent(model).groups
    model.take_changed()
    model.show_all()
    assert KEY in model.take_changed()


# ------------------------------------------------------------------ plain pod groups of Kueue

KUEUE = "default/kueue:sample"


def of_kueue(name: str, count: str | None = "2", **more: Any) -> dict[str, Any]:
    notes = {} if count is None else {"kueue.x-k8s.io/pod-group-total-count": count}
    notes |= more.pop("annotations", {})
    labels = {"kueue.x-k8s.io/pod-group-name": "sample", "kueue.x-k8s.io/queue-name": "lq"}
    return pod(name, labels=labels, annotations=notes, **more)


def test_a_plain_pod_group_of_kueue_is_a_gang() -> None:
    notes = {"scheduling.volcano.sh/queue-name": "team", "windlass.dev/run-estimate": "1h"}
    model = model_of(of_kueue("a", annotations=notes, priority=1), of_kueue("b", priority=5))
    sent = Sent(model)
    found = sent.groups[KUEUE]
    assert (found.min_member, found.queue, found.priority, found.run_estimate) == (2, "team", 5, 3600.0)
    assert (found.admitted, found.held) == (True, False)
    assert {task.group for task in sent.tasks.values()} == {KUEUE}
    for name in "ab":
        model.objects.remove_pod(f"default/{name}")
    sent.take(model)
    assert sent.groups == {}


def test_group_can_be_named_by_annotation() -> None:
    plain = of_kueue("a", annotations={"kueue.x-k8s.io/pod-group-name": "sample"})
    del plain["metadata"]["labels"]
    assert Sent(model_of(plain)).tasks["default/a"].group == KUEUE


@pytest.mark.parametrize("word", ["pod-group-fast-admission", "pod-group-serving"])
def test_fast_admission_pods_start_one_by_one(word: str) -> None:
    sent = Sent(model_of(of_kueue("web-0", annotations={f"kueue.x-k8s.io/{word}": "true"})))
    assert sent.tasks["default/web-0"].group == "default/pod:web-0"


def test_named_podgroup_takes_precedence() -> None:
    both = of_kueue("a")
    both["metadata"]["labels"][LABEL] = "train"
    assert Sent(model_of(both, coscheduling_group("train", 1))).tasks["default/a"].group == KEY


@pytest.mark.parametrize(
    ("counts", "words"),
    [
        (("two", "2"), 'Invalid value: "two": must be an integer of at least 1'),
        (("0",), "must be an integer of at least 1"),
        ((None,), "must be an integer of at least 1"),
        (("2", "3"), "must be the same on all its pods"),
    ],
)
def test_invalid_or_conflicting_count_holds_the_group(counts: tuple[str | None, ...], words: str) -> None:
    model = model_of(*[of_kueue(f"p{i}", count) for i, count in enumerate(counts)])
    assert Sent(model).groups[KUEUE].held
    told = model.explanation(KUEUE)
    assert told is not None
    assert told.code is Reason.MISCONFIGURED
    field = "metadata.annotations[kueue.x-k8s.io/pod-group-total-count]"
    assert told.message.startswith(f"pod group default/sample: {field}: ")
    assert words in told.message


# ------------------------------------------------------------------ the status


def status_of(
    phase: str = "", members: Members | None = None, *, least: int | None = 2
) -> CoschedulingStatus:
    view = view_of({**coscheduling_group("train", least), "status": {"phase": phase}})
    pods = [views.decode_pod(views.encode(member("a", "train")))]
    return coscheduling_status.desired(view, members or Members(), pods)


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        (Members(pending=1), "Pending"),
        (Members(pending=2), "Scheduling"),
        (Members(bound=2), "Scheduling"),
        (Members(running=1, bound=1), "Scheduling"),
        (Members(running=2), "Running"),
        (Members(running=1, succeeded=1), "Running"),
        (Members(succeeded=2), "Finished"),
        (Members(succeeded=2, running=1), "Finished"),
        (Members(running=1, failed=1), "Failed"),
        (Members(failed=2), "Failed"),
        (Members(running=2, failed=1), "Running"),
        (Members(pending=2, failed=1), "Scheduling"),
        (Members(running=1, releasing=1), "Running"),
        (Members(releasing=1, failed=1), "Failed"),
    ],
)
def test_phases_are_those_of_the_plugins_controller(members: Members, expected: str) -> None:
    found = status_of("Scheduling", members)
    assert found.phase == expected
    assert (found.running, found.succeeded, found.failed) == (
        members.running + members.releasing,  # a terminating pod runs until it has ended
        members.succeeded,
        members.failed,
    )
    assert found.occupied_by == ("" if expected == "Pending" else "default/train-node-0")


def test_group_that_never_had_pods_is_unchanged() -> None:
    assert status_of("").phase == ""
    assert status_of("Finished").phase == "Finished"
    assert status_of("Failed", Members(failed=1)).phase == "Failed"
    assert status_of("Running").phase == "Pending"
    assert status_of("Failed", Members(pending=2)).phase == "Scheduling"


def test_foreign_status_writer_is_detected_by_managed_fields() -> None:
    def written_by(*managers: tuple[str, str]) -> views.CoschedulingGroup:
        fields = [{"manager": name, "subresource": where, "operation": "Update"} for name, where in managers]
        return view_of(coscheduling_group("train", 2, managedFields=fields))

    assert not coscheduling_status.is_managed_by_others(written_by())
    assert not coscheduling_status.is_managed_by_others(
        written_by(("trainer", ""), ("windlass-scheduler", "status"))
    )
    assert coscheduling_status.is_managed_by_others(
        written_by(("windlass-scheduler", "status"), ("controller", "status"))
    )


def test_written_status_equals_the_desired_one() -> None:
    wanted = CoschedulingStatus("Running", "default/train-node-0", 2, 0, 1)
    written = {**coscheduling_group("train", 2), **wanted.patch()}
    assert coscheduling_status.current(view_of(written)) == wanted
    assert replace(wanted, occupied_by="").patch()["status"]["occupiedBy"] is None
