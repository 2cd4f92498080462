"""What nodes say against a class of tasks, and which of it passes: a node that is cordoned or not ready is as it was
once somebody uncordons it, or its kubelet answers again."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from windlass.api.reasons import Reason
from windlass.spi.nodes import BoolArray, NodeView
from windlass.spi.objects import Needs
from windlass.spi.plugins import Finding, Findings

PASSING = (Reason.NODE_NOT_READY, Reason.NODE_UNSCHEDULABLE)
_SAYS = {
    "node.kubernetes.io/not-ready": Reason.NODE_NOT_READY,
    "node.kubernetes.io/unreachable": Reason.NODE_NOT_READY,
    "node.kubernetes.io/unschedulable": Reason.NODE_UNSCHEDULABLE,
}
"""Taint → what Kubernetes says by it."""
_KEY = re.compile("[^=:]*")
"""Of a taint in words."""


def found_by(plugins: Iterable[Findings], needs: Needs, view: NodeView) -> list[Finding]:
    """What plugins say against nodes. Where a node is cordoned or not ready, the taint that says so is no obstacle of
    its own."""
    found = [finding for plugin in plugins for finding in plugin.findings(needs, view)]
    states = {finding.code: finding.blocked for finding in found if finding.code in PASSING}
    return [_once(finding, states) for finding in found] if states else found


def _once(finding: Finding, states: dict[Reason, BoolArray]) -> Finding:
    if finding.code is not Reason.TAINT_NOT_TOLERATED:
        return finding
    key = _KEY.match(finding.detail)
    state = states.get(_SAYS.get(key[0] if key else "", finding.code))
    return finding if state is None else replace(finding, blocked=finding.blocked & ~state)


def returning(lasting: Iterable[Finding], size: int) -> tuple[tuple[Reason, BoolArray], ...]:
    """Of ``size`` nodes those that match but for what passes: first those that are only not ready, then those that are
    cordoned as well. ``lasting``: what the static policies say against them."""
    stays, states = np.zeros(size, dtype=np.bool_), dict.fromkeys(PASSING, np.zeros(size, dtype=np.bool_))
    for finding in lasting:
        if finding.code in states:
            states[finding.code] = states[finding.code] | finding.blocked
        else:
            stays |= finding.blocked
    unready, cordoned = (states[code] for code in PASSING)
    return (
        (Reason.NODE_NOT_READY, unready & ~cordoned & ~stays),
        (Reason.NODE_UNSCHEDULABLE, (unready | cordoned) & ~stays),
    )
