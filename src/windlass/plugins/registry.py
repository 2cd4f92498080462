"""Construction of an engine's policies and actions from a scheduler configuration.

Plugins are listed in ``default_node_plugins`` (default policy), ``extra_scores`` (added
by name) and ``volcano_catalogue`` (Volcano's tiers); this module only selects.

Without tiers the default policy runs, restricted to the named actions. With tiers
(Volcano's format) they apply to work in Volcano queues: orders, scores and votes come
from the file alone. Filters that make a placement possible at all (resources,
selectors, taints, ports, limits, …) always run, since a node would refuse the pod. Work
in KAI queues keeps its own policies in either case.

An unknown plugin is ignored with a warning; an unknown action is an error. Third
parties add plugins through the entry point group ``windlass.plugins``: name → a
callable that takes the :class:`~windlass.spi.configuration.PluginOption` and returns a
plugin or a list of plugins.
"""

from __future__ import annotations

import difflib
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import metadata

from windlass.plugins.defaults import default_plugins
from windlass.plugins.dialects import NOT_KAI, VOLCANO
from windlass.plugins.extra_scores import ON_TOP
from windlass.plugins.queue_api_filter import PreemptionPolicyFor, VictimsFor, limited_to_api
from windlass.plugins.volcano.evictions.bundles import Bundles
from windlass.plugins.volcano.jobs.task_order import TaskNumberOrder
from windlass.plugins.volcano.queues.step_admission import TierAdmission
from windlass.plugins.volcano.tiers import VolcanoTiers
from windlass.plugins.volcano_catalogue import CATALOGUE, PLACEMENT, Wiring
from windlass.spi import renamed
from windlass.spi.configuration import ACTIONS, PluginOption, PluginTier, SchedulerConfig
from windlass.spi.objects import Dialect
from windlass.spi.shares import Division
from windlass.spi.victims import PreemptionPolicy, VictimFilter

ENTRY_POINTS = "windlass.plugins"

DEFAULT_ACTIONS = (
    "allocate",
    "backfill",
    "consolidation",
    "reclaim",
    "preempt",
    "timeshare",
    "stalegangeviction",
)
"""Actions that run without a configuration."""

KAI_ACTIONS = ("consolidation", "reclaim", "preempt", "stalegangeviction")
"""Actions for KAI queues in addition to ``allocate``, independent of Volcano's
configuration."""

_OF_TIERS: Mapping[str, tuple[str, ...]] = {
    "enqueue": ("volcano-enqueue",),
    "backfill": ("volcano-backfill",),
    "preempt": ("volcano-preempt",),
    "reclaim": ("volcano-reclaim",),
    "gangpreempt": ("gangpreempt-surplus", "gangpreempt"),
    "gangreclaim": ("gangreclaim-surplus", "gangreclaim"),
    "shuffle": ("volcano-shuffle",),
}
"""Action of a file with tiers → actions of the engine, if they differ."""

_OF_DEFAULT = {"enqueue": "", "gangpreempt": "preempt", "gangreclaim": "reclaim", "shuffle": ""}
"""Action of a file without tiers → action of the default policy; empty: none."""

CONSOLIDATION = "consolidation"

Warn = Callable[[str], None]
Factory = Callable[[PluginOption], object]


class UnknownAction(ValueError):
    """Error: the configuration names an action that does not exist. Nothing of it may be used."""


def build(config: SchedulerConfig, warn: Warn | None = None) -> tuple[list[object], tuple[str, ...]]:
    """Return new policies for one engine, in order of precedence, and the names of its actions.

    :param warn: called for every ignored plugin; without it they are logged
    :raises UnknownAction: an action does not exist
    """
    warn = warn or logging.getLogger("windlass.scheduler").warning
    _check_actions(config.actions)
    tiers, extra = _tiers_of(config)
    wiring = Wiring(warn, compatibility=config.compatibility, metrics=config.metrics, actions=config.actions)
    added = [plugin for option in extra for plugin in _extra(option, wiring, warn)]
    if not tiers:
        return [*default_plugins(**wiring.placement), *added], _default_actions(config.actions)
    for tier in tiers:
        wiring.open_tier()
        for option in tier.plugins:
            _enter(option, wiring, warn)
    wiring.add(TaskNumberOrder())
    if not wiring.numa_aware:
        wiring.counting.zones.ignore_policies_of(Dialect.VOLCANO)
    return [*_base(config, wiring), *wiring.plugins, *_votes(config, wiring), *added], _tier_actions(
        config.actions
    )


def added(option: PluginOption, warn: Warn) -> list[object]:
    """Return the plugins of an option on top of a policy; empty if it is unknown or belongs into a tier.

    ``warn`` is called with the reason if there are none.
    """
    return _extra(option, Wiring(warn), warn)


def third_party_plugins() -> dict[str, str]:
    """Return the plugins of installed packages: name → ``module:attribute``."""
    return {point.name: point.value for point in _entry_points()}


def known_plugins() -> Sequence[str]:
    """Return the names that a configuration may use, including entry points, sorted."""
    return sorted({*CATALOGUE, *PLACEMENT, *ON_TOP, *(point.name for point in _entry_points())})


# ---------------------------------------------------------------------- helpers


