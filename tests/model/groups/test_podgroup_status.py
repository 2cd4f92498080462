"""The PodGroup's status: phases by Volcano's rule, conditions that change only with their words."""

from __future__ import annotations

from typing import Any

import pytest
from kubeobjects import group, pod

from windlass.api import views
from windlass.api.reasons import Explanation, Reason
from windlass.model.groups import member_counts, podgroup_status
from windlass.model.groups.member_counts import Members
from windlass.model.groups.podgroup_status import PodGroupState

WAITS = Explanation(Reason.WAITING_FOR_QUOTA, "queue a holds 8 of 8 nvidia.com/gpu")


def view(members: int = 2, **fields: Any) -> views.PodGroup:
    status = fields.pop("status", None)
    obj = group("g", members, **fields)
    if status:
        obj["status"] = status
    return views.decode_pod_group(views.encode(obj))


@pytest.mark.parametrize(
    ("current", "minimum", "found", "admitted", "unschedulable", "phase"),
    [
        ("", 2, Members(), False, False, "Pending"),
        ("", 2, Members(), True, False, "Inqueue"),
        ("Inqueue", 2, Members(pending=2), True, True, "Inqueue"),
        ("Inqueue", 2, Members(pending=1, bound=1), True, False, "Inqueue"),
        ("Inqueue", 2, Members(bound=2), True, False, "Running"),
        ("Inqueue", 2, Members(bound=1, running=1, pending=3), True, False, "Running"),
        ("Running", 2, Members(running=1, succeeded=1), True, False, "Running"),
        ("Running", 2, Members(succeeded=1, failed=1), True, False, "Completed"),
        ("Running", 2, Members(succeeded=2, pending=1), True, False, "Completed"),
        ("Completed", 2, Members(succeeded=2, bound=1), True, False, "Running"),
        ("Running", 2, Members(running=1, releasing=1), True, False, "Running"),
        ("Running", 2, Members(running=1, pending=1), True, True, "Unknown"),
        ("Running", 2, Members(running=1, failed=1), True, True, "Unknown"),
        ("Running", 2, Members(running=1, pending=1), True, False, "Pending"),
        ("Running", 2, Members(bound=1, pending=1), True, True, "Pending"),
        ("Unknown", 2, Members(pending=2), True, True, "Pending"),
        ("Completed", 2, Members(pending=2), True, True, "Pending"),
        ("Unknown", 2, Members(running=2), True, False, "Running"),
        ("Completed", 2, Members(), True, False, "Completed"),
        ("", 0, Members(), False, False, "Pending"),
        ("Inqueue", 0, Members(running=1), True, False, "Running"),
    ],
)
def test_phase(
    current: str, minimum: int, found: Members, admitted: bool, unschedulable: bool, phase: str
) -> None:
    assert member_counts.phase(current, minimum, found, admitted, unschedulable) == phase


def test_waiting_is_written_once() -> None:
    standing = PodGroupState(Members(pending=2), True, True, WAITS)
    status = podgroup_status.desired(view(), standing, 0.0, "7")
    (condition,) = status.conditions
    assert (condition.type, condition.status, condition.reason, condition.message) == (
        "Unschedulable",
        "True",
        "NotEnoughResources",
        WAITS.message,
    )
    assert (condition.transition_id, condition.last_transition_time) == ("7", "1970-01-01T00:00:00Z")
    patch = status.patch()
    assert patch["status"]["conditions"][0]["transitionID"] == "7"
    written = view(status=patch["status"])
    assert podgroup_status.desired(written, standing, 99.0, "8") == podgroup_status.current(written)


def test_ready_turns_the_conditions() -> None:
    waiting = podgroup_status.desired(view(), PodGroupState(Members(pending=2), True, True, WAITS), 0.0, "1")
    written = view(status=waiting.patch()["status"])
    running = podgroup_status.desired(written, PodGroupState(Members(bound=2), True, False, None), 5.0, "2")
    assert running.phase == "Running"
    assert [(c.type, c.status, c.reason) for c in running.conditions] == [
        ("Unschedulable", "False", podgroup_status.READY_REASON),
        ("Scheduled", "True", podgroup_status.READY_REASON),
    ]


