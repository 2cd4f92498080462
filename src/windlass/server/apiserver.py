"""API server without HTTP: handles a request of a user.

Errors become Status objects. Unknown paths get 404, as with kube-apiserver.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

from windlass.api.errors import StatusError, WindlassError, failure
from windlass.client.transport import Request, Response
from windlass.kits.clock import Clock
from windlass.kits.rng import Random
from windlass.server import authorization, pages
from windlass.server.auth.pod_tokens import PodTokens
from windlass.server.core import Admitter, Call, ServerCore, ServerOptions
from windlass.server.log_source import LogSource
from windlass.server.presentation import responses
from windlass.server.request.negotiation import negotiate
from windlass.server.request.routing import (
    NotServed,
    RequestTarget,
    computed,
    is_write_only,
    known,
    register_computed,
    register_write_only,
    route,
    unknown_resource,
)
from windlass.server.request.users import UserInfo
from windlass.server.stream_source import StreamSource
from windlass.server.subresources import SUBRESOURCES, Handler
from windlass.server.telemetry import Telemetry
from windlass.server.verbs import access_reviews, resource_metrics
from windlass.server.verbs.binding import BINDINGS, bind
from windlass.server.verbs.create import create
from windlass.server.verbs.delete import delete, delete_collection
from windlass.server.verbs.progress import report_progress, takes_reports
from windlass.server.verbs.read import get, list_collection
from windlass.server.verbs.update import patch, update
from windlass.server.verbs.watch import watch
from windlass.store.store import Store

_log = logging.getLogger("windlass.server")
register_write_only(BINDINGS)
for _kind in resource_metrics.KINDS:
    register_computed(_kind, resource_metrics.read_metrics)

_COLLECTION: Mapping[str, Handler] = {
    "list": list_collection,
    "watch": watch,
    "create": create,
    "deletecollection": delete_collection,
}
_OBJECT: Mapping[str, Handler] = {
    "get": get,
    "watch": watch,
    "update": update,
    "patch": patch,
    "delete": delete,
}


class ApiServer:
    """API server. Call :meth:`stop` before the store is closed."""

    def __init__(
        self,
        store: Store,
        *,
        clock: Clock,
        rng: Random,
        logs: LogSource | None = None,
        streams: StreamSource | None = None,
        options: ServerOptions | None = None,
        admission: Admitter | None = None,
        control: Path | None = None,
        tokens: PodTokens | None = None,
    ) -> None:
        """``control``: the socket on which scheduler and controllers serve their metrics.

        ``tokens``: issuer of tokens of service accounts.
        """
        self.core = ServerCore(
            store,
            clock,
            rng,
            admission or _admission(store, clock, rng),
            options or ServerOptions(),
            logs,
            streams,
        )
        self.core.tokens = tokens
        self.telemetry = Telemetry(store)
        self._rng = rng
        self._control = control

    @property
    def options(self) -> ServerOptions:
        return self.core.options

    def stop(self) -> None:
        """End watches and followed logs cleanly. From now on, ``/readyz`` fails."""
        self.core.stop()

    async def handle(self, request: Request, user: UserInfo) -> Response:
        """Handle one request. Errors become responses; only cancellation is raised."""
        begin = self.core.clock.monotonic()
        verb, resource = request.method.lower(), ""
        call: Call | None = None
        try:
            target = known(request.path)
            response = await self._page(request, user) if target is None else None
            if response is None:
                call = Call.of(request, target or self._route(request.path), user)
                verb, resource = authorization.verb_of(call), call.target.table
                response = await self._resource(call, verb)
        except NotServed:
            response = responses.text(404, "404 page not found\n")
        except StatusError as error:
            response = responses.rejection(error, call.form if call is not None else None)
        except WindlassError as error:
            _log.error("%s: %s (%s)", error.code, error.message, error.evidence)
            response = responses.rejection(failure(500, "InternalError", f"{error.code}: {error.message}"))
        except Exception:
            _log.exception("%s %s failed", request.method, request.path)
            message = "Internal error occurred: see the server's log"
            response = responses.rejection(failure(500, "InternalError", message))
        if call is not None and call.warnings:
            response = responses.with_warnings(response, call.warnings)
        streams = response.stream is not None or response.upgrade is not None
        seconds = None if streams else self.core.clock.monotonic() - begin
        self.telemetry.answered(verb, resource, response.status, seconds)
        headers = {"audit-id": f"{self._rng.getrandbits(128):032x}", "cache-control": "no-cache, private"}
        headers.update(response.headers)
        response.headers = headers
        return response

    def _route(self, path: str) -> RequestTarget:
        return route(path, self.core.kinds.current())

    async def _page(self, request: Request, user: UserInfo) -> Response | None:
        """Return the response for a path without a resource; ``None`` for other paths."""
        path = request.path
        if _names_resource(path):
            return None
        authorization.check_path(user, request.method, path)
        response = pages.health(self.core, path)
        if response is not None:
            return response
        response = None
        if path == "/version":
            response = pages.version(self.core)
        elif path == "/metrics":
            response = pages.metrics(self.telemetry)
        elif path == "/metrics/control":
            response = await pages.control_metrics(self._control)
        else:
            response = pages.api_description(request, self.core.kinds.current())
        if response is not None and request.method not in ("GET", "HEAD"):
            raise not_allowed()
        return response

    async def _resource(self, call: Call, verb: str) -> Response:
        authorization.check(self.core, call)
        target = call.target
        handler = self._handler(call, verb)
        subresource = SUBRESOURCES.get(target.subresource)
        if subresource is None or not subresource.text:
            call.form = negotiate(call.request.headers.get("accept", ""))
        if verb == "watch" and call.form.yaml:
            media = "application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch"
            raise failure(406, "NotAcceptable", f"only the following media types are accepted: {media}")
        if call.request.subprotocols is not None and (subresource is None or not subresource.upgrades):
            raise failure(400, "BadRequest", "only exec, attach and portforward are served as WebSocket")
        if handler is None:
            return access_reviews.review(call)
        return await handler(self.core, call)

    def _handler(self, call: Call, verb: str) -> Handler | None:
        """Return the handler of ``verb``; ``None`` for reviews. Raises 404 and 405."""
        target = call.target
        if (handler := computed(target.resource)) is not None:
            if verb not in target.resource.verbs or target.subresource:
                raise not_allowed()
            return handler
        if is_write_only(target.resource):
            if verb == "create" and not target.name:
                return bind if target.resource is BINDINGS else None
            raise not_allowed()
        if verb == "create" and takes_reports(target):
            return report_progress
        if target.subresource:
            if (subresource := SUBRESOURCES.get(target.subresource)) is None:
                raise unknown_resource()
            handlers = subresource.handlers
        else:
            handlers = _OBJECT if target.name else _COLLECTION
        handler = handlers.get(verb)
        across = target.resource.namespaced and not target.namespace
        if across and verb not in ("list", "watch"):
            raise not_allowed()
        if handler is None or (not target.subresource and verb not in target.resource.verbs):
            raise not_allowed()
        return handler


def _admission(store: Store, clock: Clock, rng: Random) -> Admitter:
    from windlass.server.admission.chain import Admission
    from windlass.server.admission.objects import StoreObjects

    return Admission(StoreObjects(store), clock=clock, rng=rng)


def _names_resource(path: str) -> bool:
    if path.startswith("/apis/"):
        return path.rstrip("/").count("/") > 3
    return path.startswith("/api/") and path.rstrip("/").count("/") > 2


def not_allowed() -> StatusError:
    return failure(
        405, "MethodNotAllowed", "the server does not allow this method on the requested resource", {}
    )
