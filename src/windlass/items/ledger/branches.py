"""Group of the items that another model processes again (``outputs.quality.branch.model``)."""

from __future__ import annotations

from collections.abc import Sequence

from windlass.items.ledger.changes import ItemGroup
from windlass.items.spec import BatchSpec, QualitySpec


def branch_name(quality: QualitySpec) -> str:
    return f"below {quality.min:g}: {quality.branch_model}"


def branch_of(batch: BatchSpec, groups: Sequence[ItemGroup]) -> int:
    """Return the number of the group; -1 if no other model is named. It is the last one."""
    quality = batch.outputs.quality
    if quality is None or not quality.branch_model or not groups:
        return -1
    last = groups[-1]
    return last.number if last.name == branch_name(quality) else -1
