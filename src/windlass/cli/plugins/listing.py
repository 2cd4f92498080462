"""Records of ``windlass plugin ls``: plugins that a scheduler configuration may name."""

from __future__ import annotations

from typing import Any

from windlass.api.errors import StatusError, WindlassError
from windlass.api.resources import CONFIG_MAPS
from windlass.cli.errors import unless_forbidden
from windlass.cli.invocation import Invocation
from windlass.model.engine_options import StatedOption
from windlass.model.scheduler_config import CONFIG_MAP_NAME
from windlass.plugins import arguments, registry
from windlass.plugins.extra_scores import ON_TOP
from windlass.plugins.volcano_catalogue import PLACEMENT
from windlass.spi.configuration import SchedulerConfig

TIER, ANYWHERE, DEFAULT = "tier", "on top or in a tier", "default policy"
"""Places of a plugin in a configuration."""


def policy_text(config: SchedulerConfig | None) -> str:
    """Return the policy in force in one line: actions, tiers and settings."""
    from windlass.model.scheduler_config import described

    return described(config) if config is not None else "the default policy"


def engine_options_of(invocation: Invocation) -> list[StatedOption]:
    """Return the engine options that ConfigMaps state; none without a server."""
    from windlass.model import engine_options

    fields = f"metadata.name={CONFIG_MAP_NAME}"
    try:
        found = unless_forbidden(lambda: invocation.client.list(CONFIG_MAPS, None, fields=fields).items, [])
    except (StatusError, WindlassError):
        return []
    return engine_options.of_config_maps(found)


def listed(config: SchedulerConfig | None) -> list[dict[str, Any]]:
    """Return a record of each plugin, by name. ``config``: the configuration in force."""
    packages = registry.third_party_plugins()
    on = _named_by(config)
    return [
        {
            "name": name,
            "from": packages.get(name, "windlass"),
            "place": _place(name, third_party=name in packages),
            "on": name in on,
            "arguments": ", ".join(arguments.KNOWN.get(name, ())),
        }
        for name in registry.known_plugins()
    ]


def _place(name: str, *, third_party: bool) -> str:
    if third_party or name in ON_TOP:
        return ANYWHERE
    return DEFAULT if name in PLACEMENT else TIER


def configuration_in_force(invocation: Invocation) -> SchedulerConfig | None:
    """Return the configuration in force; None for the default one, and without a server."""
    from windlass.cli.simulate import live_cluster
    from windlass.scheduler import configuration

    embedded = not invocation.target.remote
    try:
        text = live_cluster.policy_in_force(invocation.client, embedded)
        return configuration.parse(text, "the configuration in force").config if text else None
    except (StatusError, WindlassError):
        return None


def _named_by(config: SchedulerConfig | None) -> set[str]:
    if config is None:
        return set()
    in_tiers = [option.name for tier in config.tiers for option in tier.plugins]
    return {*in_tiers, *(option.name for option in config.plugins)}
