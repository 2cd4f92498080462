"""Scheduling cases played on a server: the objects are created, the scheduler service binds and evicts, and what came
of it is read back and compared with what ``windlass plan`` had said of the same server a moment before.

The world answers as a cluster would: a bound pod runs, an evicted one is gone and comes back as a pending pod of the
same name.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import random
import time
from pathlib import Path
from typing import Any

import scheduling_cases
import yaml
from clusters import Cluster, eventually

from windlass.api.errors import StatusError
from windlass.api.resources import (
    HYPERNODES,
    KAI_POD_GROUPS,
    KAI_QUEUES,
    KAI_TOPOLOGIES,
    NAMESPACES,
    NODES,
    POD_GROUPS,
    PODS,
    PRIORITY_CLASSES,
    QUEUES,
    Resource,
    by_kind,
)
from windlass.cli.simulate import plan as simulate_plan
from windlass.client.client import Client
from windlass.client.http import HttpTransport
from windlass.engine.config import EngineConfig
from windlass.kits.clock import SystemClock
from windlass.model.cluster.engine_factory import make_engine
from windlass.scheduler.options import SchedulerOptions
from windlass.scheduler.service import SchedulerService

Json = dict[str, Any]
Seen = tuple[dict[str, str], list[str]]
"""Where each pod is (``""``: it waits), and the pods that were evicted, sorted."""
PATIENCE = 120.0
QUIET = 0.25
UNSETTLED = ("I-cr-gen-01",)
"""Left out: two claims on the same room are made in turn, and the second one's victims depend on whether the first
one's have come back already, which takes no time in a plan."""
CONTROLLER = {"apiVersion": "batch/v1", "kind": "Job", "name": "job", "uid": "job", "controller": True}
"""Owner of the pods: without a controller no pod is relocated."""
_CLEARED = (PODS, POD_GROUPS, KAI_POD_GROUPS, QUEUES, KAI_QUEUES, HYPERNODES, KAI_TOPOLOGIES, NODES)
_KEPT_NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")


def fits(case: Json) -> bool:
    """Whether a server can be brought into the state of a case by creating its objects: nothing in it is on its way
    out, ended, older than other things, or kept by a controller; and something has to be decided."""
    state = case["state"]
    if case["dialect"] == "share" or case["class"] == "peculiar" or case.get("guard"):
        return False
    if state.get("resourceQuotas"):
        return False
    if case["dialect"] == "kai":
        jobs = state["jobs"]
        return all(task["state"] in ("Running", "Pending") for job in jobs for task in job["tasks"])
    pods, ages = state["pods"], [group for group in state["podgroups"] if "ageSec" in group]
    spoken = any(queue.get("annotations") for queue in state["queues"])  # not all of them would be let in
    plain = not spoken and all(
        pod["phase"] in ("Running", "Pending") and "priority" not in pod for pod in pods
    )
    return plain and not ages and all(queue["state"] == "Open" for queue in state["queues"])


def chosen(count: int, seed: int) -> list[str]:
    """Ids of ``count`` cases, from every area in turn."""
    rng = random.Random(seed)
    areas: dict[str, list[str]] = {}
    for name, case in scheduling_cases.CASES.items():
        if fits(case) and name not in UNSETTLED:
            areas.setdefault(case["area"], []).append(name)
    for names in areas.values():
        rng.shuffle(names)
    found: list[str] = []
    while len(found) < count and any(areas.values()):
        found += [names.pop() for _, names in sorted(areas.items()) if names]
    return sorted(found[:count])


