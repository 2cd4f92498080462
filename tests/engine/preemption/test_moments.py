"""Two sides that took the same room in turn without end at one moment, each as small as it gets, and how it ends now.
Whatever is drawn: ``tests/properties/test_moments.py``."""

from __future__ import annotations

from typing import Any

import pytest
from cluster_dsl import GPU
from instant_cluster import NAMESPACE, START, Case, Gang, World, settle
from tier_configurations import config as tiered

from windlass.engine.config import EngineConfig
from windlass.engine.deltas import NodeUpserted
from windlass.engine.engine import Engine
from windlass.plugins import registry
from windlass.spi.configuration import SchedulerConfig
from windlass.spi.objects import Dialect, Group, Needs, Node, Queue, Task

OWN = SchedulerConfig()


def node(name: str, gpus: int) -> Node:
    amounts = {"cpu": 64_000, "memory": 1 << 36, "pods": 110, GPU: gpus * 1000}
    return Node(name, amounts, {"kubernetes.io/hostname": name})


def queue(name: str, **rest: Any) -> Queue:
    """Those named ``kai/…`` are KAI's, with any amount of CPU and memory."""
    amounts = {key: {GPU: n * 1000} if type(n) is int else n for key, n in rest.items()}
    if name.startswith("kai/"):
        free = ("cpu", "memory")
        return Queue(name, **{"priority": 100, "dialect": Dialect.KAI, "unlimited": free, **amounts})
    return Queue(name, **amounts)


def gang(name: str, into: str, *gpus: int, priority: int = 10, **rest: Any) -> Gang:
    """One pod for each amount; all start together."""
    key, dialect = f"{NAMESPACE}/{name}", Dialect.KAI if into.startswith("kai/") else Dialect.VOLCANO
    made = {"min_member": len(gpus), "created": START - 100 + int(name[1:]), "admitted": True, **rest}
    group = Group(key, into, priority, dialect=dialect, **made)
    tasks = []
    for at, n in enumerate(gpus):
        needs = Needs((("cpu", 1000), (GPU, n * 1000)), namespace=NAMESPACE, dialect=dialect)
        tasks.append(Task(f"{key}-{at}", f"{key}-{at}", key, needs, index=at, priority=priority))
    return Gang(group, tuple(tasks))


def world(
    nodes: list[int], queues: list[Queue], *gangs: Gang, policy: SchedulerConfig = OWN, lingers: bool = False
) -> World:
    """Each gang comes a cycle after the one before it."""
    names = [node(f"n{at}", gpus) for at, gpus in enumerate(nodes)]
    case = Case(policy, EngineConfig(), tuple(names), tuple(queues), (), lingers)
    made = World(case)
    for one in gangs:
        made.come(one)
        made.cycle()
    return made


@pytest.mark.parametrize("compatibility", ["", "volcano"])
def test_tiers_in_which_nobody_weighs_groups_name_lower_priorities_alone(compatibility: str) -> None:
    """``gang`` keeps both whole, ``cdp`` names both: they took each other's room by turns, and their own."""
    policy = tiered("allocate preempt", "gang | cdp", compatibility=compatibility)
    a = world([1, 1], [queue("q")], gang("g1", "q", 1), gang("g2", "q", 1, 1), policy=policy)
    assert settle(a).faults() == []
    assert a.running() == {"g1": 1}
    a.come(gang("g3", "q", 1, 1, priority=50))
    assert settle(a).evicted.total() == 1
    assert a.running() == {"g3": 2}


def test_a_later_tier_names_nobody_of_higher_priority() -> None:
    """``drf`` would: who has less would take from who is more important, who has it back by ``priority``."""
    policy = tiered("allocate preempt", "priority gang | drf", gang={})
    a = world([4], [queue("q")], gang("g1", "q", 1, 1, 1, 1, priority=50, min_member=1), policy=policy)
    a.come(gang("g2", "q", 1))
    assert settle(a).faults() == []
    assert a.running() == {"g1": 4}
    a.come(gang("g3", "q", 1, priority=50))
    assert settle(a).faults() == []
    assert a.running() == {"g1": 3, "g3": 1}  # of equals the one who has less


def test_room_that_is_promised_is_not_what_a_guarantee_rests_on() -> None:
    """Two GPUs stay free for a queue that is guaranteed them. What terminates was counted though it was promised: a
    second promise was given for it, of which only one could be kept, to the one who had just gone."""
    queues = [queue("kept", guarantee=2), queue("q1"), queue("q2")]
    a = world([4], queues, gang("g1", "q2", 1), gang("g2", "q1", 1, 1, min_member=1), lingers=True)
    a.come(gang("g3", "q1", 1, priority=50))
    found = settle(a)
    assert found.faults() == []
    assert a.running() == {"g1": 1, "g3": 1}


