"""Observed surroundings of a job."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass
from typing import Any

from windlass.controllers.vcjob.members import Members
from windlass.controllers.vcjob.spec import DEFAULT_SCHEDULER
from windlass.kits.ssh_keys import SshKeyPair

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class JobSnapshot:
    """Observed surroundings of a job.

    ``pods``: pods that the job controls.
    ``group``: PodGroup of its name.
    ``objects``: existing ConfigMaps, Secrets and Services by (kind, name), of any owner.
    ``claims``: names of existing PersistentVolumeClaims.
    ``commands``: Commands for the job, the oldest first.
    ``priorities``: PriorityClass → value.
    ``now``: Unix seconds.
    ``scheduler``: default scheduler of pods.
    ``keys``: new key pair, if the job needs one and its Secret is missing.
    """

    pods: Members
    group: Json | None
    objects: Mapping[tuple[str, str], Json]
    claims: Container[str]
    commands: tuple[Json, ...]
    priorities: Mapping[str, int]
    now: float
    scheduler: str = DEFAULT_SCHEDULER
    keys: SshKeyPair | None = None
