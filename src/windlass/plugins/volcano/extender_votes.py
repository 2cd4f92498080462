"""Volcano's ``extender`` for decisions: an external server votes on victims, admission,
queues and starts.

The server is also notified of placements and evictions.

The policies make no connection themselves. They ask a client
(:mod:`windlass.spi.extender`) that the scheduler provides, in the middle of the
decision. One *round* is one cycle with at least one request. Inside a round equal
requests are sent once, until the next notification, which may change the answers.
Without a client, as in a dry run, the policies abstain.

With ``extender.ignorable`` a failed request counts as an abstention. Without it a
failure counts as a rejection: no pod may be evicted, no group is admitted or starts,
and every queue is overused. After a rejection the same request is sent again
:data:`AGAIN_SECONDS` later, because the answer may change without any change in the
cluster.
"""

from __future__ import annotations

from collections.abc import Sequence

from windlass.api.reasons import Reason
from windlass.plugins.dialects import VOLCANO
from windlass.spi.consent import LATER, ProposedDecision
from windlass.spi.extender import (
    ExtenderCall,
    ExtenderClient,
    ExtenderEndpoints,
    ExtenderReply,
    ExtenderRequest,
    ExtenderUnavailable,
)
from windlass.spi.objects import Dialect
from windlass.spi.plugins import QueueView, Rejection
from windlass.spi.tiers import EnqueueRequest, GangView, Purpose, TaskView, Vote

AGAIN_SECONDS = 10.0
_NOTIFICATIONS = (ExtenderCall.ENQUEUED, ExtenderCall.ALLOCATE, ExtenderCall.DEALLOCATE)
_IN_ROUNDS = frozenset(ExtenderCall) - {ExtenderCall.OPEN, ExtenderCall.CLOSE}


class ExtenderContext:
    """Connection of the voters of one configured extender."""

    name = "extender"
    dialects = VOLCANO

    def __init__(self, endpoints: ExtenderEndpoints) -> None:
        self.endpoints = endpoints
        self._client: ExtenderClient | None = None
        self._in_cycle = False
        self._open = False
        self._known: dict[ExtenderRequest, ExtenderReply | ExtenderUnavailable] = {}
        self._now = 0.0
        self._due: float | None = None
        self._cut_short = False

    def take_extender_client(self, client: ExtenderClient) -> None:
        self._client = client

    # ------------------------------------------------------------------ rounds

    def opened(self, now: float) -> None:
        """Begin a round; if the last one was cut short, its responses stay valid."""
        self._in_cycle, self._now = True, now
        if not self._cut_short:
            self._known.clear()
        self._cut_short = False

    def closed(self) -> None:
        self._in_cycle = False
        if self._open and self._client is not None:
            self._client.close()
        self._open = False

    def changed(self, now: float) -> bool:
        if self._due is None or now < self._due:
            return False
        self._due = None
        return True

    def due(self, now: float) -> float | None:
        return self._due

    # ------------------------------------------------------------------ questions

    def asks(self, call: ExtenderCall) -> bool:
        return bool(self.endpoints.verbs.get(call))

    def applies_to(self, task: TaskView) -> bool:
        needs = task.task.needs
        return needs.dialect is Dialect.VOLCANO and self.endpoints.applies_to(needs)

    def ask(self, request: ExtenderRequest) -> ExtenderReply | ExtenderUnavailable | None:
        """Return the response; ``None`` without a client or outside of a decision."""
        if self._client is None or not self.asks(request.call):
            return None
        if not self._in_cycle:
            return self._known.get(request)
        is_notification = request.call in _NOTIFICATIONS
        response = None if is_notification else self._known.get(request)
        if response is None:
            if not self._open:
                self._open = True
                self._client.open()
            response = self._client.ask(request)
            if is_notification:
                self._known.clear()
            elif isinstance(response, ExtenderReply) or not response.later:
                self._known[request] = response
        if isinstance(response, ExtenderUnavailable) and not is_notification:
            self.retry_later(at_once=response.later)
            self._cut_short = self._cut_short or response.later
        return response

    def retry_later(self, *, at_once: bool = False) -> None:
        """Schedule a retry after a rejection or a failed request."""
        time = self._now if at_once else self._now + AGAIN_SECONDS
        self._due = time if self._due is None else min(self._due, time)


def _rejection(what: str, response: ExtenderReply | ExtenderUnavailable) -> Rejection:
    if isinstance(response, ExtenderUnavailable) and response.later:
        return LATER
    verdicts = response.why if isinstance(response, ExtenderUnavailable) else response.rejection
    return Rejection(Reason.REFUSED_BY_EXTENDER, detail=f"{what}: {verdicts}" if verdicts else what)


