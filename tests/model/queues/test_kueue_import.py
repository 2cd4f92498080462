"""Kueue's published objects as queues of Windlass, of both API versions."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from windlass.api import quantities, validation, views
from windlass.api.resources import QUEUES
from windlass.model.queues.engine_queue import queue_of
from windlass.model.queues.kueue_import import KueueImport, translate

Json = dict[str, Any]
_KUEUE = {"apiVersion": "kueue.x-k8s.io/v1beta2"}

SINGLE = """
{apiVersion: kueue.x-k8s.io/v1beta1, kind: ResourceFlavor, metadata: {name: default-flavor}}
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: ClusterQueue
metadata: {name: cluster-queue}
spec:
  namespaceSelector: {}
  resourceGroups:
  - coveredResources: [cpu, memory]
    flavors:
    - name: default-flavor
      resources: [{name: cpu, nominalQuota: 9}, {name: memory, nominalQuota: 36Gi}]
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: LocalQueue
metadata: {namespace: default, name: user-queue}
spec: {clusterQueue: cluster-queue}
"""
"""First example of Kueue's documentation."""
COHORT = """
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: team-a}
spec:
  cohortName: research
  queueingStrategy: StrictFIFO
  fairSharing: {weight: "0.5"}
  preemption: {reclaimWithinCohort: Any, withinClusterQueue: LowerPriority}
  resourceGroups:
  - coveredResources: [nvidia.com/gpu]
    flavors:
    - {name: a100, resources: [{name: nvidia.com/gpu, nominalQuota: 8, borrowingLimit: 4, lendingLimit: 2}]}
    - {name: h100, resources: [{name: nvidia.com/gpu, nominalQuota: 4, borrowingLimit: 0}]}
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: ClusterQueue
metadata: {name: team-b}
spec:
  cohort: research
  stopPolicy: Hold
  resourceGroups:
  - coveredResources: [nvidia.com/gpu]
    flavors: [{name: a100, resources: [{name: nvidia.com/gpu, nominalQuota: 4}]}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: Cohort
metadata: {name: research}
spec:
  parentName: company
  resourceGroups:
  - coveredResources: [nvidia.com/gpu]
    flavors: [{name: a100, resources: [{name: nvidia.com/gpu, nominalQuota: 2}]}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: a100}
spec: {nodeLabels: {gpu: a100}}
---
{apiVersion: kueue.x-k8s.io/v1beta2, kind: LocalQueue, metadata: {namespace: a, name: lq}, spec: {clusterQueue: team-a}}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: Workload
metadata: {namespace: a, name: job-train-1}
spec:
  queueName: lq
  priorityClassRef: {group: scheduling.k8s.io, kind: PriorityClass, name: high-priority}
  podSets: [{name: main, count: 4, minCount: 2}, {name: driver, count: 1}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: Workload
metadata: {namespace: a, name: job-train-0}
spec: {queueName: lq, podSets: [{name: main, count: 4}]}
status: {admission: {clusterQueue: team-a}}
"""


def of(text: str) -> KueueImport:
    return translate(yaml.safe_load_all(text))


def specs(found: KueueImport) -> dict[str, Json]:
    return {queue["metadata"]["name"]: queue["spec"] for queue in found.queues}


def test_one_queue_and_its_namespace() -> None:
    found = of(SINGLE)
    amounts = {"cpu": "9", "memory": "36Gi"}
    assert specs(found) == {
        "cluster-queue": {
            "weight": 1,
            "parent": "root",
            "reclaimable": False,
            "dequeueStrategy": "traverse",
            "deserved": amounts,
            "capability": amounts,  # no cohort to borrow from
        }
    }
    (namespace,) = found.namespaces
    assert namespace["metadata"] == {
        "name": "default",
        "annotations": {"scheduling.volcano.sh/queue-name": "cluster-queue"},
    }


