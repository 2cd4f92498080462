"""Defaults that the server fills in, by kind.

Pure and idempotent, in place; sources are ``pkg/apis/*/defaults.go`` of Kubernetes v1.36 and, for Volcano's
kinds, its mutating webhooks. What needs other objects (priority, quota, addresses) is admission's part.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from windlass.api import resources
from windlass.api.defaults import (
    apps,
    batch,
    claims,
    definitions,
    jobset,
    leaderworkerset,
    misc,
    pod,
    service,
    volcano,
)
from windlass.api.resources import Resource

_BY_KIND: dict[Resource, Callable[[dict[str, Any]], None]] = {
    resources.PODS: pod.pod,
    resources.NAMESPACES: misc.namespace,
    resources.NODES: misc.node,
    resources.SERVICES: service.service,
    resources.SECRETS: misc.secret,
    resources.ENDPOINTS: misc.endpoints,
    resources.DEPLOYMENTS: apps.deployment,
    resources.REPLICA_SETS: apps.replica_set,
    resources.STATEFUL_SETS: apps.stateful_set,
    resources.DAEMON_SETS: apps.daemon_set,
    resources.ENDPOINT_SLICES: misc.endpoint_slice,
    resources.PERSISTENT_VOLUMES: misc.persistent_volume,
    resources.PERSISTENT_VOLUME_CLAIMS: misc.persistent_volume_claim,
    resources.STORAGE_CLASSES: misc.storage_class,
    resources.LIMIT_RANGES: misc.limit_range,
    resources.PRIORITY_CLASSES: misc.priority_class,
    resources.RESOURCE_CLAIMS: claims.claim,
    resources.RESOURCE_CLAIM_TEMPLATES: claims.template,
    resources.BATCH_JOBS: batch.job,
    resources.CRON_JOBS: batch.cron_job,
    resources.QUEUES: volcano.queue,
    resources.POD_GROUPS: volcano.pod_group,
    resources.VOLCANO_JOBS: volcano.job,
    resources.JOB_SETS: jobset.job_set,
    resources.LEADER_WORKER_SETS: leaderworkerset.leader_worker_set,
    resources.JOB_TEMPLATES: volcano.job_template,
    resources.VOLCANO_CRON_JOBS: volcano.cron_job,
    resources.CUSTOM_RESOURCE_DEFINITIONS: definitions.definition,
    resources.TRAIN_JOBS: partial(volcano.structural, resources.TRAIN_JOBS),
    resources.TRAINING_RUNTIMES: partial(volcano.structural, resources.TRAINING_RUNTIMES),
    resources.CLUSTER_TRAINING_RUNTIMES: partial(volcano.structural, resources.CLUSTER_TRAINING_RUNTIMES),
}


def apply(resource: Resource, obj: dict[str, Any]) -> None:
    """Fill in ``obj``, which passed :func:`windlass.api.wire.field_review.review`."""
    fill = _BY_KIND.get(resource)
    if fill is not None:
        fill(obj)
