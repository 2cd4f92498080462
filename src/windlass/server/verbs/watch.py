"""Watches: newline-separated events from a version on, until timeout or disconnection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

from windlass.api.errors import expired
from windlass.client.transport import Response
from windlass.kits.clock import Clock
from windlass.server.core import Call, ServerCore
from windlass.server.presentation import responses
from windlass.server.presentation.presenter import Presenter, error_line
from windlass.server.request.params import ListOptions, list_options
from windlass.server.verbs.presenter_choice import objects_per_chunk, presenter_for
from windlass.server.verbs.read import build_filter, wait_for_version
from windlass.store import errors as store_errors
from windlass.store.filters import StoreFilter
from windlass.store.records import Op
from windlass.store.watch import WatchChange, Watcher

_BEFORE_END_SECONDS = 1.5
"""Interval (seconds) between the last bookmark and the end of the watch.

The client should read the bookmark before the stream closes.
"""


async def watch(core: ServerCore, call: Call) -> Response:
    """Handle a watch of a collection. Raises StatusError.

    The deprecated path form can also watch one object.
    """
    target = call.target
    params = dict(call.params)
    if target.name:
        own = f"metadata.name={target.name}"
        params["fieldSelector"] = f"{params['fieldSelector']},{own}" if params.get("fieldSelector") else own
    options = list_options(params, watch=True)
    wanted = build_filter(target.resource, target.stored, target.namespace, options)
    presenter = presenter_for(core, call, collection=True)
    if options.initial_events and options.rv:
        await wait_for_version(core, options.rv)
    size = objects_per_chunk(core, call)
    return responses.stream(
        _stream(core, target.table, presenter, wanted, options, size), presenter.content_type
    )


async def _stream(
    core: ServerCore, table: str, presenter: Presenter, wanted: StoreFilter, options: ListOptions, size: int
) -> AsyncIterator[bytes]:
    core.open_watches += 1
    try:
        first = True
        begin = core.clock.monotonic()
        since = options.rv
        from_state = not since or options.initial_events is True
        if from_state:
            since = core.store.rv
            if options.initial_events is not False:
                async for chunk in _initial(core, table, presenter, wanted, size):
                    yield chunk
                    first = False
                if options.bookmarks:
                    yield presenter.bookmark(since, initial_end=True, first=first)
                    first = False
        assert since is not None
        limit = options.timeout_seconds
        if not limit:
            shortest = core.options.watch_min_seconds
            limit = shortest * (1 + core.rng.random())
        follow = _Follow(core, presenter, wanted, options.bookmarks, begin + limit)
        async for chunk in follow.run(table, since, first):
            yield chunk
    finally:
        core.open_watches -= 1


async def _initial(
    core: ServerCore, table: str, presenter: Presenter, wanted: StoreFilter, size: int
) -> AsyncIterator[bytes]:
    """Yield the current state as ADDED events, in key order.

    The snapshot is taken before the first chunk.
    """
    entries = core.store.candidates(table, wanted)
    first = True
    for start in range(0, len(entries), size):
        lines = []
        for entry in entries[start : start + size]:
            if wanted.matches(entry):
                lines.append(presenter.line(Op.ADDED, entry, first=first))
                first = False
        if lines:
            yield b"".join(lines)
        await asyncio.sleep(0)


class _Follow:
    """Part of a watch that follows changes."""

    def __init__(
        self, core: ServerCore, presenter: Presenter, wanted: StoreFilter, bookmarks: bool, deadline: float
    ) -> None:
        self._core = core
        self._presenter = presenter
        self._wanted = wanted
        self._deadline = deadline
        self._last_bookmark = deadline - _BEFORE_END_SECONDS
        now = core.clock.monotonic()
        self._next_bookmark = (
            min(now + core.options.bookmark_seconds, max(now, self._last_bookmark)) if bookmarks else None
        )

    async def run(self, table: str, since: int, first: bool) -> AsyncIterator[bytes]:
        core = self._core
        try:
            watcher = core.store.watch(table, self._wanted, since=since)
        except store_errors.Expired as error:
            yield error_line(expired(str(error)).status)
            return
        alarm = _Timer(core.clock, watcher.interrupt)
        try:
            while not watcher.closed and not core.stopping:
                now = core.clock.monotonic()
                if now >= self._deadline:
                    return
                if self._next_bookmark is not None and now >= self._next_bookmark:
                    delivered = watcher.delivered_rv
                    if delivered is not None:
                        yield self._presenter.bookmark(delivered, initial_end=False, first=first)
                        first = False
                        self._plan_bookmark(now)
                alarm.set(self._next_alarm(now))
                start = watcher.position
                changes = await watcher.batch()
                if changes:
                    yield self._lines(table, watcher, start, changes, first)
                    first = False
        except store_errors.Expired as error:
            yield error_line(expired(str(error)).status)
        except store_errors.TooSlow:
            return  # the client reconnects at its last version and is served from the log
        finally:
            alarm.cancel()
            watcher.close()

    def _plan_bookmark(self, now: float) -> None:
        if now >= self._last_bookmark:
            self._next_bookmark = None
        else:
            self._next_bookmark = min(now + self._core.options.bookmark_seconds, self._last_bookmark)

    def _next_alarm(self, now: float) -> float:
        upcoming = self._deadline if self._next_bookmark is None else self._next_bookmark
        return max(now, min(self._deadline, upcoming))

    def _lines(
        self, table: str, watcher: Watcher, start: int, changes: list[WatchChange], first: bool
    ) -> bytes:
        line = self._presenter.line
        if first or not self._wanted.everything or not changes[0].shared:
            return b"".join(
                [
                    line(change.op, change.entry, first=first and not number)
                    for number, change in enumerate(changes)
                ]
            )
        # Watchers without a filter get the same events together, so they share bytes.
        key = (table, self._presenter.key, start, watcher.position)
        shared = self._core.shared_chunk(key)
        if shared is None:
            shared = b"".join([line(change.op, change.entry, first=False) for change in changes])
            self._core.share_chunk(key, shared)
        return shared


class _Timer:
    """Timer on the monotonic clock, with at most one sleeping task."""

    def __init__(self, clock: Clock, ring: Callable[[], None]) -> None:
        self._clock = clock
        self._ring = ring
        self._at = -1.0
        self._task: asyncio.Task[None] | None = None

    def set(self, at: float) -> None:
        if self._task is not None and not self._task.done() and self._at == at:
            return
        self.cancel()
        self._at = at
        self._task = asyncio.get_running_loop().create_task(self._wait(at))

    async def _wait(self, at: float) -> None:
        await self._clock.sleep(at - self._clock.monotonic())
        self._ring()

    def cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None
