"""Container of a pod as its state machine knows it, with the back-off between its attempts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from windlass.node.lifecycle.events import Exit
from windlass.node.lifecycle.probe_results import Health
from windlass.node.lifecycle.restart_rules import ExitRestartRule
from windlass.node.lifecycle.transitions import ContainerStep

BACKOFF_FIRST_SECONDS = 10.0
BACKOFF_CAP_SECONDS = 300.0
HEALTHY_SECONDS = 600.0
"""Seconds of run time after which the back-off is reset (as in the kubelet: twice the cap)."""


@dataclass(slots=True)
class Container:
    """Container of a pod.

    ``role``: ``init``, ``sidecar`` (an init container with restartPolicy Always), ``main`` or
    ``ephemeral``.
    """

    name: str
    role: str
    policy: str
    image: str = ""
    step: ContainerStep = ContainerStep.WAITING
    attempt: int = 0
    started_at: float = 0.0
    started_once: bool = False
    waiting_reason: str = ""
    waiting_message: str = ""
    exit: Exit | None = None
    """End of the current attempt if it is done or backing off, else None."""
    last_exit: Exit | None = None
    """End of the previous attempt."""
    failures: int = 0
    """Restarts in a row since the back-off was reset."""
    adopted: bool = False
    """True if an earlier agent started the current attempt and reported its start."""
    post_start_running: bool = False
    """True while the command and its postStart hook run."""
    rules: Sequence[ExitRestartRule] = ()
    killed: bool = False
    """True if a failed probe kills it. It is then restarted unless its policy is ``Never``."""
    health: Health = field(default_factory=Health)

    @property
    def succeeded(self) -> bool:
        return self.step is ContainerStep.DONE and self.exit is not None and self.exit.code == 0


def backoff_after(container: Container, end: Exit) -> float:
    """Count a failure and return the back-off: none before the first restart, then 10 s doubling to 5 min.

    The formula is the kubelet's.
    """
    ran = end.finished_at - container.started_at if container.started_at else 0.0
    if ran >= HEALTHY_SECONDS:
        container.failures = 0
    container.failures += 1
    if container.failures == 1:
        return 0.0
    return min(BACKOFF_CAP_SECONDS, BACKOFF_FIRST_SECONDS * 2.0 ** (container.failures - 2))


def last_end(container: Container) -> float:
    """Return the end of the previous attempt. The kubelet bases the back-off of killed containers on it."""
    return container.last_exit.finished_at if container.last_exit is not None else 0.0


def duration(seconds: float) -> str:
    """Format a duration as Go does: ``10s``, ``2m40s``."""
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}m{rest}s" if minutes else f"{rest}s"
