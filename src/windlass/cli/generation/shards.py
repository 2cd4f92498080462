"""Workers of several pods of an AIGCJob (``spec.shards``), in words."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_FEWER_PODS = re.compile(r"Ask for at most (\d+) pods at once(?:, or (.*))?")
"""Remedy of the scheduler for a gang that exceeds the cluster."""


def shard_workers(obj: Mapping[str, Any]) -> str:
    """Return the workers that run, such as ``2 of 3 workers of 4 pods``; empty if workers have one pod."""
    workers = (obj.get("status") or {}).get("workers")
    if not isinstance(workers, Mapping) or not workers.get("shards") or not workers.get("desired"):
        return ""
    return (
        f"{workers.get('running', 0)} of {of_pods(int(workers.get('desired') or 0), int(workers['shards']))}"
    )


def of_pods(workers: int, shards: int) -> str:
    """Return a number of workers of several pods, such as ``3 workers of 4 pods``."""
    return f"{workers} {'worker' if workers == 1 else 'workers'} of {shards} pods"


def named_shards(obj: Mapping[str, Any], remedy: str) -> str:
    """Return a remedy for pods, with the field and the flag that set the pods of a worker."""
    shards = int((obj.get("spec") or {}).get("shards") or 1)
    found = _FEWER_PODS.match(remedy)
    if obj.get("kind") != "AIGCJob" or found is None or int(found[1]) >= shards:
        return remedy
    return (
        f"Set spec.shards (windlass generate --shards) to at most {found[1]}: "
        f"a worker of {shards} pods starts as a whole. Or {found[2] or 'add nodes.'}"
    )
