"""State machine of client-go's reflector (v0.36), without I/O. It differs in its first list.

It returns the next action (:meth:`Reflector.step`: list a page, open a watch, wait) and
is called with the result. Objects go into a :class:`Sink`. Time and randomness are
parameters. The rules:

- WatchList first: existing objects arrive as events, are staged until the marked
  bookmark, and then swapped in at once. If a server rejects it, plain list and watch
  are used from then on. Any other failure of it causes one plain list.
- A list requests the newest state ("") at first, and when the last version was rejected
  as expired or unknown, in pages. Otherwise it requests at least that version, in one
  piece. (client-go requests "0" at first, which is whatever the server has in its
  cache. Since Kubernetes 1.31 a server also returns the newest state for "", and a
  scheduler should use that.)
- A watch starts at the last version seen. After one started from ""/"0", synthetic
  ADDED events do not change that version until another event arrives, since they have
  no order.
- 410 in a watch causes a list. After 429, or if a server cannot be reached, the version
  is kept and the watch retried after a back-off. The same applies to 500 for a while.
  Everything else causes a list.
- A watch that ends within a second without an event counts as a failure.
- The back-off doubles from 0.8 s to 30 s, with up to as much jitter. It is reset after
  two minutes without one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Protocol

import msgspec

from windlass.api.errors import StatusError
from windlass.client import responses
from windlass.client.errors import Unreachable
from windlass.client.responses import INITIAL_EVENTS_END, WatchEvent
from windlass.kits.backoff import Backoff
from windlass.kits.clock import Clock
from windlass.kits.rng import Random

PAGE = 5000
WATCH_SECONDS = 300.0
"""Minimum duration (seconds) of a watch by the server's clock; the maximum is twice as long."""
SHORT_WATCH_SECONDS = 1.0
HEALTHY_SECONDS = 120.0
INTERNAL_RETRY_SECONDS = 60.0
"""Maximum time (seconds) to retry a watch that fails with 500 before listing again."""


@dataclass(frozen=True, slots=True)
class ListPage:
    """Request a page of the list. ``resource_version`` only applies without ``continue_token``."""

    resource_version: str
    limit: int
    continue_token: str = ""


