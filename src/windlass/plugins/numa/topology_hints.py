"""The Topology Manager's arithmetic: hints of resource providers, and the one set of zones they agree on.

Restated from the rules of Kubernetes' kubelet (``pkg/kubelet/cm/topologymanager``: ``policy.go``,
``policy_restricted.go``, ``policy_single_numa_node.go``, ``numa_info.go``; ``cpumanager/policy_static.go``,
``memorymanager/policy_static.go``, ``devicemanager/topology_hints.go``), release 1.32 and later:

* A provider gives, per resource, the sets of zones that have as much free as is asked; a hint is *preferred*
  if no smaller set would have it in all, free or not. Without an opinion it gives no list.
* One hint per resource is taken, in every combination: the common zones are what the pod would get, and that
  is preferred if all hints are, and are the same set. A preferred one wins; then the smallest set, the one of
  lower numbers on ties (or the one whose zones are nearest, with ``prefer-closest-numa-nodes``). Of sets that
  are not preferred, the one wins whose size comes nearest, from below, to the most zones that any resource
  needs at least.
* ``restricted`` admits what is preferred. ``single-numa-node`` looks at preferred hints of one zone only.

Sets of zones are integers (bit = the zone's place), and lists of such sets are integers too (bit = the set):
the combinations of two lists are then found without going through them one by one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

from windlass.spi.numa import AlignmentPolicy


class Hints(NamedTuple):
    """Of one resource: all sets of zones that would do, and those of them that are preferred."""

    sets: int
    preferred: int


class Merged(NamedTuple):
    """``zones``: the set on which all agree; 0 stands for "any" (the kubelet's hint without an affinity)."""

    zones: int
    preferred: bool


class Distances(NamedTuple):
    """Between zones, for ``prefer-closest-numa-nodes``: ``rows[i][j]``."""

    rows: tuple[tuple[int, ...], ...]

    def average(self, zones: int) -> float:
        """Over all ordered pairs of the set, a zone and itself included, as the kubelet takes it."""
        places = [at for at in range(len(self.rows)) if zones >> at & 1]
        if not places:
            return 0.0
        total = sum(self.rows[one][other] for one in places for other in places)
        return float(total) / (len(places) * len(places))


@lru_cache(maxsize=64)
def sets_by_size(zones: int) -> tuple[int, ...]:
    """All sets of ``zones`` zones, small ones first, by number among equals; the empty one left out."""
    return tuple(sorted(range(1, 1 << zones), key=lambda mask: (mask.bit_count(), mask)))


def sums(amounts: Sequence[int]) -> list[int]:
    """By set of zones, what they have together."""
    found = [0] * (1 << len(amounts))
    for place, amount in enumerate(amounts):
        bit = 1 << place
        for mask in range(bit, bit << 1):
            found[mask] = found[mask ^ bit] + amount
    return found


def hints_of(
    wanted: int,
    total: Sequence[int],
    free: Sequence[int],
    *,
    among: int,
    reusable: Sequence[int] | None = None,
) -> Hints:
    """Hints of the CPU manager, or of the device manager for one resource.

    ``total``: by zone, all there is, by which the least number of zones is told; ``free``: what is free.
    ``among``: the zones that have any. ``reusable``: what earlier containers of the pod have left to this
    one: every zone of it must be in the set.
    """
    least = among.bit_count()
    in_all, at_hand = sums(total), sums(free)
    kept = 0
    if reusable is not None:
        kept = _set(place for place, amount in enumerate(reusable) if amount)
        more = sums(reusable)
        at_hand = [one + other for one, other in zip(at_hand, more, strict=True)]
    found: list[int] = []
    for mask in sets_by_size(len(total)):
        if mask & ~among:
            continue
        if in_all[mask] >= wanted:
            least = min(least, mask.bit_count())
        if at_hand[mask] >= wanted and not kept & ~mask:
            found.append(mask)
    return listed(found, least)


def listed(found: Iterable[int], least: int) -> Hints:
    """A list of sets, of which those of ``least`` zones are preferred."""
    sets = preferred = 0
    for mask in found:
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
    """What the policy makes of the hints; ``None`` among ``lists`` is a provider without an opinion.

    ``distances`` only with ``prefer-closest-numa-nodes``. Under ``none`` nobody is asked, and any zones do.
    """
    everywhere = (1 << zones) - 1
    if policy is AlignmentPolicy.NONE:
        return Merged(0, False)
    if policy is AlignmentPolicy.SINGLE_NUMA_NODE:
        return _single(lists, everywhere, zones)
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
        reached = _crossed(reached, hints.sets)
        most = max(most, min(mask.bit_count() for mask in _members(hints.sets)))
    candidates = _members(reached & ~1)
    if not candidates:
        return Merged(everywhere, False)
    return Merged(_nearest(candidates, most, distances), False)


def admits(policy: AlignmentPolicy, merged: Merged) -> bool:
    """Return whether the pod (or container) is let in."""
    if policy in (AlignmentPolicy.RESTRICTED, AlignmentPolicy.SINGLE_NUMA_NODE):
        return merged.preferred
    return True


# ---------------------------------------------------------------------- parts


def _single(lists: Sequence[Hints | None], everywhere: int, zones: int) -> Merged:
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
    """Of sets that are not preferred: of ``most`` zones, or else the largest of fewer, or else the smallest."""

    def order(mask: int) -> tuple[int, int, float, int]:
        size, far, number = _rank(mask, distances)
        if size <= most:
            return 0, most - size, far, number
        return 1, size, far, number

    return min(candidates, key=order)


def _set(places: Iterable[int]) -> int:
    found = 0
    for place in places:
        found |= 1 << place
    return found


def _members(sets: int) -> list[int]:
    found = []
    while sets:
        lowest = sets & -sets
        found.append(lowest.bit_length() - 1)
        sets ^= lowest
    return found


@lru_cache(maxsize=8192)
def _crossed(some: int, others: int) -> int:
    """All intersections of a set of the one list with a set of the other."""
    found = 0
    others_listed = _members(others)
    for one in _members(some):
        for other in others_listed:
            found |= 1 << (one & other)
    return found
