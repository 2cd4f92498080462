"""Filter of nodes by volumes: location, claims, and maximum of attached volumes.

* A volume that is bound, or can be provisioned, is reachable from some nodes only.
* A claim that waits for its first consumer, and is served by existing volumes, takes
  the smallest one that suffices. The volume is chosen together with the pod's node, and
  no other claim gets it then.
* A claim for a single pod (ReadWriteOncePod) admits no second pod on any node.
* A node attaches a limited number of volumes of each driver. A volume that several pods
  share counts once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np

from windlass.api.reasons import Reason
from windlass.plugins.nodes.label_masks import any_term_mask, describe
from windlass.spi.nodes import BoolArray, NodeView
from windlass.spi.objects import Needs, NodeTerm, VolumeNeed
from windlass.spi.plugins import NodeBlocker


class Volumes:
    name = "volumes"

    def __init__(self) -> None:
        self._nodes: NodeView | None = None
        self._members: dict[int, tuple[VolumeNeed, ...]] = {}
        self._sharing: dict[tuple[str, str], dict[int, None]] = {}
        """Object that classes may compete for (a claim, a limit, a volume) → the classes."""
        self._users: dict[str, int] = {}
        """Claim → number of pods that use it; only for exclusive claims and those that wait."""
        self._taken: dict[str, str] = {}
        """Claim that waits for its first consumer → the volume chosen for it."""
        self._attached: dict[tuple[str, int], dict[str, int]] = {}
        """(limit, row) → volume → number of pods that use it there."""

    # ------------------------------------------------------------------ updates

    def attach(self, nodes: NodeView) -> None:
        self._nodes = nodes

    def learn(self, number: int, needs: Needs, placed: Iterable[tuple[int, Mapping[int, int]]]) -> None:
        if needs.volumes:
            self._members[number] = needs.volumes
            for key in _keys(needs.volumes):
                self._sharing.setdefault(key, {})[number] = None

    def forget(self, number: int) -> None:
        for key in _keys(self._members.pop(number, ())):
            del self._sharing[key][number]
            if not self._sharing[key]:
                del self._sharing[key]

    def add(self, number: int, row: int, count: int) -> None:
        for volume in self._members.get(number, ()):
            if volume.limit:
                _count(self._attached.setdefault((volume.limit, row), {}), volume.identity, count)
                if not self._attached[volume.limit, row]:
                    del self._attached[volume.limit, row]
            if volume.exclusive or volume.options is not None:
                _count(self._users, volume.claim, count)
            if volume.options is not None:
                self._update(volume, row)

    def _update(self, volume: VolumeNeed, row: int) -> None:
        """Choose a volume for a claim that came into use, or release it."""
        if volume.claim not in self._users:
            self._taken.pop(volume.claim, None)
        elif volume.claim not in self._taken:
            taken = set(self._taken.values())
            for option in volume.options or ():
                if option.volume not in taken and self._reaches(option.terms, row):
                    self._taken[volume.claim] = option.volume
                    return

    def relabelled(self, placed: Iterable[tuple[int, Mapping[int, int]]]) -> None:
        return

    # ------------------------------------------------------------------ queries

    def is_interested(self, number: int) -> bool:
        return number in self._members

    def constrains(self, number: int) -> bool:
        return number in self._members

    def verdict(self, number: int, nodes: NodeView) -> BoolArray | None:
        mask = np.ones(nodes.size, dtype=np.bool_)
        for volume in self._members.get(number, ()):
            for blocked, _ in self._obstacles(volume, nodes):
                mask &= ~blocked
        return mask

    def touched(self, number: int, row: int) -> Sequence[tuple[str, int]] | None:
        volumes = self._members.get(number, ())
        if any(volume.exclusive or volume.options is not None for volume in volumes):
            return None
        return [("", row)] if any(volume.limit for volume in volumes) else []

    def listens_to(self, number: int) -> Collection[int]:
        return self.listeners(number)

    def listeners(self, number: int) -> Collection[int]:
        return {other for key in _keys(self._members.get(number, ())) for other in self._sharing[key]}

    def blockers(self, needs: Needs, nodes: NodeView) -> Sequence[NodeBlocker]:
        blockers = []
        for volume in needs.volumes:
            for blocked, blocker in self._obstacles(volume, nodes):
                if blocked.any():
                    blockers.append(blocker)
        return blockers

    # ------------------------------------------------------------------ helpers

    def _obstacles(self, volume: VolumeNeed, nodes: NodeView) -> list[tuple[BoolArray, NodeBlocker]]:
        obstacles = []
        everywhere = np.ones(nodes.size, dtype=np.bool_)
        if volume.fault:
            obstacles.append((everywhere, _blocker(everywhere, volume.fault, Reason.CLAIM_UNAVAILABLE)))
        if volume.problem:
            obstacles.append((everywhere, _blocker(everywhere, volume.problem)))
        if volume.terms is not None:
            blocked = ~any_term_mask(volume.terms, nodes)
            detail = f"the volume of claim {volume.claim} is reached from {_terms_text(volume.terms)} only"
            if volume.size:
                detail = (
                    f"{volume.size} for claim {volume.claim} can be had"
                    f" where {_terms_text(volume.terms)} only"
                )
            obstacles.append((blocked, _blocker(blocked, detail)))
        if volume.exclusive and volume.claim in self._users:
            detail = f"claim {volume.claim} is for one pod alone, and one uses it"
            obstacles.append((everywhere, _blocker(everywhere, detail, Reason.CLAIM_UNAVAILABLE)))
        if volume.options is not None:
            blocked = ~self._served(volume, nodes)
            left = len(self._left(volume))
            detail = f"no volume for claim {volume.claim} is free there ({left} elsewhere)"
            obstacles.append((blocked, _blocker(blocked, detail)))
        if volume.limit:
            obstacles.append(self._full(volume, nodes))
        return obstacles

    def _left(self, volume: VolumeNeed) -> list[tuple[NodeTerm, ...] | None]:
        """Return where volumes for the claim are reachable: its own volume, or those still free."""
        own = self._taken.get(volume.claim)
        if own is not None:
            return [option.terms for option in volume.options or () if option.volume == own]
        taken = set(self._taken.values())
        return [option.terms for option in volume.options or () if option.volume not in taken]

    def _served(self, volume: VolumeNeed, nodes: NodeView) -> BoolArray:
        mask = np.zeros(nodes.size, dtype=np.bool_)
        for terms in self._left(volume):
            mask |= True if terms is None else any_term_mask(terms, nodes)
        return mask

    def _full(self, volume: VolumeNeed, nodes: NodeView) -> tuple[BoolArray, NodeBlocker]:
        limits = nodes.allocatable(volume.limit)
        available = np.maximum(limits, 0)
        attached = np.zeros(nodes.size, dtype=np.bool_)
        for index, row in enumerate(nodes.rows.tolist()):
            attached_here = self._attached.get((volume.limit, row))
            if attached_here:
                available[index] = max(0, int(limits[index]) - len(attached_here))
                attached[index] = volume.identity in attached_here
        blocked = (limits > 0) & (available < 1) & ~attached
        blocker = NodeBlocker(Reason.VOLUME_UNAVAILABLE, blocked, volume.limit, 1, available)
        return blocked, blocker

    def _reaches(self, terms: tuple[NodeTerm, ...] | None, row: int) -> bool:
        if self._nodes is None:
            raise RuntimeError("the plugin is not attached to an engine")
        return terms is None or bool(any_term_mask(terms, self._nodes)[row])


def _blocker(blocked: BoolArray, detail: str, code: Reason = Reason.VOLUME_UNAVAILABLE) -> NodeBlocker:
    return NodeBlocker(code, blocked, detail=detail)


def _count(counts: dict[str, int], key: str, count: int) -> None:
    left = counts.get(key, 0) + count
    if left:
        counts[key] = left
    else:
        counts.pop(key, None)


def _keys(volumes: Iterable[VolumeNeed]) -> set[tuple[str, str]]:
    keys = set()
    for volume in volumes:
        keys.add(("claim", volume.claim))
        if volume.limit:
            keys.add(("limit", volume.limit))
        keys.update(("volume", option.volume) for option in volume.options or ())
    return keys


def _terms_text(terms: Sequence[NodeTerm]) -> str:
    return " or ".join(
        " and ".join(describe(e) for e in (*term.labels, *term.fields)) or "nowhere" for term in terms
    )
