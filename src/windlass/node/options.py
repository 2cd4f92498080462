"""Options of the agent, and the map from images to environments of this machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

MIB = 2**20
GIB = 2**30


class OptionError(ValueError):
    """An option is not valid."""


@dataclass(frozen=True, slots=True)
class ImageEntry:
    """Environment of an image on this machine.

    ``path``: a directory. Its ``bin`` comes first on PATH, and it is the working directory.
    ``venv``: a Python virtual environment. ``env``: variables. ``command``: runs if the manifest has
    no command.
    """

    path: str = ""
    venv: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    command: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AgentOptions:
    """Options of the agent. Defaults are the kubelet's if it has them."""

    node_name: str = ""
    """Empty: the machine's hostname in lower case."""
    gpus: str = "auto"
    """``auto``, ``none`` or ``simulated:…`` (:mod:`windlass.node.devices.simulated`).

    ``auto:dynamic`` creates MIG instances as pods request them. The existing instances count as
    ``nvidia.com/mig-…`` with ``auto:mixed``, and as ``nvidia.com/gpu`` with ``auto:single``. Plain
    ``auto`` is dynamic where the agent may create instances and there are no foreign ones.
    """
    device_period_seconds: float = 15.0
    """Interval in seconds between device checks. An error that the driver reports is handled at once."""
    topology_manager_policy: str = "none"
    """Alignment of pods to NUMA nodes: one of the kubelet's four policies. A pod may name another."""
    topology_manager_scope: str = "container"
    """``container`` or ``pod``, as in the kubelet."""
    static_cpus: bool = False
    """True: containers of Guaranteed pods with whole CPUs get CPUs of their own."""
    reserved_cpus: tuple[int, ...] = ()
    """CPUs that are never exclusive. Empty: the first ones, for the reserved amount."""
    reserved: Mapping[str, int] = field(default_factory=dict)
    """Resources that pods do not get, in engine units. Memory replaces ``memory_reserve_bytes``."""
    pod_max_pids: int = 0
    """Maximum number of processes of each pod; 0: no limit."""
    isolation: str = "auto"
    """``auto``: namespaces where the machine permits them; ``none``: share the machine's network and files."""
    images: Mapping[str, ImageEntry] = field(default_factory=dict)
    """Image name, or a pattern with ``*`` → entry. Other images are ignored with an event."""
    pod_range: str = ""
    """IPv4 network of the pods. Empty: a free /20 of 100.64.0.0/10 or 198.18.0.0/15."""
    log_max_bytes: int = 10 * MIB
    log_files: int = 5
    log_retention_seconds: float = 7 * 86400.0
    log_retention_bytes: int = 2 * GIB
    memory_reserve_bytes: int = -1
    """Memory in bytes that is reserved for the system. Negative: 5 %, at least 256 MiB."""
    max_pods: int = 250
    simulated_start_seconds: float = 0.3
    """Time in seconds until a pod runs on a simulated node."""
    models: bool = True
    """False: another process fetches the models of this node."""
    stop_pods: bool = False
    """True: a graceful stop of the agent also ends all pods."""


def image_entry(images: Mapping[str, ImageEntry], image: str) -> ImageEntry | None:
    """Return the entry of the image: the exact one, else that of the longest matching pattern."""
    if image in images:
        return images[image]
    fitting = [pattern for pattern in images if fnmatchcase(image, pattern)]
    return images[max(fitting, key=len)] if fitting else None


_KEYS = ("path", "venv", "env", "command")


def parse_images(record: Mapping[str, Any]) -> dict[str, ImageEntry]:
    """Return the map of a configuration file. Raises :class:`OptionError` that names the entry."""
    return {str(image): _parse_entry(str(image), entry) for image, entry in record.items()}


def _parse_entry(image: str, entry: object) -> ImageEntry:
    if not isinstance(entry, Mapping):
        raise OptionError(f"{image}: must be a mapping with path, venv, env or command")
    unknown = sorted(str(key) for key in entry if key not in _KEYS)
    if unknown:
        raise OptionError(f"{image}: unknown {', '.join(unknown)} ({', '.join(_KEYS)})")
    if not any(entry.get(key) for key in _KEYS):
        raise OptionError(f"{image}: the entry is empty; it needs at least one of {', '.join(_KEYS)}")
    directories = {}
    for key in ("path", "venv"):
        directories[key] = entry.get(key) or ""
        if not isinstance(directories[key], str):
            raise OptionError(f"{image}: {key}: must be a directory")
    return ImageEntry(**directories, env=_parse_env(image, entry), command=_parse_command(image, entry))


def _parse_env(image: str, entry: Mapping[str, Any]) -> dict[str, str]:
    env = entry.get("env") or {}
    if not isinstance(env, Mapping):
        raise OptionError(f"{image}: env: must be a mapping from names to values")
    for name, value in env.items():
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise OptionError(f"{image}: env: {name}: must be text or a number; put the value in quotes")
    return {str(name): str(value) for name, value in env.items()}


def _parse_command(image: str, entry: Mapping[str, Any]) -> tuple[str, ...]:
    command = entry.get("command") or ()
    if isinstance(command, str):
        return ("/bin/sh", "-c", command)
    if not isinstance(command, list | tuple) or not all(isinstance(word, str) for word in command):
        raise OptionError(f"{image}: command: must be text for a shell, or a list of words")
    return tuple(command)
