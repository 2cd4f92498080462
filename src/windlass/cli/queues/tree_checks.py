"""What is wrong with the tree of queues: no webhook of a real cluster keeps anybody from deleting a queue in which
work runs, or one that has queues below it, or from guaranteeing more than there is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from windlass.api import quantities
from windlass.api.resources import NODES
from windlass.cli import resources
from windlass.cli.errors import unless_forbidden
from windlass.cli.invocation import Invocation
from windlass.cli.queues.queues import VolcanoQueueShare, above, gather
from windlass.cli.text import natural_key, plural, resource_text


class Gap(NamedTuple):
    """``remedy``: the command that mends it, or "" where there are several ways."""

    words: str
    remedy: str = ""

    def __str__(self) -> str:
        return f"{self.words}: {self.remedy}" if self.remedy else self.words


def check(invocation: Invocation) -> Iterator[Gap]:
    """Raises ``StatusError``, ``Unreachable``."""
    nowhere: dict[str, VolcanoQueueShare] = {}
    shares = gather(invocation, nowhere)
    yield from gaps(shares, nowhere, offered(invocation, shares))


def offered(invocation: Invocation, shares: Sequence[VolcanoQueueShare]) -> resources.Vector | None:
    """What all nodes have together; ``None`` where nothing is guaranteed, or this user may not see nodes."""
    if not any(share.amounts.get("guarantee") for share in shares):
        return None
    nodes = unless_forbidden(lambda: invocation.client.list(NODES).items, None)
    return None if nodes is None else resources.total(map(resources.allocatable, nodes))


def gaps(
    shares: Sequence[VolcanoQueueShare],
    nowhere: Mapping[str, VolcanoQueueShare],
    offered: resources.Vector | None,
) -> Iterator[Gap]:
    """``nowhere``: what is held and waits in queues that do not exist, by their names."""
    known = {share.key: share for share in shares}
    for share in shares:
        if share.parent and share.parent not in known:
            words = f"the queue above it, {share.parent_name}, does not exist; nothing new starts in it"
            yield Gap(f"queue {share.name}: {words}", f"windlass queue create {share.parent_name}")
        elif any(one is share for one in above(share, known)):
            yield Gap(f"queue {share.name}: the queue above it, {share.parent_name}, is below it as well")
    for name, share in sorted(nowhere.items()):
        runs = (
            f"running {plural(share.running, 'job')} with {share.gpus('allocated')} GPUs"
            if share.running
            else ""
        )
        waits = f"waiting {plural(share.pending, 'job')}" if share.pending else ""
        held = ", ".join(filter(None, (runs, waits)))
        yield Gap(f"queue {name} does not exist; jobs name it ({held})", f"windlass queue create {name}")
    if offered is not None:
        yield from promised_in_vain(shares, offered)


def promised_in_vain(shares: Sequence[VolcanoQueueShare], offered: resources.Vector) -> Iterator[Gap]:
    """Of what more is guaranteed than all nodes have, ``offered``. What queues are guaranteed is of what the one above
    them is."""
    below: dict[str, list[VolcanoQueueShare]] = {}
    known = {share.key for share in shares}
    for share in shares:
        below.setdefault(share.parent if share.parent in known else "", []).append(share)

    def of(parent: str, resource: str) -> list[tuple[VolcanoQueueShare, int]]:
        """The topmost queues below one that are guaranteed some of it, with how much."""
        found = []
        for share in below.get(parent, ()):
            own, inner = share.amounts.get("guarantee", {}).get(resource, 0), of(share.key, resource)
            together = sum(units for _, units in inner)
            found += [(share, own)] if own >= together and own else inner
        return found

    names = {name for share in shares for name in share.amounts.get("guarantee", {}) if "@" not in name}
    for name in sorted(names):
        promised = sorted(of("", name), key=lambda pair: (-pair[1], natural_key(pair[0].name)))
        units = sum(amount for _, amount in promised)
        if units <= offered.get(name, 0):
            continue
        told = ", ".join(f"{share.name} {quantities.from_units(name, amount)}" for share, amount in promised)
        have = resource_text(name, quantities.from_units(name, offered.get(name, 0)))
        yield Gap(
            f"queues are guaranteed {resource_text(name, quantities.from_units(name, units))} together ({told}), and "
            f"all nodes have {have}; what one does not hold of its guarantee stays free for it",
            f"windlass queue set {promised[0][0].name} guarantee.{name}=AMOUNT",
        )
