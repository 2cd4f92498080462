"""The consultant of the policies in force (Volcano's ``extender``), over HTTP.

A decision waits for its answers, and with it the whole scheduler: nothing else happens in its event loop until
then. So requests run in a thread with an event loop of its own, where a request's time is bounded as a whole;
after one that got no answer at all nothing more is asked in the round; and all requests of a round together
take at most :data:`PATIENCE_SECONDS`, well below what a leader needs to stay one. What was not asked for that reason
can be in the next round.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import msgspec

from windlass.api.errors import WindlassError
from windlass.client.connection import Connection
from windlass.client.http import HttpOptions, HttpTransport
from windlass.client.transport import Request, TooLong, Transport, whole
from windlass.kits.clock import Clock
from windlass.model.cluster.cluster_model import ClusterModel
from windlass.observe import logs
from windlass.scheduler.extender.protocol import ExtenderEncoder, Words
from windlass.spi.extender import (
    ExtenderCall,
    ExtenderEndpoints,
    ExtenderReply,
    ExtenderRequest,
    ExtenderUnavailable,
    TakesExtenderClient,
)

PATIENCE_SECONDS = 4.0
LARGEST_ANSWER = 10 << 20
"""Bytes; as in Volcano."""
_GRACE_SECONDS = 1.0
log = logs.get("scheduler")
MakeTransport = Callable[[], Transport]
Observe = Callable[[str, str, float], None]
T = TypeVar("T")


def transport_to(hooks: ExtenderEndpoints, *, at_once: int) -> HttpTransport:
    """Connections to an extender's address."""
    seconds = hooks.timeout_seconds
    options = replace(HttpOptions(), limit=at_once, connect_seconds=seconds, response_seconds=seconds)
    return HttpTransport(Connection(server=hooks.url), options=options)


class ExtenderConnection:
    """Requests from where nothing may be awaited. The thread begins with the first of them."""

    def __init__(self, make_transport: MakeTransport) -> None:
        self._make = make_transport
        self._loop: asyncio.AbstractEventLoop | None = None
        self._transport: Transport | None = None
        self._thread: threading.Thread | None = None

    def request(self, request: Request, seconds: float) -> tuple[int, bytes]:
        """The answer's status and body. Raises ``TimeoutError``, or what the transport raises."""
        loop = self._loop or self._begin()
        future = asyncio.run_coroutine_threadsafe(self._within(request, seconds), loop)
        try:
            return future.result(seconds + _GRACE_SECONDS)
        except TimeoutError:
            future.cancel()
            raise

    async def _within(self, request: Request, seconds: float) -> tuple[int, bytes]:
        if self._transport is None:
            self._transport = self._make()
        async with asyncio.timeout(seconds):
            response = await self._transport.request(request)
            return response.status, await whole(response, LARGEST_ANSWER)

    def _begin(self) -> asyncio.AbstractEventLoop:
        loop = self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, args=(loop,), name="windlass-extender", daemon=True)
        self._thread.start()
        return loop

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            loop.run_forever()
        finally:
            if self._transport is not None:
                loop.run_until_complete(self._transport.close())
            loop.close()

    def close(self) -> None:
        """End the thread and its connections."""
        loop, thread = self._loop, self._thread
        self._loop = self._thread = None
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            thread.join(_GRACE_SECONDS)