def _check_actions(actions: Iterable[str]) -> None:
    for action in actions:
        if action not in ACTIONS:
            raise UnknownAction(f"action {action!r} does not exist; the actions are {', '.join(ACTIONS)}")


def _default_actions(actions: Sequence[str]) -> tuple[str, ...]:
    if not actions:
        return DEFAULT_ACTIONS
    return _named(_OF_DEFAULT.get(action, action) for action in actions)


def _tier_actions(actions: Sequence[str]) -> tuple[str, ...]:
    """Return the actions of the file, then those that KAI queues need in addition."""
    named = actions or ("enqueue", "allocate", "backfill")
    return _named([*(name for action in named for name in _OF_TIERS.get(action, (action,))), *KAI_ACTIONS])


def _named(actions: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(action for action in actions if action))


def _tiers_of(config: SchedulerConfig) -> tuple[tuple[PluginTier, ...], tuple[PluginOption, ...]]:
    """Return the tiers, and the options on top of the policy.

    Tiers with placement plugins only keep the default policy.
    """
    named = [option for tier in config.tiers for option in tier.plugins]
    if named and all(option.name in PLACEMENT for option in named):
        return (), (*named, *config.plugins)
    return config.tiers, config.plugins


def _base(config: SchedulerConfig, wiring: Wiring) -> list[object]:
    """Return the default policies: filters for every pod, orders and scores of other queues."""
    policies: list[object] = []
    divided = any(isinstance(plugin, Division) for plugin in wiring.plugins)
    for plugin in default_plugins(own_for_volcano=False, counting=wiring.counting, **wiring.placement):
        if getattr(plugin, "dialect", None) is not Dialect.VOLCANO:
            policies += limited_to_api(plugin, Dialect.VOLCANO, inside=False)
        elif isinstance(plugin, Division):
            policies += [] if divided else [plugin]
        elif isinstance(plugin, PreemptionPolicy | VictimFilter):
            policies += _for_consolidation(plugin) if CONSOLIDATION in config.actions else []
        else:
            policies += limited_to_api(plugin, Dialect.VOLCANO, inside=False)
    return policies


def _for_consolidation(plugin: object) -> list[object]:
    """Return Windlass' own rules, restricted to the consolidation action, which Volcano lacks."""
    policies: list[object] = (
        [PreemptionPolicyFor(plugin, CONSOLIDATION)] if isinstance(plugin, PreemptionPolicy) else []
    )
    return [*policies, VictimsFor(plugin, CONSOLIDATION)] if isinstance(plugin, VictimFilter) else policies


def _votes(config: SchedulerConfig, wiring: Wiring) -> list[object]:
    tiers = VolcanoTiers(
        wiring.tiers,
        arguments=config.configurations,
        gang_must_fit=wiring.gang_must_fit,
        actions=config.actions or ("enqueue", "allocate", "backfill"),
    )
    return [tiers, TierAdmission(tiers), Bundles(tiers, capacity=wiring.capacity)]


def _enter(option: PluginOption, wiring: Wiring, warn: Warn) -> None:
    factory = CATALOGUE.get(option.name)
    if factory is not None:
        factory(option, wiring)
        return
    if option.name in ON_TOP:
        if option.enabled("enableNodeOrder"):
            wiring.plugins += ON_TOP[option.name](option, VOLCANO)
        return
    plugins = _from_entry_point(option, warn)
    if plugins is None:
        warn(_unknown(option.name, [*CATALOGUE, *ON_TOP]))
        return
    for plugin in plugins:
        wiring.enter_any(plugin, option)


def _extra(option: PluginOption, wiring: Wiring, warn: Warn) -> list[object]:
    """Return the plugins of an option on top of the policy. They apply to all pods."""
    if option.name in PLACEMENT:
        PLACEMENT[option.name](option, wiring)
        return []
    if option.name in ON_TOP:
        return ON_TOP[option.name](option, NOT_KAI)
    plugins = _from_entry_point(option, warn)
    if plugins is not None:
        return plugins
    if option.name in CATALOGUE:
        warn(f"plugin {option.name!r} is ignored: it belongs into a tier")
    else:
        warn(_unknown(option.name, [*PLACEMENT, *ON_TOP]))
    return []


def _unknown(name: str, known: Iterable[str]) -> str:
    similar = difflib.get_close_matches(name, [*known, *(point.name for point in _entry_points())], n=1)
    return f"plugin {name!r} is unknown and ignored" + (f"; did you mean {similar[0]}?" if similar else "")


def _entry_points() -> Iterable[metadata.EntryPoint]:
    return metadata.entry_points(group=ENTRY_POINTS)


def _from_entry_point(option: PluginOption, warn: Warn) -> list[object] | None:
    """Return the policies of a third party's factory; ``None`` if there is none of that name."""
    for point in _entry_points():
        if point.name == option.name:
            factory: Factory = point.load()
            made = factory(option)
            plugins = list(made) if isinstance(made, list | tuple) else [made]
            for plugin in plugins:
                _accept_old_hooks(option.name, plugin, warn)
            return plugins
    return None


def _accept_old_hooks(name: str, plugin: object, warn: Warn) -> None:
    accepted = renamed.accept_old_hooks(plugin)
    if accepted:
        names = ", ".join(f"{old} (now {new})" for old, new in accepted.items())
        warn(f"plugin {name!r} implements names that the next version does not read: {names}")
