"""Queues that come of Kueue's, put into a cluster."""

from __future__ import annotations

from typing import Any, cast

import pytest

from windlass.api.annotations import ADOPTED, ADOPTED_STOP_POLICY
from windlass.api.errors import StatusError
from windlass.api.resources import Resource
from windlass.cli.install import adopt_kueue
from windlass.client.blocking import BlockingClient
from windlass.model.queues.kueue_import import KueueImport

Json = dict[str, Any]


class Cluster:
    def __init__(self, *queues: Json) -> None:
        self.queues = {queue["metadata"]["name"]: queue for queue in queues}
        self.written: list[str] = []

    def find(self, resource: Resource, name: str, namespace: str | None = None) -> Json | None:
        return self.queues.get(name)

    def patch(self, resource: Resource, name: str, body: Json, **options: Any) -> Json:
        assert (options["kind"], options["field_manager"]) == ("apply", adopt_kueue.MANAGER)
        self.written.append(name)
        return body


def queue(name: str, *managers: str) -> Json:
    metadata = {"name": name, "managedFields": [{"manager": manager} for manager in managers]}
    return {"metadata": metadata, "spec": {}}


def test_a_queue_that_somebody_else_made_is_told() -> None:
    cluster = Cluster(queue("mine", "kubectl"), queue("again", "kubectl", adopt_kueue.MANAGER))
    found = KueueImport([queue("mine"), queue("again"), queue("fresh")], [], [], [])
    said = list(adopt_kueue.apply(cast(BlockingClient, cluster), found, dry_run=False))
    assert said == [
        "queue mine applied to an existing queue",
        "queue again applied",
        "queue fresh applied",
    ]
    assert cluster.written == ["mine", "again", "fresh"]


class Busy:
    """One ClusterQueue that Kueue writes to, so many times between a read and the write after it."""

    def __init__(self, conflicts: int) -> None:
        self.conflicts = conflicts
        self.version = 1
        self.notes: Json = {}
        self.policy = "HoldAndDrain"

    def seen(self, *_: object) -> list[Json]:
        metadata = {"name": "team", "resourceVersion": str(self.version), "annotations": dict(self.notes)}
        told = {"type": "Active", "status": "False", "reason": "Stopped"}
        spec, status = {"stopPolicy": self.policy}, {"conditions": [told]}
        return [
            {"apiVersion": "kueue.x-k8s.io/v1beta2", "metadata": metadata, "spec": spec, "status": status}
        ]

    def patch(self, resource: Resource, name: str, body: Json) -> None:
        if self.conflicts:
            self.conflicts -= 1
            self.version += 1
            self.policy = "Hold"
        if body["metadata"]["resourceVersion"] != str(self.version):
            raise StatusError({"code": 409, "reason": "Conflict", "message": "modified"})
        for key, value in body["metadata"]["annotations"].items():
            self.notes.pop(key, None) if value is None else self.notes.update({key: value})
        self.policy = body["spec"]["stopPolicy"]


def test_what_kueue_writes_meanwhile_is_in_nobodys_way(
    monkeypatch: pytest.MonkeyPatch, fake_clock: Any
) -> None:
    busy = Busy(2)
    monkeypatch.setattr(adopt_kueue, "_listed", busy.seen)
    client = cast(BlockingClient, busy)
    adopt_kueue.hold(client, "team", fake_clock, seconds=1.0, tell=lambda _: None)
    assert busy.notes == {ADOPTED: "true", ADOPTED_STOP_POLICY: "Hold"}  # as it stood when it was written
    busy.conflicts = 1
    adopt_kueue.release(client, "team", fake_clock, seconds=1.0, tell=lambda _: None)
    assert (busy.notes, busy.policy) == ({}, "Hold")


def test_who_is_always_overtaken_is_told(monkeypatch: pytest.MonkeyPatch, fake_clock: Any) -> None:
    busy = Busy(1000)
    monkeypatch.setattr(adopt_kueue, "_listed", busy.seen)
    with pytest.raises(StatusError, match="modified"):
        adopt_kueue.hold(cast(BlockingClient, busy), "team", fake_clock, seconds=1.0, tell=print)
    assert busy.conflicts == 1000 - adopt_kueue.MAX_WRITES
