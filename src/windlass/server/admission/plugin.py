"""Interface of admission plugins: the review, its context and options."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from windlass.api.resources import Resource
from windlass.api.service_network import SERVICE_NETWORK
from windlass.kits.clock import Clock
from windlass.kits.rng import Random
from windlass.server.admission.objects import Objects

CREATE = "CREATE"
UPDATE = "UPDATE"
DELETE = "DELETE"


class Caller(Protocol):
    """The part of the request's context that plugins read."""

    @property
    def namespace(self) -> str: ...

    @property
    def name(self) -> str: ...

    @property
    def subresource(self) -> str: ...

    @property
    def dry_run(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class AdmissionOptions:
    """Options of the server for admission."""

    default_image: str = "windlass.dev/default:latest"
    """Image of containers without one. In single-node mode, it names the placeholder process."""
    service_cidr: str = SERVICE_NETWORK
    node_ports: tuple[int, int] = (30000, 32767)
    max_queue_depth: int = 5
    """Maximum number of levels below ``root``, as ``--max-queue-depth`` of Volcano."""


class Review(msgspec.Struct):
    """Object under review. Plugins change ``object`` in place and append to ``warnings``."""

    operation: str
    resource: Resource
    object: dict[str, Any]
    old: dict[str, Any] | None
    caller: Caller
    objects: Objects
    clock: Clock
    rng: Random
    options: AdmissionOptions
    warnings: list[str] = msgspec.field(default_factory=list)

    @property
    def creating(self) -> bool:
        return self.operation == CREATE

    @property
    def name(self) -> str:
        return self.object.get("metadata", {}).get("name") or self.caller.name

    @property
    def namespace(self) -> str:
        return self.caller.namespace if self.resource.namespaced else ""

    @property
    def main(self) -> bool:
        """True if the object itself is written, rather than a subresource."""
        return not self.caller.subresource

    @property
    def changes_spec(self) -> bool:
        """True if the object is new, or has another spec than before."""
        return self.creating or (self.old or {}).get("spec") != self.object.get("spec")

    def warn(self, text: str) -> None:
        if text not in self.warnings:
            self.warnings.append(text)


class AdmissionPlugin(Protocol):
    """Checks or changes a review. Raises StatusError to reject the object."""

    def __call__(self, review: Review) -> None: ...
