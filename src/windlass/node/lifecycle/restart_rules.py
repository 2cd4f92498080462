"""Restart rules of containers, and the restart of all containers of a pod in place. Pure.

``restartPolicyRules`` are those of Kubernetes 1.34 (``Restart``) and 1.35
(``RestartAllContainers``). The pods of a JobSet with ``restartStrategy: InPlaceRestart``
restart together (JobSet's KEP-467): the main containers of a pod start once all pods
have reached the same attempt.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from windlass.api import annotations as names
from windlass.api.fields import jobset

RESTART, RESTART_ALL = "Restart", "RestartAllContainers"


@dataclass(frozen=True, slots=True)
class ExitRestartRule:
    """Rule of a container. ``inside``: it matches these exit codes, or else all others."""

    action: str
    inside: bool
    codes: frozenset[int]


@dataclass(slots=True)
class RestartTogether:
    """State of the restart of all containers of a pod.

    ``stopping``: they are being stopped, or wait for the end of ``wait_seconds``.
    ``ended``: container → attempt that the restart ends.
    ``joined``: the pod has reached the barrier before its main containers. ``lifted``: they may start.
    ``reported``: restart attempt that was written on the pod for this start.
    """

    stopping: bool = False
    ended: Mapping[str, int] = field(default_factory=dict)
    wait_seconds: float = 0.0
    backing_off: bool = False
    joined: bool = False
    lifted: bool = False
    reported: int | None = None


def rules_of(container: Mapping[str, Any]) -> tuple[ExitRestartRule, ...]:
    """Return the rules of a container in their order."""
    return tuple(
        ExitRestartRule(
            str(rule.get("action") or ""),
            (rule.get("exitCodes") or {}).get("operator") == "In",
            frozenset((rule.get("exitCodes") or {}).get("values") or ()),
        )
        for rule in container.get("restartPolicyRules") or ()
    )


def action_of(rules: Sequence[ExitRestartRule], code: int) -> str:
    """Return the action of the first rule that matches an exit code; empty if none does."""
    return next((rule.action for rule in rules if (code in rule.codes) is rule.inside), "")


def job_set_of(pod: Mapping[str, Any]) -> str:
    """Return the JobSet with which a pod restarts in place; empty if the pod takes no part in this."""
    return (pod["metadata"].get("annotations") or {}).get(names.RESTART_IN_PLACE) or ""


def attempt_of(pod: Mapping[str, Any]) -> int | None:
    """Return the restart attempt that a pod has reached."""
    text = (pod["metadata"].get("annotations") or {}).get(jobset.IN_PLACE_ATTEMPT) or ""
    return int(text) if text.isdecimal() else None


def is_agent(container: Mapping[str, Any]) -> bool:
    """Return whether a container is JobSet's agent for restarts in place, which a node of Windlass replaces."""
    image = str(container.get("image") or "").partition("@")[0].rpartition("/")[2].partition(":")[0]
    bare = not container.get("command") and not container.get("args")
    return image == jobset.IN_PLACE_AGENT or (bare and container.get("name") == jobset.IN_PLACE_AGENT)


def worker_command(container: Mapping[str, Any], values: Mapping[str, str]) -> list[str]:
    """Return the command of JobSet's agent that wraps the main container; empty if it wraps none.

    ``values``: environment of the container.
    """
    text = values.get("WORKER_COMMAND")
    return [values.get("SHELL") or "bash", "-c", text] if text and is_agent(container) else []
