"""Nodes of large workflows: compressed, or split over ConfigMaps."""

from __future__ import annotations

import base64
import json

import pytest
from fakeapi import Crash
from workflow_player import HEAD, Outcome, Player
from workflow_world import WorkflowWorld

from windlass.api.resources import CONFIG_MAPS
from windlass.controllers.workflow import storage
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
    assert storage.store_nodes(status, played.nodes) == []
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


def _part(name: str) -> int:
    return int(name.rpartition("-")[2])