class HttpExtender:
    """Implements :class:`~windlass.spi.extender.ExtenderClient`. ``observe`` is told of each request: its matter, how
    it went (``answered``, ``failed``) and its seconds."""

    def __init__(
        self,
        hooks: ExtenderEndpoints,
        line: ExtenderConnection,
        teller: ExtenderEncoder,
        *,
        clock: Clock,
        observe: Observe | None = None,
    ) -> None:
        self._hooks = hooks
        self._line = line
        self._teller = teller
        self._clock = clock
        self._observe = observe
        self._until = 0.0
        self._broken = ""

    def open(self) -> None:
        self._until = self._clock.monotonic() + PATIENCE_SECONDS
        self._broken = ""
        if self._hooks.verbs.get(ExtenderCall.OPEN):
            answer = self._send(ExtenderCall.OPEN, self._teller.session())
            if isinstance(answer, ExtenderUnavailable) and not self._hooks.ignorable:
                self._broken = self._broken or answer.why

    def close(self) -> None:
        if self._hooks.verbs.get(ExtenderCall.CLOSE):
            self._send(ExtenderCall.CLOSE, {})

    def ask(self, request: ExtenderRequest) -> ExtenderReply | ExtenderUnavailable:
        answer = self._send(request.matter, self._body(request))
        if isinstance(answer, ExtenderUnavailable):
            return answer
        return _read(request.matter, answer)

    def _body(self, request: ExtenderRequest) -> Words:
        teller, seats = self._teller, dict(request.seats)
        match request.matter:
            case ExtenderCall.PREEMPTABLE | ExtenderCall.RECLAIMABLE:
                others = [teller.task(key) for key in request.others]
                return {"evictor": teller.task(request.task), "evictees": others}
            case ExtenderCall.OVERUSED:
                return {"queue": teller.queue(request.queue)}
            case ExtenderCall.ENQUEUEABLE | ExtenderCall.ENQUEUED | ExtenderCall.READY:
                return {"job": teller.job(request.group, seats)}
            case ExtenderCall.ALLOCATE:
                return {"task": teller.task(request.task, seats)}
            case _:
                return {"task": teller.leaving(request.task, seats)}

    def _send(self, matter: ExtenderCall, body: Words) -> bytes | ExtenderUnavailable:
        if self._broken:
            return ExtenderUnavailable(self._broken)
        begun = self._clock.monotonic()
        left = self._until - begun
        if left <= 0:
            return ExtenderUnavailable(
                f"the {PATIENCE_SECONDS:g} s for one round of questions are up", later=True
            )
        answer = self._exchange(matter, body, min(left, self._hooks.timeout_seconds))
        failed = isinstance(answer, ExtenderUnavailable)
        if failed:
            log.warning("extender failed", verb=str(matter), why=answer.why, ignored=self._hooks.ignorable)
        if self._observe is not None:
            self._observe(str(matter), "failed" if failed else "answered", self._clock.monotonic() - begun)
        return answer

    def _exchange(self, matter: ExtenderCall, body: Words, seconds: float) -> bytes | ExtenderUnavailable:
        path = f"/{self._hooks.verbs[matter].lstrip('/')}"
        headers = {"content-type": "application/json", "accept": "application/json"}
        request = Request("POST", path, headers=headers, body=msgspec.json.encode(body))
        try:
            status, said = self._line.request(request, seconds)
        except TimeoutError:
            self._broken = f"{matter}: no answer within {seconds:.3g} s"
            return ExtenderUnavailable(self._broken)
        except TooLong as error:
            return ExtenderUnavailable(f"{matter}: {error}")
        except WindlassError as error:
            self._broken = f"{matter}: {error}"
            return ExtenderUnavailable(self._broken)
        return said if status == 200 else ExtenderUnavailable(f"{matter}: status {status}")


class _Named(msgspec.Struct):
    uid: str = ""


class _Answer(msgspec.Struct):
    """All that is read of any answer; of ``jobReady``, ``status`` is a truth value."""

    status: int | bool = 0
    overused: bool = False
    victims: list[_Named] = []
    errormessage: str = ""


def _read(matter: ExtenderCall, body: bytes) -> ExtenderReply | ExtenderUnavailable:
    if matter is ExtenderCall.ENQUEUED:
        return ExtenderReply()
    try:
        answer = as_go_reads(body, _Answer)
    except msgspec.MsgspecError as error:
        return ExtenderUnavailable(f"{matter}: no answer that can be read: {error}")
    if isinstance(answer.status, bool) is not (matter is ExtenderCall.READY) and answer.status != 0:
        return ExtenderUnavailable(f"{matter}: no answer that can be read: status is {answer.status!r}")
    if matter is ExtenderCall.READY:
        return ExtenderReply(yes=bool(answer.status), refusal=answer.errormessage)
    named = frozenset(task.uid for task in answer.victims)
    return ExtenderReply(int(answer.status), answer.overused, named, answer.errormessage)


def as_go_reads(body: bytes, kind: type[T]) -> T:
    """An answer, with field names in any case and nulls left out. ``kind`` has its names in small letters. Raises
    ``msgspec.MsgspecError``."""
    return msgspec.convert(_small(msgspec.json.decode(body)), kind)


def _small(plain: Any) -> Any:
    """With the names of the outer fields, and of those of victims, in small letters and without nulls."""
    if isinstance(plain, list):
        return [_small(item) for item in plain]
    if not isinstance(plain, dict):
        return plain
    found = {str(name).lower(): value for name, value in plain.items() if value is not None}
    return {**found, "victims": _small(found["victims"])} if "victims" in found else found


class ExtenderClients:
    """Gives every policy that asks a consultant its own, whenever the policies change."""

    def __init__(self, model: ClusterModel, *, clock: Clock, observe: Observe | None = None) -> None:
        self._teller = ExtenderEncoder(model)
        self._clock = clock
        self._observe = observe
        self._lines: list[ExtenderConnection] = []

    def serve(self, plugins: Iterable[object]) -> None:
        """Connect the policies in force, and nobody else."""
        self.close()
        for plugin in plugins:
            if isinstance(plugin, TakesExtenderClient):
                hooks = plugin.hooks
                line = ExtenderConnection(partial(transport_to, hooks, at_once=1))
                self._lines.append(line)
                consultant = HttpExtender(hooks, line, self._teller, clock=self._clock, observe=self._observe)
                plugin.take_consultant(consultant)

    def session(self) -> Words:
        """What is told at the beginning of a round."""
        return self._teller.session()

    def close(self) -> None:
        for line in self._lines:
            line.close()
        self._lines = []
