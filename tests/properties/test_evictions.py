"""Properties of making room, over random small clusters: it ends, it keeps its promises, and it agrees with
trying everything."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, product

from cluster_dsl import GPU, NAMESPACE, Cluster, may_claim
from engine_fuzz import PLAIN, RELATED, Player, drawn, start
from example_counts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from preemption_cluster import ALL, Arena

from windlass.engine.config import EngineConfig
from windlass.engine.decision import Decision
from windlass.engine.engine import Engine
from windlass.plugins.defaults import default_plugins
from windlass.spi.objects import Dialect, Task, TaskState

SEEDS = st.integers(0, 10**9)


# ---------------------------------------------------------------------- it ends, and keeps its promises


def tree(a: Arena, rng: random.Random) -> list[str]:
    """Two or three queues, perhaps below others. Returns the leaves."""
    leaves = [f"q{i}" for i in range(rng.randint(2, 3))]
    tops = ["d0", "d1"][: rng.randint(0, 2)]
    for top in tops:
        a.queue(top, deserved=rng.choice((0, 2, 4, None)), weight=rng.randint(0, 2))
    for name in leaves:
        a.queue(
            name,
            deserved=rng.choice((0, 1, 2, 3)),
            limit=rng.choice((None, None, None, 4)),
            weight=rng.randint(0, 2),
            parent=rng.choice(tops) if tops else "",
        )
    return leaves


def crowd(a: Arena, rng: random.Random, leaves: list[str]) -> None:
    """Nodes, groups that run wherever there is room, and groups that wait."""
    free = {f"n{i}": rng.randint(1, 4) for i in range(rng.randint(1, 3))}
    for name, gpus in free.items():
        a.node(name, gpus)
    for number in range(rng.randint(2, 7)):
        size, gpus = rng.randint(1, 3), rng.choice((1, 1, 1, 2))
        places = []
        for _ in range(size):
            room = [node for node, left in free.items() if left >= gpus]
            if room:
                node = rng.choice(room)
                free[node] -= gpus
                places.append(f"{node}:{gpus}")
        if places:
            a.runs(f"r{number}", rng.choice(leaves), *places, **_standing(rng, len(places)))
    for number in range(rng.randint(1, 4)):
        size, gpus = rng.randint(1, 3), rng.choice((1, 1, 2, 3))
        a.waits(f"w{number}", rng.choice(leaves), *([gpus] * size), **_standing(rng, size))


def _standing(rng: random.Random, size: int) -> dict[str, object]:
    priority = rng.choice((30, 50, 50, 70, 100))
    return {"min": rng.randint(1, size), "priority": priority, "preemptible": priority < 100}


def check_evictions(a: Arena, decision: Decision) -> None:
    """Check that every victim may be evicted on the stated grounds."""
    groups, tasks = a.world.groups, a.world.tasks
    moved = {nomination.task for nomination in decision.nominations}
    for eviction in decision.evictions:
        claimer, victim = groups[eviction.preemptor], groups[eviction.group]
        assert victim.preemptible
        assert tasks[eviction.task].preemptible
        assert victim.key != claimer.key
        if eviction.action == "preempt":
            assert victim.queue == claimer.queue
            assert victim.priority < claimer.priority
        elif eviction.action == "reclaim":
            assert victim.queue != claimer.queue
        else:
            assert eviction.task in moved


@settings(max_examples=examples(60), deadline=None)
@given(SEEDS, st.sampled_from((Dialect.KAI, Dialect.VOLCANO)))
def test_it_comes_to_rest_and_every_claimer_gets_what_it_was_promised(seed: int, dialect: Dialect) -> None:
    rng = random.Random(seed)
    a = Arena(*ALL, dialect=dialect)
    crowd(a, rng, tree(a, rng))
    a.world.overcommitted = True  # the limits of queues may be exceeded from the start
    promised: dict[str, int] = {}
    for _ in range(90):
        before = a.running()
        decision = a.cycle()
        check_evictions(a, decision)
        for claimer, held in promised.items():
            bound = sum(bind.group == claimer for bind in decision.binds)
            assert bound > 0, f"{claimer} was promised room and got none"
            assert before.get(claimer.removeprefix(f"{NAMESPACE}/"), 0) + bound > held
        promised = {
            eviction.preemptor: before.get(eviction.preemptor.removeprefix(f"{NAMESPACE}/"), 0)
            for eviction in decision.evictions
        }
        if not decision.binds and not decision.evictions and not may_claim(decision, a.world.now):
            break
    else:
        raise AssertionError("no rest after 90 cycles")
    for _ in range(5):
        decision = a.cycle()
        assert (decision.binds, decision.evictions) == ((), ())


# ---------------------------------------------------------------------- against trying everything


@dataclass(frozen=True)
class Unit:
    tasks: tuple[Task, ...]
    order: tuple[object, ...]
    core: bool

    @property
    def gpus(self) -> int:
        return sum(gpus_of(task) for task in self.tasks)


def gpus_of(task: Task) -> int:
    return dict(task.needs.request).get(GPU, 0) // 1000


def units(a: Arena, key: str) -> list[Unit]:
    """A running group as it would be taken apart: extras, last first, then the core."""
    group = a.world.groups[key]
    tasks = sorted(
        (t for t in a.world.tasks.values() if t.group == key and t.state is TaskState.RUNNING),
        key=lambda task: task.index,
    )
    spare = len(tasks) - group.min_member
    found = (
        [
            Unit((task,), (group.priority, 0, -group.created), core=False)
            for task in reversed(tasks[len(tasks) - spare :])
        ]
        if spare > 0
        else []
    )
    core = tuple(tasks[: len(tasks) - len(found)])
    if core:
        shape = 1 if spare >= 0 else 2
        found.append(Unit(core, (group.priority, shape, -group.created), core=True))
    return found


def in_order(chains: list[list[Unit]]) -> list[Unit]:
    """All units as they would go: always the first by order of what the groups offer next."""
    left = [list(chain) for chain in chains if chain]
    found = []
    while left:
        chain = min(left, key=lambda offered: offered[0].order)
        found.append(chain.pop(0))
        left = [chain for chain in left if chain]
    return found


def sets(chains: list[list[Unit]]) -> Iterator[list[Unit]]:
    """All sets that take groups apart: of each any of its extras, or all of it."""
    for choice in product(*(_of_one(chain) for chain in chains)):
        yield [unit for part in choice for unit in part]


def _of_one(chain: list[Unit]) -> list[tuple[Unit, ...]]:
    extras = [unit for unit in chain if not unit.core]
    found = [some for n in range(len(extras) + 1) for some in combinations(extras, n)]
    return [*found, tuple(chain)] if len(extras) < len(chain) else found


def packs(free: dict[str, int], gpus: int, n: int) -> bool:
    """Return whether ``n`` equal tasks fit."""
    return sum(max(left, 0) // gpus for left in free.values()) >= n


def free_gpus(a: Arena) -> dict[str, int]:
    free = {name: node.allocatable[GPU] // 1000 for name, node in a.world.node_specs.items()}
    for task in a.world.tasks.values():
        if task.node:
            free[task.node] -= gpus_of(task)
    return free


def without(free: dict[str, int], gone: list[Unit]) -> dict[str, int]:
    found = dict(free)
    for unit in gone:
        for task in unit.tasks:
            found[task.node] += gpus_of(task)
    return found


def one_claimer(rng: random.Random, action: str, queues: list[str]) -> tuple[Arena, int, int]:
    """A cluster in which one gang of equal tasks claims, for the first of the queues."""
    a = Arena("allocate", action)
    for queue in queues:
        a.queue(queue, deserved=rng.randint(0, 4), weight=rng.randint(0, 2))
    free = {f"n{i}": rng.randint(1, 4) for i in range(rng.randint(1, 3))}
    for name, gpus in free.items():
        a.node(name, gpus)
    for number in range(rng.randint(2, 6)):
        gpus, places = rng.choice((1, 1, 2)), []
        for _ in range(rng.randint(1, 3)):
            room = [node for node, left in free.items() if left >= gpus]
            if room:
                node = rng.choice(room)
                free[node] -= gpus
                places.append(f"{node}:{gpus}")
        if places:
            priority = rng.choice((30, 40, 60, 100))
            a.runs(
                f"r{number}",
                rng.choice(queues),
                *places,
                min=rng.randint(1, len(places)),
                priority=priority,
                preemptible=priority < 100,
            )
    gpus, n = rng.choice((1, 1, 2, 3)), rng.randint(1, 3)
    a.waits("claimer", queues[0], *([gpus] * n), min=n, priority=50)
    return a, gpus, n


@settings(max_examples=examples(100), deadline=None)
@given(SEEDS)
def test_preemption_agrees_with_trying_every_set_of_victims(seed: int) -> None:
    rng = random.Random(seed)
    a, gpus, n = one_claimer(rng, "preempt", ["q0", "q1"])
    free = free_gpus(a)
    chains = [
        units(a, key)
        for key, group in sorted(a.world.groups.items())
        if group.queue == "kai/q0" and group.preemptible and group.priority < 50
    ]
    ranks = {id(unit): rank for rank, unit in enumerate(in_order(chains))}
    fitting = [chosen for chosen in sets(chains) if packs(without(free, chosen), gpus, n)]
    a.cycle(follow=False)
    if packs(free, gpus, n) or not fitting:
        assert a.evicted == set()
        return
    cheapest = min(fitting, key=lambda chosen: sum(1 << ranks[id(unit)] for unit in chosen))
    expected = {task.key.removeprefix(f"{NAMESPACE}/") for unit in cheapest for task in unit.tasks}
    assert a.evicted == expected
    assert len(a.promised) == n


@settings(max_examples=examples(100), deadline=None)
@given(SEEDS)
def test_reclaim_finds_something_whenever_the_rules_allow_anything(seed: int) -> None:
    rng = random.Random(seed)
    a, gpus, n = one_claimer(rng, "reclaim", ["q0", "q1", "q2"])
    free = free_gpus(a)
    chains = [
        units(a, key)
        for key, group in sorted(a.world.groups.items())
        if group.queue != "kai/q0" and group.preemptible
    ]
    order = in_order(chains)
    a.cycle(follow=False)
    if packs(free, gpus, n):
        assert a.evicted == set()
        return
    rules = Rules(a, gpus * n)
    allowed = [
        chosen
        for chosen in sets(chains)
        if chosen and packs(without(free, chosen), gpus, n) and rules.allow(sorted(chosen, key=order.index))
    ]
    if allowed and rules.may_claim():
        assert a.evicted, allowed
    if a.evicted:
        assert rules.may_claim()
        assert len([task for task in a.promised if task.startswith("claimer")]) == n
        charged = [
            unit
            for unit in order
            if {t.key.removeprefix(f"{NAMESPACE}/") for t in unit.tasks} <= a.evicted
            and not {t.key.removeprefix(f"{NAMESPACE}/") for t in unit.tasks} & set(a.promised)
        ]
        assert rules.allow(charged)


class Rules:
    """KAI's rules of reclaim for flat queues and GPUs alone, restated from their description.

    One more rule: no group takes what would be reclaimed at once.
    """

    def __init__(self, a: Arena, asked: int) -> None:
        self._asked = asked
        self._of = {task.key: a.world.groups[task.group].queue for task in a.world.tasks.values()}
        entries = a.world.engine.state.queues
        self._fair = {q.name: q.fair_share.get(GPU, 0) / 1000 for q in entries}
        self._deserved = {q.name: q.spec.deserved.get(GPU, 0) / 1000 for q in entries}
        self._held = {q.name: 0 for q in entries}
        for task in a.world.tasks.values():
            if task.node:
                self._held[self._of[task.key]] += gpus_of(task)

    def may_claim(self) -> bool:
        return self._held["kai/q0"] + self._asked <= self._fair["kai/q0"]

    def allow(self, chosen: list[Unit]) -> bool:
        within = self._held["kai/q0"] + self._asked <= self._deserved["kai/q0"]
        left = dict(self._held)
        for unit in chosen:
            queue = self._of[unit.tasks[0].key]
            allocatable = max(self._deserved[queue], self._fair[queue])
            if not (left[queue] > allocatable or (within and left[queue] > self._deserved[queue])):
                return False
            left[queue] -= unit.gpus
        return within or not any(self._takes_back(unit, left) for unit in chosen)

    def _takes_back(self, unit: Unit, left: dict[str, int]) -> bool:
        """Return whether a victim could reclaim: its queue deserves that much, the
        preemptor's holds too much."""
        queue = self._of[unit.tasks[0].key]
        back = left[queue] + unit.gpus
        return back <= self._deserved[queue] and back <= self._fair[queue]


