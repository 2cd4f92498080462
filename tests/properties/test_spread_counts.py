"""Counts of topology spread constraints equal a count from scratch, also in tentative
states."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from cluster_dsl import Cluster, needs
from engine_fuzz import Op, Player, self_anti
from example_counts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace as altered
from preemption_cluster import ALL, Arena
from spread_reference import check_spreads

from windlass.engine.backfill.forecast import _Planning
from windlass.engine.engine import Engine
from windlass.engine.placement.placer import Placer
from windlass.engine.state.statement import Statement
from windlass.plugins.defaults import default_plugins
from windlass.spi.objects import Expression, SpreadTerm, TaskState

HOST = "kubernetes.io/hostname"
APP = (Expression("app", "In", ("s",)),)


TERMS: tuple[tuple[SpreadTerm, ...], ...] = (
    (),
    (SpreadTerm("zone", 1, True, APP),),
    (SpreadTerm("zone", 2, True, APP, 2), SpreadTerm(HOST, 1, False, APP)),
    (SpreadTerm(HOST, 1, True, APP, honor_taints=True),),
)
CLASSES = (*[needs("gpu=1", spread=terms, labels={"app": "s"}) for terms in TERMS], self_anti("zone", "s"))
EVENTS = ("gang", "leave", "kill_task", "stick", "release", "rename", "node", "cordon", "remove", "fail_bind")
THOUGHTS: tuple[tuple[type, str], ...] = (
    (Statement, "evict"),
    (Statement, "withdraw_eviction"),
    (Statement, "rollback"),
    (_Planning, "_end"),
    (_Planning, "undo"),
    (Placer, "constraints"),
)
"""Steps at which tasks tentatively terminate or are restored.

The counts are compared after each, for now and for the time after termination.
"""


@contextmanager
def every_thought(check: Callable[[], None]) -> Iterator[Counter[str]]:
    """Inside, look after each of these. Yields how often each was."""
    seen: Counter[str] = Counter()

    def watched(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **rest: Any) -> Any:
            found = method(*args, **rest)
            seen[name] += 1
            check()
            return found

        return call

    with pytest.MonkeyPatch.context() as patch:
        for owner, name in THOUGHTS:
            patch.setattr(owner, name, watched(name, getattr(owner, name)))
        yield seen


def scene(rng: random.Random) -> Arena:
    """Two queues, four nodes in three zones; groups that run and groups that wait, many of them spread."""
    a = Arena(*ALL)
    free = {f"n{at}": rng.randint(1, 3) for at in range(4)}
    a.world.nodes(
        *[f"{name} gpu={n} cpu=64 mem=64 zone={'abca'[at]}" for at, (name, n) in enumerate(free.items())]
    )
    a.world.overcommitted = True
    for name in ("q0", "q1"):
        a.queue(name, deserved=rng.randint(0, 4), weight=1)
    for number in range(rng.randint(3, 8)):
        queue, priority = f"q{rng.randint(0, 1)}", rng.choice((30, 50, 70, 100))
        rest = {
            "priority": priority,
            "preemptible": priority < 100,
            "run_estimate": rng.choice((None, 20.0, 90.0)),
        }
        places = [node for node in rng.sample(sorted(free), rng.randint(1, 3)) if free[node]]
        if number % 2 and places:
            a.runs(f"g{number}", queue, *[f"{node}:1" for node in places], **rest)
            for node in places:
                free[node] -= 1
        else:
            a.waits(f"g{number}", queue, *([rng.randint(1, 2)] * rng.randint(1, 3)), **rest)
        spread(a.world, f"ns/g{number}", rng.choice(TERMS))
    return a


def spread(cluster: Cluster, group: str, terms: tuple[SpreadTerm, ...]) -> None:
    """The pods of a group are of the kind that is counted; it is to be spread so."""
    for task in [task for task in cluster.tasks.values() if task.group == group]:
        cluster.task(altered(task, needs=replace(task.needs, spread=terms, labels=(("app", "s"),))))


def play(seed: int) -> tuple[Counter[str], Counter[TaskState], Cluster]:
    """A scene in which room is made and starts are foretold, while pods and nodes come and go: what is counted is
    held against what is there wherever anything changes."""
    rng = random.Random(seed)
    a, states = scene(rng), Counter[TaskState]()
    player = Player(a.world, CLASSES)
    with every_thought(lambda: check_spreads(a.world.engine)) as seen:
        for _ in range(8):
            a.cycle(rng.choice((1.0, 30.0)), follow=rng.random() < 0.5)
            for kind in rng.sample(EVENTS, 2):
                player.play([Op(kind, rng.randrange(51), rng.randrange(51), rng.randrange(51))])
                check_spreads(a.world.engine)
            states.update(entry.state for entry in a.world.engine.state.tasks.values())
    return seen, states, a.world


@settings(max_examples=examples(60), deadline=None)
@given(st.integers(0, 10**9))
def test_what_is_counted_is_what_does_not_terminate(seed: int) -> None:
    cluster = play(seed)[2]
    check_spreads(Engine.load(cluster.engine.dump(), default_plugins()))


def test_there_is_all_that_is_looked_at() -> None:
    total, states = Counter[str](), Counter[TaskState]()
    for seed in range(30):
        seen, met, _ = play(seed)
        total, states = total + seen, states + met
    assert {name for _, name in THOUGHTS} == set(total)
    assert {TaskState.RELEASING, TaskState.STUCK} <= set(states)
