"""Conditions of pods, as patches of their status."""

from __future__ import annotations

from typing import Any

from windlass.api import views


def condition(pod: views.Pod | None, kind: str, status: str, reason: str, message: str) -> dict[str, Any]:
    """Return a condition without ``lastTransitionTime``.

    The caller adds the time only if it changes ``status``. ``observedGeneration`` is
    that of ``pod``, if its server counts generations (Kubernetes 1.33).
    """
    patch: dict[str, Any] = {"type": kind, "status": status, "reason": reason, "message": message}
    if pod is not None and pod.generation:
        patch["observedGeneration"] = pod.generation
    return patch
