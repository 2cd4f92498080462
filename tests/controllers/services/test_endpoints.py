"""EndpointSlices and Endpoints of Services, step by step and over crashes."""

from __future__ import annotations

import asyncio
import contextlib
import copy
from typing import Any

from fakeapi import Crash, FakeApi
from hypothesis import given, settings
from hypothesis import strategies as st

from windlass.api.resources import ENDPOINT_SLICES, ENDPOINTS, PODS, SERVICES
from windlass.controllers.apply_effects import EffectExecutor
from windlass.controllers.effects import Effects
from windlass.controllers.services.controller import EndpointsController
from windlass.kits.clock import FakeClock

Json = dict[str, Any]
KEY = "default/web"


class World:
    """One Service, its controller, and pods that the test plays."""

    def __init__(self) -> None:
        self.api = FakeApi(FakeClock())
        self.restart()

    def restart(self) -> None:
        self.api.crash_after = None
        self.controller = EndpointsController(self.api)  # type: ignore[arg-type]
        self.executor = EffectExecutor(self.api)  # type: ignore[arg-type]

    def service(self, **spec: Any) -> None:
        fields = {"selector": {"app": "web"}, "ports": [{"name": "http", "port": 80, "targetPort": 8080}]}
        spec = {**fields, "clusterIP": "10.96.0.9", **spec}
        if self.api.object(SERVICES, KEY) is None:
            self.api.put(SERVICES, {"metadata": {"name": "web", "labels": {"team": "a"}}, "spec": spec})
        else:
            self.api.change(SERVICES, KEY, spec=spec)

    def pod(self, number: int, *, ready: bool = True, phase: str = "Running", **more: Any) -> None:
        conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
        status = {"phase": phase, "podIP": f"100.64.0.{number}", "conditions": conditions}
        ports = [{"name": "named", "containerPort": 9000 + number % 2}]
        body = {
            "metadata": {"name": f"p{number}", "labels": {"app": "web"}, **more.pop("metadata", {})},
            "spec": {"nodeName": "box", "containers": [{"name": "c", "ports": ports}], **more},
            "status": status,
        }
        key = f"default/p{number}"
        if self.api.object(PODS, key) is not None:
            self.api.change(PODS, key, **body)
        else:
            self.api.put(PODS, body)

    def reconcile(self) -> Effects:
        async def once() -> Effects:
            effects = await self.controller.reconcile(KEY)
            try:
                outcome = await self.executor.perform(effects)
            except* Crash:  # several writes of one stage run concurrently
                raise Crash from None
            assert not outcome.failures
            return effects

        return asyncio.run(once())

    def settle(self) -> None:
        for _ in range(5):
            if not self.reconcile().stages:
                return
        raise AssertionError("does not settle")

    @property
    def slices(self) -> list[Json]:
        return self.api.objects(ENDPOINT_SLICES)

    @property
    def endpoints(self) -> Json | None:
        return self.api.object(ENDPOINTS, KEY)


def addresses(found: Json) -> dict[str, Json]:
    return {entry["addresses"][0]: entry["conditions"] for entry in found["endpoints"]}


def test_slices_and_endpoints_follow_the_pods() -> None:
    world = World()
    world.service()
    world.settle()
    (empty,) = world.slices
    assert (empty["endpoints"], empty["ports"]) == ([], [])
    world.pod(1, hostname="h1", subdomain="web")
    world.pod(2, ready=False)
    world.pod(3, phase="Succeeded")
    world.pod(4, metadata={"labels": {"app": "other"}})
    world.pod(5, metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})
    world.settle()
    (found,) = world.slices
    assert addresses(found) == {
        "100.64.0.1": {"ready": True, "serving": True, "terminating": False},
        "100.64.0.2": {"ready": False, "serving": False, "terminating": False},
        "100.64.0.5": {"ready": False, "serving": True, "terminating": True},
    }
    assert found["ports"] == [{"name": "http", "port": 8080, "protocol": "TCP"}]
    assert found["endpoints"][0]["hostname"] == "h1"
    assert found["endpoints"][0]["targetRef"]["name"] == "p1"
    labels = found["metadata"]["labels"]
    assert labels["kubernetes.io/service-name"] == "web"
    assert labels["endpointslice.kubernetes.io/managed-by"] == "endpointslice-controller.k8s.io"
    assert labels["team"] == "a"
    assert found["metadata"]["ownerReferences"][0]["kind"] == "Service"
    assert world.endpoints is not None
    (subset,) = world.endpoints["subsets"]
    assert [one["ip"] for one in subset["addresses"]] == ["100.64.0.1"]
    assert [one["ip"] for one in subset["notReadyAddresses"]] == ["100.64.0.2"]
    assert subset["ports"] == [{"name": "http", "port": 8080, "protocol": "TCP"}]


