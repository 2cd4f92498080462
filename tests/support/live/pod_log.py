"""Every version of every pod and of every claim for devices, in order, as the API server wrote it down: read from the
log that its watches are served from, by a client that neither the server's restarts nor anybody's faults touch.

etcd keeps each revision; its JSON gateway tells them from any revision on, so nothing is missed and nothing
comes twice. :class:`Books` judges each one.
"""

from __future__ import annotations

import base64
import http.client
import json
import threading
import time
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import urlsplit

_PODS, _CLAIMS = "/registry/pods/", "/registry/resourceclaims/"
_BEGIN, _END = b"/registry/pods/", b"/registry/resourceclaims0"
"""Both kinds in one range, so in one order; what lies between them is passed over."""
_ENDED = ("Succeeded", "Failed")
_BYTES = {"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30}
GPU = "nvidia.com/gpu"
GONE = "gone"
"""Why a pod was evicted whose condition nobody had written before it went."""
Json = dict[str, Any]


def amounts(told: Mapping[str, str]) -> dict[str, int]:
    """CPU in thousandths, memory in bytes, others as they are."""
    found = {}
    for name, text in told.items():
        if name == "cpu":
            found[name] = int(text[:-1]) if text.endswith("m") else int(text) * 1000
        elif text[-2:] in _BYTES:
            found[name] = int(text[:-2]) * _BYTES[text[-2:]]
        else:
            found[name] = int(text)
    return found


def requested(pod: Json) -> dict[str, int]:
    """What its containers ask for, and its place among the node's pods."""
    total = {"pods": 1}
    for container in pod["spec"]["containers"]:
        for name, units in amounts(container.get("resources", {}).get("requests", {})).items():
            total[name] = total.get(name, 0) + units
    return total


def shares(notes: Mapping[str, str]) -> dict[str, int]:
    """Card → thousandths of it, of which a bound pod's annotations say that it has a part."""
    parts = [part.partition(":") for part in notes.get("windlass.dev/device-shares", "").split(",") if part]
    return {card: int(rest.partition("/")[0]) for card, _, rest in parts}


@dataclass
class Entry:
    """The newest version of a pod. ``at``: when it was bound (``time.monotonic`` of the reader)."""

    uid: str
    gang: str
    node: str
    phase: str
    pod: Json
    at: float = 0.0

    @property
    def ended(self) -> bool:
        return self.phase in _ENDED


class Judge(Protocol):
    """Looks at more than nodes and gangs."""

    def hold(self, key: str, entry: Entry) -> list[str]:
        """A pod holds what it has been given; what must never be of that. Asked for each version anew."""
        ...

    def release(self, key: str, entry: Entry) -> None:
        """It does not (any more, or until the next call of :meth:`hold`)."""
        ...


@dataclass
class Books:
    """What the log says. ``nodes``: what each node has; ``problems``: what must never be."""

    nodes: Mapping[str, Mapping[str, int]]
    minima: dict[str, int] = field(default_factory=dict)
    stays: set[str] = field(default_factory=set)
    """Gangs whose work is not done yet, however long they have run."""
    pods: dict[str, Entry] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    binds: list[tuple[float, str]] = field(default_factory=list)
    evicted: dict[str, str] = field(default_factory=dict)
    """Uid → why: pods that were evicted."""
    broken: dict[str, str] = field(default_factory=dict)
    """Gang → why somebody of it was evicted: nobody makes their pods anew."""
    judges: list[Judge] = field(default_factory=list)
    claim: Callable[[str, Json | None], list[str]] | None = None
    """Told of each version of a claim for devices (``None``: it is gone), and says what must never be of it."""
    placed: dict[str, set[str]] = field(default_factory=dict)
    """Gang → uids that hold a node or have ended there."""
    living: dict[str, set[str]] = field(default_factory=dict)
    """Gang → uids that hold a node."""
    between: dict[str, float] = field(default_factory=dict)
    spells: list[tuple[str, float, float]] = field(default_factory=list)
    """Gang, begin, end: how long gangs stood with some and not all of their minimum."""
    held: dict[str, dict[str, int]] = field(default_factory=dict)
    devices: dict[str, dict[str, str]] = field(default_factory=dict)
    events: int = 0

    def put(self, key: str, pod: Json, now: float) -> None:
        """A new version."""
        self.events += 1
        metadata, before = pod["metadata"], self.pods.get(key)
        if before is not None and before.uid != metadata["uid"]:
            self.remove(key, now)
            before = None
        gang = metadata.get("labels", {}).get("gang", "")
        node = pod["spec"].get("nodeName", "")
        entry = Entry(metadata["uid"], gang, node, pod["status"].get("phase", ""), pod)
        if before is not None:
            entry.at = before.at
            if before.node and before.node != node:
                self.problems.append(f"{key} was bound to {before.node} and then to {node or 'nothing'}")
            self._release(key, before)
        for condition in pod["status"].get("conditions", ()):
            if condition["type"] == "DisruptionTarget":
                self.evicted[entry.uid] = condition.get("reason", "")
                self.broken.setdefault(gang, condition.get("reason", ""))
        self.pods[key] = entry
        if node and (before is None or not before.node):
            entry.at = now
            self.binds.append((now, key))
        self._hold(key, entry)
        self._count(entry, now, bool(node), bool(node) and not entry.ended)

    def remove(self, key: str, now: float) -> None:
        """It is gone."""
        self.events += 1
        entry = self.pods.pop(key, None)
        if entry is not None:
            self._release(key, entry)
            self._count(entry, now, entry.phase == "Succeeded", False)
            if entry.gang in self.minima and not entry.ended:
                self.evicted.setdefault(entry.uid, GONE)
                self.broken.setdefault(entry.gang, GONE)

    def put_claim(self, key: str, claim: Json | None) -> None:
        """A new version of a claim."""
        if self.claim is not None:
            self.problems += self.claim(key, claim)

    def forget(self, gang: str) -> None:
        """Its owner takes it back: it has no minimum any more."""
        self.minima.pop(gang, None)
        self.between.pop(gang, None)

    def close(self, now: float) -> None:
        """No more comes: what is between now has been so until now."""
        for gang, since in self.between.items():
            self.spells.append((gang, since, now))

    def longest_between(self, after: float = 0.0) -> float:
        """Seconds that a gang stood between, counted from ``after``."""
        return max((end - max(begin, after) for _, begin, end in self.spells if end > after), default=0.0)

    def _hold(self, key: str, entry: Entry) -> None:
        if not entry.node or entry.ended:
            return
        held = self.held.setdefault(entry.node, {})
        for name, units in requested(entry.pod).items():
            held[name] = held.get(name, 0) + units
            has = self.nodes.get(entry.node, {}).get(name, 0)
            if held[name] > has:
                self.problems.append(f"{entry.node} has {has} of {name}; with {key} {held[name]} are taken")
        taken = self.devices.setdefault(entry.node, {})
        for card in self._cards(entry):
            if card in taken:
                self.problems.append(
                    f"card {card} of {entry.node} was given to {taken[card]} and {entry.uid}"
                )
            taken[card] = entry.uid
        for evaluator in self.judges:
            self.problems += evaluator.hold(key, entry)

    def _release(self, key: str, entry: Entry) -> None:
        if not entry.node or entry.ended:
            return
        held = self.held[entry.node]
        for name, units in requested(entry.pod).items():
            held[name] -= units
        taken = self.devices[entry.node]
        for card in self._cards(entry):
            taken.pop(card, None)
        for evaluator in self.judges:
            evaluator.release(key, entry)

    @staticmethod
    def _cards(entry: Entry) -> list[str]:
        """Those that it has whole. (Numbers of a pod that asks for none are those of a claim's devices.)"""
        if GPU not in requested(entry.pod):
            return []
        notes = entry.pod["metadata"].get("annotations", {})
        named = notes.get("windlass.dev/devices", "").split(",")
        return [card for card in named if card.isdigit() and card not in shares(notes)]

    def _count(self, entry: Entry, now: float, placed: bool, lives: bool) -> None:
        """A gang of which nobody lives any more does not stand between."""
        gang = entry.gang
        if not gang:
            return
        there, living = self.placed.setdefault(gang, set()), self.living.setdefault(gang, set())
        (there.add if placed else there.discard)(entry.uid)
        (living.add if lives else living.discard)(entry.uid)
        if living and len(there) < self.minima.get(gang, 1):
            self.between.setdefault(gang, now)
        elif gang in self.between:
            self.spells.append((gang, self.between.pop(gang), now))


class PodLog:
    """Follows the log into ``books`` on a thread of its own from :meth:`start` until :meth:`stop`."""

    def __init__(self, etcd_url: str, books: Books, clock: Callable[[], float] = time.monotonic) -> None:
        self.books = books
        self.lock = threading.Lock()
        self._url = etcd_url
        self._clock = clock
        self._revision = 0
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="pod log", daemon=True)

    def start(self) -> None:
        self._revision = self._newest() + 1
        self._thread.start()

    def stop(self) -> None:
        """Read what is there to read, and no more. Raises ``RuntimeError`` where that takes too long."""
        self.catch_up()
        self._stopped.set()
        self._thread.join(30)
        self.books.close(self._clock())

    def catch_up(self, seconds: float = 60.0) -> None:
        """Return when every version that is there now is in the books."""
        deadline = time.monotonic() + seconds
        wanted = self._newest_kept()
        while self._revision <= wanted:
            if time.monotonic() > deadline:
                raise RuntimeError(f"the log is read up to {self._revision}, and {wanted} is there")
            time.sleep(0.02)

    def _ask(self, path: str, body: Json) -> Json:
        request = urllib.request.Request(
            self._url + path, json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=10) as answer:
            return json.load(answer)

    def _newest(self) -> int:
        return int(self._ask("/v3/maintenance/status", {})["header"]["revision"])

    def _newest_kept(self) -> int:
        """The newest version of those objects that are there."""
        asked = {**_range(), "limit": 1, "sort_order": "DESCEND", "sort_target": "MOD", "keys_only": True}
        found = self._ask("/v3/kv/range", asked).get("kvs", [])
        return int(found[0]["mod_revision"]) if found else 0

    def _follow(self) -> None:
        while not self._stopped.is_set():
            try:
                self._read()
            except (OSError, http.client.HTTPException, ValueError):
                self._stopped.wait(0.1)  # etcd is down: nothing changes meanwhile

    def _read(self) -> None:
        address = urlsplit(self._url)
        connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=1.0)
        asked = {"create_request": {**_range(), "start_revision": str(self._revision)}}
        try:
            connection.request("POST", "/v3/watch", json.dumps(asked), {"Content-Type": "application/json"})
            answer = connection.getresponse()
            rest = b""
            while not self._stopped.is_set():
                chunk = answer.read1(1 << 20)
                if not chunk:
                    return
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    self._take(json.loads(line)["result"])
        finally:
            connection.close()

    def _take(self, told: Json) -> None:
        now = self._clock()
        with self.lock:
            for event in told.get("events", ()):
                kv = event["kv"]
                path = base64.b64decode(kv["key"]).decode()
                gone = event.get("type") == "DELETE"
                if path.startswith(_PODS) and gone:
                    self.books.remove(path.removeprefix(_PODS), now)
                elif path.startswith(_PODS):
                    self.books.put(path.removeprefix(_PODS), _object(kv), now)
                elif path.startswith(_CLAIMS):
                    self.books.put_claim(path.removeprefix(_CLAIMS), None if gone else _object(kv))
                self._revision = max(self._revision, int(kv["mod_revision"]) + 1)


def _object(kv: Json) -> Json:
    return json.loads(base64.b64decode(kv["value"]))


def _range() -> Json:
    return {"key": base64.b64encode(_BEGIN).decode(), "range_end": base64.b64encode(_END).decode()}
