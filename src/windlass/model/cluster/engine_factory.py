"""Factory of engines from a configuration."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any

from windlass.engine.config import EngineConfig
from windlass.engine.engine import Engine
from windlass.kits import durations
from windlass.plugins import registry
from windlass.plugins.argument_values import duration
from windlass.plugins.kai.fair_share import KaiDivision
from windlass.spi.configuration import AGING, BACKFILLS, DEFAULT_AGING, RESERVATIONS, SchedulerConfig

_OF_ALLOCATE = ("backfill",)
"""Actions of the default policy that ``allocate`` performs (``EngineConfig.backfill``)."""


def default_engine() -> Engine:
    """Return an engine with the built-in policies."""
    return make_engine(SchedulerConfig())


def make_engine(
    policy: SchedulerConfig,
    warn: registry.Warn | None = None,
    *,
    base: EngineConfig | None = None,
    more: Sequence[object] = (),
) -> Engine:
    """Return an engine with the policies and actions of ``policy``; other settings are ``base``.

    ``warn`` is called for each plugin that is left out. ``more``: plugins in addition to
    those of the configuration. Raises :class:`registry.UnknownAction`.
    """
    plugins, actions = registry.build(policy, warn)
    plugins += more
    known = tuple(action for action in actions if action not in _OF_ALLOCATE)
    arguments = policy.configurations.get("backfill", {})
    config = dataclasses.replace(
        base or EngineConfig(),
        actions=known,
        backfill=str(arguments.get(RESERVATIONS, BACKFILLS[0])),
        aging_seconds=durations.parse(str(arguments.get(AGING, "0s" if policy.tiers else DEFAULT_AGING))),
        best_effort_apart="volcano-backfill" in known,
        usage_half_life_seconds=_past_usage(policy.configurations.get("usage", {}), plugins),
    )
    return Engine(config, plugins)


def _past_usage(arguments: Mapping[str, Any], plugins: Iterable[object]) -> float:
    """Apply the settings of ``configurations: usage``. Return the half-life in seconds.

    Raises ``ValueError`` for an invalid value.
    """
    try:
        k_value = Fraction(str(arguments.get("kValue", 1)))
    except ValueError:
        k_value = Fraction(-1)
    if k_value < 0:
        raise ValueError(f"usage: kValue {arguments['kValue']!r} is not a number of at least 0")
    for plugin in plugins:
        if isinstance(plugin, KaiDivision):
            plugin.k_value = k_value
    if "halfLife" not in arguments:
        return 0.0
    half_life = duration(arguments["halfLife"])
    if half_life is None or half_life <= 0:
        raise ValueError(f"usage: halfLife {arguments['halfLife']!r} is not a duration such as 168h")
    return half_life
