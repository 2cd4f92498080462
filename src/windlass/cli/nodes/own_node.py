"""The node of this machine, as the API server knows it."""

from __future__ import annotations

from windlass.api.errors import WindlassError
from windlass.api.resources import NODES
from windlass.cli.errors import unless_forbidden
from windlass.cli.invocation import Invocation


def deleted_node(invocation: Invocation) -> WindlassError | None:
    """Return the error if the node of this machine was deleted; ``None`` for clusters.

    The node agent registers it again when its Lease is gone, or with its next full status.
    """
    if invocation.target.remote:
        return None
    record = invocation.target.state.read_supervisor() or {}
    name = record.get("node")
    if not name or not record.get("ready"):
        return None
    if unless_forbidden(lambda: invocation.client.find(NODES, name), {}) is not None:
        return None
    return WindlassError(
        "WL-NODE-410",
        f'the node "{name}" of this machine was deleted',
        evidence="the node agent registers it again within 5 minutes; until then no process runs on this machine",
        remedies=("windlass node ls", "windlass down && windlass up --detach   (at once; ends running pods)"),
    )
