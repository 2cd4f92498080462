"""Helpers for tests of the store."""

from __future__ import annotations

from typing import Any

from windlass.store.records import Op
from windlass.store.store import Store
from windlass.store.watch import Watcher


def pod(name: str, namespace: str = "default", *, node: str = "", **labels: str) -> dict[str, Any]:
    """A pod as the server hands it to the store."""
    obj: dict[str, Any] = {"metadata": {"name": name, "namespace": namespace}, "spec": {}}
    if labels:
        obj["metadata"]["labels"] = labels
    if node:
        obj["spec"]["nodeName"] = node
    return obj


def thing(name: str, **members: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, **members}


async def drain(watcher: Watcher) -> list[tuple[str, str, int]]:
    """All changes up to now, as (op, key, version)."""
    found = []
    while True:
        watcher.interrupt()
        changes = await watcher.batch()
        found += [(Op(change.op).name, change.entry.key, change.entry.rv) for change in changes]
        if not changes and watcher.delivered_rv is not None:
            return found


def crash(store: Store) -> None:
    """End it as a killed process ends: what is committed stays, nothing is marked clean."""
    store._writer.stop()
    store._database.abandon()
    store._closed = True
