"""Capacity of empty nodes for tasks of one class that exclude one another.

Host ports, required anti-affinity to the own kind, volumes for one pod alone and hard
spread constraints limit how many tasks of a class run at the same time, whatever else
ends. The limits are upper bounds: more tasks than that never fit.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from windlass.engine.feasibility.task_class import UNLIMITED, TaskClass
from windlass.engine.groups.entries import TaskEntry
from windlass.engine.nodes.view import view_of
from windlass.engine.state.cluster_state import ClusterState
from windlass.spi.label_match import labels_match
from windlass.spi.objects import Expression, HostPort, Needs, PodTerm, SpreadTerm

_OWN = ""
"""Key for the number of tasks of the class itself."""


def capacity_if_empty(state: ClusterState, cls: TaskClass, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return how many tasks of the class each row holds if empty, by resources and NUMA."""
    result = capacity_by_resources(state, cls.needs, rows, empty=True)
    numa_usage = state.plugins.numa_accounting
    if numa_usage is None or cls.needs.zones is None:
        return result
    maxima = [numa_usage.most(cls.number, row) for row in rows.tolist()]
    by_numa = np.array([UNLIMITED if count is None else count for count in maxima], dtype=np.int64)
    return np.minimum(result, by_numa)


def capacity_by_resources(
    state: ClusterState, needs: Needs, rows: NDArray[np.int64], *, empty: bool = False
) -> NDArray[np.int64]:
    """Return how many tasks with these needs each row holds, by resources only.

    ``empty``: as if nothing ran there.
    """
    view = view_of(state.table, rows, empty=empty)
    count = np.full(len(rows), UNLIMITED, dtype=np.int64)
    for plugin in state.plugins.capacities:
        limit = plugin.capacity(needs, view)
        if limit is not None:
            np.minimum(count, limit, out=count)
    np.maximum(count, 0, out=count)
    if needs.devices:
        state.classes.allocator.limit_counts(count, view, needs)
    return count


def capacity_beside(
    state: ClusterState, cls: TaskClass, rows: NDArray[np.int64], staying: Iterable[TaskEntry]
) -> NDArray[np.int64]:
    """Return how many tasks of the class each row holds if only these other tasks stayed there."""
    counts = capacity_if_empty(state, cls, rows).copy()
    at = {int(row): index for index, row in enumerate(rows.tolist())}
    used: dict[int, dict[str, int]] = {}
    for entry in staying:
        if entry.row in at:
            sums = used.setdefault(entry.row, {})
            for name, units in (*entry.cls.node_items, *(((_OWN, 1),) if entry.cls is cls else ())):
                sums[name] = sums.get(name, 0) + units
    for row, sums in used.items():
        index = at[row]
        view = view_of(state.table, np.array([row], dtype=np.int64), empty=True)
        left = [
            (int(view.allocatable(name)[0]) - sums.get(name, 0)) // units
            for name, units in cls.node_items
            if units
        ]
        counts[index] = max(0, min([int(counts[index]) - sums.get(_OWN, 0), *left]))
    return counts


@dataclass(frozen=True, slots=True)
class Exclusion:
    """Upper bound of tasks, and the rule that sets it, as text."""

    most: int
    rule: str


def exclusion(
    state: ClusterState, cls: TaskClass, rows: NDArray[np.int64], counts: NDArray[np.int64]
) -> Exclusion | None:
    """Return the tightest bound on tasks of the class on these rows; ``None`` if no rule limits them.

    ``counts``: tasks that each row holds by its resources, if empty.
    """
    needs = cls.needs
    found = []
    if needs.host_ports:
        port = needs.host_ports[0]
        found.append(Exclusion(int(np.minimum(counts, 1).sum()), f"host port {port.number}/{port.protocol}"))
    found += [
        Exclusion(1, f"claim {volume.claim} is for one pod alone")
        for volume in needs.volumes
        if volume.exclusive and int(counts.sum())
    ]
    view = view_of(state.table, rows)
    for term in needs.anti_affinity:
        if selects(term, needs, needs):
            domains = view.label(term.topology_key)
            most = int(_held(counts, domains, 1).sum()) + int(counts[domains == 0].sum())
            found.append(Exclusion(most, f"anti-affinity to its own kind per {term.topology_key}"))
    for term in needs.spread:
        if term.hard and _spreads_itself(term, needs) and not _others_count(state, term, cls):
            domains = view.label(term.topology_key)
            found.append(
                Exclusion(_most_spread(term, counts, domains), f"spread constraint per {term.topology_key}")
            )
    limiting = [each for each in found if each.most < int(counts.sum())]
    return min(limiting, key=lambda each: each.most, default=None)


def one_per_host(
    state: ClusterState, cls: TaskClass, rows: NDArray[np.int64], counts: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return the counts, at most 1 per row if tasks of the class exclude one another on a node."""
    needs, view = cls.needs, view_of(state.table, rows)
    for term in needs.anti_affinity:
        if selects(term, needs, needs):
            domains = view.label(term.topology_key)
            if len(np.unique(domains)) == len(domains) and not (domains == 0).any():
                return np.minimum(counts, 1)
    return np.minimum(counts, 1) if needs.host_ports else counts


def selects(term: PodTerm, needs: Needs, other: Needs) -> bool:
    """Return whether a term of pods with ``needs`` selects pods of ``other``."""
    if term.selector is None or other.namespace not in (term.namespaces or (needs.namespace,)):
        return False
    return labels_match(term.selector, dict(other.labels))


def ports_conflict(ports: Iterable[HostPort], others: Iterable[HostPort]) -> bool:
    """Return whether two pods cannot share a node because of their host ports."""
    return any(
        (a.protocol, a.number) == (b.protocol, b.number)
        and (a.address == b.address or not a.address or not b.address)
        for a in ports
        for b in others
    )


def _held(counts: NDArray[np.int64], domains: NDArray[np.int64], maximum: int) -> NDArray[np.int64]:
    """Return the number of tasks that each domain holds, at most ``maximum``."""
    codes, places = np.unique(domains, return_inverse=True)
    sums = np.zeros(len(codes), dtype=np.int64)
    np.add.at(sums, places, np.minimum(counts, maximum))
    return np.minimum(sums, maximum)[codes > 0]


def _most_spread(term: SpreadTerm, counts: NDArray[np.int64], domains: NDArray[np.int64]) -> int:
    held = _held(counts, domains, min(int(counts.sum()), UNLIMITED))
    if not len(held):
        return 0
    least = 0 if term.min_domains is not None and len(held) < term.min_domains else int(held.min())
    return int(np.minimum(held, least + term.max_skew).sum())


def _spreads_itself(term: SpreadTerm, needs: Needs) -> bool:
    return term.selector is not None and labels_match(term.selector, dict(needs.labels))


def _others_count(state: ClusterState, term: SpreadTerm, cls: TaskClass) -> bool:
    """Return whether pods of another class count for the constraint. They may raise its bound."""
    selector: tuple[Expression, ...] = term.selector or ()
    return any(
        other is not cls
        and bool(other.placed)
        and other.needs.namespace == cls.needs.namespace
        and labels_match(selector, dict(other.needs.labels))
        for other in state.classes
    )
