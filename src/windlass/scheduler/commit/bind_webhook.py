"""Answers the API server's questions about bindings: AdmissionReview (admission.k8s.io/v1) over HTTPS.

Two kinds of requests are asked about: a pod's binding, and a pod that is created on a node. Whatever cannot be
judged is allowed: who stands by, or does not understand a question, answers with an error, which the API server
passes over (``failurePolicy: Ignore``). The path ends with a word that only the API server knows, since every
booking takes room.
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

from windlass.api import annotations as names
from windlass.api import resources, views
from windlass.api.errors import StatusError, WindlassError
from windlass.client.client import Client
from windlass.client.errors import Unreachable
from windlass.kits.backoff import Backoff
from windlass.kits.clock import Clock
from windlass.kits.rng import Random
from windlass.observe import logs
from windlass.scheduler.commit.bind_guard import BindGuard

PATH = "/bind/"
LARGEST = 4 << 20
"""Bytes of a question: a pod has at most 1.5 MiB."""
ADDRESS = "WL-GUARD-400"
log = logs.get("scheduler")


class WebhookRequest(msgspec.Struct, rename="camel"):
    """A request that the API server wants to carry out. ``object`` is a Binding or a Pod."""

    uid: str
    namespace: str = ""
    name: str = ""
    dry_run: bool = False
    object: msgspec.Raw = msgspec.Raw(b"null")


class _Review(msgspec.Struct, rename="camel"):
    request: WebhookRequest


Judge = Callable[[WebhookRequest], Awaitable[str | None]]
"""Why a request is refused; empty if it is allowed; None if that cannot be said now."""
_reviews = msgspec.json.Decoder(_Review)


def answer(uid: str, refusal: str) -> bytes:
    """The review as it goes back."""
    response: dict[str, Any] = {"uid": uid, "allowed": not refusal}
    if refusal:
        response["status"] = {"code": 403, "reason": "Forbidden", "message": refusal}
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}
    return msgspec.json.encode(review)


class _Target(msgspec.Struct):
    name: str = ""


class _Metadata(msgspec.Struct):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    annotations: dict[str, str] = msgspec.field(default_factory=dict)
    """The server copies a Binding's onto the pod: cards, in the words of some schedulers."""


class _Binding(msgspec.Struct):
    metadata: _Metadata
    kind: str = ""
    target: _Target = msgspec.field(default_factory=_Target)


_bindings = msgspec.json.Decoder(_Binding)
LookUp = Callable[[str], Awaitable[views.Pod | None]]


class WebhookHandler:
    """Puts the API server's questions to the guard. ``leads``: whether this instance's ledger is the one that counts;
    ``look_up``: a pod of which there is no news yet, as the server has it."""

    def __init__(
        self,
        guard: BindGuard,
        known: Mapping[str, views.Pod],
        look_up: LookUp,
        leads: Callable[[], bool],
        told: Callable[[str], None],
        *,
        clock: Clock,
    ) -> None:
        """``told``: what was answered: ``allowed``, ``refused``, ``rehearsed`` or ``unknown``."""
        self._guard = guard
        self._known = known
        self._look_up = look_up
        self._leads = leads
        self._told = told
        self._clock = clock

    async def judge(self, asked: WebhookRequest) -> str | None:
        """Why a request is refused; empty if it is allowed; None if that cannot be said here. Never raises."""
        if not self._leads():
            return None
        try:
            binding = _bindings.decode(asked.object)
            whole = binding.kind == "Pod"
            pod = views.decode_pod(asked.object) if whole else await self._pod(asked, binding.metadata)
        except (msgspec.DecodeError, StatusError, Unreachable) as error:
            log.warning("a binding cannot be judged", pod=f"{asked.namespace}/{asked.name}", why=str(error))
            self._told("unknown")
            return None
        node = binding.target.name if pod is None or not whole else pod.node_name
        if pod is None or pod.node_name not in ("", node) or not node or not self._leads():
            self._told("unknown")  # it will fail by itself
            return ""
        refusal = self._guard.judge(pod, node, self._clock.monotonic(), rehearsal=asked.dry_run)
        self._told("refused" if refusal else "rehearsed" if asked.dry_run else "allowed")
        return refusal

    async def _pod(self, asked: WebhookRequest, metadata: _Metadata) -> views.Pod | None:
        """Raises ``StatusError``, ``Unreachable``."""
        key = f"{asked.namespace}/{metadata.name or asked.name}"
        pod = self._known.get(key)
        if pod is None or (metadata.uid and pod.uid != metadata.uid):
            pod = await self._look_up(key)
        if pod is None or (metadata.uid and pod.uid != metadata.uid):
            return None
        if not metadata.annotations:
            return pod
        words = {**pod.annotations, **metadata.annotations}
        return msgspec.structs.replace(pod, annotations=words)