# ---------------------------------------------------------------------- any history


@settings(max_examples=examples(25), deadline=None)
@given(SEEDS)
def test_whatever_happens_the_books_are_right_and_a_copy_decides_the_same(seed: int) -> None:
    """Nodes, queues and pods that relate to one another come and go while room is being made."""
    actions = (*ALL, "stalegangeviction")
    player = Player(start(Cluster(EngineConfig(actions=actions))), PLAIN + RELATED)
    player.play(drawn(seed, 50))  # every cycle is checked
    engine, now = player.cluster.engine, player.cluster.now
    copy = Engine.load(engine.dump(), default_plugins())
    claims = [
        {name: a.as_record() for name, a in one.plain_preempt_actions.items()} for one in (engine, copy)
    ]
    assert claims[0] == claims[1]
    for seconds in (1.0, 2.0, 3.0):
        ours, theirs = engine.cycle(now + seconds), copy.cycle(now + seconds)
        assert ours.evictions == theirs.evictions
        assert ours.nominations == theirs.nominations
        assert ours.binds == theirs.binds


# ---------------------------------------------------------------------- what is remembered


def played(seed: int, dialect: Dialect, *, forgetful: bool) -> list[Decision]:
    """Return the decisions for arriving groups, some of which end, are recreated or are
    confirmed late.

    ``forgetful``: the queues' candidates are not cached between cycles.
    """
    rng = random.Random(seed)
    a = Arena(*ALL, dialect=dialect)
    a.world.engine.state.plugins.victims_are_lasting &= not forgetful
    leaves = tree(a, rng)
    crowd(a, rng, leaves)
    a.world.overcommitted = True
    found = [a.cycle()]
    for number in range(12):
        match rng.randrange(4):
            case 0:
                a.waits(f"x{number}", rng.choice(leaves), rng.choice((1, 2, 3)), **_standing(rng, 1))
            case 1 if running := sorted(a.running()):
                gone = rng.choice(running)
                for key in [t.key for t in a.world.tasks.values() if t.group == f"{NAMESPACE}/{gone}"]:
                    a.world.remove_task(key.removeprefix(f"{NAMESPACE}/"))
            case 2:
                a.queue(rng.choice(leaves), deserved=rng.choice((0, 1, 3)), weight=rng.randint(0, 2))
            case _:
                a.world.confirm()
        a.decision = a.world.cycle(confirm=rng.random() < 0.6)
        if rng.random() < 0.7:
            a.follow()
        found.append(a.decision)
    return found


