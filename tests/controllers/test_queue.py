"""Queues: the two that must exist, opening and closing, counts."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest
from fakeapi import FakeApi, reasons

from windlass.api.resources import COMMANDS, POD_GROUPS, QUEUES
from windlass.controllers.apply_effects import EffectExecutor
from windlass.controllers.effects import Effects
from windlass.controllers.queue.controller import QueueController
from windlass.controllers.queue.reconcile import QueueSnapshot, reconcile
from windlass.controllers.queue.state_machine import TRANSITIONS, QueuePhase, QueueTrigger, follow

Json = dict[str, Any]

EXPECTED = {
    ("Unknown", "New"): "Open",
    ("Unknown", "OpenQueue"): "Open",
    ("Unknown", "CloseQueue"): "Closing",
    ("Open", "CloseQueue"): "Closing",
    ("Closing", "OpenQueue"): "Open",
    ("Closing", "Emptied"): "Closed",
    ("Closed", "OpenQueue"): "Open",
}


@pytest.mark.parametrize(("state", "trigger"), list(itertools.product(QueuePhase, QueueTrigger)))
def test_every_pair(state: QueuePhase, trigger: QueueTrigger) -> None:
    found = follow(state, trigger)
    assert (None if found is None else str(found)) == EXPECTED.get((str(state), str(trigger)))


def test_the_expectation_is_complete() -> None:
    assert len(EXPECTED) == len(TRANSITIONS)


class Tree:
    """Queues in a fake API, looked at until nothing moves."""

    def __init__(self) -> None:
        self.api = FakeApi()
        self.controller = QueueController(self.api)  # type: ignore[arg-type]
        self.executor = EffectExecutor(self.api)  # type: ignore[arg-type]
        self.said: list[str] = []
        self.settle()

    def settle(self) -> None:
        async def all_once() -> bool:
            busy = False
            for key in sorted({"root", "default", *self.controller._queues.items}):
                effects: Effects = await self.controller.reconcile(key)
                self.said += reasons(effects.events)
                outcome = await self.executor.perform(effects)
                assert not outcome.failures
                busy = busy or bool(effects.stages)
            return busy

        for _ in range(20):
            if not asyncio.run(all_once()):
                return
        raise AssertionError("still busy")

    def add(self, name: str, parent: str = "") -> None:
        spec: Json = {"weight": 1}
        if parent:
            spec["parent"] = parent
        self.api.put(QUEUES, {"metadata": {"name": name}, "spec": spec})
        self.settle()

    def command(self, action: str, queue: str, name: str = "do") -> None:
        target = {"apiVersion": QUEUES.api_version, "kind": "Queue", "name": queue}
        self.api.put(COMMANDS, {"metadata": {"name": name}, "action": action, "target": target})
        self.settle()

    def group(self, name: str, queue: str, phase: str = "") -> None:
        status = {"phase": phase} if phase else {}
        self.api.put(POD_GROUPS, {"metadata": {"name": name}, "spec": {"queue": queue}, "status": status})
        self.settle()

    def queue(self, name: str) -> Json:
        found = self.api.object(QUEUES, name)
        assert found is not None
        return found

    def state(self, name: str) -> str:
        return self.queue(name)["status"]["state"]


def test_root_and_default_exist() -> None:
    tree = Tree()
    assert tree.queue("root")["spec"] == {"weight": 1, "reclaimable": False}
    assert tree.queue("default")["spec"] == {"weight": 1, "reclaimable": True, "parent": "root"}
    assert (tree.state("root"), tree.state("default")) == ("Open", "Open")


def test_a_queue_that_is_there_is_not_changed() -> None:
    api = FakeApi()
    api.put(QUEUES, {"metadata": {"name": "default"}, "spec": {"weight": 7, "parent": "root"}})
    controller = QueueController(api)  # type: ignore[arg-type]
    effects = asyncio.run(controller.reconcile("default"))
    assert effects.creates == []
    assert [patch.patch for patch in effects.patches] == [{"status": {"state": "Open"}}]


def test_a_queue_without_a_parent_belongs_to_the_root() -> None:
    tree = Tree()
    tree.add("gold")
    assert tree.queue("gold")["spec"]["parent"] == "root"
    assert "parent" not in tree.queue("root")["spec"]


def test_groups_are_counted_by_phase() -> None:
    tree = Tree()
    tree.add("gold")
    tree.group("a", "gold")
    tree.group("b", "gold", "Pending")
    tree.group("c", "gold", "Running")
    tree.group("d", "", "Inqueue")
    status = tree.queue("gold")["status"]
    assert (status["pending"], status["running"]) == (2, 1)
    assert "inqueue" not in status
    assert tree.queue("default")["status"]["inqueue"] == 1
    tree.api.change(POD_GROUPS, "default/b", status={"phase": "Completed"})
    tree.api.remove(POD_GROUPS, "default/c")
    tree.settle()
    status = tree.queue("gold")["status"]
    assert (status["pending"], status["running"], status["completed"]) == (1, 0, 1)


def test_a_group_that_changes_its_queue_is_counted_there() -> None:
    tree = Tree()
    tree.group("a", "default", "Running")
    tree.add("gold")
    tree.api.change(POD_GROUPS, "default/a", spec={"queue": "gold"})
    tree.settle()
    assert tree.queue("default")["status"]["running"] == 0
    assert tree.queue("gold")["status"]["running"] == 1


def test_what_the_scheduler_wrote_stays() -> None:
    tree = Tree()
    tree.api.change(QUEUES, "default", status={"allocated": {"cpu": "3"}})
    tree.group("a", "default", "Running")
    assert tree.queue("default")["status"]["allocated"] == {"cpu": "3"}


def test_nothing_is_written_when_nothing_changed() -> None:
    tree = Tree()
    before = len(tree.api.log)
    tree.settle()
    assert len(tree.api.log) == before


def test_closing_waits_for_the_groups() -> None:
    tree = Tree()
    tree.add("gold")
    tree.group("a", "gold", "Running")
    tree.command("CloseQueue", "gold")
    assert tree.state("gold") == "Closing"
    assert tree.api.objects(COMMANDS) == []
    assert "CloseQueue" in tree.said
    tree.api.change(POD_GROUPS, "default/a", status={"phase": "Completed"})
    tree.settle()
    assert tree.state("gold") == "Closed"
    tree.command("OpenQueue", "gold")
    assert tree.state("gold") == "Open"


def test_an_empty_queue_closes_at_once() -> None:
    tree = Tree()
    tree.command("CloseQueue", "default")
    assert tree.state("default") == "Closed"


def test_children_close_and_open_with_their_parent() -> None:
    tree = Tree()
    tree.add("a")
    tree.add("a1", "a")
    tree.add("a2", "a")
    tree.add("a11", "a1")
    tree.command("CloseQueue", "a2")
    tree.command("CloseQueue", "a")
    assert [tree.state(name) for name in ("a", "a1", "a11", "a2")] == ["Closed"] * 4
    assert tree.state("default") == "Open"
    tree.command("OpenQueue", "a1")
    assert tree.state("a1") == "Closed"  # its parent is
    assert "OpenQueue" in tree.said
    tree.command("OpenQueue", "a")
    assert [tree.state(name) for name in ("a", "a1", "a11")] == ["Open"] * 3
    assert tree.state("a2") == "Closed"  # closed by itself, so it stays closed


@pytest.mark.parametrize(("action", "queue"), [("CloseQueue", "root"), ("Burn", "default")])
def test_what_cannot_be_is_refused(action: str, queue: str) -> None:
    tree = Tree()
    tree.command(action, queue)
    assert tree.state(queue) == "Open"
    assert tree.api.objects(COMMANDS) == []
    assert tree.said


def test_commands_are_carried_out_in_order() -> None:
    tree = Tree()
    tree.add("gold")
    target = {"apiVersion": QUEUES.api_version, "kind": "Queue", "name": "gold"}
    for name, action in (("b", "CloseQueue"), ("a", "OpenQueue")):
        tree.api.put(COMMANDS, {"metadata": {"name": name}, "action": action, "target": target})
        tree.api.clock.jump(1)
    tree.settle()
    assert tree.state("gold") == "Open"
    assert tree.said.count("CloseQueue") == 1


def test_a_command_for_a_queue_that_is_not_there_is_removed() -> None:
    tree = Tree()
    target = {"apiVersion": QUEUES.api_version, "kind": "Queue", "name": "nowhere"}
    tree.api.put(COMMANDS, {"metadata": {"name": "x"}, "action": "OpenQueue", "target": target})
    effects = asyncio.run(tree.controller.reconcile("nowhere"))
    assert [delete.name for delete in effects.deletes] == ["x"]


def test_a_queue_being_deleted_is_left_alone() -> None:
    queue = {"metadata": {"name": "q", "deletionTimestamp": "2026-01-01T00:00:00Z"}, "spec": {}}
    assert reconcile(queue, QueueSnapshot(None, {})).stages == ()
