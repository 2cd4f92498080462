"""Several requests in one HTTP request (``client.batching``).

Each is handled like a request of its own. Only writes are accepted, because the response
to a read may be a stream.
"""

from __future__ import annotations

import asyncio

import msgspec

from windlass.api.errors import failure
from windlass.client.batching import MEDIA_TYPE, BatchedRequest, BatchedResponse
from windlass.client.transport import Request, Response, whole
from windlass.server.apiserver import ApiServer
from windlass.server.presentation import responses
from windlass.server.request.users import UserInfo

_READS = frozenset({"GET", "HEAD", "OPTIONS"})
_requests = msgspec.msgpack.Decoder(list[BatchedRequest])
_encode = msgspec.msgpack.Encoder().encode


async def handle_batch(api: ApiServer, body: bytes, user: UserInfo) -> Response:
    """Handle the requests of a batch concurrently, and return their responses in order."""
    try:
        requests = _requests.decode(body)
    except msgspec.DecodeError as error:
        return responses.rejection(
            failure(400, "BadRequest", f"the body is not a batch of requests: {error}")
        )
    for one in requests:
        if one.method in _READS:
            message = f"{one.method} {one.path} is in a batch, which may contain writes only"
            return responses.rejection(failure(400, "BadRequest", message))
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(_handle(api, one, user)) for one in requests]
    return Response(200, {"content-type": MEDIA_TYPE}, _encode([task.result() for task in tasks]))


async def _handle(api: ApiServer, one: BatchedRequest, user: UserInfo) -> BatchedResponse:
    request = Request(one.method, one.path, one.query, one.headers, one.body)
    response = await api.handle(request, user)
    return BatchedResponse(response.status, dict(response.headers), await whole(response))
