"""A wait is told once it is long, and once only."""

from __future__ import annotations

import msgspec

from windlass.cli.workflows.waits import LONG_SECONDS, LongWaits
from windlass.workflow import words
from windlass.workflow.node import NodeStatus


def test_a_wait_is_given_once_when_it_is_long() -> None:
    now = 100.0
    waits = LongWaits(lambda: now)
    node = NodeStatus("w-1", "w.a", "a", words.POD, words.PENDING, message="no node has a GPU")
    silent = msgspec.structs.replace(node, id="w-2", message="")
    assert waits.new([node, silent]) == []
    now += LONG_SECONDS
    assert waits.new([node, silent]) == [node]
    assert waits.new([node]) == []
    other = msgspec.structs.replace(node, message="the queue is full")
    assert waits.new([other]) == []
    now += LONG_SECONDS - 1
    assert waits.new([msgspec.structs.replace(node, phase=words.RUNNING)]) == []
    assert waits.new([other]) == []
    now += LONG_SECONDS
    assert waits.new([other]) == [other]


def test_message_of_a_workflow_is_given_once_when_it_is_long() -> None:
    now = 100.0
    waits = LongWaits(lambda: now)
    for text in ("used: 2", "used: 3"):
        assert not waits.begins(text)
    now += LONG_SECONDS
    assert waits.begins("used: 4")
    now += LONG_SECONDS
    assert not waits.begins("used: 5")
    assert not waits.begins("")
    assert not waits.begins("used: 6")
    now += LONG_SECONDS
    assert waits.begins("used: 6")
