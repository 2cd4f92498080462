"""The status of PodDisruptionBudgets."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from fractions import Fraction
from math import ceil
from typing import Any

import pytest
from fakeapi import FakeApi
from hypothesis import given, settings
from hypothesis import strategies as st

from windlass.api.resources import DEPLOYMENTS, POD_DISRUPTION_BUDGETS, PODS, REPLICA_SETS
from windlass.controllers.apply_effects import EffectExecutor
from windlass.controllers.disruption.controller import DisruptionController
from windlass.kits.timestamps import rfc3339

Json = dict[str, Any]
SELECTOR = {"matchLabels": {"app": "x"}}


class Scene:
    def __init__(self, **spec: Any) -> None:
        self.api = FakeApi()
        self.controller = DisruptionController(self.api, self.api, self.api.clock)  # type: ignore[arg-type]
        self.executor = EffectExecutor(self.api)  # type: ignore[arg-type]
        self.again: float | None = None
        self.events: list[tuple[str, str]] = []
        self.budget(**{"selector": SELECTOR, **spec})

    def budget(self, name: str = "b", status: Json | None = None, **spec: Any) -> None:
        metadata = {"name": name, "namespace": "ns", "generation": 3}
        self.api.put(POD_DISRUPTION_BUDGETS, {"metadata": metadata, "spec": spec, "status": status or {}})

    def pod(
        self,
        name: str,
        *,
        ready: bool = True,
        app: str = "x",
        owner: Json | None = None,
        namespace: str = "ns",
        going: bool = False,
    ) -> None:
        owners = [{**owner, "name": "o", "uid": "u", "controller": True}] if owner else []
        metadata = {"name": name, "namespace": namespace, "labels": {"app": app}, "ownerReferences": owners}
        if going:
            metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        conditions = [{"type": "Ready", "status": str(ready)}]
        self.api.put(
            PODS, {"metadata": metadata, "spec": {}, "status": {"phase": "Running", "conditions": conditions}}
        )

    def reconcile(self, name: str = "b") -> int:
        async def once() -> int:
            effects = await self.controller.reconcile(f"ns/{name}")
            self.again = effects.requeue_after
            self.events = [(event.reason, event.message) for event in effects.events]
            outcome = await self.executor.perform(effects)
            assert outcome.failures == ()
            return len(list(effects.actions()))

        return asyncio.run(once())

    @property
    def status(self) -> Json:
        (budget,) = self.api.objects(POD_DISRUPTION_BUDGETS)
        return budget["status"]

    @property
    def figures(self) -> tuple[int, ...]:
        names = ("expectedPods", "currentHealthy", "desiredHealthy", "disruptionsAllowed")
        return tuple(self.status[name] for name in names)

    @property
    def condition(self) -> Json:
        (condition,) = self.status["conditions"]
        return condition


def test_a_number_of_pods_must_stay() -> None:
    scene = Scene(minAvailable=2)
    for name in "abc":
        scene.pod(name)
    scene.pod("of another", app="y")
    scene.pod("elsewhere", namespace="other")
    scene.reconcile()
    assert scene.figures == (3, 3, 2, 1)
    assert scene.status["observedGeneration"] == 3
    assert scene.condition == {
        "type": "DisruptionAllowed",
        "status": "True",
        "reason": "SufficientPods",
        "message": "",
        "observedGeneration": 3,
        "lastTransitionTime": rfc3339(scene.api.clock.now()),
    }
    assert scene.reconcile() == 0  # nothing is written twice
    asyncio.run(scene.api.clock.advance(60.0))
    scene.pod("a", ready=False)
    scene.reconcile()
    assert scene.figures == (3, 2, 2, 0)
    assert (scene.condition["status"], scene.condition["reason"]) == ("False", "InsufficientPods")
    assert scene.condition["lastTransitionTime"] == rfc3339(scene.api.clock.now())


def test_who_is_going_is_not_healthy() -> None:
    scene = Scene(minAvailable=1)
    scene.pod("a")
    scene.pod("b", going=True)
    scene.reconcile()
    assert scene.figures == (2, 1, 1, 0)


def test_a_granted_eviction_counts_for_two_minutes() -> None:
    scene = Scene(minAvailable=1)
    for name in "abc":
        scene.pod(name)
    now = scene.api.clock.now()
    evictions = {"a": rfc3339(now - 100), "b": rfc3339(now - 121), "gone": rfc3339(now)}
    scene.budget(status={"disruptedPods": evictions}, selector=SELECTOR, minAvailable=1)
    scene.reconcile()
    assert scene.status["disruptedPods"] == {"a": evictions["a"]}
    assert scene.figures == (3, 2, 1, 1)
    assert scene.events == [("NotDeleted", "Pod was expected by PDB ns/b to be deleted but it wasn't")]
    assert scene.again is not None
    assert 20 < scene.again < 22
    asyncio.run(scene.api.clock.advance(scene.again))
    scene.reconcile()
    assert "disruptedPods" not in scene.status
    assert scene.figures == (3, 3, 1, 2)


@pytest.mark.parametrize("spec", [{"minAvailable": "50%"}, {"maxUnavailable": 1}, {"maxUnavailable": "50%"}])
@pytest.mark.parametrize(
    ("owner", "message"),
    [
        (
            {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job"},
            "jobs.batch.volcano.sh does not implement the scale subresource",
        ),
        (
            {"apiVersion": "example.com/v1", "kind": "Pile"},
            'no matches for kind "Pile" in version "example.com/v1"',
        ),
        (
            {"apiVersion": "apps/v1", "kind": "ReplicaSet"},
            'found no controllers for pod "owned"',
        ),
    ],
)
def test_what_controllers_want_is_not_known(spec: Json, owner: Json, message: str) -> None:
    """As in Kubernetes, where a controller has no scale: nothing is allowed until it is known."""
    scene = Scene(**spec)
    scene.pod("alone")
    scene.reconcile()
    assert scene.figures[0] == scene.figures[3] == 0
    assert [reason for reason, _ in scene.events] == ["UnmanagedPods"]
    before = scene.status
    scene.pod("owned", owner=owner)
    scene.reconcile()
    assert scene.status == {**before, "conditions": scene.status["conditions"]}
    assert (scene.condition["status"], scene.condition["reason"]) == ("False", "SyncFailed")
    assert scene.condition["message"] == message
    assert [reason for reason, _ in scene.events] == ["CalculateExpectedPodCountFailed"]
    assert scene.reconcile() == 0
    scene.budget(selector=SELECTOR, minAvailable=1)
    scene.reconcile()
    assert scene.figures == (2, 2, 1, 1)


def test_percentage_refers_to_the_replicas_of_the_deployment() -> None:
    scene = Scene(maxUnavailable="25%")
    owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "d", "controller": True}
    metadata = {"name": "web", "namespace": "ns", "uid": "d"}
    scene.api.put(DEPLOYMENTS, {"metadata": metadata, "spec": {"replicas": 8}})
    metadata = {"name": "o", "namespace": "ns", "uid": "u", "ownerReferences": [owner]}
    scene.api.put(REPLICA_SETS, {"metadata": metadata, "spec": {"replicas": 3}})
    for name in "abcdefg":
        scene.pod(name, owner={"apiVersion": "apps/v1", "kind": "ReplicaSet"})
    scene.reconcile()
    assert scene.figures == (8, 7, 6, 1)
    scene.api.change(REPLICA_SETS, "ns/o", metadata={"ownerReferences": None})
    scene.reconcile()
    assert scene.figures == (3, 7, 2, 5)


def test_no_pods_and_no_word() -> None:
    scene = Scene(minAvailable=0)
    scene.reconcile()
    assert scene.figures == (0, 0, 0, 0)
    assert scene.events == [("NoPods", "No matching pods found")]
    scene = Scene()
    scene.pod("a")
    scene.reconcile()
    assert scene.figures == (0, 1, 0, 0)


@pytest.mark.parametrize(("selector", "expected"), [(None, 0), ({}, 2), (SELECTOR, 1)])
def test_whom_a_selector_selects(selector: Json | None, expected: int) -> None:
    scene = Scene(minAvailable=0)
    scene.budget(minAvailable=0, selector=selector)
    scene.pod("a")
    scene.pod("b", app="y")
    scene.reconcile()
    assert scene.figures[0] == expected


def test_a_pods_change_concerns_its_budgets_alone() -> None:
    scene = Scene(minAvailable=1)
    scene.budget("every", selector={})
    scene.budget("other", selector={"matchLabels": {"app": "y"}})
    scene.budget("nobody", selector=None)
    budgets, pods = scene.controller.watches()
    scene.pod("a")
    (pod,) = pods.informer.items.values()
    assert sorted(pods.keys(pod)) == ["ns/b", "ns/every"]
    assert pods.matters is not None
    assert not pods.matters(pod, pod)
    scene.pod("a", ready=False)
    (other,) = pods.informer.items.values()
    assert pods.matters(pod, other)
    assert list(budgets.keys(budgets.informer.items["ns/b"])) == ["ns/b"]


def test_a_budget_that_is_gone_or_going_is_left_alone() -> None:
    scene = Scene(minAvailable=1)
    assert scene.reconcile("none") == 0
    metadata = {
        "name": "b",
        "namespace": "ns",
        "deletionTimestamp": "2026-01-01T00:00:00Z",
        "finalizers": ["x"],
    }
    scene.api.put(POD_DISRUPTION_BUDGETS, {"metadata": metadata, "spec": {"selector": SELECTOR}})
    assert scene.reconcile() == 0


@settings(max_examples=60)
@given(st.lists(st.tuples(st.booleans(), st.booleans(), st.booleans()), max_size=8), st.integers(0, 9))
def test_figures_are_those_of_the_rules(pods: Sequence[tuple[bool, bool, bool]], min_available: int) -> None:
    scene = Scene(minAvailable=min_available)
    evictions = {}
    for at, (ready, going, evicted) in enumerate(pods):
        scene.pod(f"p{at}", ready=ready, going=going)
        if evicted:
            evictions[f"p{at}"] = rfc3339(scene.api.clock.now())
    scene.budget(status={"disruptedPods": evictions}, selector=SELECTOR, minAvailable=min_available)
    scene.reconcile()
    healthy = sum(ready and not going and not evicted for ready, going, evicted in pods)
    allowed = max(0, healthy - min_available) if pods else 0
    assert scene.figures == (len(pods), healthy, min_available, allowed)


@given(st.integers(0, 100), st.integers(0, 200))
def test_per_cent_round_up(percent: int, total: int) -> None:
    from windlass.controllers.disruption.reconcile import _scaled

    assert _scaled(f"{percent}%", total) == ceil(Fraction(percent * total, 100))
    assert _scaled(percent, total) == percent
