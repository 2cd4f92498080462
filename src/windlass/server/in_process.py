"""In-process transport for tests and embedding programs.

It calls the server below HTTP. Authorization, admission and validation apply as usual.
"""

from __future__ import annotations

from windlass.client.transport import Request, Response
from windlass.server.apiserver import ApiServer
from windlass.server.request.users import ADMIN, UserInfo


class InProcessTransport:
    """Implements :class:`windlass.client.transport.Transport`."""

    def __init__(self, api: ApiServer, user: UserInfo = ADMIN) -> None:
        self._api = api
        self._user = user

    async def request(self, request: Request) -> Response:
        return await self._api.handle(request, self._user)

    async def close(self) -> None:
        """Do nothing: the caller owns the server."""
