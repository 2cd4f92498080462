"""LeaderWorkerSets that are refused, with the field and the reason."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from windlass.api.defaults import apply
from windlass.api.resources import LEADER_WORKER_SETS
from windlass.api.validation import validate

Json = dict[str, Any]


def lws(change: Json | None = None, **spec: Any) -> Json:
    template = {"size": 4, "workerTemplate": {"spec": {"containers": [{"name": "c", "image": "i"}]}}}
    obj = {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": {"name": "llm", "namespace": "default"},
        "spec": {"leaderWorkerTemplate": {**template, **(change or {})}, **spec},
    }
    apply(LEADER_WORKER_SETS, obj)
    return obj


def rolling(**fields: Any) -> Json:
    return {"rolloutStrategy": {"rollingUpdateConfiguration": fields}}


def test_defaults_are_those_of_upstream() -> None:
    spec = lws()["spec"]
    assert not validate(LEADER_WORKER_SETS, lws())
    assert (spec["replicas"], spec["startupPolicy"]) == (1, "LeaderCreated")
    assert spec["leaderWorkerTemplate"]["restartPolicy"] == "RecreateGroupOnPodRestart"
    expected = {"partition": 0, "maxUnavailable": 1, "maxSurge": 0}
    assert spec["rolloutStrategy"]["rollingUpdateConfiguration"] == expected


@pytest.mark.parametrize(
    ("obj", "field"),
    [
        (lws(replicas=-1), "spec.replicas"),
        (lws({"size": 0}), "spec.leaderWorkerTemplate.size"),
        (lws({"size": 100_000}, replicas=100_000), "spec.replicas"),
        (lws({"subGroupPolicy": {"subGroupSize": 3}}), None),
        (lws({"size": 6, "subGroupPolicy": {"subGroupSize": 4}}), "subGroupSize"),
        (lws({"subGroupPolicy": {"subGroupSize": 5}}), "subGroupSize"),
        (
            lws({"subGroupPolicy": {"subGroupSize": 2, "subGroupPolicyType": "LeaderExcluded"}}),
            "subGroupSize",
        ),
        (lws(**rolling(maxUnavailable=0)), "maxUnavailable"),
        (lws(**rolling(maxUnavailable=0, maxSurge=1)), None),
        (lws(**rolling(maxSurge="many")), "maxSurge"),
        (lws(**rolling(maxUnavailable="101%")), "maxUnavailable"),
        (lws(**rolling(partition=-1)), "partition"),
        (lws({"workerTemplate": {"spec": {"containers": []}}}), "workerTemplate.spec.containers"),
        (lws({"restartPolicy": "Sometimes"}), "restartPolicy"),
        (lws(networkConfig={"subdomainPolicy": "Own"}), "subdomainPolicy"),
    ],
)
def test_what_cannot_be_is_refused_with_its_field(obj: Json, field: str | None) -> None:
    problems = validate(LEADER_WORKER_SETS, obj)
    if field is None:
        assert not problems
    else:
        assert any(field in str(problem) for problem in problems), problems


def test_sub_groups_keep_their_size() -> None:
    old = lws({"subGroupPolicy": {"subGroupSize": 2}})
    new = copy.deepcopy(old)
    new["spec"]["leaderWorkerTemplate"]["subGroupPolicy"]["subGroupSize"] = 4
    assert any("immutable" in str(problem) for problem in validate(LEADER_WORKER_SETS, new, old))
    new = copy.deepcopy(old)
    new["spec"]["leaderWorkerTemplate"]["workerTemplate"]["spec"]["containers"][0]["image"] = "j"
    assert not validate(LEADER_WORKER_SETS, new, old)
