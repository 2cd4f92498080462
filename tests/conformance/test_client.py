"""The client on both servers: verbs, lists in pages, informers through faults, events."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from clusters import Cluster, config_map, pod

from windlass.api.errors import StatusError
from windlass.api.resources import CONFIG_MAPS, EVENTS, NODES, POD_GROUPS, PODS
from windlass.client.blocking import BlockingClient
from windlass.client.client import Client
from windlass.client.http import HttpTransport
from windlass.client.informers import Informer, SharedInformers
from windlass.client.recorder import EventRecorder, ObjectRef
from windlass.kits.clock import SystemClock

CLOCK = SystemClock()


@pytest.fixture
async def client(api: Cluster) -> AsyncIterator[Client]:
    async with Client(
        HttpTransport(api.connection), user_agent="test", clock=CLOCK, rng=random.Random(1)
    ) as made:
        yield made


async def until(check: Callable[[], Any], seconds: float = 90) -> None:
    async with asyncio.timeout(seconds):
        while not check():
            await asyncio.sleep(0.02)


class TestVerbs:
    async def test_the_life_of_an_object(self, client: Client, ns: str) -> None:
        made = await client.create(CONFIG_MAPS, config_map("a", {"k": "1"}), ns)
        made["data"]["k"] = "2"
        changed = await client.update(CONFIG_MAPS, made)
        with pytest.raises(StatusError) as caught:
            await client.update(CONFIG_MAPS, made)
        assert (caught.value.code, caught.value.reason) == (409, "Conflict")
        patched = await client.patch(CONFIG_MAPS, "a", {"data": {"l": "3"}}, ns)
        assert patched["data"] == {"k": "2", "l": "3"}
        assert changed["metadata"]["uid"] == patched["metadata"]["uid"]
        await client.delete(CONFIG_MAPS, "a", ns, uid=patched["metadata"]["uid"])
        assert await client.find(CONFIG_MAPS, "a", ns) is None

    async def test_bind_and_evict(self, client: Client, ns: str) -> None:
        await client.create(NODES, {"metadata": {"name": f"n-{ns}"}})
        made = await client.create(PODS, pod("p"), ns)
        uid = made["metadata"]["uid"]
        await client.bind(ns, "p", f"n-{ns}", uid=uid, annotations={"windlass.dev/devices": "0"})
        bound = await client.get(PODS, "p", ns)
        assert bound["spec"]["nodeName"] == f"n-{ns}"
        assert bound["metadata"]["annotations"] == {"windlass.dev/devices": "0"}
        await client.evict(ns, "p", uid=uid)
        assert (await client.get(PODS, "p", ns))["metadata"]["deletionTimestamp"]
        await client.delete(PODS, "p", ns, grace_seconds=0)

    async def test_warnings(self, client: Client, ns: str) -> None:
        heard: list[str] = []
        client.on_warning = heard.append
        body = pod("p", spec={"nonsense": 1})
        await client.create(PODS, body, ns)
        assert heard == ['unknown field "spec.nonsense"']
        with pytest.raises(StatusError, match="strict decoding error"):
            await client.create(PODS, body, ns, field_validation="Strict")

    async def test_many_at_once(self, client: Client, ns: str) -> None:
        bodies = [config_map(f"c-{number:03}", {"k": "x" * 500}) for number in range(120)]
        await asyncio.gather(*(client.create(CONFIG_MAPS, body, ns) for body in bodies))
        listed = await client.list(CONFIG_MAPS, ns, labels="")
        names = [item["metadata"]["name"] for item in listed.items if item["metadata"]["name"] > "c-"]
        assert len([name for name in names if name.startswith("c-")]) == 120

    async def test_pages(self, client: Client, ns: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("windlass.client.client.PAGE", 4)
        await asyncio.gather(*(client.create(PODS, pod(f"p{number}"), ns) for number in range(10)))
        listed = await client.list(PODS, ns)
        assert [item["metadata"]["name"] for item in listed.items] == [f"p{number}" for number in range(10)]

    async def test_a_cancelled_watch_leaves_the_client_usable(self, client: Client, ns: str) -> None:
        async def endless() -> None:
            async with client.watch(PODS, ns) as watch:
                async for _ in watch:
                    pass

        for _ in range(5):
            task = asyncio.create_task(endless())
            await asyncio.sleep(0.02)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        assert (await client.list(PODS, ns)).items == []


class Followed:
    """Informers on a namespace, and what their handlers said."""

    def __init__(self, client: Client, ns: str, *, watch_list: bool = True) -> None:
        self.informers = SharedInformers(client, CLOCK, random.Random(2), use_watch_list=watch_list)
        self.pods: Informer[dict[str, Any]] = self.informers.informer(PODS, namespace=ns)
        self.state: dict[str, str] = {}
        self.pods.add_handler(self._changed, lambda _, new: self._changed(new), self._gone)

    def _changed(self, obj: dict[str, Any]) -> None:
        self.state[obj["metadata"]["name"]] = obj["metadata"]["resourceVersion"]

    def _gone(self, obj: dict[str, Any]) -> None:
        del self.state[obj["metadata"]["name"]]

    async def __aenter__(self) -> Followed:
        self._task = asyncio.create_task(self.informers.run())
        async with asyncio.timeout(90):
            await self.pods.wait_synced()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def matches(self, client: Client, ns: str) -> None:
        """Wait until the cache shows what the server has."""
        listed = await client.list(PODS, ns)
        wanted = {item["metadata"]["name"]: item["metadata"]["resourceVersion"] for item in listed.items}
        await until(lambda: self.state == wanted)
        assert {key.partition("/")[2] for key in self.pods.items} == set(wanted)


class TestInformers:
    @pytest.mark.parametrize("watch_list", [True, False])
    async def test_following(self, client: Client, ns: str, watch_list: bool) -> None:
        await client.create(PODS, pod("before"), ns)
        async with Followed(client, ns, watch_list=watch_list) as followed:
            assert set(followed.state) == {"before"}
            await asyncio.gather(*(client.create(PODS, pod(f"p{number}"), ns) for number in range(20)))
            await client.patch(PODS, "p3", {"metadata": {"labels": {"x": "1"}}}, ns)
            await client.delete(PODS, "p4", ns)
            await followed.matches(client, ns)

    async def test_a_server_that_restarts_and_has_forgotten(
        self, api: Cluster, client: Client, ns: str
    ) -> None:
        await client.create(PODS, pod("stays"), ns)
        await client.create(PODS, pod("goes"), ns)
        async with Followed(client, ns) as followed:
            before = followed.pods.items[f"{ns}/stays"]
            await client.delete(PODS, "goes", ns)
            api.forget_history()
            await client.create(PODS, pod("comes"), ns)
            await followed.matches(client, ns)
            assert set(followed.state) == {"stays", "comes"}
            assert followed.pods.items[f"{ns}/stays"] == before

    async def test_custom_kinds(self, client: Client, ns: str) -> None:
        informers = SharedInformers(client, CLOCK, random.Random(2))
        groups = informers.informer(POD_GROUPS, namespace=ns)
        task = asyncio.create_task(informers.run())
        try:
            async with asyncio.timeout(90):
                await groups.wait_synced()
            body = {"metadata": {"name": "g"}, "spec": {"minMember": 3}}
            await client.create(POD_GROUPS, body, ns)
            await until(lambda: f"{ns}/g" in groups.items)
            assert groups.items[f"{ns}/g"]["spec"]["minMember"] == 3
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


class TestEvents:
    async def test_written_counted_and_described(self, client: Client, ns: str) -> None:
        made = await client.create(PODS, pod("p"), ns)
        recorder = EventRecorder(client, "windlass-test", CLOCK, random.Random(3))
        task = asyncio.create_task(recorder.run())
        ref = ObjectRef("v1", "Pod", ns, "p", made["metadata"]["uid"])
        try:
            async with asyncio.timeout(90):
                for _ in range(3):
                    recorder.event(ref, "Warning", "FailedScheduling", "no node has 8 free GPUs")
                    await recorder.drain()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        found = await client.list(EVENTS, ns, fields="involvedObject.name=p,reason=FailedScheduling")
        (event,) = found.items
        assert (event["count"], event["type"]) == (3, "Warning")
        assert event["message"] == "no node has 8 free GPUs"
        assert event["involvedObject"]["uid"] == made["metadata"]["uid"]
        assert event["source"] == {"component": "windlass-test"}
        assert recorder.dropped == 0


class TestBlocking:
    def test_verbs_and_watch(self, api: Cluster, ns: str) -> None:
        with BlockingClient(api.connection) as client:
            client.create(PODS, pod("p"), ns)
            rv = client.list(PODS, ns).resource_version
            client.patch(PODS, "p", {"metadata": {"labels": {"x": "1"}}}, ns)
            client.delete(PODS, "p", ns)
            events: list[str] = []
            for kind, _ in client.watch(PODS, ns, resource_version=rv, timeout_seconds=60):
                events.append(kind)
                if kind == "DELETED":
                    break
            assert events[0] == "MODIFIED"
            assert client.find(PODS, "p", ns) is None
            assert b"".join(client.stream("/healthz")) == b"ok"
