"""Slices of a card (MIG): which are possible, and where the next one goes.

A card has memory slices in a row and a number of compute slices; an instance of a profile takes a stretch of
the former, from one of the profile's starts on, and some of the latter. What has been placed is not moved.
So the state of a card is the set of taken memory slices, the sum of taken compute slices and whether its
media extensions are taken; all else about it follows:

* ``more``: how many further instances of a profile it holds, and nothing else.
* ``best``: where the next one goes: where afterwards ``more`` of the same is least diminished, and then of
  the largest profiles, the next largest, and so on, most remain; then where the most combinations of
  profiles remain possible; then as far right as can be. Where one place keeps all that another one does,
  and more, it is never the other (a test over all states holds it).

What a node says about its cards (NVML's possible placements) goes before the table of models.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from windlass.spi.devices import SliceProfile, profiles_of
from windlass.spi.objects import Device


class MigGeometry:
    """What can be carved of cards of one kind. States are numbered as they are met; 0 is the free card."""

    def __init__(self, profiles: Sequence[SliceProfile]) -> None:
        self.profiles = tuple(profiles)
        self.codes = {profile.name: at for at, profile in enumerate(self.profiles)}
        self.compute = max((profile.compute for profile in profiles), default=0)
        self.size = max((start + p.size for p in profiles for start in p.starts), default=0)
        self._order = sorted(range(len(profiles)), key=lambda at: self._precious(at), reverse=True)
        self._ids: dict[tuple[int, int, bool], int] = {}
        self._states: list[tuple[int, int, bool]] = []
        self._more: dict[int, tuple[int, ...]] = {}
        self._best: dict[tuple[int, int], tuple[int, int]] = {}
        self._futures: dict[int, frozenset[int]] = {}
        self.state(0, 0, media=False)

    def _precious(self, at: int) -> tuple[int, int]:
        return self.profiles[at].compute, self.profiles[at].size

    # ------------------------------------------------------------------ states

    def __len__(self) -> int:
        """How many states have been met."""
        return len(self._states)

    def state(self, mask: int, compute: int, *, media: bool) -> int:
        """The number of a state: taken memory slices (bits), taken compute slices, media extensions taken."""
        key = (mask, compute, media)
        found = self._ids.get(key)
        if found is None:
            found = self._ids[key] = len(self._states)
            self._states.append(key)
        return found

    def then(self, state: int, profile: int, start: int) -> int:
        """The state after an instance has been placed."""
        mask, compute, media = self._states[state]
        p = self.profiles[profile]
        return self.state(mask | self.mask(profile, start), compute + p.compute, media=media or p.media)

    def mask(self, profile: int, start: int) -> int:
        """The memory slices that an instance takes, as bits."""
        return ((1 << self.profiles[profile].size) - 1) << start

    def starts(self, state: int, profile: int) -> list[int]:
        """Where an instance can be placed."""
        mask, compute, media = self._states[state]
        p = self.profiles[profile]
        if compute + p.compute > self.compute or (media and p.media):
            return []
        return [start for start in p.starts if not mask & self.mask(profile, start)]

    def free_slices(self, state: int) -> int:
        """How many memory slices are not taken."""
        return self.size - self._states[state][0].bit_count()

    # ------------------------------------------------------------------ tables

    def more(self, state: int) -> tuple[int, ...]:
        """By profile, how many further instances of it alone the card holds."""
        found = self._more.get(state)
        if found is None:
            found = self._more[state] = tuple(self._most(state, at) for at in range(len(self.profiles)))
        return found

    def _most(self, state: int, profile: int) -> int:
        """The most instances of one profile: earliest end first is optimal for stretches of one size."""
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
        """The start of the next instance and the state after it; ``None`` if there is no place."""
        found = self._best.get((state, profile))
        if found is None:
            starts = self.starts(state, profile)
            if not starts:
                return None
            start = max(
                starts, key=lambda start: self._worth(self.then(state, profile, start), profile, start)
            )
            found = self._best[state, profile] = (start, self.then(state, profile, start))
        return found

    def _worth(self, after: int, profile: int, start: int) -> tuple[int, tuple[int, ...], int, int]:
        more = self.more(after)
        return more[profile], tuple(more[at] for at in self._order), len(self.future(after)), start

    def future(self, state: int) -> frozenset[int]:
        """Every combination of profiles that can still be placed, the empty one included: four bits per
        profile, how many of it. Media extensions do not count."""
        mask, compute, _ = self._states[state]
        plain = self.state(mask, compute, media=False)
        found = self._futures.get(plain)
        if found is None:
            combinations = {0}
            for at, p in enumerate(self.profiles):
                if not p.media:
                    one = 1 << 4 * at
                    for start in self.starts(plain, at):
                        combinations.update(one + rest for rest in self.future(self.then(plain, at, start)))
            found = self._futures[plain] = frozenset(combinations)
        return found


@lru_cache(maxsize=256)
def geometry(profiles: tuple[SliceProfile, ...]) -> MigGeometry:
    """The geometry of these profiles, one for all cards."""
    return MigGeometry(profiles)


def geometry_of(device: Device) -> MigGeometry | None:
    """What a card can be sliced into: by what its node says, else by its model; ``None`` if nothing is
    known."""
    if device.geometry:
        return geometry(device.geometry)
    known = profiles_of(device.model, device.memory_mib)
    return geometry(known) if known else None
