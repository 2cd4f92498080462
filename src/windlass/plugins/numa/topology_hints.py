"""Topology Manager's rules: hints of resource providers, and the set of zones on which
they agree.

The rules are those of Kubernetes' kubelet (``pkg/kubelet/cm/topologymanager``:
``policy.go``, ``policy_restricted.go``, ``policy_single_numa_node.go``,
``numa_info.go``; ``cpumanager/policy_static.go``, ``memorymanager/policy_static.go``,
``devicemanager/topology_hints.go``), release 1.32 and later:

* A provider returns, by resource, the sets of zones with enough free capacity. A hint
  is *preferred* if no smaller set has enough capacity in total, free or not. A provider
  without a preference returns no list.
* One hint per resource is taken, in every combination. The intersection is the result.
  It is preferred if all hints are preferred and equal. A preferred result wins, then
  the smallest set, then the one with lower numbers (or the one with the smallest
  distances, with ``prefer-closest-numa-nodes``). Among results that are not preferred
  the size decides: the size closest, from below, to the largest minimum of any
  resource.
* ``restricted`` admits preferred results. ``single-numa-node`` considers only preferred
  hints of one zone.

Sets of zones are integers (bit = the zone's position). Lists of such sets are integers,
too (bit = the set). So two lists are combined without iterating over all pairs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

from windlass.spi.numa import AlignmentPolicy


class Hints(NamedTuple):
    """Hints for one resource: all sufficient sets of zones, and the preferred ones."""

    sets: int
    preferred: int


class Merged(NamedTuple):
    """Merged hint. ``zones``: the agreed set; 0 is "any" (the kubelet's hint without an
    affinity)."""

    zones: int
    preferred: bool


class Distances(NamedTuple):
    """Distances between zones, for ``prefer-closest-numa-nodes``: ``rows[i][j]``."""

    rows: tuple[tuple[int, ...], ...]

    def average(self, zones: int) -> float:
        """Return the average over all ordered pairs of the set, as in the kubelet.

        Pairs of a zone with itself count, too.
        """
        places = [place for place in range(len(self.rows)) if zones >> place & 1]
        if not places:
            return 0.0
        total = sum(self.rows[first][second] for first in places for second in places)
        return float(total) / (len(places) * len(places))


@lru_cache(maxsize=64)
def sets_by_size(zones: int) -> tuple[int, ...]:
    """Return all sets of ``zones`` zones but the empty one, small ones first, then by number."""
    return tuple(sorted(range(1, 1 << zones), key=lambda mask: (mask.bit_count(), mask)))


def sums(amounts: Sequence[int]) -> list[int]:
    """Return the total amount by set of zones."""
    totals = [0] * (1 << len(amounts))
    for place, amount in enumerate(amounts):
        bit = 1 << place
        for mask in range(bit, bit << 1):
            totals[mask] = totals[mask ^ bit] + amount
    return totals


def hints_of(
    wanted: int,
    total: Sequence[int],
    free: Sequence[int],
    *,
    among: int,
    reusable: Sequence[int] | None = None,
) -> Hints:
    """Return the hints of the CPU manager, or of the device manager for one resource.

    :param total: by zone, the total amount, which determines the minimum number of
        zones
    :param free: by zone, the free amount
    :param among: zones that have any
    :param reusable: amounts left by earlier containers of the pod; the set must include
        all their zones
    """
    least = among.bit_count()
    in_all, at_hand = sums(total), sums(free)
    required = 0
    if reusable is not None:
        required = _set(place for place, amount in enumerate(reusable) if amount)
        more = sums(reusable)
        at_hand = [one + other for one, other in zip(at_hand, more, strict=True)]
    masks: list[int] = []
    for mask in sets_by_size(len(total)):
        if mask & ~among:
            continue
        if in_all[mask] >= wanted:
            least = min(least, mask.bit_count())
        if at_hand[mask] >= wanted and not required & ~mask:
            masks.append(mask)
    return listed(masks, least)


def listed(masks: Iterable[int], least: int) -> Hints:
    """Return a list of sets; those of ``least`` zones are preferred."""
    sets = preferred = 0
    for mask in masks:
        sets |= 1 << mask
        if mask.bit_count() == least:
            preferred |= 1 << mask
    return Hints(sets, preferred)


def merge(
    policy: AlignmentPolicy,
    lists: Sequence[Hints | None],
    zones: int,
    distances: Distances | None = None,
) -> Merged:
    """Return the merged hint of a policy; ``None`` in ``lists`` is a provider without a
    preference.

    Under the policy ``none`` no provider is asked, and any zones will do.

    :param distances: only with ``prefer-closest-numa-nodes``
    """
    everywhere = (1 << zones) - 1
    if policy is AlignmentPolicy.NONE:
        return Merged(0, False)
    if policy is AlignmentPolicy.SINGLE_NUMA_NODE:
        return _merge_single(lists, everywhere, zones)
    opinions = [hints for hints in lists if hints is not None]
    agreed = ~0
    for hints in opinions:
        agreed &= hints.preferred
    if not opinions:
        return Merged(everywhere, True)
    if agreed:
        return Merged(_narrowest(_members(agreed), distances), True)
    reached = 1 << everywhere
    most = 0
    for hints in opinions:
        if not hints.sets:
            continue  # a hint without an affinity, which is not preferred
        reached = _intersections(reached, hints.sets)
        most = max(most, min(mask.bit_count() for mask in _members(hints.sets)))
    candidates = _members(reached & ~1)
    if not candidates:
        return Merged(everywhere, False)
    return Merged(_nearest(candidates, most, distances), False)


def admits(policy: AlignmentPolicy, merged: Merged) -> bool:
    """Return whether the pod (or container) is admitted."""
    if policy in (AlignmentPolicy.RESTRICTED, AlignmentPolicy.SINGLE_NUMA_NODE):
        return merged.preferred
    return True


# ---------------------------------------------------------------------- helpers


def _merge_single(lists: Sequence[Hints | None], everywhere: int, zones: int) -> Merged:
    singles = _set(1 << place for place in range(zones))
    agreed, any_opinion = singles, False
    for hints in lists:
        if hints is not None:
            any_opinion = True
            agreed &= hints.preferred
    if not any_opinion:
        return Merged(0, True)
    if not agreed:
        return Merged(everywhere, False)
    best = _narrowest(_members(agreed), None)
    return Merged(0 if best == everywhere else best, True)


def _narrowest(candidates: Sequence[int], distances: Distances | None) -> int:
    return min(candidates, key=lambda mask: _rank(mask, distances))


def _rank(mask: int, distances: Distances | None) -> tuple[int, float, int]:
    far = 0.0 if distances is None else distances.average(mask)
    return mask.bit_count(), far, mask


def _nearest(candidates: Sequence[int], most: int, distances: Distances | None) -> int:
    """Return the best set among those that are not preferred.

    The order is: ``most`` zones, the largest with fewer, the smallest.
    """

    def order(mask: int) -> tuple[int, int, float, int]:
        size, far, number = _rank(mask, distances)
        if size <= most:
            return 0, most - size, far, number
        return 1, size, far, number

    return min(candidates, key=order)


def _set(places: Iterable[int]) -> int:
    result = 0
    for place in places:
        result |= 1 << place
    return result


def _members(sets: int) -> list[int]:
    result = []
    while sets:
        lowest = sets & -sets
        result.append(lowest.bit_length() - 1)
        sets ^= lowest
    return result


@lru_cache(maxsize=8192)
def _intersections(some: int, others: int) -> int:
    """Return all intersections of a set of one list with a set of the other."""
    result = 0
    others_listed = _members(others)
    for one in _members(some):
        for other in others_listed:
            result |= 1 << (one & other)
    return result