def test_foreign_conditions_are_preserved() -> None:
    written = view(status={"conditions": [{"type": "Mine", "status": "True", "lastTransitionTime": "x"}]})
    status = podgroup_status.desired(written, PodGroupState(Members(bound=2), True, False, None), 0.0, "1")
    assert [c.type for c in status.conditions] == ["Mine", "Scheduled"]
    assert status.conditions[0].last_transition_time == "x"


def test_elastic_members_that_wait_do_not_make_the_gang_unschedulable() -> None:
    status = podgroup_status.desired(
        view(), PodGroupState(Members(running=2, pending=1), True, False, WAITS), 0.0, "1"
    )
    assert status.phase == "Running"
    assert [c.type for c in status.conditions] == ["Scheduled"]


def _pods(*roles: str) -> list[views.Pod]:
    return [
        views.decode_pod(views.encode(pod(f"p{i}", node="n", annotations={"volcano.sh/task-spec": role})))
        for i, role in enumerate(roles)
    ]


def test_readiness_of_a_gang() -> None:
    assert not member_counts.is_ready(3, _pods("w", "w"), ())
    assert member_counts.is_ready(3, _pods("w", "w", "w"), ())  # whatever tasks they are of
    failed, succeeded, waiting = (
        views.decode_pod(views.encode(found))
        for found in (
            pod("a", node="n", phase="Failed"),
            pod("b", node="n", phase="Succeeded"),
            pod("c"),
        )
    )
    assert not member_counts.is_ready(2, [*_pods("w"), failed], ())
    assert member_counts.is_ready(2, [*_pods("w"), succeeded], ())
    assert not member_counts.is_ready(2, [*_pods("w"), waiting], ())
    assert member_counts.is_ready(2, [*_pods("w"), waiting], {"default/c"})


@pytest.mark.parametrize(
    ("phase", "reserved", "scheduled", "whole"),
    [
        ("Inqueue", "", "", False),
        ("Running", "12:00:00", "", True),
        ("Completed", "", "", True),
        ("Unknown", "", "", True),  # no reservation tells that it ever started
        ("Unknown", "12:00:00", "", False),  # its first members run, the others were never bound
        ("Unknown", "12:00:00", "12:00:00", True),  # it has lost a member
        ("Unknown", "12:00:00", "11:59:59", False),  # it reached its minimum once, and was restarted
    ],
)
def test_gang_that_reached_its_minimum(phase: str, reserved: str, scheduled: str, whole: bool) -> None:
    obj = group("g", 2)
    if reserved:
        notes = {"windlass.dev/reservation": f'{{"at": "2026-01-01T{reserved}Z", "seats": {{}}}}'}
        obj["metadata"]["annotations"] = notes
    time = f"2026-01-01T{scheduled}Z"
    conditions = [{"type": "Scheduled", "status": "False", "lastTransitionTime": time}] if scheduled else []
    obj["status"] = {"phase": phase, "conditions": conditions}
    assert podgroup_status.was_whole(views.decode_pod_group(views.encode(obj))) is whole


def test_the_time_of_scheduled_is_that_of_its_status() -> None:
    running = podgroup_status.desired(view(), PodGroupState(Members(bound=2), True, False, None), 5.0, "1")
    lost = PodGroupState(Members(running=1, pending=1), True, True, WAITS)
    first = podgroup_status.desired(view(status=running.patch()["status"]), lost, 7.0, "2")
    other = PodGroupState(
        Members(running=1, pending=1), True, True, Explanation(Reason.WAITING_FOR_MEMBERS, "one is missing")
    )
    second = podgroup_status.desired(view(status=first.patch()["status"]), other, 9.0, "3")
    found = {c.type: c for c in second.conditions}
    assert (found["Scheduled"].status, found["Scheduled"].last_transition_time) == (
        "False",
        "1970-01-01T00:00:07Z",
    )
    assert found["Unschedulable"].last_transition_time == "1970-01-01T00:00:09Z"
