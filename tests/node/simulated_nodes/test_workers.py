"""Workers on simulated nodes against a driver that follows a script."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

import msgspec
import pytest

from windlass.api.errors import not_found
from windlass.api.fields import aigc
from windlass.api.resources import PODS
from windlass.kits.clock import SystemClock
from windlass.node.pods.record import PodDecoder, PodRecord
from windlass.node.simulated_nodes.workers import SimulatedWorkers

Json = dict[str, Any]


def pod_object(seconds: str = "0.01", labels: Json | None = None) -> Json:
    env = [{"name": "WINDLASS_BATCH_DRIVER", "value": "http://train-driver.default.svc:21000"}]
    return {
        "metadata": {
            "name": "train-worker-0",
            "namespace": "default",
            "uid": "u1",
            "labels": {aigc.JOB_NAME: "train"} if labels is None else labels,
            "annotations": {"windlass.dev/item-seconds": seconds},
        },
        "spec": {"nodeName": "sim-0", "containers": [{"name": "worker", "env": env}]},
    }


class Scripted:
    """Client and driver. ``leases``: answers to requests of rows, then there are none left."""

    def __init__(self, *leases: list[int]) -> None:
        self.leases = list(leases)
        self.asked: list[tuple[str, Json]] = []
        self.refused = 0
        self.open = 0
        self.revoke: list[int] = []
        self.object = pod_object()
        self.server: asyncio.Server | None = None

    async def get(self, resource: Any, name: str, namespace: str) -> Json:
        if resource is PODS:
            return self.object
        if name != "train-batch":
            raise not_found(resource, name)
        return {"data": {"token": base64.b64encode(b"secret").decode()}}

    async def connect(self, key: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        assert (key, port) == ("default/train-driver", 21000)
        if self.refused:
            self.refused -= 1
            raise ConnectionError("not yet")
        if self.server is None:
            self.server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return await asyncio.open_connection(*self.server.sockets[0].getsockname())

    async def close(self) -> None:
        """Wait until the workers have closed all connections."""
        if self.server is not None:
            self.server.close()
        async with asyncio.timeout(60):
            while self.open:
                await asyncio.sleep(0.005)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open += 1
        while True:
            try:
                top = (await reader.readuntil(b"\r\n\r\n")).decode()
            except (asyncio.IncompleteReadError, ConnectionError):
                break
            assert "Authorization: Bearer secret" in top
            length = int(top.partition("Content-Length: ")[2].partition("\r")[0])
            path, body = top.split(" ")[1], msgspec.json.decode(await reader.readexactly(length))
            self.asked.append((path, body))
            answer = msgspec.json.encode(self._answer(path))
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(answer) + answer)
        writer.close()
        self.open -= 1

    def _answer(self, path: str) -> Json:
        if path.endswith("/v1/lease"):
            rows = self.leases.pop(0) if self.leases else None
            items = [{"n": n, "attempt": 1, "row": {"id": f"r{n}"}} for n in rows or ()]
            return {"lease": "l" if items else "", "items": items, "finished": rows is None}
        revoked, self.revoke = self.revoke, []
        return {"heartbeatSeconds": 0.03, "accepted": 1, "lost": False, "revoked": revoked}

    def committed(self) -> list[int]:
        return [one["n"] for path, body in self.asked if path == "/v1/commit" for one in body["results"]]


class Scene:
    def __init__(self, driver: Scripted) -> None:
        self.driver = driver
        self.ended: asyncio.Future[PodRecord] = asyncio.get_running_loop().create_future()
        client: Any = driver
        self.workers = SimulatedWorkers(client, SystemClock(), driver.connect, self.ended.set_result)
        raw = msgspec.Raw(msgspec.json.encode(driver.object))
        self.pod = PodDecoder("box")(raw)

    async def until(self, condition: Any) -> None:
        async with asyncio.timeout(60):
            while not condition():
                await asyncio.sleep(0.005)


async def test_rows_are_committed_once_and_the_pod_ends() -> None:
    scene = Scene(Scripted([1, 2, 3, 4, 5, 6], [], [7]))
    scene.driver.refused = 1
    scene.workers.start(scene.pod)
    scene.workers.start(scene.pod)  # a second start changes nothing
    async with asyncio.timeout(60):
        assert (await scene.ended).name == "train-worker-0"
    assert scene.driver.committed() == [1, 2, 3, 4, 5, 6, 7]
    rows = [body["results"] for path, body in scene.driver.asked if path == "/v1/commit"]
    assert len(rows) > 2, "a lease that takes longer than a heartbeat is committed in parts"
    assert rows[0][0]["row"] == {"id": "r1", "simulated": True}
    assert all(body["instance"] == "u1" for _, body in scene.driver.asked)
    await scene.driver.close()


async def test_rows_of_another_worker_are_left_out_and_a_slow_row_has_heartbeats() -> None:
    scene = Scene(Scripted([1, 2, 3, 4, 5, 6, 7, 8]))
    scene.workers.start(scene.pod)
    await scene.until(lambda: any(path == "/v1/register" for path, _ in scene.driver.asked))
    scene.driver.revoke = [8]
    async with asyncio.timeout(60):
        await scene.ended
    assert scene.driver.committed() == [1, 2, 3, 4, 5, 6, 7]
    await scene.driver.close()
    slow = Scripted([1])
    slow.object = pod_object("30")
    scene = Scene(slow)
    scene.workers.start(scene.pod)
    await scene.until(lambda: [path for path, _ in slow.asked].count("/v1/heartbeat") >= 2)
    scene.workers.close()
    await slow.close()


async def test_worker_of_a_stage_asks_for_the_rows_of_its_stage() -> None:
    driver = Scripted([1])
    driver.object["spec"]["containers"][0]["env"].append({"name": "WINDLASS_BATCH_STAGE", "value": "infer"})
    scene = Scene(driver)
    scene.workers.start(scene.pod)
    async with asyncio.timeout(60):
        await scene.ended
    paths = dict.fromkeys(path for path, _ in driver.asked)
    assert list(paths) == [f"/stages/infer/v1/{word}" for word in ("register", "lease", "commit")]
    await driver.close()


async def test_deleted_pod_returns_its_rows_and_a_stopped_agent_does_not() -> None:
    for word, told in (("stop", True), ("close", False)):
        driver = Scripted([1, 2])
        driver.object = pod_object("30")
        scene = Scene(driver)
        scene.workers.start(scene.pod)
        await scene.until(lambda driver=driver: any(path == "/v1/heartbeat" for path, _ in driver.asked))
        if word == "stop":
            scene.workers.stop("u1")
            await scene.until(lambda driver=driver: any(path == "/v1/fail" for path, _ in driver.asked))
        else:
            scene.workers.close()
            await asyncio.sleep(0.05)
        assert any(path == "/v1/fail" for path, _ in driver.asked) is told
        assert driver.committed() == []
        assert not scene.ended.done()
        await driver.close()


@pytest.mark.parametrize("labels", [{}, {aigc.JOB_NAME: "gone"}])
async def test_pods_of_other_kinds_do_nothing(labels: Json) -> None:
    driver = Scripted([1])
    driver.object = pod_object(labels=labels)
    scene = Scene(driver)
    scene.workers.start(scene.pod)
    await asyncio.sleep(0.05)
    assert driver.asked == []
    assert not scene.ended.done()