class ExtenderEvictable:
    """Vote on victims by ``preemptableVerb`` and ``reclaimableVerb``. A failed request
    names none."""

    name = "extender"

    def __init__(self, context: ExtenderContext, purpose: Purpose) -> None:
        self._context = context
        self._purpose = purpose
        self._matter = ExtenderCall.PREEMPTABLE if purpose is Purpose.PREEMPT else ExtenderCall.RECLAIMABLE

    def victims(
        self, purpose: Purpose, preemptor: TaskView, candidates: Sequence[TaskView]
    ) -> Sequence[TaskView] | None:
        context = self._context
        if purpose is not self._purpose or not context.applies_to(preemptor):
            return None
        keys = tuple(candidate.task.key for candidate in candidates)
        response = context.ask(ExtenderRequest(self._matter, task=preemptor.task.key, others=keys))
        if response is None or (isinstance(response, ExtenderUnavailable) and context.endpoints.ignorable):
            return None
        if isinstance(response, ExtenderUnavailable):
            return []
        if not response.status:
            return None
        chosen = [candidate for candidate in candidates if candidate.task.uid in response.named]
        if not chosen:
            context.retry_later()
        return chosen


class ExtenderOverused:
    """Vote on overuse by ``queueOverusedVerb``."""

    name = "extender"

    def __init__(self, context: ExtenderContext) -> None:
        self._context = context

    def overused(self, queue: QueueView) -> bool:
        response = self._context.ask(ExtenderRequest(ExtenderCall.OVERUSED, queue=queue.name))
        if isinstance(response, ExtenderUnavailable):
            return not self._context.endpoints.ignorable
        if response is None or not response.yes:
            return False
        self._context.retry_later()
        return True


class ExtenderEnqueueable:
    """Vote on admission by ``jobEnqueueableVerb``; ``jobEnqueuedVerb`` is notified."""

    name = "extender"
    personal = True

    def __init__(self, context: ExtenderContext) -> None:
        self._context = context

    def admit(self, admission: EnqueueRequest) -> Vote | Rejection:
        context = self._context
        response = context.ask(ExtenderRequest(ExtenderCall.ENQUEUEABLE, group=admission.gang.spec.key))
        if response is None or (isinstance(response, ExtenderUnavailable) and context.endpoints.ignorable):
            return Vote.ABSTAIN
        if isinstance(response, ExtenderUnavailable):
            return _rejection("the admission request failed", ExtenderUnavailable(response.why))
        if response.status < 0:
            context.retry_later()
            return _rejection("it does not admit the group", response)
        return Vote.PERMIT if response.status else Vote.ABSTAIN

    def admitted(self, gang: GangView) -> None:
        self._context.ask(ExtenderRequest(ExtenderCall.ENQUEUED, group=gang.spec.key))


class ExtenderPermit:
    """Vote on the start or growth of a gang.

    First each placement is reported (``allocateFuncVerb``) and may be rejected, then
    ``jobReadyVerb`` is asked. If the decision is rejected, all reported placements are
    withdrawn (``deallocateFuncVerb``). If it is accepted, its evictions are reported.
    """

    name = "extender"

    def __init__(self, context: ExtenderContext, *, ready: bool = True) -> None:
        """:param ready: ask ``jobReadyVerb``"""
        self._context = context
        self._asks_ready = ready

    def permit(self, proposal: ProposedDecision) -> Rejection | None:
        reported: list[TaskView] = []
        rejection = self._place(proposal, reported) or self._start(proposal)
        if rejection is not None and proposal.gang is not None:
            self._take_back(reported)
            return rejection
        self._leave(proposal.evicted)
        return None

    def withdrawn(self, proposal: ProposedDecision) -> None:
        self._take_back(list(proposal.placed))

    def _place(self, proposal: ProposedDecision, reported: list[TaskView]) -> Rejection | None:
        context = self._context
        for task in proposal.placed:
            if not context.applies_to(task):
                continue
            key = task.task.key
            response = context.ask(
                ExtenderRequest(ExtenderCall.ALLOCATE, task=key, placements=(_placement(task),))
            )
            if isinstance(response, ExtenderUnavailable) and not context.endpoints.ignorable:
                return _rejection(f"the request for {key} failed", response)
            if isinstance(response, ExtenderReply):
                if response.rejection:
                    return _rejection(f"it rejects the node of {key}", response)
                reported.append(task)
        return None

    def _start(self, proposal: ProposedDecision) -> Rejection | None:
        context, gang = self._context, proposal.gang
        if gang is None or not proposal.placed or not self._asks_ready:
            return None
        if gang.spec.dialect is not Dialect.VOLCANO:
            return None
        placements = tuple(_placement(task) for task in proposal.placed)
        response = context.ask(
            ExtenderRequest(ExtenderCall.READY, group=gang.spec.key, placements=placements)
        )
        if response is None or (isinstance(response, ExtenderUnavailable) and context.endpoints.ignorable):
            return None
        if isinstance(response, ExtenderUnavailable):
            return _rejection("the request for the start failed", response)
        return None if response.yes else _rejection("it does not permit the start", response)

    def _take_back(self, reported: list[TaskView]) -> None:
        self._leave(reported[::-1])

    def _leave(self, tasks: Sequence[TaskView]) -> None:
        for task in tasks:
            if self._context.applies_to(task):
                request = ExtenderRequest(
                    ExtenderCall.DEALLOCATE, task=task.task.key, placements=(_placement(task),)
                )
                self._context.ask(request)


def _placement(task: TaskView) -> tuple[str, str]:
    return task.task.key, task.node.name if task.node is not None else ""


def asks_in_rounds(endpoints: ExtenderEndpoints) -> bool:
    """Return whether the extender has calls in the middle of decisions."""
    return bool(endpoints.url) and any(endpoints.verbs.get(call) for call in _IN_ROUNDS)
