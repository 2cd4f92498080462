"""Choice of the backend of a connection. Pure."""

from __future__ import annotations

from collections.abc import Sequence

Backend = tuple[str, int]
"""Address and port."""
_MAX_CLIENTS = 4096
"""Maximum number of clients with a remembered backend."""


class Balancer:
    """Backends of one port of a Service: in turn, or the same for each client.

    ``affinity_seconds``: time for which a client keeps its backend after its last
    connection (``sessionAffinity: ClientIP``). 0: no affinity.
    """

    def __init__(self, backends: Sequence[Backend], affinity_seconds: float = 0.0) -> None:
        self._backends = list(backends)
        self._affinity_seconds = affinity_seconds
        self._next = 0
        self._clients: dict[str, tuple[Backend, float]] = {}

    @property
    def backends(self) -> Sequence[Backend]:
        return self._backends

    def change(self, backends: Sequence[Backend], affinity_seconds: float) -> None:
        """Replace the backends. Clients keep theirs if it is still among them."""
        self._backends = list(backends)
        self._affinity_seconds = affinity_seconds
        known = set(self._backends)
        self._clients = {client: kept for client, kept in self._clients.items() if kept[0] in known}

    def order(self, client: str, now: float) -> list[Backend]:
        """Return all backends in the order in which a connection of this client tries them."""
        if not self._backends:
            return []
        start = self._next % len(self._backends)
        kept = self._kept(client, now)
        if kept is None:
            self._next = start + 1
        else:
            start = self._backends.index(kept)
        return self._backends[start:] + self._backends[:start]

    def connected(self, client: str, backend: Backend, now: float) -> None:
        """Remember the backend to which a client is connected."""
        if not self._affinity_seconds:
            return
        self._clients.pop(client, None)
        while len(self._clients) >= _MAX_CLIENTS:
            del self._clients[next(iter(self._clients))]
        self._clients[client] = (backend, now)

    def _kept(self, client: str, now: float) -> Backend | None:
        if not self._affinity_seconds:
            return None
        kept = self._clients.get(client)
        if kept is None or now - kept[1] > self._affinity_seconds or kept[0] not in self._backends:
            return None
        return kept[0]
