"""Plugin ``mpi``: hosts of the workers for ``mpirun``.

The pods of the master task get ``MPI_HOST``, the workers' host names with commas
between them. All containers of the job open the port of SSH as ``mpijob-port``. The
plugins ``svc`` and ``ssh`` come with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from windlass.controllers.vcjob.plugins.position import (
    PodPosition,
    Value,
    add_env,
    containers,
    host_names,
    open_port,
    parse_flags,
    variable,
)

_DEFAULTS: dict[str, Value] = {"master": "master", "worker": "worker", "port": 22}
_PORT_NAME = "mpijob-port"


def problems(arguments: Sequence[str]) -> list[str]:
    return parse_flags(arguments, _DEFAULTS)[1]


def decorate(pod: dict[str, Any], position: PodPosition, arguments: Sequence[str]) -> None:
    spec = position.spec
    flags, _ = parse_flags(arguments, _DEFAULTS)
    variables = []
    if position.task.name == flags["master"]:
        worker = spec.task(str(flags["worker"]))
        if worker is None:
            return
        variables.append(variable("MPI_HOST", ",".join(host_names(spec, worker))))
    for container in containers(pod, init=True):
        open_port(container, _PORT_NAME, int(flags["port"]))
        if variables:
            add_env(container, *variables)
