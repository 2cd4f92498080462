"""GET of objects and collections: from memory, without decoding, long ones in chunks."""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import AsyncIterator, Sequence
from typing import Any, NamedTuple

import msgspec

from windlass.api.errors import StatusError, bad_request, expired, failure, not_found
from windlass.api.resources import EVENTS_V1, Resource
from windlass.client.transport import Response
from windlass.server.core import Call, ServerCore
from windlass.server.presentation import responses
from windlass.server.presentation.presenter import Presenter
from windlass.server.request.events_v1 import core_terms
from windlass.server.request.params import EXACT, ListOptions, list_options, version
from windlass.server.verbs.presenter_choice import objects_per_chunk, presenter_for
from windlass.store import errors as store_errors
from windlass.store.filters import StoreFilter, UnknownField
from windlass.store.index import SELECTABLE
from windlass.store.records import Entry, key_of

_TOKEN_VERSION = "meta.k8s.io/v1"
_INCONSISTENT = -1
_TOKEN_EXPIRED = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new "
    "list without the continue parameter, or use the continue token in this response to retrieve the "
    "remainder of the results. Continuing with the provided token results in an inconsistent list - objects "
    "that were created, modified, or deleted between the time the first chunk was returned and now may show "
    "up in the list."
)


async def get(core: ServerCore, call: Call) -> Response:
    """Handle GET of one object. Raises StatusError."""
    target = call.target
    wanted = version(call.params.get("resourceVersion", ""))
    if wanted:
        await wait_for_version(core, wanted)
    entry = core.store.get(target.table, target.namespace, target.name)
    if entry is None:
        raise not_found(target.resource, target.name)
    presenter = presenter_for(core, call, collection=False)
    response = responses.body(200, presenter.single(entry), call.form)
    if not call.form.yaml:
        response.headers = {"content-type": presenter.content_type}
    return response


async def wait_for_version(core: ServerCore, rv: int) -> None:
    """Wait until ``rv`` is visible. Raises 504 on timeout, as kube-apiserver does."""
    store = core.store
    if store.rv >= rv:
        return
    reached = asyncio.ensure_future(store.reached(rv))
    late = asyncio.ensure_future(core.clock.sleep(core.options.future_wait_seconds))
    try:
        await asyncio.wait((reached, late), return_when=asyncio.FIRST_COMPLETED)
    finally:
        late.cancel()
        reached.cancel()
    if store.rv < rv:
        raise failure(
            504,
            "Timeout",
            f"Timeout: Too large resource version: {rv}, current: {store.rv}",
            {
                "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
                "retryAfterSeconds": 1,
            },
        )


def build_filter(resource: Resource, stored: Resource, namespace: str, options: ListOptions) -> StoreFilter:
    """Return the filter of a list or watch.

    Raises 400 for a field that is not selectable.
    """
    terms = options.fields
    if resource is EVENTS_V1:
        terms = core_terms(terms)
    try:
        selectable = resource.definition.selectable if resource.definition is not None else ()
        return StoreFilter.build(stored.qualified, namespace or None, options.labels, terms, selectable)
    except UnknownField as error:
        path = error.path.rpartition("events.k8s.io:")[2]
        if resource.custom or stored.qualified in SELECTABLE:
            raise bad_request(f"field label not supported: {path}")
        raise bad_request(
            f'"{path}" is not a known field selector: only "metadata.name", "metadata.namespace"'
        )


class StoredPage(NamedTuple):
    """Page of a list.

    ``entries`` are unfiltered if there is no limit. ``remaining``: number of keys after
    this page.
    """

    rv: int
    entries: Sequence[Entry]
    token: str = ""
    remaining: int | None = None

    @property
    def metadata(self) -> dict[str, Any]:
        """The metadata of a list with this page."""
        metadata: dict[str, Any] = {"resourceVersion": str(self.rv)}
        if self.token:
            metadata["continue"] = self.token
            if self.remaining is not None:
                metadata["remainingItemCount"] = self.remaining
        return metadata


