"""Old names of the plugin surface, accepted with a warning for one version.

The tables map the names of the first release candidates to those of today. Each use of
an old name warns with :class:`DeprecationWarning` and states the new one. The next
version removes this module and all its uses.

* :data:`MODULES`: modules that moved. An import of the old path returns the new module.
* :data:`NAMES`: classes, functions and constants by module (:func:`old_names`).
* :data:`ATTRIBUTES`: attributes and methods that plugins read (:func:`attributes`).
* :data:`HOOKS`: methods and attributes that plugins implement (:func:`accept_old_hooks`).
"""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar, cast

if TYPE_CHECKING:
    from importlib.abc import Loader

_ROOM = "windlass.spi"
_Class = TypeVar("_Class", bound=type)

MODULES: Mapping[str, str] = {
    "budgets": "inputs",
    "loads": "inputs",
    "standing": "views",
    "waiting": "inputs",
}
"""Old module → new module."""

NAMES: Mapping[str, Mapping[str, str]] = {
    "configuration": {
        "HEAVIEST": "MAX_WEIGHT",
        "MEASURED_EVERY": "MEASURE_INTERVAL",
        "Tier": "PluginTier",
        "measured_every": "measure_interval",
    },
    "consent": {"Consents": "Permit", "Outcome": "ProposedDecision", "Rounds": "CycleObserver"},
    "devices": {
        "CardChoice": "DeviceChoice",
        "CardMode": "DeviceMode",
        "CardState": "CandidateDevice",
        "CardView": "DeviceView",
        "Draws": "ConsumedCounters",
        "Joint": "JointDeviceNeed",
    },
    "extender": {
        "Consultant": "ExtenderClient",
        "Hooks": "ExtenderEndpoints",
        "Matter": "ExtenderCall",
        "NoReply": "ExtenderUnavailable",
        "NodeJudge": "NodeExtender",
        "Opinion": "NodeVerdict",
        "Question": "ExtenderRequest",
        "Reply": "ExtenderReply",
        "TakesConsultant": "TakesExtenderClient",
        "TakesJudge": "TakesNodeExtender",
    },
    "inputs": {
        "HearsBudgets": "TakesBudgets",
        "HearsWaiting": "TakesPendingTasks",
        "Waiting": "PendingTasks",
    },
    "numa": {
        "MOST_ZONES": "MAX_NUMA_ZONES",
        "NodeZones": "NumaTopology",
        "Zone": "NumaZone",
        "ZoneBooks": "NumaAccounting",
        "ZoneHolding": "NumaHolding",
        "ZoneNeed": "NumaNeed",
    },
    "objects": {"Past": "AttainedService", "RoleWishes": "RolePreferences"},
    "plugins": {
        "Admits": "Admit",
        "Concerns": "AdmitUnconditionally",
        "Finding": "NodeBlocker",
        "Findings": "NodeBlockers",
        "Minds": "IsInterested",
        "Overheard": "Listeners",
        "Reads": "ReadsLabels",
        "Refusal": "Rejection",
        "Stepwise": "PlacementEffect",
        "Varies": "TimeVarying",
        "plain_due": "include_flavors",
        "unfilled": "unfilled_guarantee",
    },
    "scoring": {
        "CardKinds": "DeviceKinds",
        "CardRanker": "DeviceRanker",
        "CardRanks": "DeviceRanks",
        "CardScorer": "DeviceScorer",
        "Learns": "LearningScore",
        "NodeCards": "NodeDevices",
        "PlainCardRanks": "PlainDeviceRanks",
        "PlainCardScore": "PlainDeviceScore",
        "Remembers": "RemembersState",
        "Stock": "ClusterTotals",
    },
    "shares": {"Cause": "ShareCause", "Part": "SharePart", "Share": "QueueShare"},
    "tiers": {
        "Admission": "EnqueueRequest",
        "Admitting": "JobEnqueueable",
        "Allots": "Allocatable",
        "Claims": "PreemptionVote",
        "Evicts": "VictimTasks",
        "HearsAdmitted": "JobEnqueued",
        "Overuse": "Overused",
        "Relief": "LoadRelief",
        "Relieves": "RelievesLoad",
        "SaysWhy": "EvictionReason",
        "Spares": "Evictable",
        "Starves": "JobStarving",
        "VictimQueues": "VictimQueueOrder",
    },
    "timeshare": {
        "Counting": "PersistentCounts",
        "Counts": "RunTimeCounts",
        "Crowd": "QueueContention",
        "Stint": "RunSegment",
    },
    "victims": {
        "Claim": "Preemption",
        "Claims": "PreemptionPolicy",
        "Denied": "PreemptionDenied",
        "GoesBy": "VictimKeyInputs",
        "Loot": "FreedResources",
        "Move": "RelocationMode",
        "Rival": "CompetingGroup",
        "Scope": "VictimScope",
        "SparesBranches": "QueueVictimFilter",
        "Standing": "HeldAtStart",
        "Terms": "PreemptionTerms",
        "Validates": "VictimSetRule",
        "VictimUnit": "VictimSet",
        "no_rivals": "no_competitors",
    },
    "views": {"plain_due": "include_flavors", "unfilled": "unfilled_guarantee"},
}
"""Module → old name → new name."""

