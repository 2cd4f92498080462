"""Status of pods: why they wait, and the node nominated for them.

Keys of the writes are ``pod NS/NAME``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from windlass.api import annotations as names
from windlass.api import resources, views
from windlass.api.reasons import Explanation
from windlass.client.client import Client
from windlass.client.recorder import EventRecorder, ObjectRef
from windlass.kits.clock import Clock
from windlass.kits.timestamps import rfc3339
from windlass.model.cluster.cluster_model import ClusterModel
from windlass.model.cluster.kube_messages import GATED, PLACED, UNSCHEDULABLE, pod_reason, with_summary
from windlass.model.groups.member_counts import oldest_of
from windlass.model.groups.podgroups import is_implicit
from windlass.observe.scheduling import SchedulerMetrics
from windlass.scheduler.autoscaling.provisioning import ProvisioningRequests
from windlass.scheduler.options import LiveOptions
from windlass.scheduler.pod_conditions import condition
from windlass.scheduler.status.explanation_writer import (
    OWN_WRITE_SECONDS,
    ExplanationWriter,
    encode_explanation,
)
from windlass.scheduler.status.pending_groups import PendingGroup, PendingGroups
from windlass.scheduler.write_queue import Enqueue

NOMINATE_SECONDS = 0.25
"""Interval in seconds between a nomination and its write: many are withdrawn at once."""


class PodStatuses:
    """Writes the status of pods that wait, and of pods with a nominated node."""

    def __init__(
        self,
        client: Client,
        model: ClusterModel,
        recorder: EventRecorder,
        metrics: SchedulerMetrics,
        options: LiveOptions,
        pending: PendingGroups,
        provisioning: ProvisioningRequests,
        explanations: ExplanationWriter,
        enqueue: Enqueue,
        *,
        clock: Clock,
    ) -> None:
        self._client = client
        self._model = model
        self._recorder = recorder
        self._metrics = metrics
        self._options = options
        self._pending = pending
        self._provisioning = provisioning
        self._explanations = explanations
        self._enqueue = enqueue
        self._clock = clock
        self._nominated: dict[str, str] = {}

    # ------------------------------------------------------------------ what is to be written

    @property
    def nominated(self) -> Mapping[str, str]:
        """Nominated node of each pod that has one."""
        return self._nominated

    def nominate(self, pod: str, node: str) -> None:
        """Record the node on which capacity is being freed for a pod."""
        if self._nominated.get(pod) != node:
            self._nominated[pod] = node
            self._enqueue(f"pod {pod}", NOMINATE_SECONDS)

    def withdraw(self, pod: str) -> None:
        """Withdraw a nomination: the pod is bound, or its capacity is no longer reserved."""
        if self._nominated.pop(pod, None) is not None:
            self._enqueue(f"pod {pod}", NOMINATE_SECONDS)

    def review(self) -> None:
        """Schedule the removal of status from an earlier leader."""
        for key, pod in self._model.objects.pods.items():
            if not self._model.manages(pod):
                continue
            if pod.node_name:
                self.bound(pod)
            elif pod.nominated_node:
                self._enqueue(f"pod {key}", OWN_WRITE_SECONDS)

    def bound(self, pod: views.Pod) -> None:
        """Remove the explanation of a pod that is on its node now."""
        self._nominated.pop(pod.key, None)
        if names.EXPLANATION in pod.annotations:
            self._enqueue(f"pod {pod.key}")

    def report(self, key: str, explanation: Explanation | None) -> None:
        """Enqueue the pending pods of a group if what they show is outdated."""
        group = self._pending.get(key)
        if explanation is None or group is None:
            return
        now, options = self._clock.monotonic(), self._options.current
        reason = self._shared_reason(key, group, explanation)
        if explanation.code is group.pods_code and reason == group.pods_reason:
            self._report_new_pods(key, group)
            recent = now - group.pods_at < options.pod_rewrite_seconds
            if recent and explanation.message == group.pods_message:
                return
            if recent:
                self._enqueue(f"group {key}", group.pods_at + options.pod_rewrite_seconds - now)
                return
        elif group.pods_code is not None and reason != group.pods_reason:
            # Whether more nodes would help: cluster autoscalers must not see this alternate.
            steady = group.pods_at + options.rewrite_seconds
            if now < steady:
                self._enqueue(f"group {key}", steady - now)
                return
        group.pods_code, group.pods_message, group.pods_at = explanation.code, explanation.message, now
        group.pods_reason, group.pods_count = reason, self._model.groups.members(key).pending
        for pod in self._pending_pods(key):
            self._enqueue(f"pod {pod.key}")

    def _shared_reason(self, key: str, group: PendingGroup, explanation: Explanation) -> str:
        """Return the condition's reason for all pods of a group.

        It also decides whether nodes are requested for the group as a whole.
        """
        group.lacks_nodes = pod_reason(explanation) == UNSCHEDULABLE
        group.requests_nodes = self._provisioning.serves(key)
        self._provisioning.update(key)
        return GATED if group.requests_nodes and group.lacks_nodes else pod_reason(explanation)

    def _report_new_pods(self, key: str, group: PendingGroup) -> None:
        """Enqueue pods that arrived later: autoscalers wait for their status."""
        count = self._model.groups.members(key).pending
        if count > group.pods_count:
            for pod in self._pending_pods(key):
                if not pod.waiting_reason:
                    self._enqueue(f"pod {pod.key}")
        group.pods_count = count

    def _pending_pods(self, key: str) -> Iterator[views.Pod]:
        for pod in self._model.groups.pods_of(key):
            if not pod.node_name and not pod.finished and not pod.deleted and not pod.shape.gates:
                yield pod

    def is_bound(self, key: str) -> bool:
        """Return whether a pod is on a node, so that its status is only removed."""
        pod = self._model.objects.pods.get(key)
        return pod is not None and bool(pod.node_name)

    # ------------------------------------------------------------------ writing

    async def write(self, key: str) -> None:
        pod = self._model.objects.pods.get(key)
        group = self._model.groups.group_of(key)
        if pod is None or group is None:
            return
        pending = self._pending.get(group)
        assumed = self._model.binds.assumed.get(key)
        awaits = assumed is not None and key in self._model.binds.awaited
        waits = not (pod.node_name or pod.finished or pod.deleted) and (assumed is None or awaits)
        explanation = pending.reported if pending is not None and waits else None
        nominated = self._nominated.get(key, "") if waits else pod.nominated_node
        node = assumed.node if assumed is not None and awaits else nominated
        by_request = pending is not None and (
            pending.requests_nodes or self._provisioning.requested_elsewhere(pod, group)
        )
        await self._write_status(pod, explanation, node, by_request)
        carries = is_implicit(group) or self._carries_explanation(group, pod)
        if carries or names.EXPLANATION in pod.annotations:  # the gang's object may carry it by now
            text = encode_explanation(explanation if carries else None)
            await self._explanations.write(resources.PODS, pod.namespace, pod.name, pod.annotations, text)

    def _carries_explanation(self, group: str, pod: views.Pod) -> bool:
        """Return whether the explanation of a gang is written on this pod.

        This holds if the gang has no object to write on, for its oldest pending pod and
        for the pod that has carried the explanation so far.
        """
        if self._model.groups.object_of(group) is not None:
            return False
        oldest = oldest_of(self._pending_pods(group))
        return names.EXPLANATION in pod.annotations or (oldest is not None and oldest.key == pod.key)

    async def _write_status(
        self, pod: views.Pod, explanation: Explanation | None, nominated: str, by_request: bool
    ) -> None:
        """Write why a pod waits and its nominated node, in one patch.

        ``by_request``: its nodes are requested for the whole group. Such a pod does not
        ask for a node by itself, because a cluster autoscaler would count a free node
        for the pod and leave that node out of the request.
        """
        status: dict[str, Any] = {}
        message = with_summary(explanation) if explanation is not None else ""
        reason = pod_reason(explanation) if explanation is not None else ""
        if reason == UNSCHEDULABLE and by_request:
            reason = GATED
        shows_reason = explanation is not None and not pod.shape.gates
        if shows_reason and (pod.waiting_reason, pod.waiting_message) != (reason, message):
            scheduled = condition(pod, "PodScheduled", "False", reason, message)
            if not pod.waiting_reason:
                scheduled["lastTransitionTime"] = rfc3339(self._clock.now())
            status["conditions"] = [scheduled]
        if nominated != pod.nominated_node:
            status["nominatedNodeName"] = nominated or None
        if not status:
            return
        patch = {"metadata": {"uid": pod.uid}, "status": status}
        await self._client.patch(
            resources.PODS, pod.name, patch, pod.namespace, kind="strategic", subresource="status"
        )
        self._metrics.writes.labels("pod" if "conditions" in status else "nomination").inc()
        if "conditions" in status and explanation is not None and explanation.code not in PLACED:
            ref = ObjectRef("v1", "Pod", pod.namespace, pod.name, pod.uid)
            self._recorder.event(ref, "Warning", "FailedScheduling", message)