def test_of_what_volcanos_queues_say_nothing_kais_take_nothing_back() -> None:
    """The CPUs that go with what Volcano's queue deserves of the GPUs are nobody's due: whom it was taken from by right
    took it back for their sake."""
    queues = [queue("kai/k", deserved=2), queue("v", deserved=6)]
    a = world([4, 4], queues, gang("g1", "kai/k", 2), gang("g2", "kai/k", 3, priority=50))
    a.come(gang("g3", "v", 3, 3))
    found = settle(a)
    assert found.faults() == []
    assert a.running() == {"g3": 2}


def test_nobody_reclaims_surplus_from_those_who_would_take_it_back_by_what_they_deserve() -> None:
    """Only with the small gang gone is there room for the large one; its queue deserves that much, and would have the
    large one go again, as its queue has a share of all but deserves nothing."""
    queues = [
        queue("kai/k", deserved=2, surplus_weights={GPU: 0.0}),
        queue("kai/v", surplus_weights={GPU: 1.0}),
    ]
    a = world([4, 4], queues, gang("g1", "kai/k", 2), gang("g2", "kai/k", 3, priority=50))
    a.come(gang("g3", "kai/v", 3, 3))
    found = settle(a)
    assert found.faults() == []
    assert not found.evicted


def test_gangreclaim_takes_no_more_than_a_share_where_nobody_says_what_queues_deserve() -> None:
    """Without ``proportion`` and ``capacity``: each queue has one GPU of two; either gang is more than that, and took
    both from the other."""
    policy = tiered("allocate gangreclaim", "priority | predicates")
    a = world([2], [queue("q1"), queue("q2")], gang("g1", "q1", 2), gang("g2", "q2", 2), policy=policy)
    assert settle(a).faults() == []
    assert a.running() == {"g1": 1}
    a.come(gang("g3", "q2", 1))
    settle(a)
    assert a.running() == {"g3": 1}  # what is its queue's due


def test_gangreclaim_takes_only_from_queues_that_hold_too_much_of_something() -> None:
    """Pods are no part of a share: with one pod each queue counted as one that holds too much."""
    policy = tiered("allocate gangreclaim", "priority | predicates")
    queues = [queue("q0", reclaimable=False), queue("q1", deserved=2), queue("q2", deserved=2)]
    gangs = [gang("g1", "q0", 2), gang("g2", "q1", 2), gang("g3", "q2", 2)]
    a = world([4], queues, *gangs, policy=policy)
    found = settle(a)
    assert found.faults() == []
    assert not found.evicted
    assert a.running() == {"g1": 1, "g2": 1}


def test_only_once_others_go_for_a_part_of_a_gang_that_does_not_start() -> None:
    """Under ``compatibility: volcano`` without ``gang``. Windlass does not start the part, so who had gone came back,
    and went again."""
    policy = tiered("allocate preempt", "priority | predicates", compatibility="volcano")
    a = world([1, 1], [queue("q")], gang("g1", "q", 1), policy=policy)
    a.come(gang("g2", "q", 1, 1, 1, priority=50))
    found = settle(a)
    assert found.still
    assert found.evicted.total() == 1
    assert a.running() == {"g1": 1}
    a.engine = Engine.load(a.engine.dump(), registry.build(policy)[0])
    assert settle(a).said == ["nothing"]  # a dump knows of it, too
    a.engine.apply([NodeUpserted(node("n2", 1))])
    found = settle(a)
    assert found.faults() == []
    assert a.running() == {"g2": 3}  # all of it fits now


def test_tiers_evict_nobody_from_room_that_is_kept_for_others() -> None:
    """All of the node is kept for an urgent gang, for when the large one has ended. The small one would run for longer,
    so it may not have the room of whom it reclaims from, who came back."""
    policy = tiered("allocate reclaim", "priority gang | predicates capacity")
    queues = [queue("q1", deserved=2), queue("q2", deserved=1)]
    a = world([4], queues, gang("g1", "q2", 2, 2, min_member=1, run_estimate=600.0), policy=policy)
    a.come(gang("g2", "q1", 4, priority=50, run_estimate=60.0))
    assert settle(a).faults() == []
    a.come(gang("g3", "q1", 1, run_estimate=3600.0))
    found = settle(a)
    assert found.faults() == []
    assert not found.evicted
    assert a.running() == {"g1": 2}
