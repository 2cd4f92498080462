"""GET of ``pods/NAME/log``. A LogSource provides the bytes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

from windlass.api.errors import FieldError, bad_request, failure
from windlass.client.transport import Response
from windlass.kits.timestamps import rfc3339_micro, utc_text
from windlass.server.core import Call, ServerCore
from windlass.server.log_source import LogMissing, LogOptions
from windlass.server.presentation import responses
from windlass.server.request.params import number, truth
from windlass.server.verbs import pod_streams

_STREAMS = {"": "", "All": "", "Stdout": "stdout", "Stderr": "stderr"}
"""Values of ``stream``, as in Kubernetes with the feature gate ``PodLogsQuerySplitStreams``."""
_FIRST_CHUNK_SECONDS = 0.25
"""Timeout (seconds) for the first output before the response starts.

Errors in this time have their own status code.
"""


async def read_log(core: ServerCore, call: Call) -> Response:
    """Handle GET of a log. Raises StatusError."""
    pod = pod_streams.stored_pod(core, call)
    container = pod_streams.container_name(pod, call.params.get("container", ""))
    options, limit = _options(core, call, container)
    if not (pod.get("spec") or {}).get("nodeName"):
        return Response(204)
    pod_streams.check_has_process(core, pod, "it has no log")
    _check_started(pod, container, previous=options.previous)
    if core.logs is None:
        raise failure(
            503, "ServiceUnavailable", "no node agent serves logs to this server", {"retryAfterSeconds": 5}
        )
    chunks = _limited(core.logs.open(pod, options), limit)
    first = await _first(core, chunks)
    return responses.stream(_stoppable(core, first, chunks), responses.TEXT)


async def _first(core: ServerCore, chunks: AsyncIterator[bytes]) -> asyncio.Future[bytes]:
    """Request the first chunk, and wait for it for a short time.

    Raises 400 if there is no log. A log without output is not waited for.
    """
    following = _next(chunks)
    timeout = asyncio.ensure_future(core.clock.sleep(_FIRST_CHUNK_SECONDS))
    try:
        await asyncio.wait((following, timeout), return_when=asyncio.FIRST_COMPLETED)
    except asyncio.CancelledError:
        following.cancel()
        raise
    finally:
        timeout.cancel()
    if following.done():
        try:
            following.result()
        except LogMissing as error:
            raise bad_request(str(error))
    return following


def _next(chunks: AsyncIterator[bytes]) -> asyncio.Future[bytes]:
    """Return a task for the next chunk, which is empty at the end."""

    async def one() -> bytes:
        return await anext(chunks, b"")

    return asyncio.ensure_future(one())


def _options(core: ServerCore, call: Call, container: str) -> tuple[LogOptions, int | None]:
    params = call.params
    tail, since, limit = (number(params, key) for key in ("tailLines", "sinceSeconds", "limitBytes"))
    problems = []
    if tail is not None and tail < 0:
        problems.append(FieldError.invalid("tailLines", tail, "must be greater than or equal to 0"))
    if limit is not None and limit < 1:
        problems.append(FieldError.invalid("limitBytes", limit, "must be greater than 0"))
    if since is not None and since < 1:
        problems.append(FieldError.invalid("sinceSeconds", since, "must be greater than 0"))
    since_time = params.get("sinceTime")
    earliest = rfc3339_micro(max(0.0, core.clock.now() - since))[:-1] if since else ""
    if since_time:
        if since is not None:
            problems.append(
                FieldError.forbidden(
                    "sinceTime", "at most one of `sinceTime` or `sinceSeconds` may be specified"
                )
            )
        try:
            earliest = utc_text(since_time)
        except (ValueError, OverflowError):
            raise bad_request(f'parsing time "{since_time}" as RFC 3339: invalid syntax')
    stream = params.get("stream", "")
    if stream not in _STREAMS:
        problems.append(FieldError.not_supported("stream", stream, ("All", "Stderr", "Stdout")))
    elif _STREAMS[stream] and tail is not None:
        why = "`tailLines` and specific `stream` are mutually exclusive for now"
        problems.append(FieldError.forbidden("", why))
    if problems:
        raise _invalid(call.target.name, problems)
    chosen = LogOptions(
        container=container,
        follow=bool(truth(params, "follow")),
        previous=bool(truth(params, "previous")),
        timestamps=bool(truth(params, "timestamps")),
        tail_lines=tail,
        since=earliest,
        stream=_STREAMS.get(stream, ""),
    )
    return chosen, limit


def _invalid(name: str, problems: list[FieldError]) -> Exception:
    texts = [f"{problem.field}: {problem.message}" for problem in problems]
    body = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    causes = [{"reason": p.reason, "message": p.message, "field": p.field} for p in problems]
    details = {"name": name, "kind": "PodLogOptions", "causes": causes}
    return failure(422, "Invalid", f'PodLogOptions "{name}" is invalid: {body}', details)


def _check_started(pod: Mapping[str, Any], container: str, *, previous: bool) -> None:
    """Raise the kubelet's error if the container has no log yet."""
    status, name = pod.get("status") or {}, pod["metadata"]["name"]
    statuses = [
        entry
        for key in ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses")
        for entry in status.get(key) or ()
        if entry.get("name") == container
    ]
    which = f'container "{container}" in pod "{name}"'
    if not statuses:
        raise bad_request(f"{which} is waiting to start: ContainerCreating")
    state = statuses[0].get("state") or {}
    last = (statuses[0].get("lastState") or {}).get("terminated")
    if previous:
        if not last:
            raise bad_request(f"previous terminated {which} not found")
    elif "running" not in state and "terminated" not in state and not last:
        reason = (state.get("waiting") or {}).get("reason") or "ContainerCreating"
        raise bad_request(f"{which} is waiting to start: {reason}")


async def _limited(chunks: AsyncIterator[bytes], limit: int | None) -> AsyncIterator[bytes]:
    try:
        left = limit
        async for chunk in chunks:
            if left is not None:
                chunk = chunk[:left]
                left -= len(chunk)
            if chunk:
                yield chunk
            if left == 0:
                return
    finally:
        await _close(chunks)


async def _stoppable(
    core: ServerCore, following: asyncio.Future[bytes], chunks: AsyncIterator[bytes]
) -> AsyncIterator[bytes]:
    """End the stream when the server shuts down, even if the container runs on."""
    stop = core.stopped()
    try:
        while True:
            await asyncio.wait((following, stop), return_when=asyncio.FIRST_COMPLETED)
            if not following.done():
                return
            try:
                chunk = following.result()
            except LogMissing as error:  # the response has started: only its text can report the error
                yield f"{error}\n".encode()
                return
            if not chunk:
                return
            yield chunk
            following = _next(chunks)
    finally:
        if not following.done():
            following.cancel()
            await asyncio.wait((following,))
        await _close(chunks)


async def _close(chunks: AsyncIterator[bytes]) -> None:
    closing = getattr(chunks, "aclose", None)
    if closing is not None:
        await closing()
