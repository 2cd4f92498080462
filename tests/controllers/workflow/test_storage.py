"""Nodes of large workflows: compressed, or split over ConfigMaps."""

from __future__ import annotations

import base64
import json

import pytest
from fakeapi import Crash
from workflow_player import HEAD, Outcome, Player
from workflow_world import WorkflowWorld

from windlass.api.resources import CONFIG_MAPS, WORKFLOWS
from windlass.controllers.workflow import controller, labels, storage
from windlass.workflow.node import encode_nodes

LOOP = f"""{HEAD}
  templates:
  - name: main
    steps:
    - - name: a-rather-long-name
        template: leaf
        withSequence: {{count: 10000}}
        arguments: {{parameters: [{{name: n, value: "value {{{{item}}}}"}}]}}
  - {{name: leaf, inputs: {{parameters: [{{name: n}}]}}, container: {{image: x, command: [a]}}}}
"""


def test_ten_thousand_nodes_fit_into_an_object_of_less_than_a_megabyte() -> None:
    played = Player(LOOP, {"leaf": Outcome(result="some text", parameters={"p": "some value"})}).play()
    assert (played.phase, played.workflow["status"]["progress"]) == ("Succeeded", "10000/10000")
    status: dict = {}
    assert storage.store_nodes(played.workflow, status, encode_nodes(played.nodes)) == []
    assert len(json.dumps(status)) < 1_000_000
    assert encode_nodes(storage.read_nodes(status, [])) == encode_nodes(played.nodes)


def test_nodes_that_do_not_fit_are_split_over_config_maps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "PLAIN_BYTES", 10)
    monkeypatch.setattr(storage, "CHUNK_BYTES", 200)
    manifest = """
metadata: {name: w}
spec:
  entrypoint: main
  templates:
  - {name: main, steps: [[{name: a, template: leaf, withSequence: {count: 20}}]]}
  - {name: leaf, container: {image: x, command: [x]}}
"""
    for crashes in (None, 0, 1, 5, 18, 19, 20, 21, 22, 23, 24, 26, 28, 30, 33, 36):
        world = WorkflowWorld(manifest)
        world.api.crash_after = crashes
        try:
            world.run()
        except Crash:
            world.restart()
            world.run()
        status = world.status()
        assert (status["phase"], status["progress"]) == ("Succeeded", "20/20"), crashes
        version = status["offloadNodeStatusVersion"]
        assert "nodes" not in status
        parts = world.api.objects(CONFIG_MAPS)
        names = {found["metadata"]["name"] for found in parts}
        current = sorted(name for name in names if name.startswith(f"w-nodes-{version}-"))
        assert len(current) > 1
        assert crashes is not None or len(current) == len(names)
        # What an interrupted write leaves goes with the workflow.
        assert all(found["metadata"]["ownerReferences"][0]["name"] == "w" for found in parts)
        data = {found["metadata"]["name"]: found["binaryData"]["nodes"] for found in parts}
        nodes = storage.read_nodes({}, [base64.b64decode(data[name]) for name in sorted(current, key=_part)])
        assert sum(node.phase == "Succeeded" for node in nodes.values()) == 22, crashes


SMALL = """
metadata: {name: w}
spec:
  entrypoint: main
  parallelism: 3
  templates:
  - {name: main, steps: [[{name: a, template: leaf, withSequence: {count: 9}}], [{name: b, template: hold}]]}
  - {name: leaf, container: {image: x, command: [x]}}
  - {name: hold, suspend: {duration: 5}}
"""


def test_compressed_nodes_are_decoded_once_and_survive_a_stop_between_any_two_writes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(storage, "PLAIN_BYTES", 10)
    decoded: list[str] = []

    def read(status: dict, chunks: list[bytes]) -> dict:
        decoded.append(status.get("compressedNodes") or "")
        return storage.read_nodes(status, chunks)

    monkeypatch.setattr(controller, "read_nodes", read)
    calm = WorkflowWorld(SMALL)
    calm.run()
    assert calm.status()["progress"] == "9/9"
    assert decoded == [""]
    for crashes in range(26):
        world = WorkflowWorld(SMALL)
        world.api.crash_after = crashes
        try:
            world.run()
        except Crash:
            world.restart()
            world.run()
        assert (world.phases(), world.pods()) == (calm.phases(), calm.pods()), crashes


def test_nodes_written_by_another_client_are_decoded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "PLAIN_BYTES", 10)
    world = WorkflowWorld(SMALL)
    world.settle()
    world.end_pods()
    world.settle()
    stored = world.api.object(WORKFLOWS, "default/w")
    assert stored is not None
    nodes = storage.read_nodes(stored["status"], [])
    changed = next(node for node in nodes.values() if node.phase == "Succeeded")
    changed.message = "changed by hand"
    status = dict(stored["status"])
    storage.store_nodes(stored, status, encode_nodes(nodes))
    world.api.change(WORKFLOWS, "default/w", status=status)
    world.run()
    assert world.nodes()[changed.display_name]["message"] == "changed by hand"


def test_nodes_of_a_deleted_part_follow_from_the_pods(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "PLAIN_BYTES", 10)
    monkeypatch.setattr(storage, "CHUNK_BYTES", 200)
    for part in (0, 1):
        world = WorkflowWorld(SMALL)
        world.settle()
        world.end_pods()
        world.settle()
        created = len(world.pods())
        version = world.status()["offloadNodeStatusVersion"]
        world.api.remove(CONFIG_MAPS, f"default/w-nodes-{version}-{part}")
        world.restart()
        world.run()
        assert (world.status()["phase"], world.status()["progress"]) == ("Succeeded", "9/9"), part
        assert len(world.pods()) == 9 > created


def test_large_workflow_is_written_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller, "LARGE_BYTES", 100)
    world = WorkflowWorld(SMALL)
    world.settle()
    assert len(world.pods()) == 3
    world.end_pods()
    world.settle()
    assert (len(world.pods()), world.last.stages) == (3, ())
    assert world.last.requeue_after is not None
    world.advance(world.last.requeue_after)
    world.settle()
    assert len(world.pods()) == 6
    # A request of a user is answered at once.
    world.end_pods()
    request = {labels.COMMAND: json.dumps({"action": "other"})}
    world.api.change(WORKFLOWS, "default/w", metadata={"annotations": request})
    world.settle()
    assert "RequestRefused" in world.words.reasons()


def test_large_spec_leaves_less_room_for_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "PLAIN_BYTES", 10)
    for padding, parts in ((0, 0), (storage.OBJECT_BYTES, 1)):
        world = WorkflowWorld(
            SMALL.replace(
                "parallelism: 3", f"arguments: {{parameters: [{{name: p, value: {'x' * (padding or 1)}}}]}}"
            )
        )
        world.run()
        assert len(world.api.objects(CONFIG_MAPS)) == parts
        assert world.status()["progress"] == "9/9"


def _part(name: str) -> int:
    return int(name.rpartition("-")[2])
