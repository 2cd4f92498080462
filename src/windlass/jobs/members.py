"""Pods of a job, as the life cycle sees them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from windlass.api import annotations as names

if TYPE_CHECKING:
    from windlass.api.views import ContainerExit, Pod

DISRUPTION_REASONS = frozenset({"Evicted", "Preempting", "Preempted", "NodeLost", "NodeShutdown", "Shutdown"})
"""Reasons of a pod's status that are not the program's fault."""
OUT_OF_MEMORY = "OOMKilled"
NODE_REASONS = frozenset({"NodeLost", "NodeShutdown", "Shutdown"})


class LossCause(StrEnum):
    """Cause of a replacement. Each cause has a counter of its own."""

    PROGRAM = "program"
    NODE = "node"
    PREEMPTION = "preemption"
    SIGNAL = "signal"


@dataclass(frozen=True, slots=True)
class RolePod:
    """Pod of a job.

    ``role``: name of its role, as in the spec; empty if the job has no such role.
    ``exit_code``: of its main container; ``None`` while that has not terminated.
    ``restarts``: restarts of its containers by the node.
    ``node``: empty while it has none.
    ``world``: its annotation ``windlass.dev/world``.
    ``disrupted``: the end was not caused by the program (condition ``DisruptionTarget``
        or a reason of :data:`DISRUPTION_REASONS`).
    ``killed``: a signal of unknown origin ended it, which the kind takes for a disruption.
    ``message``: last line of the termination message of its main container, if that failed.
    ``ended``: end of its last container in Unix seconds; 0.0: unknown.
    ``unprepared``: why its node does not start it, as far as its status tells.
    """

    name: str
    uid: str
    role: str
    index: int
    phase: str
    exit_code: int | None = None
    restarts: int = 0
    deleting: bool = False
    disrupted: bool = False
    killed: bool = False
    reason: str = ""
    ready: bool = False
    node: str = ""
    world: str = ""
    ended: float = 0.0
    message: str = ""
    unprepared: str = ""

    @property
    def finished(self) -> bool:
        return self.phase in ("Succeeded", "Failed")

    @property
    def running(self) -> bool:
        return self.phase == "Running" and not self.deleting

    @property
    def succeeded(self) -> bool:
        """Return whether its work is done. A pod that ends with 0 because it is evicted has only saved it."""
        return self.phase == "Succeeded" and not (self.deleting and self.disrupted)

    @property
    def failed(self) -> bool:
        return self.phase == "Failed"

    @property
    def loss_cause(self) -> LossCause:
        """Return the counter for the replacement of this pod."""
        if self.reason in NODE_REASONS:
            return LossCause.NODE
        if self.killed:
            return LossCause.SIGNAL
        return LossCause.PREEMPTION if self.disrupted else LossCause.PROGRAM


def job_pods(
    pods: Iterable[Pod], role_label: str, index_label: str, roles: dict[str, str], main: dict[str, str]
) -> tuple[RolePod, ...]:
    """Return the pods of a job by their labels.

    ``roles``: value of ``role_label`` → name of the role. ``main``: name of the role →
    name of the container of the exit code that counts. In a pod without a container of that
    name, another one counts.
    """
    return tuple(_job_pod(pod, role_label, index_label, roles, main) for pod in pods)


def _job_pod(
    pod: Pod, role_label: str, index_label: str, roles: dict[str, str], main: dict[str, str]
) -> RolePod:
    role = roles.get(pod.labels.get(role_label, ""), "")
    index = pod.labels.get(index_label, "")
    ended = _main_exit(pod, main.get(role, ""))
    return RolePod(
        name=pod.name,
        uid=pod.uid,
        role=role,
        index=int(index) if index.isascii() and index.isdecimal() else -1,
        phase=pod.phase or "Pending",
        exit_code=None if ended is None else ended.exit_code,
        restarts=pod.restarts,
        deleting=pod.deleting,
        disrupted=pod.disrupted or pod.reason in DISRUPTION_REASONS,
        reason=pod.reason,
        ready=pod.ready,
        node=pod.node_name,
        world=pod.annotations.get(names.WORLD) or "",
        ended=pod.ended,
        message="" if ended is None else ended.message,
        unprepared=pod.unprepared,
    )


def _main_exit(pod: Pod, main: str) -> ContainerExit | None:
    ended = {found.container: found for found in pod.exits}
    return ended.get(main) or next(iter(ended.values()), None)
