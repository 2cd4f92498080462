"""The scheduler's configuration: which actions run, and which policies in which tiers with which switches.

The form is Volcano's (``volcano-scheduler.conf``), parsed and checked elsewhere. A switch that is not
named has its default. Switches stand under their own spelling (``enableJobOrder``,
``enabledAllocatable``); :func:`canonical_switch` finds it for either prefix.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from windlass.kits import durations

SWITCHES: Mapping[str, bool] = {
    "enableJobOrder": True,
    "enableJobReady": True,
    "enableJobPipelined": True,
    "enableJobEnqueued": True,
    "enableTaskOrder": True,
    "enablePreemptable": True,
    "enableReclaimable": True,
    "enablePreemptive": True,
    "enableQueueOrder": True,
    "enablePredicate": True,
    "enableBestNode": True,
    "enableNodeOrder": True,
    "enableTargetJob": True,
    "enableReservedNodes": True,
    "enabledVictim": True,
    "enableJobStarving": True,
    "enabledOverused": True,
    "enabledAllocatable": True,
    "enabledHyperNodeOrder": True,
    "enabledSubJobReady": True,
    "enabledSubJobPipelined": True,
    "enabledSubJobOrder": True,
    "enabledHyperNodeGradient": True,
    "enableHierarchy": False,
    "enabledClusterOrder": False,
}
"""Every switch of a plugin, under Volcano's spelling, with its default."""

ACTIONS = (
    "enqueue",
    "allocate",
    "backfill",
    "preempt",
    "reclaim",
    "gangpreempt",
    "gangreclaim",
    "consolidation",
    "stalegangeviction",
    "timeshare",
    "shuffle",
)
"""The names of actions that a configuration may use."""

RESERVATIONS = "reservations"
BACKFILLS = ("easy", "conservative", "none", "strict")
"""The argument of action ``backfill`` that says for whom room is kept, and its values, the default first;
with ``strict`` for nobody, and nobody passes the first of his queue."""

AGING = "aging"
"""The argument of action ``backfill`` that says how long a group may find no room before nodes are emptied
for it: a duration, ``0s`` for ever. Without it :data:`DEFAULT_AGING`, with tiers (Volcano's way) never."""
DEFAULT_AGING = "1h"
LEARNED = "learned"
"""The argument of action ``backfill`` that says whether run times are learned from work that has ended:
``true`` or ``false``. Without it yes, with tiers (Volcano's way) no."""

FOREIGN = "foreign"
FOREIGN_QUEUE = "queue"
"""The entry of ``configurations`` and its argument that name the queue in which pods of other schedulers count, so that
they may have to make room for work of higher priority there. Without it they are never touched."""

MEASURED_EVERY = "30s"
"""How often loads are measured unless ``metrics: {interval}`` says otherwise; Volcano's default."""
METRICS = ("prometheus", "elasticsearch", "prometheus_adaptor")

_BY_STEM = {name.removeprefix("enabled").removeprefix("enable"): name for name in SWITCHES}


def canonical_switch(name: str) -> str | None:
    """The switch that ``name`` means, spelled with either prefix; ``None`` if it is none."""
    for prefix in ("enabled", "enable"):
        if name.startswith(prefix):
            return _BY_STEM.get(name.removeprefix(prefix))
    return None


HEAVIEST = 1 << 53
"""No score weighs more: sums of weighed scores are still told apart."""


@dataclass(frozen=True, slots=True)
class PluginOption:
    """A plugin of a tier. ``flags``: only what the file names, under canonical names."""

    name: str
    flags: Mapping[str, bool] = field(default_factory=dict)
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def enabled(self, switch: str) -> bool:
        """Whether a switch is on: as the file says, else its default. ``KeyError`` for no switch."""
        default = SWITCHES[switch]
        return self.flags.get(switch, default)

    def weight(self, name: str, default: float) -> float:
        """An argument that weighs scores. Raises ``ValueError`` for what is no number from 0 to :data:`HEAVIEST`."""
        given = self.arguments.get(name, default)
        if isinstance(given, bool) or not isinstance(given, int | float) or not given >= 0:
            raise ValueError(f"{self.name}: {name} {given!r} is no number of at least 0")
        if given > HEAVIEST:
            raise ValueError(f"{self.name}: {name} {given!r} is more than {HEAVIEST}")
        return float(given)


@dataclass(frozen=True, slots=True)
class PluginTier:
    plugins: tuple[PluginOption, ...] = ()


@dataclass(frozen=True, slots=True)
class SchedulerConfig:
    """``actions`` in the order of execution; empty: those of the default policy. No ``tiers``: the
    default policy, restricted to the actions. ``plugins``: on top of either. ``configurations``:
    action → its arguments (``backfill``: :data:`RESERVATIONS`, :data:`AGING`, :data:`LEARNED`). ``compatibility``:
    ``"volcano"`` asks for Volcano's peculiarities where Windlass differs on purpose. ``metrics``: who measures
    loads, as texts: ``type`` (one of :data:`METRICS`), ``address``, ``interval``, and what the type takes.
    """

    actions: tuple[str, ...] = ()
    tiers: tuple[PluginTier, ...] = ()
    configurations: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    compatibility: str = ""
    plugins: tuple[PluginOption, ...] = ()
    metrics: Mapping[str, str] = field(default_factory=dict)


def foreign_queue(config: SchedulerConfig) -> str:
    """The queue in which pods of other schedulers count; ``""``: in none."""
    return str(config.configurations.get(FOREIGN, {}).get(FOREIGN_QUEUE, ""))


def measured_every(metrics: Mapping[str, str]) -> float:
    """Seconds between two measurements of loads; a text that is no time counts as none."""
    try:
        seconds = durations.parse(metrics.get("interval", MEASURED_EVERY))
    except ValueError:
        seconds = 0.0
    return seconds if seconds > 0 else durations.parse(MEASURED_EVERY)
