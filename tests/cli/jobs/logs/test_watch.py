"""Watching for a command: the threads ring for every change, and end with the command."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from windlass.api.errors import StatusError, WindlassError
from windlass.api.resources import PODS
from windlass.cli.jobs.logs.watch import Changes, Watched


class Server:
    """Answers the one watch with what the test hands out: a change (``None``), an error, or the end."""

    def __init__(self) -> None:
        self.watches = 0
        self.closed = threading.Event()
        self.asked = threading.Semaphore(0)
        self.answers: list[Any] = []
        self.given = threading.Semaphore(0)

    def give(self, *answers: Any) -> None:
        self.answers += answers
        self.given.release()

    def close(self) -> None:
        self.closed.set()

    def list(self, *_: object, **__: object) -> SimpleNamespace:
        return SimpleNamespace(resource_version="7")

    def watch(self, *_: object, **__: object) -> Iterator[Any]:
        self.watches += 1
        while True:
            self.asked.release()
            self.given.acquire()
            answer = self.answers.pop(0)
            if answer == "end":
                return
            if answer is not None:
                raise answer
            yield answer


def watching(server: Server) -> tuple[Changes, list[float]]:
    pauses: list[float] = []
    clock = SimpleNamespace(monotonic=lambda: 0.0, pause=pauses.append)
    changes = Changes(SimpleNamespace(clock=clock, new_client=lambda: server))  # type: ignore[arg-type]
    changes.watch(Watched(PODS, "default"))
    assert server.asked.acquire(timeout=60)
    return changes, pauses


@pytest.mark.parametrize(
    "last",
    [None, "end", StatusError({"code": 500}), WindlassError("WL-API-503", "gone")],
    ids=["change", "end", "refused", "unreachable"],
)
def test_closed_threads_end_with_what_comes_next(last: Any) -> None:
    server = Server()
    changes, _ = watching(server)
    server.give(None)
    assert server.asked.acquire(timeout=60)
    assert not server.closed.is_set()
    changes.close()
    server.give(last)
    assert server.closed.wait(60), "the thread still watches"
    assert server.watches == 1


def test_a_watch_that_fails_is_tried_again_and_not_at_once() -> None:
    server = Server()
    changes, pauses = watching(server)
    server.give(WindlassError("WL-API-503", "gone"))
    assert server.asked.acquire(timeout=60)
    assert server.watches == 2
    assert pauses == [0.5, 0.5]
    changes.close()
    server.give("end")
    assert server.closed.wait(60)
    assert changes.items.qsize() == 4  # at the start and at the end of each watch
