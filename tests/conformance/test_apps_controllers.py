"""Controllers of ``apps/v1`` next to Kubernetes' own: the same histories end in the same state.

The test plays the kubelet: it makes pods ready, by its own choice. Names of revisions
differ, because Windlass hashes templates in another way.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
from clusters import Cluster, eventually
from server_pair import Pair

Json = dict[str, Any]
pytestmark = [pytest.mark.real]
REVISION = "deployment.kubernetes.io/revision"


class Scene:
    """One workload in a namespace of its own."""

    def __init__(self, api: Cluster, plural: str) -> None:
        self.api = api
        self.namespace = api.new_namespace("apps")
        self.path = f"/apis/apps/v1/namespaces/{self.namespace}/{plural}"
        self.pod_path = f"/api/v1/namespaces/{self.namespace}/pods"

    def create(self, kind: str, spec: Json) -> None:
        container = {"name": "c", "image": "app:v1"}
        body: Json = {
            "apiVersion": "apps/v1",
            "kind": kind,
            "metadata": {"name": "web"},
            "spec": {
                "selector": {"matchLabels": {"app": "web"}},
                "template": {
                    "metadata": {"labels": {"app": "web"}},
                    "spec": {"containers": [container]},
                },
                **spec,
            },
        }
        self.api.post(self.path, body).ok(201)

    def change(self, **spec: Any) -> None:
        self.api.patch(f"{self.path}/web", {"spec": spec}).ok()

    def set_image(self, image: str) -> None:
        spec = {"containers": [{"name": "c", "image": image}]}
        self.change(template={"spec": spec})

    def pods(self) -> list[Json]:
        found = self.api.get(self.pod_path).ok()["items"]
        return [pod for pod in found if not pod["metadata"].get("deletionTimestamp")]

    def make_ready(self, chosen: Callable[[Json], bool] = lambda pod: True) -> int:
        """Run the chosen pods that are not ready yet. Returns their number."""
        done = 0
        for pod in self.pods():
            if not chosen(pod) or (pod.get("status") or {}).get("conditions"):
                continue
            status = {
                "phase": "Running",
                "conditions": [
                    {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
                ],
            }
            path = f"{self.pod_path}/{pod['metadata']['name']}/status"
            answer = self.api.patch(path, {"status": status})
            done += answer.status == 200
        return done

    def images(self) -> list[str]:
        return sorted(pod["spec"]["containers"][0]["image"] for pod in self.pods())

    def status(self) -> Json:
        return self.api.get(f"{self.path}/web").ok().get("status") or {}

    def observed(self) -> bool:
        found = self.api.get(f"{self.path}/web").ok()
        return (found.get("status") or {}).get("observedGeneration") == found["metadata"]["generation"]

    def until(self, condition: Callable[[], bool], chosen: Callable[[Json], bool] = lambda pod: True) -> None:
        """Make chosen pods ready until the condition holds."""

        def step() -> bool:
            self.make_ready(chosen)
            return self.observed() and condition()

        eventually(step)

    def sets(self) -> list[Json]:
        path = self.path.replace("deployments", "replicasets")
        found = self.api.get(path).ok()["items"]
        return sorted(found, key=lambda one: int(one["metadata"]["annotations"][REVISION]))

    def is_complete(self, replicas: int) -> bool:
        """Return whether the rollout has ended with so many replicas."""
        status = self.status()
        reasons = {one["reason"] for one in status.get("conditions") or ()}
        counts = [status.get(name) for name in ("replicas", "updatedReplicas", "availableReplicas")]
        return counts == [replicas] * 3 and "NewReplicaSetAvailable" in reasons

    def sizes(self) -> list[int]:
        return [one["spec"]["replicas"] for one in self.sets()]


def plain(status: Json) -> Json:
    """Return a status without times, messages and names of revisions."""
    kept = copy.deepcopy(status)
    for name in ("currentRevision", "updateRevision"):
        kept.pop(name, None)
    conditions = kept.pop("conditions", [])
    kept["conditions"] = sorted((one["type"], one["status"], one.get("reason", "")) for one in conditions)
    return kept


def is_old(pod: Json) -> bool:
    return pod["spec"]["containers"][0]["image"] == "app:v1"


def deployment_history(api: Cluster) -> list[Any]:
    scene, found = Scene(api, "deployments"), []
    rolling = {"maxSurge": 2, "maxUnavailable": 1}
    scene.create("Deployment", {"replicas": 5, "strategy": {"rollingUpdate": rolling}})
    scene.until(lambda: scene.is_complete(5))
    found.append((scene.sizes(), plain(scene.status())))
    scene.set_image("app:v2")  # its pods do not become ready yet
    scene.until(lambda: len(scene.images()) == 7 and scene.images().count("app:v2") == 3, is_old)
    found.append((scene.sizes(), scene.images()))
    scene.change(replicas=10)  # in proportion, since the rollout is not over
    scene.until(lambda: len(scene.images()) == 12, is_old)
    found.append((scene.sizes(), [one["metadata"]["annotations"] for one in scene.sets()]))
    scene.change(replicas=4)
    scene.until(lambda: len(scene.images()) <= 6 and sum(scene.sizes()) <= 6, is_old)
    found.append(scene.sizes())
    scene.until(lambda: scene.images() == ["app:v2"] * 4 and scene.is_complete(4))
    found.append((scene.sizes(), plain(scene.status())))
    scene.set_image("app:v1")
    scene.until(lambda: scene.images() == ["app:v1"] * 4 and scene.is_complete(4))
    found.append((scene.sizes(), plain(scene.status())))
    found.append([one["metadata"]["annotations"] for one in scene.sets()])
    return found


def stateful_history(api: Cluster) -> list[Any]:
    scene, found = Scene(api, "statefulsets"), []

    def numbered() -> list[tuple[str, str]]:
        return sorted(
            (pod["metadata"]["name"], pod["spec"]["containers"][0]["image"]) for pod in scene.pods()
        )

    strategy = {"type": "RollingUpdate", "rollingUpdate": {"partition": 1}}
    scene.create("StatefulSet", {"replicas": 3, "serviceName": "peers", "updateStrategy": strategy})
    eventually(lambda: bool(numbered()))
    found.append(numbered())  # the second waits for the first
    scene.until(lambda: scene.status().get("availableReplicas") == 3)
    found.append((numbered(), plain(scene.status())))
    scene.set_image("app:v2")
    scene.until(lambda: scene.status().get("updatedReplicas") == 2)
    scene.until(lambda: scene.status().get("availableReplicas") == 3)
    found.append((numbered(), plain(scene.status())))
    scene.change(replicas=2, ordinals={"start": 1})
    scene.until(lambda: [name for name, _ in numbered()] == ["web-1", "web-2"])
    scene.until(lambda: scene.status().get("replicas") == 2 == scene.status().get("availableReplicas"))
    found.append((numbered(), plain(scene.status())))
    labels = [sorted(pod["metadata"]["labels"]) for pod in scene.pods()]
    found.append(labels)
    return found


def daemon_history(api: Cluster) -> list[Any]:
    scene, found = Scene(api, "daemonsets"), []
    for name in ("apps-a", "apps-b"):
        labels = {"pool": scene.namespace}
        node = f"{name}-{scene.namespace}"
        api.post("/api/v1/nodes", {"metadata": {"name": node, "labels": labels}}).ok(201)
    selector = {"nodeSelector": {"pool": scene.namespace}}
    container = {"name": "c", "image": "app:v1"}
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [container], **selector}}
    scene.create("DaemonSet", {"template": template})
    scene.until(lambda: scene.status().get("numberAvailable") == 2)
    found.append((scene.images(), plain(scene.status())))
    scene.set_image("app:v2")
    scene.until(lambda: scene.images() == ["app:v2"] * 2 and scene.status().get("numberAvailable") == 2)
    scene.until(lambda: scene.status().get("updatedNumberScheduled") == 2)
    found.append((scene.images(), plain(scene.status())))
    pods = scene.pods()
    found.append(sorted(sorted(pod["metadata"]["labels"]) for pod in pods))
    found.append(_tolerations(pods[0]))
    for name in ("apps-a", "apps-b"):
        api.delete(f"/api/v1/nodes/{name}-{scene.namespace}").ok()
    return found


def _tolerations(pod: Json) -> list[tuple[str, str]]:
    return sorted((one.get("key", ""), one.get("effect", "")) for one in pod["spec"]["tolerations"])


@pytest.mark.parametrize("history", [deployment_history, stateful_history, daemon_history])
def test_history_ends_as_with_the_controllers_of_kubernetes(both: Pair, history: Any) -> None:
    embedded, real = (history(api) for api in both)
    assert embedded == real
