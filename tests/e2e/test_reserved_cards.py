"""Cards that a device plug-in hands out, shared: live, with kubelets that admit and refuse as real ones do.

The chart's own objects say who may make the pods that hold cards, that nobody drains them away, and what containers are
told. What the scheduler asks for beyond its ordinary rights is read from the server's audit log.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import audited_rights
import pytest
from clusters import Cluster
from device_plugin_kubelet import LiveKubelet
from realkube import RealKube
from scheduling_over_http import Scene, eventually

from windlass.api.errors import StatusError
from windlass.api.resources import NAMESPACES, POD_GROUPS, PODS
from windlass.model.devices.reserved_devices import NAMESPACE
from windlass.scheduler.options import ReservationPodOptions

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools" / "chart"))
import render

Json = dict[str, Any]
pytestmark = pytest.mark.timeout(400)
AGENT = "windlass-holding-cards"
OPTIONS = ReservationPodOptions("windlass:test", runtime_class="")
VISIBLE = "windlass.dev/visible-devices"
PATH = f"metadata.annotations['{VISIBLE}']"
ENV = [{"name": "NVIDIA_VISIBLE_DEVICES", "valueFrom": {"fieldRef": {"fieldPath": PATH}}}]


class World(Scene):
    """Two nodes with two cards each, and their kubelets."""

    kubelet: LiveKubelet
    playing: asyncio.Task[None]

    async def set_up(self) -> None:
        with contextlib.suppress(StatusError):
            await self.client.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})
        await self.make_queue()
        names = [await self.node(f"n{i}", 2) for i in range(2)]
        self.kubelet = LiveKubelet(
            self.connect("kubelet"), {name: [f"GPU-{name}-1", f"GPU-{name}-0"] for name in names}
        )
        self.kubelet.each = self.check_cards
        self.playing = asyncio.create_task(self.kubelet.run())
        self.problems: list[str] = []

    async def begin(self) -> None:
        await self.start(agent=AGENT, reservation_pods=OPTIONS)

    async def close(self) -> None:
        for obj in (await self.client.list(PODS, self.namespace)).items:
            with contextlib.suppress(StatusError):
                await self.client.delete(PODS, obj["metadata"]["name"], self.namespace, grace_seconds=0)
        try:
            if self._running:
                await eventually(self.nothing_held, "the cards are let go")
        finally:
            self.playing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self.playing
            await self.kubelet.close()
            await super().close()

    async def sharer(self, name: str, part: float, group: str = "", env: bool = True) -> None:
        notes = {"scheduling.volcano.sh/queue-name": self.queue, "gpu-fraction": str(part)}
        if group:
            notes["scheduling.k8s.io/group-name"] = group
        container: Json = {"name": "main", "image": "train"}
        if env:
            container["env"] = ENV
        spec = {
            "schedulerName": self.scheduler,
            "restartPolicy": "Never",
            "nodeSelector": {"scene": self.namespace},
            "terminationGracePeriodSeconds": 1,
            "containers": [container],
        }
        meta = {"name": name, "namespace": self.namespace, "annotations": notes}
        await self.client.create(PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})

    async def gang_of_sharers(self, name: str, members: int, part: float) -> None:
        spec = {"minMember": members, "queue": self.queue}
        meta = {"name": name, "namespace": self.namespace}
        group = {"apiVersion": POD_GROUPS.api_version, "kind": "PodGroup", "metadata": meta, "spec": spec}
        await self.client.create(POD_GROUPS, group)
        for i in range(members):
            await self.sharer(f"{name}-{i}", part, group=name)

    async def pods(self, namespace: str = "") -> dict[str, Json]:
        found = (await self.client.list(PODS, namespace or self.namespace)).items
        return {obj["metadata"]["name"]: obj for obj in found}

    async def holding(self) -> list[str]:
        """The cards that are held on the nodes of this world."""
        found = (await self.pods(NAMESPACE)).values()
        return sorted(o["metadata"]["name"] for o in found if o["spec"]["nodeName"] in self.kubelet.nodes)

    async def nothing_held(self) -> bool:
        return not await self.holding()

    async def running(self) -> set[str]:
        return {name for name, obj in (await self.pods()).items() if obj["status"].get("phase") == "Running"}

    async def told(self) -> dict[str, str]:
        notes = {name: obj["metadata"].get("annotations") or {} for name, obj in (await self.pods()).items()}
        return {name: note[VISIBLE] for name, note in notes.items() if VISIBLE in note}

    def check_cards(self, pods: list[Json]) -> None:
        """No card is had whole by somebody and seen by anybody else; none is shared beyond what it has."""
        whole: dict[str, str] = {}
        parts: dict[str, float] = {}
        for obj in pods:
            name, status = obj["metadata"]["name"], obj.get("status") or {}
            if obj["metadata"]["namespace"] == NAMESPACE or status.get("phase") in ("Succeeded", "Failed"):
                continue
            part = (obj["metadata"].get("annotations") or {}).get("gpu-fraction")
            for card in self.kubelet.visible(obj):
                if part is not None:
                    parts[card] = parts.get(card, 0.0) + float(part)
                elif whole.setdefault(card, name) != name:
                    self.problems.append(f"{card}: {name} and {whole[card]}")
        self.problems += [f"{card}: whole and shared" for card in set(whole) & set(parts)]
        self.problems += [f"{card}: {part}" for card, part in parts.items() if part > 1.0 + 1e-9]


@pytest.fixture
async def world(cluster: Cluster) -> AsyncIterator[World]:
    made = World(cluster, cluster.new_namespace("cards"))
    await made.set_up()
    yield made
    await made.close()


async def test_a_gang_single_pods_and_whole_cards_side_by_side(world: World) -> None:
    """Also through a scheduler that dies while a gang waits for its cards."""
    await world.begin()
    await world.sharer("a", 0.5)
    await world.sharer("b", 0.5)

    async def both() -> bool:
        return await world.running() == {"a", "b"}

    await eventually(both, "two on one card")
    first = await world.told()
    assert len(set(first.values())) == 1
    world.kubelet.mute |= set(world.kubelet.nodes)
    await world.gang_of_sharers("g", 3, 0.7)

    async def asked() -> bool:
        return len(await world.holding()) == 4

    await eventually(asked, "three more cards are being held")
    assert await world.running() == {"a", "b"}
    await world.kill()
    await world.begin()
    world.kubelet.mute.clear()

    async def whole() -> bool:
        return await world.running() == {"a", "b", "g-0", "g-1", "g-2"}

    await eventually(whole, "the gang")
    told = await world.told()
    assert len(set(told.values())) == 4, told
    assert len(await world.holding()) == 4
    await world.pod("whole", gpus=1)
    for name in ("a", "b"):
        await world.client.delete(PODS, name, world.namespace)

    async def served() -> bool:
        return "whole" in await world.running()

    await eventually(served, "the card is let go, and had whole")
    assert len(await world.holding()) == 3
    assert not world.kubelet.refused
    assert not world.problems


async def test_a_kubelet_that_has_no_card_left_refuses_and_another_serves(world: World) -> None:
    """Somebody whom no API server knows has the cards of the first node."""
    first, _ = world.kubelet.nodes
    world.kubelet.nodes[first] = []
    await world.begin()
    for i in range(2):
        await world.sharer(f"s{i}", 0.9)

    async def all_run() -> bool:
        return await world.running() == {"s0", "s1"}

    await eventually(all_run, "both on the node whose cards are there")
    assert {obj["spec"]["nodeName"] for obj in (await world.pods()).values()} == set(world.kubelet.nodes) - {
        first
    }
    assert not world.problems


@pytest.mark.real
@pytest.mark.skipif(render.helm() is None, reason="no helm: build it with tools/kubernetes/build.sh")
async def test_as_the_chart_sets_it_up(real_kube: RealKube) -> None:
    """Containers are told without a word in their template, nobody drains a card away, and no further right is used
    than the chart gives."""
    cluster = Cluster.of_real(real_kube)
    world = World(cluster, cluster.new_namespace("chart"))
    names = f"scheduler.names={{{world.scheduler}}}"
    rendered = render.template("--set", "gpuSharing.enabled=true", "--set", names)
    chart = [one for one in rendered if _of_sharing(one)]
    kinds = {one["kind"] for one in chart}
    assert {"Namespace", "PodDisruptionBudget", "Role", "MutatingAdmissionPolicy"} <= kinds
    await world.set_up()
    try:
        for obj in chart:
            if obj["kind"] != "Namespace":
                cluster.post(_path(obj), obj).ok(201)

        async def told() -> bool:
            """A policy is in force a moment after it is made."""
            await world.sharer("probe", 0.5, env=False)
            found = (await world.pods())["probe"]["spec"]["containers"][0].get("env")
            await world.client.delete(PODS, "probe", world.namespace, grace_seconds=0)
            return found is not None

        await eventually(told, "the policy")
        await world.begin()
        await world.sharer("a", 0.5, env=False)

        async def runs() -> bool:
            return await world.running() == {"a"}

        await eventually(runs, "the sharer")
        env = (await world.pods())["a"]["spec"]["containers"][0]["env"]
        assert [(one["name"], one["valueFrom"]["fieldRef"]["fieldPath"]) for one in env] == [
            ("NVIDIA_VISIBLE_DEVICES", PATH)
        ]
        (held,) = await world.holding()
        with pytest.raises(StatusError) as refused:
            await world.client.evict(NAMESPACE, held)
        assert refused.value.code == 429, "what holds a card is not drained away"
    finally:
        await world.close()
        for obj in chart:
            if obj["kind"] != "Namespace":
                cluster.delete(f"{_path(obj)}/{obj['metadata']['name']}")
        cluster.close()
    (rule,) = (one for one in chart if one["kind"] == "Role")
    assert rule["rules"] == [{"apiGroups": [""], "resources": ["pods"], "verbs": ["create"]}]
    more = audited_rights.denied(list(audited_rights.asked(real_kube.audit_log, {AGENT: "scheduler"})))
    assert {(one.right, one.namespace) for one in more} == {(("scheduler", "", "pods", "create"), NAMESPACE)}


def _of_sharing(obj: Json) -> bool:
    named = obj["metadata"]["name"] in ("windlass-reservations", NAMESPACE)
    return named or obj["metadata"].get("namespace") == NAMESPACE


def _path(obj: Json) -> str:
    plural = {
        "PodDisruptionBudget": "poddisruptionbudgets",
        "NetworkPolicy": "networkpolicies",
        "Role": "roles",
        "RoleBinding": "rolebindings",
        "MutatingAdmissionPolicy": "mutatingadmissionpolicies",
        "MutatingAdmissionPolicyBinding": "mutatingadmissionpolicybindings",
    }[obj["kind"]]
    space = f"/namespaces/{NAMESPACE}" if "namespace" in obj["metadata"] else ""
    return f"/apis/{obj['apiVersion']}{space}/{plural}"