def test_a_cohort_with_limits() -> None:
    found = of(COHORT)
    gpu = "nvidia.com/gpu"
    assert [queue["metadata"]["name"] for queue in found.queues] == [
        "company",
        "research",
        "team-a",
        "team-b",
    ]
    queues = specs(found)
    assert queues["team-a"] == {
        "weight": 1,
        "parent": "research",
        "reclaimable": True,
        "dequeueStrategy": "fifo",
        "deserved": {gpu: "12"},
        "capability": {gpu: "16"},  # 8 + 4 of the one flavor, 4 + 0 of the other
        "guarantee": {"resource": {gpu: "6"}},
    }
    assert queues["team-b"]["weight"] == 2  # twice that of 0.5
    assert "capability" not in queues["team-b"]
    assert queues["research"]["deserved"] == {gpu: "18"}  # what its members and it have
    assert "capability" not in queues["research"]  # it may borrow from what is above
    assert queues["company"]["capability"] == {gpu: "18"}
    told = "\n".join(found.notes)
    for words in ("flavors a100, h100 are added up", "team-b is stopped (Hold)", "node selector gpu=a100"):
        assert words in told


TREE = """
{apiVersion: kueue.x-k8s.io/v1beta2, kind: Cohort, metadata: {name: org}}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: Cohort
metadata: {name: ml}
spec:
  parentName: org
  resourceGroups:
  - coveredResources: [gpu]
    flavors:
    - {name: a100, resources: [{name: gpu, nominalQuota: 1, lendingLimit: 2, borrowingLimit: 4}]}
    - {name: h100, resources: [{name: gpu, nominalQuota: 0, borrowingLimit: 0}]}
---
{apiVersion: kueue.x-k8s.io/v1beta2, kind: Cohort, metadata: {name: deep}, spec: {parentName: ml}}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: vision}
spec:
  cohortName: deep
  resourceGroups:
  - coveredResources: [gpu]
    flavors:
    - {name: a100, resources: [{name: gpu, nominalQuota: 6}]}
    - {name: h100, resources: [{name: gpu, nominalQuota: 3}]}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: fold}
spec:
  cohortName: org
  resourceGroups:
  - {coveredResources: [gpu], flavors: [{name: a100, resources: [{name: gpu, nominalQuota: 8}]}]}
"""


def test_cohort_lends_at_most_its_lending_limit() -> None:
    """It lends at most 2 of the 7 a100 of itself and its members, and all of their h100."""
    found = specs(of(TREE))
    assert found["ml"]["guarantee"] == {"resource": {"gpu": "5"}}
    assert (found["ml"]["deserved"], found["ml"]["capability"]) == ({"gpu": "10"}, {"gpu": "14"})
    assert not [name for name in ("org", "deep", "vision", "fold") if "guarantee" in found[name]]


def test_only_waiting_workloads_become_gangs() -> None:
    (group,) = of(COHORT).groups
    assert group["metadata"] == {"name": "job-train-1", "namespace": "a"}
    assert group["spec"] == {"minMember": 3, "queue": "team-a", "priorityClassName": "high-priority"}


@pytest.mark.parametrize("text", [SINGLE, COHORT])
def test_imported_queues_can_be_stored_and_read(text: str) -> None:
    for queue in of(text).queues:
        queue["metadata"] |= {"uid": "u", "resourceVersion": "1"}
        assert validation.validate(QUEUES, queue) == []
        view = views.decode_queue(views.encode(queue))
        assert view.problems == ()
        assert queue_of(view).parent == queue["spec"]["parent"]


def test_conflicting_names_are_made_unique() -> None:
    text = SINGLE.replace("cluster-queue", "default").replace(
        "spec:\n  namespace", "spec:\n  cohort: default\n  namespace"
    )
    names = [queue["metadata"]["name"] for queue in of(text).queues]
    assert names == ["cohort-default", "kueue-default"]


