"""Room for parts of cards is made card by card: who goes is on the card that is needed, and nobody else."""

from __future__ import annotations

from dataclasses import replace

import pytest
from cluster_dsl import GPU, NAMESPACE, Cluster, needs
from device_fuzz import gpu, part

from windlass.engine.config import EngineConfig
from windlass.engine.decision import Decision
from windlass.spi.devices import DeviceMode
from windlass.spi.objects import Device, Needs, Node, TaskState


def one_node(cards: int, mode: DeviceMode = DeviceMode.EITHER) -> Cluster:
    c = Cluster(EngineConfig(actions=("allocate", "reclaim", "preempt"))).queues("default")
    devices = tuple(Device(i, GPU, "NVIDIA-H100-80GB-HBM3", 81_559, mode=mode) for i in range(cards))
    return c.nodes(Node("n", {"cpu": 64_000, "pods": 110, GPU: cards * 1000}, devices=devices))


def evicted(decision: Decision) -> set[str]:
    return {eviction.task.removeprefix(f"{NAMESPACE}/") for eviction in decision.evictions}


def gone(c: Cluster, decision: Decision) -> None:
    """Who was asked to go is gone."""
    for name in evicted(decision):
        c.remove_task(name)


def test_one_share_goes_for_another() -> None:
    c = one_node(1)
    for name in ("a", "b"):
        c.gang(name, 1, part("cpu=1", gpu(milli=500, memory_milli=500)), priority=0)
        c.cycle()
    c.gang("high", 1, part("cpu=1", gpu(milli=400, memory_milli=400)), priority=9)
    decision = c.cycle()
    assert len(evicted(decision)) == 1
    gone(c, decision)
    c.cycle()
    assert c.devices_of("high-0") == [0]


def test_all_sharers_of_one_card_go_for_a_whole_one() -> None:
    c = one_node(2)
    for at in range(4):
        c.gang(f"low{at}", 1, part("cpu=1", gpu(milli=500, memory_milli=500)))
        c.cycle()
    cards = {f"low{at}-0": c.devices_of(f"low{at}-0")[0] for at in range(4)}
    assert sorted(cards.values()) == [0, 0, 1, 1]
    c.gang("high", 1, needs("gpu=1 cpu=1"), priority=9)
    decision = c.cycle()
    out = evicted(decision)
    assert len(out) == 2
    assert len({cards[name] for name in out}) == 1
    gone(c, decision)
    c.cycle()
    assert c.devices_of("high-0") == [cards[next(iter(out))]]


def test_a_whole_card_goes_for_a_share_and_keeps_the_rest_for_others() -> None:
    c = one_node(1)
    c.gang("low", 1, needs("gpu=1 cpu=1"))
    c.cycle()
    c.gang("high", 2, part("cpu=1", gpu(milli=300, memory_milli=300)), priority=9)
    decision = c.cycle()
    assert evicted(decision) == {"low-0"}
    gone(c, decision)
    c.cycle()
    assert c.placed("high") == 2
    assert c.engine.state.table.shares.state_key(c.engine.state.table.rows["n"])


def test_slices_that_are_in_the_way_go_and_no_others() -> None:
    c = one_node(1)
    c.gang("large", 1, part("cpu=1", gpu(profile="3g.40gb")))
    c.cycle()
    c.gang("small", 3, part("cpu=1", gpu(profile="1g.10gb")))
    c.cycle()
    starts = {t.key: t.slices[0].start for t in c.tasks.values()}
    assert starts[f"{NAMESPACE}/large-0"] == 4
    c.gang("high", 1, part("cpu=1", gpu(profile="4g.40gb")), priority=9)
    decision = c.cycle()
    assert evicted(decision) == {f"small-{at}" for at in range(3)}
    gone(c, decision)
    c.cycle()
    state = c.engine.state
    assert [(s.profile, s.start) for s in state.tasks[f"{NAMESPACE}/high-0"].devices] == [("4g.40gb", 0)]


def test_nobody_goes_where_that_would_not_help() -> None:
    c = one_node(1)
    c.gang("low", 1, part("cpu=1", gpu(milli=500, memory_milli=500)))
    c.cycle()
    c.gang("high", 1, part("cpu=1", gpu(milli=500, memory_milli=500, models=("A100",))), priority=9)
    assert evicted(c.cycle()) == set()


