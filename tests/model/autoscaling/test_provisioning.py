"""Provisioning requests: pods, phases and due actions, by table and with random histories."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kubeobjects import pod

from windlass.api import annotations as names
from windlass.api import views
from windlass.api.resources import COSCHEDULING_POD_GROUPS, KAI_POD_GROUPS, POD_GROUPS
from windlass.api.views.autoscaling import RequestCondition
from windlass.kits.timestamps import rfc3339
from windlass.model.autoscaling.provisioning import (
    OVER,
    ProvisioningPhase,
    Retry,
    WantedRequest,
    decide,
    group_of,
    is_requested_whole,
    status_of,
    want_of,
)
from windlass.model.autoscaling.provisioning_objects import OwningGroup, request_of, template_of
from windlass.spi.objects import Group, SubGroup

MADE, NOW, ATOMIC = 1000.0, 2000.0, "best-effort-atomic-scale-up.autoscaling.x-k8s.io"
OWNER = OwningGroup(POD_GROUPS, "default", "g", "uid-g")
CONDITIONS = {
    ProvisioningPhase.ASKED: (),
    ProvisioningPhase.ACCEPTED: ("Accepted",),
    ProvisioningPhase.PROVISIONED: ("Accepted", "Provisioned"),
    ProvisioningPhase.EXPIRED: ("Accepted", "Provisioned", "BookingExpired"),
    ProvisioningPhase.REVOKED: ("Accepted", "Provisioned", "CapacityRevoked"),
    ProvisioningPhase.FAILED: ("Accepted", "Failed"),
}
RETRY = Retry(times=3, seconds=60.0, max_seconds=200.0)


def pods(*specs: dict[str, Any]) -> list[views.Pod]:
    made = [pod(f"p{i}", group="g", **spec) for i, spec in enumerate(specs)]
    return [views.decode_pod(views.encode(one)) for one in made]


def wanted(count: int, class_name: str = ATOMIC) -> WantedRequest:
    found = want_of(Group("default/g", min_member=count), pods(*[{}] * count), (), class_name)
    assert found is not None
    return found


def request(
    want: WantedRequest,
    stand: ProvisioningPhase = ProvisioningPhase.ASKED,
    *,
    attempt: int = 1,
    owner: OwningGroup = OWNER,
    since: float = NOW,
) -> views.ProvisioningRequest:
    body = request_of(owner, want, [f"t{i}" for i, _ in enumerate(want.classes)], attempt)
    body["metadata"] |= {"uid": f"uid-{attempt}", "creationTimestamp": rfc3339(MADE)}
    made = views.decode_provisioning_request(msgspec.json.encode(body))
    return with_conditions(made, stand, since)


def with_conditions(
    made: views.ProvisioningRequest, stand: ProvisioningPhase, since: float
) -> views.ProvisioningRequest:
    told = tuple(RequestCondition(kind, "True", "R", f"{kind}.", since) for kind in CONDITIONS[stand])
    return msgspec.structs.replace(made, conditions=told)


# ---------------------------------------------------------------------- how it stands


@pytest.mark.parametrize("stand", ProvisioningPhase)
def test_phase_of_a_request_follows_its_conditions(stand: ProvisioningPhase) -> None:
    found = status_of(request(wanted(2), stand, since=1500.0))
    assert found.phase is stand
    assert found.since == (MADE if stand is ProvisioningPhase.ASKED else 1500.0)


def test_accepted_request_reports_that_capacity_is_still_missing() -> None:
    made = request(wanted(2), ProvisioningPhase.ACCEPTED)
    yet = RequestCondition("Provisioned", "False", "CapacityIsNotFound", "later", NOW)
    found = status_of(msgspec.structs.replace(made, conditions=(*made.conditions, yet)))
    assert (found.phase, found.detail) == (ProvisioningPhase.ACCEPTED, "later")


# ---------------------------------------------------------------------- what is due


@pytest.mark.parametrize("stand", ProvisioningPhase)
@pytest.mark.parametrize("want", ["none", "same", "other pods", "other class", "other owner"])
def test_due_actions(want: str, stand: ProvisioningPhase) -> None:
    same = wanted(2)
    made = request(same, stand)
    asked = {"none": None, "other pods": wanted(3), "other class": wanted(2, "other")}.get(want, same)
    owner = "another" if want == "other owner" else OWNER.uid
    due = decide(asked, owner, [made], NOW + 1.0, RETRY)
    assert due.ask == 0  # it never asks while what is there has to go, or stands
    if want != "same":
        assert due.withdraw == (made,)
        assert due.look_at is None
        gone = decide(asked, owner, [], NOW + 2.0, RETRY)
        assert gone.ask == (0 if want == "none" else 1)
    else:
        assert due.withdraw == ()
        assert due.current is made
        assert due.look_at == (NOW + 60.0 if stand in OVER else None)


@pytest.mark.parametrize("stand", sorted(OVER))
@pytest.mark.parametrize(("attempt", "pause"), [(1, 60.0), (2, 120.0), (3, 200.0), (4, None)])
def test_finished_request_is_repeated_with_growing_pauses_up_to_a_limit(
    stand: ProvisioningPhase, attempt: int, pause: float | None
) -> None:
    want = wanted(2)
    made = request(want, stand, attempt=attempt)
    if pause is None:
        due = decide(want, OWNER.uid, [made], NOW + 1e9, RETRY)
        assert (due.ask, due.withdraw, due.look_at) == (0, (), None)
        return
    early = decide(want, OWNER.uid, [made], NOW + pause - 1.0, RETRY)
    assert (early.ask, early.look_at) == (0, NOW + pause)
    due = decide(want, OWNER.uid, [made], NOW + pause, RETRY)
    assert (due.ask, due.withdraw) == (attempt + 1, ())
    after = decide(want, OWNER.uid, [made, request(want, attempt=attempt + 1)], NOW + pause, RETRY)
    assert (after.ask, after.withdraw) == (0, (made,))


def test_no_request_is_made_while_a_previous_one_is_being_deleted() -> None:
    going = msgspec.structs.replace(request(wanted(3)), deleted=NOW)
    due = decide(wanted(2), OWNER.uid, [going], NOW, RETRY)
    assert (due.ask, due.withdraw) == (0, ())


EVENTS = st.one_of(
    st.tuples(st.just("want"), st.sampled_from([0, 2, 3])),
    st.tuples(st.just("say"), st.sampled_from(list(ProvisioningPhase))),
    st.tuples(st.just("pass"), st.floats(0.0, 300.0)),
    st.tuples(st.just("gone"), st.just(0)),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(EVENTS, max_size=40))
def test_any_history_leaves_at_most_one_request_and_no_leftovers(history: list[tuple[str, Any]]) -> None:
    now, want, seen = NOW, None, list[views.ProvisioningRequest]()
    uids = 0
    for what, value in [*history, ("want", 0), ("gone", 0)]:
        if what == "want":
            want = wanted(value) if value else None
        elif what == "say" and seen:
            seen[-1] = with_conditions(seen[-1], value, now)
        elif what == "pass":
            now += value
        else:
            seen = [one for one in seen if not one.deleted]
        for _ in range(2):
            due = decide(want, OWNER.uid, seen, now, RETRY)
            seen = [msgspec.structs.replace(one, deleted=now) if one in due.withdraw else one for one in seen]
            if due.ask:
                assert due.ask <= RETRY.times + 1
                assert want is not None
                uids += 1
                made = request(want, attempt=due.ask)
                assert made.name not in {one.name for one in seen}
                seen.append(msgspec.structs.replace(made, uid=str(uids), created=now))
            live = [one for one in seen if not one.deleted and status_of(one).phase not in OVER]
            assert len(live) <= 1
    assert seen == []


# ---------------------------------------------------------------------- which pods


def count_by(want: WantedRequest | None) -> dict[str, int]:
    return {one.each: len(one.pods) for one in want.classes} if want is not None else {}


def test_equal_pods_are_counted_together() -> None:
    cpu = {"requests": {"cpu": "2"}}
    want = want_of(Group("default/g", min_member=4), pods({}, cpu, {}, {}), (), ATOMIC)
    assert count_by(want) == {"1 GPU": 3, "2 CPUs": 1}
    assert want is not None
    assert want.what in ("3 x 1 GPU and 1 x 2 CPUs", "1 x 2 CPUs and 3 x 1 GPU")
    again = want_of(Group("default/g", min_member=4), pods(cpu, {}, {}, {}), (), ATOMIC)
    assert again is not None
    assert again.digest == want.digest


@pytest.mark.parametrize("different", ["nodeSelector", "tolerations", "hostPort", "priority"])
def test_pods_for_different_nodes_are_separate_classes(different: str) -> None:
    container = {"name": "c", "ports": [{"containerPort": 1, "hostPort": 1}]}
    fields: dict[str, Any] = {
        "nodeSelector": {"nodeSelector": {"pool": "a"}},
        "tolerations": {"tolerations": [{"key": "x", "operator": "Exists"}]},
        "hostPort": {"containers": [container]},
        "priority": {"priority": 5},
    }[different]
    want = want_of(Group("default/g", min_member=2), pods({}, fields), (), ATOMIC)
    assert want is not None
    assert len(want.classes) == 2


def test_elastic_gang_requests_only_the_pods_missing_from_its_minimum() -> None:
    group = Group("default/g", min_member=3)
    some = [{"node": "n1"}, {}, {}, {}, {"phase": "Failed"}, {"phase": "Succeeded"}]
    want = want_of(group, pods(*some), (), ATOMIC)
    assert want is not None
    assert [len(one.pods) for one in want.classes] == [1]
    assert want_of(group, pods(*some), {"default/p1"}, ATOMIC) is None


def test_minimum_of_each_role_is_requested() -> None:
    def role(name: str) -> dict[str, Any]:
        return {"annotations": {names.TASK_SPEC: name}}

    group = Group("default/g", min_member=3, min_task_member={"ps": 1, "worker": 2})
    want = want_of(group, pods(*[role("worker")] * 4, role("ps")), (), ATOMIC)
    assert want is not None
    assert sorted(want.pods) == ["default/p0", "default/p1", "default/p4"]


def test_gang_with_subgroups_requests_all_its_pods() -> None:
    group = Group("default/g", min_member=2, subgroups=(SubGroup("a"),))
    want = want_of(group, pods({}, {}, {}), (), ATOMIC)
    assert want is not None
    assert len(list(want.pods)) == 3


def test_group_of_one_is_not_a_gang() -> None:
    assert not is_requested_whole(Group("default/g", min_member=1))
    assert is_requested_whole(Group("default/g", min_member=2))


# ---------------------------------------------------------------------- objects


def test_template_contains_only_what_schedulers_need() -> None:
    whole = pod("p0", labels={"app": "x"})
    whole["spec"] |= {
        "nodeName": "",
        "hostname": "p0",
        "serviceAccountName": "me",
        "nodeSelector": {"pool": "a"},
        "tolerations": [{"operator": "Exists"}],
        "hostNetwork": True,
        "volumes": [
            {"name": "secret", "secret": {"secretName": "s"}},
            {"name": "data", "persistentVolumeClaim": {"claimName": "c"}},
        ],
    }
    whole["spec"]["containers"][0] |= {
        "env": [{"name": "TOKEN", "value": "hush"}],
        "command": ["run"],
        "volumeMounts": [{"name": "secret", "mountPath": "/s"}],
        "ports": [{"containerPort": 1}, {"containerPort": 2, "hostPort": 2}],
    }
    made = template_of(OWNER, whole, {"app": "x"})
    spec = made["template"]["spec"]
    assert set(spec) == {"nodeSelector", "tolerations", "hostNetwork", "containers", "volumes"}
    assert [one["name"] for one in spec["volumes"]] == ["data"]
    assert set(spec["containers"][0]) <= {"name", "image", "resources", "ports"}
    assert spec["containers"][0]["ports"] == [{"containerPort": 2, "hostPort": 2}]
    assert made["template"]["metadata"] == {"labels": {"app": "x"}}
    other = template_of(OWNER, {**whole, "metadata": {"name": "p1"}}, {"app": "x"})
    assert other["metadata"]["name"] == made["metadata"]["name"]
    whole["spec"]["nodeSelector"] = {"pool": "b"}
    assert template_of(OWNER, whole, {"app": "x"})["metadata"]["name"] != made["metadata"]["name"]


@pytest.mark.parametrize(
    ("resource", "key"),
    [
        (POD_GROUPS, "default/g"),
        (KAI_POD_GROUPS, "default/kai:g"),
        (COSCHEDULING_POD_GROUPS, "default/coscheduling:g"),
    ],
)
def test_request_is_assigned_to_its_gang(resource: Any, key: str) -> None:
    owner = OwningGroup(resource, "default", "g", "uid-g")
    made = request(wanted(2), owner=owner)
    assert group_of(made) == key
    assert owner.is_request(made.name)
    assert group_of(msgspec.structs.replace(made, annotations={})) == ""  # made by another controller


def test_request_of_the_previous_version_is_taken_over() -> None:
    want = wanted(2)
    made = request(want)
    assert made.annotations["windlass.dev/asked-for"] == made.annotations["windlass.dev/provisioning-for"]
    notes = {"windlass.dev/asked-for": want.digest}
    former = msgspec.structs.replace(made, annotations=notes)
    assert group_of(former) == "default/g"
    assert decide(want, OWNER.uid, [former], NOW, RETRY).current is former


def test_names_respect_the_maximum_length() -> None:
    owner = OwningGroup(POD_GROUPS, "default", "g" * 253, "uid-g")
    assert len(owner.request_name(10)) <= 253
