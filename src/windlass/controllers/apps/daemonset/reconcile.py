"""Reconciliation of a DaemonSet.

Nodes without their pod get one, and pods that should not be there are deleted. Only
then does a rolling update replace pods. The status is written last.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from windlass.api import selectors
from windlass.api.defaults.apps import TEMPLATE_GENERATION
from windlass.api.nodes.driver_images import provided_part, provided_words
from windlass.api.resources import CONTROLLER_REVISIONS, DAEMON_SETS, PODS
from windlass.api.views import NodeObject, Pod
from windlass.controllers.apps.amounts import scaled
from windlass.controllers.apps.conditions import without_zeros
from windlass.controllers.apps.daemonset.node_fit import bound_to, should_run
from windlass.controllers.apps.daemonset.rolling import (
    UpdateLimits,
    UpdateStep,
    replace_pods,
    surge_pods,
)
from windlass.controllers.apps.pods import (
    BURST,
    adopt,
    create_pod,
    delete_pod,
    is_available,
    next_available,
    pod_of_template,
    release,
    slow_start,
    with_random_name,
)
from windlass.controllers.apps.revisions import (
    REVISION_HASH,
    expired_revisions,
    in_order,
    plan_revision,
)
from windlass.controllers.apps.workloads import Workload
from windlass.controllers.effects import (
    NOTHING,
    Create,
    Delete,
    EffectPlan,
    Effects,
    EmitEvent,
    Update,
    reference,
)

Json = dict[str, Any]
_GENERATION = "pod-template-generation"


@dataclass(frozen=True, slots=True)
class DaemonSetSnapshot:
    """Observed surroundings of a DaemonSet.

    ``owned``: pods that it controls. ``orphans``: pods of the namespace without a
    controller. ``revisions``, ``loose_revisions`` and ``names``: ControllerRevisions of
    its own, of no controller, and all by name.
    ``not_before``: node → time from which its failed pod may be replaced.
    ``suffix``: returns a random end of a pod's name.
    """

    owned: tuple[Pod, ...]
    orphans: tuple[Pod, ...]
    nodes: tuple[NodeObject, ...]
    revisions: tuple[Workload, ...]
    loose_revisions: tuple[Workload, ...]
    names: Mapping[str, Workload]
    now: float
    suffix: Callable[[], str]
    not_before: Mapping[str, float]


def target_node(pod: Pod) -> str:
    """Return the node of a pod, or that for which it was created; empty if neither is known."""
    if pod.node_name:
        return pod.node_name
    affinity = pod.shape.affinity.node_affinity if pod.shape.affinity is not None else None
    required = affinity.required if affinity else None
    for term in (required.node_selector_terms or ()) if required is not None else ():
        for field in term.match_fields or ():
            if field.key == "metadata.name" and field.operator == "In" and len(field.values or ()) == 1:
                return (field.values or ("",))[0]
    return ""


def reconcile_daemon_set(obj: Json, observed: DaemonSetSnapshot) -> Effects:
    """Reconcile one DaemonSet. Pure apart from the suffixes of new names."""
    about = reference(DAEMON_SETS, obj)
    selector = selectors.from_object((obj.get("spec") or {}).get("selector"))
    if not selector:
        return NOTHING
    return _DaemonSetReconciliation(obj, observed, EffectPlan(about=about)).effects(selector)


class _DaemonSetReconciliation:
    """State of one reconciliation. Used once."""

    def __init__(self, obj: Json, observed: DaemonSetSnapshot, plan: EffectPlan) -> None:
        self.obj, self.observed, self.plan = obj, observed, plan
        self.spec: Json = obj["spec"]
        self.template: Json = self.spec.get("template") or {}
        self.settled = self.spec.get("minReadySeconds") or 0
        self.pods: dict[str, list[Pod]] = {}
        self.own: list[Pod] = []
        self.image, self.part = provided_part(self.template.get("spec") or {})
        self.fit = {node.name: self._fit(node) for node in observed.nodes}
        strategy = self.spec.get("updateStrategy") or {}
        rolling = strategy.get("rollingUpdate") or {}
        desired = sum(starts for starts, _ in self.fit.values())
        surge = scaled(rolling.get("maxSurge", 0), desired, up=True)
        unavailable = scaled(rolling.get("maxUnavailable", 1), desired, up=True)
        if desired and not surge and not unavailable:
            unavailable = 1
        self.limits = UpdateLimits(desired, surge, unavailable)
        self.rolls = strategy.get("type", "RollingUpdate") == "RollingUpdate"

    def _fit(self, node: NodeObject) -> tuple[bool, bool]:
        """Return whether a node starts the pod, and whether it keeps one."""
        if self.part and not node.kubelet:
            return False, False
        return should_run(self.template.get("spec") or {}, node)

    def effects(self, selector: selectors.Selector) -> Effects:
        deleting = bool(self.obj["metadata"].get("deletionTimestamp"))
        if self._claim(selector, deleting):
            return self.plan.done()  # What is adopted counts once it is its own.
        revisions = in_order(one.object for one in self.observed.revisions)
        planned = plan_revision(DAEMON_SETS, self.obj, revisions, self._labels, self._taken)
        labels = planned.newest["metadata"].get("labels") or {}
        self.hash = labels.get(REVISION_HASH, "")
        if deleting:
            return self.plan.done()
        if planned.action is not None:
            self.plan.stage(planned.action)
        self._tell_of_provided_part()
        if not self._manage() and self.rolls:
            self._roll()
        self._write_status(planned.collisions)
        self._truncate(revisions, planned.newest["metadata"]["name"])
        return self.plan.done()

    # What is its own.

    def _claim(self, selector: selectors.Selector, deleting: bool) -> bool:
        """Adopt and release pods and revisions. Returns whether any is adopted."""
        released = []
        for pod in self.observed.owned:
            if selector.matches(pod.labels):
                self.own.append(pod)
                name = target_node(pod)
                if name and not (pod.finished and pod.deleting):
                    self.pods.setdefault(name, []).append(pod)
            elif not deleting:
                released.append(release(self.obj, PODS, pod))
        adopted = [
            adopt(DAEMON_SETS, self.obj, PODS, pod)
            for pod in self.observed.orphans
            if not deleting and not pod.deleting and selector.matches(pod.labels)
        ]
        adopted += [
            adopt(DAEMON_SETS, self.obj, CONTROLLER_REVISIONS, one)
            for one in self.observed.loose_revisions
            if not deleting and not one.deleted and selector.matches(one.labels)
        ]
        self.plan.stage(*released, *adopted)
        return bool(adopted)

    def _labels(self, hashed: str) -> dict[str, str]:
        return {**((self.template.get("metadata") or {}).get("labels") or {}), REVISION_HASH: hashed}

    def _taken(self, name: str) -> Json | None:
        found = self.observed.names.get(name)
        return found.object if found is not None else None

    def _tell_of_provided_part(self) -> None:
        if not self.part or all(node.kubelet for node in self.observed.nodes):
            return
        assert self.plan.about is not None
        message = provided_words(self.image, self.part)
        self.plan.event(EmitEvent(self.plan.about, "Normal", "ProvidedByNode", message, lasting=True))

    # Pods.

    def _manage(self) -> bool:
        """Create missing pods and delete surplus ones. Returns whether there was any."""
        create: list[str] = []
        delete: list[Pod] = []
        for node in self.observed.nodes:
            starts, keeps = self.fit[node.name]
            pods = self.pods.get(node.name, [])
            if starts and not pods:
                create.append(node.name)
            elif keeps:
                running = self._replace_ended(node.name, pods, delete)
                if self.limits.surge and not running and starts and pods:
                    create.append(node.name)
                delete += self._surplus(running)
            else:
                delete += [pod for pod in pods if not pod.deleting]
        known = {node.name for node in self.observed.nodes}
        delete += [
            pod
            for name, pods in self.pods.items()
            if name not in known
            for pod in pods
            if not pod.node_name and not pod.deleting
        ]
        self._write_pods(UpdateStep(tuple(delete), tuple(create)))
        return bool(create or delete)

    def _replace_ended(self, node: str, pods: Sequence[Pod], delete: list[Pod]) -> list[Pod]:
        """Delete ended pods of a node, failed ones with a back-off. Returns the others."""
        assert self.plan.about is not None
        running = []
        for pod in pods:
            if pod.deleting:
                continue
            if not pod.finished:
                running.append(pod)
                continue
            wait = self.observed.not_before.get(node, 0.0) - self.observed.now
            if pod.phase == "Failed" and wait > 0:
                self.plan.requeue(wait)
                continue
            failed = pod.phase == "Failed"
            verb = "kill" if failed else "delete"
            message = f"Found {pod.phase.lower()} daemon pod {pod.key} on node {node}, will try to {verb} it"
            self.plan.event(
                EmitEvent(
                    self.plan.about,
                    "Warning" if failed else "Normal",
                    "FailedDaemonPod" if failed else "SucceededDaemonPod",
                    message,
                )
            )
            delete.append(pod)
        return running

    def _surplus(self, running: list[Pod]) -> list[Pod]:
        """Return the pods of one node beyond the one, or the two of a surge, that it should run."""
        ordered = sorted(running, key=lambda pod: (not pod.node_name, pod.created, pod.name))
        if not self.limits.surge:
            return ordered[1:]
        new = [pod for pod in ordered if self._is_new(pod)]
        old = [pod for pod in ordered if not self._is_new(pod)]
        surplus = [*new[1:], *old[1:]]
        if new and old and (not old[0].ready or self._is_available(new[0])):
            surplus.append(old[0])
        return surplus

    def _is_new(self, pod: Pod) -> bool:
        return pod.labels.get(REVISION_HASH) == self.hash

    def _is_available(self, pod: Pod) -> bool:
        return is_available(pod, self.settled, self.observed.now)

    def _roll(self) -> None:
        starting = {name for name, (starts, _) in self.fit.items() if starts}
        nodes = {name: self.pods.get(name, []) for name in sorted({*self.pods, *starting})}
        if self.limits.surge:
            step = surge_pods(
                nodes, self.limits, self._is_new, self._is_available, lambda name: name in starting
            )
        else:
            step = replace_pods(nodes, self.limits, self._is_new, self._is_available)
        self._write_pods(step)

    def _write_pods(self, step: UpdateStep) -> None:
        assert self.plan.about is not None
        created = [self._create(name) for name in step.create[:BURST]]
        for stage in slow_start(created):
            self.plan.stage(*stage)
        self.plan.stage(*(delete_pod(pod, self.plan.about) for pod in step.delete[:BURST]))

    def _create(self, node: str) -> Create:
        assert self.plan.about is not None
        pod = pod_of_template(self.template, DAEMON_SETS, self.obj)
        annotations = self.obj["metadata"].get("annotations") or {}
        labels = {**(pod["metadata"].get("labels") or {}), REVISION_HASH: self.hash}
        if annotations.get(TEMPLATE_GENERATION):
            labels[_GENERATION] = annotations[TEMPLATE_GENERATION]
        pod["metadata"]["labels"] = labels
        pod["spec"] = bound_to(pod["spec"], node)
        with_random_name(pod, self.obj["metadata"]["name"], self.observed.suffix)
        return create_pod(pod, self.plan.about)

    # Status and history.

    def _write_status(self, collisions: int) -> None:
        current = misplaced = ready = available = updated = 0
        for name, (starts, _) in self.fit.items():
            pods = sorted(self.pods.get(name, ()), key=lambda pod: (not pod.node_name, pod.created, pod.name))
            if not pods:
                continue
            if not starts:
                misplaced += 1
                continue
            current += 1
            ready += pods[0].ready
            available += self._is_available(pods[0])
            updated += self._is_new(pods[0])
        status: Json = {
            "currentNumberScheduled": current,
            "numberMisscheduled": misplaced,
            "desiredNumberScheduled": self.limits.desired,
            "numberReady": ready,
            **without_zeros(
                {
                    "observedGeneration": self.obj["metadata"].get("generation") or 0,
                    "updatedNumberScheduled": updated,
                    "numberAvailable": available,
                    "numberUnavailable": self.limits.desired - available,
                }
            ),
        }
        before = self.obj.get("status") or {}
        if collisions or before.get("collisionCount") is not None:
            status["collisionCount"] = collisions
        if before.get("conditions"):
            status["conditions"] = before["conditions"]
        if status != before:
            self.plan.stage(Update(DAEMON_SETS, {**self.obj, "status": status}, "status"))
        if self.settled and ready != available:
            due = next_available(self.own, self.settled, self.observed.now)
            if due is not None:
                self.plan.requeue(due)

    def _truncate(self, revisions: list[Json], newest: str) -> None:
        limit = self.spec.get("revisionHistoryLimit")
        if limit is None:
            return
        hashes = {pod.labels.get(REVISION_HASH) for pod in self.own}
        live = {newest} | {
            one["metadata"]["name"]
            for one in revisions
            if (one["metadata"].get("labels") or {}).get(REVISION_HASH) in hashes
        }
        deletes: list[Delete] = expired_revisions(revisions, live, int(limit))
        self.plan.stage(*deletes)
