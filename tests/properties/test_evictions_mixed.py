"""Making room where both queue APIs share nodes, with CPU and GPUs, departments and teams: it comes to rest."""

from __future__ import annotations

from random import Random

from cluster_dsl import GPU, may_claim
from example_counts import examples
from hypothesis import example, given, settings
from hypothesis import strategies as st

from windlass.engine.deltas import GroupUpserted, QueueUpserted
from windlass.spi.objects import Dialect, Group, Needs, Queue, Task
from windlass.testing import Scene
from windlass.testing.scene import NAMESPACE

TREES = (
    (("kai/x", ""), ("kai/y", "")),
    (("kai/top", ""), ("kai/x", "kai/top"), ("kai/y", "kai/top")),
    (("kai/t", ""), ("kai/u", ""), ("kai/x", "kai/t"), ("kai/y", "kai/u")),
)


def queues(scene: Scene, random: Random) -> None:
    """One of Volcano's; KAI's that may deserve more than their parents, and more than there is."""
    scene.queue("root")
    scene.queue("va", parent="root", deserved_gpu=random.randint(0, 3), weight=random.randint(1, 2))
    for name, parent in random.choice(TREES):
        deserved, unlimited = {}, ["memory"]
        for resource, most in ((GPU, 6), ("cpu", 10)):
            kind = random.random()
            if kind < 0.15:
                unlimited.append(resource)
            elif kind < 0.85 and (units := random.randint(0, most) * 1000):
                deserved[resource] = units
        weights = {GPU: float(random.choice((0, 0, 1, 1, 2, 3))), "cpu": float(random.randint(0, 2))}
        queue = Queue(
            name,
            parent,
            deserved=deserved,
            unlimited=tuple(unlimited),
            surplus_weights=weights,
            capability={GPU: random.randint(1, 6) * 1000} if random.random() < 0.15 else {},
            priority=random.choice((100, 100, 100, 50)),
            dialect=Dialect.KAI,
        )
        scene.engine.apply([QueueUpserted(queue)])


def gang(scene: Scene, random: Random, name: str) -> None:
    queue = random.choice(("va", "kai/x", "kai/y", "kai/x", "kai/y"))
    dialect = Dialect.KAI if queue.startswith("kai/") else Dialect.VOLCANO
    pods, key = random.randint(1, 4), f"{NAMESPACE}/{name}"
    group = Group(
        key,
        queue=queue,
        priority=random.choice((50, 50, 75, 30)),
        min_member=random.randint(1, pods),
        created=float(name[1:]) + 1.0,
        uid=key,
        admitted=True,
        dialect=dialect,
        preemptible=random.random() < 0.9,
    )
    scene.engine.apply([GroupUpserted(group)])
    for index in range(pods):
        amounts = {GPU: random.choice((0, 1, 1, 2, 3)), "cpu": random.choice((0, 0, 1, 2, 4))}
        request = tuple((resource, units * 1000) for resource, units in amounts.items() if units)
        needs = Needs(request=request, namespace=NAMESPACE, dialect=dialect)
        scene._enter(Task(f"{key}-{index}", f"{key}-{index}", key, needs, index=index))


@settings(max_examples=examples(40), deadline=None)
@given(st.integers(0, 10**9))
@example(513)
@example(845)
def test_departments_and_teams_of_both_apis_come_to_rest(seed: int) -> None:
    random = Random(seed)
    scene = Scene()
    for n in range(random.randint(1, 4)):
        scene.node(f"n{n}", gpu=random.randint(1, 5), cpu=random.choice((4, 8, 16)))
    queues(scene, random)
    for n in range(random.randint(2, 9)):
        gang(scene, random, f"g{n}")
        if random.random() < 0.5:
            scene.cycle()
    for _ in range(90):
        decision = scene.cycle()
        done = decision.binds or decision.evictions or decision.nominations
        if not done and not may_claim(decision, scene.now):
            break
    else:
        raise AssertionError("no rest after 90 cycles")
    for _ in range(3):
        decision = scene.cycle()
        assert (decision.binds, decision.evictions, decision.nominations) == ((), (), ())
