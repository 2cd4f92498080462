"""Supported plugins of a Volcano Job: ``env``, ``svc`` and ``pytorch``.

A plugin decorates each pod and may add objects to the job. Both are pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from windlass.controllers.vcjob.plugins import env, pytorch, svc
from windlass.controllers.vcjob.plugins.position import PodPosition

Json = dict[str, Any]


def _no_objects(spec: object, arguments: Sequence[str]) -> list[Json]:
    return []


@dataclass(frozen=True, slots=True)
class JobPlugin:
    """Plugin of a Volcano Job.

    ``decorate(pod, position, arguments)``: changes a pod that is being built.
    ``objects(spec, arguments)``: objects that exist while the job is active.
    ``problems(arguments)``: arguments that cannot be parsed.
    """

    name: str
    decorate: Callable[[Json, PodPosition, Sequence[str]], None]
    objects: Callable[[Any, Sequence[str]], list[Json]] = _no_objects
    problems: Callable[[Sequence[str]], list[str]] = lambda arguments: []


BUILT_IN: Mapping[str, JobPlugin] = {
    "env": JobPlugin("env", env.decorate),
    "svc": JobPlugin("svc", svc.decorate, svc.objects, svc.problems),
    "pytorch": JobPlugin("pytorch", pytorch.decorate, problems=pytorch.problems),
}

__all__ = ["BUILT_IN", "JobPlugin", "PodPosition"]
