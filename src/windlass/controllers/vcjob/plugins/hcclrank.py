"""Plugin ``hcclrank``: the annotation ``hccl/rankIndex``, which Huawei's HCCL reads.

It is the value of ``RANK`` in the pod, such as that of plugin ``pytorch``. Without that
variable, pods of the master task are counted from 0 and those of the worker task follow.
An annotation of the template is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from windlass.controllers.vcjob.plugins.position import PodPosition, Value, containers, parse_flags

_DEFAULTS: dict[str, Value] = {"master": "master", "worker": "worker"}
_ANNOTATION = "hccl/rankIndex"


def problems(arguments: Sequence[str]) -> list[str]:
    return parse_flags(arguments, _DEFAULTS)[1]


def decorate(pod: dict[str, Any], position: PodPosition, arguments: Sequence[str]) -> None:
    annotations = pod["metadata"]["annotations"]
    if annotations.get(_ANNOTATION):
        return
    rank = _rank_variable(pod) or _rank(position, arguments)
    if rank:
        annotations[_ANNOTATION] = rank


def _rank_variable(pod: dict[str, Any]) -> str:
    for container in containers(pod, init=False):
        for entry in container.get("env") or ():
            if entry.get("name") == "RANK":
                return entry.get("value") or ""
    return ""


def _rank(position: PodPosition, arguments: Sequence[str]) -> str:
    flags, _ = parse_flags(arguments, _DEFAULTS)
    if position.task.name == flags["master"]:
        return str(position.index)
    if position.task.name == flags["worker"]:
        master = position.spec.task(str(flags["master"]))
        return str((master.replicas if master else 0) + position.index)
    return ""
