"""Plugin ``tensorflow``: the variable ``TF_CONFIG``.

It names the hosts of the tasks ``ps``, ``worker``, ``chief`` and ``evaluator``, and
type and index of the pod. A job of a single pod gets none.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from windlass.controllers.vcjob.plugins.position import (
    PodPosition,
    Value,
    add_env,
    containers,
    host_name,
    parse_flags,
    variable,
)

_ROLES = ("ps", "worker", "chief", "evaluator")
_DEFAULTS: dict[str, Value] = {**{role: role for role in _ROLES}, "port": 2222}


def problems(arguments: Sequence[str]) -> list[str]:
    return parse_flags(arguments, _DEFAULTS)[1]


def decorate(pod: dict[str, Any], position: PodPosition, arguments: Sequence[str]) -> None:
    spec = position.spec
    if len(spec.tasks) == 1 and spec.tasks[0].replicas == 1:
        return
    flags, _ = parse_flags(arguments, _DEFAULTS)
    cluster: dict[str, list[str]] = {}
    kind = position.task.name
    for role in _ROLES:
        task = spec.task(str(flags[role]))
        if task is None:
            continue
        if task.replicas:
            cluster[role] = [
                f"{host_name(spec, task, index)}:{flags['port']}" for index in range(task.replicas)
            ]
        if task.name == position.task.name:
            kind = role
    value = {"cluster": cluster, "task": {"type": kind, "index": position.index}}
    for container in containers(pod, init=False):
        add_env(container, variable("TF_CONFIG", json.dumps(value, separators=(",", ":"))))
