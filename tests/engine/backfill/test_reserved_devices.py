"""Backfill where parts of cards are waited for: what is kept of a card is what nobody leaves by then."""

from __future__ import annotations

import pytest
from cluster_dsl import GPU, NAMESPACE, Cluster, needs
from device_fuzz import gpu, part

from windlass.engine.config import EngineConfig
from windlass.engine.engine import Engine
from windlass.plugins.defaults import default_plugins
from windlass.spi.devices import DeviceMode
from windlass.spi.objects import Device, Needs, Node, TaskState


def share(milli: int) -> Needs:
    return part("cpu=1", gpu(milli=milli, memory_milli=milli))


def submit(c: Cluster, name: str, wants: Needs, seconds: float | None) -> None:
    c.gang(name, 1, wants)
    c.change_group(name, run_estimate=None if seconds is None else float(seconds))


def run(c: Cluster, seconds: float = 0.0) -> None:
    """A cycle; what was bound runs from now on."""
    for bind in c.cycle(seconds).binds:
        c.change_task(bind.task.removeprefix(f"{NAMESPACE}/"), state=TaskState.RUNNING, started=c.now)


def one_card(mode: DeviceMode = DeviceMode.EITHER) -> Cluster:
    c = Cluster(EngineConfig(backfill="easy")).queues("default")
    device = Device(0, GPU, "NVIDIA-H100-80GB-HBM3", 81_559, mode=mode)
    return c.nodes(Node("n", {"cpu": 64_000, "pods": 110, GPU: 1000}, devices=(device,)))


@pytest.fixture
def scene() -> Cluster:
    """0.6 of the only card run for 100 s, and a pod waits for 0.8 of it."""
    c = one_card()
    submit(c, "first", share(600), 100)
    run(c)
    submit(c, "head", share(800), 500)
    run(c)
    return c


@pytest.mark.parametrize(
    ("milli", "seconds", "passes"),
    [(200, None, True), (300, None, False), (300, 50, True), (300, 400, False), (400, 90, True)],
)
def test_of_a_card_as_much_is_kept_as_nobody_leaves(
    scene: Cluster, milli: int, seconds: float | None, passes: bool
) -> None:
    submit(scene, "other", share(milli), seconds)
    run(scene)
    assert scene.placed("other") == passes


def test_the_head_starts_when_the_other_ends(scene: Cluster) -> None:
    submit(scene, "small", share(200), None)
    run(scene)
    scene.finish("first")
    run(scene, 100)
    assert (scene.placed("head"), scene.placed("small")) == (1, 1)


@pytest.mark.parametrize(("seconds", "passes"), [(None, False), (50, True), (400, False)])
def test_a_card_that_sharers_leave_is_closed_for_a_whole_one(seconds: float | None, passes: bool) -> None:
    c = one_card()
    submit(c, "first", share(500), 100)
    run(c)
    submit(c, "head", needs("gpu=1 cpu=1"), 500)
    run(c)
    submit(c, "other", share(300), seconds)
    run(c)
    assert c.placed("other") == passes


@pytest.mark.parametrize(("seconds", "passes"), [(None, False), (50, True), (400, False)])
def test_cards_that_plain_whole_pods_leave_are_kept(seconds: float | None, passes: bool) -> None:
    """One of two cards is had by a pod that did not care which, for 100 s; both, of a model, are waited for."""
    h100 = [Device(at, GPU, "NVIDIA-H100-80GB-HBM3", 81_559) for at in (0, 1)]
    c = Cluster(EngineConfig(backfill="easy")).queues("default")
    c.nodes(Node("n", {"cpu": 64_000, "pods": 110, GPU: 2000}, devices=tuple(h100)))
    submit(c, "first", needs("gpu=1 cpu=1"), 100)
    run(c)
    submit(c, "head", part("cpu=1", gpu(milli=1000, count=2, models=("H100",))), 500)
    run(c)
    assert c.explain("head").estimate_seconds == 100
    submit(c, "other", needs("gpu=1 cpu=1"), seconds)
    run(c)
    assert c.placed("other") == passes


@pytest.mark.parametrize(("profile", "passes"), [("3g.40gb", False), ("1g.10gb", True)])
def test_a_place_on_the_card_is_kept_for_a_slice(profile: str, passes: bool) -> None:
    """4g@0 is waited for; 3g stands at 4 for ever, and two 2g at 0 and 2 go in 100 s: what remains are the
    places beside, none."""
    c = one_card(DeviceMode.SLICED)
    submit(c, "stays", part("cpu=1", gpu(profile="2g.20gb")), None)
    run(c)
    submit(c, "goes", part("cpu=1", gpu(profile="2g.20gb")), 100)
    run(c)
    starts = {t.key: t.slices[0].start for t in c.tasks.values()}
    assert starts == {f"{NAMESPACE}/stays-0": 4, f"{NAMESPACE}/goes-0": 2}
    submit(c, "head", part("cpu=1", gpu(profile="4g.40gb")), 500)
    run(c)
    submit(c, "other", part("cpu=1", gpu(profile=profile)), None)
    run(c)
    assert c.placed("other") == passes
    if passes:
        assert c.engine.state.tasks[f"{NAMESPACE}/other-0"].shares[0].start == 6


def test_a_dump_keeps_what_is_kept(scene: Cluster) -> None:
    copy = Engine.load(scene.engine.dump(), default_plugins())
    assert copy.dump() == scene.engine.dump()
    assert (
        copy.reservations.device_shares_as_records()
        == scene.engine.reservations.device_shares_as_records()
        != {}
    )
