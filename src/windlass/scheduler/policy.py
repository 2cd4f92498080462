"""The engine of a configuration."""

from __future__ import annotations

import dataclasses

from windlass.engine.actions.registry import ACTIONS
from windlass.engine.config import EngineConfig
from windlass.engine.engine import Engine
from windlass.plugins import registry
from windlass.spi.configuration import BACKFILLS, RESERVATIONS, SchedulerConfig


def default_engine(config: EngineConfig | None = None) -> Engine:
    """An engine with the built-in policies."""
    return make_engine(SchedulerConfig(), base=config)


def make_engine(
    policy: SchedulerConfig, warn: registry.Warn | None = None, *, base: EngineConfig | None = None
) -> Engine:
    """An engine with the policies and actions of ``policy``, otherwise as ``base`` says.

    ``warn`` is told of each plugin that is left out. Raises :class:`registry.UnknownAction`.
    """
    plugins, actions = registry.build(policy, warn)
    known = tuple(action for action in actions if action in ACTIONS)
    arguments = policy.configurations.get("backfill", {})
    config = dataclasses.replace(
        base or EngineConfig(),
        actions=known,
        backfill=str(arguments.get(RESERVATIONS, BACKFILLS[0])),
        best_effort_apart="volcano-backfill" in known,
    )
    return Engine(config, plugins)
