"""Tiered configurations in few words, and what comes of a cycle."""

from __future__ import annotations

from typing import Any

from windlass.engine.decision import Decision
from windlass.spi.configuration import PluginOption, PluginTier, SchedulerConfig
from windlass.testing import Scene
from windlass.testing.scene import GPU, NAMESPACE

SHIPPED = "priority gang- conformance | overcommit drf- predicates proportion nodeorder binpack"
"""Volcano's shipped tiers; a dash switches ``enablePreemptable`` off."""


BINPACK = {"binpack.resources": GPU, "binpack.resources.nvidia.com/gpu": 10}


def config(
    actions: str, tiers: str = SHIPPED, *, compatibility: str = "", **arguments: Any
) -> SchedulerConfig:
    """``"a b- | c"``; arguments by plugin name (or action name) with underscores for dashes."""
    told = {name.replace("_", "-"): value for name, value in arguments.items()}
    found = []
    for tier in tiers.split("|"):
        options = []
        for word in tier.split():
            name = word.rstrip("-")
            flags = {"enablePreemptable": False} if word.endswith("-") else {}
            options.append(PluginOption(name, flags, told.get(name, {})))
        found.append(PluginTier(tuple(options)))
    wanted = tuple(actions.split())
    configurations = {name: told[name] for name in wanted if name in told}
    return SchedulerConfig(wanted, tuple(found), configurations, compatibility)


def evicted(decision: Decision) -> list[str]:
    return sorted(e.task.removeprefix(f"{NAMESPACE}/") for e in decision.evictions)


def quiet(scene: Scene, cycles: int = 5) -> None:
    """Nothing more happens."""
    for _ in range(cycles):
        decision = scene.cycle()
        assert (decision.binds, decision.evictions, decision.nominations) == ((), (), ())
