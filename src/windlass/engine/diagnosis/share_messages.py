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


def explain_shares(usage: QueueUsage) -> dict[str, str]:
    """Return resource → derivation of the fair share, for requested or entitled resources."""
    names = {name for name, units in usage.requested.items() if units}
    names |= {name for name, units in usage.fair_share.items() if units}
    return {name: explain_share(usage, name) for name in sorted(names) if name != "pods"}


def explain_share(usage: QueueUsage, resource: str) -> str:
    """Return the fair share of one resource in one line: its amount, its parts, and its limit."""
    fair = usage.fair_share.get(resource, 0)
    requested = usage.requested.get(resource, 0) - usage.releasing.get(resource, 0)
    parts = usage.parts.get(resource, ())
    total = f"{from_units(resource, fair)}: "
    parts_text = _part_texts(resource, parts)
    if len(parts) == 1 and parts[0].cause is ShareCause.REST:
        return total + parts_text
    limit_text = _limit_text(usage, resource, fair, requested)
    if not fair:
        return total + limit_text
    return total + ", ".join(text for text in (parts_text, limit_text) if text)


def _part_texts(resource: str, parts: Sequence[SharePart]) -> str:
    if len(parts) == 1 and parts[0].cause is ShareCause.REST:
        return "what the queues of the other API leave"
    texts = []
    for part in parts:
        amount = from_units(resource, part.units)
        if part.cause is ShareCause.SURPLUS:
            texts.append(f"{amount} of the surplus by weight {part.weight:g} of {part.weights:g}")
        elif part.cause is ShareCause.ROUNDING:
            whole = "a whole device" if is_device(resource) else "a whole unit"
            texts.append(f"{amount} since the rest goes out as {whole}")
        elif part.cause is ShareCause.GUARANTEED:
            texts.append(f"{amount} guaranteed")
        elif part.cause is ShareCause.DESERVED:
            texts.append(f"{amount} deserved")
    return " + ".join(texts)


def _limit_text(usage: QueueUsage, resource: str, fair: int, requested: int) -> str:
    """Return what limits the share. ``requested``: requested amount without terminating tasks."""
    limit = usage.capability.get(resource)
    if limit is not None and limit < requested and fair >= limit:
        return f"its limit is {from_units(resource, limit)}"
    terminating = usage.releasing.get(resource, 0)
    besides = f" besides the {from_units(resource, terminating)} that terminate" if terminating else ""
    if not requested:
        return f"it requests nothing{besides}"
    if fair > requested and not is_device(resource):
        return f"it requests {from_units(resource, requested)}{besides}"
    if fair >= requested:
        return f"all that it requests{besides}"
    text = f"it requests {from_units(resource, requested)}{besides}"
    if resource in usage.weightless:
        return f"{text}, and its weight 0 gives it no part of the surplus"
    rounded = any(part.cause is ShareCause.ROUNDING for part in usage.parts.get(resource, ()))
    if is_device(resource) and not rounded and requested - fair < scale(resource):
        return f"{text}; shares are whole devices"
    return text


# ---------------------------------------------------------------------- lending


@dataclass(frozen=True, slots=True)
class LevelAccount:
    """One queue of a level, for one resource.

    ``entitlement``: entitlement; ``None`` is unlimited, such a queue neither borrows nor lends.
    """

    name: str
    entitlement: int | None
    held: int


def borrowed(accounts: Iterable[LevelAccount], total: int) -> dict[str, dict[str, int]]:
    """Return queue → lender → units, for one level that has ``total``.

    Borrowers are served in the order of their names. The result tells which queues
    could lend, not a real ownership.
    """
    sorted_accounts = sorted(accounts, key=lambda account: account.name)
    unused = {
        a.name: a.entitlement - a.held
        for a in sorted_accounts
        if a.entitlement is not None and a.entitlement > a.held
    }
    free = max(0, total - sum(a.held if a.entitlement is None else a.entitlement for a in sorted_accounts))
    result: dict[str, dict[str, int]] = {}
    for account in sorted_accounts:
        if account.entitlement is None:
            continue
        borrowed_units = account.held - max(account.entitlement, 0)
        if borrowed_units <= 0:
            continue
        lent: dict[str, int] = {}
        from_free = min(borrowed_units, free)
        free -= from_free
        borrowed_units -= from_free
        for lender in sorted(unused, key=lambda name: (-unused[name], name)):
            if not borrowed_units:
                break
            units = min(borrowed_units, unused[lender])
            if units:
                lent[lender] = units
                unused[lender] -= units
                borrowed_units -= units
        if lent:
            result[account.name] = lent
    return result


def lending(usages: Sequence[QueueUsage]) -> dict[str, dict[str, dict[str, int]]]:
    """Return queue → resource → lender → units, for a whole tree."""
    children: dict[str, list[QueueUsage]] = {}
    for usage in usages:
        children.setdefault(usage.parent, []).append(usage)
    by_name = {usage.queue: usage for usage in usages}
    result: dict[str, dict[str, dict[str, int]]] = {}
    for parent, level in children.items():
        parent_usage = by_name.get(parent)
        names = sorted({name for usage in level for name, units in usage.allocated.items() if units})
        for resource in names:
            if resource == "pods":
                continue
            top = level if parent_usage is None else [parent_usage]
            capacity = sum(_capacity(usage, resource) for usage in top)
            accounts = [
                LevelAccount(u.queue, _entitlement(u, resource), u.allocated.get(resource, 0)) for u in level
            ]
            for queue, lenders in borrowed(accounts, capacity).items():
                result.setdefault(queue, {})[resource] = lenders
    return result


def _entitlement(usage: QueueUsage, resource: str) -> int | None:
    if resource in usage.unlimited:
        return None
    return max(usage.deserved.get(resource, 0), usage.guarantee.get(resource, 0))


def _capacity(usage: QueueUsage, resource: str) -> int:
    return max(usage.fair_share.get(resource, 0), usage.allocated.get(resource, 0))
