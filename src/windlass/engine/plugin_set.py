"""The plugins of an engine, sorted by what they do. Built once; the order given is kept."""

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
"""Classes, and how many of their tasks are on which row."""


@dataclass(frozen=True, slots=True)
class Scores:
    """The scores for pods of one dialect. ``weight``: the sum of the weights of ``static`` and ``row``."""

    static: tuple[spi.Score, ...]
    row: tuple[spi.Score, ...]
    relative: tuple[spi.RelativeScore, ...]
    outranking: tuple[spi.Score, ...]
    outranking_relative: tuple[spi.RelativeScore, ...]
    """Those that count more than whether room is free now or still being vacated."""
    weight: float
    reads_devices: bool
    """Whether what they say of a node depends on its cards, not on sums over them alone."""

    @staticmethod
    def of(dialect: Dialect, scores: Sequence[spi.Score], relative: Sequence[spi.RelativeScore]) -> Scores:
        own = [p for p in scores if speaks(p, dialect)]
        others = tuple(p for p in relative if speaks(p, dialect))
        return Scores(
            tuple(p for p in own if p.footprint is Footprint.STATIC),
            tuple(p for p in own if p.footprint is Footprint.ROW),
            others,
            tuple(p for p in own if getattr(p, "outranks_vacancy", False)),
            tuple(p for p in others if getattr(p, "outranks_vacancy", False)),
            sum(p.weight for p in own) or 1.0,
            any(getattr(p, "reads_devices", False) for p in own),
        )


def speaks(plugin: object, dialect: Dialect) -> bool:
    """Whether a policy has a word on pods of this dialect: all, where it names none."""
    dialects = getattr(plugin, "dialects", None)
    return dialects is None or dialect in dialects


def _ask_minds(plugin: object) -> Callable[[int], bool]:
    return plugin.is_interested if isinstance(plugin, spi.IsInterested) else _always


def _always(number: int) -> bool:
    return True


def _silent(plugin: object) -> bool:
    return bool(getattr(plugin, "silent", False))


def counts_terminating(plugin: spi.Domain) -> bool:
    """Whether a task that terminates is there to the policy until it is gone."""
    return bool(getattr(plugin, "counts_terminating", True))


