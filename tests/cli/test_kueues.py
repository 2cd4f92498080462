"""Queues that come of Kueue's, put into a cluster."""

from __future__ import annotations

from typing import Any, cast

from windlass.api.resources import Resource
from windlass.cli import kueues
from windlass.client.blocking import BlockingClient
from windlass.model.kueue import Translation

Json = dict[str, Any]


class Cluster:
    def __init__(self, *queues: Json) -> None:
        self.queues = {queue["metadata"]["name"]: queue for queue in queues}
        self.written: list[str] = []

    def find(self, resource: Resource, name: str, namespace: str | None = None) -> Json | None:
        return self.queues.get(name)

    def patch(self, resource: Resource, name: str, body: Json, **options: Any) -> Json:
        assert (options["kind"], options["field_manager"]) == ("apply", kueues.MANAGER)
        self.written.append(name)
        return body


def queue(name: str, *managers: str) -> Json:
    metadata = {"name": name, "managedFields": [{"manager": manager} for manager in managers]}
    return {"metadata": metadata, "spec": {}}


def test_a_queue_that_somebody_else_made_is_told() -> None:
    cluster = Cluster(queue("mine", "kubectl"), queue("again", "kubectl", kueues.MANAGER))
    found = Translation([queue("mine"), queue("again"), queue("fresh")], [], [], [])
    said = list(kueues.apply(cast(BlockingClient, cluster), found, dry_run=False))
    assert said == [
        "queue mine applied, over one that was there already",
        "queue again applied",
        "queue fresh applied",
    ]
    assert cluster.written == ["mine", "again", "fresh"]
