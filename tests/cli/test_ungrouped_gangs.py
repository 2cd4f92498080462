"""Gangs without an object of their own on the command line: one job each in ``ps``, told and ended by their name."""

from __future__ import annotations

import json
from typing import Any, TypeAlias

import pytest
from fakecluster import FakeCluster
from kubeobjects import node, pod

from windlass.api.reasons import Explanation, Reason
from windlass.api.resources import (
    BATCH_JOBS,
    COSCHEDULING_POD_GROUPS,
    NATIVE_POD_GROUPS,
    NODES,
    PODS,
    QUEUES,
)

Run: TypeAlias = Any
"""Of the fixture ``windlass``."""
Json: TypeAlias = dict[str, Any]
KUEUE = {"kueue.x-k8s.io/pod-group-name": "kueue"}
COUNT = {"kueue.x-k8s.io/pod-group-total-count": "3"}
TEAM = {"scheduling.volcano.sh/queue-name": "team"}
TOLD = Explanation(Reason.INSUFFICIENT_RESOURCES, "2 pods need 8 GPUs each; 0 nodes have them")
WHY = {"windlass.dev/explanation": json.dumps(TOLD.as_dict())}


def batch_owner(name: str) -> Json:
    return {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": f"uid-{name}", "controller": True}


def of_kai(name: str, job: str) -> Json:
    notes = {"kai.scheduler/batch-min-member": "2"}
    return pod(
        name,
        scheduler="kai-scheduler",
        annotations=notes,
        labels={"kai.scheduler/queue": "team"},
        metadata={"ownerReferences": [batch_owner(job)]},
    )


def native(name: str, group: str, **more: Any) -> Json:
    return pod(name, schedulingGroup={"podGroupName": group}, **more)


@pytest.fixture
def cluster() -> FakeCluster:
    made = FakeCluster()
    for name in ("default", "team"):
        made.add(QUEUES, {"metadata": {"name": name}, "spec": {}, "status": {"state": "Open"}})
    made.add(NODES, node("n1", gpus=8))
    objects = [
        *[
            pod(f"k-{i}", labels=KUEUE, annotations=COUNT | TEAM, node="n1", phase="Running")
            for i in range(2)
        ],
        *[of_kai(f"batch-{i}", "batch") for i in range(2)],
        *[native(f"own-{i}", "own", annotations=WHY | TEAM) for i in range(2)],
        *[pod(f"co-{i}", labels={"scheduling.x-k8s.io/pod-group": "co"}) for i in range(2)],
        pod("alone"),
    ]
    for obj in objects:
        made.add(PODS, obj)
    spec = {"parallelism": 2, "completions": 2, "template": {"spec": pod("template")["spec"]}}
    made.add(BATCH_JOBS, {"metadata": {"name": "batch", "uid": "uid-batch"}, "spec": spec})
    return made


def told(windlass: Run) -> dict[str, Json]:
    return {item["name"]: item for item in json.loads(windlass("ps", "-o", "json").out)["items"]}


def test_a_gang_is_one_line(windlass: Run) -> None:
    items = told(windlass)
    assert sorted(items) == ["alone", "batch", "co", "kueue", "own"]
    shown = {name: (i["kind"], i["queue"], i["state"], i["gpus"], i["pods"]) for name, i in items.items()}
    assert shown["kueue"] == ("Gang", "team", "Running", 2, {"wanted": 3, "bound": 2})
    assert shown["batch"] == ("Job.batch", "team", "Pending", 2, {"wanted": 2, "bound": 0})
    assert shown["own"] == ("Gang", "team", "Pending", 2, {"wanted": 2, "bound": 0})
    assert shown["co"] == ("Gang", "default", "Pending", 2, {"wanted": 2, "bound": 0})
    assert shown["alone"][0] == "Pod"
    assert items["own"]["explanation"]["code"] == "InsufficientResources"
    assert "gang/kueue" in windlass("ps", "-o", "name").out.split()


def test_kubernetes_own_group_is_read_where_it_may_be(windlass: Run, cluster: FakeCluster) -> None:
    policy = {"gang": {"minCount": 4}}
    group = {"metadata": {"name": "own", "labels": {}}, "spec": {"schedulingPolicy": policy}}
    cluster.add(NATIVE_POD_GROUPS, group)
    own = told(windlass)["own"]
    assert (own["kind"], own["queue"], own["pods"]) == ("PodGroup", "team", {"wanted": 4, "bound": 0})
    cluster.hidden.add(NATIVE_POD_GROUPS)
    assert told(windlass)["own"]["kind"] == "Gang"


def test_explain_takes_its_name(windlass: Run) -> None:
    for name in ("own", "gang/own", "podgroup/own", "default/own"):
        done = windlass("explain", name)
        assert done.code == 0, done.err
        assert done.out.startswith("own (Gang, queue team, 2 GPUs): Pending")
        assert "2 pods need 8 GPUs each" in done.out
    assert windlass("explain", "pod/own").code != 0
    assert windlass("explain", "own-0").code == 0
    assert "did you mean own?" in windlass("explain", "owm").err


def test_logs_take_its_name(windlass: Run, cluster: FakeCluster) -> None:
    cluster.logs[("default", "k-0")] = b"hello\n"
    cluster.logs[("default", "k-1")] = b"world\n"
    done = windlass("logs", "kueue")
    assert done.code == 0, done.err
    assert "hello" in done.out
    assert "world" in done.out


def test_cancel_ends_all_its_pods(windlass: Run, cluster: FakeCluster) -> None:
    assert windlass("cancel", "kueue", "--wait").out == "kueue 2 pods deleted\n"
    assert not [key for key in cluster.objects if key[2].startswith("k-")]
    assert "kueue" not in told(windlass)
    cluster.add(PODS, pod("last-0", labels={"kueue.x-k8s.io/pod-group-name": "last"}))
    assert windlass("cancel", "last").out == "last 1 pod deleted\n"


def test_cancel_of_a_batch_job_ends_the_job_that_would_make_others(
    windlass: Run, cluster: FakeCluster
) -> None:
    assert windlass("cancel", "batch").out == "batch is being deleted, with its Job and its logs\n"
    assert (BATCH_JOBS, "default", "batch") not in cluster.objects
    assert (PODS, "default", "batch-0") in cluster.objects  # its pods are the garbage collector's


def test_cancel_of_any_gang_of_one_batch_job_ends_the_job(windlass: Run, cluster: FakeCluster) -> None:
    cluster.add(NATIVE_POD_GROUPS, {"metadata": {"name": "grp"}, "spec": {}})
    cluster.add(BATCH_JOBS, {"metadata": {"name": "train", "uid": "uid-train"}})
    for i in range(2):
        owners = {"ownerReferences": [batch_owner("train")]}
        cluster.add(PODS, native(f"train-{i}", "grp", metadata=owners))
    assert windlass("cancel", "grp").out == "grp is being deleted, with its Job train and its logs\n"
    assert (BATCH_JOBS, "default", "train") not in cluster.objects


@pytest.mark.parametrize("seen", [True, False])
def test_cancel_says_who_makes_the_pods_anew(windlass: Run, cluster: FakeCluster, seen: bool) -> None:
    """A Job that a JobSet has made, or one that this user may not look at."""
    jobset = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "name": "s",
        "uid": "s",
        "controller": True,
    }
    metadata = {"name": "batch", "uid": "uid-batch", "ownerReferences": [jobset]}
    cluster.add(BATCH_JOBS, {"metadata": metadata})
    if not seen:
        del cluster.objects[(BATCH_JOBS, "default", "batch")]
    done = windlass("cancel", "batch")
    if seen:
        assert done.out == "batch is being deleted, with its Job and its logs\n"
        remedy = "kubectl -n default delete jobset.jobset.x-k8s.io s"
        assert f"JobSet s may recreate it; to end that: {remedy}" in done.err
    else:
        assert done.out == "batch 2 pods deleted\n"
        remedy = "kubectl -n default delete job.batch batch"
        assert f"Job batch may recreate these pods; to end it: {remedy}" in done.err


