"""Asyncio client: each verb of the API on any transport.

Objects are plain dicts, or a msgspec Struct type given as ``type``. A rejected request
raises ``StatusError``, an unreachable server ``Unreachable``. Retries follow
``client.retries``.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Mapping, Sequence
from functools import wraps
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, TypeVar, overload

import msgspec
from msgspec.structs import replace

from windlass.api.errors import StatusError
from windlass.api.resources import Resource
from windlass.client import responses, verbs
from windlass.client.errors import Unreachable
from windlass.client.listing import ListSplitter
from windlass.client.outages import Outages
from windlass.client.responses import ListMeta, ListResult, WatchEvent
from windlass.client.retries import RetryPolicy, wait_after
from windlass.client.transport import ByteStream, Request, Response, Transport, whole
from windlass.kits.backoff import Backoff
from windlass.kits.clock import Clock
from windlass.kits.rng import Random

P = ParamSpec("P")
T = TypeVar("T")
PAGE = 5000
"""Number of objects per request of a whole list."""
_EXPIRED_RESTARTS = 3


def _answered(
    build: Callable[P, Request],
) -> Callable[Concatenate[Client, P], Coroutine[Any, Any, dict[str, Any]]]:
    """Return a method that sends the request of ``build`` and decodes the response."""

    @wraps(build)
    async def verb(self: Client, /, *args: P.args, **options: P.kwargs) -> dict[str, Any]:
        return responses.decoded(dict, await self.call(build(*args, **options)))

    return verb


def _done(build: Callable[P, Request]) -> Callable[Concatenate[Client, P], Coroutine[Any, Any, None]]:
    """Return a method that sends the request of ``build`` and ignores the response body."""

    @wraps(build)
    async def verb(self: Client, /, *args: P.args, **options: P.kwargs) -> None:
        await self.call(build(*args, **options))

    return verb


class Client:
    """Client with one identity on one server.

    ``on_warning``: receives the texts of the server's Warning headers.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        user_agent: str = "windlass",
        clock: Clock,
        rng: Random,
        retries: RetryPolicy | None = None,
    ) -> None:
        self.transport = transport
        self.on_warning: Callable[[str], None] | None = None
        self._clock = clock
        self._rng = rng
        self._user_agent = user_agent
        self._retries = retries or RetryPolicy()
        self.outages = Outages(clock)

    async def close(self) -> None:
        await self.transport.close()

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # Below the verbs.

    async def request(self, request: Request) -> Response:
        """Send a request once and return its response. The caller has to close a stream in it."""
        headers = {**request.headers, "user-agent": self._user_agent}
        try:
            response = await self.transport.request(replace(request, headers=headers))
        except Unreachable:
            self.outages.failed(request.method)
            raise
        self.outages.answered(request.method, response.status)
        return response

    async def call(self, request: Request) -> bytes:
        """Send a request, with retries, and return the body of a successful response.

        Raises :class:`StatusError` and :class:`Unreachable`.
        """
        response = await self._successful(request)
        return await whole(response)

    async def open(self, request: Request) -> ByteStream:
        """Like :meth:`call`, for a streamed response. The caller must exhaust it or call ``aclose``."""
        response = await self._successful(request)
        return response.stream if response.stream is not None else _single(response.body)

    async def _successful(self, request: Request) -> Response:
        policy = self._retries
        backoff = None
        attempt = 1
        while True:
            try:
                response = await self.request(request)
                if response.status < 300:
                    self._hand_on_warnings(response.headers)
                    return response
                problem: StatusError | Unreachable = responses.error(
                    response.status, response.headers, await whole(response)
                )
            except Unreachable as unreachable:
                problem = unreachable
            if backoff is None:
                backoff = Backoff(self._rng, policy.initial_seconds, 2.0, policy.cap_seconds, 1.0)
            seconds = wait_after(problem, request, policy, backoff) if attempt < policy.attempts else None
            if seconds is None:
                if isinstance(problem, StatusError):
                    self._hand_on_warnings(problem.headers)
                raise problem
            attempt += 1
            await self._clock.sleep(seconds)

    def _hand_on_warnings(self, headers: Mapping[str, str]) -> None:
        if self.on_warning is not None and "warning" in headers:
            for text in responses.warnings(headers):
                self.on_warning(text)

    # Reading.

    @overload
    async def get(
        self,
        resource: Resource,
        name: str,
        namespace: str | None = None,
        *,
        subresource: str | None = None,
    ) -> dict[str, Any]: ...
    @overload
    async def get(
        self,
        resource: Resource,
        name: str,
        namespace: str | None = None,
        *,
        subresource: str | None = None,
        type: type[T],
    ) -> T: ...
    async def get(
        self,
        resource: Resource,
        name: str,
        namespace: str | None = None,
        *,
        subresource: str | None = None,
        type: type[Any] = dict,
    ) -> Any:
        return responses.decoded(type, await self.call(verbs.get(resource, name, namespace, subresource)))

    async def find(
        self, resource: Resource, name: str, namespace: str | None = None
    ) -> dict[str, Any] | None:
        """Like :meth:`get`, but return ``None`` if the object does not exist."""
        try:
            return await self.get(resource, name, namespace)
        except StatusError as problem:
            if problem.code == 404 and problem.details.get("name") == name:
                return None
            raise

    @overload
    async def list(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        labels: str = "",
        fields: str = "",
        limit: int = 0,
    ) -> ListResult[dict[str, Any]]: ...
    @overload
    async def list(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        labels: str = "",
        fields: str = "",
        limit: int = 0,
        type: type[T],
    ) -> ListResult[T]: ...
    async def list(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        labels: str = "",
        fields: str = "",
        limit: int = 0,
        type: type[Any] = dict,
    ) -> ListResult[Any]:
        """Return all objects at the newest state.

        They are read in pages of 5,000. The list restarts if the snapshot of its pages
        expires. With ``limit``, only the first objects are returned, and
        ``continue_token`` of the result is the argument of :meth:`list_page`.
        """
        if limit:
            return await self.list_page(
                resource, namespace, labels=labels, fields=fields, limit=limit, type=type
            )
        restarts = 0
        while True:
            items: list[Any] = []
            token = ""
            try:
                while True:
                    page = await self.list_page(
                        resource,
                        namespace,
                        labels=labels,
                        fields=fields,
                        limit=PAGE,
                        continue_token=token,
                        type=type,
                    )
                    items += page.items
                    token = page.continue_token
                    if not token:
                        return ListResult(items, page.resource_version)
            except StatusError as problem:
                restarts += 1
                if not token or not responses.is_expired(problem) or restarts > _EXPIRED_RESTARTS:
                    raise

    async def list_page(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        labels: str = "",
        fields: str = "",
        limit: int = 0,
        continue_token: str = "",
        resource_version: str = "",
        match: str = "",
        type: type[Any] = dict,
    ) -> ListResult[Any]:
        """Return one page.

        ``resource_version`` and ``match`` as in the API; unset: the newest state.
        """
        request = verbs.list_(
            resource,
            namespace,
            labels=labels,
            fields=fields,
            limit=limit,
            continue_token=continue_token,
            resource_version=resource_version,
            match=match,
        )
        return responses.list_result(resource, type, await self.call(request))

    async def listing(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        labels: str = "",
        fields: str = "",
        limit: int = 0,
        continue_token: str = "",
        resource_version: str = "",
    ) -> Listing:
        """Like :meth:`list_page`, but yields objects while the response is still arriving.

        The caller must exhaust the result or call its ``aclose``.
        """
        request = verbs.list_(
            resource,
            namespace,
            labels=labels,
            fields=fields,
            limit=limit,
            continue_token=continue_token,
            resource_version=resource_version,
        )
        return Listing(resource, await self.open(request))

    def watch(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        labels: str = "",
        fields: str = "",
        resource_version: str = "",
        timeout_seconds: int | None = None,
        bookmarks: bool = True,
        initial_events: bool = False,
    ) -> Watch:
        """Open a single watch.

        Usage: ``async with client.watch(…) as watch: async for batch in watch: …``. It
        ends when the server ends it. Informers add the rest (resuming, lists, caches).
        """
        request = verbs.watch(
            resource,
            namespace,
            labels=labels,
            fields=fields,
            resource_version=resource_version,
            timeout_seconds=timeout_seconds,
            bookmarks=bookmarks,
            initial_events=initial_events,
        )
        return Watch(self, request)

    async def logs(self, namespace: str, name: str, **options: Any) -> ByteStream:
        """Return a container's output; options as in ``verbs.logs``.

        The caller must exhaust it or call ``aclose``.
        """
        return await self.open(verbs.logs(namespace, name, **options))

    # Writing.

    create = _answered(verbs.create)
    update = _answered(verbs.update)
    patch = _answered(verbs.patch)
    delete = _answered(verbs.delete)
    delete_collection = _answered(verbs.delete_collection)
    bind = _done(verbs.bind)
    evict = _done(verbs.evict)


