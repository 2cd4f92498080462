"""Volcano's ``extender``, as far as it votes on decisions: a server outside says who may go, who is let in, which
queue has too much, whether a gang may start, and is told who was placed and who has to go.

The policies reach nobody themselves: they ask a consultant (:mod:`windlass.spi.extender`) that the scheduler
provides, in the middle of the decision. One *round* is one cycle in which there is something to ask; inside of
it equal questions are asked once, until something is told (who is told of a placement may see things
differently). Without a consultant, as in a dry run, none of them has an opinion.

What fails counts, with ``extender.ignorable``, as if nobody had been asked; without it as a no: nobody may
go, no group is let in or starts, every queue has too much. After a no the same is asked again
:data:`AGAIN_SECONDS` later, since nothing that the scheduler sees need change for a yes.
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
_TOLD = (ExtenderCall.ENQUEUED, ExtenderCall.ALLOCATE, ExtenderCall.DEALLOCATE)
_IN_ROUNDS = frozenset(ExtenderCall) - {ExtenderCall.OPEN, ExtenderCall.CLOSE}


class ExtenderContext:
    """Where the voters of one configured extender ask."""

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
        """What could not be asked any more in the round before goes on with what was answered in it."""
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
        """``None``: there is nobody to ask, or nothing is being decided (somebody only wants to know)."""
        if self._client is None or not self.asks(request.call):
            return None
        if not self._in_cycle:
            return self._known.get(request)
        told = request.call in _TOLD
        answer = None if told else self._known.get(request)
        if answer is None:
            if not self._open:
                self._open = True
                self._client.open()
            answer = self._client.ask(request)
            if told:
                self._known.clear()
            elif isinstance(answer, ExtenderReply) or not answer.later:
                self._known[request] = answer
        if isinstance(answer, ExtenderUnavailable) and not told:
            self.was_no(at_once=answer.later)
            self._cut_short = self._cut_short or answer.later
        return answer

    def was_no(self, *, at_once: bool = False) -> None:
        """Somebody waits because of an answer, or because there was none."""
        time = self._now if at_once else self._now + AGAIN_SECONDS
        self._due = time if self._due is None else min(self._due, time)


def _refusal(what: str, answer: ExtenderReply | ExtenderUnavailable) -> Rejection:
    if isinstance(answer, ExtenderUnavailable) and answer.later:
        return LATER
    verdicts = answer.why if isinstance(answer, ExtenderUnavailable) else answer.rejection
    return Rejection(Reason.REFUSED_BY_EXTENDER, detail=f"{what}: {verdicts}" if verdicts else what)


class ExtenderEvictable:
    """Who may go, by ``preemptableVerb`` and ``reclaimableVerb``. What fails names nobody."""

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
        answer = context.ask(ExtenderRequest(self._matter, task=preemptor.task.key, others=keys))
        if answer is None or (isinstance(answer, ExtenderUnavailable) and context.endpoints.ignorable):
            return None
        if isinstance(answer, ExtenderUnavailable):
            return []
        if not answer.status:
            return None
        found = [candidate for candidate in candidates if candidate.task.uid in answer.named]
        if not found:
            context.was_no()
        return found


class ExtenderOverused:
    """True if a queue is passed over, by ``queueOverusedVerb``."""

    name = "extender"

    def __init__(self, context: ExtenderContext) -> None:
        self._context = context

    def overused(self, queue: QueueView) -> bool:
        answer = self._context.ask(ExtenderRequest(ExtenderCall.OVERUSED, queue=queue.name))
        if isinstance(answer, ExtenderUnavailable):
            return not self._context.endpoints.ignorable
        if answer is None or not answer.yes:
            return False
        self._context.was_no()
        return True


class ExtenderEnqueueable:
    """Who is let in, by ``jobEnqueueableVerb``; ``jobEnqueuedVerb`` is told."""

    name = "extender"
    personal = True

    def __init__(self, context: ExtenderContext) -> None:
        self._context = context

    def admit(self, admission: EnqueueRequest) -> Vote | Rejection:
        context = self._context
        answer = context.ask(ExtenderRequest(ExtenderCall.ENQUEUEABLE, group=admission.gang.spec.key))
        if answer is None or (isinstance(answer, ExtenderUnavailable) and context.endpoints.ignorable):
            return Vote.ABSTAIN
        if isinstance(answer, ExtenderUnavailable):
            return _refusal("it could not be asked whether to let it in", ExtenderUnavailable(answer.why))
        if answer.status < 0:
            context.was_no()
            return _refusal("it does not let it in", answer)
        return Vote.PERMIT if answer.status else Vote.ABSTAIN

    def admitted(self, gang: GangView) -> None:
        self._context.ask(ExtenderRequest(ExtenderCall.ENQUEUED, group=gang.spec.key))


class ExtenderPermit:
    """True if a gang may start or grow as it would be placed: first each placement is told
    (``allocateFuncVerb``) and may be refused, then ``jobReadyVerb`` is asked. Of a decision that is refused
    every placement told is taken back (``deallocateFuncVerb``); of one that stands everyone is told who is
    asked to go."""

    name = "extender"

    def __init__(self, context: ExtenderContext, *, ready: bool = True) -> None:
        """``ready``: whether ``jobReadyVerb`` is asked."""
        self._context = context
        self._asks_ready = ready

    def permit(self, proposal: ProposedDecision) -> Rejection | None:
        told: list[TaskView] = []
        rejection = self._place(proposal, told) or self._start(proposal)
        if rejection is not None and proposal.gang is not None:
            self._take_back(told)
            return rejection
        self._leave(proposal.evicted)
        return None

    def withdrawn(self, proposal: ProposedDecision) -> None:
        self._take_back(list(proposal.placed))

    def _place(self, proposal: ProposedDecision, told: list[TaskView]) -> Rejection | None:
        context = self._context
        for task in proposal.placed:
            if not context.applies_to(task):
                continue
            key = task.task.key
            answer = context.ask(ExtenderRequest(ExtenderCall.ALLOCATE, task=key, placements=(_seat(task),)))
            if isinstance(answer, ExtenderUnavailable) and not context.endpoints.ignorable:
                return _refusal(f"it could not be told of {key}", answer)
            if isinstance(answer, ExtenderReply):
                if answer.rejection:
                    return _refusal(f"it refuses a place for {key}", answer)
                told.append(task)
        return None

    def _start(self, proposal: ProposedDecision) -> Rejection | None:
        context, gang = self._context, proposal.gang
        if gang is None or not proposal.placed or not self._asks_ready:
            return None
        if gang.spec.dialect is not Dialect.VOLCANO:
            return None
        placements = tuple(_seat(task) for task in proposal.placed)
        answer = context.ask(ExtenderRequest(ExtenderCall.READY, group=gang.spec.key, placements=placements))
        if answer is None or (isinstance(answer, ExtenderUnavailable) and context.endpoints.ignorable):
            return None
        if isinstance(answer, ExtenderUnavailable):
            return _refusal("it could not be asked whether it may start", answer)
        return None if answer.yes else _refusal("it does not let it start", answer)

    def _take_back(self, told: list[TaskView]) -> None:
        self._leave(told[::-1])

    def _leave(self, tasks: Sequence[TaskView]) -> None:
        for task in tasks:
            if self._context.applies_to(task):
                request = ExtenderRequest(
                    ExtenderCall.DEALLOCATE, task=task.task.key, placements=(_seat(task),)
                )
                self._context.ask(request)


def _seat(task: TaskView) -> tuple[str, str]:
    return task.task.key, task.node.name if task.node is not None else ""


def asks_in_rounds(endpoints: ExtenderEndpoints) -> bool:
    """Return whether anything is asked or told in the middle of decisions."""
    return bool(endpoints.url) and any(endpoints.verbs.get(call) for call in _IN_ROUNDS)
