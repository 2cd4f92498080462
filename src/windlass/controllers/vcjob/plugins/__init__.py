"""Plugins of a Volcano Job: all of those that Volcano has.

A plugin decorates each pod and may add objects to the job. Both are pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from windlass.controllers.vcjob.plugins import env, hcclrank, mpi, pytorch, ray, ssh, svc, tensorflow
from windlass.controllers.vcjob.plugins.position import PodPosition
from windlass.kits.ssh_keys import SshKeyPair

Json = dict[str, Any]


def _no_objects(spec: object, arguments: Sequence[str], keys: SshKeyPair | None) -> list[Json]:
    return []


@dataclass(frozen=True, slots=True)
class JobPlugin:
    """Plugin of a Volcano Job.

    ``decorate(pod, position, arguments)``: changes a pod that is being built.
    ``objects(spec, arguments, keys)``: objects that exist while the job is active.
    ``problems(arguments)``: arguments that cannot be parsed.
    """

    name: str
    decorate: Callable[[Json, PodPosition, Sequence[str]], None]
    objects: Callable[[Any, Sequence[str], SshKeyPair | None], list[Json]] = _no_objects
    problems: Callable[[Sequence[str]], list[str]] = lambda arguments: []


BUILT_IN: Mapping[str, JobPlugin] = {
    "env": JobPlugin("env", env.decorate),
    "mpi": JobPlugin("mpi", mpi.decorate, problems=mpi.problems),
    "pytorch": JobPlugin("pytorch", pytorch.decorate, problems=pytorch.problems),
    "ray": JobPlugin("ray", ray.decorate, ray.objects, ray.problems),
    "ssh": JobPlugin("ssh", ssh.decorate, ssh.objects, ssh.problems),
    "svc": JobPlugin("svc", svc.decorate, svc.objects, svc.problems),
    "tensorflow": JobPlugin("tensorflow", tensorflow.decorate, problems=tensorflow.problems),
    "hcclrank": JobPlugin("hcclrank", hcclrank.decorate, problems=hcclrank.problems),
}
"""Plugins by name, in the order in which they decorate a pod.

``hcclrank`` comes last: it reads a variable that another plugin sets.
"""


def served(plugins: Mapping[str, Sequence[str]]) -> Iterable[tuple[JobPlugin, Sequence[str]]]:
    """Yield the job's plugins that exist, with their arguments, in the order of :data:`BUILT_IN`."""
    for name, plugin in BUILT_IN.items():
        if name in plugins:
            yield plugin, plugins[name]


__all__ = ["BUILT_IN", "JobPlugin", "PodPosition", "served"]
