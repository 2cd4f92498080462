"""``windlass --context NAME doctor``: what is wrong with a cluster, as far as this user may see it."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import format_datetime
from pathlib import Path
from typing import Any, cast

import pytest

from windlass.api.errors import StatusError
from windlass.api.resources import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    KAI_QUEUES,
    LEASES,
    NAMESPACES,
    NODES,
    POD_GROUPS,
    PODS,
    QUEUES,
    RESOURCE_SLICES,
    VOLCANO_JOBS,
    Resource,
)
from windlass.cli.doctor import cluster_checks
from windlass.cli.doctor.machine_checks import FAIL, OK, WARN
from windlass.cli.errors import translate
from windlass.cli.install import gpu_sharing
from windlass.cli.install.objects import DEPLOYED
from windlass.cli.invocation import Invocation, InvocationContext, ServerTarget
from windlass.cli.jobs.jobs import OTHER_GROUPS
from windlass.cli.jobs.kinds.job_kinds import JOB_KINDS
from windlass.client.blocking import BlockingClient
from windlass.client.connection import Connection
from windlass.client.errors import Unreachable
from windlass.client.responses import ListResult
from windlass.client.transport import Request, Response
from windlass.kits.state import StateFolder
from windlass.kits.timestamps import rfc3339, rfc3339_micro

Json = dict[str, Any]
NOW = 1_790_000_000.0


class Clock:
    def now(self) -> float:
        return NOW

    def monotonic(self) -> float:
        return NOW

    def pause(self, seconds: float) -> None:
        del seconds


class Cluster:
    """``refused``: kinds that this user may not see."""

    def __init__(self) -> None:
        self.connection = Connection(server="https://there:6443")
        self.version = "v1.36.3"
        self.served = ["queues", "podgroups", "jobs"]
        self.renewed = {name: NOW - 1 for name in DEPLOYED}
        self.ready = 2
        self.nodes: list[Json] = []
        self.work: dict[Resource, list[Json]] = {}
        self.refused: tuple[Resource, ...] = ()
        self.spaces = ["windlass-system"]
        self.date: datetime | None = datetime.fromtimestamp(NOW, UTC)
        self.noted: float | None = None
        self.settings = ""
        self.there: set[tuple[str, str]] = set()
        self.holders: list[Json] = []
        self.node_leases: list[Json] = []
        self.on_warning: Callable[[str], None] | None = None

    def call(self, request: Request) -> bytes:
        if request.path == "/version":
            return json.dumps({"gitVersion": self.version}).encode()
        if request.path == "/readyz":
            return b"ok"
        return json.dumps([{"name": name} for name in self.served]).encode()

    def _check(self, resource: Resource) -> None:
        if resource in self.refused:
            raise StatusError({"code": 403, "message": "no"})

    def list(self, resource: Resource, namespace: str | None = "", labels: str = "") -> ListResult:
        self._check(resource)
        if resource is CONFIG_MAPS:
            assert labels == gpu_sharing.SETTINGS
            return ListResult([{"data": {"settings.yaml": self.settings}}], "1")
        if not labels and resource in (
            RESOURCE_SLICES,
            QUEUES,
            KAI_QUEUES,
            *OTHER_GROUPS.values(),
            POD_GROUPS,
            *(kind.resource for kind in JOB_KINDS.values()),
        ):
            return ListResult(self.work.get(resource, []), "1")
        if resource is PODS and namespace is None:
            return ListResult(self.work.get(resource, []), "1")
        if resource is PODS:
            assert namespace == gpu_sharing.RESERVATION_NAMESPACE
            return ListResult(self.holders, "1")
        if resource is NODES:
            return ListResult(self.nodes, "1")
        if resource is LEASES:
            assert namespace == "kube-node-lease"
            return ListResult(self.node_leases, "1")
        assert labels == "app.kubernetes.io/part-of=windlass"
        status = {"readyReplicas": self.ready}
        metadata = [{"name": name, "namespace": space} for space in self.spaces for name in self.renewed]
        return ListResult([{"metadata": m, "spec": {"replicas": 2}, "status": status} for m in metadata], "1")

    def find(self, resource: Resource, name: str, namespace: str = "") -> Json | None:
        self._check(resource)
        if resource in (NAMESPACES, gpu_sharing.RUNTIME_CLASSES):
            return {} if (resource.kind, name) in self.there else None
        assert (resource, namespace in self.spaces) == (LEASES, True)
        spec = {
            "holderIdentity": "a",
            "renewTime": rfc3339_micro(self.renewed[name]),
            "leaseDurationSeconds": 15,
        }
        fields = {"f:spec": {"f:renewTime": {}}}
        noted = [] if self.noted is None else [{"fieldsV1": fields, "time": rfc3339(self.noted)}]
        others = {"fieldsV1": {"f:metadata": {}}, "time": rfc3339(NOW - 3600)}
        return {"metadata": {"managedFields": [others, *noted]}, "spec": spec}

    def request(self, request: Request) -> Response:
        assert request.path == "/readyz"
        return Response(200, {} if self.date is None else {"date": format_datetime(self.date)})

    def create(self, resource: Resource, body: Json) -> Json:
        assert resource.kind == "SelfSubjectAccessReview"
        asked = body["spec"]["resourceAttributes"]["resource"]
        return {"status": {"allowed": asked not in {kind.plural for kind in self.refused}}}


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
def found(cluster: Cluster, tmp_path: Path) -> Callable[[], list[tuple[str, str, str]]]:
    def look() -> list[tuple[str, str, str]]:
        context = InvocationContext(connect=lambda _: cast(BlockingClient, cluster), clock=Clock())
        invocation = Invocation(
            context, ServerTarget(StateFolder(tmp_path), context="there"), namespace="team"
        )
        results = cluster_checks.all_checks(invocation)
        return [(one.name, one.level, one.text) for one in results if not one.state]  # without GPU parts

    return look


def node(name: str, ready: bool = True, gpus: str = "8", label: str = "true") -> Json:
    return {
        "metadata": {"name": name, "labels": {"nvidia.com/gpu.present": label}},
        "status": {
            "allocatable": {"cpu": "8", "nvidia.com/gpu": gpus},
            "conditions": [{"type": "Ready", "status": str(ready)}],
        },
    }


def test_a_queue_that_is_named_and_is_not_there_is_told(
    cluster: Cluster, found: Callable[[], list[tuple[str, str, str]]]
) -> None:
    metadata = {"name": "j", "namespace": "lab", "uid": "j"}
    cluster.work[VOLCANO_JOBS] = [{"metadata": metadata, "spec": {"queue": "gone"}}]
    told = [one for one in found() if one[0] == "queues"]
    assert told == [("queues", WARN, "queue gone does not exist, but jobs use it (waiting 1 job)")]
    cluster.refused = (QUEUES,)
    assert not [one for one in found() if one[0] == "queues"]


def test_all_is_well(cluster: Cluster, found: Callable[[], list[tuple[str, str, str]]]) -> None:
    cluster.nodes = [node("a"), node("b", gpus="0", label="false")]
    assert {level for _, level, _ in found()} == {OK}


def test_pods_that_ask_for_more_units_than_there_are_cards_are_told(
    cluster: Cluster, found: Callable[[], list[tuple[str, str, str]]]
) -> None:
    shared = node("t4", gpus="8")
    shared["metadata"]["labels"] |= {
        "nvidia.com/gpu.sharing-strategy": "time-slicing",
        "nvidia.com/gpu.replicas": "4",
    }
    cluster.nodes = [shared, node("whole", gpus="8")]

    def pod(name: str, where: str, gpus: str) -> Json:
        limits = {"resources": {"limits": {"nvidia.com/gpu": gpus}}}
        return {
            "metadata": {"name": name, "namespace": "lab", "uid": name},
            "spec": {"nodeName": where, "containers": [limits]},
            "status": {"phase": "Running"},
        }

    cluster.work[PODS] = [pod("a", "t4", "8"), pod("b", "t4", "2"), pod("c", "whole", "8")]
    told = (
        "pod lab/a asks for 8 nvidia.com/gpu, of which the node has 2 cards in 4 units each (time-slicing): some of "
        "them are one and the same"
    )
    assert [one for one in found() if one[0] == "gpus"] == [("gpus", WARN, told)]
    cluster.work[PODS].append(pod("d", "t4", "3"))
    assert ("gpus", WARN, f"{told}; and 1 more pod") in found()
    cluster.work[PODS] = [pod("b", "t4", "2"), pod("c", "whole", "8")]
    assert not [one for one in found() if one[0] == "gpus"]


def test_what_is_wrong_is_told(cluster: Cluster, found: Callable[[], list[tuple[str, str, str]]]) -> None:
    cluster.version = "v1.29.0"
    cluster.served = ["queues", "podgroups"]
    cluster.ready = 1
    cluster.renewed["windlass-scheduler"] = NOW - 60
    cluster.nodes = [node("a", ready=False), node("b", gpus="0")]
    wrong = [one for one in found() if one[1] != OK]
    assert wrong == [
        ("API server", FAIL, "v1.29.0 is older than 1.30 on https://there:6443"),
        ("kinds", FAIL, "not served: jobs.batch.volcano.sh"),
        ("windlass", WARN, "windlass-system/windlass-scheduler: 1 of 2 ready"),
        ("windlass", WARN, "windlass-system/windlass-controllers: 1 of 2 ready"),
        ("leader", FAIL, "a leads windlass-system/windlass-scheduler, renewed 60 s ago"),
        ("nodes", WARN, "1 of 2 ready; not ready: a"),
        (
            "gpus",
            WARN,
            "b: the label nvidia.com/gpu.present is set, but the kubelet offers no GPUs",
        ),
    ]


def test_two_of_them_are_told(cluster: Cluster, found: Callable[[], list[tuple[str, str, str]]]) -> None:
    cluster.nodes = [node("a")]
    cluster.spaces = ["team", "windlass-system"]
    (wrong,) = (one for one in found() if one[1] != OK)
    assert wrong[:2] == ("windlass", FAIL)
    assert wrong[2].startswith("is installed in team and windlass-system: each has a leader")


def test_clocks_that_differ_are_told(
    cluster: Cluster, found: Callable[[], list[tuple[str, str, str]]]
) -> None:
    def wrong() -> list[str]:
        return [text for name, level, text in found() if level != OK]

    leads = "a leads windlass-system/windlass-scheduler, renewed 2 s ago"
    hours = 5 * 3600
    cluster.nodes = [node("a")]
    # this machine's: what it is 5 hours behind of, the leaders said only now
    cluster.date = datetime.fromtimestamp(NOW + hours, UTC)
    cluster.renewed = dict.fromkeys(DEPLOYED, NOW + hours - 2)
    assert wrong() == ["5h behind the API server's: ages and estimates in the output are wrong"]
    assert leads in [text for _, _, text in found()]
    cluster.date = None  # a server that does not say
    cluster.renewed = dict.fromkeys(DEPLOYED, NOW - 2)
    assert wrong() == []
    # a leader's
    cluster.date, cluster.noted = datetime.fromtimestamp(NOW, UTC), NOW - 2
    cluster.renewed["windlass-scheduler"] = NOW - hours
    assert wrong() == [
        "that of a is 4h59m behind the API server's: the times in its events and conditions are wrong"
    ]
    assert leads in [text for _, _, text in found()]
    cluster.renewed = dict.fromkeys(DEPLOYED, NOW - 2) | {"windlass-controllers": NOW + hours}
    assert wrong() == ["that of a is 5h ahead of the API server's: its timeouts end too early"]
    cluster.noted = NOW - 60
    assert "a leads windlass-system/windlass-scheduler, renewed 60 s ago" in wrong()


def test_kubelets_whose_clocks_differ_are_told(
    cluster: Cluster, found: Callable[[], list[tuple[str, str, str]]]
) -> None:
    def lease(name: str, ahead: float) -> Json:
        noted = {"fieldsV1": {"f:spec": {"f:renewTime": {}}}, "time": rfc3339(NOW - 5)}
        spec = {"holderIdentity": name, "renewTime": rfc3339_micro(NOW - 5 + ahead)}
        return {"metadata": {"name": name, "managedFields": [noted]}, "spec": spec}

    cluster.nodes = [node("a")]
    cluster.node_leases = [lease("a", 0.4), lease("b", -2.0), {"metadata": {"name": "c"}}]
    assert [one for one in found() if one[1] != OK] == []
    cluster.node_leases += [lease("gpu-9", 120.0), lease("gpu-10", -7200.0)]
    (wrong,) = (one for one in found() if one[1] != OK)
    assert wrong[:2] == ("clock", WARN)
    assert wrong[2].startswith("those of gpu-9, gpu-10 are wrong (gpu-10 is 120m behind the API server's)")
    cluster.refused = (LEASES,)
    assert "clock" not in [name for name, level, _ in found() if level != OK]


def test_what_may_not_be_seen_is_no_failure(
    cluster: Cluster, found: Callable[[], list[tuple[str, str, str]]]
) -> None:
    cluster.refused = (NODES, DEPLOYMENTS)
    assert [one for one in found() if one[1] != OK] == [
        ("windlass", WARN, "you may not see whether it is installed"),
        ("your rights", WARN, "you may not see nodes (node ls, gpu ls, plan, what-if)"),
    ]


def test_a_server_that_does_not_answer_ends_it(
    cluster: Cluster, found: Callable[[], list[tuple[str, str, str]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(_: Request) -> bytes:
        raise Unreachable("WL-SERVER-503", "there:6443: connection refused")

    monkeypatch.setattr(cluster, "call", away)
    ((name, level, text),) = found()
    assert (name, level) == ("API server", FAIL)
    assert "connection refused" in text


@pytest.mark.parametrize(
    ("served", "kinds", "why"),
    [
        (
            [],
            "queues.scheduling.volcano.sh, podgroups.scheduling.volcano.sh, jobs.batch.volcano.sh",
            "is not installed in this cluster",
        ),
        (["queues", "jobs"], "podgroups.scheduling.volcano.sh", "the installation is incomplete"),
    ],
)
def test_a_kind_that_is_not_served_is_named(
    cluster: Cluster, served: list[str], kinds: str, why: str
) -> None:
    """The server itself says only that there is no such page."""
    cluster.served = served
    told = translate(
        StatusError({"code": 404, "message": "404 page not found"}), cast(BlockingClient, cluster)
    )
    assert told.message == f"this cluster does not have the kinds {kinds}"
    assert why in told.evidence
    assert told.remedies[0] == "windlass install"


def test_cards_that_cannot_be_held_are_told(
    cluster: Cluster, found: Callable[[], list[tuple[str, str, str]]]
) -> None:
    cluster.nodes = [node("a")]
    assert "shared GPUs" not in {name for name, _, _ in found()}  # not requested
    cluster.settings = gpu_sharing.with_image("log: {level: info}\n", "windlass:1")

    def told() -> list[tuple[str, str]]:
        return [(level, text) for name, level, text in found() if name == "shared GPUs"]

    assert told() == [(FAIL, "namespace windlass-reservations does not exist, so no GPU can be reserved")]
    cluster.there = {("Namespace", gpu_sharing.RESERVATION_NAMESPACE)}
    refused = (FAIL, "runtime class nvidia does not exist, so reservation pods are rejected")
    assert told() == [refused, (OK, "0 GPUs reserved")]
    cluster.there |= {("RuntimeClass", "nvidia")}
    cluster.holders = [
        {"metadata": {"name": f"card-{i}"}, "status": {"phase": phase}}
        for i, phase in enumerate(("Running", "Pending"))
    ]
    assert told() == [(WARN, "2 GPUs reserved; not running: card-1")]
    cluster.refused = (CONFIG_MAPS,)
    assert told() == []
