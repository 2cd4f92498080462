"""HTTP of the interface: ``/v1/files``, ``/v1/batches``, ``/v1/models``."""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
from collections.abc import AsyncIterator, Mapping
from typing import Any
from urllib.parse import parse_qs

from python_multipart.multipart import MultipartParser, parse_options_header

from windlass.batchapi.objects import ApiError, page
from windlass.batchapi.service import BatchService
from windlass.batchapi.store import FileWriter
from windlass.observe.http_server import Receive, Scope, Send

_log = logging.getLogger("windlass.batchapi")
Json = dict[str, Any]

MOST_BODY = 1 << 20
"""Largest body of a request that is no upload, in bytes."""
MOST_UPLOAD = 2 << 30
"""Largest file in bytes. OpenAI allows 200 MB."""
CHUNK = 1 << 16
PURPOSES = ("batch", "fine-tune", "assistants", "vision", "user_data", "evals")


class BatchApi:
    """ASGI application. ``token``: expected API key; empty: any."""

    def __init__(self, service: BatchService, token: str) -> None:
        self._service, self._token = service, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        try:
            self._authorize(scope)
            answer = await self._route(scope, receive, send)
            if answer is not None:
                await _respond(send, 200, answer)
        except ApiError as error:
            await _respond(send, error.status, error.body())
        except OSError as error:
            _log.exception("a request failed")
            message = f"the file cannot be stored: {error.strerror or error}"
            await _respond(send, 507, ApiError(507, message).body())

    def _authorize(self, scope: Scope) -> None:
        given = _header(scope, b"authorization").removeprefix("Bearer ").strip()
        if self._token and not hmac.compare_digest(given.encode(), self._token.encode()):
            raise ApiError(401, "Incorrect API key provided.", code="invalid_api_key")

    async def _route(self, scope: Scope, receive: Receive, send: Send) -> Json | None:
        method, parts = scope["method"], scope["path"].strip("/").split("/")
        query = {name: values[-1] for name, values in parse_qs(scope["query_string"].decode()).items()}
        service = self._service
        match (method, *parts):
            case ("POST", "v1", "files"):
                return await self._upload(scope, receive)
            case ("GET", "v1", "files"):
                purpose = query.get("purpose")
                found = [each.body() for each in service.store.files() if purpose in (None, each.purpose)]
                return _page(found, query, 10_000)
            case ("GET", "v1", "files", identifier):
                return service.store.file(identifier).body()
            case ("DELETE", "v1", "files", identifier):
                service.store.delete_file(identifier)
                return {"id": identifier, "object": "file", "deleted": True}
            case ("GET", "v1", "files", identifier, "content"):
                return await self._download(identifier, send)
            case ("POST", "v1", "batches"):
                return service.create(await _json(receive)).body()
            case ("GET", "v1", "batches"):
                return _page([each.body() for each in service.store.batches()], query, 20)
            case ("GET", "v1", "batches", identifier):
                return service.store.batch(identifier).body()
            case ("POST", "v1", "batches", identifier, "cancel"):
                return service.cancel(identifier).body()
        raise ApiError(404, f"Unknown request URL: {method} {scope['path']}.", code="unknown_url")

    async def _upload(self, scope: Scope, receive: Receive) -> Json:
        kind, options = parse_options_header(_header(scope, b"content-type"))
        if kind != b"multipart/form-data" or b"boundary" not in options:
            raise ApiError(400, "a file is uploaded as multipart/form-data")
        now = self._service.now()
        with self._service.store.new_file("", "", now) as writer:
            form = _Form(writer)
            parser = MultipartParser(options[b"boundary"], form.callbacks())
            async for chunk in _chunks(receive):
                if writer.size > MOST_UPLOAD:
                    raise ApiError(413, f"the file has more than {MOST_UPLOAD} bytes", param="file")
                try:
                    await asyncio.to_thread(parser.write, chunk)
                except ValueError as error:
                    raise ApiError(400, f"the form cannot be read: {error}") from error
            form.check()
            writer.filename, writer.purpose = form.filename, form.fields["purpose"]
            identifier = writer.id
        return self._service.store.file(identifier).body()

    async def _download(self, identifier: str, send: Send) -> None:
        path = self._service.store.content(identifier)
        size = str(path.stat().st_size).encode()
        headers = [(b"content-type", b"application/octet-stream"), (b"content-length", size)]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        with path.open("rb") as stream:
            while chunk := await asyncio.to_thread(stream.read, CHUNK):
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