class PluginSet:
    def __init__(self, plugins: Sequence[object]) -> None:
        self.plugins = tuple(plugins)
        filters = [p for p in plugins if isinstance(p, spi.Filter)]
        self.static_filters = [p for p in filters if p.footprint is Footprint.STATIC]
        self.row_filters = [p for p in filters if p.footprint is Footprint.ROW]
        self.capacities = [p for p in plugins if isinstance(p, spi.Capacity)]
        self.domains = [p for p in plugins if isinstance(p, spi.Domain)]
        self._domains = [(p, _ask_minds(p)) for p in self.domains]
        self.told = 0
        """Counts the times after which they may see classes with other eyes (:class:`spi.Minds`)."""
        self.learning = [p for p in plugins if isinstance(p, scoring.LearningScore)]
        self.remembering = [p for p in plugins if isinstance(p, scoring.RemembersState)]
        self.card_choices = [p for p in plugins if isinstance(p, DeviceChoice)]
        self.zone_books = next((p for p in plugins if isinstance(p, NumaAccounting)), None)
        self.varying = [p for p in plugins if isinstance(p, spi.TimeVarying)]
        self.blockers = [p for p in plugins if isinstance(p, spi.NodeBlockers)]
        self.static_blockers: list[spi.NodeBlockers] = [p for p in self.blockers if p in self.static_filters]
        scores = [p for p in plugins if isinstance(p, spi.Score) and p.weight > 0]
        relative = [p for p in plugins if isinstance(p, spi.RelativeScore) and p.weight > 0]
        self._every_score, self._relative = scores, relative
        self._relative_minds = {id(p): _ask_minds(p) for p in relative}
        self.hear_scores()
        self.queue_orders = [p for p in plugins if isinstance(p, spi.QueueOrder)]
        self.group_orders = [p for p in plugins if isinstance(p, spi.GroupOrder)]
        self.task_orders = [p for p in plugins if isinstance(p, spi.TaskOrder)]
        self.admissions = [p for p in plugins if isinstance(p, spi.Admit)]
        self.claims = [p for p in plugins if isinstance(p, victims.PreemptionPolicy)]
        self._grants: dict[tuple[str, Dialect], bool] = {}
        self._sort_victims(plugins)
        self.time_sharing = next((p for p in reversed(plugins) if isinstance(p, TimeSharing)), None)
        self.consenting = [p for p in plugins if isinstance(p, Permit)]
        self.in_rounds = [p for p in plugins if isinstance(p, CycleObserver)]
        self.shares_rows = not any(
            getattr(p, "reads_labels", False)
            for p in (
                *self.row_filters,
                *self.capacities,
                *(p for p in scores if p.footprint is Footprint.ROW),
            )
        )
        """Whether nodes with equal amounts may share an answer."""
        self.reads = frozenset(key for p in plugins if isinstance(p, spi.ReadsLabels) for key in p.reads)
        """The labels of pods that some policy looks at."""
        self.reads_images = any(p.reads_images for p in plugins if isinstance(p, spi.ReadsImages))
        """Whether some policy looks at container images."""
        self.other_capacities = [p for p in self.capacities if not getattr(p, "resources_only", False)]
        self.resources_only = len(self.other_capacities) < len(self.capacities)
        """Whether the engine counts by itself how often what a task asks for is available."""
        self.countable = not self.row_filters
        """Whether a gang may be placed by counting: no filter depends on a row's amounts but through
        its ``capacity``."""

    def _sort_victims(self, plugins: Sequence[object]) -> None:
        """Those that say who may be asked to go, and in which order."""
        self.victim_filters = [p for p in plugins if isinstance(p, victims.VictimFilter)]
        sparing = [p for p in self.victim_filters if not getattr(p, "protects_no_queue", False)]
        self.branch_filters = [p for p in sparing if isinstance(p, victims.QueueVictimFilter)]
        """Those that spare all queues of a branch of the tree, or none of them."""
        self.queue_filters = [p for p in sparing if not isinstance(p, victims.QueueVictimFilter)]
        self.victim_orders = [p for p in plugins if isinstance(p, victims.VictimOrder)]
        self._claim_readers = [p for p in self.victim_orders if isinstance(p, victims.VictimKeyInputs)]
        self.validations = [p for p in plugins if isinstance(p, victims.VictimSetRule)]
        self.offers_last = all(
            getattr(p, "lasting", False) for p in (*self.victim_filters, *self.victim_orders)
        )
        """Whether who may be taken, and in which order, changes with nothing but what is taken and queues' rules."""
        self.heeds_budgets = any(isinstance(p, TakesBudgets) for p in self.validations)
        """Whether some rule on what may go counts PodDisruptionBudgets."""

    def victim_key_inputs(self, preemption: victims.Preemption) -> Hashable:
        """What the order of units goes by beside the action, the queue, and its group's API and priority."""
        return tuple([plugin.victim_key_inputs(preemption) for plugin in self._claim_readers])

    def hear_scores(self) -> None:
        """Look again which scores have a word at all (:mod:`windlass.spi.scoring`)."""
        self.told += 1
        heard = [p for p in self._every_score if not _silent(p)]
        self._scores = {dialect: Scores.of(dialect, heard, self._relative) for dialect in Dialect}
        self.card_ranks = [p for p in self.plugins if isinstance(p, scoring.DeviceRanks) and not _silent(p)]

    def learn(self, number: int, needs: Needs, counted_by: Callable[[spi.Domain], Placed]) -> None:
        """A class of tasks appears. ``counted_by``: what is there already, as a policy counts it."""
        for plugin in self.domains:
            plugin.learn(number, needs, counted_by(plugin))
        self.told += 1

    def forget(self, number: int) -> None:
        """No task of the class is left."""
        for plugin in self.domains:
            plugin.forget(number)
        self.told += 1

    def minding(self, number: int) -> tuple[spi.Domain, ...]:
        """Those of :attr:`domains` to whom a class is not nothing, as long as :attr:`told` stays."""
        return tuple([p for p, minds in self._domains if minds(number)])

    def rankers(self, number: int, dialect: Dialect) -> tuple[spi.RelativeScore, ...]:
        """Those that may prefer one node to another for a class, as long as :attr:`told` stays."""
        return tuple([p for p in self.scores(dialect).relative if self._relative_minds[id(p)](number)])

    def scores(self, dialect: Dialect) -> Scores:
        """The scores that count for pods of a dialect."""
        return self._scores[dialect]

    def may_grant(self, action: str, dialect: Dialect) -> bool:
        """Whether anybody may grant anything to claims under that name of groups of that API."""
        known = self._grants.get((action, dialect))
        if known is None:
            words = [getattr(plugin, "may_grant", None) for plugin in self.claims]
            known = any(word is None or word(action, dialect) for word in words)
            self._grants[action, dialect] = known
        return known

    def rises(self, needs: Needs) -> bool:
        """Whether a node's score never falls as tasks of these needs are added to it."""
        return all(p.trend(needs) is spi.Trend.RISES for p in self.scores(needs.dialect).row)
