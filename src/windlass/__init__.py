"""Windlass: one control plane that gang-schedules AI work over GPUs, on one box or on Kubernetes."""

from __future__ import annotations

__version__ = "0.1.0"
