"""KAI's order and quota, guarantees, Volcano's proportion and capacity: on hand-made views."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import pytest
from cluster_dsl import GPU, Cluster, needs, queue, resources
from hypothesis import given, settings
from hypothesis import strategies as st

from windlass.api.reasons import Reason
from windlass.engine.config import EngineConfig
from windlass.engine.deltas import QueueUpserted
from windlass.engine.nodes.table import NodeTable
from windlass.engine.nodes.view import TableView
from windlass.plugins.kai.admission import NonPreemptibleQuota
from windlass.plugins.kai.fair_share import KaiDivision, entitled
from windlass.plugins.kai.queue_order import KaiQueueOrder, order_key
from windlass.plugins.queues.guarantees import Guarantees
from windlass.plugins.volcano.queues.division import CapacityDivision, ProportionDivision
from windlass.plugins.volcano.queues.queue_orders import (
    WHOLE,
    CapacityOrder,
    ProportionOrder,
    capacity_share,
    proportion_share,
)
from windlass.spi.objects import Dialect, Group, Queue, TaskState
from windlass.spi.plugins import StepView
from windlass.spi.shares import ShareCause

TOTAL = {"cpu": 100_000, "memory": 100, GPU: 10_000}


@dataclass
class View:
    """A queue as policies see it."""

    spec: Queue
    committed: Mapping[str, int] = field(default_factory=dict)
    demand: Mapping[str, int] = field(default_factory=dict)
    fair_share: Mapping[str, int] = field(default_factory=dict)
    allocatable_share: Mapping[str, int] = field(default_factory=dict)
    real_capability: Mapping[str, int] = field(default_factory=dict)
    allocated_nonpreemptible: Mapping[str, int] = field(default_factory=dict)
    usage: Mapping[str, int] = field(default_factory=dict)
    subqueues: tuple[View, ...] = ()
    mixed: bool = False
    cluster: Mapping[str, int] = field(default_factory=lambda: TOTAL)
    parent: View | None = None

    @property
    def name(self) -> str:
        return self.spec.name


def kai(name: str, gpus: float | None, fair: float, held: float, **rest: Any) -> View:
    """A queue that deserves and holds GPUs; of CPU and memory any amount, of which it holds little."""
    unlimited = ("cpu", "memory", *((GPU,) if gpus is None else ()))
    spec = Queue(
        f"kai/{name}",
        deserved={} if gpus is None else {GPU: int(gpus * 1000)},
        unlimited=unlimited,
        dialect=Dialect.KAI,
        priority=rest.pop("priority", 100),
    )
    bounds = {} if gpus is None else {GPU: int(max(gpus, fair) * 1000)}
    held_all = {"cpu": rest.pop("cpu", 0), "memory": 1, GPU: int(held * 1000)}
    fair_all = {"cpu": 1000, "memory": 10, GPU: int(fair * 1000)}
    return View(spec, held_all, fair_share=fair_all, allocatable_share=bounds, **rest)


def before(first: View, second: View, first_job: str = "", second_job: str = "") -> bool:
    def key(view: View, job: str) -> Any:
        step = StepView(Group("g"), resources(job), 1) if job else None
        return KaiQueueOrder().queue_key(view, step)

    forth = key(first, first_job) < key(second, second_job)
    assert forth != (key(second, second_job) <= key(first, first_job))
    return forth


# ---------------------------------------------------------------------- KAI's order


def test_over_its_fair_share_means_over_in_cpu_memory_and_devices_alike() -> None:
    over = kai("over", 0, 1, 2, cpu=2000)
    over.committed = {**over.committed, "memory": 11}
    assert before(kai("high-share", 0, 1, 9), over)
    below_in_cpu = kai("below", 0, 1, 2, cpu=1000)
    assert order_key(below_in_cpu, {}, {})[0] is False
    assert order_key(over, {}, {})[0] is True
    idle = kai("idle", 0, 1, 2)
    idle.committed, idle.fair_share = {"memory": 11, GPU: 2000}, {"memory": 10, GPU: 1000}
    assert order_key(idle, {}, {})[0] is False


def test_each_difference_decides_in_its_turn() -> None:
    # 2: within the deserved amount with the job
    assert before(kai("in", 3, 4, 2), kai("out", 3, 4, 2, priority=200), "gpu=1", "gpu=2")
    # 3: priority
    assert before(kai("high", 0, 4, 3, priority=200), kai("low", 0, 4, 0), "gpu=1", "gpu=1")
    # 4: nothing to be had of what is asked for
    assert before(kai("some", 0, 1, 9), kai("none", 0, 0, 0), "gpu=1", "gpu=1")
    assert before(kai("none", 0, 0, 0), kai("some", 0, 9, 1), "cpu=1", "cpu=1")
    # 5: the smaller dominant share with the job
    assert before(kai("a", 0, 4, 1), kai("b", 0, 2, 1), "gpu=1", "gpu=1")
    assert before(kai("small", 0, 4, 1), kai("big", 0, 4, 1), "gpu=1", "gpu=2")
    # 6: the smaller one without it
    assert before(kai("less", 0, 4, 1), kai("more", 0, 4, 2), "gpu=2", "gpu=1")
    # 7: the smaller allocatable share
    assert before(kai("few", 0, 2, 0), kai("many", 0, 4, 0), "gpu=1", "gpu=2")


def test_shares_without_a_bound_are_of_the_cluster() -> None:
    assert order_key(kai("any", None, 9, 5), {}, {})[4] == (1 << 128) // 2  # 5 of 10
    assert order_key(kai("none", 0, 0, 2), {}, {})[4] == 2000 << 128


def test_what_is_taken_counts_as_gone() -> None:
    view = kai("a", 2, 2, 3)
    assert order_key(view, {}, {GPU: 1000})[1] is False
    assert order_key(view, {}, {})[1] is True


def test_other_queues_are_left_to_other_orders_but_roots_of_both_apis_are_compared() -> None:
    order = KaiQueueOrder()
    assert order.queue_key(View(queue("v")), None) == ()
    root = View(queue("root"), mixed=True, fair_share={GPU: 1000})
    other = kai("a", 1, 1, 0)
    other.mixed = True
    step = StepView(Group("g"), resources("gpu=1"), 1)
    assert order.queue_key(other, step) < order.queue_key(root, step)  # within what it deserves


def test_a_changed_share_or_rule_is_seen_at_once() -> None:
    order = KaiQueueOrder()
    view = kai("a", 0, 4, 2)
    first = order.queue_key(view, None)
    view.fair_share = {**view.fair_share, GPU: 1000}
    view.allocatable_share = {GPU: 1000}
    assert order.queue_key(view, None) != first
    view.spec = Queue("kai/a", priority=7, dialect=Dialect.KAI)
    assert order.queue_key(view, None)[2] == -7


# ---------------------------------------------------------------------- KAI's quota


NODES = TableView(NodeTable())


def asks(view: View, request: str, *, preemptible: bool = False):
    step = StepView(Group("g", preemptible=preemptible), resources(request), 1)
    return NonPreemptibleQuota().admits(step, [view], NODES)


def test_what_no_one_may_evict_stays_within_the_deserved_amount() -> None:
    view = kai("a", 2, 4, 0, allocated_nonpreemptible={GPU: 1000})
    assert asks(view, "gpu=1") is None
    rejection = asks(view, "gpu=2")
    assert rejection is not None
    assert (rejection.code, rejection.available, rejection.permanent) == (
        Reason.WAITING_FOR_QUOTA,
        1000,
        False,
    )
    never = asks(view, "gpu=3")
    assert never is not None
    assert (never.permanent, never.code) == (True, Reason.EXCEEDS_QUEUE_LIMIT)
    over = asks(kai("more-than-its-due", 2, 4, 0, allocated_nonpreemptible={GPU: 3000}), "gpu=1")
    assert over is not None
    assert over.available == 0
    fresh = StepView(Group("g", preemptible=False), {GPU: 2001}, 1)
    assert NonPreemptibleQuota().admits(fresh, [kai("none-held", 2, 4, 0)], NODES) is not None
    assert asks(kai("none-held", 2, 4, 0), "gpu=2") is None
    assert asks(view, "gpu=9", preemptible=True) is None
    assert asks(view, "cpu=99") is None  # any amount deserved
    assert asks(view, "pods=9") is None
    assert asks(View(queue("volcano")), "gpu=9") is None


def test_the_quota_holds_at_every_level_in_the_engine() -> None:
    c = Cluster().nodes("n1 gpu=8")
    for name, parent, gpus in (("top", "", 2), ("a", "kai/top", 2), ("b", "kai/top", 2)):
        spec = Queue(
            f"kai/{name}",
            parent,
            deserved={GPU: gpus * 1000},
            unlimited=("cpu", "memory"),
            dialect=Dialect.KAI,
        )
        c.engine.apply([QueueUpserted(spec)])
    c.gang("one", 2, "gpu=1", min=1, queue="kai/a")
    c.change_group("one", preemptible=False)
    c.gang("two", 2, "gpu=1", min=1, queue="kai/b")
    c.change_group("two", preemptible=False)
    assert len(c.cycle().binds) == 2
    assert c.engine.state.queues.entries["kai/top"].nonpreemptible[GPU] == 2000
    c.change_group("two", preemptible=True)
    assert {b.task for b in c.cycle().binds} == {"ns/one-1", "ns/two-1"}  # b's work may borrow now
    assert c.engine.state.queues.entries["kai/top"].nonpreemptible[GPU] == 2000


# ---------------------------------------------------------------------- guarantees


def test_what_is_guaranteed_to_another_queue_stays_free() -> None:
    c = (
        Cluster()
        .nodes("n1 gpu=4", "n2 gpu=4")
        .queues("root", "a parent=root", "b parent=root", "c parent=root guarantee.gpu=3")
    )
    c.gang("a", 8, "gpu=1", min=1, queue="a")
    c.gang("b", 8, "gpu=1", min=1, queue="b")
    assert len(c.cycle().binds) == 5  # a and b together, not each by itself
    explanation = c.engine.explain("ns/a", c.now)
    assert explanation is not None
    assert explanation.code is Reason.WAITING_FOR_QUOTA
    c.gang("c", 2, "gpu=1", queue="c")
    assert len(c.cycle().binds) == 2
    c.remove("a")
    c.settle()
    assert c.engine.state.queues.entries["b"].allocated[GPU] == 5000  # one is still kept for c


def test_more_than_guarantees_ever_leave_is_never_there_until_nodes_or_guarantees_change() -> None:
    """If an idle queue is guaranteed more than the cluster has, no other work can ever start."""
    c = Cluster().nodes("n1 gpu=4").queues("root", "a parent=root", "b parent=root guarantee.gpu=10")
    c.gang("a", 2, "gpu=1", queue="a")
    c.cycle()
    said = c.engine.explain("ns/a", c.now)
    assert said is not None
    assert (said.code, said.waiting_helps) == (Reason.EXCEEDS_QUEUE_LIMIT, "no")
    told = "other queues are guaranteed 10 that they do not hold yet, and all nodes have 4"
    assert f"queue root has 0 left ({told})" in said.message
    assert [remedy.partition(" (")[0] for remedy in said.remedies] == [
        "Lower what other queues are guaranteed",
        "Add nodes.",
    ]
    c.nodes("n2 gpu=8")
    assert len(c.cycle().binds) == 2  # 12 - 10
    c.gang("late", 1, "gpu=1", queue="a")
    c.cycle()
    waits = c.engine.explain("ns/late", c.now)
    assert waits is not None
    assert (waits.code, waits.waiting_helps) == (Reason.WAITING_FOR_QUOTA, "yes")
    assert "Wait until work that holds nvidia.com/gpu ends." in waits.remedies


@pytest.mark.parametrize("news", ["node", "ready", "end", "rule"])
def test_group_waiting_for_guaranteed_capacity_is_retried_when_any_becomes_free(news: str) -> None:
    """Free capacity on nodes that do not fit the group counts, too: it covers
    guarantees of others."""
    c = Cluster().queues("a guarantee.gpu=4", "b", "c").nodes("n1 gpu=4 zone=x")
    if news in ("end", "rule"):
        c.nodes("n2 gpu=4 zone=y").gang("c", 4, needs("gpu=1", node_selector={"zone": "y"}), queue="c")
    elif news == "ready":
        c.nodes("n2 gpu=4 zone=y notready")
    c.cycle()
    c.gang("b", 1, needs("gpu=1", node_selector={"zone": "x"}), queue="b")
    c.cycle()
    assert c.where("b") == {}
    if news == "end":
        c.finish("c")
    elif news == "rule":
        c.queues("a guarantee.gpu=3")
    else:
        c.nodes("n2 gpu=4 zone=y")
    c.cycle()
    assert c.where("b") == {"n1": 1}


@pytest.mark.parametrize("asked_to_go", [True, False])
def test_guaranteed_capacity_freed_by_another_queue_is_used_at_once(
    asked_to_go: bool,
) -> None:
    """The ending pod is on another node and in another queue than the waiting group."""
    c = Cluster(EngineConfig(actions=("allocate", "reclaim") if asked_to_go else ("allocate",)))
    c.queues("idle guarantee.gpu=2", "over", "due deserved.gpu=2", "more deserved.gpu=4")
    c.nodes("n1 gpu=4 zone=x", "n2 gpu=2 zone=y")
    c.gang("over", 4, needs("gpu=1", node_selector={"zone": "x"}), min=1, queue="over")
    c.gang("more", 4, needs("gpu=1", node_selector={"zone": "z"}), queue="more")  # "over" has too much for it
    c.cycle()
    if not asked_to_go:
        c.change_task("over-3", state=TaskState.RELEASING)
    c.gang("due", 1, needs("gpu=1", node_selector={"zone": "y"}), queue="due")
    decision = c.cycle()
    assert [eviction.task for eviction in decision.evictions] == ["ns/over-3"] * asked_to_go
    assert [(one.task, one.node) for one in decision.nominations] == [("ns/due-0", "n2")]
    c.remove_task("over-3")
    c.cycle()
    assert c.where("due") == {"n2": 1}


def test_any_resource_of_a_step_may_be_guaranteed_to_another_queue() -> None:
    c = Cluster().nodes("n1 gpu=4 cpu=8").queues("root", "a parent=root", "b parent=root guarantee.gpu=3")
    c.gang("a", 4, "cpu=1 gpu=1", min=1, queue="a")
    assert len(c.cycle().binds) == 1
    leaf, nodes = c.engine.state.queues.entries["a"], TableView(c.engine.state.table)
    rejection = Guarantees().admits(StepView(Group("g"), resources("cpu=1 gpu=1"), 1), leaf.path, nodes)
    assert rejection is not None
    assert (rejection.queue, rejection.resource) == ("root", GPU)  # a change anywhere in the tree may help


def test_guarantees_of_a_parent_serve_all_its_children_and_hold_against_kai() -> None:
    c = (
        Cluster()
        .nodes("n1 gpu=8")
        .queues("root", "team parent=root guarantee.gpu=4", "x parent=team", "y parent=root")
    )
    c.engine.apply([QueueUpserted(Queue("kai/k", unlimited=("cpu", "memory", GPU), dialect=Dialect.KAI))])
    c.gang("k", 8, "gpu=1", min=1, queue="kai/k")
    assert len(c.cycle().binds) == 4
    c.gang("y", 1, "gpu=1", queue="y")
    assert c.cycle().binds == ()
    c.gang("x", 4, "gpu=1", queue="x")
    assert len(c.cycle().binds) == 4


# ---------------------------------------------------------------------- Volcano


def views(*texts: tuple[str, str]) -> list[View]:
    return [View(queue(text), demand=resources(asked) if asked else {}) for text, asked in texts]


def shares(division: Any, total: str, *texts: tuple[str, str]) -> list[dict[str, int]]:
    return [dict(share.fair) for share in division.divide(None, views(*texts), resources(total))]


def test_proportion_gives_by_weight_what_is_asked_for() -> None:
    found = shares(ProportionDivision(), "cpu=8", ("a weight=1", "cpu=9"), ("b weight=3", "cpu=9"))
    assert found == [{"cpu": 2000}, {"cpu": 6000}]
    found = shares(ProportionDivision(), "cpu=8", ("a", "cpu=1"), ("b", "cpu=9"), ("idle weight=9", ""))
    assert found == [{"cpu": 1000}, {"cpu": 7000}, {}]


def test_proportion_keeps_guarantees_and_real_capabilities() -> None:
    texts = (("a guarantee.cpu=4", "cpu=1"), ("b", "cpu=9"), ("c limit.cpu=1", "cpu=9"))
    found = ProportionDivision().divide(None, views(*texts), resources("cpu=8"))
    assert [share.fair["cpu"] for share in found] == [4000, 3000, 1000]
    assert [share.real_capability["cpu"] for share in found] == [8000, 4000, 1000]
    assert found[0].parts["cpu"][0].cause is ShareCause.GUARANTEED


def test_what_nobody_is_guaranteed_is_everybodys() -> None:
    (share,) = ProportionDivision().divide(
        None, views(("a guarantee.cpu=1", "cpu=1")), resources("cpu=8 gpu=1")
    )
    assert share.real_capability == resources("cpu=8 gpu=1")


def test_a_limit_of_a_model_holds_for_who_asks_for_any() -> None:
    c = Cluster().nodes(f"h gpu=8 {GPU}.product=NVIDIA-H100")
    c.engine.apply([QueueUpserted(Queue("q", capability={f"{GPU}@H100": 0}))])
    c.gang("cpus", 1, "cpu=1", queue="q").gang("gpus", 1, "gpu=1", queue="q").cycle()
    assert (c.placed("cpus"), c.placed("gpus")) == (1, 0)


def test_what_is_guaranteed_without_an_amount_is_nothing() -> None:
    (least,) = ProportionDivision().divide(None, [View(Queue("b"), demand={"cpu": 1})], {"cpu": 8000})
    assert least.fair == {"cpu": 1}
    idle = View(Queue("a", guarantee={"cpu": 0}), demand={"memory": 5})
    (share,) = ProportionDivision().divide(None, [idle], {"cpu": 8000, "memory": 10})
    assert share.fair.get("cpu", 0) == 0


amounts = st.integers(0, 40_000)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(1, 9), amounts, st.one_of(st.none(), st.integers(1, 40_000))),
        min_size=1,
        max_size=6,
    ),
    st.integers(0, 60_000),
)
def test_proportion_of_one_resource_is_max_min_fair(table: list[tuple], total: int) -> None:
    """Water filling: each queue gets its weight times one level, but at most its demand."""
    queues = [
        View(Queue(f"q{i}", weight=w, capability={"x": cap} if cap else {}), demand={"x": asked})
        for i, (w, asked, cap) in enumerate(table)
    ]
    found = [s.fair.get("x", 0) for s in ProportionDivision().divide(None, queues, {"x": total})]
    uses = [min(asked, total if cap is None else min(cap, total)) for _, asked, cap in table]
    left, level, open_ones = Fraction(total), Fraction(0), set(range(len(table)))
    while open_ones and left > 0:
        weights = sum(table[i][0] for i in open_ones)
        step = min([left / weights, *(Fraction(uses[i], table[i][0]) - level for i in open_ones)])
        level += step
        left -= step * weights
        open_ones -= {i for i in open_ones if Fraction(uses[i], table[i][0]) <= level}
    for i, (weight, _, _) in enumerate(table):
        assert abs(found[i] - min(Fraction(uses[i]), level * weight)) <= 2


def test_capacity_takes_amounts_as_stated() -> None:
    texts = (("a deserved.cpu=9 limit.cpu=4", ""), ("b deserved.cpu=1 guarantee.cpu=2", ""), ("c", ""))
    assert shares(CapacityDivision(), "cpu=8", *texts) == [{"cpu": 4000}, {"cpu": 2000}, {}]
    tree = CapacityDivision(hierarchy=True)
    assert shares(tree, "cpu=8", *texts) == [{"cpu": 9000}, {"cpu": 2000}, {}]
    parent = View(queue("p"), real_capability=resources("cpu=6"))
    bounds = [s.real_capability for s in tree.divide(parent, views(*texts), {})]
    assert bounds == [{"cpu": 4000}, {"cpu": 6000}, {"cpu": 4000}]
    assert [s.real_capability for s in tree.divide(None, views(*texts), {})] == [{"cpu": 4000}, {}, {}]


def test_orders_by_what_is_deserved() -> None:
    half = View(queue("a"), {"cpu": 2000}, fair_share={"cpu": 4000, GPU: 0})
    full = View(queue("b"), {"cpu": 4000}, fair_share={"cpu": 4000})
    over = View(queue("c"), {"cpu": 9000}, fair_share={"cpu": 4000})
    silent = View(queue("d"), {"cpu": 9000})
    assert proportion_share(half) * 2 == proportion_share(full) == WHOLE
    assert proportion_share(silent) == 0
    assert proportion_share(View(queue("one"), {GPU: 1}, fair_share={GPU: 1})) == WHOLE
    assert capacity_share(View(queue("z"), {GPU: 1}, fair_share={GPU: 0})) == WHOLE
    assert capacity_share(View(queue("z"), fair_share={GPU: 0})) == 0
    more, less = (View(queue("m"), {"memory": 10**17 + n}, fair_share={"memory": 10**18}) for n in (1, 0))
    assert proportion_share(more) > proportion_share(less)  # exact, however large

    def key(view: View) -> Any:
        return CapacityOrder().queue_key(view, None)

    assert key(half) < key(full) < key(silent) < key(over)
    first = View(queue("e priority=1"), {"cpu": 9000}, fair_share={"cpu": 1})
    assert key(first) < key(half)
    assert ProportionOrder().queue_key(first, None) < ProportionOrder().queue_key(half, None)
    k = kai("k", 0, 0, 5)
    assert ProportionOrder().queue_key(View(queue("idle")), None) == ProportionOrder().queue_key(k, None)
    assert CapacityOrder().queue_key(k, None) == ProportionOrder().queue_key(k, None) == (0, 0, False)


# ---------------------------------------------------------------------- the division over views


def test_what_volcano_queues_are_entitled_to() -> None:
    assert entitled(View(queue("a deserved.gpu=2 guarantee.gpu=3 guarantee.cpu=1"))) == resources(
        "gpu=3 cpu=1"
    )
    children = (View(queue("x deserved.gpu=2")), View(queue("y guarantee.gpu=1")))
    assert entitled(View(queue("root"), subqueues=children)) == {}
    assert entitled(View(queue("root"), subqueues=children, mixed=True)) == resources("gpu=3")


def test_the_root_of_the_other_api_has_kais_default_priority() -> None:
    for priority, expected in ((0, [1000, 1000]), (1, [2000, 0]), (-1, [0, 2000])):
        root = View(Queue("root", priority=priority), demand={GPU: 9000}, mixed=True)
        other = View(Queue("kai/a", priority=100, dialect=Dialect.KAI), demand={GPU: 9000}, mixed=True)
        assert [s.fair[GPU] for s in KaiDivision().divide(None, [root, other], {GPU: 2000})] == expected


def test_a_share_says_of_what_it_is_made() -> None:
    queues = [
        View(Queue(name, surplus_weights={GPU: 0.5}, dialect=Dialect.KAI), demand={GPU: 9000})
        for name in ("a", "b")
    ]
    first, second = KaiDivision().divide(None, queues, {GPU: 3000})
    assert [(part.cause, part.units) for part in first.parts[GPU]] == [
        (ShareCause.SURPLUS, 1000),
        (ShareCause.ROUNDING, 1000),
    ]
    assert [(part.cause, part.units) for part in second.parts[GPU]] == [(ShareCause.SURPLUS, 1000)]


@pytest.mark.parametrize(
    ("spec", "fair", "bound"),
    [
        (Queue("q", unlimited=(GPU,), dialect=Dialect.KAI), 8000, None),
        (Queue("q", unlimited=(GPU,), capability={GPU: 3000}, dialect=Dialect.KAI), 3000, 3000),
        (Queue("q", deserved={GPU: 2000}, dialect=Dialect.KAI), 8000, 8000),
        (Queue("q", deserved={GPU: 2000}, surplus_weights={GPU: 0}, dialect=Dialect.KAI), 2000, 2000),
        (Queue("q", deserved={GPU: 9000}, capability={GPU: 5000}, dialect=Dialect.KAI), 5000, 5000),
    ],
)
def test_allocatable_shares(spec: Queue, fair: int, bound: int | None) -> None:
    (share,) = KaiDivision().divide(None, [View(spec, demand={GPU: 8000})], TOTAL)
    assert share.fair[GPU] == fair
    assert share.allocatable.get(GPU) == bound
