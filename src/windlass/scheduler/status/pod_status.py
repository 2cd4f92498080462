"""What is said on pods: that they wait and why, where room is being made for them, and that neither is true any more.
Keys of the writes are ``pod NS/NAME``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from windlass.api import annotations as names
from windlass.api import resources, views
from windlass.api.reasons import Explanation
from windlass.client.recorder import ObjectRef
from windlass.kits.timestamps import rfc3339
from windlass.model.cluster.kube_messages import GATED, PLACED, UNSCHEDULABLE, pod_reason, with_summary
from windlass.model.groups.member_counts import oldest_of
from windlass.model.groups.podgroups import is_implicit
from windlass.scheduler.pod_conditions import condition
from windlass.scheduler.status.pending_groups import PendingGroup, PendingGroups
from windlass.scheduler.status.writer_context import OWN_WRITE_SECONDS, StatusWriterContext, record

NOMINATE_SECONDS = 0.25


class PodStatuses:
    """Of the pods of groups that wait (``waits``), and of those that room is vacated for."""

    def __init__(self, context: StatusWriterContext, waits: PendingGroups) -> None:
        self._context = context
        self._waits = waits
        self._nominated: dict[str, str] = {}

    def nominate(self, task: str, node: str) -> None:
        """Room on a node is being vacated for a pod."""
        if self._nominated.get(task) != node:
            self._nominated[task] = node
            self._context.wish(f"pod {task}", NOMINATE_SECONDS)

    @property
    def nominated(self) -> Mapping[str, str]:
        """Pod → the node on which room is being vacated for it."""
        return self._nominated

    def withdraw(self, task: str) -> None:
        """The pod is bound, or room is no longer kept for it."""
        if self._nominated.pop(task, None) is not None:
            self._context.wish(f"pod {task}", NOMINATE_SECONDS)

    def review(self) -> None:
        """Take back in a moment what somebody else has said of pods, unless it is said anew."""
        for key, pod in self._context.model.pods.items():
            if not self._context.model.manages(pod):
                continue
            if pod.node_name:
                self.bound(pod)
            elif pod.nominated_node:
                self._context.wish(f"pod {key}", OWN_WRITE_SECONDS)

    def bound(self, pod: views.Pod) -> None:
        """A pod is on its node: what was said about its waiting is no longer true."""
        self._nominated.pop(pod.key, None)
        if names.EXPLANATION in pod.annotations:
            self._context.wish(f"pod {pod.key}")

    def tell(self, key: str, told: Explanation | None) -> None:
        """Wish the writing of the group's waiting pods where their words are old."""
        if told is None:
            return
        wait = self._waits.of(key)
        if wait is None:
            return
        now = self._context.clock.monotonic()
        calm = self._context.options.pod_rewrite_seconds
        reason = self._calls(key, wait, told)
        if told.code is wait.pods_code and reason == wait.pods_reason:
            self._tell_newcomers(key, wait)
            if told.message == wait.pods_message and now - wait.pods_at < calm:
                return
            if now - wait.pods_at < calm:
                self._context.wish(f"group {key}", wait.pods_at + calm - now)
                return
        elif wait.pods_code is not None and reason != wait.pods_reason:
            # whether more nodes would help: what grows clusters must not see that go to and fro
            steady = wait.pods_at + self._context.options.rewrite_seconds
            if now < steady:
                self._context.wish(f"group {key}", steady - now)
                return
        wait.pods_code, wait.pods_message, wait.pods_at = told.code, told.message, now
        wait.pods_reason, wait.pods_number = reason, self._context.model.members(key).pending
        for pod in self._waiting(key):
            self._context.wish(f"pod {pod.key}")

    def _calls(self, key: str, wait: PendingGroup, told: Explanation) -> str:
        """The reason for all pods of a group, by which its nodes are asked for as a whole, too."""
        wait.lacks_nodes = pod_reason(told) == UNSCHEDULABLE
        wait.whole = self._context.nodes.serves(key)
        self._context.nodes.note(key)
        return GATED if wait.whole and wait.lacks_nodes else pod_reason(told)

    def _tell_newcomers(self, key: str, wait: PendingGroup) -> None:
        """Pods that came after the others were told: what grows clusters waits for their word, too."""
        number = self._context.model.members(key).pending
        if number > wait.pods_number:
            for pod in self._waiting(key):
                if not pod.waiting_reason:
                    self._context.wish(f"pod {pod.key}")
        wait.pods_number = number

    def _waiting(self, key: str) -> Iterator[views.Pod]:
        for pod in self._context.model.pods_of(key):
            if not pod.node_name and not pod.finished and not pod.deleted and not pod.shape.gates:
                yield pod

    def is_old(self, key: str) -> bool:
        """Whether a pod waits no more, so that there is nothing to say but that."""
        pod = self._context.model.pods.get(key)
        return pod is not None and bool(pod.node_name)

    async def write(self, key: str) -> None:
        pod = self._context.model.pods.get(key)
        group = self._context.model.group_of(key)
        if pod is None or group is None:
            return
        wait = self._waits.of(group)
        assumed = self._context.model.assumed.get(key)
        awaits = assumed is not None and key in self._context.model.awaited
        waits = not (pod.node_name or pod.finished or pod.deleted) and (assumed is None or awaits)
        told = wait.told if wait is not None and waits else None
        nominated = self._nominated.get(key, "") if waits else pod.nominated_node
        node = assumed.node if assumed is not None and awaits else nominated
        by_request = wait is not None and (wait.whole or self._context.nodes.asked_elsewhere(pod, group))
        await self._write_status(pod, told, node, by_request)
        speaks = is_implicit(group) or self._speaks_for(group, pod)
        if (
            speaks or names.EXPLANATION in pod.annotations
        ):  # that of a gang has an object by now that carries it
            said = record(told if speaks else None)
            await self._context.annotate(resources.PODS, pod.namespace, pod.name, pod.annotations, said)

    def _speaks_for(self, group: str, pod: views.Pod) -> bool:
        """Whether the record of a gang whose object is not written on stands on this pod: its oldest that waits, and
        who has carried it."""
        if self._context.model.object_of(group) is not None:
            return False
        oldest = oldest_of(self._waiting(group))
        return names.EXPLANATION in pod.annotations or (oldest is not None and oldest.key == pod.key)

    async def _write_status(
        self, pod: views.Pod, told: Explanation | None, nominated: str, by_request: bool
    ) -> None:
        """That it waits and why, and where room is being made for it, in one patch. Whose nodes are asked for
        ``by_request``, calls for none beside: what grows clusters would put the pod on a node that is free, in its
        mind, and count that node out for the request."""
        status: dict[str, Any] = {}
        message = with_summary(told) if told is not None else ""
        reason = pod_reason(told) if told is not None else ""
        if reason == UNSCHEDULABLE and by_request:
            reason = GATED
        says = told is not None and not pod.shape.gates
        if says and (pod.waiting_reason, pod.waiting_message) != (reason, message):
            scheduled = condition(pod, "PodScheduled", "False", reason, message)
            if not pod.waiting_reason:
                scheduled["lastTransitionTime"] = rfc3339(self._context.clock.now())
            status["conditions"] = [scheduled]
        if nominated != pod.nominated_node:
            status["nominatedNodeName"] = nominated or None
        if not status:
            return
        patch = {"metadata": {"uid": pod.uid}, "status": status}
        await self._context.client.patch(
            resources.PODS, pod.name, patch, pod.namespace, kind="strategic", subresource="status"
        )
        self._context.metrics.writes.labels("pod" if "conditions" in status else "nomination").inc()
        if "conditions" in status and told is not None and told.code not in PLACED:
            ref = ObjectRef("v1", "Pod", pod.namespace, pod.name, pod.uid)
            self._context.recorder.event(ref, "Warning", "FailedScheduling", message)
