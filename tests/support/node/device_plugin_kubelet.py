"""The part of kubelets and of NVIDIA's device plug-in that the sharing of cards rests on, on any server.

A pod that came to a node is admitted or refused as a kubelet does it: whole cards are handed out from those that no
admitted pod has; who asks for more is ``Failed`` with ``UnexpectedAdmissionError``; who asks for none is admitted
whatever he does on a card. A container gets the cards of an init container that is over. The one that is asked to
``reserve-device --tell`` ends with the name of the card that it was given as its termination message. A deleted pod is
gone a moment later, and only then are its cards free.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from windlass.api.errors import StatusError
from windlass.api.resources import PODS

Json = dict[str, Any]
GPU = "nvidia.com/gpu"
REFUSED = (
    "Pod was rejected: Allocate failed due to requested number of devices unavailable for nvidia.com/gpu"
)


def cards_asked(pod: Json) -> int:
    """Of a pod in all: the most that runs at once."""
    spec = pod["spec"]

    def of(container: Json) -> int:
        amounts = container.get("resources") or {}
        return int({**(amounts.get("requests") or {}), **(amounts.get("limits") or {})}.get(GPU, 0))

    first = max((of(one) for one in spec.get("initContainers") or ()), default=0)
    return max(first, sum(of(one) for one in spec["containers"]))


def tells(pod: Json) -> bool:
    return any("--tell" in (one.get("args") or ()) for one in pod["spec"].get("initContainers") or ())


class PlugKubelet:
    """``nodes``: name → the names of its cards, in the order in which its plug-in prefers them. ``mute``: nodes whose
    containers tell nothing. Every :meth:`step` looks at all pods once."""

    def __init__(self, nodes: dict[str, list[str]]) -> None:
        self.nodes = nodes
        self.mute: set[str] = set()
        self.given: dict[str, tuple[str, list[str]]] = {}
        """uid → node and cards."""
        self.history: list[tuple[str, str, list[str]]] = []
        self.refused: list[str] = []
        self._seen: set[str] = set()

    def free(self, node: str) -> list[str]:
        taken = {card for where, cards in self.given.values() if where == node for card in cards}
        return [card for card in self.nodes[node] if card not in taken]

    def judge(self, pod: Json) -> Json | None:
        """The status that a kubelet gives a pod which has come to it; ``None`` for one that it knows."""
        uid, node = pod["metadata"]["uid"], pod["spec"].get("nodeName", "")
        if node not in self.nodes or uid in self._seen or pod["metadata"].get("deletionTimestamp"):
            return None
        if tells(pod) and node in self.mute:
            return None
        self._seen.add(uid)
        asked, free = cards_asked(pod), self.free(node)
        if asked > len(free):
            self.refused.append(pod["metadata"]["name"])
            return {"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": REFUSED}
        self.given[uid] = (node, free[:asked])
        self.history.append((pod["metadata"]["name"], node, free[:asked]))
        status: Json = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        if tells(pod):
            ended = {"exitCode": 0, "reason": "Completed", "message": f"{free[0]}\n"}
            status["initContainerStatuses"] = [_container(pod["spec"]["initContainers"][0], terminated=ended)]
        return status

    def forget(self, pods: list[Json]) -> None:
        """Pods that are gone or over have no cards."""
        over = ("Succeeded", "Failed")
        alive = {pod["metadata"]["uid"] for pod in pods if (pod.get("status") or {}).get("phase") not in over}
        for uid in [uid for uid in self.given if uid not in alive]:
            del self.given[uid]

    def visible(self, pod: Json) -> list[str]:
        """What the NVIDIA runtime shows a pod's containers: the kubelet's cards, or those of its own environment."""
        given = self.given.get(pod["metadata"]["uid"], ("", []))[1]
        told = (pod["metadata"].get("annotations") or {}).get("windlass.dev/visible-devices", "")
        return given or [word for word in told.split(",") if word]


def _container(container: Json, **state: Any) -> Json:
    return {
        "name": container["name"],
        "image": container.get("image", ""),
        "imageID": "",
        "ready": True,
        "restartCount": 0,
        "state": state,
    }


class LiveKubelet(PlugKubelet):
    """The same against a server: ``run()`` beside the test."""

    def __init__(self, client: Any, nodes: dict[str, list[str]]) -> None:
        super().__init__(nodes)
        self._client = client
        self.each: Callable[[list[Json]], None] = lambda pods: None

    async def close(self) -> None:
        await self._client.close()

    async def run(self) -> None:
        while True:
            await self.step()
            await asyncio.sleep(0.1)

    async def step(self) -> None:
        pods = [
            pod for pod in (await self._client.list(PODS)).items if pod["spec"].get("nodeName") in self.nodes
        ]
        self.each(pods)
        for pod in pods:
            if pod["metadata"].get("deletionTimestamp"):
                await self._quietly(self._client.delete, pod, grace_seconds=0, uid=pod["metadata"]["uid"])
                self.given.pop(pod["metadata"]["uid"], None)
        self.forget(pods)
        for pod in pods:
            if (status := self.judge(pod)) is not None:
                await self._quietly(self._client.patch, pod, {"status": status}, subresource="status")

    async def _quietly(self, verb: Any, pod: Json, *args: Any, **options: Any) -> None:
        """Somebody may have taken it away in between."""
        meta = pod["metadata"]
        try:
            await verb(PODS, meta["name"], *args, meta["namespace"], **options)
        except StatusError as error:
            if error.code not in (404, 409):
                raise
