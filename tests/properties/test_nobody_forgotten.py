"""No group is forgotten: once nothing happens any more, a restarted scheduler finds
nothing to do.

The new scheduler knows no failed attempts and their times. A group that it starts was
not retried when its obstacle had disappeared.
"""

from __future__ import annotations

from random import Random

from cluster_dsl import NAMESPACE, Cluster, needs
from example_counts import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from windlass.engine.config import EngineConfig
from windlass.engine.deltas import GroupUpserted, QueueUpserted, TaskUpserted
from windlass.spi.objects import TaskState

QUEUES = ("a", "b", "c", "d parent=c", "e parent=c")
TERMS = ("guarantee", "deserved", "limit")
CONFIG = EngineConfig(backfill="none")
EVENTS = ("gang", "gang", "finish", "finish", "node", "queue", "cordon", "cycle")


class Story:
    """Events drawn by a seed: work tied to nodes arrives and ends, nodes and rules of
    queues change."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.cluster = Cluster(CONFIG)
        self.cluster.overcommitted = True  # limits are lowered below what is held
        self.made = 0
        for text in QUEUES:
            self._rules(text)
        for _ in range(3):
            self._node()

    def play(self, events: int) -> Cluster:
        for _ in range(events):
            getattr(self, f"_{self.rng.choice(EVENTS)}")()
        self.cluster.settle()
        return self.cluster

    def _rules(self, text: str) -> None:
        terms = [f"{kind}.gpu={self.rng.randrange(7)}" for kind in TERMS if self.rng.random() < 0.4]
        self.cluster.queues(" ".join((text, *terms)))

    def _queue(self) -> None:
        self._rules(self.rng.choice(QUEUES))

    def _node(self) -> None:
        name, zone = f"n{self.rng.randrange(5)}", self.rng.choice("xyz")
        self.cluster.nodes(f"{name} gpu={self.rng.randrange(5)} cpu=8 zone={zone}")

    def _cordon(self) -> None:
        name = self.rng.choice(sorted(self.cluster.node_specs))
        self.cluster.nodes(f"{name} gpu={self.rng.randrange(5)} cpu=8 zone=x cordoned")

    def _gang(self) -> None:
        self.made += 1
        zone = {"node_selector": {"zone": self.rng.choice("xyz")}} if self.rng.random() < 0.6 else {}
        wants = needs(f"gpu={self.rng.randrange(1, 3)}", **zone)
        members = self.rng.randrange(1, 4)
        queue = self.rng.choice(("a", "b", "d", "e"))
        least = self.rng.randrange(1, members + 1)
        self.cluster.gang(f"g{self.made}", members, wants, min=least, queue=queue)

    def _finish(self) -> None:
        running = sorted({task.group for task in self.cluster.tasks.values() if task.node})
        if running:
            name = self.rng.choice(running).removeprefix(f"{NAMESPACE}/")
            self.cluster.finish(name, TaskState.SUCCEEDED)

    def _cycle(self) -> None:
        self.cluster.cycle()


def begun_anew(cluster: Cluster) -> Cluster:
    """Another scheduler, told of all that there is."""
    other = Cluster(CONFIG)
    other.overcommitted = True
    other.now = cluster.now
    other.nodes(*cluster.node_specs.values())
    known = [queue.spec for queue in cluster.engine.state.queues if not queue.missing]
    other.engine.apply([QueueUpserted(spec) for spec in known])
    other.groups, other.tasks = dict(cluster.groups), dict(cluster.tasks)
    other.engine.apply([GroupUpserted(group) for group in cluster.groups.values()])
    other.engine.apply([TaskUpserted(task) for task in cluster.tasks.values()])
    return other


@settings(max_examples=examples(60), deadline=None)
@given(seed=st.integers(0, 1 << 32), events=st.integers(4, 40))
def test_who_waits_at_rest_would_wait_if_the_scheduler_began_anew(seed: int, events: int) -> None:
    found = begun_anew(Story(seed).play(events)).cycle()
    assert (found.binds, found.evictions) == ((), ())


def test_such_stories_have_some_who_wait_and_some_who_run() -> None:
    waiting = running = 0
    for seed in range(5):
        cluster = Story(seed).play(30)
        waiting += sum(bool(group.pending) for group in cluster.engine.state.groups.values())
        running += sum(bool(task.node) for task in cluster.tasks.values())
    assert waiting >= 5 <= running
