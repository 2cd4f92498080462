"""Three phases of a job with the nodes that are left after each: filter, allocate, run.

* *Filter*: nodes that may take its pods at all, by selectors, taints and hardware.
* *Allocate*: nodes that hold its pods, or of a waiting job those with enough free capacity
  for a pod now. Priority decides which job is first, and whether capacity of others is
  taken.
* *Run*: nodes on which its pods run.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from windlass.api.reasons import Reason
from windlass.cli import resources
from windlass.cli.jobs.jobs import Job, pod_phase
from windlass.cli.text import plural

_OF_USE = frozenset(
    (
        Reason.INSUFFICIENT_RESOURCES,
        Reason.DEVICES_FRAGMENTED,
        Reason.DEVICE_SHARES_TAKEN,
        Reason.TOO_MANY_PODS,
        Reason.HOST_PORT_TAKEN,
        Reason.POD_AFFINITY_MISMATCH,
        Reason.POD_ANTI_AFFINITY_CONFLICT,
        Reason.TOPOLOGY_SPREAD_CONFLICT,
        Reason.NUMA_ALIGNMENT_FAILED,
        Reason.NODE_OVERLOADED,
        Reason.NODE_RESERVED,
    )
)
"""Reasons that depend on what other pods hold, unless the node is too small as such."""


def phases_of(
    job: Job, nodes: Sequence[Mapping[str, Any]], rejected: Mapping[str, str]
) -> list[dict[str, Any]]:
    """Return the phases. ``rejected``: node → why it takes no pod now, as if none had a node."""
    requests = [resources.pod_request(pod["spec"]) for pod in job.pods]
    filtered = {node["metadata"]["name"] for node in nodes if _never(node, rejected, requests)}
    left = len(nodes) - len(filtered)
    held = {pod["spec"]["nodeName"] for pod in job.pods if pod["spec"].get("nodeName")}
    running = [pod for pod in job.pods if pod_phase(pod) == "Running" and pod["spec"].get("nodeName")]
    on = {pod["spec"]["nodeName"] for pod in running}
    if held:
        allocation = f"hold {plural(job.bound, 'pod')} of {job.desired_pods}"
        allocated = len(held)
    else:
        allocation = "have enough free capacity for a pod"
        allocated = sum(1 for node in nodes if node["metadata"]["name"] not in rejected)
    return [
        {"phase": "filter", "nodes": left, "of": len(nodes), "detail": "pass selectors, taints and hardware"},
        {"phase": "allocate", "nodes": allocated, "of": left, "detail": allocation},
        {"phase": "run", "nodes": len(on), "of": allocated, "detail": f"run {plural(len(running), 'pod')}"},
    ]


def _never(
    node: Mapping[str, Any], rejected: Mapping[str, str], requests: Iterable[Mapping[str, int]]
) -> bool:
    """Return whether the node takes no pod of the job even if it were empty."""
    why = rejected.get(node["metadata"]["name"])
    if why is None:
        return False
    codes = {part.partition(":")[0].strip() for part in why.split("; ")}
    if not codes <= _OF_USE:
        return True
    capacity = resources.allocatable(node)
    return all(any(units > capacity.get(name, 0) for name, units in request.items()) for request in requests)


def texts(phases: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return one line per phase for people."""
    return [f"{p['phase']}: {p['nodes']} of {plural(p['of'], 'node')} {p['detail']}" for p in phases]
