"""Node side of Volcano's ``tdm``: revocable nodes accept revocable pods within their hours.

A node labelled ``volcano.sh/revocable-zone: ZONE`` accepts no pod outside the hours of
its zone. Inside them it accepts only pods annotated ``volcano.sh/revocable-zone: "*"``.
Hours are in UTC. If the end is not after the start, they extend over midnight.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np

from windlass.api.reasons import Reason
from windlass.plugins.argument_values import Arguments
from windlass.plugins.dialects import VOLCANO
from windlass.spi.nodes import BoolArray, FloatArray, NodeView
from windlass.spi.objects import Dialect, Needs
from windlass.spi.plugins import Footprint, NodeBlocker, Trend

LABEL = "volcano.sh/revocable-zone"
PREFIX = "tdm.revocable-zone."
DAY = 86_400
MINUTE = 60
_HOURS = re.compile(r"\s*([0-9]{1,2}):([0-9]{2})-([0-9]{1,2}):([0-9]{2})\s*")

Hours = tuple[int, int]
"""Seconds of the day: from, to; both included."""


def parse_hours(text: str) -> Hours | None:
    """Return the hours of a text such as ``10:00-21:00``; ``None`` if it is invalid."""
    match = _HOURS.fullmatch(text)
    if match is None:
        return None
    h1, m1, h2, m2 = (int(part) for part in match.groups())
    if h1 > 23 or h2 > 23 or m1 > 59 or m2 > 59:
        return None
    return (h1 * 60 + m1) * MINUTE, (h2 * 60 + m2) * MINUTE


def is_active(hours: Hours, now: float) -> bool:
    """Return whether ``now`` (Unix seconds) lies in the hours."""
    second = int(now) % DAY
    begin, end = hours
    return begin <= second <= end if begin < end else second >= begin or second <= end


class RevocableZones:
    """Filter and score of revocable nodes. A zone without valid hours is never active."""

    name = "revocable-zones"
    footprint = Footprint.STATIC
    dialects = VOLCANO

    def __init__(self, zones: Mapping[str, Hours], *, closes: bool = True) -> None:
        """:param closes: filter nodes, too"""
        self.weight = 1.0
        self._closes = closes
        self.zones = dict(zones)
        self._active: frozenset[str] = frozenset()

    def changed(self, now: float) -> bool:
        active = frozenset(zone for zone, hours in self.zones.items() if is_active(hours, now))
        before, self._active = self._active, active
        return active != before

    def due(self, now: float) -> float | None:
        """Return the time at which the next zone starts or ends."""
        midnight = now - now % DAY
        edges = [
            midnight + day * DAY + edge
            for begin, end in self.zones.values()
            for edge in (begin, end + 1)
            for day in (0, 1)
        ]
        return min((edge for edge in edges if edge > now), default=None)

    def filter(self, needs: Needs, nodes: NodeView) -> BoolArray | None:
        if not self._closes or needs.dialect is not Dialect.VOLCANO:
            return None
        return self._open(needs, nodes)[nodes.label(LABEL)]

    def blockers(self, needs: Needs, nodes: NodeView) -> Sequence[NodeBlocker]:
        mask = self.filter(needs, nodes)
        if mask is None or mask.all():
            return []
        values, codes = nodes.label_values(LABEL), nodes.label(LABEL)
        blockers = []
        for code in sorted(set(codes[~mask].tolist())):
            zone = values[code]
            state = "takes revocable pods only" if zone in self._active else "is not in its hours"
            blockers.append(
                NodeBlocker(Reason.NODE_RESERVED, codes == code, detail=f"revocable zone {zone} {state}")
            )
        return blockers

    def trend(self, needs: Needs) -> Trend:
        return Trend.RISES

    def score(self, needs: Needs, nodes: NodeView) -> FloatArray | None:
        if not needs.revocable_zone:
            return None
        points = [0.0]
        points += [100.0 if zone in self._active else 0.0 for zone in nodes.label_values(LABEL)[1:]]
        return np.array(points)[nodes.label(LABEL)]

    def _open(self, needs: Needs, nodes: NodeView) -> BoolArray:
        verdicts = [True]
        verdicts += [
            bool(needs.revocable_zone) and zone in self._active for zone in nodes.label_values(LABEL)[1:]
        ]
        return np.array(verdicts, dtype=np.bool_)


def build(arguments: Arguments, *, closes: bool = True) -> list[RevocableZones]:
    """Return the policy for arguments ``tdm.revocable-zone.ZONE: HH:MM-HH:MM``."""
    zones = {}
    for name, text in arguments.items():
        hours = parse_hours(str(text)) if name.startswith(PREFIX) else None
        if hours is not None:
            zones[name.removeprefix(PREFIX)] = hours
    return [RevocableZones(zones, closes=closes)]
