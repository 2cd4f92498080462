"""Conditions under which a control plane counts as ready."""

from __future__ import annotations

from typing import Any, cast

import pytest

from windlass.api.resources import LEASES, NODES, Resource
from windlass.app.threads import node_ready
from windlass.client.blocking import BlockingClient

BEGAN = 1_767_268_800.5  # 2026-01-01T12:00:00.5Z


class Server:
    """It has one node and its lease."""

    def __init__(self, ready: str, renewed: str) -> None:
        self._objects: dict[Resource, dict[str, Any]] = {
            NODES: {"status": {"conditions": [{"type": "Ready", "status": ready}]}},
            LEASES: {"spec": {"renewTime": renewed}},
        }

    def get(self, resource: Resource, _name: str, _namespace: str = "") -> dict[str, Any]:
        return self._objects[resource]


@pytest.mark.parametrize(
    ("ready", "renewed", "up"),
    [
        (
            "True",
            "2026-01-01T12:00:00.400000Z",
            False,
        ),  # by the agent of an earlier start: what it had may be gone
        ("True", "2026-01-01T12:00:00.600000Z", True),
        ("False", "2026-01-01T12:00:00.600000Z", False),
    ],
)
def test_a_node_is_ready_when_the_agent_of_this_start_says_so(ready: str, renewed: str, up: bool) -> None:
    client = cast(BlockingClient, Server(ready, renewed))
    assert node_ready(client, "box", since=BEGAN) is up
