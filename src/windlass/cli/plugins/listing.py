"""Records of ``windlass plugin ls``: plugins that a scheduler configuration may name."""

from __future__ import annotations

from typing import Any

from windlass.api.errors import StatusError, WindlassError
from windlass.cli.invocation import Invocation
from windlass.plugins import arguments, registry
from windlass.plugins.extra_scores import ON_TOP
from windlass.plugins.volcano_catalogue import PLACEMENT

TIER, ANYWHERE, DEFAULT = "tier", "on top or in a tier", "default policy"
"""Places of a plugin in a configuration."""


def listed(invocation: Invocation) -> list[dict[str, Any]]:
    """Return a record of each plugin, by name."""
    packages = registry.third_party_plugins()
    on = _named_by_configuration(invocation)
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


def _named_by_configuration(invocation: Invocation) -> set[str]:
    """Return the plugins that the configuration in force names; empty without a server."""
    from windlass.cli.simulate import live_cluster
    from windlass.scheduler import configuration

    embedded = not invocation.target.remote
    try:
        text = live_cluster.policy_in_force(invocation.client, embedded)
        config = configuration.parse(text, "the configuration in force").config if text else None
    except (StatusError, WindlassError):
        return set()
    if config is None:
        return set()
    in_tiers = [option.name for tier in config.tiers for option in tier.plugins]
    return {*in_tiers, *(option.name for option in config.plugins)}
