"""Conditions of pods, as patches of their status."""

from __future__ import annotations

from typing import Any

from windlass.api import views


def condition(pod: views.Pod | None, kind: str, status: str, reason: str, message: str) -> dict[str, Any]:
    """Without ``lastTransitionTime``, which only who changes ``status`` writes. ``observedGeneration`` is that of the
    ``pod`` that it is said of, where its server counts them (Kubernetes 1.33)."""
    made: dict[str, Any] = {"type": kind, "status": status, "reason": reason, "message": message}
    if pod is not None and pod.generation:
        made["observedGeneration"] = pod.generation
    return made
