"""Write of a job's record (:mod:`windlass.jobs.lifecycle_records`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windlass.api import annotations as names
from windlass.api.resources import Resource
from windlass.controllers.effects import Patch
from windlass.jobs.decision import LifecycleState
from windlass.jobs.lifecycle_records import record_text, stored_text


def record_patch(resource: Resource, obj: Mapping[str, Any], state: LifecycleState) -> Patch | None:
    """Return the write that records a state; ``None`` if it is recorded. It conflicts with any write since."""
    text = record_text(state)
    if text == stored_text(obj):
        return None
    metadata = obj["metadata"]
    return Patch(
        resource,
        metadata["name"],
        {"metadata": {"annotations": {names.JOB_RECORD: text or None}}},
        metadata.get("namespace"),
        resource_version=metadata.get("resourceVersion"),
    )
