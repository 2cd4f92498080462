"""What queues are due of single device models: ``guarantee`` and ``deserved`` by ``nvidia.com/gpu@MODEL``."""

from __future__ import annotations

from dataclasses import replace

import pytest
from cluster_dsl import Cluster, may_claim, needs
from msgspec.structs import replace as altered

from windlass.api.reasons import Reason
from windlass.engine.decision import Decision
from windlass.engine.deltas import QueueUpserted, TaskUpserted
from windlass.engine.dump import dump
from windlass.engine.engine import Engine
from windlass.plugins.defaults import default_plugins
from windlass.spi.configuration import PluginOption, PluginTier, SchedulerConfig
from windlass.spi.objects import Queue, Task, TaskState
from windlass.spi.plugins import include_flavors
from windlass.testing import Scene
from windlass.testing.scene import GPU, NAMESPACE

PRODUCT = f"{GPU}.product"
MODELS = {"h": "NVIDIA-H100-80GB-HBM3", "a": "NVIDIA-A100-SXM4-80GB"}
CAPACITY = SchedulerConfig(
    ("enqueue", "allocate", "reclaim"),
    (PluginTier((PluginOption("priority"), PluginOption("gang"), PluginOption("capacity"))),),
)


def due(**models: int) -> dict[str, int]:
    return {f"{GPU}@{model}": units * 1000 for model, units in models.items()}


class Models(Scene):
    """Two nodes of eight GPUs, ``h`` of H100 and ``a`` of A100."""

    def __init__(self, config: SchedulerConfig | None = None) -> None:
        super().__init__(config=config)
        for name, model in MODELS.items():
            self.node(name, gpu=8, labels={PRODUCT: model})

    def rules(self, name: str, *, parent: str = "", weight: int = 1, **amounts: dict[str, int]) -> None:
        self.engine.apply([QueueUpserted(Queue(name, parent, weight, **amounts))])

    def pinned(self, name: str, pods: int, node: str, queue: str, *, min_member: int | None = None) -> None:
        """A gang of one-GPU pods that go to nodes of one model only."""
        self.gang(name, pods=0, min_member=pods if min_member is None else min_member, queue=queue)
        shape = Scene()
        shape.gang("x", gpu=1)
        (any_task,) = shape._of("x")
        needs = replace(any_task.needs, node_selector=((PRODUCT, MODELS[node]),), dialect=self._dialect)
        for index in range(pods):
            key = f"{NAMESPACE}/{name}-{index}"
            self._enter(Task(key, key, f"{NAMESPACE}/{name}", needs, index=index))

    def held(self, queue: str, which: str = "allocated") -> dict[str, int]:
        """By model, in devices."""
        sums = getattr(self.engine.state.queues.entries[queue], which)
        return {
            name.partition("@")[2]: units // 1000 for name, units in sums.items() if "@" in name and units
        }

    def rest(self) -> list[Decision]:
        """Cycles until nothing happens, and five more."""
        found = []
        for _ in range(50):
            decision = self.cycle()
            if decision.binds or decision.evictions or decision.nominations:
                found.append(decision)
            elif not may_claim(decision, self.now):
                break
        else:
            raise AssertionError("no rest")
        for _ in range(5):
            decision = self.cycle()
            assert (decision.binds, decision.evictions) == ((), ())
        return found


def test_what_is_stated_by_model_counts_for_the_device() -> None:
    assert include_flavors({GPU: 1000, "cpu": 5}) == {GPU: 1000, "cpu": 5}
    assert include_flavors(due(H100=8, A100=4)) == {**due(H100=8, A100=4), GPU: 12000}
    assert include_flavors({GPU: 20000, **due(H100=8)})[GPU] == 20000


# ---------------------------------------------------------------------- guarantee


@pytest.mark.parametrize("config", [None, CAPACITY], ids=["windlass", "capacity"])
def test_what_is_guaranteed_of_a_model_stays_free_for_the_queue(config: SchedulerConfig | None) -> None:
    scene = Models(config)
    scene.rules("own", guarantee=due(H100=4))
    scene.rules("other")
    scene.gang("greedy", pods=16, min_member=1, gpu=1, queue="other")
    scene.rest()
    assert scene.where("greedy") == {"a": 8, "h": 4}
    scene.pinned("mine", 4, "h", "own")
    scene.rest()
    assert scene.where("mine") == {"h": 4}


