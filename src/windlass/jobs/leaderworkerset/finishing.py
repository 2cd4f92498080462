"""Pods of a LeaderWorkerSet on a cluster, where nothing changes a pod at its creation.

A StatefulSet gives all of its pods one template. The template therefore holds the pods
back by a scheduling gate, and its variables refer to labels and annotations. The
controller writes these for each pod, and opens the gate. The kubelet reads them when it
starts the containers, which is later.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

from windlass.api import annotations as names
from windlass.api.fields import leaderworkerset
from windlass.jobs.leaderworkerset.pods import decorate, exclude, requests_tpus

Json = dict[str, Any]
_REFERENCES = {
    "LWS_LEADER_ADDRESS": f"metadata.annotations['{names.LWS_LEADER_ADDRESS}']",
    "LWS_GROUP_SIZE": f"metadata.annotations['{leaderworkerset.SIZE}']",
    "LWS_WORKER_INDEX": f"metadata.labels['{leaderworkerset.WORKER_INDEX}']",
}
_TPU_REFERENCES = {
    "TPU_WORKER_HOSTNAMES": f"metadata.annotations['{names.LWS_TPU_HOSTNAMES}']",
    "TPU_WORKER_ID": f"metadata.annotations['{names.LWS_TPU_WORKER}']",
    "TPU_NAME": "metadata.name",
}
_WRITTEN = {
    "LWS_LEADER_ADDRESS": names.LWS_LEADER_ADDRESS,
    "TPU_WORKER_HOSTNAMES": names.LWS_TPU_HOSTNAMES,
    "TPU_WORKER_ID": names.LWS_TPU_WORKER,
}
"""Variable → annotation that holds its value."""


def hold_back(template: Json, scheduler: str) -> None:
    """Change a pod template in place so that its pods wait until they are finished.

    ``scheduler``: used if the template names none.
    """
    spec, metadata = template["spec"], template["metadata"]
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    spec["schedulingGates"] = [*(spec.get("schedulingGates") or ()), {"name": names.LWS_GATE}]
    spec["schedulerName"] = spec.get("schedulerName") or scheduler
    tpus = requests_tpus(spec)
    for container in _containers(spec):
        references = {**_REFERENCES, **(_TPU_REFERENCES if tpus and _has_tpus(container) else {})}
        _set(container, references)
    if (key := labels.get(leaderworkerset.GROUP_KEY)) and (
        topology := annotations.get(leaderworkerset.EXCLUSIVE_TOPOLOGY)
    ):
        exclude(spec, leaderworkerset.GROUP_KEY, key, topology)


def is_held_back(pod: Json) -> bool:
    return any(gate.get("name") == names.LWS_GATE for gate in pod["spec"].get("schedulingGates") or ())


def finish(pod: Json) -> Json:
    """Return the merge patch that finishes a pod and opens its gate."""
    done = copy.deepcopy(pod)
    for container in _containers(done["spec"]):
        own = container.get("env") or ()
        container["env"] = [one for one in own if one.get("name") not in (*_REFERENCES, *_TPU_REFERENCES)]
    decorate(done)
    values = {
        _WRITTEN[one["name"]]: one["value"]
        for container in _containers(done["spec"])
        for one in container["env"]
        if one["name"] in _WRITTEN and "value" in one
    }
    metadata, before = done["metadata"], pod["metadata"]
    gates = [gate for gate in pod["spec"]["schedulingGates"] if gate.get("name") != names.LWS_GATE]
    return {
        "metadata": {
            "labels": _added(metadata.get("labels"), before.get("labels")),
            "annotations": {**_added(metadata.get("annotations"), before.get("annotations")), **values},
        },
        "spec": {"schedulingGates": gates},
    }


def unsupported(template_annotations: Json, spec: Json) -> list[str]:
    """Return what needs a change of pods at their creation, in sentences."""
    found = []
    policy = (spec.get("networkConfig") or {}).get("subdomainPolicy")
    if policy == leaderworkerset.UNIQUE_PER_REPLICA:
        found.append("subdomainPolicy UniquePerReplica: all groups share the Service of the LeaderWorkerSet")
    if leaderworkerset.SUBGROUP_EXCLUSIVE_TOPOLOGY in template_annotations:
        found.append(f"{leaderworkerset.SUBGROUP_EXCLUSIVE_TOPOLOGY}: sub-groups are not kept apart")
    return found


def _added(now: Json | None, before: Json | None) -> Json:
    return {key: text for key, text in (now or {}).items() if (before or {}).get(key) != text}


def _containers(spec: Json) -> Iterable[Json]:
    return (*(spec.get("containers") or ()), *(spec.get("initContainers") or ()))


def _has_tpus(container: Json) -> bool:
    return requests_tpus({"containers": [container]})


def _set(container: Json, references: Json) -> None:
    own = [one for one in container.get("env") or () if one.get("name") not in references]
    added = [
        {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in references.items()
    ]
    container["env"] = [*added, *own]
