"""MIG slices of a device: possible instances, and the position of the next one.

A device has a row of memory slices and a number of compute slices. An instance of a
profile takes a stretch of memory slices, from one of the profile's starts on, and some
compute slices. Placed instances are not moved. The state of a device is therefore the
set of taken memory slices, the sum of taken compute slices, and whether the media
extensions are taken. Everything else follows from it:

* ``remaining``: number of further instances of one profile that fit, if no other
  profile is used.
* ``best``: start of the next instance. It is the start after which most instances of
  the same profile remain, then most of the largest profile, then of the next largest,
  and so on. Ties are broken by the number of profile combinations that remain possible,
  and then by the highest start. A start is never chosen if another start keeps
  everything that it keeps, and more (a test over all states checks this).

Placements that the node reports (NVML's possible placements) take precedence over the
table of models.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from windlass.spi.devices import SliceProfile, profiles_of
from windlass.spi.objects import Device


class MigGeometry:
    """Possible slices of devices of one kind.

    States are numbered in the order in which they occur; 0 is the free device.
    """

    def __init__(self, profiles: Sequence[SliceProfile]) -> None:
        self.profiles = tuple(profiles)
        self.codes = {profile.name: code for code, profile in enumerate(self.profiles)}
        self.compute = max((profile.compute for profile in profiles), default=0)
        self.size = max((start + p.size for p in profiles for start in p.starts), default=0)
        self._order = sorted(range(len(profiles)), key=lambda code: self._size_order(code), reverse=True)
        self._ids: dict[tuple[int, int, bool], int] = {}
        self._states: list[tuple[int, int, bool]] = []
        self._remaining: dict[int, tuple[int, ...]] = {}
        self._best: dict[tuple[int, int], tuple[int, int]] = {}
        self._combinations: dict[int, frozenset[int]] = {}
        self.state(0, 0, media=False)

    def _size_order(self, code: int) -> tuple[int, int]:
        return self.profiles[code].compute, self.profiles[code].size

    # ------------------------------------------------------------------ states

    def __len__(self) -> int:
        """Return the number of states that have occurred."""
        return len(self._states)

    def state(self, mask: int, compute: int, *, media: bool) -> int:
        """Return the number of a state.

        ``mask``: taken memory slices (bits).
        ``compute``: taken compute slices.
        ``media``: media extensions are taken.
        """
        key = (mask, compute, media)
        number = self._ids.get(key)
        if number is None:
            number = self._ids[key] = len(self._states)
            self._states.append(key)
        return number

    def state_after(self, state: int, profile: int, start: int) -> int:
        """Return the state after an instance has been placed."""
        mask, compute, media = self._states[state]
        p = self.profiles[profile]
        return self.state(mask | self.mask(profile, start), compute + p.compute, media=media or p.media)

    def mask(self, profile: int, start: int) -> int:
        """Return the memory slices that an instance takes, as bits."""
        return ((1 << self.profiles[profile].size) - 1) << start

    def starts(self, state: int, profile: int) -> list[int]:
        """Return the starts at which an instance can be placed."""
        mask, compute, media = self._states[state]
        p = self.profiles[profile]
        if compute + p.compute > self.compute or (media and p.media):
            return []
        return [start for start in p.starts if not mask & self.mask(profile, start)]

    def free_slices(self, state: int) -> int:
        """Return the number of free memory slices."""
        return self.size - self._states[state][0].bit_count()

    # ------------------------------------------------------------------ tables

    def remaining(self, state: int) -> tuple[int, ...]:
        """Return for each profile the number of further instances of it alone that fit."""
        remaining = self._remaining.get(state)
        if remaining is None:
            remaining = self._remaining[state] = tuple(
                self._max_instances(state, code) for code in range(len(self.profiles))
            )
        return remaining

    def _max_instances(self, state: int, profile: int) -> int:
        """Return the maximum number of instances of one profile.

        Earliest end first is optimal for stretches of one size.
        """
        mask, compute, _ = self._states[state]
        p = self.profiles[profile]
        if p.media:
            return int(bool(self.starts(state, profile)))
        n, edge = 0, 0
        for start in sorted(p.starts):
            if start >= edge and not mask & self.mask(profile, start):
                n, edge = n + 1, start + p.size
        return max(0, min(n, (self.compute - compute) // p.compute)) if p.compute else n

    def best(self, state: int, profile: int) -> tuple[int, int] | None:
        """Return the start of the next instance and the state after it; ``None`` if none fits."""
        best_start = self._best.get((state, profile))
        if best_start is None:
            starts = self.starts(state, profile)
            if not starts:
                return None
            start = max(
                starts, key=lambda start: self._worth(self.state_after(state, profile, start), profile, start)
            )
            best_start = self._best[state, profile] = (start, self.state_after(state, profile, start))
        return best_start

    def _worth(self, after: int, profile: int, start: int) -> tuple[int, tuple[int, ...], int, int]:
        remaining = self.remaining(after)
        return (
            remaining[profile],
            tuple(remaining[code] for code in self._order),
            len(self.combinations(after)),
            start,
        )

    def combinations(self, state: int) -> frozenset[int]:
        """Return every combination of profiles that can still be placed, including the empty one.

        Four bits per profile hold its count. Media extensions do not count.
        """
        mask, compute, _ = self._states[state]
        plain = self.state(mask, compute, media=False)
        result = self._combinations.get(plain)
        if result is None:
            combinations = {0}
            for code, p in enumerate(self.profiles):
                if not p.media:
                    unit = 1 << 4 * code
                    for start in self.starts(plain, code):
                        combinations.update(
                            unit + rest for rest in self.combinations(self.state_after(plain, code, start))
                        )
            result = self._combinations[plain] = frozenset(combinations)
        return result


@lru_cache(maxsize=256)
def geometry(profiles: tuple[SliceProfile, ...]) -> MigGeometry:
    """Return the geometry of these profiles; equal ones share one object."""
    return MigGeometry(profiles)


def geometry_of(device: Device) -> MigGeometry | None:
    """Return the geometry that the node reports, else that of the model; ``None`` if unknown."""
    if device.geometry:
        return geometry(device.geometry)
    known = profiles_of(device.model, device.memory_mib)
    return geometry(known) if known else None