def test_cancel_of_one_pod_of_a_job_says_that_another_comes(windlass: Run, cluster: FakeCluster) -> None:
    cluster.add(PODS, pod("plain-0", metadata={"ownerReferences": [batch_owner("plain")]}))
    done = windlass("cancel", "plain-0")
    assert (done.code, done.out) == (0, "plain-0 deleted\n")
    assert (
        "Job plain may recreate these pods; to end it: kubectl -n default delete job.batch plain" in done.err
    )
    assert windlass("cancel", "alone").err == ""


def test_one_group_of_the_same_name_in_two_apis(windlass: Run, cluster: FakeCluster) -> None:
    for i in range(2):
        cluster.add(PODS, native(f"twin-{i}", "kueue"))
    kinds = [
        item for item in json.loads(windlass("ps", "-o", "json").out)["items"] if item["name"] == "kueue"
    ]
    assert [item["pods"]["bound"] for item in kinds] == [2, 0]


@pytest.mark.parametrize("count", ["", "x", "-1", "99999999999"])
def test_a_count_that_cannot_be_read_is_left_to_explain(
    windlass: Run, cluster: FakeCluster, count: str
) -> None:
    odd = {"kueue.x-k8s.io/pod-group-total-count": count}
    cluster.add(PODS, pod("odd-0", labels={"kueue.x-k8s.io/pod-group-name": "odd"}, annotations=odd))
    assert told(windlass)["odd"]["pods"] == {"wanted": 1, "bound": 0}


def test_pods_that_do_not_start_together_stay_pods(windlass: Run, cluster: FakeCluster) -> None:
    apart = {"kueue.x-k8s.io/pod-group-fast-admission": "true"}
    cluster.add(PODS, pod("fast-0", labels={"kueue.x-k8s.io/pod-group-name": "fast"}, annotations=apart))
    items = told(windlass)
    assert "fast" not in items
    assert items["fast-0"]["kind"] == "Pod"


def test_a_coscheduling_group_that_is_there_is_no_gang_beside_it(windlass: Run, cluster: FakeCluster) -> None:
    cluster.add(COSCHEDULING_POD_GROUPS, {"metadata": {"name": "co"}, "spec": {"minMember": 2}})
    assert told(windlass)["co"]["kind"] == "PodGroup"


@pytest.mark.parametrize(
    ("start", "expected"), [("k", ["kueue"]), ("b", ["batch"]), ("ow", ["own"]), ("c", ["co"])]
)
def test_their_names_are_completed(completed, start, expected):
    assert completed(f"windlass explain {start}") == expected
