"""JSON format of extenders, with the names of Volcano's own scheduler.

These are its ``TaskInfo``, ``JobInfo``, ``NodeInfo`` and ``QueueInfo`` as Go encodes
them, as far as Windlass has their contents. Resources are Volcano's ``Resource``: CPU
in milli, memory in bytes, pods by number, others × 1000. Of the Kubernetes objects
inside, the fields that Windlass reads are included.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from windlass.api import annotations as names
from windlass.api import views
from windlass.api.quantities import from_units, is_device
from windlass.kits.timestamps import rfc3339
from windlass.model.cluster.cluster_model import ClusterModel
from windlass.plugins.volcano.queues import hdrf
from windlass.spi.objects import Needs

Json = dict[str, Any]
Placements = Mapping[str, str]
"""Task → node, for a decision in progress."""
NO_PLACEMENTS: Placements = {}

PENDING, ALLOCATED, BINDING, BOUND, RUNNING = 1, 2, 8, 16, 32
RELEASING, SUCCEEDED, FAILED, UNKNOWN = 64, 128, 256, 512
READY, NOT_READY = 1, 2
_PHASES = {"Pending": PENDING, "Running": RUNNING, "Succeeded": SUCCEEDED, "Failed": FAILED}
_HELD = (ALLOCATED, BINDING, BOUND, RUNNING)


def resource(units: Mapping[str, int]) -> Json:
    """Return a ``Resource``."""
    scalars = {
        name: amount if is_device(name) or name == "pods" else amount * 1000
        for name, amount in units.items()
        if name not in ("cpu", "memory")
    }
    return {
        "MilliCPU": units.get("cpu", 0),
        "Memory": units.get("memory", 0),
        "ScalarResources": scalars,
        "MaxTaskNum": units.get("pods", 0),
    }


def kind_of_task(needs: Needs) -> Json:
    """Return a kind of pods as a task without a name.

    The response is for all of them.
    """
    request = resource({name: units for name, units in needs.request if name != "pods"})
    selector = dict(needs.node_selector)
    return {"Resreq": request, "InitResreq": request, "Pod": {"spec": {"nodeSelector": selector}}}


def node(view: views.NodeObject) -> Json:
    """Return a node without its tasks."""
    allocatable = resource(view.allocatable)
    taints = [{"key": t.key, "value": t.value, "effect": t.effect} for t in view.taints]
    spec: Json = {"unschedulable": view.unschedulable, "taints": taints}
    quantities = {name: from_units(name, units) for name, units in view.allocatable.items()}
    return {
        "Name": view.name,
        "Node": {
            "metadata": _metadata(view),
            "spec": spec,
            "status": {"allocatable": quantities},
        },
        "State": {"Phase": READY if view.ready in ("True", "") else NOT_READY, "Reason": ""},
        "Allocatable": allocatable,
        "Capacity": allocatable,
        "RevocableZone": view.labels.get(names.REVOCABLE_ZONE, ""),
    }


class ExtenderEncoder:
    """Encodes the state of a model.

    ``placements``: those of a decision in progress.
    """

    def __init__(self, model: ClusterModel) -> None:
        self._model = model

    def task(self, key: str, placements: Placements = NO_PLACEMENTS) -> Json:
        """Return one pod.

        Of a pod that does not exist any more, only its name is known.
        """
        pod = self._model.objects.pods.get(key)
        if pod is None:
            namespace, _, name = key.rpartition("/")
            return {"Name": name, "Namespace": namespace, "Status": UNKNOWN}
        return self._task(pod, placements)

    def removed_task(self, key: str, placements: Placements) -> Json:
        """Return a pod that leaves its node in ``placements``, or is not placed there."""
        task = self.task(key)
        status = RELEASING if task["Status"] in (BINDING, BOUND, RUNNING) else task["Status"]
        return {**task, "NodeName": placements.get(key, ""), "Status": status}

    def _task(self, pod: views.Pod, placements: Placements = NO_PLACEMENTS) -> Json:
        status, node_name = self._status_and_node(pod, placements)
        request = resource(pod.shape.request)
        return {
            "UID": pod.uid,
            "Job": self._model.groups.group_of(pod.key) or "",
            "Name": pod.name,
            "Namespace": pod.namespace,
            "TaskRole": pod.annotations.get(names.TASK_SPEC) or pod.labels.get(names.TASK_SPEC, ""),
            "Resreq": request,
            "InitResreq": request,
            "NodeName": node_name,
            "Status": status,
            "Priority": pod.priority if pod.priority is not None else 1,
            "Preemptable": pod.annotations.get(names.PREEMPTABLE) == "true",
            "BestEffort": not any(units for name, units in pod.shape.request.items() if name != "pods"),
            "SchGated": bool(pod.shape.gates),
            "RevocableZone": pod.annotations.get(names.REVOCABLE_ZONE, ""),
            "Pod": {
                "metadata": _metadata(pod, namespace=pod.namespace),
                "spec": {
                    "nodeName": placements.get(pod.key, pod.node_name),
                    "schedulerName": pod.scheduler_name,
                    "nodeSelector": dict(pod.shape.node_selector),
                    "priority": pod.priority,
                    "priorityClassName": pod.priority_class,
                },
                "status": {"phase": pod.phase},
            },
        }

    def _status_and_node(self, pod: views.Pod, placements: Placements) -> tuple[int, str]:
        if pod.key in placements:
            return ALLOCATED, placements[pod.key]
        if pod.deleted and not pod.finished:
            return RELEASING, pod.node_name
        if pod.phase == "Pending" and pod.node_name:
            return BOUND, pod.node_name
        assumed = self._model.binds.assumed.get(pod.key)
        if assumed is not None and assumed.uid == pod.uid and not pod.node_name:
            return BINDING, assumed.node
        return _PHASES.get(pod.phase, UNKNOWN), pod.node_name

    def job(self, key: str, placements: Placements = NO_PLACEMENTS) -> Json:
        """Return one group with its pods."""
        tasks = [self._task(pod, placements) for pod in self._model.groups.pods_of(key)]
        by_status: dict[str, dict[str, Json]] = {}
        for task in tasks:
            by_status.setdefault(str(task["Status"]), {})[task["UID"]] = task
        namespace, _, name = key.rpartition("/")
        job: Json = {
            "UID": key,
            "Name": name,
            "Namespace": namespace,
            "Tasks": {task["UID"]: task for task in tasks},
            "TaskStatusIndex": by_status,
            "Allocated": _sum(task["Resreq"] for task in tasks if task["Status"] in _HELD),
            "TotalRequest": _sum(task["Resreq"] for task in tasks),
        }
        group = self._model.objects.groups.get(key)
        return job if group is None else {**job, **_group_fields(group)}

    def queue(self, name: str) -> Json:
        view = self._model.objects.queues.get(name)
        if view is None:
            return {"UID": name, "Name": name}
        spec = {
            "weight": view.weight,
            "parent": view.parent,
            "priority": view.priority,
            "reclaimable": view.reclaimable,
            "capability": _quantities(view.capability),
            "deserved": _quantities(view.deserved),
            "guarantee": {"resource": _quantities(view.guarantee)},
        }
        status = {"state": view.state, "allocated": dict(view.allocated)}
        return {
            "UID": view.name,
            "Name": view.name,
            "Weight": view.weight,
            "Weights": view.annotations.get(hdrf.WEIGHTS, ""),
            "Hierarchy": view.annotations.get(hdrf.HIERARCHY, ""),
            "Queue": {"metadata": _metadata(view), "spec": spec, "status": status},
        }

    def session(self) -> Json:
        """Return the whole state."""
        model = self._model
        placed: dict[str, list[Json]] = {}
        for pod in model.objects.pods.values():
            if not pod.finished:
                task = self._task(pod)
                placed.setdefault(task["NodeName"], []).append(task)
        nodes = {
            name: _with_tasks(node(view), placed.get(name, [])) for name, view in model.objects.nodes.items()
        }
        return {
            "Jobs": {key: self.job(key) for key in model.objects.groups},
            "Nodes": nodes,
            "Queues": {name: self.queue(name) for name in model.objects.queues},
            "NamespaceInfo": {},
            "RevocableNodes": {name: info for name, info in nodes.items() if info["RevocableZone"]},
            "NodeList": sorted(nodes),
        }


def _group_fields(group: views.PodGroup) -> Json:
    roles = dict(group.min_task_member)
    spec = {
        "minMember": group.min_member,
        "minTaskMember": roles,
        "queue": group.queue,
        "priorityClassName": group.priority_class,
        "minResources": _quantities(group.min_resources),
    }
    return {
        "PgUID": group.uid,
        "Queue": group.queue or "default",
        "MinAvailable": group.min_member,
        "TaskMinAvailable": roles,
        "TaskMinAvailableTotal": sum(roles.values()),
        "CreationTimestamp": _timestamp(group.created),
        "PodGroup": {
            "metadata": _metadata(group, namespace=group.namespace),
            "spec": spec,
            "status": {"phase": group.phase or "Pending"},
            "Version": "v1beta1",
        },
    }


def _with_tasks(info: Json, tasks: Iterable[Json]) -> Json:
    """Return a node with its tasks."""
    by_uid = {task["UID"]: task for task in tasks}
    used = _sum(task["Resreq"] for task in by_uid.values())
    releasing = _sum(task["Resreq"] for task in by_uid.values() if task["Status"] == RELEASING)
    return {
        **info,
        "Tasks": by_uid,
        "Used": used,
        "Releasing": releasing,
        "Idle": _sum([info["Allocatable"]], minus=used),
        "Pipelined": resource({}),
    }


def _sum(terms: Iterable[Json], *, minus: Json | None = None) -> Json:
    total = resource({})
    signed = [(term, 1) for term in terms]
    for term, sign in signed if minus is None else [*signed, (minus, -1)]:
        for name in ("MilliCPU", "Memory"):
            total[name] += sign * term[name]
        scalars = total["ScalarResources"]
        for name, units in term["ScalarResources"].items():
            scalars[name] = scalars.get(name, 0) + sign * units
    return total


def _quantities(units: Mapping[str, int]) -> dict[str, str]:
    return {name: from_units(name, amount) for name, amount in units.items()}


def _metadata(view: Any, *, namespace: str = "") -> Json:
    metadata = {
        "name": view.name,
        "uid": view.uid,
        "labels": dict(view.labels),
        "annotations": dict(view.annotations),
        "creationTimestamp": _timestamp(view.created),
    }
    return {**metadata, "namespace": namespace} if namespace else metadata


def _timestamp(seconds: float) -> str | None:
    return rfc3339(seconds) if seconds else None
