"""The action ``enqueue`` of a tiered configuration: who is let in, and by what."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from msgspec.structs import replace as altered
from tier_configurations import config

from windlass.engine.decision import Decision
from windlass.engine.deltas import (
    GroupRemoved,
    GroupUpserted,
    NamespaceQuotaRemoved,
    NamespaceQuotaUpserted,
    QueueUpserted,
)
from windlass.engine.dump import dump
from windlass.engine.engine import Engine
from windlass.plugins import registry
from windlass.spi.objects import (
    Dialect,
    Group,
    NamespaceQuota,
    Needs,
    Queue,
    QueueState,
    Task,
)
from windlass.testing import Scene
from windlass.testing.scene import GPU, NAMESPACE


def waiting(scene: Scene, name: str, gpu: int, *, created: float = 1.0, pods: int = 0, **rest: Any) -> None:
    """A group that asks to be let in, with as many one-GPU pods."""
    key = f"{NAMESPACE}/{name}"
    group = Group(
        key, min_member=max(pods, 1), min_resources={GPU: gpu * 1000}, created=created, uid=key, **rest
    )
    scene.engine.apply([GroupUpserted(group)])
    for n in range(pods):
        needs = Needs(request=((GPU, 1000),), namespace=NAMESPACE, dialect=Dialect.VOLCANO)
        scene._enter(Task(f"{key}-{n}", f"{key}-{n}", key, needs, index=n))


def admitted(scene: Scene, decision: Decision) -> dict[str, bool]:
    return {status.group.partition("/")[2]: status.admitted for status in decision.groups}


def test_overcommit_lets_in_a_fifth_more_than_there_is() -> None:
    scene = Scene(config=config("enqueue allocate", "priority gang | overcommit predicates"))
    scene.node("n0", gpu=10)
    for n in range(7):
        waiting(scene, f"g{n}", 2, created=float(n + 1))
    found = admitted(scene, scene.cycle())
    assert found == {"g0": True, "g1": True, "g2": True, "g3": True, "g4": True, "g5": True, "g6": False}
    assert scene.code("g6") == "WaitingForShare"
    assert "overcommit 1.2 of the cluster's 10" in scene.message("g6")


def test_a_smaller_group_behind_a_refused_one_is_let_in() -> None:
    scene = Scene(config=config("enqueue allocate"))
    scene.node("n0", gpu=10)
    waiting(scene, "huge", 20, created=1.0)
    waiting(scene, "small", 2, created=2.0)
    assert admitted(scene, scene.cycle()) == {"huge": False, "small": True}


def test_who_is_not_let_in_gets_nothing_and_is_let_in_once_there_is_room() -> None:
    scene = Scene(config=config("enqueue allocate", "priority gang | proportion predicates"))
    scene.queue("default", limit_gpu=4)
    scene.node("n0", gpu=10)
    waiting(scene, "first", 4, created=1.0, pods=4)
    waiting(scene, "second", 2, created=2.0, pods=2)
    scene.cycle()
    assert scene.where("first") == {"n0": 4}
    assert scene.where("second") == {}
    scene.finish("first")
    scene.cycle()
    assert scene.where("second") == {"n0": 2}


def test_sla_lets_in_after_its_time_and_wakes_for_it() -> None:
    scene = Scene(
        config=config("enqueue allocate", "sla gang | overcommit predicates", sla={"sla-waiting-time": "1h"})
    )
    scene.node("n0", gpu=1)
    waiting(scene, "late", 5, created=scene.now, pods=1)
    decision = scene.cycle()
    assert admitted(scene, decision) == {"late": False}
    assert decision.wake_at == 1_003_600.0
    assert scene.code("late") == "WaitingForShare"  # its size is no obstacle for ever
    assert admitted(scene, scene.cycle(3600)) == {"late": True}


def test_what_a_group_has_booked_follows_what_it_asks_for() -> None:
    """Once it asks for less, others are let in for just what it gave back."""
    scene = Scene(config=config("enqueue allocate", "priority gang | proportion predicates"))
    scene.queue("default", limit_gpu=8)
    scene.node("n0", gpu=20)
    waiting(scene, "first", 6)
    assert admitted(scene, scene.cycle()) == {"first": True}
    waiting(scene, "first", 4, admitted=True)
    scene.cycle()
    waiting(scene, "five", 5, created=2.0)
    waiting(scene, "four", 4, created=3.0)
    assert admitted(scene, scene.cycle()) == {"five": False, "four": True}


def test_what_runs_is_not_booked_as_well() -> None:
    """A gang is placed behind the pass that let it in, and nothing is told of it later: what it had booked is what it
    holds now, and counts once."""
    scene = Scene(config=config("enqueue allocate", "priority gang | overcommit predicates"))
    scene.node("n0", gpu=10)
    waiting(scene, "first", 8, pods=8)
    scene.cycle()
    assert scene.where("first") == {"n0": 8}
    waiting(scene, "second", 2, created=2.0, pods=2)
    assert admitted(scene, scene.cycle())["second"]
    assert scene.where("second") == {"n0": 2}
    waiting(scene, "third", 3, created=3.0)
    waiting(scene, "fourth", 2, created=4.0)
    found = admitted(scene, scene.cycle())
    assert (found["third"], found["fourth"]) == (False, True)  # twelve may be let in


def test_neither_who_is_held_nor_whose_queue_is_closed_stands_in_line() -> None:
    """Nor is anything booked for them."""
    scene = Scene(config=config("enqueue allocate", "priority gang | overcommit predicates"))
    scene.node("n0", gpu=4)
    shut = Queue("shut", state=QueueState.CLOSED)
    scene.engine.apply([QueueUpserted(shut)])
    waiting(scene, "held", 2, held=True)
    waiting(scene, "away", 2, queue="shut")
    waiting(scene, "first", 4)
    assert admitted(scene, scene.cycle()) == {"held": False, "away": False, "first": True}
    assert scene.engine.state.gate.waiting == {}
    waiting(scene, "held", 0)
    scene.engine.apply([QueueUpserted(replace(shut, state=QueueState.OPEN))])
    scene.cycle()
    assert scene.engine.state.gate.waiting.keys() == {f"{NAMESPACE}/away"}


def test_who_goes_away_leaves_the_line() -> None:
    scene = Scene(config=config("enqueue allocate", "priority gang | overcommit predicates"))
    scene.node("n0", gpu=2)
    waiting(scene, "first", 3, created=1.0)
    waiting(scene, "second", 3, created=2.0)
    assert admitted(scene, scene.cycle()) == {"first": False, "second": False}
    scene.engine.apply([GroupRemoved(f"{NAMESPACE}/first")])
    scene.cycle()
    scene.node("n1", gpu=1)
    assert admitted(scene, scene.cycle()) == {"second": True}


def test_a_namespaces_quota_has_room_for_whom_is_let_in() -> None:
    scene = Scene(config=config("enqueue allocate", "priority gang | resourcequota predicates"))
    scene.node("n0", gpu=10)
    quota = NamespaceQuota(f"{NAMESPACE}/gpus", {GPU: 4000})
    scene.engine.apply(
        [NamespaceQuotaUpserted(quota), NamespaceQuotaUpserted(NamespaceQuota("other/gpus", {GPU: 0}))]
    )
    waiting(scene, "first", 2, created=1.0, pods=2)
    waiting(scene, "second", 2, created=2.0)  # its pods do not exist yet
    waiting(scene, "third", 1, created=3.0)
    scene.cycle()
    assert scene.where("first") == {"n0": 2}
    assert scene.engine.state.gate.admitted == {f"{NAMESPACE}/first", f"{NAMESPACE}/second"}
    assert scene.code("third") == "NamespaceQuota"
    assert "ResourceQuota default/gpus of 4" in scene.message("third")
    assert admitted(scene, scene.cycle()) == {}
    scene.engine.apply([NamespaceQuotaUpserted(NamespaceQuota(quota.key, {GPU: 5000}))])
    assert admitted(scene, scene.cycle()) == {"third": True}
    waiting(scene, "fourth", 1, created=4.0)
    assert admitted(scene, scene.cycle()) == {"fourth": False}
    scene.engine.apply([NamespaceQuotaRemoved(quota.key)])
    assert admitted(scene, scene.cycle()) == {"fourth": True}


def test_a_group_that_says_nothing_of_its_size_is_let_in() -> None:
    scene = Scene(config=config("enqueue allocate"))
    scene.node("n0", gpu=1)
    waiting(scene, "silent", 0)
    assert admitted(scene, scene.cycle()) == {"silent": True}


def test_who_is_let_in_stays_so_after_a_restart() -> None:
    wanted = config("enqueue allocate")
    scene = Scene(config=wanted)
    scene.node("n0", gpu=10)
    waiting(scene, "in", 10, created=1.0)
    waiting(scene, "out", 10, created=2.0)
    scene.cycle()
    plugins, _ = registry.build(wanted)
    engine = Engine.load(dump(scene.engine), plugins)
    assert engine.state.gate.admitted == {f"{NAMESPACE}/in"}
    assert engine.cycle(scene.now + 1).groups == ()
    assert not engine.reporter.is_admitted(engine.state.groups[f"{NAMESPACE}/out"])


def test_who_has_run_and_holds_nothing_any_more_asks_to_be_let_in_anew() -> None:
    """Its phase fell from Running to Pending; meanwhile others have come, who use up what may be let in."""
    scene = Scene(config=config("enqueue allocate", "priority gang | proportion predicates"))
    scene.queue("default", limit_gpu=4)
    scene.node("n0", gpu=10)
    waiting(scene, "first", 4, created=1.0)
    assert admitted(scene, scene.cycle()) == {"first": True}
    (group,) = [entry.spec for entry in scene.engine.state.groups.values()]
    scene.engine.apply([GroupUpserted(altered(group, admitted=True))])
    waiting(scene, "second", 4, created=0.5)
    assert admitted(scene, scene.cycle())["second"] is False
    scene.engine.apply([GroupUpserted(group)])
    assert admitted(scene, scene.cycle()) == {"second": True, "first": False}
