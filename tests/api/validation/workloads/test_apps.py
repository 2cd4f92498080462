"""Validation and defaults of ``apps/v1``: the field that is named, and Kubernetes' words."""

from __future__ import annotations

import copy
from typing import Any

from windlass.api import defaults
from windlass.api.resources import (
    CONTROLLER_REVISIONS,
    DAEMON_SETS,
    DEPLOYMENTS,
    REPLICA_SETS,
    STATEFUL_SETS,
    Resource,
)
from windlass.api.validation import validate

Json = dict[str, Any]
KINDS = (DEPLOYMENTS, REPLICA_SETS, STATEFUL_SETS, DAEMON_SETS)


def made(resource: Resource, spec: Json | None = None, pod: Json | None = None) -> Json:
    container = {"name": "c", "image": "i", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [container], **(pod or {})}}
    body: Json = {"selector": {"matchLabels": {"a": "b"}}, "template": template, **(spec or {})}
    obj: Json = {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {"name": "w", "namespace": "default"},
        "spec": body,
    }
    defaults.apply(resource, obj)
    return obj


def problems(resource: Resource, obj: Json, old: Json | None = None) -> dict[str, str]:
    return {error.field: error.message for error in validate(resource, obj, old)}


def test_smallest_object_of_each_kind_is_valid() -> None:
    for resource in KINDS:
        assert problems(resource, made(resource)) == {}, resource.kind


ROLLING = "spec.strategy.rollingUpdate"
UPDATE = "spec.updateStrategy.rollingUpdate"
CLAIM = {"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"]}}
MISTAKES: list[tuple[Resource, Json, Json, str, str]] = [
    (DEPLOYMENTS, {"replicas": -1}, {}, "spec.replicas", "greater than or equal to 0"),
    (DEPLOYMENTS, {"selector": None}, {}, "spec.selector", "Required value"),
    (DEPLOYMENTS, {"selector": {}}, {}, "spec.selector", "empty selector is invalid for deployment"),
    (
        DEPLOYMENTS,
        {"selector": {"matchLabels": {"a": "c"}}},
        {},
        "spec.template.metadata.labels",
        "`selector` does not match template `labels`",
    ),
    (
        DEPLOYMENTS,
        {},
        {"restartPolicy": "Never"},
        "spec.template.spec.restartPolicy",
        "Unsupported value",
    ),
    (
        DEPLOYMENTS,
        {},
        {"activeDeadlineSeconds": 5},
        "spec.template.spec.activeDeadlineSeconds",
        "activeDeadlineSeconds in ReplicaSet is not Supported",
    ),
    (DEPLOYMENTS, {"strategy": {"type": "Blue"}}, {}, "spec.strategy.type", "Unsupported value"),
    (
        DEPLOYMENTS,
        {"strategy": {"type": "Recreate", "rollingUpdate": {}}},
        {},
        ROLLING,
        "may not be specified when strategy `type` is 'Recreate'",
    ),
    (
        DEPLOYMENTS,
        {"strategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": "0%"}}},
        {},
        f"{ROLLING}.maxUnavailable",
        "may not be 0 when `maxSurge` is 0",
    ),
    (
        DEPLOYMENTS,
        {"strategy": {"rollingUpdate": {"maxUnavailable": "101%"}}},
        {},
        f"{ROLLING}.maxUnavailable",
        "must not be greater than 100%",
    ),
    (
        DEPLOYMENTS,
        {"strategy": {"rollingUpdate": {"maxSurge": "half"}}},
        {},
        f"{ROLLING}.maxSurge",
        "a valid percent string",
    ),
    (
        DEPLOYMENTS,
        {"progressDeadlineSeconds": 5, "minReadySeconds": 5},
        {},
        "spec.progressDeadlineSeconds",
        "must be greater than minReadySeconds",
    ),
    (REPLICA_SETS, {"minReadySeconds": -1}, {}, "spec.minReadySeconds", "greater than or equal to 0"),
    (DAEMON_SETS, {"selector": {}}, {}, "spec.selector", "empty selector is invalid for daemonset"),
    (
        DAEMON_SETS,
        {"updateStrategy": {"rollingUpdate": {"maxSurge": 1}}},
        {},
        f"{UPDATE}.maxSurge",
        "may not be set when maxUnavailable is non-zero",
    ),
    (
        DAEMON_SETS,
        {"updateStrategy": {"rollingUpdate": {"maxUnavailable": 0}}},
        {},
        f"{UPDATE}.maxUnavailable",
        "cannot be 0 when maxSurge is 0",
    ),
    (
        STATEFUL_SETS,
        {"podManagementPolicy": "Random"},
        {},
        "spec.podManagementPolicy",
        "must be 'OrderedReady' or 'Parallel'",
    ),
    (
        STATEFUL_SETS,
        {"updateStrategy": {"type": "OnDelete", "rollingUpdate": {"partition": 1}}},
        {},
        UPDATE,
        "only allowed for updateStrategy 'RollingUpdate'",
    ),
    (
        STATEFUL_SETS,
        {"updateStrategy": {"rollingUpdate": {"maxUnavailable": 0}, "type": "RollingUpdate"}},
        {},
        f"{UPDATE}.maxUnavailable",
        "cannot be 0",
    ),
    (
        STATEFUL_SETS,
        {"volumeClaimTemplates": [CLAIM]},
        {},
        "spec.volumeClaimTemplates[0].spec.resources[storage]",
        "Required value",
    ),
    (STATEFUL_SETS, {"serviceName": "Bad_"}, {}, "spec.serviceName", "Invalid value"),
    (STATEFUL_SETS, {"ordinals": {"start": -1}}, {}, "spec.ordinals.start", "greater than or equal to 0"),
]
"""Kind, changes of the spec and of the pod, field and words of the error."""