class Mark:
    """The label of the pod that leads, by which the API server's Service finds it. ``pod`` empty: there is none."""

    def __init__(self, client: Client, pod: str, namespace: str, *, clock: Clock, rng: Random) -> None:
        self._client = client
        self._pod = pod
        self._namespace = namespace
        self._clock = clock
        self._rng = rng
        self._writing = asyncio.Lock()
        self._leads: bool | None = None
        """What was asked for last."""

    async def write(self, *, leads: bool) -> None:
        """Return once it is written, or something else is to be, or there is no such pod. Never raises: who is not
        found is not asked, and until then the cluster goes on without the guard."""
        self._leads = leads
        if not self._pod:
            return
        backoff, said = Backoff(self._rng, 0.2, 2.0, 30.0, 0.5), ""
        async with self._writing:  # one after the other, so that the last word stays
            while self._leads is leads:
                try:
                    await self._patch(leads)
                    return
                except (StatusError, Unreachable) as error:
                    if error.message != said:
                        said = error.message
                        log.warning(
                            "this pod is not marked: the bind guard is not asked", pod=self._pod, why=said
                        )
                    if isinstance(error, StatusError) and error.code == 404:
                        return
                await self._clock.sleep(backoff.next())

    async def _patch(self, leads: bool) -> None:
        patch = {"metadata": {"labels": names.both(names.LEADER, "true" if leads else None)}}
        await self._client.patch(resources.PODS, self._pod, patch, self._namespace)


class GuardServer:
    """``folder`` holds ``tls.crt``, ``tls.key`` and ``token``, as a Secret is mounted."""

    def __init__(self, evaluator: Judge, folder: Path) -> None:
        self.judge = evaluator
        self._folder = folder
        self._server: asyncio.Server | None = None
        self.path = ""
        self.tasks: set[asyncio.Task[None]] = set()

    async def start(self, host: str, port: int) -> int:
        """Listen; returns the port. Raises :class:`WindlassError` where that is not possible."""
        try:
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            context.load_cert_chain(self._folder / "tls.crt", self._folder / "tls.key")
            self.path = PATH + (self._folder / "token").read_text().strip()
            loop = asyncio.get_running_loop()
            self._server = await loop.create_server(
                lambda: _Connection(self), host or None, port, ssl=context
            )
        except (OSError, ValueError) as error:
            raise WindlassError(
                ADDRESS,
                f"the bind guard cannot listen on {host or '*'}:{port}: {error}",
                evidence=f"it needs tls.crt, tls.key and token in {self._folder}",
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
    """One question after the other, as Go's client asks them; the connection stays."""

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
        if len(self._body) > LARGEST:
            self._transport.close()

    def on_message_complete(self) -> None:
        path = self._url.split(b"?", 1)[0].decode("latin-1")
        if self._parser.get_method() != b"POST" or not hmac.compare_digest(path, self._server.path):
            self._send(404, b"")
            return
        try:
            asked = _reviews.decode(bytes(self._body)).request
        except msgspec.DecodeError as error:
            log.warning("a question about a binding is not understood", why=str(error))
            self._send(400, b"")
            return
        task = asyncio.get_running_loop().create_task(self._judge(asked))
        self._server.tasks.add(task)
        task.add_done_callback(self._server.tasks.discard)

    async def _judge(self, asked: WebhookRequest) -> None:
        refusal = await self._server.judge(asked)
        if refusal is None:
            self._send(503, b"")
        else:
            self._send(200, answer(asked.uid, refusal))

    def _send(self, status: int, body: bytes) -> None:
        words = {200: "OK", 400: "Bad Request", 404: "Not Found", 503: "Service Unavailable"}[status]
        last = (
            "connection: close\r\n" if status == 503 else ""
        )  # the next question is for another instance, maybe
        head = (
            f"HTTP/1.1 {status} {words}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
        )
        if not self._transport.is_closing():
            self._transport.write(f"{head}{last}\r\n".encode() + body)
            if last:
                self._transport.close()
