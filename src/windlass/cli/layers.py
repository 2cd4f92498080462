"""Running parts of the platform, grouped by its four layers, for ``windlass status``.

The states are observed: processes by their pid, scheduler and controllers by the metrics
that they serve, Deployments by their ready replicas.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from windlass.api.errors import StatusError, WindlassError
from windlass.cli.invocation import Invocation
from windlass.cli.text import plural
from windlass.client.transport import Request
from windlass.kits.processes import is_alive

INFRASTRUCTURE = "infrastructure"
RESOURCES = "resource management"
SCHEDULING = "scheduling engine"
JOBS = "job orchestration"
LAYERS = (INFRASTRUCTURE, RESOURCES, SCHEDULING, JOBS)

RUNNING = "running"
DOWN = "not running"
SILENT = "not responding"
UNKNOWN = "unknown"

CONTROL_METRICS = "/metrics/control"
"""Path at which a server of single-node mode passes on the metrics of scheduler and controllers."""

LAYER_OF_CONTROLLER: Mapping[str, str] = {
    "nodehealth": INFRASTRUCTURE,
    "gputier": INFRASTRUCTURE,
    "adoption": RESOURCES,
    "definitions": RESOURCES,
    "deviceclaims": RESOURCES,
    "disruption": RESOURCES,
    "garbage": RESOURCES,
    "namespace": RESOURCES,
    "normalising": RESOURCES,
    "priorityclasses": RESOURCES,
    "queue": RESOURCES,
    "quota": RESOURCES,
    "podgroup": JOBS,
    "vcjob": JOBS,
}
"""Layer of each controller. One that is missing here keeps a kind of job."""

_CONTROLLER = re.compile(r'^windlass_controller_looks_total\{controller="([^"]+)"\}', re.MULTILINE)
_SCHEDULER = re.compile(r"^windlass_scheduler_cycle_duration_seconds_count", re.MULTILINE)

Part = dict[str, Any]


def gather_layers(record: Mapping[str, Any], invocation: Invocation) -> list[dict[str, Any]]:
    """Return the four layers with their parts. ``record``: the other parts of ``windlass status``."""
    processes = record["server"].get("processes") or {}
    parts: dict[str, list[Part]] = {layer: [] for layer in LAYERS}
    parts[INFRASTRUCTURE].append({"name": "nodes", "state": _nodes(record)})
    if "node" in processes:
        parts[INFRASTRUCTURE].append(_of_process("node agent", "node", record))
    parts[RESOURCES].append(_server(record))
    if record.get("installed"):
        _add_deployments(parts, record["installed"])
        for kinds in record.get("jobKinds") or ():
            state = f"operated by {kinds['operator']}"
            parts[JOBS].append({"name": f"{kinds['family']} jobs", "state": state})
    else:
        _add_control(parts, record, invocation)
    return [{"name": layer, "parts": parts[layer]} for layer in LAYERS]


def layer_rows(layers: list[dict[str, Any]]) -> list[list[str]]:
    """Return the lines of the table: layer, part, state, details. A layer is named once."""
    found = []
    for layer in layers:
        for number, part in enumerate(layer["parts"]):
            found.append(["" if number else layer["name"], part["name"], part["state"], _detail(part)])
    return found


def _detail(part: Part) -> str:
    words = []
    if part.get("process"):
        words.append(f"process {part['process']}" + (f" (pid {part['pid']})" if part.get("pid") else ""))
    if part.get("restarts"):
        words.append(f"{plural(part['restarts'], 'restart')}, last {part.get('lastEnd')}")
    if part.get("version"):
        words.append(f"version {part['version']}")
    if part.get("controllers"):
        words.append(", ".join(part["controllers"]))
    return "; ".join(words)


def _nodes(record: Mapping[str, Any]) -> str:
    capacity = record.get("capacity")
    return f"{capacity['nodesReady']} of {capacity['nodes']} ready" if capacity else UNKNOWN


def _server(record: Mapping[str, Any]) -> Part:
    part = _of_process("API server", "server", record)
    readiness = record.get("readiness")
    if readiness is not None:
        part["state"] = RUNNING if readiness == "ok" else readiness
    elif part["state"] == RUNNING:
        part["state"] = SILENT
    return part


def _of_process(name: str, role: str, record: Mapping[str, Any]) -> Part:
    """Return the part that a process of the supervisor runs."""
    server = record["server"]
    process = (server.get("processes") or {}).get(role)
    if process is None:
        return {"name": name, "state": UNKNOWN if server.get("running", True) else DOWN}
    alive = bool(process.get("pid")) and is_alive(process["pid"])
    return {"name": name, "state": RUNNING if alive else DOWN, "process": role, **process}


def _add_control(parts: dict[str, list[Part]], record: Mapping[str, Any], invocation: Invocation) -> None:
    """Add scheduler and controllers, which share a process and its metrics."""
    part = _of_process("scheduler", "control", record)
    reachable = record.get("readiness") == "ok" and part["state"] != DOWN
    text = (_control_metrics(invocation) if reachable else None) or ""
    parts[SCHEDULING].append({**part, "state": _state(part["state"], bool(_SCHEDULER.search(text)))})
    names: dict[str, list[str]] = {layer: [] for layer in LAYERS}
    for name in _CONTROLLER.findall(text):
        names[LAYER_OF_CONTROLLER.get(name, JOBS)].append(name)
    for layer, controllers in names.items():
        state = _state(part["state"], bool(controllers))
        if controllers:
            parts[layer].append(
                {**part, "name": "controllers", "state": state, "controllers": sorted(controllers)}
            )
        elif layer is JOBS:
            parts[layer].append({**part, "name": "controllers", "state": state})


def _state(of_process: str, responds: bool) -> str:
    if responds:
        return RUNNING
    return SILENT if of_process == RUNNING else of_process


def _control_metrics(invocation: Invocation) -> str | None:
    try:
        return invocation.client.call(Request("GET", CONTROL_METRICS)).decode(errors="replace")
    except (StatusError, WindlassError):
        return None


def _add_deployments(parts: dict[str, list[Part]], installed: list[dict[str, Any]]) -> None:
    for deployment in installed:
        state = f"{deployment['ready']} of {deployment['replicas']} ready"
        layer = SCHEDULING if "scheduler" in deployment["name"] else JOBS
        name = f"{deployment['namespace']}/{deployment['name']}"
        parts[layer].append({"name": name, "state": state, "version": deployment["version"]})
    for layer, name in ((SCHEDULING, "scheduler"), (JOBS, "controllers")):
        if not parts[layer]:
            parts[layer].append({"name": name, "state": "not installed"})
