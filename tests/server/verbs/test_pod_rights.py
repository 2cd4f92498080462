"""Rights of a pod's token: those of Ray's autoscaler for the head of its RayCluster, none for other pods."""

from __future__ import annotations

from typing import Any

from ray_world import ray_cluster
from server_in_process import Api

from windlass.api.resources import CONFIG_MAPS, PODS, RAY_CLUSTERS, SERVICE_ACCOUNTS
from windlass.server.auth.pod_tokens import PodTokens

Json = dict[str, Any]


async def pod_user(api: Api, name: str, role: str, cluster: Json, audiences: tuple[str, ...] = ()) -> Any:
    """Create a pod of a cluster, and return the user of its token."""
    owner = {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "name": cluster["metadata"]["name"],
        "uid": cluster["metadata"]["uid"],
        "controller": True,
    }
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"ray.io/node-type": role}, "ownerReferences": [owner]},
        "spec": {"containers": [{"name": "ray", "image": "i"}]},
    }
    (await api.post(PODS.path("default"), pod)).ok(201)
    bound = {"kind": "Pod", "apiVersion": "v1", "name": name}
    spec = {"audiences": list(audiences), "expirationSeconds": 600, "boundObjectRef": bound}
    body = {"kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1", "spec": spec}
    answer = (await api.post(SERVICE_ACCOUNTS.path("default", "default", "token"), body)).ok(201)
    tokens = api.server.core.tokens
    assert tokens is not None
    return tokens.user(answer["status"]["token"])


async def test_the_head_of_a_cluster_with_the_autoscaler_changes_its_cluster_and_nothing_else(api: Api):
    api.server.core.tokens = PodTokens("secret", api.clock)
    clusters = []
    for name, autoscaled in (("c", True), ("other", True), ("fixed", False)):
        manifest = ray_cluster(enableInTreeAutoscaling=autoscaled)
        manifest["metadata"] = {"name": name}
        clusters.append((await api.post(RAY_CLUSTERS.path("default"), manifest)).ok(201))
    head = await pod_user(api, "head", "head", clusters[0])
    refused = [
        await pod_user(api, "worker", "worker", clusters[0]),
        await pod_user(api, "fixed", "head", clusters[2]),
        await pod_user(api, "report", "head", clusters[0], ("trainer.kubeflow.org",)),
    ]
    patch = [{"op": "replace", "path": "/spec/workerGroupSpecs/0/replicas", "value": 3}]
    path = RAY_CLUSTERS.path("default", "c")
    changed = (await api.patch(path, patch, "json", user=head)).ok(200)
    assert changed["spec"]["workerGroupSpecs"][0]["replicas"] == 3
    assert len((await api.get(PODS.path("default"), user=head)).ok(200)["items"]) == 4
    (await api.get(PODS.path("default", "head"), user=head)).ok(200)
    for user in refused:
        assert (await api.patch(path, patch, "json", user=user)).status == 403
        assert (await api.get(PODS.path("default"), user=user)).status == 403
    for attempt in (
        api.get(RAY_CLUSTERS.path("default"), user=head),
        api.get(RAY_CLUSTERS.path("default", "other"), user=head),
        api.delete(path, user=head),
        api.delete(PODS.path("default", "worker"), user=head),
        api.get(CONFIG_MAPS.path("default"), user=head),
        api.get(PODS.path("kube-system"), user=head),
    ):
        assert (await attempt).status == 403
    (await api.delete(PODS.path("default", "head"))).ok(200)
    assert (await api.get(PODS.path("default"), user=head)).status == 403
