"""HTTPS endpoint to which programs of jobs report progress in a cluster (Kubeflow's KEP-2779).

Every instance serves it, also one that stands by. A request carries the token of the
pod's service account, which the API server reviews: its audience names one job, and its
namespace must be that of the job.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Mapping
from typing import Any

import msgspec

from windlass.api.errors import StatusError
from windlass.api.fields.kubeflow import FIELDS
from windlass.api.resources import BATCH_JOBS, JOB_SETS, TRAIN_JOBS, VOLCANO_JOBS, Resource
from windlass.client.client import Client
from windlass.client.errors import Unreachable
from windlass.client.transport import Request
from windlass.jobs.progress import ReportError, parse_report, progress_patch
from windlass.jobs.progress_access import audience_of
from windlass.kits.clock import Clock
from windlass.kits.serving_certificates import ServingCertificate
from windlass.kits.timestamps import rfc3339
from windlass.observe import logs
from windlass.observe.http_server import HttpServer, Receive, Scope, Send, ServerLimits, bind
from windlass.observe.listening import cannot_listen

MAX_BYTES = 1 << 16
"""Maximum length of a report in bytes."""
RATE, BURST = 10.0, 20.0
"""Maximum number of reports in a second, and at once, for one job."""
LIMITS = ServerLimits(idle=60, head=10.0, connections=500, drain=1)
ADDRESS = "WL-PROGRESS-400"
_BODY_SECONDS = 10.0
"""Timeout of the body of a request in seconds."""
_REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"
_POD = "authentication.kubernetes.io/pod-name"
_KINDS: Mapping[tuple[str, str], Resource] = {
    (kind.api_version, kind.plural): kind
    for kind in (TRAIN_JOBS, JOB_SETS, BATCH_JOBS, VOLCANO_JOBS, *FIELDS)
}
log = logs.get("controllers")
Json = dict[str, Any]


class ReportHandler:
    """Checks and stores reports with ``client``."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client, self._clock = client, clock
        self._rates: dict[str, tuple[float, float]] = {}

    async def handle(self, path: str, authorization: str, body: bytes) -> tuple[int, Json]:
        """Return status and body of the response."""
        found = _target(path)
        if found is None:
            return _failure(404, "NotFound", "no job has its status here")
        kind, namespace, name = found
        try:
            if why := await self._refusal(path, namespace, authorization):
                return _failure(403, "Forbidden", why)
            if not self._within_rate(path):
                return _failure(429, "TooManyRequests", f"at most {RATE:.0f} reports a second are accepted")
            return await self._store(kind, namespace, name, body)
        except StatusError as error:
            code = error.code if error.code in (404, 422) else 500
            return _failure(code, "NotFound" if code == 404 else "InternalError", str(error))
        except Unreachable as error:
            return _failure(503, "ServiceUnavailable", f"the API server cannot be reached: {error}")

    async def _refusal(self, path: str, namespace: str, authorization: str) -> str:
        """Return why a token does not permit a report; empty if it does."""
        scheme, _, token = authorization.strip().partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            return "the request has no bearer token: send the token in KUBEFLOW_TRAINER_STATUS_TOKEN"
        audience = audience_of(path)
        review = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": {"token": token.strip(), "audiences": [audience]},
        }
        headers = {"content-type": "application/json"}
        answer = await self._client.call(Request("POST", _REVIEWS, "", headers, msgspec.json.encode(review)))
        status = msgspec.json.decode(answer).get("status") or {}
        user = status.get("user") or {}
        if not status.get("authenticated") or audience not in (status.get("audiences") or ()):
            return f"the token is not valid for the audience {audience}"
        if not str(user.get("username")).startswith(f"system:serviceaccount:{namespace}:"):
            return f"the token is not of a service account in namespace {namespace}"
        return "" if (user.get("extra") or {}).get(_POD) else "the token is not bound to a pod"

    def _within_rate(self, path: str) -> bool:
        now = self._clock.monotonic()
        if len(self._rates) > 10_000:
            self._rates = {key: one for key, one in self._rates.items() if now - one[1] < BURST / RATE}
        tokens, since = self._rates.get(path, (BURST, now))
        tokens = min(BURST, tokens + (now - since) * RATE)
        self._rates[path] = (max(0.0, tokens - 1.0), now)
        return tokens >= 1.0

    async def _store(self, kind: Resource, namespace: str, name: str, body: bytes) -> tuple[int, Json]:
        try:
            record = parse_report(msgspec.json.decode(body), rfc3339(self._clock.now()))
        except msgspec.DecodeError as error:
            return _failure(422, "Invalid", f"the report is not JSON: {error}")
        except ReportError as error:
            return _failure(422, "Invalid", str(error))
        if record is None:
            return 200, {}
        subresource, patch = progress_patch(kind.kind, record)
        await self._client.patch(kind, name, patch, namespace, subresource=subresource or None)
        return 200, {"trainerStatus": record.body()}