@settings(max_examples=examples(25), deadline=None)
@given(SEEDS, st.sampled_from((Dialect.KAI, Dialect.VOLCANO)))
def test_what_queues_offer_is_kept_as_it_would_be_asked_anew(seed: int, dialect: Dialect) -> None:
    kept, anew = (played(seed, dialect, forgetful=forgetful) for forgetful in (False, True))
    assert [(d.evictions, d.nominations, d.binds) for d in kept] == [
        (d.evictions, d.nominations, d.binds) for d in anew
    ]


# ---------------------------------------------------------------------- moving


def arrangement(free: dict[str, int], sizes: list[int]) -> bool:
    """Return whether tasks of these sizes fit together, by trying every node for each."""
    if not sizes:
        return True
    for node, left in free.items():
        if left >= sizes[0]:
            free[node] -= sizes[0]
            done = arrangement(free, sizes[1:])
            free[node] += sizes[0]
            if done:
                return True
    return False


@settings(max_examples=examples(100), deadline=None)
@given(SEEDS)
def test_work_is_moved_exactly_if_some_arrangement_holds_everybody(seed: int) -> None:
    rng = random.Random(seed)
    a = Arena("allocate", "consolidation").queue("q0", deserved=4)
    free = {f"n{i}": rng.randint(2, 4) for i in range(rng.randint(2, 3))}
    fixed = dict(free)
    for name, gpus in free.items():
        a.node(name, gpus)
    movable = []
    for number in range(rng.randint(2, 5)):
        gpus, places = rng.choice((1, 1, 2)), []
        for _ in range(rng.randint(1, 2)):
            room = [node for node, left in free.items() if left >= gpus]
            if room:
                places.append(rng.choice(room))
                free[places[-1]] -= gpus
        if not places:
            continue
        preemptible = rng.random() < 0.8
        a.runs(
            f"r{number}",
            "q0",
            *(f"{node}:{gpus}" for node in places),
            min=rng.randint(1, len(places)),
            preemptible=preemptible,
        )
        for node in places:
            if preemptible:
                movable.append(gpus)
            else:
                fixed[node] -= gpus
    gpus, n = rng.choice((2, 3, 4)), rng.randint(1, 2)
    a.waits("claimer", "q0", *([gpus] * n), min=n)
    a.cycle(follow=False)
    if packs(free, gpus, n):
        assert a.evicted == set()
    else:
        assert bool(a.evicted) is arrangement(fixed, sorted([*movable, *([gpus] * n)], reverse=True))
        assert a.evicted <= set(a.promised)
