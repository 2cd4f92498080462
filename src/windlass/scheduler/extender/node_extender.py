"""The judges of the policies in force (Volcano's ``extender``), over HTTP.

For each kind of pod every node is asked about once (``predicate``), then all nodes together
(``prioritize``), as JSON under the names that Volcano's own scheduler uses
(:mod:`windlass.scheduler.extender.protocol`). Pods of one kind share the answers. They are asked for anew every
minute while somebody wants them; until the new answers are there the old ones hold. A question that fails is a no,
or with ``extender.ignorable`` a yes. What is asked in the middle of a decision:
:mod:`windlass.scheduler.extender.client`.
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
from windlass.scheduler.extender.client import LARGEST_ANSWER, as_go_reads, transport_to
from windlass.spi.extender import ExtenderCall, ExtenderEndpoints, NodeVerdict, TakesNodeExtender
from windlass.spi.objects import Needs

RENEW_SECONDS = 60.0
FORGET_SECONDS = 600.0
AT_ONCE = 16
Session = Callable[[], Mapping[str, Any]]
log = logs.get("scheduler")


class _Predicate(msgspec.Struct):
    """The message of a refusal stands under ``status`` (Volcano's name)."""

    status: str = ""
    code: int = 0


class _Prioritize(msgspec.Struct):
    nodescore: dict[str, float] = {}
    errormessage: str = ""


class HttpNodeExtender:
    """Implements :class:`~windlass.spi.extender.NodeExtender`. ``learn`` is called when there is news."""

    def __init__(
        self,
        hooks: ExtenderEndpoints,
        transport: Transport,
        nodes: Mapping[str, views.NodeObject],
        learn: Callable[[], None],
        *,
        clock: Clock,
        session: Session | None = None,
    ) -> None:
        """``session``: what is told before a round of questions, where ``onSessionOpenVerb`` is named."""
        self._session = session
        self._hooks = hooks
        self._transport = transport
        self._nodes = nodes
        self._learn = learn
        self._clock = clock
        self._known: dict[Needs, dict[str, NodeVerdict]] = {}
        self._wanted: dict[Needs, dict[str, None]] = {}
        self._last_wanted: dict[Needs, float] = {}
        self._news = False
        self._wake = asyncio.Event()

    def opinions(self, needs: Needs, nodes: Sequence[str]) -> Mapping[str, NodeVerdict]:
        self._last_wanted[needs] = self._clock.monotonic()
        known = self._known.get(needs, {})
        missing = [name for name in nodes if name not in known]
        if missing:
            self._wanted.setdefault(needs, {}).update(dict.fromkeys(missing))
            self._wake.set()
        return known

    def learned(self) -> bool:
        news, self._news = self._news, False
        return news

    async def run(self) -> None:
        """Ask what is wanted, until cancelled."""
        try:
            while True:
                await wait_for(self._wake, self._clock, RENEW_SECONDS)
                self._wake.clear()
                wanted, self._wanted = self._wanted, {}
                await self.ask(wanted or self._stale())
        finally:
            await self._transport.close()

    def _stale(self) -> dict[Needs, dict[str, None]]:
        """All that is known and still wanted; what nobody has wanted for long is forgotten."""
        now = self._clock.monotonic()
        for needs, at in list(self._last_wanted.items()):
            if now - at > FORGET_SECONDS:
                del self._last_wanted[needs]
                self._known.pop(needs, None)
        return {needs: dict.fromkeys(known) for needs, known in self._known.items()}

    async def ask(self, wanted: Mapping[Needs, Iterable[str]]) -> None:
        """Ask about nodes for kinds of pods, and keep the answers."""
        if not wanted:
            return
        problem = await self._tell(ExtenderCall.OPEN)
        try:
            await self._ask(wanted, problem)
        finally:
            await self._tell(ExtenderCall.CLOSE)

    async def _tell(self, matter: ExtenderCall) -> str:
        """That a round begins or ends. Returns what went wrong."""
        verb = self._hooks.verbs.get(matter)
        if not verb or self._session is None:
            return ""
        body = self._session() if matter is ExtenderCall.OPEN else {}
        _, problem = await self._post(verb, body, msgspec.Raw)
        if problem:
            log.warning("extender failed", why=problem, ignored=self._hooks.ignorable)
        return "" if self._hooks.ignorable else problem

    async def _ask(self, wanted: Mapping[Needs, Iterable[str]], problem: str) -> None:
        """``problem``: for which no question can be asked."""
        for needs, names in wanted.items():
            present = [name for name in names if name in self._nodes]
            if problem:
                refusals, points = dict.fromkeys(present, f"it failed: {problem}"), {}
            else:
                refusals = await self._refusals(needs, present)
                points = await self._points(needs, present)
            known = self._known.setdefault(needs, {})
            found = {name: NodeVerdict(refusals.get(name, ""), points.get(name, 0.0)) for name in present}
            if any(known.get(name) != opinion for name, opinion in found.items()):
                known.update(found)
                self._news = True
                self._learn()

    async def _refusals(self, needs: Needs, names: Sequence[str]) -> dict[str, str]:
        if not self._hooks.predicate:
            return {}
        gate = asyncio.Semaphore(AT_ONCE)

        async def one(name: str) -> str:
            async with gate:
                body = {
                    "task": protocol.kind_of_task(needs),
                    "node": protocol.node(self._nodes[name]),
                }
                answer, problem = await self._post(self._hooks.predicate, body, _Predicate)
            return answer.status if answer is not None else self._failed(problem)

        return dict(zip(names, await asyncio.gather(*(one(name) for name in names)), strict=True))

    async def _points(self, needs: Needs, names: Sequence[str]) -> dict[str, float]:
        if not self._hooks.prioritize or not names:
            return {}
        body = {
            "task": protocol.kind_of_task(needs),
            "nodes": [protocol.node(self._nodes[name]) for name in names],
        }
        answer, problem = await self._post(self._hooks.prioritize, body, _Prioritize)
        if answer is None or answer.errormessage:
            log.warning("extender gives no scores", why=problem or (answer.errormessage if answer else ""))
            return {}
        return answer.nodescore

    def _failed(self, problem: str) -> str:
        log.warning("extender failed", why=problem, ignored=self._hooks.ignorable)
        return "" if self._hooks.ignorable else f"it failed: {problem}"

    async def _post(self, verb: str, body: Any, kind: type[Any]) -> tuple[Any, str]:
        """The answer, or ``None`` and what is wrong."""
        headers = {"content-type": "application/json", "accept": "application/json"}
        request = Request("POST", f"/{verb.lstrip('/')}", headers=headers, body=msgspec.json.encode(body))
        try:
            response = await self._transport.request(request)
            said = await whole(response, LARGEST_ANSWER)
            if response.status != 200:
                return None, f"{verb}: status {response.status}"
            return (None if kind is msgspec.Raw else as_go_reads(said, kind)), ""
        except (WindlassError, TooLong) as error:
            return None, f"{verb}: {error}"
        except msgspec.MsgspecError as error:
            return None, f"{verb}: no answer that can be read: {error}"


class NodeExtenders:
    """Gives every policy that asks a judge its own, whenever the policies change."""

    def __init__(
        self,
        nodes: Mapping[str, views.NodeObject],
        learn: Callable[[], None],
        *,
        clock: Clock,
        session: Session | None = None,
    ) -> None:
        self._nodes = nodes
        self._session = session
        self._learn = learn
        self._clock = clock
        self._tasks: list[asyncio.Task[None]] = []

    def serve(self, plugins: Iterable[object], start: Callable[[Any, str], asyncio.Task[None]]) -> None:
        """Connect the policies in force; ``start`` runs a coroutine in the background."""
        for task in self._tasks:
            task.cancel()
        self._tasks = []
        for plugin in plugins:
            if isinstance(plugin, TakesNodeExtender):
                judge = HttpNodeExtender(
                    plugin.hooks,
                    transport_to(plugin.hooks, at_once=AT_ONCE),
                    self._nodes,
                    self._learn,
                    clock=self._clock,
                    session=self._session,
                )
                plugin.take_judge(judge)
                self._tasks.append(start(judge.run(), "extender"))
