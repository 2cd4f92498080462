"""First status of new objects."""

from __future__ import annotations

from random import Random
from typing import Any

from windlass.api import resources
from windlass.server.object_meta import prepare_create


def test_a_new_pod_group_is_pending() -> None:
    """F25: `kubectl get podgroup -w` begins with Pending, as a client's own status is not taken over."""
    made: dict[str, Any] = {"metadata": {"name": "g"}, "spec": {}, "status": {"phase": "Running"}}
    prepare_create(resources.POD_GROUPS, made, Random(0), 0.0)
    assert made["status"] == {"phase": "Pending"}
