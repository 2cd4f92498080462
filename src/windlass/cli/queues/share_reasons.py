"""Reasons of fair shares, and loans between queues, below the tree of queues."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from windlass.api import quantities
from windlass.cli.queues.queues import KaiQueueShare, VolcanoQueueShare


def reasons(shares: Sequence[VolcanoQueueShare], resource: str = "") -> Iterator[str]:
    """Yield lines about one resource; none if the scheduler has reported no share."""
    resource = resource or _resource(shares)
    shown = [share for share in shares if _has_reason(share, resource)]
    if not shown:
        return
    yield ""
    yield f"Fair shares of {resource}:"
    width = max(len(share.name) for share in shown)
    for share in shown:
        yield f"  {share.name:<{width}}  {share.why.get(resource) or '0: it requests nothing'}"
        if loan := _loan(share, resource):
            yield f"  {'':<{width}}  {loan}"
    if split := _split(shares, resource):
        yield ""
        yield split


def _resource(shares: Sequence[VolcanoQueueShare]) -> str:
    """Return the device resource of most queues, in a tie that with larger shares; else CPU."""
    counts: dict[str, int] = {}
    fair: dict[str, int] = {}
    for share in shares:
        for name in (*share.why, *share.borrowed, *share.amounts["deserved"]):
            if quantities.is_device(name):
                counts[name] = counts.get(name, 0) + 1
                fair[name] = fair.get(name, 0) + share.amounts["fair_share"].get(name, 0)
    return min(counts, key=lambda name: (-counts[name], -fair[name], name)) if counts else "cpu"


def _has_reason(share: VolcanoQueueShare, resource: str) -> bool:
    return bool(share.record) and (resource in share.why or resource in share.borrowed)


def _loan(share: VolcanoQueueShare, resource: str) -> str:
    lenders = share.borrowed.get(resource)
    if not lenders:
        return ""
    total = quantities.from_units(resource, sum(lenders.values()))
    parts = [f"{quantities.from_units(resource, units)} of {lender}" for lender, units in lenders.items()]
    return f"borrows {total}: {', '.join(parts)}"


def _split(shares: Sequence[VolcanoQueueShare], resource: str) -> str:
    """Return how the roots of both APIs share the cluster; empty if there is only one API."""
    roots = [share for share in shares if not share.parent]
    kai = [share for share in roots if isinstance(share, KaiQueueShare)]
    others = [share for share in roots if not isinstance(share, KaiQueueShare)]
    if not kai or not others:
        return ""

    def part(some: Sequence[VolcanoQueueShare]) -> str:
        units = sum(share.amounts["fair_share"].get(resource, 0) for share in some)
        return quantities.from_units(resource, units)

    return (
        f"Both APIs share the cluster: the fair share of {resource} is {part(kai)} for all root queues of KAI "
        f"together, and {part(others)} for Volcano's root."
    )
