"""Objects of a LeaderWorkerSet: StatefulSets, Services, PodGroups and revisions."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from windlass.api.annotations import QUEUE_NAME_VOLCANO
from windlass.api.fields import leaderworkerset
from windlass.api.owner_references import owner_reference
from windlass.api.resources import (
    CONTROLLER_REVISIONS,
    LEADER_WORKER_SETS,
    POD_GROUPS,
    PODS,
    SERVICES,
    STATEFUL_SETS,
    Resource,
)
from windlass.jobs.gang import GangPart, least_resources
from windlass.jobs.leaderworkerset.pods import requests_tpus
from windlass.jobs.leaderworkerset.rollout import Rollout
from windlass.jobs.leaderworkerset.spec import GroupTemplate, LeaderWorkerSet

Json = dict[str, Any]


def _object(resource: Resource, found: LeaderWorkerSet, name: str, owner: Json, **more: Any) -> Json:
    metadata = {
        "name": name,
        "namespace": found.namespace,
        "labels": {leaderworkerset.NAME: found.name},
        "ownerReferences": [owner],
    }
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata, **more}


def _owner(found: LeaderWorkerSet) -> Json:
    return owner_reference(LEADER_WORKER_SETS, found.name, found.uid)


def revision_name(found: LeaderWorkerSet, template: GroupTemplate) -> str:
    return f"{found.name}-{template.revision}"


def build_revision(found: LeaderWorkerSet, number: int) -> Json:
    """Return the ControllerRevision that keeps the current template."""
    body = _object(
        CONTROLLER_REVISIONS,
        found,
        revision_name(found, found.template),
        _owner(found),
        data={"spec": found.template.record},
        revision=number,
    )
    body["metadata"]["labels"][leaderworkerset.REVISION] = found.template.revision
    return body


def build_service(found: LeaderWorkerSet) -> Json:
    """Return the headless Service that all groups share."""
    return _service(found, found.name, {leaderworkerset.NAME: found.name}, _owner(found))


def build_group_service(found: LeaderWorkerSet, leader: Json) -> Json:
    """Return the headless Service of one group."""
    meta = leader["metadata"]
    selector = {
        leaderworkerset.NAME: found.name,
        leaderworkerset.GROUP_INDEX: meta["labels"][leaderworkerset.GROUP_INDEX],
    }
    return _service(found, meta["name"], selector, owner_reference(PODS, meta["name"], meta["uid"]))


def _service(found: LeaderWorkerSet, name: str, selector: Json, owner: Json) -> Json:
    spec = {"clusterIP": "None", "selector": selector, "publishNotReadyAddresses": True}
    return _object(SERVICES, found, name, owner, spec=spec)


def build_leaders(found: LeaderWorkerSet, step: Rollout) -> Json:
    """Return the StatefulSet of all leaders."""
    template = found.template
    labels = {leaderworkerset.NAME: found.name, leaderworkerset.WORKER_INDEX: "0"}
    pod = _pod_template(found, template, template.leader)
    pod["metadata"]["labels"].update({**labels, leaderworkerset.REVISION: template.revision})
    if template.unique_subdomains:
        pod["metadata"]["annotations"][leaderworkerset.SUBDOMAIN_POLICY] = leaderworkerset.UNIQUE_PER_REPLICA
    spec = {
        "serviceName": found.name,
        "replicas": step.replicas,
        "podManagementPolicy": "Parallel",
        "selector": {"matchLabels": labels},
        "template": pod,
        "updateStrategy": {
            "type": "RollingUpdate",
            "rollingUpdate": {"partition": step.partition, "maxUnavailable": max(1, found.replicas)},
        },
        **_claims(template),
    }
    body = _object(STATEFUL_SETS, found, found.name, _owner(found), spec=spec)
    body["metadata"]["labels"][leaderworkerset.REVISION] = template.revision
    body["metadata"]["annotations"] = {leaderworkerset.REPLICAS: str(found.replicas)}
    return body


def build_workers(found: LeaderWorkerSet, template: GroupTemplate, leader: Json) -> Json:
    """Return the StatefulSet of the workers of one leader."""
    meta = leader["metadata"]
    own = meta["labels"]
    selector = {
        leaderworkerset.NAME: found.name,
        leaderworkerset.GROUP_INDEX: own[leaderworkerset.GROUP_INDEX],
        leaderworkerset.GROUP_KEY: own[leaderworkerset.GROUP_KEY],
    }
    labels = {**selector, leaderworkerset.REVISION: own[leaderworkerset.REVISION]}
    pod = _pod_template(found, template, template.worker)
    pod["metadata"]["labels"].update(labels)
    pod["metadata"]["annotations"][leaderworkerset.LEADER_NAME] = meta["name"]
    if requests_tpus(leader["spec"]):
        pod["metadata"]["annotations"][leaderworkerset.LEADER_REQUESTS_TPUS] = "true"
    spec = {
        "serviceName": meta["name"] if template.unique_subdomains else found.name,
        "replicas": template.size - 1,
        "podManagementPolicy": "Parallel",
        "ordinals": {"start": 1},
        "selector": {"matchLabels": selector},
        "template": pod,
        **_claims(template),
    }
    owner = owner_reference(PODS, meta["name"], meta["uid"])
    body = _object(STATEFUL_SETS, found, meta["name"], owner, spec=spec)
    body["metadata"]["labels"] = labels
    return body


def _claims(template: GroupTemplate) -> Json:
    found: Json = {}
    if template.claims:
        found["volumeClaimTemplates"] = copy.deepcopy(template.claims)
    if template.retention is not None:
        found["persistentVolumeClaimRetentionPolicy"] = template.retention
    return found


def _pod_template(found: LeaderWorkerSet, template: GroupTemplate, pod: Json) -> Json:
    """Return a copy of a pod template, with the annotations that all pods of a group have."""
    body = copy.deepcopy(pod)
    metadata = body.setdefault("metadata", {})
    metadata["labels"] = dict(metadata.get("labels") or {})
    annotations = metadata["annotations"] = dict(metadata.get("annotations") or {})
    annotations[leaderworkerset.SIZE] = str(template.size)
    if topology := found.annotations.get(leaderworkerset.EXCLUSIVE_TOPOLOGY):
        annotations[leaderworkerset.EXCLUSIVE_TOPOLOGY] = topology
    if template.sub_group:
        annotations[leaderworkerset.SUBGROUP_SIZE] = str(
            template.sub_group.get("subGroupSize") or template.size
        )
        if kind := template.sub_group.get("subGroupPolicyType"):
            annotations[leaderworkerset.SUBGROUP_TYPE] = kind
        if topology := found.annotations.get(leaderworkerset.SUBGROUP_EXCLUSIVE_TOPOLOGY):
            annotations[leaderworkerset.SUBGROUP_EXCLUSIVE_TOPOLOGY] = topology
    return body


def build_group(
    found: LeaderWorkerSet, template: GroupTemplate, index: str, priorities: Mapping[str, int]
) -> Json:
    """Return the PodGroup of one group."""
    name = leaderworkerset.group_name(found.name, index, template.revision)
    body = _object(POD_GROUPS, found, name, _owner(found), spec=group_spec(found, template, priorities))
    body["metadata"]["labels"].update(
        {leaderworkerset.GROUP_INDEX: index, leaderworkerset.REVISION: template.revision}
    )
    inherited = {key: text for key, text in found.annotations.items() if key.startswith("volcano.sh/")}
    if inherited:
        body["metadata"]["annotations"] = inherited
    return body


def group_spec(found: LeaderWorkerSet, template: GroupTemplate, priorities: Mapping[str, int]) -> Json:
    """Return the spec of a PodGroup. A group with startup policy LeaderReady starts with its leader."""
    minimum = 1 if found.startup_policy == leaderworkerset.LEADER_READY else template.size
    pods = [(template.leader.get("spec") or {}, 1), (template.worker.get("spec") or {}, template.size - 1)]
    classes = [str(spec.get("priorityClassName") or "") for spec, _ in pods]
    parts = [
        GangPart(count, count, priorities.get(name, 0), spec)
        for (spec, count), name in zip(pods, classes, strict=True)
        if count
    ]
    body: Json = {
        "minMember": minimum,
        "minResources": least_resources(parts[:1] if minimum == 1 else parts, minimum),
    }
    if queue := found.annotations.get(QUEUE_NAME_VOLCANO):
        body["queue"] = queue
    if any(classes):
        body["priorityClassName"] = next(name for name in classes if name)
    return body