def test_a_promise_of_a_part_is_kept_from_others() -> None:
    """A share is promised on a card that is being vacated; a pod that comes later gets none of it."""
    c = one_node(1)
    c.gang("old", 1, needs("gpu=1 cpu=1"))
    c.cycle()
    c.change_task("old-0", state=TaskState.RELEASING)
    c.gang("first", 1, part("cpu=1", gpu(milli=600, memory_milli=600)))
    c.cycle()
    entry = c.engine.state.tasks[f"{NAMESPACE}/first-0"]
    assert [(share.index, share.milli) for share in entry.nominated_shares] == [(0, 600)]
    c.gang("second", 1, part("cpu=1", gpu(milli=500, memory_milli=500)))
    c.gang("third", 1, part("cpu=1", gpu(milli=400, memory_milli=400)))
    c.cycle()
    state = c.engine.state
    assert not state.tasks[f"{NAMESPACE}/second-0"].nominated_shares
    assert state.tasks[f"{NAMESPACE}/third-0"].nominated_shares
    c.remove_task("old-0")
    c.cycle()
    assert (c.placed("first"), c.placed("second"), c.placed("third")) == (1, 0, 1)


def test_the_largest_part_that_would_start_now_is_told() -> None:
    c = one_node(1)
    c.gang("a", 1, part("cpu=1", gpu(milli=600, memory_milli=600)))
    c.cycle()
    c.gang("b", 1, part("cpu=1", gpu(milli=700, memory_milli=700)))
    c.cycle()
    (change,) = [one for one in c.explain("b").changes if one.field == f"devices[{GPU}]"]
    assert (change.current, change.wanted) == ("0.7 of a GPU", "0.4 of a GPU")


def test_a_profile_that_no_card_has_place_for_is_named() -> None:
    c = one_node(1, DeviceMode.SLICED)
    c.gang("a", 1, part("cpu=1", gpu(profile="1g.10gb")))
    c.cycle()
    c.gang("b", 1, part("cpu=1", gpu(profile="7g.80gb")))
    c.cycle()
    told = c.explain("b")
    assert "a 7g.80gb slice" in told.message
    assert "no GPU has a free position for it" in told.message
    assert told.nearest is not None


def test_a_kind_of_card_that_no_node_has_is_said_so() -> None:
    c = one_node(1)
    c.gang("b", 1, part("cpu=1", gpu(milli=500, models=("MI300X",))))
    c.cycle()
    assert c.code("b") == "ExceedsEveryNode"
    assert "0.5 of a MI300X GPU" in c.explain("b").message


WHOLE_BY_WISH = part("cpu=1", gpu(milli=1000, models=("H100",)))


def sicken(c: Cluster, index: int) -> None:
    node = c.node_specs["n"]
    devices = tuple(replace(each, healthy=each.index != index) for each in node.devices)
    c.nodes(replace(node, devices=devices))


@pytest.mark.parametrize("held", [needs("gpu=1 cpu=1"), WHOLE_BY_WISH], ids=["plain", "by-wish"])
@pytest.mark.parametrize("asked", [needs("gpu=1 cpu=1"), WHOLE_BY_WISH], ids=["for-plain", "for-wish"])
def test_nobody_goes_from_a_card_that_has_fallen_ill(held: Needs, asked: Needs) -> None:
    """Nobody can be handed it: whoever was promised its room did not start. A card that is well is given up instead, if
    there is one, though he who has it comes later in the order of those who go."""
    c = one_node(2)
    c.gang("well", 1, held, priority=1)
    c.gang("ill", 1, held)
    c.cycle()
    sicken(c, c.devices_of("ill-0")[0])
    c.change_group("well", preemptible=False)
    c.change_task("well-0", preemptible=False)
    c.gang("high", 1, asked, priority=9)
    decision = c.cycle()
    assert (decision.evictions, decision.nominations) == ((), ())
    c.change_task("ill-0", state=TaskState.RELEASING)
    assert c.cycle().nominations == ()
    c.change_group("well", preemptible=True)
    c.change_task("well-0", preemptible=True)
    assert evicted(c.cycle()) == {"well-0"}
    c.remove_task("well-0")
    c.cycle()
    assert c.placed("high") == 1


def test_who_leaves_a_card_gives_it_back_though_it_was_ill_for_a_while() -> None:
    c = one_node(1)
    c.gang("old", 1, "gpu=1")
    c.cycle()
    c.change_task("old-0", state=TaskState.RELEASING)
    sicken(c, 0)
    c.gang("new", 1, "gpu=1")
    assert c.cycle().nominations == ()
    sicken(c, -1)
    assert [one.task for one in c.cycle().nominations] == ["ns/new-0"]
