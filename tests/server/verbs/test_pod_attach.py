"""Attaching to a container that has just ended, while its status still shows it as running."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from windlass.api.errors import StatusError, bad_request
from windlass.server.verbs import pod_attach, pod_streams

POD = {
    "metadata": {"name": "p"},
    "spec": {"containers": [{"name": "c", "stdin": True, "stdinOnce": True}]},
    "status": {"containerStatuses": [{"name": "c", "state": {"running": {}}}]},
}


class Agent:
    """Source of streams that refuses containers that have ended."""

    def __init__(self, running: bool) -> None:
        self.running = running
        self.attached: list[dict[str, bool]] = []
        self.closed = 0

    async def attach(self, pod: Any, container: str, streams: dict[str, bool]) -> Agent:
        if not self.running:
            raise bad_request("the container has ended")
        self.attached.append(streams)
        return self

    def close(self) -> None:
        self.closed += 1


@pytest.mark.parametrize(
    ("running", "words"), [(False, "the container has ended"), (True, "by SPDY is not served")]
)
async def test_a_request_by_spdy_is_told_of_the_end_first(
    running: bool, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pod_streams, "stored_pod", lambda core, call: POD)
    monkeypatch.setattr(pod_streams, "check_has_process", lambda core, pod, consequence: None)
    agent = Agent(running)
    request = SimpleNamespace(subprotocols=None, headers={"upgrade": "SPDY/3.1"})
    target = SimpleNamespace(subresource="attach")
    call: Any = SimpleNamespace(
        params={"stdin": "true", "stdout": "true", "container": "c"}, request=request, target=target
    )
    with pytest.raises(StatusError, match=words):
        await pod_attach.attach(SimpleNamespace(streams=agent), call)  # type: ignore[arg-type]
    assert agent.attached == [{"stdout": True}] * running  # its stdin stays open
    assert agent.closed == running
