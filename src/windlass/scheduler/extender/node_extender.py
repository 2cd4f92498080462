"""HTTP extenders that filter and score nodes (Volcano's plugin ``extender``).

For each kind of pod every node is sent once (``predicate``), then all nodes together
(``prioritize``). The format is JSON with the names of Volcano's own scheduler
(:mod:`windlass.scheduler.extender.protocol`). Pods of one kind share the verdicts,
which are renewed every minute while they are used. Until then the earlier verdicts
hold. A request that fails rejects the node, or with ``extender.ignorable`` accepts it.

Requests in the middle of a decision: :mod:`windlass.scheduler.extender.client`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from windlass.api import views
from windlass.api.errors import WindlassError
from windlass.client.transport import Request, TooLong, Transport, whole
from windlass.kits.clock import Clock
from windlass.kits.tasks import wait_for
from windlass.observe import logs
from windlass.scheduler.extender import protocol
from windlass.scheduler.extender.client import MAX_RESPONSE_BYTES, decode_like_go, transport_to
from windlass.spi import renamed
from windlass.spi.extender import ExtenderCall, ExtenderEndpoints, NodeVerdict, TakesNodeExtender
from windlass.spi.objects import Needs

RENEW_SECONDS = 60.0
"""Interval in seconds between renewals of the verdicts."""
FORGET_SECONDS = 600.0
"""Time in seconds after which unused verdicts are dropped."""
CONCURRENCY = 16
"""Maximum number of requests in progress."""
Session = Callable[[], Mapping[str, Any]]
log = logs.get("scheduler")


class _Predicate(msgspec.Struct):
    """Response to ``predicate``.

    ``status`` (Volcano's name) is the message of a rejection.
    """

    status: str = ""
    code: int = 0


class _Prioritize(msgspec.Struct):
    nodescore: dict[str, float] = {}
    errormessage: str = ""


@renamed.attributes_of("NodeExtender")
class HttpNodeExtender:
    """Implements :class:`~windlass.spi.extender.NodeExtender`.

    ``changed()`` is called when verdicts have changed. ``session()`` returns the body
    that begins a round, if ``onSessionOpenVerb`` is configured.
    """

    def __init__(
        self,
        endpoints: ExtenderEndpoints,
        transport: Transport,
        nodes: Mapping[str, views.NodeObject],
        changed: Callable[[], None],
        *,
        clock: Clock,
        session: Session | None = None,
    ) -> None:
        self._endpoints = endpoints
        self._transport = transport
        self._nodes = nodes
        self._changed = changed
        self._clock = clock
        self._session = session
        self._verdicts: dict[Needs, dict[str, NodeVerdict]] = {}
        self._wanted: dict[Needs, dict[str, None]] = {}
        self._last_wanted: dict[Needs, float] = {}
        self._has_changed = False
        self._wake = asyncio.Event()

    def verdicts(self, needs: Needs, nodes: Sequence[str]) -> Mapping[str, NodeVerdict]:
        self._last_wanted[needs] = self._clock.monotonic()
        known = self._verdicts.get(needs, {})
        missing = [name for name in nodes if name not in known]
        if missing:
            self._wanted.setdefault(needs, {}).update(dict.fromkeys(missing))
            self._wake.set()
        return known

    def has_news(self) -> bool:
        changed, self._has_changed = self._has_changed, False
        return changed

    async def run(self) -> None:
        """Request the verdicts that are wanted, until cancelled."""
        try:
            while True:
                await wait_for(self._wake, self._clock, RENEW_SECONDS)
                self._wake.clear()
                wanted, self._wanted = self._wanted, {}
                await self.request(wanted or self._known())
        finally:
            await self._transport.close()

    def _known(self) -> dict[Needs, dict[str, None]]:
        """Return the known verdicts that are still used, and drop the others."""
        now = self._clock.monotonic()
        for needs, at in list(self._last_wanted.items()):
            if now - at > FORGET_SECONDS:
                del self._last_wanted[needs]
                self._verdicts.pop(needs, None)
        return {needs: dict.fromkeys(known) for needs, known in self._verdicts.items()}

    async def request(self, wanted: Mapping[Needs, Iterable[str]]) -> None:
        """Request verdicts on nodes for kinds of pods."""
        if not wanted:
            return
        problem = await self._notify(ExtenderCall.OPEN)
        try:
            for needs, names in wanted.items():
                await self._request_kind(needs, names, problem)
        finally:
            await self._notify(ExtenderCall.CLOSE)

    async def _notify(self, call: ExtenderCall) -> str:
        """Report that a round begins or ends. Return what went wrong."""
        verb = self._endpoints.verbs.get(call)
        if not verb or self._session is None:
            return ""
        body = self._session() if call is ExtenderCall.OPEN else {}
        _, problem = await self._post(verb, body, msgspec.Raw)
        if problem:
            log.warning("extender failed", why=problem, ignored=self._endpoints.ignorable)
        return "" if self._endpoints.ignorable else problem

    async def _request_kind(self, needs: Needs, names: Iterable[str], problem: str) -> None:
        """Request verdicts for one kind of pods.

        ``problem``: why nothing can be requested.
        """
        present = [name for name in names if name in self._nodes]
        if problem:
            rejections, scores = dict.fromkeys(present, f"it failed: {problem}"), {}
        else:
            rejections = await self._filter(needs, present)
            scores = await self._score(needs, present)
        known = self._verdicts.setdefault(needs, {})
        verdicts = {name: NodeVerdict(rejections.get(name, ""), scores.get(name, 0.0)) for name in present}
        if any(known.get(name) != verdict for name, verdict in verdicts.items()):
            known.update(verdicts)
            self._has_changed = True
            self._changed()

    async def _filter(self, needs: Needs, names: Sequence[str]) -> dict[str, str]:
        """Return why each node is rejected, ``""`` if it is not."""
        if not self._endpoints.predicate:
            return {}
        limit = asyncio.Semaphore(CONCURRENCY)

        async def filter_node(name: str) -> str:
            async with limit:
                body = {
                    "task": protocol.kind_of_task(needs),
                    "node": protocol.node(self._nodes[name]),
                }
                response, problem = await self._post(self._endpoints.predicate, body, _Predicate)
            return response.status if response is not None else self._rejection(problem)

        return dict(zip(names, await asyncio.gather(*map(filter_node, names)), strict=True))

    async def _score(self, needs: Needs, names: Sequence[str]) -> dict[str, float]:
        if not self._endpoints.prioritize or not names:
            return {}
        body = {
            "task": protocol.kind_of_task(needs),
            "nodes": [protocol.node(self._nodes[name]) for name in names],
        }
        response, problem = await self._post(self._endpoints.prioritize, body, _Prioritize)
        if response is None or response.errormessage:
            why = problem or (response.errormessage if response else "")
            log.warning("extender gives no scores", why=why)
            return {}
        return response.nodescore

    def _rejection(self, problem: str) -> str:
        """Return the rejection of a node for which the request has failed."""
        log.warning("extender failed", why=problem, ignored=self._endpoints.ignorable)
        return "" if self._endpoints.ignorable else f"it failed: {problem}"

    async def _post(self, verb: str, body: Any, kind: type[Any]) -> tuple[Any, str]:
        """Return the response, or ``None`` and what is wrong."""
        headers = {"content-type": "application/json", "accept": "application/json"}
        request = Request("POST", f"/{verb.lstrip('/')}", headers=headers, body=msgspec.json.encode(body))
        try:
            response = await self._transport.request(request)
            content = await whole(response, MAX_RESPONSE_BYTES)
            if response.status != 200:
                return None, f"{verb}: status {response.status}"
            return (None if kind is msgspec.Raw else decode_like_go(content, kind)), ""
        except (WindlassError, TooLong) as error:
            return None, f"{verb}: {error}"
        except msgspec.MsgspecError as error:
            return None, f"{verb}: invalid response: {error}"


class NodeExtenders:
    """Gives each plugin in force the node extender that it needs."""

    def __init__(
        self,
        nodes: Mapping[str, views.NodeObject],
        changed: Callable[[], None],
        *,
        clock: Clock,
        session: Session | None = None,
    ) -> None:
        self._nodes = nodes
        self._changed = changed
        self._clock = clock
        self._session = session
        self._tasks: list[asyncio.Task[None]] = []

    def serve(self, plugins: Iterable[object], start: Callable[[Any, str], asyncio.Task[None]]) -> None:
        """Connect the plugins in force.

        ``start(coroutine, name)`` runs a background task.
        """
        for task in self._tasks:
            task.cancel()
        self._tasks = []
        for plugin in plugins:
            if isinstance(plugin, TakesNodeExtender):
                extender = HttpNodeExtender(
                    plugin.endpoints,
                    transport_to(plugin.endpoints, concurrency=CONCURRENCY),
                    self._nodes,
                    self._changed,
                    clock=self._clock,
                    session=self._session,
                )
                plugin.take_node_extender(extender)
                self._tasks.append(start(extender.run(), "extender"))