def test_what_the_queue_itself_holds_fills_its_guarantee() -> None:
    scene = Models()
    scene.rules("own", guarantee=due(H100=4))
    scene.rules("other")
    scene.pinned("mine", 3, "h", "own")
    scene.rest()
    scene.gang("greedy", pods=16, min_member=1, gpu=1, queue="other")
    scene.rest()
    assert scene.where("greedy") == {"a": 8, "h": 4}
    scene.finish("mine")
    scene.rest()
    assert scene.where("greedy") == {"a": 8, "h": 4}
    scene.rules("own", guarantee=due(H100=1))
    scene.rest()
    assert scene.where("greedy") == {"a": 8, "h": 7}


def test_a_guarantee_of_a_parent_is_for_all_below_it() -> None:
    scene = Models()
    scene.rules("team", guarantee=due(H100=6))
    scene.rules("x", parent="team")
    scene.rules("y", parent="team", guarantee=due(H100=2))
    scene.rules("other")
    scene.pinned("ours", 8, "h", "x", min_member=1)
    scene.rest()
    assert scene.where("ours") == {"h": 6}
    scene.pinned("theirs", 1, "h", "other")
    scene.rest()
    assert scene.where("theirs") == {}
    scene.pinned("y", 2, "h", "y")
    scene.rest()
    assert scene.where("y") == {"h": 2}


def test_who_waits_is_told_what_is_guaranteed_to_others() -> None:
    scene = Models()
    scene.rules("own", guarantee=due(H100=4))
    scene.rules("other")
    scene.pinned("five", 5, "h", "other")
    scene.cycle()
    assert scene.where("five") == {}
    told = scene.engine.explain(f"{NAMESPACE}/five", scene.now)
    assert told is not None
    assert told.code is Reason.WAITING_FOR_QUOTA
    assert (told.blockers[0].resource, told.blockers[0].needed, told.blockers[0].available) == (
        f"{GPU}@H100",
        "5",
        "4",
    )
    assert f"4 of {GPU}@H100" in str(told)
    scene.pinned("four", 4, "h", "other")
    scene.rest()
    assert scene.where("four") == {"h": 4}
    scene.rules("own")
    scene.finish("four")
    scene.rest()
    assert scene.where("five") == {"h": 5}


def test_who_waits_for_a_model_that_is_guaranteed_to_others_is_woken_by_another_node_of_it() -> None:
    """Also where he could not run there: what is free of a model anywhere covers what others are guaranteed."""
    c = Cluster().queues("other").nodes(f"h1 gpu=8 zone=x {PRODUCT}={MODELS['h']}")
    c.engine.apply([QueueUpserted(Queue("own", guarantee=due(H100=8)))])
    c.gang("here", 1, needs("gpu=1", node_selector={"zone": "x"}), queue="other")
    c.settle()
    assert c.where("here") == {}
    c.nodes(f"h2 gpu=8 zone=y {PRODUCT}={MODELS['h']}")
    c.cycle()
    assert c.where("here") == {"h1": 1}


def test_reclaim_leaves_what_is_guaranteed_of_a_model() -> None:
    scene = Models()
    scene.rules("rich", guarantee=due(H100=3))
    scene.rules("poor", deserved=due(H100=8))
    scene.pinned("theirs", 8, "h", "rich", min_member=1)
    scene.rest()
    scene.pinned("mine", 8, "h", "poor", min_member=1)
    scene.rest()
    assert (scene.held("rich"), scene.held("poor")) == ({"H100": 3}, {"H100": 5})


# ---------------------------------------------------------------------- deserved


def test_models_are_divided_as_any_other_resource() -> None:
    scene = Models()
    scene.rules("x", deserved=due(H100=4))
    scene.rules("y", weight=3)
    scene.pinned("one", 8, "h", "x", min_member=1)
    scene.gang("two", pods=20, min_member=1, gpu=1, queue="y")
    scene.cycle()
    entries = scene.engine.state.queues.entries
    h100 = f"{GPU}@H100"
    assert entries["x"].fair_share[h100] == 4000 + 1000
    assert entries["y"].fair_share[h100] == 3000
    assert entries["x"].fair_share[GPU] == 4000 + 3000
    assert f"{GPU}@A100" not in entries["y"].fair_share
    assert entries["x"].demand[h100] == 8000


