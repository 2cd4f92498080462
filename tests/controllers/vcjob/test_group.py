"""The PodGroup of a job, and how much it asks for."""

from __future__ import annotations

from typing import Any

import pytest
from vcjob_cluster import job, task

from windlass.controllers.pod_groups import spec_patch
from windlass.controllers.vcjob import group
from windlass.controllers.vcjob.spec import read
from windlass.controllers.vcjob.status import JobState


def _spec(*tasks: dict[str, Any], **spec: Any) -> Any:
    manifest = job(*tasks, **spec)
    manifest["metadata"].update(uid="u1", namespace="team")
    return read(manifest)


def _cpu(name: str, replicas: int, cpu: str, least: int | None = None, priority: str = "") -> dict[str, Any]:
    more: dict[str, Any] = {} if least is None else {"minAvailable": least}
    made = task(name, replicas, **more)
    made["template"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": cpu}}
    if priority:
        made["template"]["spec"]["priorityClassName"] = priority
    return made


@pytest.mark.parametrize(
    ("tasks", "least", "cpu"),
    [
        # every task whole: the sum
        ([_cpu("a", 2, "1"), _cpu("b", 3, "2")], None, "8"),
        # the task minimums only
        ([_cpu("a", 4, "1", 2), _cpu("b", 4, "2", 1)], None, "4"),
        # filled up to the job's minimum with replicas that are left, in order of the spec
        ([_cpu("a", 4, "1", 2), _cpu("b", 4, "2", 1)], 5, "6"),
        ([_cpu("a", 4, "1", 2), _cpu("b", 4, "2", 1)], 7, "10"),
        # below the sum of the task minimums: the first so many pods
        ([_cpu("a", 4, "1"), _cpu("b", 4, "2")], 5, "6"),
        # priority goes before order
        ([_cpu("a", 4, "1"), _cpu("b", 4, "2", priority="high")], 5, "9"),
        ([_cpu("a", 4, "1", 0), _cpu("b", 4, "2", 0, priority="high")], 3, "6"),
    ],
)
def test_min_resources(tasks: list[dict[str, Any]], least: int | None, cpu: str) -> None:
    more = {} if least is None else {"minAvailable": least}
    assert group.min_resources(_spec(*tasks, **more), {"high": 100}) == {"cpu": cpu}


def test_devices_and_memory_are_written_as_people_write_them() -> None:
    one = task("w", 3)
    one["template"]["spec"]["containers"][0]["resources"] = {
        "limits": {"nvidia.com/gpu": "2", "memory": "4Gi", "cpu": "500m"}
    }
    assert group.min_resources(_spec(one), {}) == {"cpu": "1500m", "memory": "12Gi", "nvidia.com/gpu": "6"}


def test_the_object() -> None:
    manifest_notes = {"a": "b", "kubectl.kubernetes.io/last-applied-configuration": "{}"}
    manifest = job(
        task("master", 1),
        task("worker", 4, minAvailable=2),
        queue="gold",
        priorityClassName="high",
        networkTopology={"mode": "hard", "highestTierAllowed": 2},
    )
    manifest["metadata"].update(uid="u1", namespace="team", annotations=manifest_notes, labels={"x": "y"})
    made = group.build(read(manifest), JobState(version=3), {})
    assert made["metadata"]["name"] == "train-u1"
    assert made["metadata"]["namespace"] == "team"
    assert made["metadata"]["labels"] == {"x": "y"}
    assert made["metadata"]["annotations"] == {"a": "b", "volcano.sh/job-version": "3"}
    assert made["metadata"]["ownerReferences"][0]["uid"] == "u1"
    assert made["spec"] == {
        "minMember": 3,
        "minTaskMember": {"master": 1, "worker": 2},
        "queue": "gold",
        "minResources": {"nvidia.com/gpu": "3"},
        "priorityClassName": "high",
        "networkTopology": {"mode": "hard", "highestTierAllowed": 2},
    }


def test_partitions_become_subgroups() -> None:
    policy = {"totalPartitions": 2, "partitionSize": 4, "minPartitions": 1}
    spec = _spec(task("worker", 8, partitionPolicy=policy))
    assert spec.tasks[0].min_available == 4
    (subgroup,) = group.desired_spec(spec, {})["subGroupPolicy"]
    assert subgroup == {
        "name": "worker",
        "labelSelector": {"matchLabels": {"volcano.sh/task-spec": "worker"}},
        "matchLabelKeys": ["volcano.sh/partition-id"],
        "subGroupSize": 4,
        "minSubGroups": 1,
    }


def test_a_right_group_is_left_alone() -> None:
    spec = _spec(task())
    wanted = group.desired_spec(spec, {})
    assert spec_patch({"spec": dict(wanted)}, wanted) == {}


def test_a_wrong_group_is_put_right() -> None:
    wanted = group.desired_spec(_spec(task("worker", 3)), {})
    present = {"minMember": 2, "minTaskMember": {"worker": 2, "old": 1}, "minResources": {"cpu": "1"}}
    assert spec_patch({"spec": present}, wanted) == {
        "minMember": 3,
        "minTaskMember": {"worker": 3, "old": None},
        "minResources": {"cpu": None, "nvidia.com/gpu": "3"},
    }


def test_a_group_of_an_earlier_version_is_stale() -> None:
    made = group.build(_spec(task()), JobState(version=1), {})
    assert not group.is_stale(made, JobState(version=1))
    assert group.is_stale(made, JobState(version=2))
    del made["metadata"]["annotations"]["volcano.sh/job-version"]
    assert not group.is_stale(made, JobState(version=2))
