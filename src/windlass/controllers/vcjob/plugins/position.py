"""Position of a pod in its job, and helpers shared by the plugins."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from windlass.controllers.vcjob.spec import JobSpec, JobTask

Json = dict[str, Any]
Value = str | int | bool


@dataclass(frozen=True, slots=True)
class PodPosition:
    spec: JobSpec
    task: JobTask
    index: int


def host_name(spec: JobSpec, task: JobTask, index: int) -> str:
    """``<job>-<task>-<index>.<job>``, unless the template names host or subdomain itself."""
    host = task.pod_spec.get("hostname") or spec.pod_name(task.name, index)
    return f"{host}.{task.pod_spec.get('subdomain') or spec.name}"


def host_names(spec: JobSpec, task: JobTask) -> list[str]:
    """Return the host names of a task's pods. A host name of the template is one host."""
    count = min(task.replicas, 1) if task.pod_spec.get("hostname") else task.replicas
    return [host_name(spec, task, index) for index in range(count)]


def containers(pod: Json, *, init: bool) -> Iterator[Json]:
    """Yield the pod's containers, with ``init`` the init containers too, to be changed in place."""
    yield from pod["spec"].get("containers") or ()
    if init:
        yield from pod["spec"].get("initContainers") or ()


def add_env(container: Json, *variables: Json) -> None:
    container["env"] = [*(container.get("env") or ()), *variables]


def open_port(container: Json, name: str, port: int) -> None:
    """Declare a port of a container, unless it is declared already."""
    ports = container.get("ports") or ()
    if not any(entry.get("containerPort") == port for entry in ports):
        container["ports"] = [*ports, {"name": name, "containerPort": port}]


def variable(name: str, value: object) -> Json:
    return {"name": name, "value": str(value)}


def parse_flags(
    arguments: Sequence[str], defaults: Mapping[str, Value]
) -> tuple[dict[str, Value], list[str]]:
    """Parse flags like Go's ``flag`` package.

    Accepted are ``--name=value``, ``--name value``, and ``--name`` for a boolean, with
    one or two dashes. Return the values and the errors. As in Go, parsing ends at the
    first error.
    """
    values = dict(defaults)
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        if len(word) < 2 or not word.startswith("-") or word == "--":
            break
        name, equals, text = word.lstrip("-").partition("=")
        if name not in defaults:
            return values, [f"flag provided but not defined: -{name}"]
        default = defaults[name]
        if not equals and not isinstance(default, bool):
            if not rest:
                return values, [f"flag needs an argument: -{name}"]
            text = rest.pop(0)
        try:
            values[name] = _value(default, text if equals or not isinstance(default, bool) else "true")
        except ValueError:
            return values, [f'invalid value "{text}" for flag -{name}']
    return values, []


_TRUE = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE = frozenset({"0", "f", "F", "FALSE", "false", "False"})


def _value(default: Value, text: str) -> Value:
    if isinstance(default, bool):
        if text not in _TRUE | _FALSE:
            raise ValueError(text)
        return text in _TRUE
    return int(text, 0) if isinstance(default, int) else text
