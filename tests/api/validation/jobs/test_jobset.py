"""A JobSet that is wrong is refused, and the field is named."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from windlass.api import defaults
from windlass.api.resources import JOB_SETS
from windlass.api.validation import validate

Json = dict[str, Any]
CONTAINERS = [{"name": "main", "image": "i", "command": ["true"]}]


def replicated(name: str = "workers", **more: Any) -> Json:
    pod = {"containers": copy.deepcopy(CONTAINERS)}
    job = {"parallelism": 2, "completions": 2, "template": {"spec": pod}}
    return {"name": name, "template": {"spec": job}, **more}


def job_set(*jobs: Json, name: Any = "js", **spec: Any) -> Json:
    obj = {
        "apiVersion": JOB_SETS.api_version,
        "kind": JOB_SETS.kind,
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"replicatedJobs": list(jobs) or [replicated()], **spec},
    }
    defaults.apply(JOB_SETS, obj)
    return obj


def problems(obj: Json, old: Json | None = None) -> dict[str, str]:
    return {error.field: error.message for error in validate(JOB_SETS, obj, old)}


def test_defaults_are_those_of_the_webhook():
    spec = job_set(failurePolicy={"rules": [{"action": "FailJobSet"}]})["spec"]
    assert spec["successPolicy"] == {"operator": "All"}
    assert spec["startupPolicy"] == {"startupPolicyOrder": "AnyOrder"}
    assert spec["network"] == {"enableDNSHostnames": True, "publishNotReadyAddresses": True}
    assert spec["failurePolicy"]["restartStrategy"] == "Recreate"
    assert spec["failurePolicy"]["rules"][0]["name"] == "failurePolicyRule0"
    (job,) = spec["replicatedJobs"]
    assert (job["replicas"], job["groupName"]) == (1, "default")
    assert job["template"]["spec"]["completionMode"] == "Indexed"
    assert job["template"]["spec"]["template"]["spec"]["restartPolicy"] == "OnFailure"
    assert problems(job_set()) == {}


DEPENDS = [{"name": "workers", "status": "Ready"}]


@pytest.mark.parametrize(
    ("obj", "field", "words"),
    [
        (job_set(replicated(dependsOn=DEPENDS)), "spec.replicatedJobs[0].dependsOn", "first ReplicatedJob"),
        (
            job_set(replicated("a"), replicated("b", dependsOn=DEPENDS)),
            "spec.replicatedJobs[1].dependsOn",
            "cannot depend on replicatedJob: workers",
        ),
        (
            job_set(
                replicated(),
                replicated("b", dependsOn=DEPENDS),
                startupPolicy={"startupPolicyOrder": "InOrder"},
            ),
            "spec.startupPolicy",
            "mutually exclusive",
        ),
        (
            job_set(successPolicy={"operator": "All", "targetReplicatedJobs": ["x"]}),
            "spec.successPolicy.targetReplicatedJobs[0]",
            "does not appear",
        ),
        (
            job_set(failurePolicy={"rules": [{"action": "RestartJob", "onJobFailureReasons": ["OOM"]}]}),
            "spec.failurePolicy.rules[0].onJobFailureReasons[0]",
            "BackoffLimitExceeded",
        ),
        (
            job_set(failurePolicy={"rules": [{"action": "FailJobSet", "name": "9"}]}),
            "spec.failurePolicy.rules[0].name",
            "alphabetic",
        ),
        (
            job_set(replicated(replicas=1025), failurePolicy={"rules": [{"action": "RestartJob"}]}),
            "spec.failurePolicy.rules[0].action",
            "1024",
        ),
        (
            job_set(failurePolicy={"restartStrategy": "InPlaceRestart"}),
            "spec.replicatedJobs[0].template.spec.backoffLimit",
            "2147483647",
        ),
        (job_set(coordinator={"replicatedJob": "x"}), "spec.coordinator.replicatedJob", "does not exist"),
        (
            job_set(coordinator={"replicatedJob": "workers", "podIndex": 2}),
            "spec.coordinator.podIndex",
            "pod index 2",
        ),
        (job_set(name="a" * 60), "spec.replicatedJobs[0].name", "shorten a name by"),
        (job_set(network={"subdomain": "a.b"}), "spec.network.subdomain", "lower case"),
        (job_set(managedBy="me"), "spec.managedBy", "acme.io/foo"),
        (
            job_set(volumeClaimPolicies=[{"templates": [{"metadata": {"name": "cache"}}]}]),
            "spec.volumeClaimPolicies[0].templates[0].metadata.name",
            "matching volumeMount",
        ),
    ],
)
def test_field_is_named(obj: Json, field: str, words: str):
    found = problems(obj)
    assert field in found, found
    assert words in found[field]


def test_most_fields_cannot_be_changed():
    old = job_set()
    for field, value in (
        ("network", {"subdomain": "x"}),
        ("failurePolicy", {"maxRestarts": 1}),
        ("managedBy", "acme.io/foo"),
    ):
        assert f"spec.{field}" in problems(job_set(**{field: value}), old)
    assert "spec.replicatedJobs" in problems(job_set(replicated(replicas=2)), old)
    renamed = job_set()
    renamed["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["containers"][0]["image"] = (
        "j"
    )
    assert "spec.replicatedJobs" in problems(renamed, old)


def test_scale_and_placement_of_a_suspended_set_can_be_changed():
    old = job_set()
    scaled = copy.deepcopy(old)
    scaled["spec"]["replicatedJobs"][0]["template"]["spec"] |= {"parallelism": 4, "completions": 4}
    assert problems(scaled, old) == {}
    scaled["spec"]["replicatedJobs"][0]["template"]["spec"]["completions"] = 3
    assert list(problems(scaled, old)) == ["spec.replicatedJobs[0].template.spec.completions"]
    moved = copy.deepcopy(old)
    template = moved["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    template["spec"]["nodeSelector"] = {"pool": "fast"}
    template["metadata"] = {"labels": {"a": "b"}}
    assert "spec.replicatedJobs" in problems(moved, old)
    moved["spec"]["suspend"] = True
    assert problems(moved, old) == {}
