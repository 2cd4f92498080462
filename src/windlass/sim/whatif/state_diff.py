"""From what an engine was told of one state to what it is to be told of another."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from windlass.engine.deltas import (
    BudgetRemoved,
    BudgetUpserted,
    Delta,
    GroupRemoved,
    GroupUpserted,
    NamespaceQuotaRemoved,
    NamespaceQuotaUpserted,
    NodeRemoved,
    NodeUpserted,
    QueueRemoved,
    QueueUpserted,
    TaskRemoved,
    TaskUpserted,
)

_GONE: Mapping[type, Callable[[str], Delta]] = {
    NodeUpserted: NodeRemoved,
    QueueUpserted: QueueRemoved,
    NamespaceQuotaUpserted: NamespaceQuotaRemoved,
    BudgetUpserted: BudgetRemoved,
    GroupUpserted: GroupRemoved,
    TaskUpserted: TaskRemoved,
}


def difference(before: Iterable[Delta], after: Iterable[Delta]) -> list[Delta]:
    """Return the deltas from one complete state to another: removals in reverse order, then additions and changes.

    A changed task was recreated: the old one is removed.
    """
    was, known = _by_noun(before), _by_noun(after)
    changed = [noun for noun, delta in known.items() if was.get(noun) != delta]
    anew = {noun for noun in changed if noun[0] is TaskUpserted}
    gone = [noun for noun in reversed(was) if noun not in known or noun in anew]
    return [*[_GONE[kind](name) for kind, name in gone], *[known[noun] for noun in changed]]


def _by_noun(deltas: Iterable[Delta]) -> dict[tuple[type, str], Delta]:
    found: dict[tuple[type, str], Delta] = {}
    for delta in deltas:
        match delta:
            case NodeUpserted(noun) | QueueUpserted(noun):
                found[type(delta), noun.name] = delta
            case NamespaceQuotaUpserted(noun) | GroupUpserted(noun) | TaskUpserted(noun):
                found[type(delta), noun.key] = delta
            case BudgetUpserted(key):
                found[type(delta), key] = delta
            case _:
                pass
    return found
