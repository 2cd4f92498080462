"""State of one scrape: looked up once, for the metrics of all names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from windlass.api.quantities import scale
from windlass.api.reasons import FACTS
from windlass.engine.core import Core
from windlass.model.cluster.cluster_model import ClusterModel
from windlass.model.cluster.node_usage import NodeUsage
from windlass.model.groups.podgroups import shown_key
from windlass.observe.scheduling import SchedulerMetrics
from windlass.scheduler.observability.group_counters import GroupCounters
from windlass.scheduler.observability.lifecycle import ADMITTED, QUEUED
from windlass.scheduler.status.pending_groups import PendingGroups

Resources = Mapping[str, float]
"""Resource → value in base units."""


@dataclass(frozen=True, slots=True)
class Sources:
    """Places where a scheduler's metrics are kept.

    ``now()``: Unix seconds. ``details``: what is exported one by one
    (:data:`windlass.scheduler.compat_metrics.families.DETAILS`).
    """

    metrics: SchedulerMetrics
    model: ClusterModel
    counters: GroupCounters
    pending: PendingGroups
    node_usage: NodeUsage
    engine: Callable[[], Core]
    now: Callable[[], float]
    details: Collection[str] = ()


@dataclass(slots=True)
class ScrapedQueue:
    """State of a queue.

    ``resources``: state → resource → value. ``phases``: phase → number of groups.
    ``parent`` and
    ``children``: names of queues.
    """

    name: str
    resources: Mapping[str, Resources]
    parent: str = ""
    children: tuple[str, ...] = ()
    phases: Counter[str] = field(default_factory=Counter)
    inqueue: dict[str, float] = field(default_factory=dict)
    weight: int | None = None
    state: str = "Open"
    real_capacity: Resources = field(default_factory=dict)

    def of(self, state: str) -> Resources:
        """Return the resources in a state, such as ``allocated``."""
        return self.resources.get(state, {})

    @property
    def pending(self) -> dict[str, float]:
        """Requested and not allocated resources."""
        allocated = self.of("allocated")
        return {
            name: max(0.0, requested - allocated.get(name, 0.0))
            for name, requested in self.of("requested").items()
        }

    @property
    def share(self) -> float:
        """Volcano's share: the largest fraction of a deserved resource that is allocated.

        It is 1 if a resource is allocated of which nothing is deserved.
        """
        deserved = self.of("deserved")
        fractions = [
            allocated / deserved[name] if deserved[name] > 0 else float(allocated > 0)
            for name, allocated in self.of("allocated").items()
            if name in deserved
        ]
        return max(fractions, default=0.0)

    def number(self, *phases: str) -> int:
        """Return the number of groups in these phases."""
        return sum(self.phases[phase] for phase in phases)


class Scrape:
    """State at the time of a scrape, valid until anything changes."""

    def __init__(self, sources: Sources) -> None:
        self.sources = sources
        self.own = sources.metrics
        self.model = sources.model
        self.counters = sources.counters

    @cached_property
    def queues(self) -> dict[str, ScrapedQueue]:
        """Queues by the engine's names, as far as a cycle has reported them."""
        entries = self.sources.engine().state.queues.entries
        queues = {}
        for name, resources in self.own.figures.items():
            queue = queues[name] = ScrapedQueue(name, resources)
            entry = entries.get(name)
            if entry is not None:
                queue.parent = entry.parent.name if entry.parent is not None else ""
                queue.children = tuple(sorted(entry.children))
                queue.real_capacity = _base_units(entry.share.real_capability)
        for name, view in self.model.objects.queues.items():
            if name in queues:
                queues[name].weight = view.weight
                queues[name].state = "Deleted" if view.deleted else view.state or "Open"
        self._count_groups(queues)
        return queues

    def _count_groups(self, queues: Mapping[str, ScrapedQueue]) -> None:
        model = self.model
        for key, group in model.objects.groups.items():
            queue = queues.get(group.queue or "default")
            if queue is None or not model.groups.known(key):
                continue
            phase = group.phase or "Pending"
            queue.phases[phase] += 1
            if phase == "Inqueue":
                for name, value in _base_units(group.min_resources).items():
                    queue.inqueue[name] = queue.inqueue.get(name, 0.0) + value

    @cached_property
    def pods(self) -> Counter[str]:
        """Number of this scheduler's pods: ``bound``, ``gated``, ``waiting``."""
        counts: Counter[str] = Counter()
        manages = self.model.manages
        for pod in self.model.objects.pods.values():
            if not pod.finished and manages(pod):
                if pod.node_name:
                    counts["bound"] += 1
                elif not pod.deleted:
                    counts["gated" if pod.shape.gates else "waiting"] += 1
        return counts

    @cached_property
    def pending(self) -> list[tuple[str, str, str]]:
        """Pending groups: (key, queue, reason)."""
        model = self.model
        return [
            (key, model.queue_named(key), str(group.current.code))
            for key, group in self.sources.pending.items()
        ]

    def oldest_waits(self) -> dict[str, float]:
        """Return for each queue how many seconds its oldest group has waited.

        Only groups count that waiting may help.
        """
        oldest = dict.fromkeys(self.queues, 0.0)
        lives, now = self.counters.lives, self.sources.now()
        for key, group in self.sources.pending.items():
            life = lives.get(key)
            if life is None or FACTS[group.current.code].waiting_helps == "no":
                continue
            if life.stage in (QUEUED, ADMITTED):
                oldest[life.queue] = max(oldest.get(life.queue, 0.0), now - life.created)
        return oldest


def namespace_and_name(key: str) -> tuple[str, str]:
    """Return namespace and name of a group."""
    namespace, _, name = shown_key(key).partition("/")
    return namespace, name


def _base_units(units: Mapping[str, int]) -> dict[str, float]:
    """Convert engine units into base units."""
    return {name: value / scale(name) for name, value in units.items()}