async def list_collection(core: ServerCore, call: Call) -> Response:
    """Handle GET of a collection. Raises StatusError."""
    target = call.target
    options = list_options(call.params)
    wanted = build_filter(target.resource, target.stored, target.namespace, options)
    presenter = presenter_for(core, call, collection=True)
    if options.rv:
        await wait_for_version(core, options.rv)
    page = page_of(core, target.table, wanted, options)
    metadata = page.metadata
    size = objects_per_chunk(core, call)
    if len(page.entries) <= size or call.form.yaml:
        matching = [entry for entry in page.entries if wanted.matches(entry)]
        data = b"".join((presenter.open_list(metadata), presenter.items(matching), presenter.close_list()))
        response = responses.body(200, data, call.form)
        if not call.form.yaml:
            response.headers = {"content-type": presenter.content_type}
        return response
    chunks = _chunks(presenter, metadata, page.entries, wanted, size)
    return responses.stream(chunks, presenter.content_type)


def page_of(core: ServerCore, table: str, wanted: StoreFilter, options: ListOptions) -> StoredPage:
    """Return the page of a list that ``limit`` and ``continue`` select.

    Raises 400 for an invalid token, 410 for a version that is gone.
    """
    store = core.store
    at: int | None = None
    start = ""
    limit = 0 if options.rv == 0 and not options.token else options.limit
    if options.token:
        rv, start = _read_token(options.token, wanted.namespace)
        at = None if rv == _INCONSISTENT else rv
    elif options.rv and (options.match == EXACT or (limit and not options.match)):
        at = options.rv
    shown = store.rv if at is None else at
    if at is None and not start and not limit:
        return StoredPage(shown, store.candidates(table, wanted))
    try:
        versions = store.versions(table, wanted.namespace, start, at=at)
    except store_errors.Expired:
        raise _token_expired(start, wanted.namespace) if options.token else expired()
    if not limit:
        return StoredPage(shown, list(versions))
    entries: list[Entry] = []
    for entry in versions:
        if len(entries) == limit:
            break
        if wanted.matches(entry):
            entries.append(entry)
    else:
        return StoredPage(shown, entries)
    after = key_of(entries[-1].namespace, entries[-1].name) + "\0"
    remaining = None if wanted.narrowed else store.remaining(table, wanted.namespace, after)
    return StoredPage(shown, entries, _write_token(shown, after, wanted.namespace), remaining)


async def _chunks(
    presenter: Presenter, metadata: dict[str, Any], entries: Sequence[Entry], wanted: StoreFilter, size: int
) -> AsyncIterator[bytes]:
    """Yield the list in chunks, and yield to the event loop after each."""
    yield presenter.open_list(metadata)
    separator = b""
    everything = wanted.everything
    for start in range(0, len(entries), size):
        piece = entries[start : start + size]
        if not everything:
            piece = [entry for entry in piece if wanted.matches(entry)]
        if piece:
            yield separator + presenter.items(piece)
            separator = b","
        await asyncio.sleep(0)
    yield presenter.close_list()


def _write_token(rv: int, after: str, namespace: str | None) -> str:
    start = after[len(namespace) + 1 :] if namespace is not None else after
    raw = msgspec.json.encode({"v": _TOKEN_VERSION, "rv": rv, "start": start})
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


class _Token(msgspec.Struct):
    v: str
    rv: int
    start: str


def _read_token(token: str, namespace: str | None) -> tuple[int, str]:
    """Return version and key at which a list continues. Raises 400."""
    try:
        raw = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
        decoded = msgspec.json.decode(raw, type=_Token)
    except (binascii.Error, ValueError):
        raise bad_request("invalid continue token: continue key is not valid: no base64 or JSON")
    if decoded.v != _TOKEN_VERSION or not decoded.start or (decoded.rv <= 0 and decoded.rv != _INCONSISTENT):
        raise bad_request(
            "invalid continue token: continue key is not valid: unrecognized version, start or resourceVersion"
        )
    start = f"{namespace}/{decoded.start}" if namespace is not None else decoded.start
    return decoded.rv, start


def _token_expired(start: str, namespace: str | None) -> StatusError:
    error = expired(_TOKEN_EXPIRED)
    error.status["metadata"] = {"continue": _write_token(_INCONSISTENT, start, namespace)}
    return error
