"""What a ResourceQuota says is used."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from fakeapi import FakeApi

from windlass.api.resources import CONFIG_MAPS, PODS, RESOURCE_QUOTAS
from windlass.controllers.apply_effects import EffectExecutor
from windlass.controllers.quota.controller import REST_FACTOR, QuotaController

Json = dict[str, Any]
HARD = {
    "requests.cpu": "500",
    "requests.memory": "2000Gi",
    "requests.nvidia.com/gpu": "50",
    "limits.cpu": "1000",
    "limits.memory": "4000Gi",
    "limits.nvidia.com/gpu": "100",
    "persistentvolumeclaims": "50",
}


class Team:
    def __init__(self, hard: Json = HARD, **spec: Any) -> None:
        self.api = FakeApi()
        self.api.put(
            RESOURCE_QUOTAS, {"metadata": {"name": "q", "namespace": "team"}, "spec": {"hard": hard, **spec}}
        )
        self.controller = QuotaController(self.api, self.api, self.api.clock)  # type: ignore[arg-type]
        self.executor = EffectExecutor(self.api)  # type: ignore[arg-type]

    def pod(self, name: str, namespace: str = "team", **status: Any) -> None:
        amounts = {"cpu": "500m", "memory": "1Gi", "nvidia.com/gpu": "2"}
        containers = [{"name": "m", "resources": {"requests": amounts, "limits": {**amounts, "cpu": "2"}}}]
        self.api.put(
            PODS,
            {
                "metadata": {"name": name, "namespace": namespace},
                "spec": {"containers": containers},
                "status": status,
            },
        )

    def reconcile(self) -> int:
        async def once() -> int:
            effects = await self.controller.reconcile("team")
            await self.executor.perform(effects)
            return len(list(effects.actions()))

        return asyncio.run(once())

    @property
    def status(self) -> Json:
        (quota,) = self.api.objects(RESOURCE_QUOTAS)
        return quota["status"]


def test_all_names_are_hard_and_six_are_used() -> None:
    team = Team()
    team.reconcile()
    assert team.status["hard"] == HARD
    assert team.status["used"] == {
        "requests.cpu": "0",
        "requests.memory": "0",
        "requests.nvidia.com/gpu": "0",
        "limits.cpu": "0",
        "limits.memory": "0",
        "persistentvolumeclaims": "0",
    }


def test_pods_that_are_not_finished_count() -> None:
    team = Team()
    team.pod("a")
    team.pod("b", phase="Running")
    team.pod("done", phase="Succeeded")
    team.pod("elsewhere", "default")
    team.reconcile()
    used = team.status["used"]
    assert (used["requests.cpu"], used["limits.cpu"]) == ("1", "4")
    assert (used["requests.memory"], used["requests.nvidia.com/gpu"]) == ("2Gi", "4")
    team.api.change(PODS, "team/b", status={"phase": "Failed"})
    team.reconcile()
    assert team.status["used"]["requests.nvidia.com/gpu"] == "2"


def test_nothing_is_written_when_nothing_changed() -> None:
    team = Team()
    assert team.reconcile() == 1
    assert team.reconcile() == 0


def test_counts_of_objects_and_names_that_went() -> None:
    team = Team({"count/configmaps": "5", "configmaps": "5", "pods": "3", "count/unknown.example.com": "1"})
    team.api.put(CONFIG_MAPS, {"metadata": {"name": "c", "namespace": "team"}})
    team.pod("a")
    team.reconcile()
    assert team.status["used"] == {"count/configmaps": "1", "configmaps": "1", "pods": "1"}
    team.api.change(RESOURCE_QUOTAS, "team/q", spec={"hard": {"configmaps": None, "pods": None}})
    team.reconcile()
    assert team.status["used"] == {"count/configmaps": "1"}
    assert "pods" not in team.status["hard"]


def test_scopes() -> None:
    team = Team({"pods": "3"}, scopes=["BestEffort"])
    team.pod("a")
    team.api.put(
        PODS, {"metadata": {"name": "b", "namespace": "team"}, "spec": {"containers": [{"name": "m"}]}}
    )
    team.reconcile()
    assert team.status["used"] == {"pods": "1"}


def test_counting_rests_in_proportion_to_its_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    team = Team()
    slow = team.controller._count

    async def count(namespace: str, quotas: list[Json]) -> Any:
        team.api.clock.jump(2.0)
        return await slow(namespace, quotas)

    monkeypatch.setattr(team.controller, "_count", count)
    team.reconcile()
    effects = asyncio.run(team.controller.reconcile("team"))
    assert effects.stages == ()
    assert effects.requeue_after == pytest.approx(2.0 * REST_FACTOR)


def test_who_is_looked_at() -> None:
    team = Team()
    by_informer = {watch.informer.resource: watch for watch in team.controller.watches()}
    team.pod("a")
    team.pod("b", "default")
    pods = by_informer[PODS]
    assert list(pods.keys(pods.informer.items["team/a"])) == ["team"]
    assert list(pods.keys(pods.informer.items["default/b"])) == []
    before = pods.informer.items["team/a"]
    team.api.change(PODS, "team/a", status={"podIP": "10.0.0.1"})
    assert pods.matters is not None
    assert not pods.matters(before, pods.informer.items["team/a"])
    team.api.change(PODS, "team/a", status={"phase": "Failed"})
    assert pods.matters(before, pods.informer.items["team/a"])
