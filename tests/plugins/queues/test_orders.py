"""Orders, shares and limits, on hand-made views."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction

import pytest
from cluster_dsl import GPU, queue, resources
from hypothesis import given, settings
from hypothesis import strategies as st

from windlass.api.reasons import Reason
from windlass.engine.nodes.table import NodeTable
from windlass.engine.nodes.view import TableView
from windlass.plugins.defaults import default_plugins
from windlass.plugins.queues.dominant_share import ENDLESS, SHIFT, DominantShare
from windlass.plugins.queues.limits import QueueLimits
from windlass.plugins.queues.orders import Gang, Priority, QueuePriority
from windlass.spi.objects import Dialect, Group, Needs, Queue, Task
from windlass.spi.plugins import StepView


@dataclass
class FakeQueue:
    spec: Queue
    allocated: Mapping[str, int] = field(default_factory=dict)
    cluster: Mapping[str, int] = field(default_factory=dict)
    sibling_weight: int = 1
    parent: None = None
    releasing: Mapping[str, int] = field(default_factory=dict)
    requested: Mapping[str, int] = field(default_factory=dict)
    nominated: Mapping[str, int] = field(default_factory=dict)
    demand: Mapping[str, int] = field(default_factory=dict)
    allocated_nonpreemptible: Mapping[str, int] = field(default_factory=dict)
    fair_share: Mapping[str, int] = field(default_factory=dict)
    allocatable_share: Mapping[str, int] = field(default_factory=dict)
    real_capability: Mapping[str, int] = field(default_factory=dict)
    usage: Mapping[str, int] = field(default_factory=dict)
    subqueues: tuple[FakeQueue, ...] = ()
    mixed: bool = False

    @property
    def committed(self) -> Mapping[str, int]:
        return self.allocated

    @property
    def name(self) -> str:
        return self.spec.name


@dataclass
class FakeGroup:
    spec: Group
    is_ready: bool = False
    held_members: int = 0
    holds_more: bool = False

    def ready(self) -> bool:
        return self.is_ready

    def surplus(self) -> bool:
        return self.holds_more


def test_priorities_and_gangs() -> None:
    assert QueuePriority().queue_key(FakeQueue(queue("a priority=2")), None) < QueuePriority().queue_key(
        FakeQueue(queue("b")), None
    )
    high, low = FakeGroup(Group("x", priority=5)), FakeGroup(Group("y"))
    assert Priority().group_key(high) < Priority().group_key(low)
    assert Gang().group_key(FakeGroup(Group("x"))) < Gang().group_key(FakeGroup(Group("x"), is_ready=True))
    fewer = FakeGroup(Group("x", dialect=Dialect.KAI), is_ready=True)
    more = FakeGroup(Group("x", dialect=Dialect.KAI), is_ready=True, holds_more=True)
    assert Gang().group_key(fewer) < Gang().group_key(more), "KAI's gangs grow in turns"
    assert Gang().group_key(replace(fewer, spec=Group("x"))) == Gang().group_key(
        replace(more, spec=Group("x"))
    )
    tasks = [Task(str(i), "", "g", Needs(), index=i, priority=p) for i, p in ((0, 0), (1, 1), (2, 1))]
    assert [t.index for t in sorted(tasks, key=Priority().task_key)] == [1, 2, 0]


# ---------------------------------------------------------------------- shares


def share(text: str, held: str, cluster: str = "gpu=10 cpu=10", weights: int = 4) -> Fraction:
    view = FakeQueue(queue(text), resources(held) if held else {}, resources(cluster), weights)
    return Fraction(DominantShare().queue_key(view, None)[1], 1 << SHIFT)


@pytest.mark.parametrize(
    ("text", "held", "expected"),
    [
        ("q", "", 0),
        ("q weight=2", "gpu=5", 1),  # 5 of its half
        ("q weight=2", "gpu=1 cpu=4", Fraction(4, 5)),
        ("q deserved.gpu=4", "gpu=2 cpu=10", Fraction(1, 2)),  # only what is stated counts
        ("q deserved.gpu=4 deserved.cpu=2", "gpu=2 cpu=3", Fraction(3, 2)),
        ("q weight=2", "fpga=3", 0),  # the cluster has none
        ("q weight=0", "", 0),
        ("q deserved.gpu=0", "", 0),
    ],
)
def test_the_dominant_share(text: str, held: str, expected: Fraction) -> None:
    assert abs(share(text, held) - expected) < Fraction(1, 1 << 100)
    assert held or share(text, held) == 0


def test_a_queue_entitled_to_nothing_that_holds_something_comes_last() -> None:
    nothing = DominantShare().queue_key(FakeQueue(queue("q deserved.gpu=0"), resources("gpu=1"), {}, 1), None)
    zero = DominantShare().queue_key(
        FakeQueue(queue("q weight=0"), resources("gpu=1"), resources("gpu=9"), 1), None
    )
    most = DominantShare().queue_key(FakeQueue(queue("q deserved.gpu=1"), {GPU: 1 << 62}, {}, 1), None)
    assert nothing == zero == (False, ENDLESS) > most


@settings(max_examples=200, deadline=None)
@given(*[st.integers(1, 1 << 62)] * 4)
def test_shares_compare_exactly_as_the_fractions_do(
    held: int, due: int, other_held: int, other_due: int
) -> None:
    def key(units: int, deserved: int) -> tuple[bool, int]:
        return DominantShare().queue_key(FakeQueue(Queue("q", deserved={"x": deserved}), {"x": units}), None)

    exact, other = Fraction(held, due), Fraction(other_held, other_due)
    assert (key(held, due) < key(other_held, other_due)) == (exact < other)
    assert (key(held, due) == key(other_held, other_due)) == (exact == other)


# ---------------------------------------------------------------------- limits

EVERYTHING = TableView(NodeTable())


def asked(path: list[FakeQueue], request: str, tasks: int = 1):
    return QueueLimits().admits(StepView(Group("g"), resources(request), tasks), path, EVERYTHING)


def test_within_the_limits_there_is_no_refusal() -> None:
    leaf = FakeQueue(queue("a limit.gpu=4"), resources("gpu=2"))
    assert asked([leaf, FakeQueue(queue("top"))], "gpu=2 cpu=99") is None


def test_the_first_queue_over_its_limit_refuses_until_something_ends() -> None:
    leaf, top = (
        FakeQueue(queue("a limit.gpu=4"), resources("gpu=3")),
        FakeQueue(queue("top limit.gpu=9"), resources("gpu=8")),
    )
    rejection = asked([leaf, top], "gpu=2")
    assert rejection is not None
    assert (rejection.code, rejection.queue, rejection.resource) == (Reason.WAITING_FOR_QUOTA, "a", GPU)
    assert (rejection.needed, rejection.available, rejection.permanent) == (2000, 1000, False)
    above = asked([FakeQueue(queue("a")), top], "gpu=2")
    assert above is not None
    assert above.queue == "top"


def test_a_limit_that_can_never_be_met_is_said_even_if_another_is_met_later() -> None:
    leaf, top = FakeQueue(queue("a limit.gpu=4"), resources("gpu=3")), FakeQueue(queue("top limit.cpu=1"))
    rejection = asked([leaf, top], "gpu=2 cpu=2")
    assert rejection is not None
    assert (rejection.code, rejection.queue, rejection.permanent) == (Reason.EXCEEDS_QUEUE_LIMIT, "top", True)
    assert (rejection.needed, rejection.available) == (2000, 1000)


def test_a_queue_that_is_already_over_has_nothing_left() -> None:
    rejection = asked([FakeQueue(queue("a limit.gpu=4"), resources("gpu=6"))], "gpu=1")
    assert rejection is not None
    assert rejection.available == 0


def test_a_limit_of_pods_counts_pods() -> None:
    leaf = FakeQueue(queue("a limit.pods=2"), {"pods": 2})
    rejection = QueueLimits().admits(StepView(Group("g"), {"pods": 1}, 1), [leaf], EVERYTHING)
    assert rejection is not None
    assert rejection.resource == "pods"


# ---------------------------------------------------------------------- the default set


def test_the_default_policies_are_fresh_each_time() -> None:
    one, two = default_plugins(), default_plugins()
    assert [type(p) for p in one] == [type(p) for p in two]
    assert not any(a is b for a, b in zip(one, two, strict=True))
    assert {p.name for p in default_plugins(placement="spread")} >= {"spread"}  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="binpack or spread"):
        default_plugins(placement="random")


@pytest.mark.parametrize(("mixed", "dialect"), [(True, Dialect.VOLCANO), (False, Dialect.KAI)])
def test_roots_beside_the_other_api_and_queues_of_kais_have_an_order_of_their_own(
    mixed: bool, dialect: Dialect
) -> None:
    found = FakeQueue(replace(queue("q deserved.gpu=4"), dialect=dialect), resources("gpu=1"), {}, 1)
    found.mixed = mixed
    assert DominantShare().queue_key(found, None) == (False, 0)
