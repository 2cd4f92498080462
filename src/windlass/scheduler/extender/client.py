"""HTTP client of an extender that takes part in decisions (Volcano's plugin ``extender``).

A decision waits for the response, and with it the whole scheduler, since nothing else
happens in its event loop meanwhile. So requests run on a thread with an event loop of
its own, and each has a timeout as a whole. After a request without a response, nothing
more is sent in the round. All requests of a round together take at most
:data:`ROUND_SECONDS`, well below what a leader needs to renew its lease. What was not
sent for that reason can be sent in the next round.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import msgspec

from windlass.api.errors import WindlassError
from windlass.client.connection import Connection
from windlass.client.http import HttpOptions, HttpTransport
from windlass.client.transport import Request, TooLong, Transport, whole
from windlass.kits.clock import Clock
from windlass.model.cluster.cluster_model import ClusterModel
from windlass.observe import logs
from windlass.scheduler.extender.protocol import ExtenderEncoder, Json
from windlass.spi.extender import (
    ExtenderCall,
    ExtenderEndpoints,
    ExtenderReply,
    ExtenderRequest,
    ExtenderUnavailable,
    TakesExtenderClient,
)

ROUND_SECONDS = 4.0
"""Timeout of all requests of one round in seconds."""
MAX_RESPONSE_BYTES = 10 << 20
"""Maximum size of a response in bytes, as in Volcano."""
_GRACE_SECONDS = 1.0
log = logs.get("scheduler")
MakeTransport = Callable[[], Transport]
Observe = Callable[[str, str, float], None]
T = TypeVar("T")


def transport_to(endpoints: ExtenderEndpoints, *, concurrency: int) -> HttpTransport:
    """Return a transport to an extender's address."""
    seconds = endpoints.timeout_seconds
    options = replace(HttpOptions(), limit=concurrency, connect_seconds=seconds, response_seconds=seconds)
    return HttpTransport(Connection(server=endpoints.url), options=options)


class ExtenderConnection:
    """Blocking requests, sent by a thread. The thread starts with the first of them."""

    def __init__(self, make_transport: MakeTransport) -> None:
        self._make_transport = make_transport
        self._loop: asyncio.AbstractEventLoop | None = None
        self._transport: Transport | None = None
        self._thread: threading.Thread | None = None

    def request(self, request: Request, seconds: float) -> tuple[int, bytes]:
        """Send a request, and return status and body of the response.

        Raises ``TimeoutError`` after ``seconds``, and the errors of the transport.
        """
        loop = self._loop or self._start()
        future = asyncio.run_coroutine_threadsafe(self._send(request, seconds), loop)
        try:
            return future.result(seconds + _GRACE_SECONDS)
        except TimeoutError:
            future.cancel()
            raise

    async def _send(self, request: Request, seconds: float) -> tuple[int, bytes]:
        if self._transport is None:
            self._transport = self._make_transport()
        async with asyncio.timeout(seconds):
            response = await self._transport.request(request)
            return response.status, await whole(response, MAX_RESPONSE_BYTES)

    def _start(self) -> asyncio.AbstractEventLoop:
        loop = self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, args=(loop,), name="windlass-extender", daemon=True)
        self._thread.start()
        return loop

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            loop.run_forever()
        finally:
            if self._transport is not None:
                loop.run_until_complete(self._transport.close())
            loop.close()

    def close(self) -> None:
        """End the thread and its connections."""
        loop, thread = self._loop, self._thread
        self._loop = self._thread = None
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            thread.join(_GRACE_SECONDS)


