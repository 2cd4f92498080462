"""Problems of the tree of queues.

A real cluster has no webhook that protects queues. They can be deleted while jobs run
in them or queues are below them, and may guarantee more than the cluster has.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from windlass.api import quantities
from windlass.api.resources import NODES
from windlass.cli import resources
from windlass.cli.errors import unless_forbidden
from windlass.cli.invocation import Invocation
from windlass.cli.queues.queues import VolcanoQueueShare, ancestors, gather
from windlass.cli.text import natural_key, plural, resource_text


class QueueProblem(NamedTuple):
    """One problem.

    ``remedy``: the command that solves it, or "" if there are several ways.
    """

    text: str
    remedy: str = ""

    def __str__(self) -> str:
        return f"{self.text}: {self.remedy}" if self.remedy else self.text


def check(invocation: Invocation) -> Iterator[QueueProblem]:
    """Yield the problems of all queues. Raises ``StatusError`` and ``Unreachable``."""
    missing: dict[str, VolcanoQueueShare] = {}
    shares = gather(invocation, missing)
    yield from problems_of(shares, missing, cluster_capacity(invocation, shares))


def cluster_capacity(invocation: Invocation, shares: Sequence[VolcanoQueueShare]) -> resources.Vector | None:
    """Return what all nodes have; ``None`` if no queue has a guarantee, or nodes are forbidden."""
    if not any(share.amounts.get("guarantee") for share in shares):
        return None
    nodes = unless_forbidden(lambda: invocation.client.list(NODES).items, None)
    return None if nodes is None else resources.total(map(resources.allocatable, nodes))


def problems_of(
    shares: Sequence[VolcanoQueueShare],
    missing: Mapping[str, VolcanoQueueShare],
    capacity: resources.Vector | None,
) -> Iterator[QueueProblem]:
    """Yield the problems of queues.

    ``missing``: running and pending jobs by the names of queues that do not exist.
    """
    known = {share.key: share for share in shares}
    for share in shares:
        if share.parent and share.parent not in known:
            text = f"its parent {share.parent_name} does not exist, so that no new job starts in it"
            yield QueueProblem(f"queue {share.name}: {text}", f"windlass queue create {share.parent_name}")
        elif any(ancestor is share for ancestor in ancestors(share, known)):
            yield QueueProblem(f"queue {share.name}: its parent {share.parent_name} is also its descendant")
    for name, share in sorted(missing.items()):
        runs = (
            f"running {plural(share.running, 'job')} with {share.gpus('allocated')} GPUs"
            if share.running
            else ""
        )
        waits = f"waiting {plural(share.pending, 'job')}" if share.pending else ""
        held = ", ".join(filter(None, (runs, waits)))
        yield QueueProblem(
            f"queue {name} does not exist, but jobs use it ({held})", f"windlass queue create {name}"
        )
    if capacity is not None:
        yield from unmet_guarantees(shares, capacity)


def unmet_guarantees(
    shares: Sequence[VolcanoQueueShare], capacity: resources.Vector
) -> Iterator[QueueProblem]:
    """Yield resources of which more is guaranteed than all nodes have.

    The guarantees of children are part of that of their parent.
    """
    below: dict[str, list[VolcanoQueueShare]] = {}
    known = {share.key for share in shares}
    for share in shares:
        below.setdefault(share.parent if share.parent in known else "", []).append(share)

    def guarantees_below(parent: str, resource: str) -> list[tuple[VolcanoQueueShare, int]]:
        """Return the topmost queues below ``parent`` with a guarantee, and its amount."""
        found = []
        for share in below.get(parent, ()):
            own, inner = (
                share.amounts.get("guarantee", {}).get(resource, 0),
                guarantees_below(share.key, resource),
            )
            together = sum(units for _, units in inner)
            found += [(share, own)] if own >= together and own else inner
        return found

    names = {name for share in shares for name in share.amounts.get("guarantee", {}) if "@" not in name}
    for name in sorted(names):
        guarantees = sorted(
            guarantees_below("", name), key=lambda pair: (-pair[1], natural_key(pair[0].name))
        )
        units = sum(amount for _, amount in guarantees)
        if units <= capacity.get(name, 0):
            continue
        amounts = ", ".join(
            f"{share.name} {quantities.from_units(name, amount)}" for share, amount in guarantees
        )
        have = resource_text(name, quantities.from_units(name, capacity.get(name, 0)))
        total = resource_text(name, quantities.from_units(name, units))
        yield QueueProblem(
            f"guarantees of queues add up to {total} ({amounts}), but "
            f"all nodes have {have}; the unused part of a guarantee stays reserved",
            f"windlass queue set {guarantees[0][0].name} guarantee.{name}=AMOUNT",
        )
