"""Blockers of nodes for a task class, and those that pass.

A cordoned node returns when it is uncordoned, and a node that is not ready when its
kubelet responds again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from windlass.api.reasons import Reason
from windlass.spi.nodes import BoolArray, NodeView
from windlass.spi.objects import Needs
from windlass.spi.plugins import NodeBlocker, NodeBlockers

TRANSIENT = (Reason.NODE_NOT_READY, Reason.NODE_UNSCHEDULABLE)
_TAINT_REASONS = {
    "node.kubernetes.io/not-ready": Reason.NODE_NOT_READY,
    "node.kubernetes.io/unreachable": Reason.NODE_NOT_READY,
    "node.kubernetes.io/unschedulable": Reason.NODE_UNSCHEDULABLE,
}
"""Taint → the state of the node that Kubernetes expresses by it."""
_KEY = re.compile("[^=:]*")
"""Key of a taint in a message."""


def blockers_by(plugins: Iterable[NodeBlockers], needs: Needs, view: NodeView) -> list[NodeBlocker]:
    """Return the blockers that plugins report.

    The taint of a cordoned or unready node is not reported in addition.
    """
    blockers = [blocker for plugin in plugins for blocker in plugin.blockers(needs, view)]
    states = {blocker.code: blocker.blocked for blocker in blockers if blocker.code in TRANSIENT}
    return [_without_duplicate(blocker, states) for blocker in blockers] if states else blockers


def _without_duplicate(blocker: NodeBlocker, states: dict[Reason, BoolArray]) -> NodeBlocker:
    if blocker.code is not Reason.TAINT_NOT_TOLERATED:
        return blocker
    key = _KEY.match(blocker.detail)
    state = states.get(_TAINT_REASONS.get(key[0] if key else "", blocker.code))
    return blocker if state is None else replace(blocker, blocked=blocker.blocked & ~state)


def recoverable(permanent: Iterable[NodeBlocker], size: int) -> tuple[tuple[Reason, BoolArray], ...]:
    """Return masks of the nodes that would match without transient blockers.

    First nodes that are only not ready, then those that are cordoned as well.
    ``permanent``: blockers of the static plugins.
    ``size``: number of nodes.
    """
    is_permanent, states = (
        np.zeros(size, dtype=np.bool_),
        dict.fromkeys(TRANSIENT, np.zeros(size, dtype=np.bool_)),
    )
    for blocker in permanent:
        if blocker.code in states:
            states[blocker.code] = states[blocker.code] | blocker.blocked
        else:
            is_permanent |= blocker.blocked
    unready, cordoned = (states[code] for code in TRANSIENT)
    return (
        (Reason.NODE_NOT_READY, unready & ~cordoned & ~is_permanent),
        (Reason.NODE_UNSCHEDULABLE, (unready | cordoned) & ~is_permanent),
    )