class Listing:
    """List response that is still arriving. It yields batches of undecoded objects.

    ``metadata`` is valid once it has ended.
    """

    def __init__(self, resource: Resource, stream: ByteStream) -> None:
        self._stream = stream
        self._splitter = ListSplitter(f"the list of {resource.qualified}")
        self._ended = False

    @property
    def metadata(self) -> ListMeta:
        return self._splitter.metadata

    async def aclose(self) -> None:
        """Stop reading."""
        await self._stream.aclose()

    def __aiter__(self) -> Listing:
        return self

    async def __anext__(self) -> Sequence[msgspec.Raw]:
        """Return the next objects.

        Raises :class:`Unreachable` if the stream breaks, or is not a list.
        """
        while not self._ended:
            try:
                objects = self._splitter.feed(await self._stream.__anext__())
            except StopAsyncIteration:
                self._ended = True
                objects = self._splitter.finish()
            if objects:
                return objects
        raise StopAsyncIteration


class Watch:
    """Open watch: an async context manager that yields lists of :class:`WatchEvent`."""

    def __init__(self, client: Client, request: Request) -> None:
        self._client = client
        self._request = request
        self._stream: ByteStream | None = None
        self._lines = responses.LineSplitter()

    async def __aenter__(self) -> Watch:
        """Send the request once, without retries.

        Raises :class:`StatusError` and :class:`Unreachable`.
        """
        response = await self._client.request(self._request)
        if response.status >= 300:
            raise responses.error(response.status, response.headers, await whole(response))
        self._client._hand_on_warnings(response.headers)
        self._stream = response.stream if response.stream is not None else _single(response.body)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._stream is not None:
            await self._stream.aclose()

    def __aiter__(self) -> Watch:
        return self

    async def __anext__(self) -> list[WatchEvent]:
        """Return the events that have arrived, at least one.

        Raises :class:`Unreachable` if the stream breaks.
        """
        if self._stream is None:
            raise RuntimeError("a watch is used as an async context manager")
        while True:
            chunk = await self._stream.__anext__()
            if events := self._lines.feed(chunk):
                return events

    async def objects(self, type: type[Any] = dict) -> AsyncIterator[tuple[str, Any]]:
        """Yield single decoded events, including bookmarks.

        An ERROR event is raised as :class:`StatusError`.
        """
        decode = responses.decoder(type)
        async for batch in self:
            for event in batch:
                yield responses.watched(event, decode)


async def _single(body: bytes) -> AsyncGenerator[bytes, None]:
    if body:
        yield body
