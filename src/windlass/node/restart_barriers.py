"""Barriers at which the pods of a JobSet meet before they start together (JobSet's KEP-467).

JobSet's own agent is a container of each pod. On nodes of Windlass the node's agent does
what it does: it writes the restart attempt that a pod has reached on the pod, lets the
main containers start once the JobSet's controller has seen all pods at that attempt, and
restarts the containers of pods at former attempts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import msgspec

from windlass.api.fields import jobset
from windlass.client.informers import Informer


class _Metadata(msgspec.Struct, gc=False):
    name: str
    namespace: str = ""
    annotations: dict[str, str] | None = None


class _FailurePolicy(msgspec.Struct, gc=False):
    strategy: str = msgspec.field(name="restartStrategy", default="")


class _Spec(msgspec.Struct, gc=False):
    policy: _FailurePolicy | None = msgspec.field(name="failurePolicy", default=None)


class _Status(msgspec.Struct, gc=False):
    previous: int | None = msgspec.field(name="previousInPlaceRestartAttempt", default=None)
    current: int | None = msgspec.field(name="currentInPlaceRestartAttempt", default=None)


class _Wire(msgspec.Struct, gc=False):
    metadata: _Metadata
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)


@dataclass(frozen=True, slots=True)
class Barrier:
    """Counters of a JobSet. ``key``: ``namespace/name``.

    ``bypassed``: its pods do not wait for one another.
    ``previous``: pods at this attempt or a lower one must restart.
    ``current``: pods at this attempt may start.
    """

    key: str
    bypassed: bool
    previous: int | None
    current: int | None

    def next_attempt(self, passed: int | None) -> int:
        """Return the attempt of a pod that waits. ``passed``: the attempt at which it ran before."""
        return max(-1 if self.current is None else self.current, -1 if passed is None else passed) + 1

    def is_outdated(self, attempt: int) -> bool:
        return not self.bypassed and self.previous is not None and attempt <= self.previous

    def is_open(self, attempt: int) -> bool:
        return self.bypassed or attempt == self.current


_decode = msgspec.json.Decoder(_Wire).decode


def decode_barrier(data: msgspec.Raw) -> Barrier:
    wire = _decode(data)
    bypassed = (
        jobset.DISABLE_IN_PLACE in (wire.metadata.annotations or {})
        or wire.spec.policy is None
        or wire.spec.policy.strategy != jobset.IN_PLACE_RESTART
    )
    key = f"{wire.metadata.namespace}/{wire.metadata.name}"
    return Barrier(key, bypassed, wire.status.previous, wire.status.current)


class RestartBarriers:
    """Barriers of all JobSets. Keys are ``namespace/name``."""

    def __init__(self, job_sets: Informer[Barrier]) -> None:
        self._job_sets = job_sets
        self._waiting: dict[str, set[asyncio.Event]] = {}
        self._listeners: list[Callable[[Barrier], None]] = []
        job_sets.add_handler(self._changed, lambda _, new: self._changed(new), None)

    def get(self, key: str) -> Barrier | None:
        return self._job_sets.items.get(key)

    def add_listener(self, listener: Callable[[Barrier], None]) -> None:
        """Register a callback for changes of any JobSet."""
        self._listeners.append(listener)

    @contextmanager
    def changes(self, key: str) -> Iterator[asyncio.Event]:
        """Yield an event that is set whenever the JobSet changes."""
        changed = asyncio.Event()
        self._waiting.setdefault(key, set()).add(changed)
        try:
            yield changed
        finally:
            waiting = self._waiting[key]
            waiting.discard(changed)
            if not waiting:
                del self._waiting[key]

    def _changed(self, barrier: Barrier) -> None:
        for event in self._waiting.get(barrier.key, ()):
            event.set()
        for listener in self._listeners:
            listener(barrier)
