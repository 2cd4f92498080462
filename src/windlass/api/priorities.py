"""Priorities with a meaning beyond their order."""

from __future__ import annotations

HIGH_PRIORITY = 10_000
"""Minimum priority of work that leaves a slow node: that of the class ``high-priority``."""