def _target(path: str) -> tuple[Resource, str, str] | None:
    """Return kind, namespace and name of ``/apis/GROUP/VERSION/namespaces/NAMESPACE/KIND/NAME/status``."""
    parts = path.split("/")
    if len(parts) != 9 or parts[:2] != ["", "apis"] or parts[4] != "namespaces" or parts[8] != "status":
        return None
    kind = _KINDS.get((f"{parts[2]}/{parts[3]}", parts[6]))
    return (kind, parts[5], parts[7]) if kind is not None and parts[5] and parts[7] else None


def _failure(code: int, reason: str, message: str) -> tuple[int, Json]:
    head = {"apiVersion": "v1", "kind": "Status", "metadata": {}}
    return code, {**head, "status": "Failure", "code": code, "reason": reason, "message": message}


class ProgressEndpoint:
    """Server of the endpoint."""

    def __init__(self, handler: ReportHandler) -> None:
        self._handler = handler
        self._server = HttpServer(LIMITS)

    async def start(self, host: str, port: int, certificate: ServingCertificate) -> int:
        """Listen, and return the port. Raises :class:`WindlassError` if that is impossible."""
        try:
            listeners = bind(host, port)
        except OSError as error:
            remedy = "choose another address in the setting controllers.progressBind, such as :10443"
            raise cannot_listen(host, port, error, remedy, code=ADDRESS) from error
        bound = int(listeners[0].getsockname()[1])
        await self._server.listen(self._serve, listeners, tls_context(certificate))
        return bound

    async def stop(self) -> None:
        await self._server.close()

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] != "POST":
            status, answer = _failure(405, "MethodNotAllowed", "only POST")
        else:
            body = await _body(receive)
            if body is None:
                status, answer = _failure(
                    413, "RequestEntityTooLarge", f"a report has at most {MAX_BYTES} bytes"
                )
            else:
                sent = {bytes(name).lower(): bytes(value) for name, value in scope["headers"]}
                authorization = sent.get(b"authorization", b"").decode("latin-1")
                status, answer = await self._handler.handle(scope["path"], authorization, body)
        content = msgspec.json.encode(answer)
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(content))]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": content})


async def _body(receive: Receive) -> bytes | None:
    """Return the body of a request; ``None`` if it is too large or does not arrive."""
    body, more = bytearray(), True
    try:
        async with asyncio.timeout(_BODY_SECONDS):
            while more:
                message = await receive()
                if message["type"] == "http.disconnect":
                    return None
                body += message["body"]
                more = message["more_body"]
                if len(body) > MAX_BYTES:
                    return None
    except TimeoutError:
        return None
    return bytes(body)


def tls_context(certificate: ServingCertificate) -> ssl.SSLContext:
    """Return the context of a server. The key is never written to a disk."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    files = [os.memfd_create(name) for name in ("certificate", "key")]
    try:
        for file, text in zip(files, (certificate.certificate, certificate.key), strict=True):
            os.write(file, text.encode())
        context.load_cert_chain(*(f"/proc/self/fd/{file}" for file in files))
    finally:
        for file in files:
            os.close(file)
    return context