class LiveCase:
    def __init__(self, cluster: Cluster, case: Json, folder: Path) -> None:
        self._cluster = cluster
        self._case = case
        self._config = folder / "scheduler.conf"
        self._config.write_text(yaml.safe_dump(scheduling_cases.RUNNER.configuration(case)))
        self._pods: dict[str, Json] = {}
        self._uids: dict[str, str] = {}
        self._evicted: set[str] = set()

    # ------------------------------------------------------------------ the state of the case

    def clear(self) -> None:
        """Take away what another case has left."""
        client = self._cluster.client
        for resource in _CLEARED:
            for obj in client.list(resource).items:
                name, space = obj["metadata"]["name"], obj["metadata"].get("namespace")
                if resource is QUEUES and name in ("default", "root"):
                    continue
                grace = {"grace_seconds": 0} if resource is PODS else {}
                with contextlib.suppress(StatusError):
                    client.delete(resource, name, space, **grace)
        for obj in client.list(PRIORITY_CLASSES).items:
            if not obj["metadata"]["name"].startswith("system-"):
                client.delete(PRIORITY_CLASSES, obj["metadata"]["name"])

    def create(self) -> None:
        client = self._cluster.client
        for obj in scheduling_cases.RUNNER.manifests(self._case):
            space = obj["metadata"].get("namespace")
            if space and client.find(NAMESPACES, space) is None:
                client.create(NAMESPACES, {"metadata": {"name": space}})
            resource = by_kind(obj["apiVersion"], obj["kind"])
            assert resource is not None
            if resource is PODS:
                obj["metadata"]["ownerReferences"] = [CONTROLLER]
                self._pods[f"{space}/{obj['metadata']['name']}"] = _plain(obj)
            self._make(resource, _plain(obj))
        for pod in client.list(PODS).items:
            self._uids[_key(pod)] = pod["metadata"]["uid"]

    def _make(self, resource: Resource, obj: Json) -> None:
        client, name = self._cluster.client, obj["metadata"]["name"]
        space, status = obj["metadata"].get("namespace"), obj.pop("status", None)
        if resource is NODES:
            obj["status"] = status
        if client.find(resource, name, space) is None:
            client.create(resource, obj, space)
        if resource is PRIORITY_CLASSES:
            eventually(lambda: self._priority(name) == obj["value"], PATIENCE)
        if resource is NODES:  # a server's admission marks a new node as not ready
            client.patch(NODES, name, {"spec": {"taints": None}})
        elif status and resource in (PODS, POD_GROUPS, QUEUES):
            if resource is PODS and not obj["spec"].get("nodeName"):
                return
            client.patch(resource, name, {"status": status}, space, subresource="status")

    def _priority(self, of_class: str) -> int | None:
        """What a pod of the class would get: the server's admission hears of a class some time after it is made."""
        container = {"name": "main", "image": "none"}
        spec = {"containers": [container], "priorityClassName": of_class}
        pod = {"metadata": {"name": "asks"}, "spec": spec}
        answer = self._cluster.post("/api/v1/namespaces/default/pods", pod, "dryRun=All")
        return answer.json["spec"]["priority"] if answer.status == 201 else None

    # ------------------------------------------------------------------ what is said, and what happens

    def planned(self) -> Seen:
        """What ``windlass plan --context`` says of the server as it is."""
        request = simulate_plan.PlanRequest((), str(self._config), time.time(), until_stable=True)
        plan = simulate_plan.plan_live(self._cluster.client, request, lambda _text: None)
        places = {key: pod["spec"].get("nodeName", "") for key, pod in self._pods.items()}
        for cycle in range(1, plan["cycles"] + 1):
            for gone in (one for one in plan["evictions"] if one["cycle"] == cycle):
                places[f"{gone['namespace']}/{gone['pod']}"] = ""
            for bind in (one for one in plan["binds"] if one["cycle"] == cycle):
                places[f"{bind['namespace']}/{bind['pod']}"] = bind["node"]
        return places, sorted({f"{gone['namespace']}/{gone['pod']}" for gone in plan["evictions"]})

    async def played(self, wanted: Seen) -> Seen:
        """What the scheduler makes of it: returned when it is as ``wanted`` and stays so, or when patience ends."""
        clock = SystemClock()
        parsed = simulate_plan.read_config(str(self._config), lambda _text: None)
        client = Client(HttpTransport(self._cluster.connection), clock=clock, rng=random.Random(1))
        still = EngineConfig(claim_pause_seconds=0.0)  # as in a plan, where nobody would ever end a pause
        service = SchedulerService(
            client,
            clock=clock,
            rng=random.Random(2),
            options=SchedulerOptions(policy=parsed.config, wait_for_group=()),
            engine=make_engine(parsed.config, None, base=still),
        )
        running = asyncio.create_task(service.run())
        try:
            return await self._follow(client, running, wanted)
        finally:
            running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await running
            await client.close()

    async def _follow(self, client: Client, running: asyncio.Task[None], wanted: Seen) -> Seen:
        deadline, since = time.monotonic() + PATIENCE, None
        while True:
            seen = await self._answer(client)
            now = time.monotonic()
            since = (since or now) if seen == wanted else None
            if running.done() or now > deadline or (since is not None and now - since > QUIET):
                if running.done():
                    running.result()
                return seen
            await asyncio.sleep(0.03)

    async def _answer(self, client: Client) -> Seen:
        """One look at all pods, after which the world does what a kubelet and a controller would do."""
        places = dict.fromkeys(self._pods, "")
        there = {_key(pod): pod for pod in (await client.list(PODS)).items}
        for key, pod in there.items():
            metadata, name = pod["metadata"], pod["metadata"]["name"]
            if metadata.get("deletionTimestamp"):
                with contextlib.suppress(StatusError):
                    await client.delete(PODS, name, metadata["namespace"], grace_seconds=0)
                continue
            places[key] = pod["spec"].get("nodeName", "")
            if places[key] and pod["status"].get("phase") == "Pending":
                change = {"status": {"phase": "Running", "startTime": metadata["creationTimestamp"]}}
                await client.patch(PODS, name, change, metadata["namespace"], subresource="status")
        for key, manifest in self._pods.items():
            if key not in there:
                self._evicted.add(key)
                again = copy.deepcopy(manifest)
                again["spec"].pop("nodeName", None)
                again.pop("status", None)
                again["metadata"]["annotations"].pop("windlass.dev/devices", None)
                await client.create(PODS, again, manifest["metadata"]["namespace"])
        return places, sorted(self._evicted)


def _plain(obj: Json) -> Json:
    """The object as a user sends it."""
    made = copy.deepcopy(obj)
    for field in ("uid", "creationTimestamp"):
        made["metadata"].pop(field, None)
    if made["kind"] == "Pod":
        made["spec"].pop("priority", None)  # it follows from the class
    return made


def _key(pod: Json) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