@pytest.mark.parametrize("config", [None, CAPACITY], ids=["windlass", "capacity"])
def test_a_queue_takes_back_what_it_deserves_of_a_model(config: SchedulerConfig | None) -> None:
    scene = Models(config)
    scene.rules("own", deserved=due(H100=8))
    scene.rules("other", deserved=due(A100=8))
    scene.gang("greedy", pods=16, min_member=1, gpu=1, queue="other")
    scene.rest()
    assert scene.where("greedy") == {"a": 8, "h": 8}
    scene.pinned("mine", 6, "h", "own")
    scene.rest()
    assert scene.where("mine") == {"h": 6}
    assert scene.where("greedy") == {"a": 8, "h": 2}
    scene.pinned("more", 3, "h", "own")
    scene.rest()
    assert scene.where("more") == {}
    assert scene.where("greedy") == {"a": 8, "h": 2}


@pytest.mark.parametrize("config", [None, CAPACITY], ids=["windlass", "capacity"])
def test_a_queue_keeps_its_share_of_a_model_whatever_else_it_holds(config: SchedulerConfig | None) -> None:
    scene = Models(config)
    scene.rules("own", deserved={GPU: 8000})
    scene.rules("other", deserved=due(A100=8))
    scene.gang("greedy", pods=16, min_member=1, gpu=1, queue="other")
    scene.rest()
    scene.gang("any", pods=8, gpu=1, queue="own")
    scene.rest()
    assert scene.where("any") == {"h": 8}
    assert scene.where("greedy") == {"a": 8}


def test_a_claim_stays_within_the_share_of_the_model_it_names() -> None:
    scene = Models()
    scene.rules("own", deserved={GPU: 8000})
    scene.rules("other", deserved=due(A100=8))
    scene.gang("greedy", pods=16, min_member=1, gpu=1, queue="other")
    scene.rest()
    scene.pinned("mine", 2, "a", "own")
    scene.rest()
    assert scene.where("mine") == {}
    assert "fair share" in str(scene.engine.explain(f"{NAMESPACE}/mine", scene.now))


# ---------------------------------------------------------------------- books


def test_what_waits_asks_for_every_model_that_would_do() -> None:
    scene = Models()
    scene.rules("q", deserved=due(H100=1, A100=1))
    scene.pinned("h", 3, "h", "q", min_member=9)
    scene.gang("any", pods=2, min_member=9, gpu=1, queue="q")
    scene.cycle()
    assert scene.held("q", "pending") == {"H100": 5, "A100": 2}
    scene.gang("any", pods=2, min_member=1, gpu=1, queue="q")
    scene.rest()
    assert scene.held("q", "pending") == {"H100": 3}
    copy = Engine.load(dump(scene.engine), default_plugins())
    entry = copy.state.queues.entries["q"]
    assert entry.pending[f"{GPU}@H100"] == 3000
    assert entry.fair_share == scene.engine.state.queues.entries["q"].fair_share
    scene.rules("q")
    scene.rest()
    assert (scene.held("q", "pending"), scene.held("q")) == ({}, {})


def test_nodes_that_are_not_ready_and_work_of_others_are_not_divided() -> None:
    scene = Models()
    scene.rules("q", deserved=due(H100=1))
    scene.rules("r")
    scene.pinned("r", 9, "h", "r", min_member=1)
    scene.cycle()
    h100, entries = f"{GPU}@H100", scene.engine.state.queues.entries
    assert entries["r"].fair_share[h100] == 8000
    shape = Scene()
    shape.gang("x", gpu=1)
    (task,) = shape._of("x")
    scene.finish("r")
    scene.cycle()
    scene.engine.apply(
        [TaskUpserted(altered(task, key="o/x", uid="o", group="", node="h", state=TaskState.RUNNING))]
    )
    scene.pinned("s", 9, "h", "r", min_member=9)
    scene.cycle()
    assert entries["r"].fair_share[h100] == 7000
    scene.node("h", gpu=8, labels={PRODUCT: MODELS["h"]}, ready=False)
    scene.cycle()
    assert not entries["r"].fair_share.get(h100)
