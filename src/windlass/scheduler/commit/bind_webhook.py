"""Webhook of the bind guard: AdmissionReview (admission.k8s.io/v1) over HTTPS.

The API server asks about two kinds of requests: the binding of a pod, and the creation
of a pod on a node. What cannot be checked is allowed. An instance that stands by, or
does not understand a request, answers with an error, which the API server ignores
(``failurePolicy: Ignore``). The path ends with a token known only to the API server,
since every booking takes capacity.
"""

from __future__ import annotations

import asyncio
import hmac
import ssl
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, cast

import httptools
import msgspec

from windlass.api import views
from windlass.api.errors import StatusError, WindlassError
from windlass.client.errors import Unreachable
from windlass.kits.clock import Clock
from windlass.observe import logs
from windlass.scheduler.commit.bind_guard import BindGuard

PATH = "/bind/"
MAX_BODY_BYTES = 4 << 20
"""Maximum size of a request in bytes. A pod has at most 1.5 MiB."""
ADDRESS = "WL-GUARD-400"
log = logs.get("scheduler")


class WebhookRequest(msgspec.Struct, rename="camel"):
    """Request that the API server wants to perform.

    ``object`` is a Binding or a Pod.
    """

    uid: str
    namespace: str = ""
    name: str = ""
    dry_run: bool = False
    object: msgspec.Raw = msgspec.Raw(b"null")


class _Review(msgspec.Struct, rename="camel"):
    request: WebhookRequest


Evaluate = Callable[[WebhookRequest], Awaitable[str | None]]
"""Returns why a request is rejected, ``""`` if it is allowed, ``None`` if that is unknown."""
_reviews = msgspec.json.Decoder(_Review)


def encode_review(uid: str, rejection: str) -> bytes:
    """Return the review as it goes back."""
    response: dict[str, Any] = {"uid": uid, "allowed": not rejection}
    if rejection:
        response["status"] = {"code": 403, "reason": "Forbidden", "message": rejection}
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}
    return msgspec.json.encode(review)


class _Target(msgspec.Struct):
    name: str = ""


class _Metadata(msgspec.Struct):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    annotations: dict[str, str] = msgspec.field(default_factory=dict)
    """The server copies those of a Binding onto the pod.

    Some schedulers name devices there.
    """


class _Binding(msgspec.Struct):
    metadata: _Metadata
    kind: str = ""
    target: _Target = msgspec.field(default_factory=_Target)


_bindings = msgspec.json.Decoder(_Binding)
LookUp = Callable[[str], Awaitable[views.Pod | None]]


class WebhookHandler:
    """Answers the API server's requests by the guard's checks.

    ``pods``: as the informers show them.
    ``look_up(key)``: returns a pod that they do not show yet, as the server has it.
    ``is_authoritative()``: whether this instance's account is the one that counts.
    ``count(result)``: counts ``allowed``, ``refused``, ``rehearsed`` (dry runs) or
    ``unknown``.
    """

    def __init__(
        self,
        guard: BindGuard,
        pods: Mapping[str, views.Pod],
        look_up: LookUp,
        is_authoritative: Callable[[], bool],
        count: Callable[[str], None],
        *,
        clock: Clock,
    ) -> None:
        self._guard = guard
        self._pods = pods
        self._look_up = look_up
        self._is_authoritative = is_authoritative
        self._count = count
        self._clock = clock

    async def evaluate(self, request: WebhookRequest) -> str | None:
        """Return why a request is rejected, ``""`` if it is allowed, ``None`` if that is unknown.

        Never raises.
        """
        if not self._is_authoritative():
            return None
        try:
            binding = _bindings.decode(request.object)
            created = binding.kind == "Pod"
            pod = views.decode_pod(request.object) if created else await self._pod(request, binding.metadata)
        except (msgspec.DecodeError, StatusError, Unreachable) as error:
            pod_key = f"{request.namespace}/{request.name}"
            log.warning("binding not checked", pod=pod_key, why=str(error))
            self._count("unknown")
            return None
        node = binding.target.name if pod is None or not created else pod.node_name
        if pod is None or pod.node_name not in ("", node) or not node or not self._is_authoritative():
            self._count("unknown")  # the request will fail by itself
            return ""
        rejection = self._guard.check(pod, node, self._clock.monotonic(), dry_run=request.dry_run)
        self._count("refused" if rejection else "rehearsed" if request.dry_run else "allowed")
        return rejection

    async def _pod(self, request: WebhookRequest, metadata: _Metadata) -> views.Pod | None:
        """Return the pod of a Binding. Raises ``StatusError`` and ``Unreachable``."""
        key = f"{request.namespace}/{metadata.name or request.name}"
        pod = self._pods.get(key)
        if pod is None or (metadata.uid and pod.uid != metadata.uid):
            pod = await self._look_up(key)
        if pod is None or (metadata.uid and pod.uid != metadata.uid):
            return None
        if not metadata.annotations:
            return pod
        annotations = {**pod.annotations, **metadata.annotations}
        return msgspec.structs.replace(pod, annotations=annotations)


