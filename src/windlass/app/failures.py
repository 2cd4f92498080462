"""Failures that a retry cannot solve, handed from a process to the supervisor by a file."""

from __future__ import annotations

import json
from pathlib import Path

from windlass.api.errors import WindlassError
from windlass.kits.state import StateFolder

USELESS_TO_RETRY = 78
"""Exit status (``EX_CONFIG``) of a child that reported why it cannot work; see
``children.run_child``."""


def failure_file(state: StateFolder, role: str) -> Path:
    return state.logs / f"{role}.failure.json"


def read_failure(state: StateFolder, role: str) -> WindlassError | None:
    """Return the failure that a child reported; ``None`` without one."""
    try:
        told = json.loads(failure_file(state, role).read_bytes())
        return WindlassError(
            told["code"],
            told["message"],
            evidence=told.get("evidence", ""),
            remedies=told.get("remedies", ()),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None
