"""Simulation of the current cluster into the future by the scheduler's own engine under a virtual clock.

Running groups run to their end. Pending groups are decided on at every change. No new work arrives. A group runs once
its minimum of tasks is bound, and ends as a whole. Pods start and end without delay;
:mod:`windlass.sim.replay.decide_loop` defines the deltas for the engine. Evicted pods are recreated at once as pending
pods (:mod:`windlass.sim.whatif.recreate`). A group below its minimum resumes from its last checkpoint after its restart
(:mod:`windlass.plugins.timeshare.suspension_cost`); a group without checkpoints starts over. Terminating pods are gone
from the beginning.

Invariants: pure; the state handed in stays as it was; equal states and run times give equal outcomes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

from msgspec.structs import replace as altered

from windlass.engine.decision import Bind, Decision
from windlass.engine.deltas import (
    BudgetRemoved,
    BudgetUpserted,
    Delta,
    GroupRemoved,
    GroupUpserted,
    NamespaceQuotaRemoved,
    NamespaceQuotaUpserted,
    NodeRemoved,
    NodeUpserted,
    QueueRemoved,
    QueueUpserted,
    TaskRemoved,
    TaskUpserted,
)
from windlass.engine.engine import Engine
from windlass.plugins.timeshare.suspension_cost import declared_by, habit_of, saved_before, unsaved_seconds
from windlass.sim.event_loop import Agenda, EventKind
from windlass.sim.replay.decide_loop import DecideLoop
from windlass.sim.whatif.recreate import remade
from windlass.sim.whatif.state_diff import difference
from windlass.spi.objects import Group, NamespaceQuota, Node, Queue, Task, TaskState
from windlass.spi.timeshare import RunSegment

RUNS = (TaskState.ASSUMED, TaskState.BOUND, TaskState.RUNNING)
OVER = (TaskState.SUCCEEDED, TaskState.FAILED)
MOMENTS = 100_000
"""Maximum number of simulated times."""
AT_ONCE = 200
"""Number of initial objects applied between two pauses."""
PATIENCE_SECONDS = 86_400.0
"""Maximum time (seconds) to wait for changes by time alone once nothing ends any more."""

RunTime = Callable[[Group, float, float | None], float | None]
"""A group, how long it has run, and after how long it is ended by force → how long it runs in all."""


@dataclass(slots=True)
class ForwardState:
    """Engine deltas of a cluster at one time (``now``, Unix seconds), by name.

    ``saved``: completed work (seconds) of groups that were just stopped. ``restarts``: groups that their owners
    restart as a whole once a task of one of these roles is evicted.
    """

    now: float
    nodes: dict[str, Node] = field(default_factory=dict)
    queues: dict[str, Queue] = field(default_factory=dict)
    quotas: dict[str, NamespaceQuota] = field(default_factory=dict)
    budgets: dict[str, int] = field(default_factory=dict)
    groups: dict[str, Group] = field(default_factory=dict)
    tasks: dict[str, Task] = field(default_factory=dict)
    saved: dict[str, float] = field(default_factory=dict)
    restarts: dict[str, frozenset[str]] = field(default_factory=dict)

    def copy(self) -> ForwardState:
        """One that may be changed without this one."""
        books = (self.nodes, self.queues, self.quotas, self.budgets, self.groups, self.tasks, self.saved)
        return ForwardState(self.now, *[dict(book) for book in books], self.restarts)  # type: ignore[arg-type]

    def alive(self) -> set[str]:
        """The groups of which not all is over."""
        return {task.group for task in self.tasks.values() if task.state not in OVER}

    def deltas(self) -> list[Delta]:
        """As the engine is told. What is terminating is gone already; what is stuck in that stays."""
        return [
            *map(NodeUpserted, self.nodes.values()),
            *map(QueueUpserted, self.queues.values()),
            *map(NamespaceQuotaUpserted, self.quotas.values()),
            *[BudgetUpserted(key, allowed) for key, allowed in self.budgets.items()],
            *map(GroupUpserted, self.groups.values()),
            *[TaskUpserted(task) for task in self.tasks.values() if task.state is not TaskState.RELEASING],
        ]


def state_of(deltas: Iterable[Delta], now: float) -> ForwardState:
    """Return the state after all deltas."""
    state = ForwardState(now)
    for delta in deltas:
        match delta:
            case NodeUpserted(node):
                state.nodes[node.name] = node
            case NodeRemoved(name):
                state.nodes.pop(name, None)
            case QueueUpserted(queue):
                state.queues[queue.name] = queue
            case QueueRemoved(name):
                state.queues.pop(name, None)
            case NamespaceQuotaUpserted(quota):
                state.quotas[quota.key] = quota
            case NamespaceQuotaRemoved(key):
                state.quotas.pop(key, None)
            case BudgetUpserted(key, allowed):
                state.budgets[key] = allowed
            case BudgetRemoved(key):
                state.budgets.pop(key, None)
            case GroupUpserted(group):
                state.groups[group.key] = group
            case GroupRemoved(key):
                state.groups.pop(key, None)
            case TaskUpserted(task):
                state.tasks[task.key] = task
            case TaskRemoved(key):
                state.tasks.pop(key, None)
            case _:
                pass
    return state


def rests(state: ForwardState, engine: Engine) -> bool:
    """Return whether a new engine leaves everything as it is, as one does that has long been there."""
    engine.apply(state.deltas())
    decision = engine.cycle(state.now)
    return not decision.binds and not decision.evictions


@dataclass(slots=True)
class Course:
    """Course of one group; times in Unix seconds.

    ``started``: first start, or the beginning for a running group; ``ended``: end; ``None``: never. ``stops``: number
    of stops; `anew`: restart after the last stop that lost its work, ``inf`` for none; ``None``: nothing was lost.
    """

    started: float | None = None
    ended: float | None = None
    stops: int = 0
    anew: float | None = None
    nodes: dict[str, int] = field(default_factory=dict, compare=False)
    """Node → number of its pods there at the first start."""


class Forward:
    """One play. ``until``: what starts later is not looked for, in seconds from now. ``pause`` is called before
    every cycle: it may wait, or raise to have an end of it. ``rested``: a state in which the engine decides nothing
    (:func:`rests`), and that has become this one just now: the room that it keeps there stays kept as far as it can."""

    def __init__(
        self,
        state: ForwardState,
        engine: Engine,
        run_time: RunTime,
        *,
        until: float = inf,
        pause: Callable[[], None] = lambda: None,
        rested: ForwardState | None = None,
    ) -> None:
        self.courses: dict[str, Course] = {}
        self.binds: list[tuple[float, Bind]] = []
        """In the order of decision, with their moments."""
        self._state = state
        self._engine = engine
        self._rested = rested
        self._run_time = run_time
        self._last = state.now + until
        self._pause = pause
        self._deciding = DecideLoop(engine, self._carry_out, pause)
        self._agenda = Agenda()
        self._works = {key: _Work(group) for key, group in state.groups.items()}
        self._waiting: set[str] = set()
        for task in state.tasks.values():
            work = self._works.get(task.group)
            if work is not None and task.state not in OVER and task.state is not TaskState.RELEASING:
                work.tasks[task.key] = task
        for key, work in self._works.items():
            self.courses[key] = Course()
            if work.tasks:
                self._waiting.add(key)
                self._look(work, state.now)
                if work.began is None and key in state.saved:
                    work.stopped(state.saved[key])

    def run(self) -> Mapping[str, Course]:
        """Until all that wait have started, nothing happens any more, or the end. Raises :class:`Endless`."""
        now, known = self._state.now, self._state.deltas()
        if self._rested is not None:
            first = self._rested.deltas()
            self._enter(first)
            self._engine.cycle(now)
            known = difference(first, known)
        self._enter(known)
        wake = self._deciding.settle(now)
        for _ in range(MOMENTS):
            if not self._waiting:
                break
            moment = self._agenda.moment()
            if moment is None or (wake is not None and wake < moment):
                moment = (
                    wake if wake is not None and (moment is not None or self._ahead(wake, now)) else moment
                )
            if moment is None or moment > self._last:
                break
            now = max(now, moment)
            for _, (work, plan) in self._agenda.due(now):
                self._ends(work, plan, now)
            wake = self._deciding.settle(now)
        return self.courses

    def _enter(self, known: Sequence[Delta]) -> None:
        for at in range(0, len(known), AT_ONCE):
            self._pause()
            self._engine.apply(known[at : at + AT_ONCE])

    def _ahead(self, wake: float, now: float) -> bool:
        """Return whether time alone may still change something: nothing ends any more."""
        return wake > now and wake - self._state.now < PATIENCE_SECONDS

    def _carry_out(self, decision: Decision, now: float) -> None:
        evicted: dict[str, list[str]] = {}
        for eviction in decision.evictions:
            evicted.setdefault(eviction.group, []).append(eviction.task)
        for group, tasks in evicted.items():
            self._evicted(group, tasks, now)
        for bind in decision.binds:
            self.binds.append((now, bind))
            self._bound(bind, now)

    def _bound(self, bind: Bind, now: float) -> None:
        work = self._works[bind.group]
        task = altered(work.tasks[bind.task], state=TaskState.RUNNING, node=bind.node, started=now)
        work.tasks[bind.task] = task
        self._deciding.confirmed.append(TaskUpserted(task))
        self._look(work, now)

    def _evicted(self, key: str, tasks: Sequence[str], now: float) -> None:
        work, deciding = self._works[key], self._deciding
        past = self._engine.state.time_sharing.attained_service(key)
        group, anew = remade(work.group, work.tasks, tasks, self._state.restarts.get(key), now, past)
        deciding.confirmed[:] = [delta for delta in deciding.confirmed if not _tells_of(delta, anew)]
        deciding.changes += map(TaskRemoved, anew)
        if group is not work.group:
            work.group = group
            deciding.changes.append(GroupUpserted(group))
        deciding.changes += map(TaskUpserted, anew.values())
        work.tasks.update(anew)
        if work.began is not None and work.placed() < work.least:
            self._stop(work, now)

    def _stop(self, work: _Work, now: float) -> None:
        work.stopped(work.saved(now))
        work.plan += 1
        course = self.courses[work.group.key]
        course.stops += 1
        course.anew = course.anew if work.done else inf
        course.ended = None
        self._waiting.add(work.group.key)

    def _look(self, work: _Work, now: float) -> None:
        """Return whether it runs from now on, and until when."""
        key = work.group.key
        if work.began is not None or work.placed() < work.least:
            return
        work.began = work.begun(now)
        course = self.courses[key]
        if course.started is None:
            course.started = now
            course.nodes = dict(Counter(task.node for task in work.tasks.values() if task.state in RUNS))
        elif course.anew == inf:
            course.anew = now
        self._waiting.discard(key)
        work.plan += 1
        limits = [task.run_limit for task in work.tasks.values() if task.run_limit is not None]
        since = work.since
        seconds = self._run_time(work.group, max(now - since, 0.0), min(limits, default=None))
        if seconds is not None:
            course.ended = since + seconds
            self._agenda.add(course.ended, EventKind.END, (work, work.plan))

    def _ends(self, work: _Work, plan: int, now: float) -> None:
        if work.plan != plan:
            return
        key = work.group.key
        self._deciding.changes += [TaskRemoved(task) for task in work.tasks]
        self._deciding.changes.append(GroupRemoved(key))
        work.tasks.clear()


class _Work:
    """A group in the course of a play. ``began``: when it was started last; ``None``: it does not run. ``done``:
    seconds of work that stops left it; ``again``: whether there was one. ``plan`` counts, older ends are void."""

    __slots__ = ("again", "began", "done", "group", "plan", "tasks")

    def __init__(self, group: Group) -> None:
        self.group = group
        self.tasks: dict[str, Task] = {}
        self.began: float | None = None
        self.done = saved_before(group.past, declared_by(group))
        self.again = group.past is not None
        self.plan = 0

    @property
    def least(self) -> int:
        return max(1, min(self.group.min_member, len(self.tasks)))

    def placed(self) -> int:
        return sum(1 for task in self.tasks.values() if task.state in RUNS)

    def begun(self, now: float) -> float:
        """Since when as many run as it needs: those that came on top begin nothing."""
        moments = [now if t.started is None else t.started for t in self.tasks.values() if t.state in RUNS]
        begun, past = sorted(moments)[self.least - 1], self.group.past
        return begun if past is None else max(begun, past.at)

    @property
    def since(self) -> float:
        """Return the time at which the current work would have started without stops."""
        restart = habit_of(self._stint()).restart if self.again else 0.0
        return (self.began or 0.0) + restart - self.done

    def saved(self, now: float) -> float:
        """Seconds of work that it has behind it if it is stopped now."""
        segment, there = self._stint(), now - self.since
        return max(self.done, there - unsaved_seconds(segment, habit_of(segment), now))

    def stopped(self, saved: float) -> None:
        """It runs no more, and has so much behind it."""
        self.began, self.done, self.again = None, saved, True

    def _stint(self) -> RunSegment:
        return RunSegment(self.group, 0.0, started=self.began, resumed=self.again)


def _tells_of(delta: Delta, tasks: Mapping[str, Task]) -> bool:
    return isinstance(delta, TaskUpserted) and delta.task.key in tasks


def displaced(state: ForwardState, node: str) -> None:
    """Remove a node; its pods become pending, as their owners would recreate them.

    Pods of other schedulers are removed with the node.
    """
    state.nodes.pop(node, None)
    alive = {key: task for key, task in state.tasks.items() if task.state not in OVER}
    hit = {key: task for key, task in alive.items() if task.node == node}
    state.saved |= _saved(state, alive, {task.group for task in hit.values()} - state.saved.keys())
    lost: dict[str, list[str]] = {}
    for key, task in hit.items():
        if task.group in state.groups and task.state is not TaskState.RELEASING:
            lost.setdefault(task.group, []).append(key)
        else:
            del state.tasks[key]
    of_group: dict[str, dict[str, Task]] = {group: {} for group in lost}
    for key, task in alive.items():
        if task.group in lost and task.state is not TaskState.RELEASING:
            of_group[task.group][key] = task
    for group, keys in lost.items():
        tasks, roles = of_group[group], state.restarts.get(group)
        state.groups[group], anew = remade(state.groups[group], tasks, keys, roles, state.now)
        state.tasks.update(anew)


def _saved(state: ForwardState, alive: Mapping[str, Task], groups: Iterable[str]) -> dict[str, float]:
    """Return the saved work (seconds) of the running groups if they were stopped now."""
    works = {key: _Work(state.groups[key]) for key in sorted(groups) if key in state.groups}
    for task in alive.values():
        if task.group in works and task.state is not TaskState.RELEASING:
            works[task.group].tasks[task.key] = task
    found: dict[str, float] = {}
    for key, work in works.items():
        if work.placed() >= work.least:
            work.began = work.begun(state.now)
            found[key] = work.saved(state.now)
    return found
