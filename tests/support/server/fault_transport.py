"""Between a client and its connections: what a process that dies, or a network that is cut, does to requests."""

from __future__ import annotations

import json
import random
from collections.abc import Callable

from windlass.client.errors import UNREACHABLE, Unreachable
from windlass.client.transport import Request, Response, Transport


class FaultTransport:
    """``fault(request)`` is asked before each request: ``None`` lets it pass, ``"before"`` loses the request,
    ``"after"`` its answer, and a response takes the server's place."""

    def __init__(self, inner: Transport, fault: Callable[[Request], str | Response | None]) -> None:
        self._inner = inner
        self._fault = fault
        self.binding = 0
        """Bindings and evictions that the server has not answered yet."""

    async def request(self, request: Request) -> Response:
        lost = self._fault(request)
        if isinstance(lost, Response):
            return lost
        if lost == "before":
            raise Unreachable(UNREACHABLE, "cut by the test", processed=False)
        binds = request.path.endswith(("/binding", "/eviction"))
        self.binding += binds
        try:
            response = await self._inner.request(request)
        finally:
            self.binding -= binds
        if lost == "after":
            if response.stream is not None:
                await response.stream.aclose()
            raise Unreachable(UNREACHABLE, "cut by the test", processed=True)
        return response

    async def close(self) -> None:
        await self._inner.close()


class DiesAfterBinds:
    """A process that is gone after so many binds (or other posts, ``to``): nothing of it gets through any more, the
    watch included.

    ``last``: whether its last bind was carried out (``after``) or not (``before``). Of a process that is connected by
    :meth:`cut`, :attr:`settled` says that it is dead, and that the server has answered what it had asked for before."""

    def __init__(self, binds: int, last: str = "before", to: str = "/binding") -> None:
        self._left = binds
        self._last = last
        self._to = to
        self.dead = False
        self._cut: list[FaultTransport] = []

    def cut(self, inner: Transport) -> FaultTransport:
        self._cut.append(FaultTransport(inner, self))
        return self._cut[-1]

    @property
    def settled(self) -> bool:
        return self.dead and not any(transport.binding for transport in self._cut)

    def __call__(self, request: Request) -> str | None:
        if self.dead:
            return "before"
        if not request.path.endswith(self._to):
            return None
        if self._left > 0:
            self._left -= 1
            return None
        self.dead = True
        return self._last


class Storm:
    """Loses, delays and refuses some of the writes, by chance; watches and lists pass. Then, after so many binds, the
    process is gone."""

    def __init__(self, rng: random.Random, binds: int, chance: float) -> None:
        self._rng = rng
        self._chance = chance
        self.death = DiesAfterBinds(binds, rng.choice(["before", "after"]))

    def __call__(self, request: Request) -> str | Response | None:
        verdict = self.death(request)
        if verdict is not None or request.method == "GET" or self._rng.random() >= self._chance:
            return verdict
        code = self._rng.choice([0, 0, 429, 503, 500])
        if not code:
            return self._rng.choice(["before", "after"])
        status = {
            "kind": "Status",
            "apiVersion": "v1",
            "status": "Failure",
            "code": code,
            "message": "a storm",
        }
        headers = {"content-type": "application/json"}
        if code == 429:
            headers["retry-after"] = "0"
        return Response(code, headers, json.dumps(status).encode())


__all__ = ["DiesAfterBinds", "FaultTransport", "Storm"]