class GuardServer:
    """HTTPS server of the webhook.

    ``directory`` holds ``tls.crt``, ``tls.key`` and ``token``, as a Secret is mounted.
    """

    def __init__(self, evaluate: Evaluate, directory: Path) -> None:
        self.evaluate = evaluate
        self._directory = directory
        self._server: asyncio.Server | None = None
        self.path = ""
        self.tasks: set[asyncio.Task[None]] = set()

    async def start(self, host: str, port: int) -> int:
        """Listen, and return the port.

        Raises :class:`WindlassError` if that is impossible.
        """
        try:
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            context.load_cert_chain(self._directory / "tls.crt", self._directory / "tls.key")
            self.path = PATH + (self._directory / "token").read_text().strip()
            loop = asyncio.get_running_loop()
            self._server = await loop.create_server(
                lambda: _Connection(self), host or None, port, ssl=context
            )
        except (OSError, ValueError) as error:
            raise WindlassError(
                ADDRESS,
                f"the bind guard cannot listen on {host or '*'}:{port}: {error}",
                evidence=f"it needs tls.crt, tls.key and token in {self._directory}",
                remedies=("windlass install --bind-guard", "choose another address with --bind-guard"),
            ) from error
        return self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


class _Connection(asyncio.Protocol):
    """Persistent connection with one request at a time, as Go's client uses it."""

    def __init__(self, server: GuardServer) -> None:
        self._server = server
        self._parser: Any = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport
        self._url = b""
        self._body = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but name

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self._transport.close()

    def on_message_begin(self) -> None:
        self._url, self._body = b"", bytearray()

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_body(self, body: bytes) -> None:
        self._body += body
        if len(self._body) > MAX_BODY_BYTES:
            self._transport.close()

    def on_message_complete(self) -> None:
        path = self._url.split(b"?", 1)[0].decode("latin-1")
        if self._parser.get_method() != b"POST" or not hmac.compare_digest(path, self._server.path):
            self._send(404, b"")
            return
        try:
            request = _reviews.decode(bytes(self._body)).request
        except msgspec.DecodeError as error:
            log.warning("invalid AdmissionReview", why=str(error))
            self._send(400, b"")
            return
        task = asyncio.get_running_loop().create_task(self._answer(request))
        self._server.tasks.add(task)
        task.add_done_callback(self._server.tasks.discard)

    async def _answer(self, request: WebhookRequest) -> None:
        rejection = await self._server.evaluate(request)
        if rejection is None:
            self._send(503, b"")
        else:
            self._send(200, encode_review(request.uid, rejection))

    def _send(self, status: int, body: bytes) -> None:
        text = {200: "OK", 400: "Bad Request", 404: "Not Found", 503: "Service Unavailable"}[status]
        # After a 503 the next request may be for another instance.
        last = "connection: close\r\n" if status == 503 else ""
        head = (
            f"HTTP/1.1 {status} {text}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
        )
        if not self._transport.is_closing():
            self._transport.write(f"{head}{last}\r\n".encode() + body)
            if last:
                self._transport.close()
