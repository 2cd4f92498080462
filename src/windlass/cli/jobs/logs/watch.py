"""Changes of several kinds at once: one thread and one client per watch."""

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
"""Maximum interval between two drawings of a watched table in seconds, for the ages."""
_RETRY_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Watched:
    """One watch: a kind, and a selection of its objects."""

    resource: Resource
    namespace: str | None
    labels: str = ""
    fields: str = ""


class Changes:
    """Queue of signals for changes of watched objects.

    A watch that fails is restarted, until :meth:`close`.
    """

    def __init__(self, invocation: Invocation) -> None:
        self._invocation = invocation
        self._items: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._closed = False

    def close(self) -> None:
        """Let the threads end: each at its next event, or when its server ends the watch."""
        self._closed = True

    @property
    def items(self) -> queue.SimpleQueue[Any]:
        """Queue of changes (``None``). Other threads may add items of their own."""
        return self._items

    def watch(self, *what: Watched) -> None:
        for watched in what:
            threading.Thread(target=self._follow, args=(watched,), daemon=True).start()

    def _follow(self, watched: Watched) -> None:
        clock = self._invocation.clock
        with closing(self._invocation.new_client()) as client:
            while not self._closed:
                begin = clock.monotonic()
                try:
                    self._watch_once(client, watched)
                except (StatusError, WindlassError):
                    clock.pause(_RETRY_SECONDS)
                if clock.monotonic() - begin < _RETRY_SECONDS:
                    clock.pause(_RETRY_SECONDS)  # limits the rate if the server ends each watch at once
                self._items.put(None)

    def _watch_once(self, client: BlockingClient, watched: Watched) -> None:
        """Watch once, until the watch ends.

        Raises :class:`StatusError` and :class:`WindlassError`.
        """
        resource, namespace = watched.resource, watched.namespace
        labels, fields = watched.labels, watched.fields
        version = client.list(resource, namespace, labels=labels, fields=fields, limit=1).resource_version
        self._items.put(None)
        for _ in client.watch(resource, namespace, labels=labels, fields=fields, resource_version=version):
            if self._closed:
                return
            self._items.put(None)


def changes(invocation: Invocation, namespace: str | None) -> Iterator[None]:
    """Yield once at first, then after changes of jobs, pod groups and pods.

    Several changes may cause one item.
    """
    with closing(Changes(invocation)) as watcher:
        watcher.watch(*(Watched(kind, namespace) for kind in (VOLCANO_JOBS, POD_GROUPS, PODS)))
        while True:
            yield
            try:
                watcher.items.get(timeout=_AGE_SECONDS)
            except queue.Empty:
                continue
            invocation.clock.pause(0.05)
            while not watcher.items.empty():
                watcher.items.get()
