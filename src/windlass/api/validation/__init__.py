"""True if an object may be stored, judged by itself and by what it replaces.

Errors are Kubernetes' field errors: where, what and why; those of Volcano's kinds add a remedy. Messages of
built-in kinds are the real server's (``pkg/apis/*/validation``). Rules that need other objects (queues,
quotas, classes) are admission's part. Objects come defaulted (:mod:`windlass.api.defaults`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from windlass.api import resources
from windlass.api.errors import FieldError
from windlass.api.fields.kubeflow import FIELDS
from windlass.api.resources import Resource
from windlass.api.validation import cluster, custom_objects, definitions, metadata, simple, structural
from windlass.api.validation.collector import Collector
from windlass.api.validation.jobs import (
    aigc,
    jobflow,
    jobset,
    kubeflow,
    leaderworkerset,
    ray,
    trainer,
    vcjob,
    volcano_cronjob,
)
from windlass.api.validation.pods import ephemeral_containers, pod, pod_update
from windlass.api.validation.scheduling import claims, model_cache, native_gang, pod_group, queue, topology
from windlass.api.validation.workloads import apps, batch, batch_cronjob, service
from windlass.api.wire import schema
from windlass.kits.seen_cache import PassedChecks

Validator = Callable[[Mapping[str, Any], Mapping[str, Any] | None, Collector], None]

_encode = msgspec.json.Encoder().encode
_good_specs = PassedChecks()
"""Specs with which a pod may be made: judged by the spec alone, and those of a gang are equal or nearly so."""

_BY_KIND: dict[Resource, Validator] = {
    resources.NODES: cluster.node,
    resources.NAMESPACES: cluster.namespace,
    resources.EVENTS: simple.event,
    resources.CONFIG_MAPS: simple.config_map,
    resources.SECRETS: simple.secret,
    resources.SERVICES: service.service,
    resources.ENDPOINTS: service.endpoints,
    resources.ENDPOINT_SLICES: service.endpoint_slice,
    resources.PERSISTENT_VOLUMES: simple.persistent_volume,
    resources.PERSISTENT_VOLUME_CLAIMS: simple.persistent_volume_claim,
    resources.STORAGE_CLASSES: simple.storage_class,
    resources.DEPLOYMENTS: apps.deployment,
    resources.REPLICA_SETS: apps.replica_set,
    resources.STATEFUL_SETS: apps.stateful_set,
    resources.DAEMON_SETS: apps.daemon_set,
    resources.CONTROLLER_REVISIONS: apps.controller_revision,
    resources.RESOURCE_QUOTAS: cluster.resource_quota,
    resources.LIMIT_RANGES: cluster.limit_range,
    resources.LEASES: simple.lease,
    resources.PRIORITY_CLASSES: cluster.priority_class,
    resources.POD_DISRUPTION_BUDGETS: cluster.disruption_budget,
    resources.DEVICE_CLASSES: claims.device_class,
    resources.RESOURCE_CLAIMS: claims.claim,
    resources.RESOURCE_CLAIM_TEMPLATES: claims.template,
    resources.RESOURCE_SLICES: claims.resource_slice,
    resources.QUEUES: queue.queue,
    resources.POD_GROUPS: pod_group.pod_group,
    resources.VOLCANO_JOBS: vcjob.job,
    **{resource: kubeflow.validator(resource) for resource in FIELDS},
    resources.JOB_SETS: jobset.job_set,
    resources.LEADER_WORKER_SETS: leaderworkerset.leader_worker_set,
    resources.TRAIN_JOBS: trainer.train_job,
    resources.TRAINING_RUNTIMES: trainer.runtime,
    resources.CLUSTER_TRAINING_RUNTIMES: trainer.runtime,
    resources.AIGC_JOBS: aigc.aigc_job,
    resources.RAY_CLUSTERS: ray.ray_cluster,
    resources.RAY_JOBS: ray.ray_job,
    resources.RAY_SERVICES: ray.ray_service,
    resources.RAY_CRON_JOBS: ray.ray_cron_job,
    resources.MODEL_CACHES: model_cache.model_cache,
    resources.VOLCANO_CRON_JOBS: volcano_cronjob.cron_job,
    resources.JOB_FLOWS: jobflow.job_flow,
    resources.JOB_TEMPLATES: jobflow.job_template,
    resources.BATCH_JOBS: batch.job,
    resources.NATIVE_POD_GROUPS: native_gang.pod_group,
    resources.WORKLOADS: native_gang.workload,
    resources.CRON_JOBS: batch_cronjob.cron_job,
    resources.COMMANDS: pod_group.command,
    resources.HYPERNODES: topology.hypernode,
    resources.KAI_TOPOLOGIES: topology.topology,
    resources.CUSTOM_RESOURCE_DEFINITIONS: definitions.definition,
}


def validate(
    resource: Resource, obj: dict[str, Any], old: dict[str, Any] | None = None, subresource: str = ""
) -> list[FieldError]:
    """Return the errors of ``obj``; empty if it may be stored. ``old``: the object it replaces."""
    out = Collector()
    metadata.validate(resource, obj, old, out)
    if resource.definition is not None:
        custom_objects.validate(resource.definition, obj, old, subresource, out)
    elif resource.custom:
        struct = schema.for_kind(resource.group, resource.version, resource.kind)
        if struct is not None:
            structural.struct(struct, obj, "", out)
    if resource is resources.PODS and subresource == "ephemeralcontainers" and old is not None:
        ephemeral_containers.added(obj, old, out)
    if subresource or (out.errors and resource.custom):
        return out.errors
    if resource is resources.PODS:
        _pod(obj, old, out)
    else:
        check = _BY_KIND.get(resource)
        if check is not None:
            check(obj, old, out)
    return out.errors


def _pod(obj: dict[str, Any], old: dict[str, Any] | None, out: Collector) -> None:
    if old is not None and obj.get("spec") == old.get("spec"):
        return  # a write to metadata alone; the spec was judged when it came
    if old is not None:
        pod.pod(obj, old, out)
        pod_update.pod_update(obj, old, out)
        return
    pod.budgets((obj.get("metadata") or {}).get("annotations") or {}, out)
    mark = PassedChecks.mark(_encode(obj.get("spec")))
    if mark in _good_specs:
        return
    before = len(out.errors)
    pod.pod(obj, None, out)
    if len(out.errors) == before:
        _good_specs.add(mark)
