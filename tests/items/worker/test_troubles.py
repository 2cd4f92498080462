"""Delays of rows that are told before any row has failed."""

from __future__ import annotations

import threading
from typing import Any

from windlass.items.driver.status import status_of
from windlass.items.ledger.changes import ItemGroup, ItemResult
from windlass.items.ledger.core import Ledger
from windlass.items.ledger.table import ItemTable
from windlass.items.runtimes.base import LeasedRow, RuntimeContext
from windlass.items.runtimes.openai_server import OpenAIRuntime
from windlass.items.spec import parse_batch
from windlass.items.worker.loop import _Heartbeat

URL = "http://127.0.0.1:1/v1"


def test_first_failure_to_connect_is_told_before_the_next_attempt():
    batch = parse_batch({"metadata": {}, "spec": {"runtimeRef": {"name": "openai", "url": URL}}})
    done: list[object] = []
    context = RuntimeContext(
        batch, {}, lambda: 0.0, done.append, lambda reason, message: done.append((reason, message))
    )
    runtime = OpenAIRuntime(context)
    outcome = runtime.request(LeasedRow(0, {"id": 1}, 1, "x"), "m")
    runtime.teardown()
    told = ("ServerUnreachable", outcome.message)
    assert outcome.message.startswith(f"{URL} cannot be reached: ")
    assert done == [told, 1.0, told, 2.0, told, 4.0, told, 8.0, told]


class Link:
    """Link that records the requests of the heartbeat."""

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.called = threading.Event()

    def call(self, path: str, **body: Any) -> dict[str, Any]:
        self.bodies.append(body)
        self.called.set()
        return {"lost": [], "revoked": {}}


def test_heartbeat_reports_a_trouble_at_once():
    link = Link()
    pulse = _Heartbeat(link)  # pyrefly: ignore[bad-argument-type]
    pulse.start(3600.0)
    pulse.tell("ServerUnreachable", "refused")
    assert link.called.wait(60)
    pulse.stop()
    assert (link.bodies[0]["reason"], link.bodies[0]["message"]) == ("ServerUnreachable", "refused")


def test_trouble_is_the_last_error_until_a_row_is_done():
    table = ItemTable()
    for _ in range(2):
        table.add(0, 0, 10)
    ledger = Ledger(parse_batch({"metadata": {}, "spec": {}}), table, [ItemGroup(0, "g")], lambda: "lease")
    lease, _ = ledger.lease("w", "i", 0.0)
    assert lease is not None
    ledger.trouble = ("ServerUnreachable", "refused")
    told = {"reason": "ServerUnreachable", "message": "refused"}
    assert status_of(ledger, 0.0, 1.0, False)["lastError"] == told
    assert "lastError" not in status_of(ledger, 0.0, 1.0, True)
    ledger.commit(lease.id, [ItemResult(0, b"{}")], 0.1, 1.0)
    assert "lastError" not in status_of(ledger, 0.0, 1.0, False)
