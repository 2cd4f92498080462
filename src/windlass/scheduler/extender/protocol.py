"""What an extender is told, under the names that Volcano's own scheduler uses: its ``TaskInfo``, ``JobInfo``,
``NodeInfo`` and ``QueueInfo`` as Go writes them in JSON, as far as Windlass holds what stands in them.

Amounts are Volcano's ``Resource``: CPU in milli, memory in bytes, pods as they are, others × 1000. Of a pod,
a node, a PodGroup and a queue as Kubernetes has them, the fields that Windlass keeps are there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from windlass.api import annotations as names
from windlass.api import views
from windlass.api.quantities import from_units, is_device
from windlass.kits.timestamps import rfc3339
from windlass.model.cluster.cluster_model import ClusterModel
from windlass.plugins.volcano import hdrf
from windlass.spi.objects import Needs

Words = dict[str, Any]
Seats = Mapping[str, str]
"""Task → the node that it would get."""
NO_SEATS: Seats = {}

PENDING, ALLOCATED, BINDING, BOUND, RUNNING = 1, 2, 8, 16, 32
RELEASING, SUCCEEDED, FAILED, UNKNOWN = 64, 128, 256, 512
READY, NOT_READY = 1, 2
_PHASES = {"Pending": PENDING, "Running": RUNNING, "Succeeded": SUCCEEDED, "Failed": FAILED}
_HELD = (ALLOCATED, BINDING, BOUND, RUNNING)


def amounts(units: Mapping[str, int]) -> Words:
    """A ``Resource``."""
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


def kind_of_task(needs: Needs) -> Words:
    """A kind of pods, as a task without a name: the answer is for all of them."""
    asked = amounts({name: units for name, units in needs.request if name != "pods"})
    selector = dict(needs.node_selector)
    return {"Resreq": asked, "InitResreq": asked, "Pod": {"spec": {"nodeSelector": selector}}}


def node(view: views.NodeObject) -> Words:
    """A node without what is on it."""
    able = amounts(view.allocatable)
    taints = [{"key": t.key, "value": t.value, "effect": t.effect} for t in view.taints]
    spec: Words = {"unschedulable": view.unschedulable, "taints": taints}
    quantities = {name: from_units(name, units) for name, units in view.allocatable.items()}
    return {
        "Name": view.name,
        "Node": {
            "metadata": _metadata(view),
            "spec": spec,
            "status": {"allocatable": quantities},
        },
        "State": {"Phase": READY if view.ready in ("True", "") else NOT_READY, "Reason": ""},
        "Allocatable": able,
        "Capacity": able,
        "RevocableZone": view.labels.get(names.REVOCABLE_ZONE, ""),
    }


class ExtenderEncoder:
    """Words for what stands in a model. ``seats``: what a decision that is being made would change."""

    def __init__(self, model: ClusterModel) -> None:
        self._model = model

    def task(self, key: str, allocator: Seats = NO_SEATS) -> Words:
        """One pod; one that is not known any more is a name."""
        pod = self._model.pods.get(key)
        if pod is None:
            namespace, _, name = key.rpartition("/")
            return {"Name": name, "Namespace": namespace, "Status": UNKNOWN}
        return self._task(pod, allocator)

    def leaving(self, key: str, allocator: Seats) -> Words:
        """One pod that is asked to leave its place in ``seats``, or does not get it after all."""
        words = self.task(key)
        there = words["Status"] in (BINDING, BOUND, RUNNING)
        return {
            **words,
            "NodeName": allocator.get(key, ""),
            "Status": RELEASING if there else words["Status"],
        }

    def _task(self, pod: views.Pod, allocator: Seats = NO_SEATS) -> Words:
        status, place = self._standing(pod, allocator)
        asked = amounts(pod.shape.request)
        return {
            "UID": pod.uid,
            "Job": self._model.group_of(pod.key) or "",
            "Name": pod.name,
            "Namespace": pod.namespace,
            "TaskRole": pod.annotations.get(names.TASK_SPEC) or pod.labels.get(names.TASK_SPEC, ""),
            "Resreq": asked,
            "InitResreq": asked,
            "NodeName": place,
            "Status": status,
            "Priority": pod.priority if pod.priority is not None else 1,
            "Preemptable": pod.annotations.get(names.PREEMPTABLE) == "true",
            "BestEffort": not any(units for name, units in pod.shape.request.items() if name != "pods"),
            "SchGated": bool(pod.shape.gates),
            "RevocableZone": pod.annotations.get(names.REVOCABLE_ZONE, ""),
            "Pod": {
                "metadata": _metadata(pod, namespace=pod.namespace),
                "spec": {
                    "nodeName": allocator.get(pod.key, pod.node_name),
                    "schedulerName": pod.scheduler_name,
                    "nodeSelector": dict(pod.shape.node_selector),
                    "priority": pod.priority,
                    "priorityClassName": pod.priority_class,
                },
                "status": {"phase": pod.phase},
            },
        }

    def _standing(self, pod: views.Pod, allocator: Seats) -> tuple[int, str]:
        if pod.key in allocator:
            return ALLOCATED, allocator[pod.key]
        if pod.deleted and not pod.finished:
            return RELEASING, pod.node_name
        if pod.phase == "Pending" and pod.node_name:
            return BOUND, pod.node_name
        assumed = self._model.assumed.get(pod.key)
        if assumed is not None and assumed.uid == pod.uid and not pod.node_name:
            return BINDING, assumed.node
        return _PHASES.get(pod.phase, UNKNOWN), pod.node_name

    def job(self, key: str, allocator: Seats = NO_SEATS) -> Words:
        """One group with its pods."""
        tasks = [self._task(pod, allocator) for pod in self._model.pods_of(key)]
        by_status: dict[str, dict[str, Words]] = {}
        for task in tasks:
            by_status.setdefault(str(task["Status"]), {})[task["UID"]] = task
        namespace, _, name = key.rpartition("/")
        found: Words = {
            "UID": key,
            "Name": name,
            "Namespace": namespace,
            "Tasks": {task["UID"]: task for task in tasks},
            "TaskStatusIndex": by_status,
            "Allocated": _sum(task["Resreq"] for task in tasks if task["Status"] in _HELD),
            "TotalRequest": _sum(task["Resreq"] for task in tasks),
        }
        group = self._model.groups.get(key)
        return found if group is None else {**found, **_of_group(group)}

    def queue(self, name: str) -> Words:
        view = self._model.queues.get(name)
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

    def session(self) -> Words:
        """All there is."""
        model = self._model
        placed: dict[str, list[Words]] = {}
        for pod in model.pods.values():
            if not pod.finished:
                words = self._task(pod)
                placed.setdefault(words["NodeName"], []).append(words)
        nodes = {name: _laden(node(view), placed.get(name, [])) for name, view in model.nodes.items()}
        return {
            "Jobs": {key: self.job(key) for key in model.groups},
            "Nodes": nodes,
            "Queues": {name: self.queue(name) for name in model.queues},
            "NamespaceInfo": {},
            "RevocableNodes": {name: words for name, words in nodes.items() if words["RevocableZone"]},
            "NodeList": sorted(nodes),
        }


def _of_group(group: views.PodGroup) -> Words:
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
        "CreationTimestamp": _moment(group.created),
        "PodGroup": {
            "metadata": _metadata(group, namespace=group.namespace),
            "spec": spec,
            "status": {"phase": group.phase or "Pending"},
            "Version": "v1beta1",
        },
    }


def _laden(words: Words, tasks: Iterable[Words]) -> Words:
    """A node with what is on it."""
    there = {task["UID"]: task for task in tasks}
    used = _sum(task["Resreq"] for task in there.values())
    leaving = _sum(task["Resreq"] for task in there.values() if task["Status"] == RELEASING)
    return {
        **words,
        "Tasks": there,
        "Used": used,
        "Releasing": leaving,
        "Idle": _sum([words["Allocatable"]], less=used),
        "Pipelined": amounts({}),
    }


def _sum(parts: Iterable[Words], *, less: Words | None = None) -> Words:
    found = amounts({})
    signed = [(part, 1) for part in parts]
    for part, sign in signed if less is None else [*signed, (less, -1)]:
        for name in ("MilliCPU", "Memory"):
            found[name] += sign * part[name]
        scalars = found["ScalarResources"]
        for name, units in part["ScalarResources"].items():
            scalars[name] = scalars.get(name, 0) + sign * units
    return found


def _quantities(units: Mapping[str, int]) -> dict[str, str]:
    return {name: from_units(name, amount) for name, amount in units.items()}


def _metadata(view: Any, *, namespace: str = "") -> Words:
    found = {
        "name": view.name,
        "uid": view.uid,
        "labels": dict(view.labels),
        "annotations": dict(view.annotations),
        "creationTimestamp": _moment(view.created),
    }
    return {**found, "namespace": namespace} if namespace else found


def _moment(seconds: float) -> str | None:
    return rfc3339(seconds) if seconds else None
