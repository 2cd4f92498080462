"""The transport of tests and embedders: it enters the server after HTTP decoding.

So a request passes authorisation, admission and validation like any other; only bytes on a wire are left out.
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
        """Nothing to be closed: the server belongs to whoever made it."""
