"""Event correlation of client-go: repeats, similar events, spam filter. Pure.

- A repeated event (source, object, type, reason, message) increments the count of the
  existing one.
- More than ten different messages of one source, object, type and reason within ten
  minutes become one event "(combined from similar events): …".
- Each source and object has a burst of 25 events and one more every five minutes. The
  rest is dropped.

All three memories hold the 4,096 keys used last.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from windlass.kits.clock import Clock
from windlass.kits.timestamps import rfc3339

CACHE_SIZE = 4096
SIMILAR_EVENTS = 10
SIMILAR_SECONDS = 600.0
BURST = 25
REFILL_SECONDS = 300.0
COMBINED = "(combined from similar events): "
MESSAGE_LIMIT = 1024

V = TypeVar("V")
Key = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ObjectRef:
    """Reference to the object of an event."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str = ""
    resource_version: str = ""
    field_path: str = ""

    @staticmethod
    def of(obj: dict[str, Any], field_path: str = "") -> ObjectRef:
        """Return the reference to an object that has apiVersion and kind."""
        metadata = obj["metadata"]
        return ObjectRef(
            obj["apiVersion"],
            obj["kind"],
            metadata.get("namespace", ""),
            metadata["name"],
            metadata.get("uid", ""),
            metadata.get("resourceVersion", ""),
            field_path,
        )

    def as_dict(self) -> dict[str, str]:
        fields = {
            "apiVersion": self.api_version,
            "kind": self.kind,
            "namespace": self.namespace,
            "name": self.name,
            "uid": self.uid,
            "resourceVersion": self.resource_version,
            "fieldPath": self.field_path,
        }
        return {name: value for name, value in fields.items() if value}


@dataclass(frozen=True, slots=True)
class Correlated:
    """Event to write.

    ``repeat``: true if it exists (or is about to), so that only count, time and message
        change.
    """

    event: dict[str, Any]
    repeat: bool


@dataclass(slots=True)
class _Observed:
    name: str
    count: int
    first: str


@dataclass(slots=True)
class _Similar:
    last: float
    messages: set[str] = field(default_factory=set)


@dataclass(slots=True)
class _Bucket:
    """Token bucket without waiting."""

    tokens: float
    at: float

    def take(self, now: float) -> bool:
        self.tokens = min(float(BURST), self.tokens + max(0.0, now - self.at) / REFILL_SECONDS)
        self.at = now
        if self.tokens < 1.0:
            return False
        self.tokens -= 1.0
        return True


class _Recent(Generic[V]):
    """Keys that were used last."""

    def __init__(self) -> None:
        self._entries: OrderedDict[Key, V] = OrderedDict()

    def get(self, key: Key) -> V | None:
        value = self._entries.get(key)
        if value is not None:
            self._entries.move_to_end(key)
        return value

    def put(self, key: Key, value: V) -> None:
        self._entries[key] = value
        self._entries.move_to_end(key)
        if len(self._entries) > CACHE_SIZE:
            self._entries.popitem(last=False)


class EventCorrelator:
    """Correlator: pass each event to ``observe``, and write the result."""

    def __init__(self, component: str, clock: Clock, host: str = "") -> None:
        self._component = component
        self._host = host
        self._clock = clock
        self._observed: _Recent[_Observed] = _Recent()
        self._similar: _Recent[_Similar] = _Recent()
        self._buckets: _Recent[_Bucket] = _Recent()
        self._serial = 0

    def observe(
        self, ref: ObjectRef, kind: str, reason: str, message: str, *, vital: bool = False
    ) -> Correlated | None:
        """Return the event to write; ``None`` if it exceeds the rate.

        ``kind``: Normal or Warning.
        ``vital``: true if it is never dropped.
        """
        now = self._clock.now()
        message = shorten(message)
        identity: Key = (
            self._component,
            self._host,
            ref.kind,
            ref.namespace,
            ref.name,
            ref.uid,
            ref.api_version,
        )
        key: Key = (*identity, ref.field_path, kind, reason, message)
        family: Key = (*identity, kind, reason)
        if self._folded(family, message, now):
            key = family
            message = shorten(COMBINED + message)
        known = self._observed.get(key)
        stamp = rfc3339(now)
        if known is None:
            known = _Observed(self._name(ref, now), 0, stamp)
        known.count += 1
        self._observed.put(key, known)
        if not self._accepted(identity, now) and not vital:
            return None
        event = self._event(ref, kind, reason, message)
        event["metadata"]["name"] = known.name
        event.update(count=known.count, firstTimestamp=known.first, lastTimestamp=stamp)
        return Correlated(event, known.count > 1)

    def _folded(self, family: Key, message: str, now: float) -> bool:
        record = self._similar.get(family)
        if record is None or now - record.last > SIMILAR_SECONDS:
            record = _Similar(now)
        record.messages.add(message)
        record.last = now
        self._similar.put(family, record)
        if len(record.messages) < SIMILAR_EVENTS:
            return False
        record.messages.pop()
        return True

    def _accepted(self, identity: Key, now: float) -> bool:
        bucket = self._buckets.get(identity)
        if bucket is None:
            bucket = _Bucket(float(BURST), now)
            self._buckets.put(identity, bucket)
        return bucket.take(now)

    def _name(self, ref: ObjectRef, now: float) -> str:
        """Return client-go's ``NAME.NANOSECONDS`` in hex; a serial number makes names unique."""
        self._serial += 1
        return f"{ref.name[:230]}.{int(now * 1e6) * 1000 + self._serial % 1000:x}"

    def _event(self, ref: ObjectRef, kind: str, reason: str, message: str) -> dict[str, Any]:
        source = {"component": self._component}
        if self._host:
            source["host"] = self._host
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"namespace": ref.namespace or "default"},
            "involvedObject": ref.as_dict(),
            "reason": reason,
            "message": message,
            "type": kind,
            "source": source,
            "reportingComponent": self._component,
            "reportingInstance": self._host,
        }


def shorten(message: str) -> str:
    """Return the text, cut to 1,024 bytes, the API's limit for event texts."""
    raw = message.encode()
    if len(raw) <= MESSAGE_LIMIT:
        return message
    return raw[: MESSAGE_LIMIT - 3].decode("utf-8", "ignore") + "..."
