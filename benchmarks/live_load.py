"""Load of the live benchmark on a server, and its observation: nodes, gangs, a watch, counts.

A pod counts as bound when the watch shows it on a node. The watch also checks the
usage: a second node for a pod, or a node with more allocated GPUs than it has, ends the
benchmark.
"""

from __future__ import annotations

import asyncio
import base64
import re
import time
import urllib.request
import uuid
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import msgspec

from benchmarks.end_to_end import group, in_parallel, node, pod
from windlass.api.resources import EVENTS, NODES, POD_GROUPS, PODS, Resource
from windlass.client.client import Client, Watch
from windlass.client.transport import Request

CREATORS = 32
LOOK_SECONDS = 0.25
"""Interval (seconds) of polling for completion, which limits the accuracy."""
_OLD = "old-"
_AT_ONCE = 100


class _Meta(msgspec.Struct):
    name: str = ""
    resourceVersion: str = ""
    deletionTimestamp: str | None = None


class _Spec(msgspec.Struct):
    nodeName: str = ""


class _Condition(msgspec.Struct):
    type: str = ""
    status: str = ""


class _Status(msgspec.Struct):
    conditions: list[_Condition] | None = None


class _Pod(msgspec.Struct):
    metadata: _Meta
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)


class _Event(msgspec.Struct):
    reason: str = ""


class _GroupStatus(msgspec.Struct):
    phase: str = ""


class _Group(msgspec.Struct):
    status: _GroupStatus | None = None


@dataclass
class Batch:
    """``jobs`` gangs of ``gang`` pods, named ``prefix-JOB-RANK``; gangs of one are bare pods."""

    prefix: str
    jobs: int
    gang: int
    scheduler: str
    created: dict[str, float] = field(default_factory=dict)
    """Pod → moment (``time.monotonic``) at which its creation was asked for."""

    @property
    def pods(self) -> int:
        return self.jobs * self.gang

    @property
    def grouped(self) -> bool:
        """True if its gangs have PodGroups."""
        return self.gang > 1 and self.scheduler == "windlass"

    async def create(self, api: Client) -> float:
        """Create all of it over 32 connections; seconds."""
        begun = time.monotonic()
        await in_parallel([lambda i=i: self._gang(api, i) for i in range(self.jobs)], CREATORS)
        return time.monotonic() - begun

    async def create_interleaved(self, api: Client) -> None:
        """Create the first pod of every gang, then the second of every gang, and so on."""
        names = [self.name(i) for i in range(self.jobs)]
        await in_parallel([lambda n=n: self._group(api, n) for n in names], CREATORS)
        turns = [(name, rank) for rank in range(self.gang) for name in names]
        await in_parallel([lambda t=t: self._pod(api, *t) for t in turns], CREATORS)

    def name(self, number: int) -> str:
        """Return the name of a gang."""
        return f"{self.prefix}-{number:05d}"

    def written(self, name: str) -> tuple[Resource, dict[str, Any]] | None:
        """The group of a gang; None where there is nothing but its pods."""
        return (POD_GROUPS, group(name, self.gang)) if self.grouped else None

    def member(self, name: str, rank: int) -> dict[str, Any]:
        """A pod of a gang."""
        made = pod(f"{name}-{rank}", name)
        made["spec"]["schedulerName"] = self.scheduler
        if not self.grouped:
            del made["metadata"]["annotations"]
        return made

    async def _gang(self, api: Client, number: int) -> None:
        name = self.name(number)
        await self._group(api, name)
        for rank in range(self.gang):
            await self._pod(api, name, rank)

    async def _group(self, api: Client, name: str) -> None:
        written = self.written(name)
        if written is not None:
            await api.create(*written)

    async def _pod(self, api: Client, name: str, rank: int) -> None:
        made = self.member(name, rank)
        self.created[made["metadata"]["name"]] = time.monotonic()
        await api.create(PODS, made)