@dataclass(frozen=True, slots=True)
class OpenWatch:
    """Open a watch; ``initial_events`` makes it a WatchList."""

    resource_version: str
    timeout_seconds: int
    initial_events: bool = False


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait. ``at_least``: the part of the time that the server requested."""

    seconds: float
    at_least: float = 0.0


Step = ListPage | OpenWatch | Pause


class Sink(Protocol):
    """Destination of objects. Objects staged between ``begin`` and ``swap`` are invisible; ``begin`` drops them."""

    def begin(self) -> None: ...

    def stage(self, obj: msgspec.Raw) -> None: ...

    def unstage(self, obj: msgspec.Raw) -> None: ...

    def swap(self, resource_version: str) -> None: ...

    def upsert(self, obj: msgspec.Raw) -> str:
        """Store an object. Return its resourceVersion; "" for an invalid object, which is skipped."""
        ...

    def remove(self, obj: msgspec.Raw) -> str: ...


class _State(Enum):
    WATCH_LIST = auto()
    """Open a WatchList."""
    INITIAL = auto()
    """A WatchList is open and has not reached its bookmark."""
    LIST = auto()
    """Get the first or the next page of a plain list."""
    WATCH = auto()
    """Open a watch."""
    FOLLOW = auto()
    """A watch is open (or a WatchList past its bookmark)."""


class Reflector:
    """State machine of one collection.

    ``synced`` turns true at the first complete state and stays so.
    """

    def __init__(self, sink: Sink, clock: Clock, rng: Random, *, use_watch_list: bool = True) -> None:
        """``use_watch_list``: use WatchLists unless the server rejects them, else lists and watches."""
        self._sink = sink
        self._clock = clock
        self._rng = rng
        self._backoff = Backoff(rng)
        self._backed_off_at = float("-inf")
        self._use_watch_list = use_watch_list
        self._wait: Pause | None = None
        self._last_rv = ""
        self._rv_unavailable = False
        # The list in progress.
        self._list_rv = ""
        self._continue = ""
        self._list_retried = False
        self._whole = False
        # The watch in progress.
        self._opened_at = 0.0
        self._events = 0
        self._hold_rv = False
        self._initial_rv = ""
        self._internal_since: float | None = None
        self.synced = False
        self._state = _State.LIST
        self._start_over()

    @property
    def resource_version(self) -> str:
        """Last version seen; "" before the first sync."""
        return self._last_rv

    @property
    def state(self) -> str:
        return self._state.name

    # What to do next.

    def step(self) -> Step:
        """Return the next action. It is not called while a watch is open."""
        if self._wait is not None:
            wait, self._wait = self._wait, None
            return wait
        match self._state:
            case _State.WATCH_LIST:
                self._sink.begin()
                return self._open(self._known_rv(), initial_events=True)
            case _State.LIST:
                return self._list_step()
            case _State.WATCH:
                return self._open(self._known_rv(), initial_events=False)
        raise RuntimeError(f"a watch is open ({self._state.name})")

    def _open(self, rv: str, *, initial_events: bool) -> OpenWatch:
        seconds = WATCH_SECONDS * (1.0 + self._rng.random())
        self._opened_at = self._clock.monotonic()
        self._events = 0
        self._hold_rv = rv in ("", "0") and not initial_events
        self._initial_rv = ""
        return OpenWatch(rv, int(seconds), initial_events)

    def _list_step(self) -> ListPage:
        if self._continue:
            return ListPage("", PAGE, self._continue)
        self._sink.begin()
        self._list_rv = self._known_rv()
        paged = not self._whole and not self._list_rv
        return ListPage(self._list_rv, PAGE if paged else 0)

    def _known_rv(self) -> str:
        """Return the last version seen, unless the server rejected it."""
        return "" if self._rv_unavailable else self._last_rv

    def _start_over(self) -> None:
        """Restart ListAndWatch."""
        self._continue = ""
        self._list_retried = False
        self._whole = False
        self._internal_since = None
        self._state = _State.WATCH_LIST if self._use_watch_list else _State.LIST

    def _plain_list(self) -> None:
        self._start_over()
        self._state = _State.LIST

    def _back_off(self, at_least: float = 0.0) -> None:
        now = self._clock.monotonic()
        if now - self._backed_off_at > HEALTHY_SECONDS:
            self._backoff.reset()
        self._backed_off_at = now
        self._wait = Pause(max(at_least, self._backoff.next()), at_least)

    def answered(self) -> None:
        """Reset the back-off: the server answers again, whatever the answer."""
        self._backoff.reset()

    # Lists.

    def listing(self, objects: Sequence[msgspec.Raw]) -> None:
        """Stage objects of a page that is arriving."""
        for obj in objects:
            self._sink.stage(obj)

    def listed(self, resource_version: str, continue_token: str) -> None:
        """Record that the page is complete."""
        self._continue = continue_token
        if continue_token:
            return
        self._synced_at(resource_version)
        self._state = _State.WATCH

    def list_failed(self, problem: StatusError | Unreachable) -> None:
        """Record that a page failed."""
        continued, self._continue = bool(self._continue), ""
        if _wrong_version(problem):
            if continued and not self._whole:
                self._whole = True  # the pages' snapshot expired: take the list in one piece
                return
            self._rv_unavailable = True
            if self._list_rv and not self._list_retried:
                self._list_retried = True
                return
        self._back_off(_asked_wait(problem))
        self._start_over()

    def _synced_at(self, resource_version: str) -> None:
        self._rv_unavailable = False
        self._list_retried = False
        self._whole = False
        self._sink.swap(resource_version)
        self._last_rv = resource_version
        self.synced = True

    # Watches.

    def watch_refused(self, problem: StatusError | Unreachable) -> None:
        """Record that the watch could not be opened."""
        if self._state is _State.WATCH_LIST:
            self._watch_list_failed(problem)
            return
        self._back_off(_asked_wait(problem))
        if not _try_watch_again(problem):
            self._start_over()

    def watch_opened(self) -> None:
        """Record that the head of the watch has arrived. Events follow."""
        self._state = _State.INITIAL if self._state is _State.WATCH_LIST else _State.FOLLOW

    def events(self, batch: Sequence[WatchEvent]) -> StatusError | None:
        """Process events in order. An ERROR event ends the watch and is returned.

        The caller passes it to :meth:`watch_ended`.
        """
        for event in batch:
            kind = event.type
            if kind == "ERROR":
                return responses.event_error(responses.decode_any(event.object))
            if self._state is _State.INITIAL:
                self._initial_event(kind, event.object)
            else:
                self._live_event(kind, event.object)
        return None

    def _initial_event(self, kind: str, obj: msgspec.Raw) -> None:
        if kind in ("ADDED", "MODIFIED"):
            self._sink.stage(obj)
        elif kind == "DELETED":
            self._sink.unstage(obj)
        elif kind == "BOOKMARK":
            metadata = _bookmark(obj)
            self._initial_rv = metadata.resource_version
            if (metadata.annotations or {}).get(INITIAL_EVENTS_END) == "true":
                self._synced_at(self._initial_rv)
                self._state = _State.FOLLOW
        else:
            return  # a type of the future
        self._events += 1

    def _live_event(self, kind: str, obj: msgspec.Raw) -> None:
        if kind == "ADDED":
            rv = self._sink.upsert(obj)
            self._events += 1
            if not self._hold_rv:
                self._advance(rv)
            return
        if kind == "MODIFIED":
            rv = self._sink.upsert(obj)
        elif kind == "DELETED":
            rv = self._sink.remove(obj)
        elif kind == "BOOKMARK":
            rv = _bookmark(obj).resource_version
        else:
            return  # a type of the future
        self._events += 1
        self._hold_rv = False
        self._advance(rv)

    def _advance(self, rv: str) -> None:
        if rv and not (rv.isdecimal() and self._last_rv.isdecimal() and int(rv) < int(self._last_rv)):
            self._last_rv = rv  # an event that comes again does not turn the clock back

    def watch_ended(self, problem: StatusError | Unreachable | None = None) -> None:
        """Record the end of the stream: regular, by an ERROR event, or broken."""
        initial = self._state is _State.INITIAL
        elapsed = self._clock.monotonic() - self._opened_at
        short = problem is None and elapsed < SHORT_WATCH_SECONDS and self._events == 0
        if initial:
            self._state = _State.WATCH_LIST
            if short:
                self._back_off()
                self._plain_list()
            elif problem is not None:
                self._watch_list_failed(problem)
            return
        self._state = _State.WATCH
        if problem is None and not short:
            self._internal_since = None
            return
        if isinstance(problem, StatusError):
            self._watch_error(problem)
        elif isinstance(problem, Unreachable):
            if elapsed < SHORT_WATCH_SECONDS:
                self._back_off()  # else it was a healthy stream: resume at once
        else:
            self._back_off()
            self._start_over()

    def _watch_error(self, problem: StatusError) -> None:
        if problem.code == 429:
            self._internal_since = None
            self._back_off(_asked_wait(problem))
            return
        if problem.code == 500:
            now = self._clock.monotonic()
            if self._internal_since is None:
                self._internal_since = now
            if now - self._internal_since < INTERNAL_RETRY_SECONDS:
                self._back_off()
                return
        self._back_off(_asked_wait(problem))
        self._start_over()

    def _watch_list_failed(self, problem: StatusError | Unreachable) -> None:
        self._sink.begin()
        if isinstance(problem, StatusError) and problem.code in (400, 422):
            self._use_watch_list = False  # the server does not know it
            self._plain_list()
            return
        if _try_watch_again(problem):
            self._back_off(_asked_wait(problem))
            return
        if _wrong_version(problem):
            already = self._rv_unavailable
            self._rv_unavailable = True
            if already:
                self._back_off(_asked_wait(problem))
            return
        self._plain_list()


def _bookmark(obj: msgspec.Raw) -> responses.Metadata:
    try:
        return responses.decode_envelope(obj).metadata
    except msgspec.DecodeError:
        return responses.Metadata()  # says nothing


def _try_watch_again(problem: StatusError | Unreachable) -> bool:
    """Return whether to keep the state and retry the same watch."""
    return isinstance(problem, Unreachable) or problem.code == 429


def _wrong_version(problem: StatusError | Unreachable) -> bool:
    """Return whether the server has forgotten the requested version, or does not know it yet."""
    if isinstance(problem, Unreachable):
        return False
    return responses.is_expired(problem) or responses.is_too_large(problem)


def _asked_wait(problem: StatusError | Unreachable) -> float:
    if isinstance(problem, StatusError):
        return responses.retry_after(problem) or 0.0
    return 0.0
