"""A job of very many pods gets them in batches, and no more than one while no waiting can help it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from vcjob_cluster import World, job, settle_with_crashes, task

from windlass.api import annotations as names
from windlass.api.reasons import Explanation, Reason
from windlass.api.resources import POD_GROUPS
from windlass.controllers.vcjob import reconcile
from windlass.controllers.vcjob.group import waiting_is_useless


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconcile, "BATCH", 4)


def judged(world: World, code: Reason | None) -> None:
    """The scheduler says why the gang waits, or that there is no reason any more."""
    note = None
    if code is not None:
        note = msgspec.json.encode(Explanation(code, "because").as_dict()).decode()
    world.api.change(POD_GROUPS, world.group_key, metadata={"annotations": {names.EXPLANATION: note}})


def admitted(*tasks: Any) -> World:
    world = World(job(*tasks))
    world.settle()
    world.admit()
    return world


def test_one_look_creates_one_batch() -> None:
    world = admitted(task("ps", 1), task("worker", 9))
    sizes = []
    while True:
        world.reconcile()
        created = len(world.last.creates)
        if not world.last.stages:
            break
        sizes.append(created)
    assert [size for size in sizes if size] == [4, 4, 2]
    assert len(world.pods()) == 10
    assert world.status["pending"] == 10


def test_pods_that_start_between_two_batches_are_counted() -> None:
    world = admitted(task("worker", 10))
    while not world.pods():
        world.reconcile()
    world.run()
    world.settle()
    assert len(world.pods()) == 10
    assert (world.status["pending"], world.status["running"]) == (6, 4)


def test_a_gang_that_can_never_run_gets_one_batch() -> None:
    world = admitted(task("worker", 100_000))
    judged(world, Reason.EXCEEDS_CLUSTER)
    world.settle()
    assert len(world.pods()) == 4
    assert world.phase == "Pending"
    judged(world, Reason.INSUFFICIENT_RESOURCES)  # a node came
    world.reconcile()
    assert len(world.pods()) == 8
    judged(world, Reason.EXCEEDS_EVERY_NODE)  # and went
    world.settle()
    assert len(world.pods()) == 8


def test_a_lost_pod_of_a_gang_that_can_never_run_is_made_again_within_the_batch() -> None:
    world = admitted(task("worker", 100))
    judged(world, Reason.EXCEEDS_EVERY_NODE)
    world.settle()
    world.take_away("train-worker-1")
    world.settle()
    assert len(world.pods()) == 4


@pytest.mark.parametrize(
    ("note", "useless"),
    [(None, False), ("", False), ("{", False), ("[]", False), ('{"waitingHelps": "maybe"}', False),
     ('{"waitingHelps": "no"}', True)],
)  # fmt: skip
def test_only_the_schedulers_own_words_count(note: str | None, useless: bool) -> None:
    notes = {} if note is None else {names.EXPLANATION: note}
    assert waiting_is_useless({"metadata": {"annotations": notes}}) is useless
    assert not waiting_is_useless(None)


@pytest.mark.parametrize("after", [[1], [2, 3], [5], [6, 0, 4, 1]])
def test_a_controller_that_dies_in_a_batch_goes_on_where_it_was(after: list[int]) -> None:
    world = admitted(task("worker", 11))
    settle_with_crashes(world, after)
    assert len(world.pods()) == 11
    assert world.status["controlledResources"]["pods/worker"] == "0-10"
