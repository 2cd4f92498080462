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
from typing import Any

import msgspec

from windlass.api import views
from windlass.api.errors import StatusError, WindlassError
from windlass.client.errors import Unreachable
from windlass.kits.clock import Clock
from windlass.observe import logs
from windlass.observe.http_server import HttpServer, Receive, Scope, Send, ServerLimits, bind
from windlass.observe.listening import cannot_listen
from windlass.scheduler.commit.bind_guard import BindGuard

PATH = "/bind/"
MAX_BODY_BYTES = 4 << 20
"""Maximum size of a request in bytes. A pod has at most 1.5 MiB."""
LIMITS = ServerLimits(idle=120, head=10.0, connections=800, drain=1)
"""Limits of the API servers' connections.

An API server closes an idle connection after 90 seconds. It has to be first, because it
cannot repeat a request on a connection that ends at the same time. Three API servers
have at most 600 changing requests in flight by default.
"""
_BODY_SECONDS = 10.0
"""Timeout (seconds) of the body of a request."""
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

    def __init__(self, evaluate: Evaluate, directory: Path, limits: ServerLimits = LIMITS) -> None:
        self._evaluate = evaluate
        self._directory = directory
        self._server = HttpServer(limits)
        self._path = b""

    async def start(self, host: str, port: int) -> int:
        """Listen, and return the port.

        Raises :class:`WindlassError` if that is impossible.
        """
        try:
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            context.load_cert_chain(self._directory / "tls.crt", self._directory / "tls.key")
            self._path = (PATH + (self._directory / "token").read_text().strip()).encode()
        except (OSError, ValueError) as error:
            raise WindlassError(
                ADDRESS,
                f"the bind guard cannot serve: {error}",
                evidence=f"it needs tls.crt, tls.key and token in {self._directory}",
                remedies=("windlass install --bind-guard",),
            ) from error
        try:
            listeners = bind(host, port)
        except OSError as error:
            remedy = "choose another address with --bind-guard"
            raise cannot_listen(host, port, error, remedy, code=ADDRESS) from error
        bound = int(listeners[0].getsockname()[1])
        await self._server.listen(self._serve, listeners, context)
        return bound

    async def stop(self) -> None:
        await self._server.close()

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] != "POST" or not hmac.compare_digest(scope["raw_path"], self._path):
            await _send(send, 404)
            return
        try:
            body = await _body(receive)
        except _Incomplete as error:
            await _send(send, error.status, closing=True)
            return
        try:
            request = _reviews.decode(body).request
        except msgspec.DecodeError as error:
            log.warning("invalid AdmissionReview", why=str(error))
            await _send(send, 400)
            return
        rejection = await self._evaluate(request)
        if rejection is None:
            await _send(send, 503, closing=True)  # the next request may be for another instance
        else:
            await _send(send, 200, encode_review(request.uid, rejection))


class _Incomplete(Exception):
    """The body is too large or does not arrive; ``status`` is that of the response."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


async def _body(receive: Receive) -> bytes:
    """Return the body of a request. Raises :class:`_Incomplete`."""
    body = bytearray()
    more = True
    try:
        async with asyncio.timeout(_BODY_SECONDS):
            while more:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise _Incomplete(400)  # sent to no client
                body += message["body"]
                more = message["more_body"]
                if len(body) > MAX_BODY_BYTES:
                    raise _Incomplete(413)
    except TimeoutError:
        raise _Incomplete(408) from None
    return bytes(body)


async def _send(send: Send, status: int, body: bytes = b"", *, closing: bool = False) -> None:
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    if closing:
        headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
