"""Waiting for changes of several kinds at once: one thread and one client per watch."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from windlass.api.errors import StatusError, WindlassError
from windlass.api.resources import POD_GROUPS, PODS, VOLCANO_JOBS, Resource
from windlass.cli.invocation import Invocation

_AGE_SECONDS = 5.0
"""A watched table is drawn anew at least this often, for the ages."""
_RETRY_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Watched:
    """One watch: a kind, and which objects of it."""

    resource: Resource
    namespace: str | None
    labels: str = ""
    fields: str = ""


class Changes:
    """Rings whenever something watched changes. Errors of a watch are kept and tried again."""

    def __init__(self, invocation: Invocation) -> None:
        self._invocation = invocation
        self._bells: queue.SimpleQueue[Any] = queue.SimpleQueue()

    @property
    def bells(self) -> queue.SimpleQueue[Any]:
        """Other threads may put what they like beside the changes (``None``)."""
        return self._bells

    def watch(self, *what: Watched) -> None:
        for watched in what:
            threading.Thread(target=self._follow, args=(watched,), daemon=True).start()

    def _follow(self, watched: Watched) -> None:
        client = self._invocation.new_client()
        clock = self._invocation.clock
        while True:
            begin = clock.monotonic()
            try:
                version = client.list(
                    watched.resource,
                    watched.namespace,
                    labels=watched.labels,
                    fields=watched.fields,
                    limit=1,
                ).resource_version
                self._bells.put(None)
                for _ in client.watch(
                    watched.resource,
                    watched.namespace,
                    labels=watched.labels,
                    fields=watched.fields,
                    resource_version=version,
                ):
                    self._bells.put(None)
            except (StatusError, WindlassError):
                clock.pause(_RETRY_SECONDS)
            if clock.monotonic() - begin < _RETRY_SECONDS:
                clock.pause(_RETRY_SECONDS)  # a server that ends watches at once is not to be hammered
            self._bells.put(None)


def changes(invocation: Invocation, namespace: str | None) -> Iterator[None]:
    """Once at first, then whenever a job, a pod group or a pod changed (several changes may be one)."""
    watcher = Changes(invocation)
    watcher.watch(*(Watched(kind, namespace) for kind in (VOLCANO_JOBS, POD_GROUPS, PODS)))
    while True:
        yield
        try:
            watcher.bells.get(timeout=_AGE_SECONDS)
        except queue.Empty:
            continue
        invocation.clock.pause(0.05)
        while not watcher.bells.empty():
            watcher.bells.get()
