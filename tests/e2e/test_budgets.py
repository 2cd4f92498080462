"""Disruption budgets on both servers: the same statuses, and evictions that keep to them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from clusters import Cluster

from windlass.api.resources import CONFIG_MAPS, POD_DISRUPTION_BUDGETS, PODS

Json = dict[str, Any]
PATIENCE = 120.0
FIGURES = ("expectedPods", "currentHealthy", "desiredHealthy", "disruptionsAllowed")


class Team:
    """A namespace with pods that run and a budget for some of them."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.namespace = cluster.new_namespace("pdb")

    def pod(self, name: str, *, ready: bool = True, owner: Json | None = None) -> None:
        metadata = {"name": name, "labels": {"app": "x"}, **({"ownerReferences": [owner]} if owner else {})}
        spec = {
            "schedulerName": "nobody",
            "containers": [{"name": "main", "image": "busybox"}],
            "terminationGracePeriodSeconds": 0,
        }
        obj = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
        self.cluster.post(PODS.path(self.namespace), obj).ok(201)
        status = {"phase": "Running", "conditions": [{"type": "Ready", "status": str(ready)}]}
        self.cluster.patch(PODS.path(self.namespace, name, "status"), {"status": status}).ok()

    def owner(self) -> Json:
        """Of a kind that has no scale; it is there, so that nobody collects what belongs to it."""
        obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "owner"}}
        made = self.cluster.post(CONFIG_MAPS.path(self.namespace), obj).ok(201)
        kind = {"apiVersion": "v1", "kind": "ConfigMap", "controller": True}
        return {**kind, "name": "owner", "uid": made["metadata"]["uid"]}

    def budget(self, **spec: Any) -> None:
        spec = {"selector": {"matchLabels": {"app": "x"}}, **spec}
        obj = {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": "b"},
            "spec": spec,
        }
        self.cluster.post(POD_DISRUPTION_BUDGETS.path(self.namespace), obj).ok(201)

    @property
    def status(self) -> Json:
        found = self.cluster.get(POD_DISRUPTION_BUDGETS.path(self.namespace, "b")).ok()
        current = found.get("status") or {}
        return current if current.get("observedGeneration", 0) == found["metadata"]["generation"] else {}

    @property
    def figures(self) -> tuple[int, ...]:
        status = self.status
        return tuple(status.get(name, -1) for name in FIGURES)

    @property
    def condition(self) -> tuple[str, str]:
        found = self.cluster.get(POD_DISRUPTION_BUDGETS.path(self.namespace, "b")).ok()
        conditions = (found.get("status") or {}).get("conditions") or ()
        return next(
            ((c["status"], c["reason"]) for c in conditions if c["type"] == "DisruptionAllowed"), ("", "")
        )

    def evict(self, name: str) -> Any:
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
        return self.cluster.post(PODS.path(self.namespace, name, "eviction"), body)

    def until(self, question: Callable[[], Any], answer: Any) -> None:
        deadline = time.monotonic() + PATIENCE
        while (found := question()) != answer:
            assert time.monotonic() < deadline, found
            time.sleep(0.05)


@pytest.fixture
def team(cluster: Cluster) -> Team:
    return Team(cluster)


def test_evictions_keep_to_a_number_of_pods(team: Team) -> None:
    for name in "abc":
        team.pod(name)
    team.budget(minAvailable=2)
    team.until(lambda: team.figures, (3, 3, 2, 1))
    assert team.condition == ("True", "SufficientPods")
    team.evict("a").ok(201)
    answer = team.evict("b")
    assert answer.status == 429
    assert answer.json["details"]["causes"][0]["reason"] == "DisruptionBudget"
    team.until(lambda: team.figures, (2, 2, 2, 0))
    team.until(lambda: team.condition, ("False", "InsufficientPods"))
    team.pod("d", ready=False)
    team.until(lambda: team.figures, (3, 2, 2, 0))
    team.evict("d").ok(201)  # it is not ready, and enough others are
    assert team.evict("b").status == 429
    team.pod("e")
    team.until(lambda: team.figures[-1], 1)
    team.evict("b").ok(201)


@pytest.mark.parametrize("spec", [{"minAvailable": "50%"}, {"maxUnavailable": 1}])
def test_what_no_controller_says_allows_nothing(team: Team, spec: Json) -> None:
    for name in "ab":
        team.pod(name)
    team.budget(**spec)
    team.until(lambda: (*team.figures[:2], team.figures[3]), (0, 2, 0))
    assert team.evict("a").status == 429
    team.pod("owned", owner=team.owner())
    team.until(lambda: team.condition, ("False", "SyncFailed"))
    assert team.evict("a").status == 429


def test_no_pods(team: Team) -> None:
    team.budget(minAvailable=1)
    team.until(lambda: team.figures, (0, 0, 1, 0))
    assert team.condition == ("False", "InsufficientPods")
