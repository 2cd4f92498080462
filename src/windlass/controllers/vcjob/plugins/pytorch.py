"""Plugin ``pytorch``: environment of ``torch.distributed``.

It sets ``MASTER_ADDR`` (``<job>-master-0.<job>``), ``MASTER_PORT``, ``WORLD_SIZE``
(number of pods of the master and the worker task, not of GPUs) and ``RANK`` (0 for the
master, index + 1 for workers). The port is opened as ``pytorchjob-port``. Pods of other
tasks get no rank. A job without the master task is left unchanged.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from windlass.controllers.vcjob.plugins.position import (
    PodPosition,
    Value,
    add_env,
    containers,
    host_name,
    open_port,
    parse_flags,
    variable,
)

_DEFAULTS: dict[str, Value] = {
    "master": "master",
    "worker": "worker",
    "port": 23456,
    "wait-master-enabled": False,
    "wait-master-timeout": 300,
    "wait-master-image": "busybox:1.36.1",
}
_PORT_NAME = "pytorchjob-port"
_WAITER = "wait-for-master"
_WAIT_SCRIPT = """\
echo "Waiting for master node {host}:{port} to be ready..."
waited=0
until {{ nc -z {host} {port} || echo > /dev/tcp/{host}/{port}; }} 2>/dev/null; do
  if [ "$waited" -ge {timeout} ]; then
    echo "Timeout waiting for master after {timeout} seconds"
    exit 1
  fi
  sleep 2
  waited=$((waited + 2))
done
echo "Master node is ready!"
"""


def problems(arguments: Sequence[str]) -> list[str]:
    return parse_flags(arguments, _DEFAULTS)[1]


def decorate(pod: dict[str, Any], position: PodPosition, arguments: Sequence[str]) -> None:
    spec, task = position.spec, position.task
    flags, _ = parse_flags(arguments, _DEFAULTS)
    master, worker = spec.task(str(flags["master"])), str(flags["worker"])
    if master is None:
        return
    address, port = host_name(spec, master, 0), flags["port"]
    world = sum(t.replicas for t in spec.tasks if t.name in (master.name, worker))
    variables = [
        variable("MASTER_ADDR", address),
        variable("MASTER_PORT", port),
        variable("WORLD_SIZE", world),
    ]
    if task.name == worker:
        variables.append(variable("RANK", position.index + 1))
    elif task.name == master.name:
        variables.append(variable("RANK", 0))
    for container in containers(pod, init=False):
        open_port(container, _PORT_NAME, int(port))
        add_env(container, *variables)
    if task.name == worker and flags["wait-master-enabled"]:
        _wait_for_master(pod, address, flags)


def _wait_for_master(pod: dict[str, Any], address: str, flags: dict[str, Value]) -> None:
    present = pod["spec"].get("initContainers") or []
    if any(container.get("name") == _WAITER for container in present):
        return
    script = _WAIT_SCRIPT.format(host=address, port=flags["port"], timeout=flags["wait-master-timeout"])
    waiter = {"name": _WAITER, "image": flags["wait-master-image"], "command": ["sh", "-c", script]}
    pod["spec"]["initContainers"] = [*present, waiter]
