"""What groups with an object of their own come to, counted by queue: let in, started, ended, evicted.

A group that is seen for the first time on its way is followed from there: how long it waited before is counted by
whoever scheduled then. Figures are since the process began; all moments are Unix seconds.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from windlass.engine.actions.context import ActionPass
from windlass.engine.decision import Decision, Eviction
from windlass.model.cluster.cluster_model import ClusterModel
from windlass.model.groups.member_counts import Members
from windlass.observe.metrics import SLOW, Durations, Timings
from windlass.scheduler.observability.lifecycle import (
    ADMITTED,
    BOUND,
    ENDED,
    QUEUED,
    RUNNING,
    STAGES,
    begins_queued,
    identity,
    stage_of,
)

WAITS = (1.0, *(2.5 * 2**power for power in range(15)))
"""Kueue's buckets in seconds: 1, 2.5, 5, 10 … doubling."""
VICTIMS = (1, 2, 4, 8, 16, 32, 64)
PREEMPTED, NOT_READY = "Preempted", "PodsReadyTimeout"
"""Kueue's words for why a group loses its place: for others, or because its gang did not come together."""
WITHIN, ACROSS = "InClusterQueue", "InCohortReclamation"
_RANK = {stage: rank for rank, stage in enumerate(STAGES)}


def plain_action(name: str) -> str:
    """An action's name as configurations have it: one name may stand for two, of which one serves Volcano's queues."""
    return name.removeprefix("volcano-")


@dataclass(slots=True)
class Life:
    """One group. ``counted``: it was seen from its beginning. ``started``, ``running``: since when its minimum has been
    on nodes, and has run; 0 where it is not. ``ran``: before that. ``leaving``: since when it is being evicted."""

    uid: str
    created: float
    queue: str
    stage: str
    counted: bool
    admitted: float = 0.0
    started: float = 0.0
    running: float = 0.0
    ran: float = 0.0
    leaving: float = 0.0
    why: str = ""
    evicted: Counter[str] = field(default_factory=Counter)
    """Action → pods."""


class GroupCounters:
    def __init__(self, model: ClusterModel) -> None:
        self._model = model
        self.lives: dict[str, Life] = {}
        self.admission_wait = Timings(bounds=WAITS)
        self.ready_wait = Timings(bounds=WAITS)
        self.admitted_until_ready = Timings(bounds=WAITS)
        self.execution = Timings(bounds=WAITS)
        self.eviction_wait = Timings(bounds=WAITS)
        self.start_wait = Durations(SLOW)
        self.evicted: Counter[tuple[str, str]] = Counter()
        """(queue, reason) → groups."""
        self.preempted: Counter[tuple[str, str]] = Counter()
        """(queue of the claimer, Kueue's reason) → groups."""
        self.victims = Durations(VICTIMS)
        """Pods that one claimer evicts in one cycle."""
        self.transactions: Counter[str] = Counter()
        """Action → claimers, each counted once in a cycle."""
        self.scheduled: Counter[str] = Counter()
        """Action → groups of which it has placed something, each counted once in a cycle."""
        self.attempts = Timings()
        """``success``: a cycle that has let a group in; ``inadmissible``: one that has let in none of those waiting."""
        self._entered = 0

    # ------------------------------------------------------------------ one group

    def group(self, key: str, admitted: bool, members: Members, now: float) -> None:
        """How a group stands."""
        found = identity(self._model, key)
        if found is None:
            return
        stage = stage_of(admitted, found.minimum, members)
        life = self.lives.get(key)
        if life is None or life.uid != found.uid:
            new = begins_queued(stage, self._model.groups.get(key))
            queue = self._model.queue_named(key)
            begun = QUEUED if new else stage
            life = self.lives[key] = Life(found.uid, found.created or now, queue, begun, new)
        if stage != life.stage:
            self._move(life, stage, now)
        if life.leaving and not members.holding:
            self.eviction_wait.add(max(0.0, now - life.leaving), life.queue, life.why)
            life.leaving = 0.0

    def gone(self, key: str) -> None:
        self.lives.pop(key, None)

    def _move(self, life: Life, stage: str, now: float) -> None:
        before, after = _RANK[life.stage], _RANK[stage]
        life.stage = stage
        waited = max(0.0, now - life.created)
        if before < _RANK[ADMITTED] <= after and not life.admitted:
            life.admitted = now
            self._entered += 1
            self.admission_wait.add(waited, life.queue)
        if before < _RANK[BOUND] <= after:
            life.started = now
            if life.counted:
                self.start_wait.add(waited)
        if stage == RUNNING:
            life.running = now
            if life.counted and not life.ran:
                self.ready_wait.add(waited, life.queue)
                self.admitted_until_ready.add(max(0.0, now - life.admitted), life.queue)
        elif before == _RANK[RUNNING] and life.running:
            life.ran += max(0.0, now - life.running)
            life.running = 0.0
        if after < _RANK[BOUND]:
            life.started = 0.0
        if stage == ENDED:
            self.execution.add(life.ran, life.queue)

    # ------------------------------------------------------------------ one cycle

    def decided(self, decision: Decision, passes: tuple[ActionPass, ...], now: float) -> None:
        """What a cycle came to for groups."""
        if decision.evictions:
            self._evictions(decision.evictions, now)
        for part in passes:
            if part.binds:
                self.scheduled[plain_action(part.action)] += len(
                    {decision.binds[at].group for at in part.binds}
                )

    def cycle(self, waiting: bool, seconds: float) -> None:
        """A cycle is over, and its groups are told. ``waiting``: some are not let in."""
        if self._entered or waiting:
            self.attempts.add(seconds, "success" if self._entered else "inadmissible")
        self._entered = 0

    def _evictions(self, evictions: tuple[Eviction, ...], now: float) -> None:
        claims: Counter[tuple[str, str]] = Counter()
        for eviction in evictions:
            claims[eviction.action, eviction.claimer] += 1
            life = self.lives.get(eviction.group)
            if life is not None:
                life.evicted[eviction.action] += 1
        for (action, claimer), pods in claims.items():
            self.transactions[action] += 1
            if claimer:
                self.victims.add(pods)
        for group, (action, claimer) in {e.group: (e.action, e.claimer) for e in evictions}.items():
            self.loses(group, NOT_READY if action == "stale-gang" else PREEMPTED, now)
            if claimer:
                queue = self._model.queue_named(claimer)
                within = queue == self._model.queue_named(group)
                self.preempted[queue, WITHIN if within else ACROSS] += 1

    def loses(self, group: str, why: str, now: float) -> None:
        """Pods of a group are evicted."""
        life = self.lives.get(group)
        if life is not None:
            self.evicted[life.queue, why] += 1
            life.leaving, life.why = life.leaving or now, why
