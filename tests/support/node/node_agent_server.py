"""An embedded server with a node agent on it, in one process: what the agent's tests run on."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from windlass.api.errors import StatusError
from windlass.api.resources import ENDPOINT_SLICES, NODES, PODS, SERVICES
from windlass.client.client import Client
from windlass.kits.clock import SystemClock
from windlass.kits.state import StateFolder
from windlass.node.agent import NodeAgent
from windlass.node.options import AgentOptions
from windlass.node.runtime.log_reader import LogReader
from windlass.node.runtime.runner import Runner
from windlass.server.apiserver import ApiServer
from windlass.server.bootstrap import bootstrap
from windlass.server.in_process import InProcessTransport
from windlass.store.store import Store

NODE = "box"


@dataclass
class Options:
    """What :meth:`LogReader.open` needs to be told."""

    container: str
    follow: bool = False
    previous: bool = False
    timestamps: bool = False
    tail_lines: int | None = None
    since: str = ""
    stream: str = ""


@dataclass
class NodeBox:
    """``agent`` may be stopped and another started on the same folder: what runs goes on."""

    client: Client
    state: StateFolder
    options: AgentOptions
    runner: Runner | None = None
    agent: NodeAgent | None = None
    _task: asyncio.Task[None] | None = None
    logs: LogReader = field(init=False)

    def __post_init__(self) -> None:
        self.logs = LogReader(self.state.node, clock=SystemClock())

    async def start_agent(self) -> NodeAgent:
        self.agent = NodeAgent(
            self.client,
            state=self.state,
            clock=SystemClock(),
            rng=random.Random(7),
            options=self.options,
            runner=self.runner,
        )
        self._task = asyncio.ensure_future(self.agent.run())
        await self.until(self._node_ready)
        return self.agent

    async def _node_ready(self) -> bool:
        if self._task is not None and self._task.done():
            self._task.result()
        if self.agent is None or not self.agent.ready.is_set():
            return False
        try:
            node = await self.client.get(NODES, self.options.node_name)
        except StatusError:
            return False
        conditions = (node.get("status") or {}).get("conditions") or []
        return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)

    async def kill_agent(self) -> None:
        """Stop the agent without a word to its pods."""
        if self._task is None:
            return
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        self._task = None

    async def close(self) -> None:
        """End all pods' processes and the agent."""
        if self._task is None:
            await self.start_agent()
        assert self.agent is not None
        await self.agent.stop_pods(0.0)
        await self.kill_agent()

    async def until(self, condition: Callable[[], Any], seconds: float = 60.0) -> Any:
        """Wait for a truthy answer; fails loudly, with the stories of the pods."""
        try:
            async with asyncio.timeout(seconds):
                while True:
                    answer = condition()
                    if asyncio.iscoroutine(answer):
                        answer = await answer
                    if answer:
                        return answer
                    await asyncio.sleep(0.02)
        except TimeoutError:
            stories = (
                [await self._story(worker) for worker in self.agent.workers.values()] if self.agent else []
            )
            raise AssertionError(f"did not come true in {seconds} s; {stories}") from None

    async def _story(self, worker: Any) -> str:
        """Return the history of a pod and the end of its log."""
        name = worker.pod["metadata"]["name"]
        try:
            log = (await self.log(name))[-500:]
        except (AssertionError, OSError, StatusError) as error:
            log = f"no log: {error}"
        return f"{name}: {worker.machine.history()}; log: {log}"

    async def create(self, pod: dict[str, Any]) -> dict[str, Any]:
        return await self.client.create(PODS, pod)

    async def get(self, name: str, namespace: str = "default") -> dict[str, Any]:
        return await self.client.get(PODS, name, namespace)

    async def phase(self, name: str, *phases: str, seconds: float = 60.0) -> dict[str, Any]:
        """Until the pod is in one of the phases; the pod."""

        async def reached() -> dict[str, Any] | None:
            pod = await self.get(name)
            return pod if (pod.get("status") or {}).get("phase") in phases else None

        return await self.until(reached, seconds)

    async def gone(self, name: str, namespace: str = "default", seconds: float = 60.0) -> None:
        async def absent() -> bool:
            try:
                await self.get(name, namespace)
            except StatusError as error:
                return error.code == 404
            return False

        await self.until(absent, seconds)

    async def log(self, name: str, container: str = "main", **options: Any) -> str:
        pod = await self.get(name)
        chunks = [c async for c in self.logs.open(pod, Options(container, **options))]
        return b"".join(chunks).decode()


def pod(name: str, *command: str, **changes: Any) -> dict[str, Any]:
    """A pod bound to the box. ``changes`` go into spec; ``metadata`` and ``container`` are merged."""
    metadata = {"name": name, "namespace": "default", **changes.pop("metadata", {})}
    container = {"name": "main", "image": "busybox", **changes.pop("container", {})}
    if command:
        container["command"] = list(command)
    spec = {
        "nodeName": NODE,
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 3,
        "containers": [container],
        **changes,
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


async def expose(
    box: NodeBox, name: str, target: tuple[str, int], protocol: str = "TCP", port: int = 80
) -> dict[str, Any]:
    """Create a Service with a node port, and a hand-written EndpointSlice with one address."""
    ports = [{"name": "p", "port": port, "protocol": protocol}]
    meta = {"name": name, "namespace": "default"}
    service = await box.client.create(
        SERVICES, {"metadata": meta, "spec": {"type": "NodePort", "ports": ports}}
    )
    await box.client.create(
        ENDPOINT_SLICES,
        {
            "metadata": {**meta, "labels": {"kubernetes.io/service-name": name}},
            "addressType": "IPv4",
            "endpoints": [{"addresses": [target[0]], "conditions": {"ready": True}}],
            "ports": [{"name": "p", "port": target[1], "protocol": protocol}],
        },
    )
    return service


@contextlib.asynccontextmanager
async def serving(
    folder: Path, options: AgentOptions | None = None, runner: Runner | None = None, *, agent: bool = True
) -> AsyncIterator[NodeBox]:
    """A server in memory, a state folder below ``folder``, an agent; ends all of it.

    Its randomness is the system's: the uid of a pod marks its processes, and an agent that ends what a
    killed supervisor left looks for this mark among all processes of the machine. Equal uids in two test
    processes would let one end the pods of the other. The same holds for node ports.
    """
    clock, rng = SystemClock(), random.SystemRandom()
    state = StateFolder(folder / "state")
    state.prepare(allow_network=True)
    store = Store.open(":memory:", clock=clock)
    api = ApiServer(store, clock=clock, rng=rng, logs=LogReader(state.node, clock=clock))
    await bootstrap(api)
    client = Client(InProcessTransport(api), clock=clock, rng=rng)
    box = NodeBox(client, state, options or AgentOptions(node_name=NODE, gpus="none"), runner)
    try:
        if agent:
            await box.start_agent()
        yield box
    finally:
        await box.close()
        api.stop()
        await client.close()
        await store.close()
