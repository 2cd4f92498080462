"""Spot machines that end soon, slow nodes, and what becomes of their pods."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import msgspec
import pytest
from fakeapi import FakeApi
from prometheus_client import CollectorRegistry

from windlass.api import annotations as names
from windlass.api.resources import NODES, POD_GROUPS, PODS
from windlass.controllers.apply_effects import EffectExecutor
from windlass.controllers.effects import Effects
from windlass.controllers.metrics import ControllerMetrics
from windlass.controllers.nodenotices.controller import NodeNoticeController
from windlass.controllers.nodenotices.notices import NodeNotice, NoticeKind, decode_notice
from windlass.kits.timestamps import rfc3339
from windlass.model.records import displacement

Json = dict[str, Any]
UID = "0a1b"


class Site:
    """Nodes and pods, with the controller."""

    def __init__(self, *nodes: str) -> None:
        self.api = FakeApi()
        self.registry = CollectorRegistry()
        metrics = ControllerMetrics(self.registry)
        self.controller = NodeNoticeController(self.api, self.api, self.api.clock, metrics)  # type: ignore[arg-type]
        self.executor = EffectExecutor(self.api)  # type: ignore[arg-type]
        for name in nodes:
            self.api.put(NODES, {"metadata": {"name": name}, "spec": {}})

    def reconcile(self, key: str) -> Effects:
        async def once() -> Effects:
            effects = await self.controller.reconcile(key)
            assert not (await self.executor.perform(effects)).failures
            return effects

        return asyncio.run(once())

    def notice(self, node: str, **annotations: str) -> None:
        self.api.change(NODES, node, metadata={"annotations": annotations})

    def pod(self, name: str, node: str, priority: int = 0, owner: str = "", **spec: Any) -> None:
        metadata: Json = {
            "name": name,
            "uid": f"{name}-uid",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "annotations": {names.GROUP_NAME: f"podgroup-{name}-uid", names.DEVICES: "0"},
        }
        if owner:
            reference = {"apiVersion": "v1", "kind": owner, "name": "o", "uid": "o", "controller": True}
            metadata["ownerReferences"] = [reference]
        body = {"nodeName": node, "priority": priority, "containers": [{"name": "m"}], **spec}
        self.api.put(PODS, {"metadata": metadata, "spec": body, "status": {"phase": "Running"}})
        self.api.put(
            POD_GROUPS,
            {
                "metadata": {"name": f"podgroup-{name}-uid", "creationTimestamp": "2026-01-01T00:00:00Z"},
                "spec": {"minMember": 1},
            },
        )

    def object(self, name: str) -> Json:
        return self.api.object(PODS, f"default/{name}") or {}

    def leaving(self, name: str) -> bool:
        found = self.object(name)
        return not found or bool(found["metadata"].get("deletionTimestamp"))

    @property
    def counted(self) -> float:
        return self.registry.get_sample_value("windlass_spot_interruptions_total") or 0.0


def test_a_spot_notice_evicts_and_counts_and_the_pod_comes_again_with_its_age() -> None:
    """F44: signalled, requeued with its age kept, and counted."""
    site = Site("spot-0")
    site.pod("train", "spot-0")
    assert site.reconcile("pod:default/train").stages == ()
    site.notice("spot-0", **{names.SPOT_NOTICE: rfc3339(site.api.clock.now() + 20)})
    site.reconcile("node:spot-0")
    (taint,) = (site.api.object(NODES, "spot-0") or {})["spec"]["taints"]
    assert taint == {"key": "windlass.dev/spot-notice", "effect": "NoSchedule"}
    effects = site.reconcile("pod:default/train")
    assert effects.deletes[0].grace_seconds in (19, 20)
    assert site.leaving("train")
    assert {event.reason for event in effects.events} == {"SpotInterruption"}
    assert site.counted == 1
    site.api.remove(PODS, "default/train")
    site.reconcile("pod:default/train")
    again = site.object("train")
    assert "nodeName" not in again["spec"]
    notes = again["metadata"]["annotations"]
    assert notes[names.QUEUED_SINCE] == "2026-01-01T00:00:00Z"
    assert names.GROUP_NAME not in notes
    assert names.DEVICES not in notes
    record = displacement.evicted_for(notes)
    assert record is not None
    assert (record.action, record.reason) == ("SpotInterruption", "it was on node spot-0")
    assert site.counted == 1


def test_a_pod_of_a_job_is_left_to_its_controller_and_its_group_keeps_the_age() -> None:
    site = Site("spot-0")
    site.pod("rank", "spot-0", owner="Job")
    site.notice("spot-0", **{names.SPOT_NOTICE: "soon"})
    assert site.reconcile("pod:default/rank").deletes[0].grace_seconds is None
    group = (site.api.object(POD_GROUPS, "default/podgroup-rank-uid") or {})["metadata"]["annotations"]
    assert group[names.QUEUED_SINCE] == "2026-01-01T00:00:00Z"
    assert json.loads(group[names.EVICTED_FOR])["action"] == "SpotInterruption"
    site.api.remove(PODS, "default/rank")
    assert site.reconcile("pod:default/rank").stages == ()


@pytest.mark.parametrize(
    ("fields", "leaves"),
    [
        ({"priority": 10_000, "owner": "Job"}, True),
        ({"priority": 9_999, "owner": "Job"}, False),
        ({"priority": 10_000, "owner": "DaemonSet"}, False),
    ],
)
def test_a_slow_node_loses_its_pods_of_high_priority(fields: Json, leaves: bool) -> None:
    """F51: the high priority moves, the low one stays."""
    site = Site("slow")
    site.pod("p", "slow", **fields)
    site.notice("slow", **{names.DEGRADED: "speed fell to 40%"})
    effects = site.reconcile("pod:default/p")
    assert bool(effects.deletes) is leaves
    assert site.counted == 0
    if leaves:
        group = (site.api.object(POD_GROUPS, "default/podgroup-p-uid") or {})["metadata"]["annotations"]
        record = displacement.evicted_for(group)
        assert record is not None
        assert (record.action, record.reason) == ("NodeDegraded", "node slow: speed fell to 40%")


def test_a_pod_that_never_restarts_is_not_created_again() -> None:
    site = Site("spot-0")
    site.pod("once", "spot-0", restartPolicy="Never")
    site.notice("spot-0", **{names.SPOT_NOTICE: "soon"})
    site.reconcile("pod:default/once")
    site.api.remove(PODS, "default/once")
    assert site.reconcile("pod:default/once").stages == ()


def test_taints_go_with_the_notice() -> None:
    site = Site("n")
    site.api.change(NODES, "n", spec={"taints": [{"key": "own", "effect": "NoSchedule"}]})
    site.notice("n", **{names.DEGRADED: "slow"})
    site.reconcile("node:n")
    taints = (site.api.object(NODES, "n") or {})["spec"]["taints"]
    assert [taint["key"] for taint in taints] == ["own", "windlass.dev/degraded"]
    site.api.change(NODES, "n", metadata={"annotations": {names.DEGRADED: None}})
    site.reconcile("node:n")
    assert (site.api.object(NODES, "n") or {})["spec"]["taints"] == [{"key": "own", "effect": "NoSchedule"}]


def decoded(**parts: Any) -> NodeNotice:
    return decode_notice(msgspec.Raw(msgspec.json.encode({"metadata": {"name": "n"}, **parts})))


def test_notices_of_clouds_and_conditions() -> None:
    assert decoded().kind is None
    taint = {"key": "cloud.google.com/impending-node-termination", "effect": "NoSchedule"}
    assert decoded(spec={"taints": [taint]}).kind is NoticeKind.SPOT
    condition = {"type": "NodeDegraded", "status": "True", "message": "GPU clocks fell"}
    found = decoded(status={"conditions": [condition]})
    assert (found.kind, found.detail) == (NoticeKind.DEGRADED, "GPU clocks fell")
    assert decoded(status={"conditions": [{**condition, "status": "False"}]}).kind is None
