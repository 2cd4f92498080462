"""Messages about the fair share of a queue, and from which queues it borrows.

A queue *borrows* what it holds beyond two amounts. One is its own entitlement:
deserved, or guarantee if that is more. The other is what no queue is entitled to.
Lenders are siblings with unused entitlement, the most unused first.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from windlass.engine.decision import QueueUsage
from windlass.spi.quantities import from_units, is_device, scale
from windlass.spi.shares import ShareCause, SharePart


def why(usage: QueueUsage) -> dict[str, str]:
    """Return resource → derivation of the fair share, for requested or entitled resources."""
    names = {name for name, units in usage.requested.items() if units}
    names |= {name for name, units in usage.fair_share.items() if units}
    return {name: why_of(usage, name) for name in sorted(names) if name != "pods"}


def why_of(usage: QueueUsage, resource: str) -> str:
    """Return the fair share of one resource in one line: its amount, its parts, and its limit."""
    fair = usage.fair_share.get(resource, 0)
    asked = usage.requested.get(resource, 0) - usage.releasing.get(resource, 0)
    parts = usage.parts.get(resource, ())
    total = f"{from_units(resource, fair)}: "
    made = _parts(resource, parts)
    if len(parts) == 1 and parts[0].cause is ShareCause.REST:
        return total + made
    bound = _bound(usage, resource, fair, asked)
    if not fair:
        return total + bound
    return total + ", ".join(text for text in (made, bound) if text)


def _parts(resource: str, parts: Sequence[SharePart]) -> str:
    if len(parts) == 1 and parts[0].cause is ShareCause.REST:
        return "what the queues of the other API leave"
    words = []
    for part in parts:
        amount = from_units(resource, part.units)
        if part.cause is ShareCause.SURPLUS:
            words.append(f"{amount} of the surplus by weight {part.weight:g} of {part.weights:g}")
        elif part.cause is ShareCause.ROUNDING:
            whole = "a whole device" if is_device(resource) else "a whole unit"
            words.append(f"{amount} since the rest goes out as {whole}")
        elif part.cause is ShareCause.GUARANTEED:
            words.append(f"{amount} guaranteed")
        elif part.cause is ShareCause.DESERVED:
            words.append(f"{amount} deserved")
    return " + ".join(words)


def _bound(usage: QueueUsage, resource: str, fair: int, asked: int) -> str:
    """Return what limits the share. ``asked``: requested amount without terminating tasks."""
    limit = usage.capability.get(resource)
    if limit is not None and limit < asked and fair >= limit:
        return f"its limit is {from_units(resource, limit)}"
    ending = usage.releasing.get(resource, 0)
    beside = f" beside the {from_units(resource, ending)} that terminate" if ending else ""
    if not asked:
        return f"it asks for nothing{beside}"
    if fair > asked and not is_device(resource):
        return f"it asks for {from_units(resource, asked)}{beside}"
    if fair >= asked:
        return f"all it asks for{beside}"
    text = f"it asks for {from_units(resource, asked)}{beside}"
    if resource in usage.weightless:
        return f"{text}, and its weight 0 gives it no part of the surplus"
    rounded = any(part.cause is ShareCause.ROUNDING for part in usage.parts.get(resource, ()))
    if is_device(resource) and not rounded and asked - fair < scale(resource):
        return f"{text}; shares are whole devices"
    return text


# ---------------------------------------------------------------------- lending


@dataclass(frozen=True, slots=True)
class LevelAccount:
    """One queue of a level, for one resource.

    ``due``: entitlement; ``None`` is unlimited, such a queue neither borrows nor lends.
    """

    name: str
    due: int | None
    held: int


def borrowed(accounts: Iterable[LevelAccount], total: int) -> dict[str, dict[str, int]]:
    """Return queue → lender → units, for one level that has ``total``.

    Borrowers are served in the order of their names. The result tells which queues
    could lend, not a real ownership.
    """
    known = sorted(accounts, key=lambda account: account.name)
    spare = {a.name: a.due - a.held for a in known if a.due is not None and a.due > a.held}
    free = max(0, total - sum(a.held if a.due is None else a.due for a in known))
    found: dict[str, dict[str, int]] = {}
    for account in known:
        if account.due is None:
            continue
        left = account.held - max(account.due, 0)
        if left <= 0:
            continue
        mine: dict[str, int] = {}
        own = min(left, free)
        free -= own
        left -= own
        for lender in sorted(spare, key=lambda name: (-spare[name], name)):
            if not left:
                break
            units = min(left, spare[lender])
            if units:
                mine[lender] = units
                spare[lender] -= units
                left -= units
        if mine:
            found[account.name] = mine
    return found


def lending(usages: Sequence[QueueUsage]) -> dict[str, dict[str, dict[str, int]]]:
    """Return queue → resource → lender → units, for a whole tree."""
    children: dict[str, list[QueueUsage]] = {}
    for usage in usages:
        children.setdefault(usage.parent, []).append(usage)
    by_name = {usage.queue: usage for usage in usages}
    found: dict[str, dict[str, dict[str, int]]] = {}
    for parent, level in children.items():
        above = by_name.get(parent)
        names = sorted({name for usage in level for name, units in usage.allocated.items() if units})
        for resource in names:
            if resource == "pods":
                continue
            top = level if above is None else [above]
            there = sum(_held_or_due(usage, resource) for usage in top)
            accounts = [LevelAccount(u.queue, _due(u, resource), u.allocated.get(resource, 0)) for u in level]
            for queue, lenders in borrowed(accounts, there).items():
                found.setdefault(queue, {})[resource] = lenders
    return found


def _due(usage: QueueUsage, resource: str) -> int | None:
    if resource in usage.unlimited:
        return None
    return max(usage.deserved.get(resource, 0), usage.guarantee.get(resource, 0))


def _held_or_due(usage: QueueUsage, resource: str) -> int:
    return max(usage.fair_share.get(resource, 0), usage.allocated.get(resource, 0))
