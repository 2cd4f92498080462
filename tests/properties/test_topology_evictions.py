"""Preemption among gangs with topology constraints comes to rest, in random small clusters.

Running gangs then satisfy their constraints. The accounting and every decision are
checked after each cycle.
"""

from __future__ import annotations

from random import Random

from cluster_dsl import GIB, GPU, NAMESPACE
from example_counts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace as altered
from preemption_cluster import Arena

from windlass.spi.objects import Node, SubGroup
from windlass.spi.topology import Level, TopologyNeed

LEVELS = (Level("zone"), Level("rack"))
NEEDS = (
    None,
    TopologyNeed("network", LEVELS, 1),
    TopologyNeed("network", LEVELS, 0),
    TopologyNeed("network", LEVELS, 0, 1),
    TopologyNeed("network", LEVELS, -1, 1),
)
ACTIONS = (
    ("allocate", "preempt"),
    ("allocate", "reclaim"),
    ("allocate", "consolidation"),
    ("allocate", "consolidation", "reclaim", "preempt"),
)


def grounds(rng: Random) -> tuple[Arena, int]:
    """A cluster of racks with three queues, and how many GPUs a node has."""
    a = Arena(*rng.choice(ACTIONS))
    racks, nodes, gpus = rng.randint(2, 4), rng.randint(1, 3), rng.randint(1, 4)
    amounts = {"cpu": 64_000, "memory": 64 * GIB, "pods": 110, GPU: gpus * 1000}
    for rack in range(racks):
        for at in range(nodes):
            a.world.nodes(Node(f"r{rack}-{at}", amounts, {"zone": f"z{rack // 2}", "rack": f"r{rack}"}))
    for queue in range(3):
        deserved = rng.randint(0, racks * nodes * gpus // 2)
        a.queue(f"q{queue}", deserved=deserved, weight=float(rng.randint(0, 2)))
    return a, gpus


def come(a: Arena, rng: Random, name: str, gpus: int) -> None:
    sizes = [rng.randint(1, gpus) for _ in range(rng.randint(1, 4))]
    if rng.random() < 0.6:
        sizes = [sizes[0]] * len(sizes)
    parted = rng.random() < 0.25 and len(sizes) > 1
    parts: tuple[SubGroup, ...] = ()
    if parted:
        parts = (
            SubGroup("a", min_members=1, topology=rng.choice(NEEDS)),
            SubGroup("b", min_members=len(sizes) - 1, topology=rng.choice(NEEDS)),
        )
    a.waits(
        name,
        f"q{rng.randrange(3)}",
        *sizes,
        min=len(sizes) if parted else rng.randint(1, len(sizes)),
        priority=rng.choice([40, 50, 60]),
        preemptible=rng.random() < 0.8,
        topology=rng.choice(NEEDS),
        subgroups=parts,
    )
    for at in range(len(sizes) if parted else 0):
        key = f"{NAMESPACE}/{name}-{at}"
        a.world.task(altered(a.world.tasks[key], subgroup="b" if at else "a"))


def lies_near(a: Arena, key: str, part: str, need: TopologyNeed | None) -> bool:
    """Return whether the running pods of a group (or subgroup) are in one domain of the
    required level."""
    if need is None or need.required < 0:
        return True
    labels = [level.label for level in LEVELS[: need.required + 1]]
    tasks = [task for task in a.world.tasks.values() if task.group == key and task.node]
    nodes = [a.world.node_specs[task.node] for task in tasks if not part or task.subgroup == part]
    return len({tuple(node.labels[label] for label in labels) for node in nodes}) <= 1


@given(st.integers(0, 10**6))
@settings(max_examples=examples(40), deadline=None)
def test_it_comes_to_rest_and_everybody_lies_near(seed: int) -> None:
    rng = Random(seed)
    a, gpus = grounds(rng)
    for number in range(rng.randint(3, 12)):
        come(a, rng, f"g{number}", gpus)
        for _ in range(rng.randint(0, 3)):
            a.cycle()
    a.rest()
    for key, group in a.world.groups.items():
        assert lies_near(a, key, "", group.topology)
        assert all(lies_near(a, key, part.name, part.topology) for part in group.subgroups)