def test_mistakes_are_named() -> None:
    for resource, spec, pod, field, words in MISTAKES:
        found = problems(resource, made(resource, spec, pod))
        assert words in found.get(field, ""), (resource.kind, spec, pod, found)


def test_fields_that_never_change() -> None:
    for resource in (DEPLOYMENTS, REPLICA_SETS, DAEMON_SETS):
        old = made(resource)
        new = copy.deepcopy(old)
        new["spec"]["selector"]["matchLabels"] = {"a": "c"}
        new["spec"]["template"]["metadata"]["labels"] = {"a": "c"}
        assert problems(resource, new, old)["spec.selector"].endswith("field is immutable")
    old = made(STATEFUL_SETS)
    new = copy.deepcopy(old)
    new["spec"]["serviceName"] = "other"
    assert "are forbidden" in problems(STATEFUL_SETS, new, old)["spec"]
    allowed = copy.deepcopy(old)
    allowed["spec"] |= {"replicas": 3, "minReadySeconds": 1, "ordinals": {"start": 2}}
    assert problems(STATEFUL_SETS, allowed, old) == {}


def test_stateful_set_mounts_volumes_of_its_claims() -> None:
    claim = {
        "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    mounted = {
        "containers": [{"name": "c", "image": "i", "volumeMounts": [{"name": "data", "mountPath": "/d"}]}]
    }
    assert problems(STATEFUL_SETS, made(STATEFUL_SETS, {"volumeClaimTemplates": [claim]}, mounted)) == {}
    assert problems(STATEFUL_SETS, made(STATEFUL_SETS, {}, mounted)) != {}


def test_revision_keeps_its_data() -> None:
    revision: Json = {"metadata": {"name": "r"}, "revision": 1, "data": {"spec": {}}}
    assert problems(CONTROLLER_REVISIONS, revision) == {}
    assert problems(CONTROLLER_REVISIONS, {"metadata": {"name": "r"}, "revision": 1})["data"] == (
        "Required value: data is mandatory"
    )
    assert "immutable" in problems(CONTROLLER_REVISIONS, {**revision, "data": {"a": 1}}, revision)["data"]
