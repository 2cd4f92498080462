"""Problems of a running job.

A pod is ``Running`` until its node reports otherwise. A node that does not answer
reports nothing, and a pod may run without being ready.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from windlass.api.annotations import RUN_SECONDS, SIMULATED
from windlass.api.devices.plugin_units import more_units_than_devices
from windlass.api.resources import NODES, PODS
from windlass.cli import resources
from windlass.cli.errors import unless_forbidden
from windlass.cli.invocation import Invocation
from windlass.cli.jobs import events
from windlass.cli.jobs.jobs import Job, unready
from windlass.cli.nodes import overcommitted
from windlass.cli.text import natural_key, plural, timestamp
from windlass.kits.timestamps import age

_MAX_NODES = 32
"""Maximum number of nodes of a job that are checked."""
_MAX_PODS = 8
"""Maximum number of pods that are listed with a reason."""
_LATE_SECONDS = 30.0
"""Time after the end of its grace period (seconds) from which a pod counts as stuck."""


def problems_of(invocation: Invocation, job: Job) -> str:
    """Return a line for each problem of a running job.

    Nodes may be gone, not ready or overcommitted (as far as this user may see nodes).
    Pods may be stuck, or run without being ready.
    """
    now = invocation.clock.now()
    return "\n".join(
        [*_node_problems(invocation, job), *_stuck_pods(job, now), *_unready_pods(invocation, job, now)]
    )


def _node_problems(invocation: Invocation, job: Job) -> Iterator[str]:
    client, now = invocation.client, invocation.clock.now()
    for name in sorted(job.nodes, key=natural_key)[:_MAX_NODES]:
        node = unless_forbidden(lambda name=name: client.find(NODES, name), {})
        state = "is gone" if node is None else _unready(node, now)
        if state:
            yield f"{name} {state}: the status of its {plural(job.nodes[name], 'pod')} may be out of date"
        if node and _waits_on_simulated_node(job, name, node):
            yield f"{name} is simulated: it runs no commands, and its pods run until the job is cancelled"
        if node and (over := _overcommitted(invocation, name, node)):
            yield f"pods on {name} hold {over}: not all of them have the capacity that they requested"
        excess = [(pod, text) for pod in job.pods if node and (text := excess_units(pod, node))]
        for pod, text in excess[:_MAX_PODS]:
            yield f"{pod['metadata']['name']} on {name} {text}"
        if len(excess) > _MAX_PODS:
            yield f"and {plural(len(excess) - _MAX_PODS, 'pod')} more on {name}"


def _waits_on_simulated_node(job: Job, name: str, node: Mapping[str, Any]) -> bool:
    """Return whether a pod on a simulated node has no declared end."""
    if (node["metadata"].get("labels") or {}).get(SIMULATED) != "true":
        return False
    on_node = [pod for pod in job.pods if (pod.get("spec") or {}).get("nodeName") == name]
    return any(RUN_SECONDS not in (pod["metadata"].get("annotations") or {}) for pod in on_node)


def excess_units(pod: Mapping[str, Any], node: Mapping[str, Any]) -> str:
    """Return a text if a pod requests more device units than its node has devices; else
    empty.
    """
    if not resources.holds_resources(pod) or pod["spec"]["nodeName"] != node["metadata"]["name"]:
        return ""
    request = resources.pod_request(pod["spec"])
    return more_units_than_devices(request, resources.allocatable(node), node["metadata"].get("labels") or {})


def _overcommitted(invocation: Invocation, name: str, node: Mapping[str, Any]) -> str:
    """Return what the visible pods of a node hold beyond its capacity."""
    pods = unless_forbidden(lambda: invocation.client.list(PODS, fields=f"spec.nodeName={name}").items, [])
    return overcommitted.excess(node, [pod for pod in pods if resources.holds_resources(pod)])


def _unready(node: Mapping[str, Any], now: float) -> str:
    """Return the state of a node that is not ready; empty if it is ready or unknown."""
    conditions = (node.get("status") or {}).get("conditions") or ()
    ready = next((item for item in conditions if item.get("type") == "Ready"), None)
    if ready is None or ready.get("status") == "True":
        return ""
    since = timestamp(ready.get("lastTransitionTime"))
    return "is not ready" + (f" for {age(now - since)}" if since else "")


def _stuck_pods(job: Job, now: float) -> Iterator[str]:
    stuck: dict[str, list[float]] = {}
    for pod in job.pods:
        end = timestamp(pod["metadata"].get("deletionTimestamp"))
        node = (pod.get("spec") or {}).get("nodeName")
        if end and node and now - end > _LATE_SECONDS:
            stuck.setdefault(node, []).append(end)
    for node, ends in sorted(stuck.items()):
        late = age(now - min(ends))
        yield f"{plural(len(ends), 'pod')} on {node} should have ended {late} ago; the capacity is still allocated"


def _unready_pods(invocation: Invocation, job: Job, now: float) -> Iterator[str]:
    """Yield a line for each pod that is not ready, with its last probe result or condition."""
    unready_pods = unready(job)
    if not unready_pods:
        return
    messages = {}
    for event in unless_forbidden(
        lambda: events.about_objects(invocation, [pod for pod, _ in unready_pods]), []
    ):
        if event.get("reason") == "Unhealthy":
            messages[(event.get("involvedObject") or {}).get("uid")] = str(event.get("message") or "").strip()
    for pod, condition in unready_pods[:_MAX_PODS]:
        since = timestamp(condition.get("lastTransitionTime"))
        late = f" for {age(now - since)}" if since else ""
        why = messages.get(pod["metadata"].get("uid")) or condition.get("message") or "no reason is reported"
        yield f"{pod['metadata']['name']} is not ready{late}: {why}"
    if len(unready_pods) > _MAX_PODS:
        yield f"and {plural(len(unready_pods) - _MAX_PODS, 'pod')} more"
