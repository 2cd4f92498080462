"""Reconcilers of JobFlows and JobTemplates: their caches and snapshots."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from windlass.api.annotations import JOB_NAME
from windlass.api.resources import JOB_FLOWS, JOB_TEMPLATES, PODS, VOLCANO_JOBS
from windlass.api.views import Pod, decode_pod
from windlass.client.informers import Informer
from windlass.controllers.effects import NOTHING, Effects
from windlass.controllers.expectations import RecordIndex, StoredObject, decode_stored_object
from windlass.controllers.jobflow.flow import CREATED_BY_TEMPLATE, FlowStep, pods_to_probe, read_flow
from windlass.controllers.jobflow.probing import Probe, probe_pod
from windlass.controllers.jobflow.reconcile import (
    PROBE_SECONDS,
    FlowSnapshot,
    reconcile_flow,
    reconcile_template,
    waiting_steps,
)
from windlass.controllers.ownership import ControlledBy
from windlass.controllers.runner import Informers, WatchedCollection
from windlass.kits.clock import Clock

Json = dict[str, Any]
_OWNED = ControlledBy(JOB_FLOWS)
_MARK = CREATED_BY_TEMPLATE.encode()


class JobFlowController:
    """JobFlows. Keys are ``namespace/name`` of the flow."""

    name = "jobflow"
    pause_seconds = 0.0

    def __init__(self, informers: Informers, clock: Clock, probe: Probe = probe_pod) -> None:
        self._clock, self._probe = clock, probe
        self._flows: Informer[StoredObject] = informers.informer(JOB_FLOWS, decode=decode_stored_object)
        self._templates: Informer[StoredObject] = informers.informer(
            JOB_TEMPLATES, decode=decode_stored_object
        )
        self._jobs: Informer[StoredObject] = informers.informer(VOLCANO_JOBS, decode=decode_stored_object)
        self._pods: Informer[Pod] = informers.informer(PODS, decode=decode_pod)
        self._jobs_of = RecordIndex(self._jobs, _OWNED.uids, lambda job: job.key)
        self._pods_of = RecordIndex(self._pods, _job_of_pod, lambda pod: pod.key)

    def watches(self) -> Iterable[WatchedCollection]:
        return (
            WatchedCollection(self._flows, lambda flow: [flow.key]),
            WatchedCollection(self._templates, self._flows_of_template),
            WatchedCollection(self._jobs, _OWNED.keys),
        )

    def initial_keys(self) -> Iterable[str]:
        return ()

    async def reconcile(self, key: str) -> Effects:
        stored = self._flows.items.get(key)
        if stored is None:
            return NOTHING
        flow = stored.object
        observed = self._observe(flow, stored.uid)
        waiting = waiting_steps(flow, observed)
        if not waiting:
            return reconcile_flow(flow, observed)
        holding = frozenset([step.name for step in waiting if await self._holds(flow, step)])
        effects = reconcile_flow(flow, replace(observed, probed=holding))
        return effects if len(holding) == len(waiting) else replace(effects, requeue_after=PROBE_SECONDS)

    def _observe(self, flow: Json, uid: str) -> FlowSnapshot:
        spec = read_flow(flow)
        jobs = {found.key.partition("/")[2]: found.object for found in self._jobs_of.get(uid).values()}
        names = {spec.job_name(step.name) for step in spec.steps}
        templates = {}
        for step in spec.steps:
            template = self._templates.items.get(f"{spec.namespace}/{step.name}")
            if template is not None:
                templates[step.name] = template.object.get("spec") or {}
        return FlowSnapshot(
            jobs=jobs,
            foreign=frozenset(
                name for name in names - jobs.keys() if f"{spec.namespace}/{name}" in self._jobs.items
            ),
            templates=templates,
            probed=frozenset(),
            now=self._clock.now(),
        )

    async def _holds(self, flow: Json, step: FlowStep) -> bool:
        """Return whether the pods of the step's targets meet all its conditions."""
        spec = read_flow(flow)
        pods = {
            target: list(self._pods_of.get(f"{spec.namespace}/{spec.job_name(target)}").values())
            for target in step.targets
        }
        for condition in step.conditions:
            probed = pods_to_probe(condition, pods)
            if probed is None:
                return False
            for pod in probed:
                if not await self._probe(pod.pod_ip, condition):
                    return False
        return True

    def _flows_of_template(self, template: StoredObject) -> list[str]:
        """Return the flows of the namespace with a step of this name."""
        namespace, _, name = template.key.partition("/")
        return [
            key
            for key, flow in self._flows.items.items()
            if key.startswith(f"{namespace}/")
            and any(step.name == name for step in read_flow(flow.object).steps)
        ]


class JobTemplateController:
    """JobTemplates. Keys are ``namespace/name`` of the template."""

    name = "jobtemplate"
    pause_seconds = 0.0

    def __init__(self, informers: Informers) -> None:
        self._templates: Informer[StoredObject] = informers.informer(
            JOB_TEMPLATES, decode=decode_stored_object
        )
        self._jobs: Informer[StoredObject] = informers.informer(VOLCANO_JOBS, decode=decode_stored_object)
        self._jobs_of = RecordIndex(self._jobs, _template_keys, lambda job: job.key)

    def watches(self) -> Iterable[WatchedCollection]:
        return (
            WatchedCollection(self._templates, lambda template: [template.key]),
            WatchedCollection(self._jobs, _template_keys),
        )

    def initial_keys(self) -> Iterable[str]:
        return ()

    async def reconcile(self, key: str) -> Effects:
        stored = self._templates.items.get(key)
        if stored is None:
            return NOTHING
        jobs = [job.partition("/")[2] for job in self._jobs_of.get(key)]
        return reconcile_template(stored.object, jobs)


def _template_keys(job: StoredObject) -> Iterable[str]:
    """Return the key of the template that the job's label names (``NAMESPACE.NAME``)."""
    if _MARK not in job.raw:
        return ()
    namespace = job.key.partition("/")[0]
    mark = (job.object["metadata"].get("labels") or {}).get(CREATED_BY_TEMPLATE, "")
    name = mark.removeprefix(f"{namespace}.")
    return (f"{namespace}/{name}",) if name and name != mark else ()


def _job_of_pod(pod: Pod) -> Iterable[str]:
    name = pod.labels.get(JOB_NAME)
    return (f"{pod.namespace}/{name}",) if name else ()
