"""ProvisioningRequests: nodes that gangs lack, requested from the cluster autoscaler.

Each gang gets one request for all of its nodes or none. What is wanted and due is
decided by pure functions (:mod:`windlass.model.autoscaling.provisioning`). This module
performs it gang by gang and reports it. The pods that a request counts are annotated to
consume it, and ask for no node by themselves
(:mod:`windlass.scheduler.status.pod_status`). All state is on the objects: the next
leader finds the requests and continues.

Invariants:

* A gang has at most one request that is not finished.
* No request is made for a gang that lacks anything but nodes.
* A request that is not wanted any more is withdrawn: at once if the gang is placed or
  gone, else after ``LINGER_SECONDS``, since a reason may alternate.
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
    MAX_CLASSES,
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
    status_of,
    want_of,
)
from windlass.model.autoscaling.provisioning_objects import OwningGroup
from windlass.model.cluster.cluster_model import ClusterModel
from windlass.observe import logs
from windlass.observe.scheduling import SchedulerMetrics
from windlass.scheduler.autoscaling.provisioning_writer import CreateResult, ProvisioningWriter
from windlass.scheduler.options import LiveOptions
from windlass.scheduler.status.pending_groups import PendingGroups
from windlass.scheduler.steady_time import SteadyTime
from windlass.scheduler.write_queue import WriteQueue

LINGER_SECONDS = 5.0
"""Interval in seconds before a request of a gang that still waits is withdrawn."""
AGAIN_SECONDS = 30.0
"""Interval in seconds between attempts at a rejected request."""
REJECTED = "not asked"
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
    """Creates and withdraws ProvisioningRequests.

    ``changed(group)`` is called with each group of which there is something new to
    report.
    """

    def __init__(
        self,
        client: Client,
        model: ClusterModel,
        recorder: EventRecorder,
        metrics: SchedulerMetrics,
        options: LiveOptions,
        pending: PendingGroups,
        *,
        clock: Clock,
        rng: Random,
        time: SteadyTime,
        changed: Callable[[str], None],
    ) -> None:
        self._writer = ProvisioningWriter(client, model)
        self._model = model
        self._recorder = recorder
        self._metrics = metrics
        self._options = options
        self._pending = pending
        self._time = time
        self._changed = changed
        self._queue = WriteQueue(
            self._reconcile,
            clock=clock,
            rng=rng,
            concurrency=options.current.write_concurrency,
            outages=client.outages,
        )
        self._wanted: dict[str, str] = {}
        """Group → description of the nodes wanted last."""
        self._rejected: dict[str, str] = {}
        """Group → why its request could not be created."""
        self._unanswered: set[str] = set()
        """Groups with a request that may exist although the server did not answer."""
        self._unwanted_since: dict[str, float] = {}
        """Pending group that wants no nodes any more → since when."""
        self._phases: dict[str, dict[str, ProvisioningPhase]] = {}
        """Group → uid of a request → its phase when it was last reconciled."""

    async def run(self) -> None:
        """Create and withdraw requests until cancelled."""
        await self._queue.run()

    # ------------------------------------------------------------------ state of a group

    def serves(self, group: str) -> bool:
        """Return whether nodes for a whole group are requested if its minimum lacks some."""
        sent = self._model.group_sent(group)
        return (
            sent is not None
            and is_requested_whole(sent)
            and self._class_of(group) != NONE
            and self._model.provisioning.owner_of(group) is not None
            and not self._is_requested_elsewhere(group)
            and lacks_minimum(sent, self._model.groups.pods_of(group), self._model.binds.assumed)
        )

    def update(self, group: str) -> None:
        """Reconcile a group of which something has changed."""
        if group in self._model.objects.requests or group in self._wanted or self._class_of(group) != NONE:
            self._queue.enqueue(group)

    def complete(self, group: str, explanation: Explanation) -> Explanation:
        """Return the explanation with the requested nodes."""
        wanted = self._wanted.get(group)
        if wanted is None:
            return explanation
        last = last_of(self._model.objects.requests.get(group, {}).values())
        if last is not None:
            return replace(explanation, asked=self._describe(wanted, last))
        if group in self._rejected:
            rejected = NodesRequested(wanted, REJECTED, detail=self._rejected[group])
            return replace(explanation, asked=rejected)
        return explanation

    def _describe(self, wanted: str, request: views.ProvisioningRequest) -> NodesRequested:
        status, retry = status_of(request), self._retry
        again = retry.again(request) if status.phase in OVER else None
        detail = UNTAKEN if status.phase is ProvisioningPhase.ASKED else status.detail
        if status.phase in OVER and again is None:
            given_up = (
                f"given up after {attempt_of(request)} attempts: delete the request to have it created again"
            )
            detail = f"{detail}; {given_up}" if detail else given_up
        return NodesRequested(
            wanted,
            str(status.phase),
            status.since,
            detail,
            request.name,
            request.class_name,
            attempt_of(request),
            again or 0.0,
        )

    def _class_of(self, group: str) -> str:
        named = self._model.provisioning.class_of(group)
        return (self._options.current.provisioning_class if named is None else named) or NONE

    @property
    def _retry(self) -> Retry:
        options = self._options.current
        return Retry(
            options.provisioning_retries,
            options.provisioning_backoff_seconds,
            options.provisioning_backoff_max_seconds,
        )

    def _is_requested_elsewhere(self, group: str) -> bool:
        pods = (pod for pod in self._model.groups.pods_of(group) if not pod.node_name)
        return any(self.requested_elsewhere(pod, group) for pod in pods)

    def requested_elsewhere(self, pod: views.Pod, group: str) -> bool:
        """Return whether Kueue or the pod's owner has requested the pod's node."""
        named = pod.annotations.get(names.NODES_REQUESTED, "")
        if not named:
            return False
        owner = self._model.provisioning.owner_of(group)
        return owner is None or not owner.is_request(named)

    # ------------------------------------------------------------------ one gang

    async def _reconcile(self, group: str) -> None:
        requests = self._model.objects.requests.get(group, {})
        lacks = self._pending.lacks_nodes(group)
        if lacks is None:
            return
        owner = self._model.provisioning.owner_of(group)
        want = self._want(group) if lacks and owner is not None else None
        self._count_phases(group, owner, requests)
        if want is None and requests and self._lingers(group):
            return
        self._unwanted_since.pop(group, None)
        owner_uid = owner.uid if owner else ""
        due = decide(want, owner_uid, list(requests.values()), self._time.now(), self._retry)
        for request in due.withdraw:
            await self._writer.withdraw(request)
            self._metrics.node_requests.labels("withdrawn").inc()
            log.info("provisioning request withdrawn", request=request.key)
        if want is None or owner is None:
            await self._clean_up(group, owner)
            return
        if self._wanted.get(group) != want.what:
            self._wanted[group] = want.what
            self._changed(group)
        if due.ask:
            await self._create(group, owner, want, due.ask)
        if due.look_at is not None:
            self._queue.enqueue(group, max(0.1, due.look_at - self._time.now()))
        if due.current is not None:
            await self._writer.annotate_pods(group, owner, want, due.current)

    async def _clean_up(self, group: str, owner: OwningGroup | None) -> None:
        """Forget a group that wants no nodes."""
        self._wanted.pop(group, None)
        self._rejected.pop(group, None)
        self._unanswered.discard(group)
        if owner is not None:
            await self._writer.delete_unused_templates(owner)
        await self._writer.annotate_pods(group, owner, None)

    def _want(self, group: str) -> WantedRequest | None:
        class_name, sent = self._class_of(group), self._model.group_sent(group)
        if class_name == NONE or sent is None or not is_requested_whole(sent):
            return None
        if self._is_requested_elsewhere(group):
            return None
        parameters = self._model.provisioning.parameters_of(group)
        return want_of(
            sent, self._model.groups.pods_of(group), self._model.binds.assumed, class_name, parameters
        )

    def _lingers(self, group: str) -> bool:
        """Return whether to keep an unwanted request for now, since its gang still waits."""
        sent = self._model.group_sent(group)
        pods = self._model.groups.pods_of(group)
        if sent is None or not self._model.groups.members(group).pending:
            return False
        if not lacks_minimum(sent, pods, self._model.binds.assumed):
            return False
        now = self._time.now()
        rest = self._unwanted_since.setdefault(group, now) + LINGER_SECONDS - now
        if rest > 0:
            self._queue.enqueue(group, rest)
        return rest > 0

    def _count_phases(
        self, group: str, owner: OwningGroup | None, requests: Mapping[str, views.ProvisioningRequest]
    ) -> None:
        """Count each new phase of a request once.

        Requests that existed before this process are counted without an event.
        """
        before = self._phases.pop(group, {})
        if requests:
            self._phases[group] = {request.uid: status_of(request).phase for request in requests.values()}
        for request in requests.values():
            status, former = status_of(request), before.get(request.uid)
            if former is status.phase:
                continue
            self._metrics.node_requests.labels(str(status.phase)).inc()
            if status.phase is ProvisioningPhase.PROVISIONED:
                self._metrics.node_request_seconds.observe(max(0.0, status.since - request.created))
            if former is not None and owner is not None and status.phase in _EVENTS:
                self._record_event(owner, request.name, status)

    def _record_event(self, owner: OwningGroup, request: str, status: ProvisioningStatus) -> None:
        kind, reason = _EVENTS[status.phase]
        text = f"ProvisioningRequest {request}: {status.phase}"
        text = f"{text}: {status.detail}" if status.detail else text
        self._recorder.event(_reference(owner), kind, reason, text)

    async def _create(self, group: str, owner: OwningGroup, want: WantedRequest, attempt: int) -> None:
        if not self._model.provisioning.served:
            kind = resources.PROVISIONING_REQUESTS.qualified
            self._reject(group, f"the cluster has no {kind}, or does not show them")
            return
        if len(want.classes) > MAX_CLASSES:
            kinds = f"pods of {len(want.classes)} kinds are not alike"
            self._reject(group, f"{kinds}, and a ProvisioningRequest counts {MAX_CLASSES} at most")
            return
        try:
            result = await self._writer.create(owner, want, attempt)
        except Unreachable:
            self._unanswered.add(group)
            raise
        except StatusError as error:
            if may_pass(error):
                self._unanswered.add(group)
                raise
            self._reject(group, error.message)
            return
        if result is CreateResult.POD_GONE:
            return  # an event of the informer follows
        if self._rejected.pop(group, None) is not None:
            self._changed(group)
        if result is CreateResult.EXISTED and group not in self._unanswered:
            return  # reported before; the informer has not shown it yet
        self._unanswered.discard(group)
        name = owner.request_name(attempt)
        log.info(
            "provisioning request created", group=group, request=name, what=want.what, by=want.class_name
        )
        text = f"{want.what} asked for by ProvisioningRequest {name}"
        self._recorder.event(_reference(owner), "Normal", "NodesAsked", text)

    def _reject(self, group: str, why: str) -> None:
        """Take in that a request cannot be created now."""
        if self._rejected.get(group) != why:
            self._rejected[group] = why
            self._metrics.node_requests.labels("refused").inc()
            log.warning("provisioning request not created", group=group, why=why)
            self._changed(group)
        self._queue.enqueue(group, AGAIN_SECONDS)


def _reference(owner: OwningGroup) -> ObjectRef:
    kind = owner.resource
    return ObjectRef(kind.api_version, kind.kind, owner.namespace, owner.name, owner.uid)
