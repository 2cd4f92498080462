"""Nodes that fall silent, and what becomes of their pods."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from fakeapi import FakeApi

from windlass.api.resources import LEASE_NAMESPACE, LEASES, NODES, PODS
from windlass.api.views import TaintView
from windlass.api.views.podshape import TolerationWire
from windlass.controllers.apply_effects import EffectExecutor
from windlass.controllers.effects import Effects
from windlass.controllers.nodehealth import taints
from windlass.controllers.nodehealth.controller import NodeHealthController

Json = dict[str, Any]


class Site:
    """Some nodes, all of them heard of now."""

    def __init__(self, *names: str) -> None:
        self.api = FakeApi()
        self.controller = NodeHealthController(self.api, self.api, self.api.clock)  # type: ignore[arg-type]
        self.executor = EffectExecutor(self.api)  # type: ignore[arg-type]
        for name in names:
            ready = {"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-01-01T12:00:00Z"}
            self.api.put(NODES, {"metadata": {"name": name}, "status": {"conditions": [ready]}})
            self.reconcile(f"node:{name}")

    def reconcile(self, key: str) -> Effects:
        async def once() -> Effects:
            effects = await self.controller.reconcile(key)
            outcome = await self.executor.perform(effects)
            assert not outcome.failures
            return effects

        return asyncio.run(once())

    def look_at_nodes(self) -> None:
        for node in self.api.objects(NODES):
            self.reconcile(f"node:{node['metadata']['name']}")

    def beat(self, name: str) -> None:
        """The node's agent renews its lease."""
        stamp = f"2026-01-01T12:{int(self.api.clock.monotonic()) // 60:02}:00.{len(self.api.log):06}Z"
        key = f"{LEASE_NAMESPACE}/{name}"
        if self.api.object(LEASES, key) is None:
            self.api.put(LEASES, {"metadata": {"name": name, "namespace": LEASE_NAMESPACE}, "spec": {}})
        self.api.change(LEASES, key, spec={"renewTime": f"{stamp}{self.api.clock.monotonic()}"})
        self.reconcile(f"node:{name}")

    def report(self, name: str, status: str) -> None:
        ready = {"type": "Ready", "status": status, "lastHeartbeatTime": f"t{self.api.clock.now()}"}
        self.api.change(NODES, name, status={"conditions": [ready]})
        self.reconcile(f"node:{name}")

    def ready(self, name: str) -> str:
        node = self.api.object(NODES, name)
        assert node is not None
        return next(c["status"] for c in node["status"]["conditions"] if c["type"] == "Ready")

    def taints(self, name: str) -> list[str]:
        node = self.api.object(NODES, name)
        assert node is not None
        found = (node.get("spec") or {}).get("taints") or []
        return [f"{t['key'].removeprefix('node.kubernetes.io/')}:{t['effect']}" for t in found]

    def pod(self, name: str, node: str, *tolerations: Json) -> None:
        spec = {"nodeName": node, "tolerations": list(tolerations), "containers": [{"name": "m"}]}
        self.api.put(PODS, {"metadata": {"name": name}, "spec": spec, "status": {"phase": "Running"}})


def test_a_node_that_is_heard_of_is_left_alone() -> None:
    site = Site("a", "b")
    for _ in range(10):
        site.api.clock.jump(10)
        site.beat("a")
        site.report("b", "True")
    site.look_at_nodes()
    assert (site.ready("a"), site.ready("b")) == ("True", "True")
    assert site.api.log == []


def test_a_silent_node_is_unknown_and_unreachable() -> None:
    site = Site("a", "b")
    site.api.clock.jump(39)
    site.beat("b")
    assert site.reconcile("node:a").requeue_after == pytest.approx(1)
    site.api.clock.jump(1)
    site.reconcile("node:a")
    assert site.ready("a") == "Unknown"
    assert site.taints("a") == ["unreachable:NoSchedule", "unreachable:NoExecute"]
    node = site.api.object(NODES, "a")
    assert node is not None
    (condition,) = node["status"]["conditions"]
    assert condition["reason"] == "NodeStatusUnknown"
    assert site.reconcile("node:a").stages == ()
    assert site.taints("b") == []


def test_it_is_welcome_back() -> None:
    site = Site("a", "b")
    site.api.clock.jump(40)
    site.beat("b")
    site.reconcile("node:a")
    site.report("a", "True")
    assert (site.ready("a"), site.taints("a")) == ("True", [])


def test_a_clock_that_jumps_makes_no_node_silent() -> None:
    site = Site("a", "b")
    site.api.clock._now += 100_000
    site.look_at_nodes()
    assert site.ready("a") == "True"


def test_a_node_that_says_it_is_not_ready() -> None:
    site = Site("a", "b")
    site.report("a", "False")
    assert site.taints("a") == ["not-ready:NoSchedule", "not-ready:NoExecute"]
    site.report("a", "True")
    assert site.taints("a") == []


def test_taints_of_others_stay() -> None:
    site = Site("a", "b")
    site.api.change(NODES, "a", spec={"taints": [{"key": "gpu", "effect": "NoSchedule"}]})
    site.report("a", "False")
    assert site.taints("a") == ["gpu:NoSchedule", "not-ready:NoSchedule", "not-ready:NoExecute"]


