"""Between a client and its connections: what a process that dies, or a network that is cut, does to requests."""

from __future__ import annotations

from collections.abc import Callable

from windlass.client.errors import UNREACHABLE, Unreachable
from windlass.client.transport import Request, Response, Transport


class FaultTransport:
    """``fault(request)`` is asked before each request: ``None`` lets it pass, ``"before"`` loses the request,
    ``"after"`` its answer."""

    def __init__(self, inner: Transport, fault: Callable[[Request], str | None]) -> None:
        self._inner = inner
        self._fault = fault

    async def request(self, request: Request) -> Response:
        lost = self._fault(request)
        if lost == "before":
            raise Unreachable(UNREACHABLE, "cut by the test", processed=False)
        response = await self._inner.request(request)
        if lost == "after":
            if response.stream is not None:
                await response.stream.aclose()
            raise Unreachable(UNREACHABLE, "cut by the test", processed=True)
        return response

    async def close(self) -> None:
        await self._inner.close()


class DiesAfterBinds:
    """A process that is gone after so many binds: nothing of it gets through any more, the watch included.

    ``last``: whether its last bind was carried out (``after``) or not (``before``)."""

    def __init__(self, binds: int, last: str = "before") -> None:
        self._left = binds
        self._last = last
        self.dead = False

    def __call__(self, request: Request) -> str | None:
        if self.dead:
            return "before"
        if not request.path.endswith("/binding"):
            return None
        if self._left > 0:
            self._left -= 1
            return None
        self.dead = True
        return self._last


__all__ = ["DiesAfterBinds", "FaultTransport"]