ATTRIBUTES: Mapping[str, Mapping[str, str]] = {
    "CandidateDevice": {"keeps": "slices_left"},
    "ClusterTotals": {"cards": "devices", "parts_wanted": "shares_requested"},
    "DeviceOption": {"part_by_card": "share_by_device"},
    "DeviceRule": {"by_card": "by_device"},
    "EnqueueRequest": {
        "booked": "reserved",
        "cluster_booked": "cluster_reserved",
        "namespace_booked": "namespace_reserved",
    },
    "ExtenderEndpoints": {"concerned": "applies_to"},
    "ExtenderReply": {"refusal": "rejection"},
    "ExtenderRequest": {"matter": "call", "seats": "placements"},
    "FreedResources": {"going": "all_sets", "units": "victim_sets"},
    "GangView": {"asked": "requested", "promised_members": "nominated_members"},
    "GroupView": {"asked": "requested"},
    "NodeExtender": {"learned": "has_news", "opinions": "verdicts"},
    "NodeVerdict": {"refusal": "rejection"},
    "NodeView": {"cards": "devices", "coming": "future_available"},
    "Preemption": {"extra": "elastic", "rivals": "competitors", "standing": "held_at_start"},
    "ProposedDecision": {"going": "evicted"},
    "QueueView": {"promised": "nominated"},
    "RunSegment": {"again": "resumed"},
    "StepView": {"extra": "elastic", "standing": "usage_of"},
    "Tiers": {"allots": "may_allocate", "may_claim": "may_reclaim"},
    "VictimSet": {"core": "is_minimum", "spare": "elastic_members"},
}
"""Class or Protocol → old attribute → new attribute.

Classes of the engine that implement one of these Protocols name it
(``attributes_of("QueueView")``).
"""

HOOKS: Sequence[Mapping[str, str]] = (
    {"findings": "blockers"},
    {"minds": "is_interested"},
    {"listens": "listens_to"},
    {"heard_by": "listeners"},
    {"opines": "has_preference"},
    {"concerns": "may_reject"},
    {"amounts_decide": "resources_only"},
    {"reads_cards": "reads_devices"},
    {"plain_cards": "plain_devices"},
    {"take_stock": "learn_from"},
    {"claims": "preemption_terms"},
    {"spares_queue": "protects_queue", "spares": "protects_victim"},
    {"spares_branch": "protects_branch"},
    {"spares_no_queue": "protects_no_queue"},
    {"spared_until": "protected_until"},
    {"goes_by": "victim_key_inputs"},
    {"heeds": "demand_matters"},
    {"may_claim": "may_reclaim"},
    {"allots": "may_allocate"},
    {"protects": "ignores_preemptor"},
    {"consents": "permit"},
    {"ended": "finished"},
    {"hear_budgets": "take_budgets"},
    {"hear_waiting": "take_pending_tasks"},
    {"hooks": "endpoints", "take_judge": "take_node_extender"},
    {"hooks": "endpoints", "take_consultant": "take_extender_client"},
)
"""Old name → new name of what a plugin implements; names in one mapping belong together."""


