"""Configuration of the scheduler: actions, policies by tier, and their switches.

The form is Volcano's (``volcano-scheduler.conf``). :mod:`windlass.model` parses and
checks it. A missing switch has its default. Keys are the canonical spellings
(``enableJobOrder``, ``enabledAllocatable``); :func:`canonical_switch` returns them for
either prefix.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from windlass.kits import durations
from windlass.spi import renamed

if not TYPE_CHECKING:
    __getattr__ = renamed.old_names(__name__)

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
"""Switches of a plugin in Volcano's spelling, with their defaults."""

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
"""Names of actions that a configuration may use."""

RESERVATIONS = "reservations"
BACKFILLS = ("easy", "conservative", "none", "strict")
"""Argument of action ``backfill`` for its reservations, and its values, the default first.

``strict`` makes no reservations, and no group passes the first one of its queue.
"""

AGING = "aging"
"""Argument of action ``backfill``: maximum time without capacity before nodes are reserved.

A duration; ``0s`` for no limit. Default: :data:`DEFAULT_AGING`; no limit with tiers
(Volcano's way).
"""
DEFAULT_AGING = "1h"
LEARNED = "learned"
"""Argument of action ``backfill``: learn run times from finished groups, ``true`` or ``false``.

Default: ``true``; ``false`` with tiers (Volcano's way).
"""

FOREIGN = "foreign"
FOREIGN_QUEUE = "queue"
"""Entry of ``configurations`` and its argument that name the queue for foreign pods.

Pods of other schedulers count in this queue, and may be evicted for groups of higher
priority there. Without it they are never evicted.
"""

MEASURE_INTERVAL = "30s"
"""Default interval between two measurements of loads (``metrics: {interval}``); Volcano's."""
METRICS = ("prometheus", "elasticsearch", "prometheus_adaptor")

_BY_STEM = {name.removeprefix("enabled").removeprefix("enable"): name for name in SWITCHES}


def canonical_switch(name: str) -> str | None:
    """Return the switch that ``name`` gives with either prefix; ``None`` if there is none."""
    for prefix in ("enabled", "enable"):
        if name.startswith(prefix):
            return _BY_STEM.get(name.removeprefix(prefix))
    return None


MAX_WEIGHT = 1 << 53
"""Maximum weight of a score, up to which sums of weighted scores remain distinct."""


@dataclass(frozen=True, slots=True)
class PluginOption:
    """A plugin of a tier. ``flags``: switches that the file gives, under canonical names."""

    name: str
    flags: Mapping[str, bool] = field(default_factory=dict)
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def enabled(self, switch: str) -> bool:
        """Return whether a switch is on: as the file states, or else by its default.

        Raise ``KeyError`` for an unknown switch.
        """
        default = SWITCHES[switch]
        return self.flags.get(switch, default)

    def weight(self, name: str, default: float) -> float:
        """Return an argument that is the weight of a score.

        Raise ``ValueError`` unless it is a number from 0 to :data:`MAX_WEIGHT`.
        """
        given = self.arguments.get(name, default)
        if isinstance(given, bool) or not isinstance(given, int | float) or not given >= 0:
            raise ValueError(f"{self.name}: {name} {given!r} is not a number of at least 0")
        if given > MAX_WEIGHT:
            raise ValueError(f"{self.name}: {name} {given!r} is more than {MAX_WEIGHT}")
        return float(given)


@dataclass(frozen=True, slots=True)
class PluginTier:
    plugins: tuple[PluginOption, ...] = ()


@dataclass(frozen=True, slots=True)
class SchedulerConfig:
    """Configuration of one scheduler.

    * ``actions``: in the order of execution; empty: those of the default policy.
    * ``tiers``: empty: the default policy, restricted to the actions.
    * ``plugins``: in addition to either.
    * ``configurations``: action → its arguments (``backfill``: :data:`RESERVATIONS`,
      :data:`AGING`, :data:`LEARNED`).
    * ``compatibility``: ``"volcano"`` requests Volcano's behavior where Windlass differs
      on purpose.
    * ``metrics``: source of measured loads, as texts: ``type`` (one of :data:`METRICS`),
      ``address``, ``interval``, and further arguments of the type.
    """

    actions: tuple[str, ...] = ()
    tiers: tuple[PluginTier, ...] = ()
    configurations: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    compatibility: str = ""
    plugins: tuple[PluginOption, ...] = ()
    metrics: Mapping[str, str] = field(default_factory=dict)


def foreign_queue(config: SchedulerConfig) -> str:
    """Return the queue in which pods of other schedulers count; ``""`` for none."""
    return str(config.configurations.get(FOREIGN, {}).get(FOREIGN_QUEUE, ""))


def measure_interval(metrics: Mapping[str, str]) -> float:
    """Return the seconds between two measurements of loads.

    A text that is not a duration counts as not given.
    """
    try:
        seconds = durations.parse(metrics.get("interval", MEASURE_INTERVAL))
    except ValueError:
        seconds = 0.0
    return seconds if seconds > 0 else durations.parse(MEASURE_INTERVAL)
