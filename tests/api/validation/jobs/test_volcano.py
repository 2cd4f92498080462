"""Volcano's kinds: every rule of its webhooks refuses, names the field, and says what to do."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from field_errors import complaints

from windlass.api.resources import COMMANDS, POD_GROUPS, QUEUES, VOLCANO_JOBS


def template(**spec: Any) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "c", "image": "i"}], "restartPolicy": "OnFailure", **spec}}


def task(name: str = "w", **fields: Any) -> dict[str, Any]:
    return {"name": name, "replicas": 2, "template": template(), **fields}


def job(*tasks: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "j"}, "spec": {"tasks": list(tasks) or [task()], **spec}}


def test_a_good_job() -> None:
    good = job(
        task("master", replicas=1, policies=[{"event": "TaskCompleted", "action": "CompleteJob"}]),
        task("worker", dependsOn={"name": ["master"]}),
        minAvailable=3,
        plugins={"pytorch": ["--master=master"], "svc": [], "env": None},
        policies=[
            {"event": "PodEvicted", "action": "RestartJob", "timeout": "1h30m"},
            {"exitCode": 137, "action": "AbortJob"},
        ],
        volumes=[{"mountPath": "/data", "volumeClaimName": "pvc"}],
        runningEstimate="90m",
        ttlSecondsAfterFinished=0,
        minSuccess=1,
    )
    assert complaints(VOLCANO_JOBS, good) == {}


BAD_JOBS: dict[str, tuple[dict[str, Any], str, str]] = {
    "no tasks": ({"spec": {}}, "spec.tasks", "No task specified"),
    "task twice": (job(task("w"), task("w")), "spec.tasks[1].name", 'Duplicate value: "w"'),
    "task name": (job(task("W_")), "spec.tasks[0].name", "RFC 1123 label"),
    "task minimum": (
        job(task(minAvailable=3)),
        "spec.tasks[0].minAvailable",
        "above the task's replicas 2: lower it or raise replicas",
    ),
    "job minimum": (job(minAvailable=5), "spec.minAvailable", "the tasks have 2 replicas together"),
    "negative replicas": (job(task(replicas=-1)), "spec.tasks[0].replicas", "greater than or equal to 0"),
    "pod name": (
        {"metadata": {"name": "j" * 60}, "spec": {"tasks": [task()]}},
        "spec.tasks[0].name",
        "63 are allowed",
    ),
    "template absent": (job({"name": "w"}), "spec.tasks[0].template.spec", "the pod template of the task"),
    "template bad": (
        job(
            task(template=template(containers=[{"name": "c", "image": "i", "ports": [{"containerPort": 0}]}]))
        ),
        "spec.tasks[0].template.spec.containers[0].ports[0].containerPort",
        "Required value",
    ),
    "template gpu fraction": (
        job(
            task(
                template={
                    "spec": {
                        "containers": [
                            {"name": "c", "image": "i", "resources": {"limits": {"nvidia.com/gpu": 0.5}}}
                        ]
                    }
                }
            )
        ),
        "spec.tasks[0].template.spec.containers[0].resources.limits[nvidia.com/gpu]",
        "must be an integer",
    ),
    "event and code": (
        job(policies=[{"event": "PodFailed", "exitCode": 1, "action": "AbortJob"}]),
        "spec.policies[0]",
        "one or the other",
    ),
    "neither": (job(policies=[{"action": "AbortJob"}]), "spec.policies[0]", "says when the action is taken"),
    "code zero": (
        job(policies=[{"exitCode": 0, "action": "AbortJob"}]),
        "spec.policies[0].exitCode",
        "0 is success",
    ),
    "event twice": (
        job(
            policies=[
                {"event": "PodFailed", "action": "AbortJob"},
                {"event": "PodFailed", "action": "RestartJob"},
            ]
        ),
        "spec.policies[1].event",
        "Duplicate value",
    ),
    "code twice": (
        job(policies=[{"exitCode": 3, "action": "AbortJob"}, {"exitCode": 3, "action": "RestartJob"}]),
        "spec.policies[1].exitCode",
        "Duplicate value",
    ),
    "any with others": (
        job(policies=[{"event": "*", "action": "AbortJob"}, {"event": "PodFailed", "action": "RestartJob"}]),
        "spec.policies",
        "no other event may be listed with it",
    ),
    "internal event": (
        job(task(policies=[{"event": "OutOfSync", "action": "AbortJob"}])),
        "spec.tasks[0].policies[0].event",
        "Unsupported value",
    ),
    "internal action": (
        job(policies=[{"event": "PodFailed", "action": "SyncJob"}]),
        "spec.policies[0].action",
        "Unsupported value",
    ),
    "no action": (job(policies=[{"event": "PodFailed"}]), "spec.policies[0].action", "Unsupported value"),
    "timeout": (
        job(policies=[{"event": "PodPending", "action": "AbortJob", "timeout": "soon"}]),
        "spec.policies[0].timeout",
        "90s, 30m or 2h",
    ),
    "plugin": (job(plugins={"nope": []}), "spec.plugins[nope]", "supported values"),
    "mpi without master": (job(plugins={"mpi": []}), "spec.plugins[mpi]", "master task is missing"),
    "volume without path": (job(volumes=[{"volumeClaimName": "x"}]), "spec.volumes[0].mountPath", "Required"),
    "volume twice": (
        job(
            volumes=[{"mountPath": "/a", "volumeClaimName": "x"}, {"mountPath": "/a", "volumeClaimName": "y"}]
        ),
        "spec.volumes[1].mountPath",
        "Duplicate",
    ),
    "volume of nothing": (job(volumes=[{"mountPath": "/a"}]), "spec.volumes[0]", "Required value"),
    "volume of both": (
        job(volumes=[{"mountPath": "/a", "volumeClaimName": "x", "volumeClaim": {"accessModes": []}}]),
        "spec.volumes[0]",
        "keep one of the two",
    ),
    "volume claim": (
        job(volumes=[{"mountPath": "/a", "volumeClaim": {"accessModes": ["ReadWriteOnce"]}}]),
        "spec.volumes[0].volumeClaim.resources[storage]",
        "Required",
    ),
    "dependency unknown": (
        job(task("a", dependsOn={"name": ["zz"]})),
        "spec.tasks[0].dependsOn.name[0]",
        "Unsupported value",
    ),
    "dependency on itself": (
        job(task("a", dependsOn={"name": ["a"]})),
        "spec.tasks[0].dependsOn.name[0]",
        "depend on itself",
    ),
    "dependency circle": (
        job(
            task("a", dependsOn={"name": ["b"]}),
            task("b", dependsOn={"name": ["c"]}),
            task("c", dependsOn={"name": ["a"]}),
        ),
        "spec.tasks",
        "wait for one another",
    ),
    "numa with parts of a cpu": (
        job(
            task(
                topologyPolicy="single-numa-node",
                template=template(
                    containers=[{"name": "c", "image": "i", "resources": {"limits": {"cpu": "1500m"}}}]
                ),
            )
        ),
        "spec.tasks[0].template.spec.containers[0].resources.requests[cpu]",
        "needs whole CPUs",
    ),
    "partition size": (
        job(task(partitionPolicy={"totalPartitions": 2, "partitionSize": 0})),
        "spec.tasks[0].partitionPolicy.partitionSize",
        "greater than 0",
    ),
    "partition product": (
        job(task(replicas=5, partitionPolicy={"totalPartitions": 2, "partitionSize": 2})),
        "spec.tasks[0].replicas",
        "2 * 2 = 4",
    ),
    "partition minimum": (
        job(
            task(
                replicas=4,
                minAvailable=3,
                partitionPolicy={"totalPartitions": 2, "partitionSize": 2, "minPartitions": 1},
            )
        ),
        "spec.tasks[0].minAvailable",
        "1 * 2 = 2",
    ),
    "partition minimum above total": (
        job(task(replicas=4, partitionPolicy={"totalPartitions": 2, "partitionSize": 2, "minPartitions": 3})),
        "spec.tasks[0].partitionPolicy.minPartitions",
        "between 0 and totalPartitions 2",
    ),
    "two tiers": (
        job(networkTopology={"highestTierAllowed": 1, "highestTierName": "rack"}),
        "spec.networkTopology.highestTierName",
        "keep one of the two",
    ),
    "estimate": (job(runningEstimate="long"), "spec.runningEstimate", "no duration"),
    "success": (job(minSuccess=0), "spec.minSuccess", "greater than or equal to 1"),
    "ttl": (job(ttlSecondsAfterFinished=-1), "spec.ttlSecondsAfterFinished", "greater than or equal to 0"),
    "topology policy": (job(task(topologyPolicy="x")), "spec.tasks[0].topologyPolicy", "Unsupported value"),
    "name": ({"metadata": {"name": "A.b"}, "spec": {"tasks": [task()]}}, "metadata.name", "RFC 1123 label"),
}


@pytest.mark.parametrize(("body", "field", "words"), BAD_JOBS.values(), ids=BAD_JOBS.keys())
def test_bad_jobs(body: dict[str, Any], field: str, words: str) -> None:
    found = complaints(VOLCANO_JOBS, body)
    assert field in found
    assert words in found[field]


def changed(**spec: Any) -> dict[str, str]:
    old = job(task("a"), task("b"), minAvailable=4)
    new = copy.deepcopy(old)
    new["spec"].update(copy.deepcopy(spec))
    return complaints(VOLCANO_JOBS, new, old)


def test_mutable_fields() -> None:
    assert changed(minAvailable=2, priorityClassName="high") == {}
    assert changed(tasks=[task("a", replicas=5, minAvailable=1), task("b")]) == {}
    assert "spec.queue" in changed(queue="other")
    assert "spec.plugins" in changed(plugins={"env": []})
    assert "delete the job and recreate it" in changed(maxRetry=9)["spec.maxRetry"]
    assert "may not add or remove tasks" in changed(tasks=[task("a")], minAvailable=1)["spec.tasks"]
    image = {"spec": {"containers": [{"name": "c", "image": "other"}], "restartPolicy": "OnFailure"}}
    assert "spec.tasks[0].template" in changed(tasks=[task("a", template=image), task("b")])
    assert "spec.minAvailable" in changed(minAvailable=99)


# --- queues -------------------------------------------------------------------------------------------


def queue(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "q"}, "spec": spec}


def test_a_good_queue() -> None:
    spec = {
        "guarantee": {"resource": {"cpu": "1", "nvidia.com/gpu": 2}},
        "deserved": {"cpu": "2", "nvidia.com/gpu": "4"},
        "capability": {"cpu": "2000m", "nvidia.com/gpu": 8, "memory": "500G"},
    }
    assert complaints(QUEUES, queue(**spec)) == {}


@pytest.mark.parametrize("text", ["8E", "9223372036854775807", "9e18", "1e30"])
def test_capability_that_means_no_limit_is_stored(text: str) -> None:
    assert complaints(QUEUES, queue(capability={"cpu": text, "memory": text, "nvidia.com/gpu": text})) == {}


@pytest.mark.parametrize(
    ("spec", "field", "words"),
    [
        ({"capability": {"cpu": "-1"}}, "spec.capability[cpu]", "greater than or equal to 0"),
        ({"capability": {"nvidia.com/gpu": "1.5"}}, "spec.capability[nvidia.com/gpu]", "must be an integer"),
        ({"deserved": {"cpu": "lots"}}, "spec.deserved.cpu", "should match"),
        (
            {"guarantee": {"resource": {"cpu": "2"}}, "deserved": {"memory": "1Gi"}},
            "spec.guarantee.resource[cpu]",
            "deserved does not name cpu, which counts as 0 there: set spec.deserved[cpu] to at least 2",
        ),
        (
            {"guarantee": {"resource": {"cpu": "2"}}, "deserved": {"cpu": "1"}},
            "spec.guarantee.resource[cpu]",
            "above deserved 1",
        ),
        ({"deserved": {"cpu": "2"}, "capability": {"cpu": "1"}}, "spec.deserved[cpu]", "above capability 1"),
        ({"parent": "q"}, "spec.parent", "its own parent"),
        ({"weight": 0}, "spec.weight", "should be greater than or equal to 1"),
        ({"weight": 70000}, "spec.weight", "should be less than or equal to 65535"),
        ({"priority": -1}, "spec.priority", "greater than or equal to 0"),
        ({"dequeueStrategy": "lifo"}, "spec.dequeueStrategy", '"fifo", "traverse"'),
    ],
)
def test_bad_queues(spec: dict[str, Any], field: str, words: str) -> None:
    found = complaints(QUEUES, queue(**spec))
    assert field in found, found
    assert words in found[field]


@pytest.mark.parametrize(
    ("path", "weights", "words"),
    [
        ("root/a", "1", "one weight for each part"),
        ("root/a", "1/x", "no weight"),
        ("root/a", "1/0", "no weight"),
    ],
)
def test_hierarchies(path: str, weights: str, words: str) -> None:
    body = queue()
    body["metadata"]["annotations"] = {"volcano.sh/hierarchy": path, "volcano.sh/hierarchy-weights": weights}
    found = complaints(QUEUES, body)
    assert words in found["metadata.annotations[volcano.sh/hierarchy-weights]"]


def test_a_state_is_open_or_closed() -> None:
    body = {**queue(), "status": {"state": "Ajar"}}
    assert "Unsupported value" in complaints(QUEUES, body)["status.state"]


# --- groups and commands ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "field", "words"),
    [
        ({"minMember": -1}, "spec.minMember", "greater than or equal to 0"),
        ({"minTaskMember": {"w": -1}}, "spec.minTaskMember[w]", "greater than or equal to 0"),
        ({"minResources": {"cpu": "-1"}}, "spec.minResources[cpu]", "greater than or equal to 0"),
        ({"networkTopology": {"mode": "firm"}}, "spec.networkTopology.mode", '"hard", "soft"'),
        (
            {"networkTopology": {"highestTierAllowed": 1, "highestTierName": "x"}},
            "spec.networkTopology.highestTierName",
            "keep one of the two",
        ),
        ({"subGroupPolicy": [{"name": "a"}, {"name": "a"}]}, "spec.subGroupPolicy[1].name", "Duplicate"),
        (
            {"subGroupPolicy": [{"subGroupSize": 0}]},
            "spec.subGroupPolicy[0].subGroupSize",
            "greater than or equal to 1",
        ),
        (
            {"subGroupPolicy": [{"labelSelector": {"matchExpressions": [{"key": "a", "operator": "Z"}]}}]},
            "spec.subGroupPolicy[0].labelSelector.matchExpressions[0].operator",
            "not a valid selector operator",
        ),
        ({"queue": "A b"}, "spec.queue", "RFC 1123 subdomain"),
    ],
)
def test_bad_groups(spec: dict[str, Any], field: str, words: str) -> None:
    found = complaints(POD_GROUPS, {"spec": spec})
    assert field in found, found
    assert words in found[field]


def test_commands() -> None:
    target = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": "j"}
    assert complaints(COMMANDS, {"action": "AbortJob", "target": target}) == {}
    assert "action" in complaints(COMMANDS, {"action": "OpenQueue", "target": target})
    queue_target = {**target, "kind": "Queue"}
    assert complaints(COMMANDS, {"action": "OpenQueue", "target": queue_target}) == {}
    assert "target" in complaints(COMMANDS, {"action": "AbortJob"})
    assert "target.kind" in complaints(COMMANDS, {"action": "AbortJob", "target": {**target, "kind": "Pod"}})
    assert "target.name" in complaints(COMMANDS, {"action": "AbortJob", "target": {**target, "name": ""}})