def _warn(old: str, new: str, *, stacklevel: int) -> None:
    warnings.warn(
        f"{old} is deprecated: use {new}. The next version removes the old name.",
        DeprecationWarning,
        stacklevel=stacklevel + 1,
    )


# ---------------------------------------------------------------------- modules and names


def old_names(module: str, names: Mapping[str, str] | None = None) -> Callable[[str], Any]:
    """Return ``__getattr__`` for a module, which resolves its old names.

    ``names``: old name → new name; by default those of :data:`NAMES`.
    """
    names = NAMES.get(module.rpartition(".")[2], {}) if names is None else names

    def __getattr__(name: str) -> Any:
        new = names.get(name)
        if new is None:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        _warn(f"{module}.{name}", f"{module}.{new}", stacklevel=2)
        return getattr(sys.modules[module], new)

    return __getattr__


class _OldModule:
    """Loader of a module that forwards all names to the new module.

    The loader and the finder have no base class from ``importlib.abc``, because its
    import slows the start of every command that reads the plugin surface.
    """

    def __init__(self, new: str) -> None:
        self._new = new

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        new = importlib.import_module(self._new)
        module.__doc__ = new.__doc__
        setattr(module, "__getattr__", lambda name: getattr(new, name))  # noqa: B010


class _OldModules:
    """Finder of modules under their old paths."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        room, _, name = fullname.rpartition(".")
        if room != _ROOM or name not in MODULES:
            return None
        new = f"{_ROOM}.{MODULES[name]}"
        _warn(f"module {fullname}", new, stacklevel=2)
        return ModuleSpec(fullname, cast("Loader", _OldModule(new)))


def find_old_modules() -> None:
    """Make old module paths importable."""
    if not any(isinstance(finder, _OldModules) for finder in sys.meta_path):
        sys.meta_path.append(_OldModules())


# ---------------------------------------------------------------------- attributes


def attributes(cls: _Class) -> _Class:
    """Decorate a class of :data:`ATTRIBUTES`: old attributes return the values of the new ones."""
    return attributes_of(cls.__name__)(cls)


def attributes_of(*names: str) -> Callable[[_Class], _Class]:
    """Return a decorator for a class that implements Protocols of :data:`ATTRIBUTES`."""

    def decorate(cls: _Class) -> _Class:
        for name in names:
            for old, new in ATTRIBUTES[name].items():
                setattr(cls, old, _old_attribute(name, old, new))
        return cls

    return decorate


def _old_attribute(owner: str, old: str, new: str) -> property:
    def read(self: object) -> Any:
        _warn(f"{owner}.{old}", f"{owner}.{new}", stacklevel=2)
        return getattr(self, new)

    return property(read, doc=f"Old name of ``{new}``.")


# ---------------------------------------------------------------------- hooks


def accept_old_hooks(plugin: object) -> Mapping[str, str]:
    """Give the plugin new names for what it implements under old ones; return them by old name.

    A mapping of :data:`HOOKS` applies if the plugin implements each of its names, old or
    new. Names that the plugin has already are left alone.
    """
    accepted: dict[str, str] = {}
    for hooks in HOOKS:
        if not all(_implements(plugin, old) or _implements(plugin, new) for old, new in hooks.items()):
            continue
        for old, new in hooks.items():
            if not _implements(plugin, new):
                _warn(f"{type(plugin).__name__}.{old}", new, stacklevel=2)
                _alias(plugin, old, new)
                accepted[old] = new
    return accepted


def _implements(plugin: object, name: str) -> bool:
    """Return whether the plugin has the name, other than as the stub of a Protocol."""
    for owner in type(plugin).__mro__:
        if name in vars(owner):
            return not owner.__module__.startswith(_ROOM)
    return hasattr(plugin, name)


def _alias(plugin: object, old: str, new: str) -> None:
    owner = type(plugin)
    if hasattr(owner, old):
        setattr(owner, new, getattr(owner, old))
    else:
        setattr(plugin, new, getattr(plugin, old))
