"""Nodes that gangs lack, asked of what grows the cluster: for each gang one request, for all of them or none.

What is wanted and due is decided purely (:mod:`windlass.model.autoscaling.provisioning`); here it is carried out, gang
by gang, and told. The pods that a request counts are told to consume it, and call for no node themselves
(:mod:`.podwords`). Nothing is remembered that is not on the objects: who takes over finds what has been asked for, and
goes on.

Invariants: a gang has one request that is not over; none is made for who lacks more than nodes; what is wanted no more
is withdrawn, at once where the gang is placed or gone, else after ``LINGER_SECONDS``, since a reason may go to and fro.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from windlass.api import annotations as names
from windlass.api import resources, views
from windlass.api.errors import StatusError
from windlass.api.reasons import Explanation, NodesRequested
from windlass.client.client import Client
from windlass.client.errors import Unreachable
from windlass.client.recorder import EventRecorder, ObjectRef
from windlass.client.responses import may_pass
from windlass.kits.clock import Clock
from windlass.kits.rng import Random
from windlass.model.autoscaling.provisioning import (
    MOST_CLASSES,
    NONE,
    OVER,
    ProvisioningPhase,
    ProvisioningStatus,
    Retry,
    WantedRequest,
    attempt_of,
    decide,
    is_requested_whole,
    lacks_minimum,
    last_of,
    standing,
    want_of,
)
from windlass.model.autoscaling.provisioning_objects import OwningGroup
from windlass.model.cluster.cluster_model import ClusterModel
from windlass.observe import logs
from windlass.observe.scheduling import SchedulerMetrics
from windlass.scheduler.autoscaling.provisioning_writer import CreateResult, ProvisioningWriter
from windlass.scheduler.options import SchedulerOptions
from windlass.scheduler.write_queue import WriteQueue

LINGER_SECONDS = 5.0
AGAIN_SECONDS = 30.0
"""After so long is asked again for what the server refused, or does not serve."""
REFUSED = "not asked"
UNTAKEN = (
    "no autoscaler has taken it up yet: is --enable-provisioning-requests set, and does it know the class?"
)
_EVENTS = {
    ProvisioningPhase.PROVISIONED: ("Normal", "NodesProvisioned"),
    ProvisioningPhase.FAILED: ("Warning", "NodesFailed"),
    ProvisioningPhase.EXPIRED: ("Warning", "NodesExpired"),
    ProvisioningPhase.REVOKED: ("Warning", "NodesRevoked"),
}
log = logs.get("scheduler")


class ProvisioningRequests:
    """``options``: those in force, asked each time. ``now()``: Unix seconds. ``lacks(group)``: whether a group is told
    to lack nodes and nothing else; ``None``: nothing is told of it yet. ``changed`` is called with each group of which
    there is something new to tell."""

    def __init__(
        self,
        client: Client,
        model: ClusterModel,
        recorder: EventRecorder,
        metrics: SchedulerMetrics,
        options: Callable[[], SchedulerOptions],
        *,
        clock: Clock,
        rng: Random,
        now: Callable[[], float],
        lacks: Callable[[str], bool | None],
        changed: Callable[[str], None],
    ) -> None:
        self._writes = ProvisioningWriter(client, model)
        self._model = model
        self._recorder = recorder
        self._metrics = metrics
        self._options = options
        self._now = now
        self._lacks = lacks
        self._changed = changed
        self._queue = WriteQueue(
            self._look,
            clock=clock,
            rng=rng,
            concurrency=options().write_concurrency,
            outages=client.outages,
        )
        self._what: dict[str, str] = {}
        """Group → what it was wanted last."""
        self._refused: dict[str, str] = {}
        """Group → why it could not be asked for."""
        self._unanswered: set[str] = set()
        """Groups whose request may have been made, though the server did not say so."""
        self._idle: dict[str, float] = {}
        """Groups that wait, and are wanted nothing any more, since when."""
        self._stands: dict[str, dict[str, ProvisioningPhase]] = {}
        """Group → request (uid) → how it stood when it was looked at last."""

    async def run(self) -> None:
        """Ask and withdraw until cancelled."""
        await self._queue.run()

    # ------------------------------------------------------------------ what others ask and say

    def serves(self, group: str) -> bool:
        """Whether a group's nodes are asked for as a whole, should it lack some for its minimum."""
        sent = self._model.group_sent(group)
        return (
            sent is not None
            and is_requested_whole(sent)
            and self._class_of(group) != NONE
            and self._model.owner_of_requests(group) is not None
            and not self._asked_by_others(group)
            and lacks_minimum(sent, self._model.pods_of(group), self._model.assumed)
        )

    def note(self, group: str) -> None:
        """Something is another thing about a group than before."""
        if group in self._model.requests or group in self._what or self._class_of(group) != NONE:
            self._queue.wish(group)

    def told(self, group: str, explanation: Explanation) -> Explanation:
        """The explanation with what is asked for."""
        what = self._what.get(group)
        if what is None:
            return explanation
        last = last_of(self._model.requests.get(group, {}).values())
        if last is not None:
            return replace(explanation, asked=self._asked(what, last))
        if group in self._refused:
            asked = NodesRequested(what, REFUSED, detail=self._refused[group])
            return replace(explanation, asked=asked)
        return explanation

    def _asked(self, what: str, request: views.ProvisioningRequest) -> NodesRequested:
        found, retry = standing(request), self._retry
        again = retry.again(request) if found.stand in OVER else None
        detail = UNTAKEN if found.stand is ProvisioningPhase.ASKED else found.detail
        if found.stand in OVER and again is None:
            given_up = (
                f"given up after {attempt_of(request)} attempts: delete the request to have it made anew"
            )
            detail = f"{detail}; {given_up}" if detail else given_up
        return NodesRequested(
            what,
            str(found.stand),
            found.since,
            detail,
            request.name,
            request.class_name,
            attempt_of(request),
            again or 0.0,
        )

    def _class_of(self, group: str) -> str:
        found = self._model.provisioning_class(group)
        return (self._options().provisioning_class if found is None else found) or NONE

    @property
    def _retry(self) -> Retry:
        options = self._options()
        return Retry(
            options.provisioning_retries,
            options.provisioning_backoff_seconds,
            options.provisioning_backoff_max_seconds,
        )

    def _asked_by_others(self, group: str) -> bool:
        pods = (pod for pod in self._model.pods_of(group) if not pod.node_name)
        return any(self.asked_elsewhere(pod, group) for pod in pods)

    def asked_elsewhere(self, pod: views.Pod, group: str) -> bool:
        """Whether somebody else has asked for a pod's nodes: Kueue, or who made the pod."""
        named = pod.annotations.get(names.NODES_REQUESTED, "")
        if not named:
            return False
        owner = self._model.owner_of_requests(group)
        return owner is None or not owner.is_request(named)

    # ------------------------------------------------------------------ one gang

    async def _look(self, group: str) -> None:
        seen = self._model.requests.get(group, {})
        lacks = self._lacks(group)
        if lacks is None:
            return
        owner = self._model.owner_of_requests(group)
        want = self._want(group) if lacks and owner is not None else None
        self._count(group, owner, seen)
        if want is None and seen and self._lingers(group):
            return
        self._idle.pop(group, None)
        due = decide(want, owner.uid if owner else "", list(seen.values()), self._now(), self._retry)
        for request in due.withdraw:
            await self._writes.withdraw(request)
            self._metrics.node_requests.labels("withdrawn").inc()
            log.info("nodes asked for no more", request=request.key)
        if want is None or owner is None:
            self._what.pop(group, None)
            self._refused.pop(group, None)
            self._unanswered.discard(group)
            if owner is not None:
                await self._writes.tidy(owner)
            await self._writes.tell_pods(group, owner, None)
            return
        self._note_what(group, want)
        if due.ask:
            await self._ask(group, owner, want, due.ask)
        if due.look_at is not None:
            self._queue.wish(group, max(0.1, due.look_at - self._now()))
        if due.current is not None:
            await self._writes.tell_pods(group, owner, want, due.current)

    def _want(self, group: str) -> WantedRequest | None:
        class_name, sent = self._class_of(group), self._model.group_sent(group)
        if class_name == NONE or sent is None or not is_requested_whole(sent) or self._asked_by_others(group):
            return None
        parameters = self._model.provisioning_parameters(group)
        return want_of(sent, self._model.pods_of(group), self._model.assumed, class_name, parameters)

    def _note_what(self, group: str, want: WantedRequest) -> None:
        if self._what.get(group) != want.what:
            self._what[group] = want.what
            self._changed(group)

    def _lingers(self, group: str) -> bool:
        """Whether a request that is not wanted any more is left for the moment: its gang still waits."""
        sent = self._model.group_sent(group)
        pods = self._model.pods_of(group)
        if sent is None or not self._model.members(group).pending:
            return False
        if not lacks_minimum(sent, pods, self._model.assumed):
            return False
        now = self._now()
        rest = self._idle.setdefault(group, now) + LINGER_SECONDS - now
        if rest > 0:
            self._queue.wish(group, rest)
        return rest > 0

    def _count(
        self, group: str, owner: OwningGroup | None, seen: Mapping[str, views.ProvisioningRequest]
    ) -> None:
        """How requests have come to stand, once each. Of those that were there before this process no event tells."""
        before = self._stands.pop(group, {})
        if seen:
            self._stands[group] = {one.uid: standing(one).stand for one in seen.values()}
        for request in seen.values():
            found, former = standing(request), before.get(request.uid)
            if former is found.stand:
                continue
            self._metrics.node_requests.labels(str(found.stand)).inc()
            if found.stand is ProvisioningPhase.PROVISIONED:
                self._metrics.node_request_seconds.observe(max(0.0, found.since - request.created))
            if former is not None and owner is not None and found.stand in _EVENTS:
                self._say(owner, request.name, found)

    def _say(self, owner: OwningGroup, request: str, found: ProvisioningStatus) -> None:
        kind, reason = _EVENTS[found.stand]
        words = f"ProvisioningRequest {request}: {found.stand}"
        self._recorder.event(_ref(owner), kind, reason, f"{words}: {found.detail}" if found.detail else words)

    async def _ask(self, group: str, owner: OwningGroup, want: WantedRequest, attempt: int) -> None:
        if not self._model.serves_requests:
            kind = resources.PROVISIONING_REQUESTS.qualified
            self._refuse(group, f"the cluster has no {kind}, or does not show them")
            return
        if len(want.classes) > MOST_CLASSES:
            kinds = f"pods of {len(want.classes)} kinds are not alike"
            self._refuse(group, f"{kinds}, and a ProvisioningRequest counts {MOST_CLASSES} at most")
            return
        try:
            asked = await self._writes.ask(owner, want, attempt)
        except Unreachable:
            self._unanswered.add(group)
            raise
        except StatusError as error:
            if may_pass(error):
                self._unanswered.add(group)
                raise
            self._refuse(group, error.message)
            return
        if asked is CreateResult.GONE:
            return  # an event tells of it
        if self._refused.pop(group, None) is not None:
            self._changed(group)
        if asked is CreateResult.THERE and group not in self._unanswered:
            return  # told before; the watch has not shown it yet
        self._unanswered.discard(group)
        name = owner.request_name(attempt)
        log.info("nodes asked for", group=group, request=name, what=want.what, by=want.class_name)
        words = f"{want.what} asked for by ProvisioningRequest {name}"
        self._recorder.event(_ref(owner), "Normal", "NodesAsked", words)

    def _refuse(self, group: str, why: str) -> None:
        if self._refused.get(group) != why:
            self._refused[group] = why
            self._metrics.node_requests.labels("refused").inc()
            log.warning("nodes not asked for", group=group, why=why)
            self._changed(group)
        self._queue.wish(group, AGAIN_SECONDS)


def _ref(owner: OwningGroup) -> ObjectRef:
    kind = owner.resource
    return ObjectRef(kind.api_version, kind.kind, owner.namespace, owner.name, owner.uid)
