"""Form of a job between two kinds."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]


@dataclass(slots=True)
class PortableRole:
    """Equal pods. ``minimum``: of the gang; ``restart``: ``Never``, ``OnFailure``, ``Always`` or ``ExitCode``."""

    name: str
    replicas: int
    template: Json
    restart: str = "Never"
    minimum: int | None = None

    @property
    def pod(self) -> Json:
        return self.template.setdefault("spec", {})


@dataclass(slots=True)
class PortableJob:
    """A job without its kind. Times are seconds; ``None``: not set.

    ``leader``: role with the deciding pod: the job succeeds when it does. Empty: when all pods do.
    ``restarts``: restarts of the whole job after a failure. ``backoff``: restarts of pods.
    ``provided``: environment variables that the source kind sets.
    ``lost``: what the conversion cannot carry over, as ``field: why``.
    """

    name: str
    namespace: str
    labels: Json
    annotations: Json
    roles: list[PortableRole]
    provided: frozenset[str]
    leader: str = ""
    queue: str = ""
    priority_class: str = ""
    min_available: int | None = None
    backoff: int | None = None
    restarts: int = 0
    deadline: int | None = None
    ttl: int | None = None
    suspend: bool = False
    lost: list[str] = field(default_factory=list)

    @property
    def pods(self) -> int:
        return sum(role.replicas for role in self.roles)

    def lose(self, path: str, why: str) -> None:
        self.lost.append(f"{path}: {why}")


class Fields:
    """Copy of a mapping from which known fields are taken; what remains is lost."""

    def __init__(self, path: str, body: Json | None) -> None:
        self.path = path
        self._body = copy.deepcopy(dict(body or {}))

    def take(self, name: str, default: Any = None) -> Any:
        found = self._body.pop(name, None)
        return default if found is None else found

    def leave(self, job: PortableJob) -> None:
        """Report what was not taken."""
        for name, value in self._body.items():
            if value not in (None, {}, [], ""):
                job.lose(f"{self.path}.{name}", "the target kind has no such field")
