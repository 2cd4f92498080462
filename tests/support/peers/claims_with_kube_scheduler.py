"""Claims for devices on a real API server with kube-scheduler beside: what their tests have in common."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from clusters import Cluster
from realkube import RealKube
from scheduler_processes import KubeScheduler
from scheduling_over_http import Json, Scene

from windlass.api.resources import Resource

TEMPLATES = Resource("resource.k8s.io", "v1", "resourceclaimtemplates", "ResourceClaimTemplate")
KUBE_SCHEDULER = "default-scheduler"


def claims_scene(name: str) -> Any:
    """A fixture: a namespace of its own, with a queue."""

    @pytest.fixture
    async def scene(real_kube: RealKube, kube_scheduler: KubeScheduler) -> AsyncIterator[Scene]:
        cluster = Cluster.of_real(real_kube)
        made = Scene(cluster, cluster.new_namespace(name))
        await made.make_queue()
        yield made
        await made.close()

    return scene


async def create(scene: Scene, resource: Resource, name: str, **fields: Any) -> None:
    metadata: Json = {"name": name} | ({"namespace": scene.namespace} if resource.namespaced else {})
    obj = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata, **fields}
    await scene.client.create(resource, obj)
