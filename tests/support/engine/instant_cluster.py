"""A small cluster at one moment, and a world that does at once whatever the engine decides.

Bound pods run; evicted ones are gone and back as pending pods of the same name, as a Job's controller makes them
anew. :func:`settle` has the engine decide until nothing more happens, and says what was wrong with the way there:

* it decides without end;
* a pod is evicted twice;
* pods are evicted for somebody who does not start by that;
* an engine that is built anew goes on deciding.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace

from msgspec.structs import replace as altered

from windlass.engine import invariants
from windlass.engine.config import EngineConfig
from windlass.engine.decision import Decision
from windlass.engine.deltas import Delta, GroupUpserted, NodeUpserted, QueueUpserted, TaskUpserted
from windlass.engine.engine import Engine
from windlass.model.cluster.engine_factory import make_engine
from windlass.spi.configuration import SchedulerConfig
from windlass.spi.objects import Group, Node, Queue, Task, TaskState

NAMESPACE = "ns"
RUNNING, PENDING = TaskState.RUNNING, TaskState.PENDING
START = 1_000_000.0
"""When a case begins, Unix seconds."""
MOST = 40
"""So many cycles may one moment have, and two more for each pod."""


@dataclass(frozen=True)
class Gang:
    group: Group
    tasks: tuple[Task, ...]


@dataclass(frozen=True)
class Arrival:
    """A gang that comes once ``after`` seconds have passed and the engine has had ``cycles`` cycles since then."""

    gang: Gang
    after: float = 0.0
    cycles: int = 0


@dataclass(frozen=True)
class Case:
    policy: SchedulerConfig
    settings: EngineConfig
    nodes: tuple[Node, ...]
    queues: tuple[Queue, ...]
    arrivals: tuple[Arrival, ...]
    lingers: bool = False
    """Whether evicted pods terminate until the engine has come to rest, and are back only then."""


@dataclass
class World:
    """What is there. ``engine``: whose decisions are carried out."""

    case: Case
    now: float = START
    tasks: dict[str, Task] = field(default_factory=dict)
    groups: dict[str, Group] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.engine = self._fresh()

    def _fresh(self) -> Engine:
        engine = make_engine(self.case.policy, lambda _: None, base=self.case.settings)
        engine.apply([NodeUpserted(node) for node in self.case.nodes])
        engine.apply([QueueUpserted(queue) for queue in self.case.queues])
        engine.apply([GroupUpserted(group) for group in self.groups.values()])
        engine.apply([TaskUpserted(task) for task in self.tasks.values()])
        return engine

    def anew(self) -> World:
        """The same world with an engine that has seen nothing yet."""
        other = World(self.case, self.now, dict(self.tasks), dict(self.groups))
        return other

    def take_up(self) -> None:
        """Go on with another engine, which knows what this one wrote down."""
        fresh = make_engine(self.case.policy, lambda _: None, base=self.case.settings)
        self.engine = Engine.load(self.engine.dump(), fresh.state.plugins.plugins)

    def come(self, gang: Gang) -> None:
        self.groups[gang.group.key] = gang.group
        deltas: list[Delta] = [GroupUpserted(gang.group)]
        for task in gang.tasks:
            self.tasks[task.key] = task
            deltas.append(TaskUpserted(task))
        self.engine.apply(deltas)

    def cycle(self) -> Decision:
        """One cycle, checked, and what follows from it."""
        decision = self.engine.cycle(self.now)
        invariants.check_decision(self.engine, decision)
        deltas: list[Delta] = []
        for eviction in decision.evictions:
            old = self.tasks[eviction.task]
            if self.case.lingers:
                self.tasks[old.key] = altered(old, state=TaskState.RELEASING)
                deltas.append(TaskUpserted(self.tasks[old.key]))
            else:
                deltas.append(self._back(old))
        for bind in decision.binds:
            devices = tuple(share.index for share in bind.devices)
            task = altered(
                self.tasks[bind.task], node=bind.node, devices=devices, state=RUNNING, started=self.now
            )
            self.tasks[task.key] = task
            deltas.append(TaskUpserted(task))
        deltas += self._standing(decision)
        if deltas:
            self.engine.apply(deltas)
        return decision

    def _back(self, gone: Task) -> Delta:
        """Another pod in the place of one that is gone."""
        uid = f"{gone.uid}'"
        fresh = altered(gone, uid=uid, node="", devices=(), slices=(), state=PENDING, started=None)
        self.tasks[gone.key] = fresh
        return TaskUpserted(fresh)

    def end_termination(self) -> bool:
        """What terminates is gone, and back; whether there was any."""
        leaving = [task for task in self.tasks.values() if task.state is TaskState.RELEASING]
        self.engine.apply([self._back(task) for task in leaving])
        return bool(leaving)

    def _standing(self, decision: Decision) -> list[Delta]:
        """What groups say of themselves after it: since when they are whole, when they lost somebody, that they
        were let in."""
        changed = dict.fromkeys([one.group for one in (*decision.binds, *decision.evictions)])
        lost = {one.group for one in decision.evictions}
        admitted = {status.group for status in decision.groups if status.admitted}
        held = Counter(task.group for task in self.tasks.values() if task.state is RUNNING)
        found: list[Delta] = []
        for key in (*changed, *sorted(admitted - changed.keys())):
            old = self.groups.get(key)
            if old is None:
                continue
            whole = held[key] >= old.min_member
            group = altered(
                old,
                started=(old.started if old.started is not None and key not in lost else self.now)
                if whole
                else None,
                last_eviction=self.now if key in lost else old.last_eviction,
                admitted=old.admitted or key in admitted,
            )
            if group != old:
                self.groups[key] = group
                found.append(GroupUpserted(group))
        return found

    def running(self) -> dict[str, int]:
        """Group → how many of its pods have a node."""
        return dict(
            Counter(task.group.removeprefix(f"{NAMESPACE}/") for task in self.tasks.values() if task.node)
        )


def quiet(decision: Decision, now: float) -> bool:
    """Whether nothing was decided, and nothing is to be at this moment."""
    return not (decision.binds or decision.evictions or decision.nominations) and (
        decision.wake_at is None or decision.wake_at > now
    )


@dataclass
class Moment:
    """What came of the cycles of a moment."""

    cycles: int = 0
    still: bool = True
    evicted: Counter[str] = field(default_factory=Counter)
    idle: list[str] = field(default_factory=list)
    """Groups for which others went, and who did not start by that."""
    said: list[str] = field(default_factory=list)
    """The last decisions in words."""

    def faults(self) -> list[str]:
        found = [] if self.still else ["no end"]
        twice = sorted(task.removeprefix(f"{NAMESPACE}/") for task, n in self.evicted.items() if n > 1)
        if twice:
            found.append("twice")
        if self.idle and self.still:
            found.append("for nobody")
        return found


def words(decision: Decision) -> str:
    def short(key: str) -> str:
        return key.removeprefix(f"{NAMESPACE}/")

    parts = [
        f"{one.action}: {short(one.task)} off {one.node} for {short(one.preemptor)}"
        for one in decision.evictions
    ]
    parts += [f"{short(one.task)} on {one.node}" for one in decision.binds]
    parts += [f"{short(one.task)} promised {one.node}" for one in decision.nominations]
    return "; ".join(parts) or "nothing"


def settle(world: World, *, most: int | None = None) -> Moment:
    """Cycle at this moment until nothing more is decided."""
    found, waiting = Moment(), dict[str, None]()
    most = MOST + 2 * len(world.tasks) if most is None else most
    while True:
        if found.cycles >= most:
            found.still = False
            break
        found.cycles += 1
        decision = world.cycle()
        found.said.append(words(decision))
        for eviction in decision.evictions:
            found.evicted[eviction.task] += 1
            if eviction.preemptor:
                waiting[eviction.preemptor] = None
        for bind in decision.binds:
            waiting.pop(bind.group, None)
        if quiet(decision, world.now) and not world.end_termination():
            break
    found.idle = list(waiting)
    return found


def arrive(world: World, arrival: Arrival) -> Moment | None:
    """Let time pass, and a gang come; what was wrong at the moment that ended by that."""
    ended = None
    if arrival.after:
        ended = settle(world)
        world.now += arrival.after
    for _ in range(arrival.cycles):
        world.cycle()
    world.come(arrival.gang)
    return ended


def play(case: Case) -> tuple[World, list[str]]:
    """The whole case up to its end, and what was wrong at its moments."""
    world, faults = World(case), list[str]()
    for arrival in case.arrivals:
        ended = arrive(world, arrival)
        if ended is not None:
            faults += ended.faults()
            if not ended.still:
                return world, faults
    last = settle(world)
    faults += last.faults()
    return world, faults


def restarted(world: World) -> Moment:
    """What an engine that is built anew makes of a world that is still."""
    return settle(world.anew())


def thrash(world: World, step: float, times: int) -> list[int]:
    """How many are evicted in each of so many steps of the clock in which nobody comes and nobody ends."""
    found = []
    for _ in range(times):
        world.now += step
        found.append(settle(world).evicted.total())
    return found


def smaller(case: Case, at: int) -> Case:
    """Without one of its gangs."""
    return replace(case, arrivals=case.arrivals[:at] + case.arrivals[at + 1 :])
