"""Labels about devices that cannot be read, for requests that need what they state."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from windlass.api.reasons import Reason
from windlass.engine.nodes.table import NodeTable
from windlass.spi.objects import Needs
from windlass.spi.plugins import NodeBlocker

_COMPUTE = ".compute."
_VRAM = ".vram"
_MAX_NAMED = 3
"""Maximum number of nodes that are named."""


@dataclass(frozen=True, slots=True)
class UnreadableLabel:
    """Label of a node, with its value."""

    node: str
    label: str
    value: str

    @property
    def meaning(self) -> str:
        """Meaning that the value should have."""
        if _COMPUTE in self.label:
            return "a number of the compute capability"
        if self.label.endswith(_VRAM):
            return "the memory of one device, such as 64G"
        return "the memory of one device as a number of MiB, such as 81920"


def unreadable_labels(
    table: NodeTable, needs: Needs, rows: NDArray[np.int64], findings: Sequence[NodeBlocker]
) -> tuple[UnreadableLabel, ...]:
    """Return the unreadable labels that the needs depend on, of nodes without a suitable device.

    ``rows``: rows of the findings.
    """
    memory = any(need.memory_mib or need.memory_milli or need.min_memory_mib for need in needs.devices)
    compute = any(need.min_compute > (0, 0) for need in needs.devices)
    if not (memory or compute):
        return ()
    blocked = np.zeros(len(rows), dtype=np.bool_)
    for finding in findings:
        if finding.code in (Reason.NO_SUITABLE_DEVICE, Reason.DEVICE_SHARES_TAKEN):
            blocked |= finding.blocked
    found = []
    for row in rows[blocked].tolist():
        node = table.nodes[row]
        if node is None:
            continue
        for label, value in node.unreadable_labels:
            if compute if _COMPUTE in label else memory:
                found.append(UnreadableLabel(node.name, label, value))
    return tuple(sorted(found, key=lambda each: (each.node, each.label)))


def label_sentences(labels: Sequence[UnreadableLabel]) -> Iterator[str]:
    """Yield one sentence per label that cannot be read."""
    for each in labels[:_MAX_NAMED]:
        yield (f'The label {each.label} of node {each.node} is "{each.value}". It should be {each.meaning}.')
    if len(labels) > _MAX_NAMED:
        yield f"{len(labels) - _MAX_NAMED} more labels of nodes cannot be read."


def label_remedies(labels: Sequence[UnreadableLabel]) -> list[str]:
    """Return the commands that correct the labels."""
    return [
        f"Correct the label to {each.meaning}: kubectl label node {each.node} {each.label}=VALUE --overwrite"
        for each in labels[:_MAX_NAMED]
    ]
