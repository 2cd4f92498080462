"""What every scheduler that runs beside Windlass has to tell of itself, and where its build is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, ClassVar

import msgspec
from realkube import RealKube, missing, tools_folder
from scheduler_processes import Part

from windlass.api.resources import Resource
from windlass.client.blocking import BlockingClient
from windlass.client.transport import Request

Json = dict[str, Any]
BUILD = "tools/kubernetes/build.sh --peers"
GPU = "nvidia.com/gpu"
UNLIMITED = "10000"
"""Requests per second of a client that is not held back."""


class Peer(ABC):
    """A scheduler for one server. ``gpus``: how many the cluster has. ``limited``: its client keeps to the rates that
    its own installation says, instead of being free."""

    name: ClassVar[str]
    title: ClassVar[str]
    programs: ClassVar[tuple[str, ...]]
    scheduler_name: ClassVar[str]
    defined: ClassVar[str] = ""
    """Where its CustomResourceDefinitions are, if it brings any."""
    left_out: ClassVar[str] = ""
    """Of its installation: what no gang needs to be bound."""
    rates: ClassVar[str] = ""
    """Requests per second and burst where nobody says otherwise."""

    def __init__(self, kube: RealKube, gpus: int, *, limited: bool = False) -> None:
        self._kube, self._gpus, self._limited = kube, gpus, limited

    def install(self) -> None:  # noqa: B027
        """Its kinds, queues and configuration."""

    @abstractmethod
    def start(self) -> list[Part]:
        """Its processes."""

    def group(self, gang: str, pods: int, gpus: int) -> tuple[Resource, Json] | None:
        """What says that ``pods`` pods of ``gpus`` GPUs each belong together; None where nothing but the pods does."""
        return None

    def mark(self, pod: Json, gang: str, pods: int) -> None:
        """Make a pod one of its own, in a gang."""
        pod["spec"]["schedulerName"] = self.scheduler_name

    def _create(self, path: str, body: Json) -> None:
        raw = msgspec.json.encode(body)
        with BlockingClient(self._kube.connection) as client:
            client.call(Request("POST", path, "", {"content-type": "application/json"}, raw))


def program(name: str) -> str:
    return str(tools_folder() / name)


def lacking(kind: type[Peer]) -> list[str]:
    """What of a peer is not built."""
    there = not kind.defined or definitions(kind.defined).is_dir()
    return missing(kind.programs) + ([] if there else [f"the definitions of {kind.defined}"])


def definitions(name: str) -> Path:
    """The CustomResourceDefinitions of a peer, which its build puts beside its program."""
    return tools_folder().parent / "crds" / name
