"""Guests of the live faults that ask for more than a place: devices by claims, and nodes by a request for them."""

from __future__ import annotations

from typing import Any

from base_load import NODE_COUNT, pod
from claimobjects import device, device_class, devices_of, exactly
from extra_workloads import Guest, Stage
from pod_log import Books, Entry
from provisioning_request_crd import ATOMIC

from windlass.api.annotations import PROVISIONING_CLASS
from windlass.api.resources import (
    DEVICE_CLASSES,
    POD_TEMPLATES,
    PROVISIONING_REQUESTS,
    QUEUES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    Resource,
)
from windlass.client.blocking import BlockingClient

Json = dict[str, Any]
DRIVER = "accelerator.example.com"
DEVICES = 2
"""Of each node."""


def make_devices(client: BlockingClient) -> None:
    """What the driver lists, once for all rounds."""
    client.create(DEVICE_CLASSES, device_class(DRIVER, DRIVER))
    for number in range(NODE_COUNT):
        devices = [device(f"d-{at}") for at in range(DEVICES)]
        client.create(RESOURCE_SLICES, devices_of(f"live-{number}", DRIVER, *devices))


class Claims(Guest):
    """Gangs whose pods have a claim each, and one whose pods share a claim. What Kubernetes' controller does with
    claims of pods that have ended is done here."""

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage, "claims")
        self._of: dict[str, list[str]] = {}
        """Gang → its claims that are there."""
        self._came: set[str] = set()
        """Gangs whose pods have been seen."""
        self._judge = ClaimBooks(stage.books)
        self.judges = [self._judge]
        stage.books.claim = self._judge.put
        for number in range(4):
            gang, members = f"{self.name}-{number}", stage.rng.randint(2, 4)
            self.minima[gang] = members
            together = number == 0
            self.acts.append((stage.moment(), lambda g=gang, t=together: self._ask(g, t)))  # type: ignore[misc]

    def _ask(self, gang: str, together: bool) -> None:
        members = self.minima[gang]
        named = [gang if together else f"{gang}-{rank}" for rank in range(members)]
        devices = {"requests": [exactly(device_class=DRIVER)]}
        for name in dict.fromkeys(named):
            made = {"metadata": {"name": name}, "spec": {"devices": devices}}
            self.stage.client.make(RESOURCE_CLAIMS, made, self.stage.namespace)
        self._of[gang] = list(dict.fromkeys(named))
        pods = [
            pod(gang, rank, 0, resourceClaims=[{"name": "g", "resourceClaimName": name}])
            for rank, name in enumerate(named)
        ]
        self.stage.gang(gang, pods, members)

    def keep(self) -> None:
        with self.stage.log.lock:
            pods = list(self.stage.books.pods.values())
        use = {entry.gang for entry in pods if not entry.ended}
        self._came |= {entry.gang for entry in pods}
        for gang in [gang for gang in self._of if gang in self._came and gang not in use]:
            self._give_back(gang)

    def _give_back(self, gang: str) -> None:
        client, namespace = self.stage.client, self.stage.namespace
        nothing = {"status": {"allocation": None, "reservedFor": None}}
        for name in self._of.pop(gang):
            client.surely("patch", RESOURCE_CLAIMS, name, nothing, namespace, subresource="status")
            client.surely("patch", RESOURCE_CLAIMS, name, {"metadata": {"finalizers": None}}, namespace)
            client.surely("delete", RESOURCE_CLAIMS, name, namespace)

    def clear(self) -> None:
        for gang in list(self._of):
            self._give_back(gang)


class ClaimBooks:
    """No device belongs to two claims, and whoever is bound may use its claims' devices, on its node, from then on."""

    def __init__(self, books: Books) -> None:
        self._books = books
        self._claims: dict[str, Json] = {}
        self._given: dict[tuple[str, str], str] = {}
        """Node and device → claim."""

    def put(self, key: str, claim: Json | None) -> list[str]:
        before = _devices(self._claims.pop(key, {}))
        found = []
        for one in before:
            self._given.pop(one, None)
        if claim is not None:
            self._claims[key] = claim
            for one in _devices(claim):
                if one in self._given:
                    found.append(f"device {one} is given to claims {self._given[one]} and {key}")
                self._given[one] = key
        if before and (claim is None or _devices(claim) != before):
            found += [
                f"claim {key} of {user}, which is bound, is no longer for {before}"
                for user, entry in self._books.pods.items()
                if entry.node and not entry.ended and key in _named(user, entry)
            ]
        return found

    def hold(self, key: str, entry: Entry) -> list[str]:
        found = []
        for name in _named(key, entry):
            status = self._claims.get(name, {}).get("status") or {}
            nodes = {node for node, _ in _devices(self._claims.get(name, {}))}
            if nodes != {entry.node}:
                found.append(
                    f"{key} is bound to {entry.node} and its claim {name} is for {nodes or 'nothing'}"
                )
            elif entry.uid not in [one["uid"] for one in status.get("reservedFor", ())]:
                found.append(f"{key} is bound and may not use its claim {name}")
        return found

    def release(self, key: str, entry: Entry) -> None:
        """Claims are given back by others."""


def _named(key: str, entry: Entry) -> list[str]:
    """The claims of a pod."""
    namespace = key.partition("/")[0]
    return [f"{namespace}/{one['resourceClaimName']}" for one in entry.pod["spec"].get("resourceClaims", ())]


def _devices(claim: Json) -> set[tuple[str, str]]:
    """Those that it was given, with their pools, each of which is that of a node."""
    allocation = (claim.get("status") or {}).get("allocation") or {}
    return {(one["pool"], one["device"]) for one in (allocation.get("devices") or {}).get("results", ())}


class Requests(Guest):
    """A gang for which there are never nodes enough, in a queue that requests nodes; its owner may give it up."""

    MEMBERS = NODE_COUNT + 3

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage, "requests")
        self._gives_up = stage.rng.random() < 0.5
        begin = stage.moment(0, 0.5)
        self.acts = [(begin, self._ask)]
        if self._gives_up:
            self.acts.append((begin + stage.moment(0.1, 0.6), lambda: stage.take_back(self.name)))

    def _ask(self) -> None:
        notes = {PROVISIONING_CLASS: ATOMIC}
        queue = {"metadata": {"name": self.name, "annotations": notes}, "spec": {"weight": 1}}
        self.stage.client.make(QUEUES, queue, "")
        pods = [pod(self.name, rank, 8) for rank in range(self.MEMBERS)]
        self.stage.gang(self.name, pods, self.MEMBERS, queue=self.name)

    def problems(self) -> list[str]:
        """Templates for which no request was made, since their scheduler died, go with the gang that owns them."""
        requests, templates = self._there(PROVISIONING_REQUESTS), self._there(POD_TEMPLATES)
        if requests is None or templates is None:
            return ["nobody tells which nodes are asked for"]
        wanted = 0 if self._gives_up else 1
        orphans = [one["metadata"] for one in templates if not one["metadata"].get("ownerReferences")]
        if len(requests) == wanted and len(templates) >= wanted and not orphans:
            return []
        names = [one["metadata"]["name"] for one in requests]
        return [f"{wanted} requests for nodes should be there, and there are {names}; nobody's: {orphans}"]

    def _there(self, kind: Resource) -> list[Json] | None:
        found = self.stage.eyes.once("list", kind, self.stage.namespace)
        return None if found is None else found.items

    def clear(self) -> None:
        self.stage.client.surely("delete", QUEUES, self.name)
