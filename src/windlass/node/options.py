"""What can be set about the agent, and the map from images to what stands for them on this machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

MIB = 2**20
GIB = 2**30


class OptionError(ValueError):
    """An option says something that cannot be meant."""


@dataclass(frozen=True, slots=True)
class ImageEntry:
    """What an image means here. ``path``: a folder (its ``bin`` goes first on PATH, it is the working
    directory); ``venv``: a Python virtual environment; ``env``: variables; ``command``: what runs when the
    manifest names no command."""

    path: str = ""
    venv: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    command: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AgentOptions:
    """Defaults are the kubelet's where it has them."""

    node_name: str = ""
    """Empty: the machine's hostname, in lower case."""
    gpus: str = "auto"
    """``auto``, ``none`` or ``simulated:…`` (:mod:`windlass.node.devices.simulated`).

    How devices in MIG mode are handed out: ``auto:dynamic`` carves them as pods ask; else the slices that they
    have count as ``nvidia.com/mig-…`` (``auto:mixed``) or as ``nvidia.com/gpu`` (``auto:single``). Plain ``auto``
    carves where that is allowed and nobody else has cut the device."""
    card_period_seconds: float = 15.0
    """How often the devices are looked at; an error that the driver tells is dealt with at once."""
    topology_manager_policy: str = "none"
    """How pods are aligned to NUMA zones: the kubelet's four policies. A pod may name another for itself."""
    topology_manager_scope: str = "container"
    """``container`` or ``pod``, as the kubelet's."""
    isolation: str = "auto"
    """``auto``: namespaces where the machine permits them; ``none``: share the machine's network and files."""
    images: Mapping[str, ImageEntry] = field(default_factory=dict)
    """Image name, or a pattern with ``*``, → entry. Pods' other images are ignored with an event."""
    pod_range: str = ""
    """IPv4 network of pods' addresses; empty: a free /20 of 100.64.0.0/10 or 198.18.0.0/15."""
    log_max_bytes: int = 10 * MIB
    log_files: int = 5
    log_retention_seconds: float = 7 * 86400.0
    log_retention_bytes: int = 2 * GIB
    memory_reserve_bytes: int = -1
    """Kept back from pods; negative: 5 % of the machine's, at least 256 MiB."""
    max_pods: int = 250
    simulated_start_seconds: float = 0.3
    """How long a pod takes to run on a simulated node."""
    stop_pods: bool = False
    """At a graceful stop of the agent: end all pods' processes too."""


def image_entry(images: Mapping[str, ImageEntry], image: str) -> ImageEntry | None:
    """The exact entry, else the longest pattern that matches."""
    if image in images:
        return images[image]
    fitting = [pattern for pattern in images if fnmatchcase(image, pattern)]
    return images[max(fitting, key=len)] if fitting else None


_KEYS = ("path", "venv", "env", "command")


def parse_images(record: Mapping[str, Any]) -> dict[str, ImageEntry]:
    """The map as it stands in a configuration file. Raises :class:`OptionError` naming the entry."""
    return {str(image): _parse_entry(str(image), entry) for image, entry in record.items()}


def _parse_entry(image: str, entry: object) -> ImageEntry:
    if not isinstance(entry, Mapping):
        raise OptionError(f"{image}: must be a mapping with path, venv, env or command")
    unknown = sorted(str(key) for key in entry if key not in _KEYS)
    if unknown:
        raise OptionError(f"{image}: unknown {', '.join(unknown)} ({', '.join(_KEYS)})")
    if not any(entry.get(key) for key in _KEYS):
        raise OptionError(f"{image}: says nothing ({', '.join(_KEYS)})")
    folders = {}
    for key in ("path", "venv"):
        folders[key] = entry.get(key) or ""
        if not isinstance(folders[key], str):
            raise OptionError(f"{image}: {key}: must be a folder")
    return ImageEntry(**folders, env=_parse_env(image, entry), command=_parse_command(image, entry))


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