def test_named_ports_differ_from_pod_to_pod() -> None:
    world = World()
    world.service(ports=[{"port": 80, "targetPort": "named"}, {"name": "x", "port": 1, "targetPort": "no"}])
    for number in (1, 2, 3):
        world.pod(number)
    world.settle()
    found = {one["ports"][0]["port"]: sorted(addresses(one)) for one in world.slices}
    assert found == {9001: ["100.64.0.1", "100.64.0.3"], 9000: ["100.64.0.2"]}


def test_slices_hold_a_hundred_endpoints_and_unready_ones_may_be_published() -> None:
    world = World()
    world.service(clusterIP="None", publishNotReadyAddresses=True, ports=None)
    for number in range(1, 152):
        world.pod(number, ready=False)
    world.settle()
    assert sorted(len(one["endpoints"]) for one in world.slices) == [51, 100]
    assert all(entry["conditions"]["ready"] for one in world.slices for entry in one["endpoints"])
    assert all("service.kubernetes.io/headless" in one["metadata"]["labels"] for one in world.slices)


def test_endpoints_of_a_user_are_mirrored_and_slices_of_a_user_stay() -> None:
    world = World()
    world.service(selector=None)
    own = {
        "metadata": {"name": "own", "labels": {"kubernetes.io/service-name": "web"}},
        "addressType": "IPv4",
        "endpoints": [{"addresses": ["192.0.2.1"]}],
    }
    world.api.put(ENDPOINT_SLICES, own)
    world.settle()
    assert len(world.slices) == 1
    subset = {"addresses": [{"ip": "192.0.2.2"}], "ports": [{"port": 5432}]}
    world.api.put(ENDPOINTS, {"metadata": {"name": "web"}, "subsets": [subset]})
    world.settle()
    mirrored = next(one for one in world.slices if one["metadata"]["name"] != "own")
    assert list(addresses(mirrored)) == ["192.0.2.2"]
    assert mirrored["metadata"]["ownerReferences"][0]["kind"] == "Endpoints"
    world.api.remove(ENDPOINTS, KEY)
    world.settle()
    assert [one["metadata"]["name"] for one in world.slices] == ["own"]


def test_a_deleted_service_leaves_no_endpoints_and_external_names_have_none() -> None:
    world = World()
    world.service()
    world.pod(1)
    world.settle()
    world.service(type="ExternalName", externalName="a.example")
    world.settle()
    assert world.slices == []
    world.api.remove(SERVICES, KEY)
    world.settle()
    assert world.endpoints is None


def test_load_balancers_say_that_there_is_none() -> None:
    world = World()
    world.service(type="LoadBalancer", ports=[{"port": 80, "nodePort": 30080}])
    (event,) = world.reconcile().events
    assert (event.reason, event.lasting) == ("SyncLoadBalancerFailed", True)
    assert "127.0.0.1:30080" in event.message


EVENTS = st.one_of(
    st.tuples(st.just("pod"), st.integers(1, 5), st.booleans()),
    st.tuples(st.just("gone"), st.integers(1, 5), st.booleans()),
    st.tuples(st.just("port"), st.sampled_from([8080, "named"]), st.booleans()),
)


@settings(max_examples=60, deadline=None)
@given(history=st.lists(st.tuples(EVENTS, st.lists(st.integers(0, 3), max_size=3)), max_size=8))
def test_crashes_change_nothing(history: Any) -> None:
    """A controller that is killed between any two writes ends in the same state."""
    calm, stormy = World(), World()
    for world in (calm, stormy):
        world.service()
    for (word, what, flag), crashes in history:
        for world in (calm, stormy):
            if word == "pod":
                world.pod(what, ready=flag)
            elif word == "gone":
                world.api.remove(PODS, f"default/p{what}")
            else:
                world.service(ports=[{"name": "http", "port": 80, "targetPort": what}])
        calm.settle()
        for writes in crashes:
            stormy.api.crash_after = writes
            with contextlib.suppress(Crash):
                stormy.reconcile()
            stormy.restart()
        stormy.settle()
        assert picture(stormy) == picture(calm)


def picture(world: World) -> Any:
    def plain(obj: Json) -> Json:
        kept = copy.deepcopy(obj)
        for field in ("uid", "resourceVersion", "creationTimestamp"):
            kept["metadata"].pop(field, None)
        text = kept.get("endpoints") or kept.get("subsets")
        for entry in text or ():
            (entry.get("targetRef") or {}).pop("uid", None)
            for part in ("addresses", "notReadyAddresses"):
                for address in entry.get(part) or ():
                    if isinstance(address, dict):
                        address["targetRef"].pop("uid", None)
        return kept

    found = world.slices + ([world.endpoints] if world.endpoints else [])
    return sorted((plain(one) for one in found), key=str)
