"""One kind of job: how commands read its objects."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from windlass.api.resources import Resource

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class JobRole:
    """Equal pods of a job.

    ``replicas``: number of pods. ``size``: pods of one replica, if it has several.
    ``reserved``: its pods only have a reservation, so that they hold and request nothing yet.
    """

    name: str
    replicas: int
    template: Mapping[str, Any]
    size: int = 1
    reserved: bool = False


@dataclass(frozen=True, slots=True)
class JobKind:
    """One kind of job.

    ``words``: the kind in front of a name on the command line (``vcjob/train``).
    ``phase``: in the words of Volcano: Pending, Running, Completed, Failed and so on.
    ``ended``: end in Unix seconds, 0 if unknown.
    ``group``: name of the PodGroup.
    ``selector``: label selector of the pods, by the name of the job. ``selects``: by the
    object, if the name does not tell.
    ``drivers``: pods that are no part of the gang.
    """

    resource: Resource
    words: tuple[str, ...]
    phase: Callable[[Object], str]
    roles: Callable[[Object], list[JobRole]]
    queue: Callable[[Object], str]
    ended: Callable[[Object], float]
    succeeded: Callable[[Object], int]
    group: Callable[[Object], str]
    selector: Callable[[str], str]
    selects: Callable[[Object], str] | None = None
    drivers: int = 0

    def pods_of(self, obj: Object) -> str:
        """Return the label selector of the pods of a job."""
        return self.selects(obj) if self.selects is not None else self.selector(obj["metadata"]["name"])