def test_cycle_of_cohorts_is_rejected() -> None:
    text = "\n---\n".join(
        f"{{apiVersion: kueue.x-k8s.io/v1beta2, kind: Cohort, metadata: {{name: {a}}}, spec: {{parentName: {b}}}}}"
        for a, b in (("x", "y"), ("y", "x"))
    )
    with pytest.raises(ValueError, match="cycle"):
        of(text)


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50), st.integers(1, 9)), min_size=1, max_size=6))
def test_sums_and_ratios_are_preserved(teams: list[tuple[int, int, int]]) -> None:
    objects = [
        {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "ClusterQueue",
            "metadata": {"name": f"t{at}"},
            "spec": {
                "cohortName": "all",
                "fairSharing": {"weight": f"{weight / 2}"},
                "resourceGroups": [
                    {
                        "coveredResources": ["cpu"],
                        "flavors": [
                            {
                                "name": "f",
                                "resources": [{"name": "cpu", "nominalQuota": quota, "lendingLimit": lent}],
                            }
                        ],
                    }
                ],
            },
        }
        for at, (quota, lent, weight) in enumerate(teams)
    ]
    found = specs(translate(objects))
    total = sum(quota for quota, _, _ in teams)
    assert quantities.parse(found["all"]["deserved"]["cpu"]) == total
    for at, (quota, lent, weight) in enumerate(teams):
        queue, first = found[f"t{at}"], found["t0"]
        kept = (queue.get("guarantee") or {"resource": {"cpu": "0"}})["resource"]["cpu"]
        assert quantities.parse(kept) == max(0, quota - lent)
        assert Fraction(queue["weight"], first["weight"]) == Fraction(weight, teams[0][2])


def test_references_to_missing_queues_are_reported_and_skipped() -> None:
    waiting = {"metadata": {"name": "w", "namespace": "lost"}, "spec": {"queueName": "l", "podSets": []}}
    found = translate(
        [
            *yaml.safe_load_all(SINGLE),
            {
                **_KUEUE,
                "kind": "LocalQueue",
                "metadata": {"name": "l", "namespace": "lost"},
                "spec": {"clusterQueue": "x"},
            },
            {**_KUEUE, "kind": "Workload", **waiting},
        ]
    )
    assert [one["metadata"]["name"] for one in found.namespaces] == ["default"]
    assert found.groups == []
    told = "LocalQueue lost/l: its ClusterQueue 'x' does not exist, so the queue of its jobs is unknown"
    assert found.notes.count(told) == 1


def test_built_in_names_are_reported() -> None:
    given = {
        **_KUEUE,
        "kind": "ClusterQueue",
        "metadata": {"name": "default"},
        "spec": {"stopPolicy": "Hold"},
    }
    local = {**_KUEUE, "kind": "LocalQueue", "metadata": {"name": "l", "namespace": "n"}}
    found = translate([given, {**local, "spec": {"clusterQueue": "default"}}])
    assert [one["metadata"]["name"] for one in found.queues] == ["kueue-default"]
    (space,) = found.namespaces
    assert list(space["metadata"]["annotations"].values()) == ["kueue-default"]
    assert (
        "ClusterQueue default becomes queue kueue-default: default is a built-in queue of Windlass"
        in found.notes
    )
    assert any("windlass queue set kueue-default state=Closed" in note for note in found.notes)


@pytest.mark.parametrize(
    ("kind", "spec", "said"),
    [
        ("ClusterQueue", {"nominalQuota": "lots"}, "ClusterQueue a: 'lots' is not a quantity"),
        ("Cohort", {"nominalQuota": 1, "lendingLimit": "x"}, "Cohort a: 'x' is not a quantity"),
    ],
)
def test_invalid_amounts_are_reported_with_their_object(kind: str, spec: Json, said: str) -> None:
    flavors = [{"name": "f", "resources": [{"name": "nvidia.com/gpu", **spec}]}]
    given = {"resourceGroups": [{"flavors": flavors}]}
    with pytest.raises(quantities.QuantityError, match=said):
        translate([{**_KUEUE, "kind": kind, "metadata": {"name": "a"}, "spec": given}])


def test_missing_quota_is_empty() -> None:
    flavors = [{"name": "f", "resources": [{"name": "nvidia.com/gpu"}]}]
    spec = {"resourceGroups": [{"flavors": flavors}], "fairSharing": {"weight": "0"}}
    found = translate([{**_KUEUE, "kind": "ClusterQueue", "metadata": {"name": "a"}, "spec": spec}])
    assert found.queues[0]["spec"]["capability"] == {"nvidia.com/gpu": "0"}
    assert "ClusterQueue a: weight 0 cannot be represented exactly; 1 is used" in found.notes
