"""What there is to tell of at one moment: looked up once at a scrape, for all names."""

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

Amounts = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Sources:
    """Where a scheduler's figures are kept. ``time()``: Unix seconds. ``details``: what is told one by one."""

    metrics: SchedulerMetrics
    model: ClusterModel
    group_counters: GroupCounters
    waits: PendingGroups
    ledger: NodeUsage
    engine: Callable[[], Core]
    time: Callable[[], float]
    details: Collection[str] = ()


@dataclass(slots=True)
class ScrapedQueue:
    """A queue: figures by state and resource, groups by phase. ``parent`` and ``children`` by name."""

    name: str
    figures: Mapping[str, Amounts]
    parent: str = ""
    children: tuple[str, ...] = ()
    phases: Counter[str] = field(default_factory=Counter)
    inqueue: dict[str, float] = field(default_factory=dict)
    weight: int | None = None
    state: str = "Open"
    real_capacity: Amounts = field(default_factory=dict)

    def of(self, state: str) -> Amounts:
        return self.figures.get(state, {})

    @property
    def pending(self) -> dict[str, float]:
        """Asked for and not held."""
        held = self.of("allocated")
        return {name: max(0.0, asked - held.get(name, 0.0)) for name, asked in self.of("requested").items()}

    @property
    def share(self) -> float:
        """Volcano's: the largest part of what it deserves of anything; 1 where it holds what it does not deserve."""
        deserved = self.of("deserved")
        parts = [
            held / deserved[name] if deserved[name] > 0 else float(held > 0)
            for name, held in self.of("allocated").items()
            if name in deserved
        ]
        return max(parts, default=0.0)

    def number(self, *phases: str) -> int:
        return sum(self.phases[phase] for phase in phases)


class Scrape:
    """Valid until the next change of anything."""

    def __init__(self, sources: Sources) -> None:
        self.sources = sources
        self.own = sources.metrics
        self.model = sources.model
        self.group_counters = sources.group_counters

    @cached_property
    def queues(self) -> dict[str, ScrapedQueue]:
        """By the engine's names; those of which a cycle has told."""
        entries = self.sources.engine().state.queues.entries
        found = {}
        for name, figures in self.own.figures.items():
            made = found[name] = ScrapedQueue(name, figures)
            entry = entries.get(name)
            if entry is not None:
                made.parent = entry.parent.name if entry.parent is not None else ""
                made.children = tuple(sorted(entry.children))
                made.real_capacity = _base(entry.share.real_capability)
        for name, view in self.model.queues.items():
            if name in found:
                found[name].weight = view.weight
                found[name].state = "Deleted" if view.deleted else view.state or "Open"
        self._count_groups(found)
        return found

    def _count_groups(self, queues: Mapping[str, ScrapedQueue]) -> None:
        model = self.model
        for key, group in model.groups.items():
            queue = queues.get(group.queue or "default")
            if queue is None or not model.known(key):
                continue
            phase = group.phase or "Pending"
            queue.phases[phase] += 1
            if phase == "Inqueue":
                for name, amount in _base(group.min_resources).items():
                    queue.inqueue[name] = queue.inqueue.get(name, 0.0) + amount

    @cached_property
    def pods(self) -> Counter[str]:
        """Pods of this scheduler: ``bound``, ``gated``, ``waiting``."""
        found: Counter[str] = Counter()
        manages = self.model.manages
        for pod in self.model.pods.values():
            if not pod.finished and manages(pod):
                if pod.node_name:
                    found["bound"] += 1
                elif not pod.deleted:
                    found["gated" if pod.shape.gates else "waiting"] += 1
        return found

    @cached_property
    def waiting(self) -> list[tuple[str, str, str]]:
        """Groups that wait: (key, queue, reason)."""
        model = self.model
        return [
            (key, model.queue_named(key), str(wait.current.code)) for key, wait in self.sources.waits.items()
        ]

    def oldest_waits(self) -> dict[str, float]:
        """Queue → for how many seconds the oldest of those groups waits that waiting may help."""
        found = dict.fromkeys(self.queues, 0.0)
        lives, now = self.group_counters.lives, self.sources.time()
        for key, wait in self.sources.waits.items():
            life = lives.get(key)
            if life is None or FACTS[wait.current.code].waiting_helps == "no":
                continue
            if life.stage in (QUEUED, ADMITTED):
                found[life.queue] = max(found.get(life.queue, 0.0), now - life.created)
        return found


def job_named(key: str) -> tuple[str, str]:
    """Namespace and name of a group."""
    namespace, _, name = shown_key(key).partition("/")
    return namespace, name


def _base(units: Mapping[str, int]) -> dict[str, float]:
    """Engine units → base units."""
    return {name: amount / scale(name) for name, amount in units.items()}
