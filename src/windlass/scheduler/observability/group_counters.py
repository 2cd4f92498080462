"""Counters of groups with an object, by queue: admitted, started, ended, evicted.

A group that has already started when it is first seen is followed from there. Its time
before was counted by an earlier leader. Counters begin with the process. All times are
Unix seconds.
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

WAIT_BOUNDS = (1.0, *(2.5 * 2**power for power in range(15)))
"""Kueue's histogram bounds in seconds: 1, 2.5, 5, 10 … doubling."""
VICTIM_BOUNDS = (1, 2, 4, 8, 16, 32, 64)
PREEMPTED, NOT_READY = "Preempted", "PodsReadyTimeout"
"""Kueue's reasons for an eviction: another group, or an incomplete gang."""
WITHIN, ACROSS = "InClusterQueue", "InCohortReclamation"
"""Kueue's reasons for a preemption: inside a queue, or across queues."""
_RANK = {stage: rank for rank, stage in enumerate(STAGES)}


def plain_action(name: str) -> str:
    """Return an action's name as in configurations.

    One name may stand for two actions, of which one serves Volcano's queues.
    """
    return name.removeprefix("volcano-")


@dataclass(slots=True)
class GroupLife:
    """Lifecycle of one group.

    ``counted``: it was seen from its creation.
    ``started``, ``running``: since when its minimum has been on nodes, and has run. 0
    if not.
    ``ran``: seconds for which its minimum ran before.
    ``evicted_at``: since when it is being evicted, 0 if it is not, and ``why``.
    """

    uid: str
    created: float
    queue: str
    stage: str
    counted: bool
    admitted: float = 0.0
    started: float = 0.0
    running: float = 0.0
    ran: float = 0.0
    evicted_at: float = 0.0
    why: str = ""
    evicted: Counter[str] = field(default_factory=Counter)
    """Action → number of pods."""


class GroupCounters:
    """Counts the stages and evictions of groups."""

    def __init__(self, model: ClusterModel) -> None:
        self._model = model
        self.lives: dict[str, GroupLife] = {}
        self.admission_wait = Timings(bounds=WAIT_BOUNDS)
        self.ready_wait = Timings(bounds=WAIT_BOUNDS)
        self.admitted_until_ready = Timings(bounds=WAIT_BOUNDS)
        self.execution = Timings(bounds=WAIT_BOUNDS)
        self.eviction_wait = Timings(bounds=WAIT_BOUNDS)
        self.start_wait = Durations(SLOW)
        self.evicted: Counter[tuple[str, str]] = Counter()
        """(queue, reason) → number of groups."""
        self.preempted: Counter[tuple[str, str]] = Counter()
        """(queue of the preemptor, Kueue's reason) → number of groups."""
        self.victims = Durations(VICTIM_BOUNDS)
        """Number of pods evicted for one preemptor in one cycle."""
        self.transactions: Counter[str] = Counter()
        """Action → number of preemptors, each counted once per cycle."""
        self.scheduled: Counter[str] = Counter()
        """Action → number of groups with placed pods, each counted once per cycle."""
        self.attempts = Timings()
        """Duration of cycles by result.

        ``success``: a group was admitted. ``inadmissible``: none of the pending ones.
        """
        self._admitted_in_cycle = 0

    # ------------------------------------------------------------------ one group

    def update_group(self, key: str, admitted: bool, members: Members, now: float) -> None:
        """Take in the state of a group."""
        group = identity(self._model, key)
        if group is None:
            return
        stage = stage_of(admitted, group.minimum, members)
        life = self.lives.get(key)
        if life is None or life.uid != group.uid:
            new = begins_queued(stage, self._model.objects.groups.get(key))
            queue = self._model.queue_named(key)
            first = QUEUED if new else stage
            life = self.lives[key] = GroupLife(group.uid, group.created or now, queue, first, new)
        if stage != life.stage:
            self._change_stage(life, stage, now)
        if life.evicted_at and not members.holding:
            self.eviction_wait.add(max(0.0, now - life.evicted_at), life.queue, life.why)
            life.evicted_at = 0.0

    def remove_group(self, key: str) -> None:
        self.lives.pop(key, None)

    def _change_stage(self, life: GroupLife, stage: str, now: float) -> None:
        before, after = _RANK[life.stage], _RANK[stage]
        life.stage = stage
        waited = max(0.0, now - life.created)
        if before < _RANK[ADMITTED] <= after and not life.admitted:
            life.admitted = now
            self._admitted_in_cycle += 1
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

    def count_decision(self, decision: Decision, passes: tuple[ActionPass, ...], now: float) -> None:
        """Count the evictions and binds of a decision."""
        if decision.evictions:
            self._count_evictions(decision.evictions, now)
        for action_pass in passes:
            if action_pass.binds:
                groups = {decision.binds[index].group for index in action_pass.binds}
                self.scheduled[plain_action(action_pass.action)] += len(groups)

    def end_cycle(self, waiting: bool, seconds: float) -> None:
        """Count a cycle after its groups were reported.

        ``waiting``: some are not admitted.
        """
        if self._admitted_in_cycle or waiting:
            self.attempts.add(seconds, "success" if self._admitted_in_cycle else "inadmissible")
        self._admitted_in_cycle = 0

    def _count_evictions(self, evictions: tuple[Eviction, ...], now: float) -> None:
        preemptions: Counter[tuple[str, str]] = Counter()
        for eviction in evictions:
            preemptions[eviction.action, eviction.preemptor] += 1
            life = self.lives.get(eviction.group)
            if life is not None:
                life.evicted[eviction.action] += 1
        for (action, preemptor), pods in preemptions.items():
            self.transactions[action] += 1
            if preemptor:
                self.victims.add(pods)
        for group, (action, preemptor) in {e.group: (e.action, e.preemptor) for e in evictions}.items():
            self.group_evicted(group, NOT_READY if action == "stale-gang" else PREEMPTED, now)
            if preemptor:
                queue = self._model.queue_named(preemptor)
                within = queue == self._model.queue_named(group)
                self.preempted[queue, WITHIN if within else ACROSS] += 1

    def group_evicted(self, group: str, why: str, now: float) -> None:
        """Count a group of which pods are evicted."""
        life = self.lives.get(group)
        if life is not None:
            self.evicted[life.queue, why] += 1
            life.evicted_at, life.why = life.evicted_at or now, why
