"""Plugins of an engine by extension point, in the given order."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from windlass.spi import plugins as spi
from windlass.spi import scoring, victims
from windlass.spi.consent import CycleObserver, Permit
from windlass.spi.devices import DeviceChoice
from windlass.spi.inputs import TakesBudgets
from windlass.spi.numa import NumaAccounting
from windlass.spi.objects import Dialect, Needs
from windlass.spi.plugins import Footprint
from windlass.spi.timeshare import TimeSharing

Placed = Iterable[tuple[int, Mapping[int, int]]]
"""Class numbers with the number of their tasks per row."""


@dataclass(frozen=True, slots=True)
class Scores:
    """Scores for pods of one API. ``weight``: total weight of ``static`` and ``row``."""

    static: tuple[spi.Score, ...]
    row: tuple[spi.Score, ...]
    relative: tuple[spi.RelativeScore, ...]
    outranking: tuple[spi.Score, ...]
    outranking_relative: tuple[spi.RelativeScore, ...]
    """Scores that precede the preference of free capacity over capacity being released."""
    weight: float
    reads_devices: bool
    """True if a score reads single devices of a node, not only sums over them."""

    @staticmethod
    def of(dialect: Dialect, scores: Sequence[spi.Score], relative: Sequence[spi.RelativeScore]) -> Scores:
        own = [p for p in scores if supports(p, dialect)]
        own_relative = tuple(p for p in relative if supports(p, dialect))
        return Scores(
            tuple(p for p in own if p.footprint is Footprint.STATIC),
            tuple(p for p in own if p.footprint is Footprint.ROW),
            own_relative,
            tuple(p for p in own if getattr(p, "outranks_vacancy", False)),
            tuple(p for p in own_relative if getattr(p, "outranks_vacancy", False)),
            sum(p.weight for p in own) or 1.0,
            any(getattr(p, "reads_devices", False) for p in own),
        )


def supports(plugin: object, dialect: Dialect) -> bool:
    """Return whether a plugin applies to pods of this API. One that names no API applies to all."""
    dialects = getattr(plugin, "dialects", None)
    return dialects is None or dialect in dialects


def _interest_of(plugin: object) -> Callable[[int], bool]:
    return plugin.is_interested if isinstance(plugin, spi.IsInterested) else _always


def _always(number: int) -> bool:
    return True


def _is_silent(plugin: object) -> bool:
    return bool(getattr(plugin, "silent", False))


def counts_terminating(plugin: spi.Domain) -> bool:
    """Return whether a terminating task still counts for the plugin."""
    return bool(getattr(plugin, "counts_terminating", True))


class PluginSet:
    """Plugins sorted by extension point. Built once."""

    def __init__(self, plugins: Sequence[object]) -> None:
        self.plugins = tuple(plugins)
        filters = [p for p in plugins if isinstance(p, spi.Filter)]
        self.static_filters = [p for p in filters if p.footprint is Footprint.STATIC]
        self.row_filters = [p for p in filters if p.footprint is Footprint.ROW]
        self.capacities = [p for p in plugins if isinstance(p, spi.Capacity)]
        self.domains = [p for p in plugins if isinstance(p, spi.Domain)]
        self._domains = [(p, _interest_of(p)) for p in self.domains]
        self.version = 0
        """Version of the interest of plugins in classes (:class:`spi.IsInterested`)."""
        self.learning = [p for p in plugins if isinstance(p, scoring.LearningScore)]
        self.remembering = [p for p in plugins if isinstance(p, scoring.RemembersState)]
        self.device_choices = [p for p in plugins if isinstance(p, DeviceChoice)]
        self.numa_accounting = next((p for p in plugins if isinstance(p, NumaAccounting)), None)
        self.varying = [p for p in plugins if isinstance(p, spi.TimeVarying)]
        self.blockers = [p for p in plugins if isinstance(p, spi.NodeBlockers)]
        self.static_blockers: list[spi.NodeBlockers] = [p for p in self.blockers if p in self.static_filters]
        scores = [p for p in plugins if isinstance(p, spi.Score) and p.weight > 0]
        relative = [p for p in plugins if isinstance(p, spi.RelativeScore) and p.weight > 0]
        self._every_score, self._relative = scores, relative
        self._relative_interest = {id(p): _interest_of(p) for p in relative}
        self.update_scores()
        self.queue_orders = [p for p in plugins if isinstance(p, spi.QueueOrder)]
        self.group_orders = [p for p in plugins if isinstance(p, spi.GroupOrder)]
        self.task_orders = [p for p in plugins if isinstance(p, spi.TaskOrder)]
        self.admissions = [p for p in plugins if isinstance(p, spi.Admit)]
        self.preemption_policies = [p for p in plugins if isinstance(p, victims.PreemptionPolicy)]
        self._grants: dict[tuple[str, Dialect], bool] = {}
        self._sort_victims(plugins)
        self.time_sharing = next((p for p in reversed(plugins) if isinstance(p, TimeSharing)), None)
        self.permits = [p for p in plugins if isinstance(p, Permit)]
        self.cycle_observers = [p for p in plugins if isinstance(p, CycleObserver)]
        self.shares_rows = not any(
            getattr(p, "reads_labels", False)
            for p in (
                *self.row_filters,
                *self.capacities,
                *(p for p in scores if p.footprint is Footprint.ROW),
            )
        )
        """True if nodes with equal resources may share results."""
        self.reads = frozenset(key for p in plugins if isinstance(p, spi.ReadsLabels) for key in p.reads)
        """Labels of pods that a plugin reads."""
        self.reads_images = any(p.reads_images for p in plugins if isinstance(p, spi.ReadsImages))
        """True if a plugin reads container images."""
        self.other_capacities = [p for p in self.capacities if not getattr(p, "resources_only", False)]
        self.resources_only = len(self.other_capacities) < len(self.capacities)
        """True if the engine itself counts how often the requested resources are available."""
        self.countable = not self.row_filters
        """True if a gang may be placed by counting.

        No filter then depends on the resources of a row except through its
        ``capacity``.
        """

    def _sort_victims(self, plugins: Sequence[object]) -> None:
        """Sort the plugins that protect, order or validate victims."""
        self.victim_filters = [p for p in plugins if isinstance(p, victims.VictimFilter)]
        sparing = [p for p in self.victim_filters if not getattr(p, "protects_no_queue", False)]
        self.branch_filters = [p for p in sparing if isinstance(p, victims.QueueVictimFilter)]
        """Filters that protect all queues of a branch of the tree, or none of them."""
        self.queue_filters = [p for p in sparing if not isinstance(p, victims.QueueVictimFilter)]
        self.relocation_filters = [p for p in plugins if isinstance(p, victims.RelocationFilter)]
        self.victim_orders = [p for p in plugins if isinstance(p, victims.VictimOrder)]
        self._victim_key_readers = [p for p in self.victim_orders if isinstance(p, victims.VictimKeyInputs)]
        self.validations = [p for p in plugins if isinstance(p, victims.VictimSetRule)]
        self.victims_are_lasting = all(
            getattr(p, "lasting", False) for p in (*self.victim_filters, *self.victim_orders)
        )
        """True if candidates and their order change only with evictions and rules of queues."""
        self.uses_budgets = any(isinstance(p, TakesBudgets) for p in self.validations)
        """True if a victim rule counts PodDisruptionBudgets."""

    def victim_key_inputs(self, preemption: victims.Preemption) -> Hashable:
        """Return further inputs of the victim order.

        The known inputs are the action, the queue, and the API and priority of its
        group.
        """
        return tuple([plugin.victim_key_inputs(preemption) for plugin in self._victim_key_readers])

    def update_scores(self) -> None:
        """Update the set of scores that are not silent (:mod:`windlass.spi.scoring`)."""
        self.version += 1
        effective = [p for p in self._every_score if not _is_silent(p)]
        self._scores = {dialect: Scores.of(dialect, effective, self._relative) for dialect in Dialect}
        self.device_ranks = [
            p for p in self.plugins if isinstance(p, scoring.DeviceRanks) and not _is_silent(p)
        ]

    def learn(self, number: int, needs: Needs, counted_by: Callable[[spi.Domain], Placed]) -> None:
        """Announce a new task class to domain plugins. ``counted_by``: tasks that each one counts."""
        for plugin in self.domains:
            plugin.learn(number, needs, counted_by(plugin))
        self.version += 1

    def forget(self, number: int) -> None:
        """Announce to domain plugins that a class has no tasks left."""
        for plugin in self.domains:
            plugin.forget(number)
        self.version += 1

    def interested(self, number: int) -> tuple[spi.Domain, ...]:
        """Return the domain plugins that are interested in a class, valid for this :attr:`version`."""
        return tuple([p for p, minds in self._domains if minds(number)])

    def rankers(self, number: int, dialect: Dialect) -> tuple[spi.RelativeScore, ...]:
        """Return the relative scores that may rank nodes for a class, valid for this
        :attr:`version`.
        """
        return tuple([p for p in self.scores(dialect).relative if self._relative_interest[id(p)](number)])

    def scores(self, dialect: Dialect) -> Scores:
        """Return the scores for pods of an API."""
        return self._scores[dialect]

    def may_grant(self, action: str, dialect: Dialect) -> bool:
        """Return whether a plugin may grant preemptions of this action to groups of this API."""
        grants = self._grants.get((action, dialect))
        if grants is None:
            answers = [getattr(plugin, "may_grant", None) for plugin in self.preemption_policies]
            grants = any(answer is None or answer(action, dialect) for answer in answers)
            self._grants[action, dialect] = grants
        return grants

    def score_never_falls(self, needs: Needs) -> bool:
        """Return whether a node's score never falls as tasks of these needs are added to it."""
        return all(p.trend(needs) is spi.Trend.RISES for p in self.scores(needs.dialect).row)
