"""Labels, affinity and variables of a pod of a LeaderWorkerSet, by its name and template.

Upstream's webhook does the same at the creation of a pod, because a StatefulSet gives
all of its pods one template.
"""

from __future__ import annotations

import hashlib
from typing import Any

from windlass.api.annotations import GROUP_NAME
from windlass.api.fields import leaderworkerset

Json = dict[str, Any]
TPU = "google.com/tpu"


def decorate(pod: Json) -> None:
    """Finish a new pod in place. Pods that no LeaderWorkerSet made stay as they are.

    Raises ``ValueError`` for a pod without index.
    """
    meta, spec = pod["metadata"], pod["spec"]
    labels, annotations = meta.setdefault("labels", {}), meta.get("annotations") or {}
    if leaderworkerset.NAME not in labels or leaderworkerset.SIZE not in annotations:
        return
    size = int(annotations[leaderworkerset.SIZE])
    parent, _, ordinal = meta["name"].rpartition("-")
    if not ordinal.isdecimal():
        raise ValueError(f"pod {meta['name']} of a LeaderWorkerSet has no index at the end of its name")
    if labels.get(leaderworkerset.WORKER_INDEX) == "0":
        labels.setdefault(leaderworkerset.GROUP_INDEX, ordinal)
        if annotations.get(leaderworkerset.SUBDOMAIN_POLICY) == leaderworkerset.UNIQUE_PER_REPLICA:
            spec["subdomain"] = meta["name"]
        leader = meta["name"]
    else:
        labels[leaderworkerset.WORKER_INDEX] = ordinal
        leader = annotations.get(leaderworkerset.LEADER_NAME) or parent
    labels.setdefault(leaderworkerset.GROUP_KEY, _hash(meta["namespace"], leader))
    if topology := annotations.get(leaderworkerset.EXCLUSIVE_TOPOLOGY):
        exclude(spec, leaderworkerset.GROUP_KEY, labels[leaderworkerset.GROUP_KEY], topology)
    _join_sub_group(meta, spec, leader, size)
    if revision := labels.get(leaderworkerset.REVISION):
        name = leaderworkerset.group_name(
            labels[leaderworkerset.NAME], labels[leaderworkerset.GROUP_INDEX], revision
        )
        meta.setdefault("annotations", {}).setdefault(GROUP_NAME, name)
    _add_tpu_variables(meta, spec, leader, size)
    address = (
        f"{labels[leaderworkerset.NAME]}-{labels[leaderworkerset.GROUP_INDEX]}.{spec.get('subdomain') or ''}"
    )
    variables = {
        "LWS_LEADER_ADDRESS": f"{address}.{meta['namespace']}",
        "LWS_GROUP_SIZE": str(size),
        "LWS_WORKER_INDEX": labels[leaderworkerset.WORKER_INDEX],
    }
    for container in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ())):
        kept = [one for one in container.get("env") or () if one.get("name") not in variables]
        container["env"] = [*({"name": key, "value": text} for key, text in variables.items()), *kept]


def _hash(*parts: str) -> str:
    return hashlib.sha1("/".join(parts).encode(), usedforsecurity=False).hexdigest()


def _join_sub_group(meta: Json, spec: Json, leader: str, size: int) -> None:
    labels, annotations = meta["labels"], meta.get("annotations") or {}
    text = annotations.get(leaderworkerset.SUBGROUP_SIZE)
    index = int(labels[leaderworkerset.WORKER_INDEX])
    excluded = annotations.get(leaderworkerset.SUBGROUP_TYPE) == leaderworkerset.LEADER_EXCLUDED
    if not text or labels.get(leaderworkerset.SUBGROUP_INDEX) or (index == 0 and excluded):
        return
    labels[leaderworkerset.SUBGROUP_INDEX] = str(sub_group_index(size, int(text), index))
    labels[leaderworkerset.SUBGROUP_KEY] = _hash(leader, labels[leaderworkerset.SUBGROUP_INDEX])
    if topology := annotations.get(leaderworkerset.SUBGROUP_EXCLUSIVE_TOPOLOGY):
        exclude(spec, leaderworkerset.SUBGROUP_KEY, labels[leaderworkerset.SUBGROUP_KEY], topology)


def sub_group_index(size: int, sub_group_size: int, index: int) -> int:
    """Return the sub-group of a pod. A leader that is one too many is in the first."""
    if index == 0:
        return 0
    return (index - 1 if (size - 1) % sub_group_size == 0 else index) // sub_group_size


def exclude(spec: Json, label: str, key: str, topology: str) -> None:
    """Gather the pods with this key in one domain, and keep those with other keys out."""
    affinity = spec.setdefault("affinity", {})
    for field, expressions in (
        ("podAffinity", [{"key": label, "operator": "In", "values": [key]}]),
        (
            "podAntiAffinity",
            [{"key": label, "operator": "Exists"}, {"key": label, "operator": "NotIn", "values": [key]}],
        ),
    ):
        terms = affinity.setdefault(field, {}).setdefault(
            "requiredDuringSchedulingIgnoredDuringExecution", []
        )
        if not any(term.get("topologyKey") == topology for term in terms):
            terms.append({"labelSelector": {"matchExpressions": expressions}, "topologyKey": topology})


def requests_tpus(spec: Json) -> bool:
    return _tpu_container(spec) is not None


def _tpu_container(spec: Json) -> Json | None:
    for container in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ())):
        resources = container.get("resources") or {}
        for field in ("limits", "requests"):
            if str((resources.get(field) or {}).get(TPU, "0")) != "0":
                return container
    return None


def _add_tpu_variables(meta: Json, spec: Json, leader: str, size: int) -> None:
    container = _tpu_container(spec)
    names = ("TPU_WORKER_HOSTNAMES", "TPU_WORKER_ID")
    if container is None or any(one.get("name") in names for one in container.get("env") or ()):
        return
    labels, annotations = meta["labels"], meta.get("annotations") or {}
    index = int(labels[leaderworkerset.WORKER_INDEX])
    with_leader = index == 0 or annotations.get(leaderworkerset.LEADER_REQUESTS_TPUS) == "true"
    members = list(range(0 if with_leader else 1, size))
    if (text := annotations.get(leaderworkerset.SUBGROUP_SIZE)) and leaderworkerset.SUBGROUP_INDEX in labels:
        start = int(labels[leaderworkerset.SUBGROUP_INDEX]) * int(text)
        members = members[start : start + int(text)]
    subdomain = spec.get("subdomain") or ""
    hosts = [f"{leader if one == 0 else f'{leader}-{one}'}.{subdomain}" for one in members]
    variables = {
        "TPU_WORKER_HOSTNAMES": ",".join(hosts),
        "TPU_WORKER_ID": str(members.index(index) if index in members else 0),
        "TPU_NAME": meta["name"],
    }
    added = [{"name": key, "value": value} for key, value in variables.items()]
    container["env"] = [*(container.get("env") or ()), *added]
