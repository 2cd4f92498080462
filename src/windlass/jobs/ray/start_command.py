"""Command line of ``ray start`` in the pods of a cluster."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

from windlass.api.fields.ray import AGENT_PORT, HEAD, METRICS_PORT
from windlass.api.quantities import parse
from windlass.jobs.ray.cluster import NodeGroup, RayCluster

_MIG = re.compile(r"nvidia\.com/mig-\d+g\.\d+gb$")
_ACCELERATORS = {"aws.amazon.com/neuroncore": "neuron_cores", "google.com/tpu": "TPU"}
_WITH_ARGUMENT = ("log-color", "include-dashboard")
"""Flags with ``true`` and ``false`` as arguments; for all others they mean given or not."""


def start_command(cluster: RayCluster, group: NodeGroup, resources: Mapping[str, Any]) -> str:
    """Return the command. ``resources``: of the container; Ray gets its limits as what a node has."""
    parameters = dict(group.start_parameters)
    if group.type == HEAD:
        parameters.setdefault("dashboard-host", "0.0.0.0")
        if cluster.autoscaling:
            parameters["no-monitor"] = "true"
    else:
        parameters.setdefault("address", f"{cluster.head_address}:{cluster.head_port}")
    parameters.setdefault("metrics-export-port", str(METRICS_PORT))
    parameters.setdefault("dashboard-agent-listen-port", str(AGENT_PORT))
    parameters["block"] = "true"
    _add_resources(parameters, resources)
    flags = "".join(_flag(name, parameters[name]) for name in sorted(parameters))
    return ("ray start --head " if group.type == HEAD else "ray start ") + flags


def _flag(name: str, value: str) -> str:
    if value.lower() in ("true", "false") and name not in _WITH_ARGUMENT:
        return f" --{name} " if value.lower() == "true" else ""
    return f" --{name}={value} "


def _add_resources(parameters: dict[str, str], resources: Mapping[str, Any]) -> None:
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    cpu = _whole(limits.get("cpu")) or _whole(requests.get("cpu"))
    if cpu:
        parameters.setdefault("num-cpus", str(cpu))
    if memory := _whole(limits.get("memory")):
        parameters.setdefault("memory", str(memory))
    own = _own_resources(parameters.get("resources"))
    has_own = any(name in own for name in _ACCELERATORS.values())
    for name in sorted(limits):
        amount = _whole(limits[name])
        if amount and (name.endswith("gpu") or _MIG.match(name)):
            parameters.setdefault("num-gpus", str(amount))
        if amount and name in _ACCELERATORS and not has_own:
            own[_ACCELERATORS[name]] = amount
            parameters["resources"] = f"'{json.dumps(own)}'"
            has_own = True


def _own_resources(text: str | None) -> dict[str, Any]:
    """Return the custom resources of the parameter ``resources``. Raises ``ValueError``."""
    if not text:
        return {}
    found = json.loads(text.strip("'\"` "))
    if not isinstance(found, dict):
        raise ValueError(f"rayStartParams.resources is {text!r}, but must be a JSON object")
    return found


def _whole(quantity: Any) -> int:
    """Return a quantity as a whole number, rounded up; 0 without one."""
    return math.ceil(parse(str(quantity))) if quantity not in (None, "") else 0
