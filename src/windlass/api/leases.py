"""Leases: what they tell of clocks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

CLOCK_SECONDS = 10.0
"""So much may a clock differ from the API server's: more is told."""


def renews(field: Mapping[str, Any]) -> bool:
    """Whether an entry of a lease's managedFields is of who renews it, and says when."""
    return bool(field.get("time")) and "f:renewTime" in (field.get("fieldsV1") or {}).get("f:spec", {})