class Books:
    """Nodes of pods, by the watch of this process. ``gpus``: number of pods that fit on a node."""

    def __init__(self, api: Client, gpus: int) -> None:
        self._api = api
        self._gpus = gpus
        self.bound: dict[str, float] = {}
        self.ended: set[str] = set()
        """Pods that were evicted or deleted."""
        self.nodes: dict[str, str] = {}
        self.taken: dict[str, int] = {}
        self._told: set[str] = set()
        self._changed = asyncio.Event()

    async def follow(self) -> None:
        """Watch from now on, until cancelled; resumed where it ended. Raises ``SystemExit`` on anything that
        must never be."""
        version = (await self._api.list(PODS, limit=1)).resource_version
        while True:
            async with self._api.watch(PODS, resource_version=version) as watch:
                version = await self._read(watch, version)

    async def _read(self, watch: Watch, version: str) -> str:
        decode = msgspec.json.Decoder(_Pod).decode
        async for batch in watch:
            now = time.monotonic()
            for event in batch:
                if event.type == "ERROR":
                    raise SystemExit(f"the watch that counts broke: {bytes(event.object)!r}")
                found = decode(event.object)
                version = found.metadata.resourceVersion
                if found.metadata.name.startswith(_OLD):
                    continue
                if event.type == "DELETED" or found.metadata.deletionTimestamp:
                    self.ended.add(found.metadata.name)
                elif found.spec.nodeName:
                    self._note(found, now)
            self._changed.set()
        return version

    def _note(self, found: _Pod, now: float) -> None:
        name, where = found.metadata.name, found.spec.nodeName
        before = self.nodes.get(name)
        if before is None:
            self.bound[name] = now
            self.nodes[name] = where
            self.taken[where] = self.taken.get(where, 0) + 1
            if self.taken[where] > self._gpus:
                raise SystemExit(f"{where} has {self._gpus} GPUs, and {name} is one too many")
        elif before != where:
            raise SystemExit(f"{name} was on {before} and is on {where}")
        if any(c.type == "PodScheduled" and c.status == "True" for c in found.status.conditions or ()):
            self._told.add(name)

    def there(self, batch: Batch) -> int:
        """Return the number of bound pods of the batch."""
        return sum(name in self.bound for name in batch.created)

    async def until(self, batch: Batch, seconds: float, *, first: bool = False) -> None:
        """Return when every pod of the batch is bound, or the first of them."""
        deadline = time.monotonic() + seconds
        enough = any if first else all
        while not enough(name in self.bound for name in batch.created):
            self._changed.clear()
            try:
                async with asyncio.timeout(max(0.01, deadline - time.monotonic())):
                    await self._changed.wait()
            except TimeoutError:
                there = self.there(batch)
                lost = next(name for name in batch.created if name not in self.bound)
                seen = await self._api.get(PODS, lost, "default")
                raise SystemExit(
                    f"only {there} of {batch.pods} pods were bound in {seconds:g} s; {lost}: {seen}"
                ) from None

    def rate(self, batch: Batch) -> float:
        """Pods a second between the first bind and the last."""
        moments = [self.bound[name] for name in batch.created]
        return (len(moments) - 1) / max(1e-9, max(moments) - min(moments))

    def conditions(self, batch: Batch) -> int:
        """Return the number of the batch's pods with ``PodScheduled`` ``True``."""
        return sum(name in self._told for name in batch.created)

    def free(self, nodes: int) -> list[str]:
        """Names of nodes, one for each GPU that is free, dealt round."""
        left = {node_name(i): self._gpus - self.taken.get(node_name(i), 0) for i in range(nodes)}
        found = []
        for turn in range(self._gpus):
            found += [name for name, gpus in left.items() if gpus > turn]
        return found


def node_name(i: int) -> str:
    return f"sim-{i:05d}"


async def create_nodes(api: Client, count: int, gpus: int) -> None:
    """Create hollow nodes: objects with a ready status and no machine."""
    await in_parallel([lambda i=i: api.create(NODES, node(i, gpus)) for i in range(count)], CREATORS)


async def fill(api: Client, etcd_url: str, pods: int, nodes: int) -> None:
    """Pods without GPUs that are on their nodes already.

    One is made through the API; the others are its like, written into the API server's store a hundred at a time:
    that many requests would take longer than all that is measured. Returns when the server has them all."""
    made = pod(f"{_OLD}0", f"{_OLD}0")
    del made["metadata"]["annotations"]
    made["spec"]["nodeName"] = node_name(0)
    amounts = {"cpu": "100m", "memory": "128Mi"}
    made["spec"]["containers"][0]["resources"] = {"requests": amounts, "limits": amounts}
    before = await _count(api)
    pattern = await api.create(PODS, made)
    pattern["metadata"].pop("resourceVersion")
    for first in range(1, pods, _AT_ONCE):
        chosen = range(first, min(pods, first + _AT_ONCE))
        await asyncio.to_thread(_store, etcd_url, [_like(pattern, i, nodes) for i in chosen])
    while await _count(api) < before + pods:
        await asyncio.sleep(0.5)