class HttpExtender:
    """Implements :class:`~windlass.spi.extender.ExtenderClient`.

    ``observe(call, result, seconds)`` is called for each request. The result is
    ``answered`` or ``failed``.
    """

    def __init__(
        self,
        endpoints: ExtenderEndpoints,
        connection: ExtenderConnection,
        encoder: ExtenderEncoder,
        *,
        clock: Clock,
        observe: Observe | None = None,
    ) -> None:
        self._endpoints = endpoints
        self._connection = connection
        self._encoder = encoder
        self._clock = clock
        self._observe = observe
        self._until = 0.0
        self._failure = ""
        """Reason why nothing more is sent in this round."""

    def open(self) -> None:
        self._until = self._clock.monotonic() + ROUND_SECONDS
        self._failure = ""
        if self._endpoints.verbs.get(ExtenderCall.OPEN):
            response = self._send(ExtenderCall.OPEN, self._encoder.session())
            if isinstance(response, ExtenderUnavailable) and not self._endpoints.ignorable:
                self._failure = self._failure or response.why

    def close(self) -> None:
        if self._endpoints.verbs.get(ExtenderCall.CLOSE):
            self._send(ExtenderCall.CLOSE, {})

    def ask(self, request: ExtenderRequest) -> ExtenderReply | ExtenderUnavailable:
        response = self._send(request.call, self._body(request))
        if isinstance(response, ExtenderUnavailable):
            return response
        return _decode(request.call, response)

    def _body(self, request: ExtenderRequest) -> Json:
        encoder, placements = self._encoder, dict(request.placements)
        match request.call:
            case ExtenderCall.PREEMPTABLE | ExtenderCall.RECLAIMABLE:
                victims = [encoder.task(key) for key in request.others]
                return {"evictor": encoder.task(request.task), "evictees": victims}
            case ExtenderCall.OVERUSED:
                return {"queue": encoder.queue(request.queue)}
            case ExtenderCall.ENQUEUEABLE | ExtenderCall.ENQUEUED | ExtenderCall.READY:
                return {"job": encoder.job(request.group, placements)}
            case ExtenderCall.ALLOCATE:
                return {"task": encoder.task(request.task, placements)}
            case _:
                return {"task": encoder.removed_task(request.task, placements)}

    def _send(self, call: ExtenderCall, body: Json) -> bytes | ExtenderUnavailable:
        if self._failure:
            return ExtenderUnavailable(self._failure)
        start = self._clock.monotonic()
        left = self._until - start
        if left <= 0:
            return ExtenderUnavailable(
                f"the {ROUND_SECONDS:g} s for the requests of one round are over", later=True
            )
        response = self._exchange(call, body, min(left, self._endpoints.timeout_seconds))
        failed = isinstance(response, ExtenderUnavailable)
        if failed:
            log.warning(
                "extender failed", verb=str(call), why=response.why, ignored=self._endpoints.ignorable
            )
        if self._observe is not None:
            self._observe(str(call), "failed" if failed else "answered", self._clock.monotonic() - start)
        return response

    def _exchange(self, call: ExtenderCall, body: Json, seconds: float) -> bytes | ExtenderUnavailable:
        path = f"/{self._endpoints.verbs[call].lstrip('/')}"
        headers = {"content-type": "application/json", "accept": "application/json"}
        request = Request("POST", path, headers=headers, body=msgspec.json.encode(body))
        try:
            status, content = self._connection.request(request, seconds)
        except TimeoutError:
            self._failure = f"{call}: no answer within {seconds:.3g} s"
            return ExtenderUnavailable(self._failure)
        except TooLong as error:
            return ExtenderUnavailable(f"{call}: {error}")
        except WindlassError as error:
            self._failure = f"{call}: {error}"
            return ExtenderUnavailable(self._failure)
        return content if status == 200 else ExtenderUnavailable(f"{call}: status {status}")


class _Victim(msgspec.Struct):
    uid: str = ""


class _Response(msgspec.Struct):
    """Union of all responses. In that of ``jobReady``, ``status`` is a boolean."""

    status: int | bool = 0
    overused: bool = False
    victims: list[_Victim] = []
    errormessage: str = ""


def _decode(call: ExtenderCall, body: bytes) -> ExtenderReply | ExtenderUnavailable:
    if call is ExtenderCall.ENQUEUED:
        return ExtenderReply()
    try:
        response = decode_like_go(body, _Response)
    except msgspec.MsgspecError as error:
        return ExtenderUnavailable(f"{call}: invalid response: {error}")
    if isinstance(response.status, bool) is not (call is ExtenderCall.READY) and response.status != 0:
        return ExtenderUnavailable(f"{call}: invalid response: status is {response.status!r}")
    if call is ExtenderCall.READY:
        return ExtenderReply(yes=bool(response.status), rejection=response.errormessage)
    victims = frozenset(task.uid for task in response.victims)
    return ExtenderReply(int(response.status), response.overused, victims, response.errormessage)


def decode_like_go(body: bytes, kind: type[T]) -> T:
    """Decode JSON as Go does: field names in any case, nulls left out.

    ``kind`` has lower-case field names. Raises ``msgspec.MsgspecError``.
    """
    return msgspec.convert(_lower_case(msgspec.json.decode(body)), kind)


def _lower_case(value: Any) -> Any:
    """Lower the names of the outer fields and of victims, and remove nulls."""
    if isinstance(value, list):
        return [_lower_case(item) for item in value]
    if not isinstance(value, dict):
        return value
    fields = {str(name).lower(): field for name, field in value.items() if field is not None}
    return {**fields, "victims": _lower_case(fields["victims"])} if "victims" in fields else fields


class ExtenderClients:
    """Gives each plugin in force the extender client that it needs."""

    def __init__(self, model: ClusterModel, *, clock: Clock, observe: Observe | None = None) -> None:
        self._encoder = ExtenderEncoder(model)
        self._clock = clock
        self._observe = observe
        self._connections: list[ExtenderConnection] = []

    def serve(self, plugins: Iterable[object]) -> None:
        """Connect the plugins in force, and close earlier connections."""
        self.close()
        for plugin in plugins:
            if isinstance(plugin, TakesExtenderClient):
                endpoints = plugin.endpoints
                connection = ExtenderConnection(partial(transport_to, endpoints, concurrency=1))
                self._connections.append(connection)
                client = HttpExtender(
                    endpoints, connection, self._encoder, clock=self._clock, observe=self._observe
                )
                plugin.take_extender_client(client)

    def session(self) -> Json:
        """Return the body that begins a round."""
        return self._encoder.session()

    def close(self) -> None:
        for connection in self._connections:
            connection.close()
        self._connections = []
