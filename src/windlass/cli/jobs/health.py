"""What is wrong with a job that runs: its pods are ``Running`` for as long as nobody says otherwise, a node that does
not answer says nothing, and a pod may run and not be ready."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

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

_NODES = 32
"""So many nodes of a job are looked at."""
_PODS = 8
"""Of so many pods that are not ready it is said why."""
_LATE_SECONDS = 30.0
"""A pod that is there so long after the end of its grace period is stuck."""


def ailing(invocation: Invocation, job: Job) -> str:
    """A line for each node that is gone, not ready or overcommitted, as far as this user may see nodes, for each on
    which pods are stuck, and for each pod that runs and is not ready."""
    now = invocation.clock.now()
    return "\n".join([*_of_nodes(invocation, job), *_of_pods(job, now), *_of_unready(invocation, job, now)])


def _of_nodes(invocation: Invocation, job: Job) -> Iterator[str]:
    client, now = invocation.client, invocation.clock.now()
    for name in sorted(job.nodes, key=natural_key)[:_NODES]:
        node = unless_forbidden(lambda name=name: client.find(NODES, name), {})
        state = "is gone" if node is None else _unready(node, now)
        if state:
            yield f"{name} {state}: what is said of its {plural(job.nodes[name], 'pod')} may be old"
        if node and (over := _overfull(invocation, name, node)):
            yield f"pods on {name} hold {over}: not all of them have what they asked for"
        told = [(pod, words) for pod in job.pods if node and (words := shared_with_itself(pod, node))]
        for pod, words in told[:_PODS]:
            yield f"{pod['metadata']['name']} on {name} {words}"
        if len(told) > _PODS:
            yield f"and {plural(len(told) - _PODS, 'pod')} more on {name}"


def shared_with_itself(pod: Mapping[str, Any], node: Mapping[str, Any]) -> str:
    """Where a pod that is on a node asks for more units of cards than the node has cards: what it asks for and has."""
    if not resources.holds_resources(pod) or pod["spec"]["nodeName"] != node["metadata"]["name"]:
        return ""
    asked = resources.pod_request(pod["spec"])
    return more_units_than_devices(asked, resources.allocatable(node), node["metadata"].get("labels") or {})


def _overfull(invocation: Invocation, name: str, node: Mapping[str, Any]) -> str:
    """What all pods of a node, of whatever job, hold beyond what it has, as far as this user may see them."""
    found = unless_forbidden(lambda: invocation.client.list(PODS, fields=f"spec.nodeName={name}").items, [])
    return overcommitted.beyond(node, [pod for pod in found if resources.holds_resources(pod)])


def _unready(node: Mapping[str, Any], now: float) -> str:
    """Empty for a node that is ready, or of which nothing is known."""
    conditions = (node.get("status") or {}).get("conditions") or ()
    ready = next((one for one in conditions if one.get("type") == "Ready"), None)
    if ready is None or ready.get("status") == "True":
        return ""
    since = timestamp(ready.get("lastTransitionTime"))
    return "is not ready" + (f" for {age(now - since)}" if since else "")


def _of_pods(job: Job, now: float) -> Iterator[str]:
    stuck: dict[str, list[float]] = {}
    for pod in job.pods:
        end = timestamp(pod["metadata"].get("deletionTimestamp"))
        node = (pod.get("spec") or {}).get("nodeName")
        if end and node and now - end > _LATE_SECONDS:
            stuck.setdefault(node, []).append(end)
    for node, ends in sorted(stuck.items()):
        late = age(now - min(ends))
        yield f"{plural(len(ends), 'pod')} on {node} should have been gone {late} ago: until then the room is held"


def _of_unready(invocation: Invocation, job: Job, now: float) -> Iterator[str]:
    """What its probes said last; where they say nothing, what the condition says."""
    found = unready(job)
    if not found:
        return
    told = {}
    for event in unless_forbidden(lambda: events.of(invocation, [pod for pod, _ in found]), []):
        if event.get("reason") == "Unhealthy":
            told[(event.get("involvedObject") or {}).get("uid")] = str(event.get("message") or "").strip()
    for pod, condition in found[:_PODS]:
        since = timestamp(condition.get("lastTransitionTime"))
        late = f" for {age(now - since)}" if since else ""
        why = told.get(pod["metadata"].get("uid")) or condition.get("message") or "nothing says why"
        yield f"{pod['metadata']['name']} is not ready{late}: {why}"
    if len(found) > _PODS:
        yield f"and {plural(len(found) - _PODS, 'pod')} more"
