"""Waiting for changes of several kinds at once: one thread and one client per watch."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from windlass.api.errors import StatusError, WindlassError
from windlass.api.resources import POD_GROUPS, PODS, VOLCANO_JOBS, Resource
from windlass.cli.invocation import Invocation

if TYPE_CHECKING:
    from windlass.client.blocking import BlockingClient

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
    """Rings whenever something watched changes. A watch that fails is tried again, until :meth:`close`."""

    def __init__(self, invocation: Invocation) -> None:
        self._invocation = invocation
        self._bells: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._closed = False

    def close(self) -> None:
        """Let the threads end: each does so with its next event, or when its server ends the watch."""
        self._closed = True

    @property
    def bells(self) -> queue.SimpleQueue[Any]:
        """Other threads may put what they like beside the changes (``None``)."""
        return self._bells

    def watch(self, *what: Watched) -> None:
        for watched in what:
            threading.Thread(target=self._follow, args=(watched,), daemon=True).start()

    def _follow(self, watched: Watched) -> None:
        clock = self._invocation.clock
        with closing(self._invocation.new_client()) as client:
            while not self._closed:
                begin = clock.monotonic()
                try:
                    self._hear(client, watched)
                except (StatusError, WindlassError):
                    clock.pause(_RETRY_SECONDS)
                if clock.monotonic() - begin < _RETRY_SECONDS:
                    clock.pause(_RETRY_SECONDS)  # a server that ends watches at once is not to be hammered
                self._bells.put(None)

    def _hear(self, client: BlockingClient, watched: Watched) -> None:
        """One watch, until it ends. Raises :class:`StatusError` and :class:`WindlassError`."""
        resource, namespace = watched.resource, watched.namespace
        labels, fields = watched.labels, watched.fields
        version = client.list(resource, namespace, labels=labels, fields=fields, limit=1).resource_version
        self._bells.put(None)
        for _ in client.watch(resource, namespace, labels=labels, fields=fields, resource_version=version):
            if self._closed:
                return
            self._bells.put(None)


def changes(invocation: Invocation, namespace: str | None) -> Iterator[None]:
    """Once at first, then whenever a job, a pod group or a pod changed (several changes may be one)."""
    with closing(Changes(invocation)) as watcher:
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
