"""Leases: what they tell of clocks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

CLOCK_SECONDS = 10.0
"""Maximum difference (seconds) from the API server's clock that is not reported."""


def renews(field: Mapping[str, Any]) -> bool:
    """Return whether an entry of a lease's managedFields is that of its holder and has a time."""
    return bool(field.get("time")) and "f:renewTime" in (field.get("fieldsV1") or {}).get("f:spec", {})
