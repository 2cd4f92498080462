"""The engine as the service runs it without a configuration."""

from __future__ import annotations

from windlass.engine.config import EngineConfig
from windlass.engine.engine import Engine
from windlass.plugins.defaults import default_plugins


def default_engine(config: EngineConfig | None = None) -> Engine:
    """An engine with the built-in policies."""
    return Engine(config or EngineConfig(), default_plugins())