class _Form:
    """Fields of an upload. The part ``file`` goes to the writer as it comes."""

    def __init__(self, writer: FileWriter) -> None:
        self.fields: dict[str, str] = {}
        self.filename = ""
        self.has_file = False
        self._writer = writer
        self._headers: dict[str, str] = {}
        self._name = self._value = ""
        self._field = ""
        self._text = bytearray()

    def callbacks(self) -> Any:
        return {
            "on_part_begin": self._begin,
            "on_header_field": lambda data, start, end: self._add("_name", data, start, end),
            "on_header_value": lambda data, start, end: self._add("_value", data, start, end),
            "on_header_end": self._header,
            "on_headers_finished": self._start,
            "on_part_data": self._data,
            "on_part_end": self._end,
        }

    def check(self) -> None:
        """Raise :class:`ApiError` unless the form has a file and a purpose."""
        if not self.has_file:
            raise ApiError(400, "'file' is a required property", param="file")
        if self.fields.get("purpose") not in PURPOSES:
            raise ApiError(400, f"purpose must be one of {', '.join(PURPOSES)}", param="purpose")

    def _begin(self) -> None:
        self._headers, self._field, self._text = {}, "", bytearray()

    def _add(self, which: str, data: bytes, start: int, end: int) -> None:
        setattr(self, which, getattr(self, which) + data[start:end].decode("latin-1"))

    def _header(self) -> None:
        self._headers[self._name.lower()] = self._value
        self._name = self._value = ""

    def _start(self) -> None:
        _, options = parse_options_header(self._headers.get("content-disposition", ""))
        self._field = options.get(b"name", b"").decode()
        if self._field == "file":
            self.filename = options.get(b"filename", b"").decode(errors="replace") or "upload"
            self.has_file = True

    def _data(self, data: bytes, start: int, end: int) -> None:
        if self._field == "file":
            self._writer.write(data[start:end])
        elif len(self._text) < MOST_BODY:
            self._text += data[start:end]

    def _end(self) -> None:
        if self._field != "file":
            self.fields[self._field] = self._text.decode(errors="replace")


def _page(found: list[Json], query: Mapping[str, str], default: int) -> Json:
    text = query.get("limit", str(default))
    if not text.isdecimal() or not 1 <= int(text) <= 10_000:
        raise ApiError(400, "limit must be a number from 1 to 10000", param="limit")
    if query.get("order") == "asc":
        found = found[::-1]
    return page(found, query.get("after", ""), int(text))


def _header(scope: Scope, name: bytes) -> str:
    return next((value.decode("latin-1") for key, value in scope["headers"] if key == name), "")


async def _chunks(receive: Receive) -> AsyncIterator[bytes]:
    """Give the body of a request as it comes. Raises :class:`ApiError` if it is cut off."""
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ApiError(400, "the connection ended before the request did")
        if message.get("body"):
            yield message["body"]
        if not message.get("more_body"):
            return


async def _json(receive: Receive) -> Any:
    body = bytearray()
    async for chunk in _chunks(receive):
        body += chunk
        if len(body) > MOST_BODY:
            raise ApiError(413, f"the body has more than {MOST_BODY} bytes")
    try:
        return json.loads(body)
    except ValueError as error:
        raise ApiError(400, f"the body is no JSON: {error}") from error


async def _respond(send: Send, status: int, answer: Json) -> None:
    body = json.dumps(answer).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