def test_nothing_is_evicted_while_no_node_at_all_is_ready() -> None:
    site = Site("a", "b")
    site.api.clock.jump(40)
    site.look_at_nodes()
    site.look_at_nodes()
    assert site.taints("a") == site.taints("b") == ["unreachable:NoSchedule"]
    site.report("b", "True")
    site.look_at_nodes()
    assert site.taints("a") == ["unreachable:NoSchedule", "unreachable:NoExecute"]


def test_a_node_that_never_reported() -> None:
    site = Site("b")
    site.api.put(NODES, {"metadata": {"name": "new"}})
    site.reconcile("node:new")
    site.api.clock.jump(40)
    site.beat("b")
    site.reconcile("node:new")
    node = site.api.object(NODES, "new")
    assert node is not None
    assert node["status"]["conditions"][0]["reason"] == "NodeStatusNeverUpdated"
    assert "unreachable:NoSchedule" in site.taints("new")


def test_pods_are_evicted_after_their_tolerance() -> None:
    site = Site("a", "b")
    key = taints.UNREACHABLE
    site.pod("default", "a")
    site.pod("short", "a", {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 10})
    site.pod("patient", "a", {"operator": "Exists"})
    site.pod("safe", "b")
    site.api.clock.jump(40)
    site.beat("b")
    site.reconcile("node:a")
    names = ("default", "short", "patient", "safe")
    assert [site.reconcile(f"pod:default/{name}").requeue_after for name in names] == [300, 10, None, None]
    site.api.clock.jump(10)
    gone = [name for name in names if site.reconcile(f"pod:default/{name}").deletes]
    assert gone == ["short"]
    site.api.clock.jump(290)
    assert [name for name in names if site.reconcile(f"pod:default/{name}").deletes] == ["default"]


def test_pods_of_a_node_that_is_gone() -> None:
    site = Site("a", "b")
    site.pod("p", "a")
    site.api.remove(NODES, "a")
    effects = site.reconcile("pod:default/p")
    assert (effects.stages, effects.requeue_after) == ((), 40)
    site.api.clock.jump(40)
    (delete,) = site.reconcile("pod:default/p").deletes
    assert delete.grace_seconds == 0
    assert site.api.objects(PODS) == []


def test_a_node_that_comes_back_keeps_its_pods() -> None:
    site = Site("a")
    site.pod("p", "a")
    node = site.api.object(NODES, "a")
    assert node is not None
    site.api.remove(NODES, "a")
    site.reconcile("pod:default/p")
    site.api.clock.jump(39)
    site.api.put(NODES, node)
    assert site.reconcile("pod:default/p").stages == ()
    site.api.clock.jump(100)
    assert site.reconcile("pod:default/p").stages == ()


def test_a_node_that_goes_twice_is_waited_for_twice() -> None:
    site = Site("a", "b")
    site.pod("p", "a")
    node = site.api.object(NODES, "a")
    assert node is not None
    site.api.remove(NODES, "a")
    site.reconcile("pod:default/p")
    site.api.clock.jump(30)
    site.api.put(NODES, node)  # nobody has a reason to look at its pods now
    site.api.clock.jump(3600)
    site.api.remove(NODES, "a")
    effects = site.reconcile("pod:default/p")
    assert (effects.stages, effects.requeue_after) == ((), 40)


def test_nodes_that_no_pod_is_bound_to_any_more_are_forgotten() -> None:
    site = Site("b")
    for number in range(20):
        site.pod("p", f"gone-{number}")
        site.reconcile("pod:default/p")
        site.api.remove(PODS, "default/p")
    assert len(site.controller._missing) == 1


def test_who_is_looked_at() -> None:
    site = Site("a", "b")
    site.pod("p", "a")
    site.pod("q", "nowhere")
    watches = {id(watch.informer): watch for watch in site.controller.watches()}
    pods = watches[id(site.controller._pods)]
    assert list(pods.keys(pods.informer.items["default/p"])) == []
    assert list(pods.keys(pods.informer.items["default/q"])) == ["pod:default/q"]
    nodes = watches[id(site.controller._nodes)]
    assert list(nodes.keys(nodes.informer.items["a"])) == []
    gone = nodes.informer.items["a"]
    site.api.remove(NODES, "a")
    assert list(nodes.keys(gone)) == ["pod:default/p"]


@pytest.mark.parametrize(
    ("toleration", "tolerated"),
    [
        (TolerationWire(key="k", operator="Equal", value="v", effect="NoExecute"), None),
        (TolerationWire(key="k", operator="Equal", value="w", effect="NoExecute"), 0.0),
        (TolerationWire(key="k", operator="Exists", effect="NoSchedule"), 0.0),
        (TolerationWire(key="k", operator="Exists", toleration_seconds=5), 5.0),
        (TolerationWire(key="k", operator="Exists", toleration_seconds=-5), 0.0),
        (TolerationWire(operator="Exists"), None),
        (TolerationWire(key="k", value="v"), None),
    ],
)
def test_tolerations(toleration: TolerationWire, tolerated: float | None) -> None:
    taint = TaintView("k", "v", "NoExecute", "2026-01-01T12:00:00Z")
    due = taints.eviction_due([toleration], [taint], 0.0)
    assert due == (None if tolerated is None else 1767268800.0 + tolerated)


def test_the_shortest_of_several_tolerations_decides() -> None:
    taint = TaintView("k", "", "NoExecute", None)
    both = [
        TolerationWire(key="k", operator="Exists", toleration_seconds=90),
        TolerationWire(operator="Exists", toleration_seconds=20),
    ]
    assert taints.eviction_due(both, [taint], 100.0) == 120.0