def _like(pattern: dict[str, Any], number: int, nodes: int) -> tuple[str, bytes]:
    """Key and value of another pod in the store."""
    name = f"{_OLD}{number}"
    metadata = {**pattern["metadata"], "name": name, "uid": str(uuid.UUID(int=number))}
    spec = {**pattern["spec"], "nodeName": node_name(number % nodes)}
    return f"/registry/pods/default/{name}", msgspec.json.encode(
        {**pattern, "metadata": metadata, "spec": spec}
    )


def _store(etcd_url: str, objects: list[tuple[str, bytes]]) -> None:
    """One transaction through etcd's JSON gateway."""

    def text(raw: bytes) -> str:
        return base64.b64encode(raw).decode()

    puts = [{"requestPut": {"key": text(key.encode()), "value": text(value)}} for key, value in objects]
    asked = urllib.request.Request(f"{etcd_url}/v3/kv/txn", msgspec.json.encode({"success": puts}))
    with urllib.request.urlopen(asked, timeout=60) as answer:
        answer.read()


async def _count(api: Client) -> int:
    page = await api.list_page(PODS, "default", limit=1, type=msgspec.Raw)
    return len(page.items) + (page.remaining or 0)


async def settled_events(api: Client, wanted: int, seconds: float) -> int:
    """Wait for ``wanted`` events ``Scheduled``, at most ``seconds``, and return their number.

    All events are read only once there are enough of any kind. Until then a cheap count
    of one page is used.
    """
    deadline = time.monotonic() + seconds
    enough = wanted
    while True:
        page = await api.list_page(EVENTS, "default", limit=1, type=msgspec.Raw)
        total, late = len(page.items) + (page.remaining or 0), time.monotonic() >= deadline
        if total >= enough or late:
            events = (await api.list(EVENTS, "default", type=_Event)).items
            found = sum(event.reason == "Scheduled" for event in events)
            if found >= wanted or late:
                return found
            enough = total + wanted - found
        await asyncio.sleep(LOOK_SECONDS)


_REQUESTS = re.compile(rb"^apiserver_request_total\{(.*)\} (\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')


async def requests(api: Client) -> Counter[str]:
    """Return the number of the server's responses to writes: ``VERB
    resource/subresource`` → count."""
    found: Counter[str] = Counter()
    for labels, value in _REQUESTS.findall(await api.call(Request("GET", "/metrics"))):
        of = dict(_LABEL.findall(labels.decode()))
        if of["verb"] in ("POST", "PUT", "PATCH", "APPLY", "DELETE"):
            what = "/".join(filter(None, (of.get("resource", ""), of.get("subresource", ""))))
            found[f"{of['verb']} {what}"] += int(float(value))
    return found


def each(before: Counter[str], after: Counter[str], pods: int) -> dict[str, float]:
    """Requests per pod, the most frequent first; what came less than once for two hundred pods is left out."""
    rates = {what: round(times / pods, 3) for what, times in (after - before).most_common()}
    return {what: rate for what, rate in rates.items() if rate >= 0.005}


async def settled_groups(api: Client, batch: Batch, seconds: float) -> dict[str, int]:
    """Return the number of PodGroups by phase; wait until those of the batch run, at
    most ``seconds``."""
    deadline = time.monotonic() + seconds
    wanted = batch.jobs if batch.grouped else 0
    while True:
        found = await _phases(api) if wanted else {}
        if found.get("Running", 0) >= wanted or time.monotonic() >= deadline:
            return found
        await asyncio.sleep(LOOK_SECONDS)


async def _phases(api: Client) -> dict[str, int]:
    """Phase → PodGroups."""
    found: dict[str, int] = {}
    for one in (await api.list(POD_GROUPS, "default", type=_Group)).items:
        phase = one.status.phase if one.status is not None else ""
        found[phase] = found.get(phase, 0) + 1
    return found
