"""Who has rights in one namespace only: jobs are submitted, and queues are shown as the scheduler tells them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, cast

import pytest

from windlass.api.annotations import QUEUE_SHARE
from windlass.api.errors import StatusError, WindlassError
from windlass.api.resources import KAI_QUEUES, NODES, PRIORITY_CLASSES, QUEUES, VOLCANO_JOBS, Resource
from windlass.cli import main
from windlass.cli.invocation import Invocation, InvocationContext, ServerTarget
from windlass.cli.jobs.preflight.capacity_checks import check_capacity
from windlass.cli.jobs.requests.job_builder import JobRequest
from windlass.cli.queues import queues
from windlass.client.blocking import BlockingClient
from windlass.client.responses import ListResult
from windlass.kits.state import StateFolder

Json = dict[str, Any]


class Refusing:
    """Answers with the objects of ``kinds``, and 403 for every other kind."""

    def __init__(self, **kinds: list[Json]) -> None:
        self.kinds = kinds
        self.on_warning: Callable[[str], None] | None = None

    def list(self, resource: Resource, namespace: str | None = None) -> ListResult:
        del namespace
        if resource.qualified not in self.kinds:
            raise StatusError({"code": 403, "reason": "Forbidden", "message": f"{resource.qualified}: no"})
        return ListResult(self.kinds[resource.qualified], "1")

    def find(self, resource: Resource, name: str, namespace: str | None = None) -> Json | None:
        found = self.list(resource, namespace).items
        return next((obj for obj in found if obj["metadata"]["name"] == name), None)


@pytest.fixture
def invoked(tmp_path: Any) -> Callable[[Refusing], Invocation]:
    def make(client: Refusing) -> Invocation:
        context = InvocationContext(connect=lambda _: cast(BlockingClient, client))
        return Invocation(context, ServerTarget(StateFolder(tmp_path), context="cluster"))

    return make


def test_queues_are_as_the_scheduler_tells_them(invoked: Callable[[Refusing], Invocation]) -> None:
    told = {
        "allocated": {"nvidia.com/gpu": "4"},
        "requested": {"nvidia.com/gpu": "6"},
        "fairShare": {"nvidia.com/gpu": "5"},
    }
    queue = {
        "metadata": {"name": "team", "annotations": {QUEUE_SHARE: json.dumps(told)}},
        "spec": {"weight": 2},
        "status": {"running": 2, "pending": 1, "inqueue": 3},
    }
    root = {"metadata": {"name": "root"}, "status": {"running": 1}}
    share, above = queues.gather(invoked(Refusing(**{QUEUES.qualified: [queue, root]})))
    assert (above.running, above.pending) == (3, 4)
    assert (share.running, share.pending) == (2, 4)
    assert [share.gpus(which) for which in ("allocated", "waiting", "fair_share")] == ["4", "2", "5"]
    with pytest.raises(StatusError, match="queues"):
        queues.gather(invoked(Refusing(**{KAI_QUEUES.qualified: [], VOLCANO_JOBS.qualified: []})))


def test_a_job_is_submitted_though_nobody_may_look(invoked: Callable[[Refusing], Invocation]) -> None:
    request = JobRequest(("true",), time_seconds=0, gpus=8, queue="team", priority="high")
    check_capacity(invoked(Refusing()), request)
    known = Refusing(**{QUEUES.qualified: [], PRIORITY_CLASSES.qualified: []})
    with pytest.raises(WindlassError, match='queue "team" does not exist'):
        check_capacity(invoked(known), request)


def test_a_cluster_may_get_the_nodes_that_it_lacks(
    invoked: Callable[[Refusing], Invocation], capsys: pytest.CaptureFixture[str]
) -> None:
    """An autoscaler makes nodes for what waits; on a box nothing comes of waiting."""
    amounts = {"cpu": "64", "memory": "64Gi", "pods": "110"}
    node = {"metadata": {"name": "n"}, "status": {"allocatable": amounts}}
    client = Refusing(**{NODES.qualified: [node]})
    check_capacity(invoked(client), JobRequest(("true",), time_seconds=0, gpus=8))
    told = capsys.readouterr().err
    assert told == "note: 8 GPUs were requested, and this cluster has none; the job waits for such nodes\n"
    box = invoked(client)
    box.target.context = None
    with pytest.raises(WindlassError) as caught:
        check_capacity(box, JobRequest(("true",), time_seconds=0, gpus=8))
    assert caught.value.code == "WL-GPU-413"


def test_a_namespace_after_n_where_that_means_something_else(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["logs", "train", "-n", "team"], InvocationContext()) == 2
    assert "try: --namespace NAME   (-n means --tail in this command)" in capsys.readouterr().err
