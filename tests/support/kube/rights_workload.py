"""Objects that make the scheduler and the controllers use every right that the chart gives them."""

from __future__ import annotations

from typing import Any

from clusters import Cluster, eventually
from provisioning_request_crd import ATOMIC, REQUESTS

from windlass.api.annotations import PROVISIONING_CLASS as CLASS

Json = dict[str, Any]
NODE = "rights-1"
JOBS = "/apis/batch.volcano.sh/v1alpha1/namespaces/{}/jobs"
SELECTOR = {"kubernetes.io/hostname": NODE}


def pod_spec(gpus: int = 0, **more: Any) -> Json:
    limits = {"nvidia.com/gpu": str(gpus)} if gpus else {}
    container = {"name": "main", "image": "train", "resources": {"limits": limits}}
    container.update(more.pop("container", {}))
    return {
        "restartPolicy": "Never",
        "schedulerName": "windlass",
        "nodeSelector": SELECTOR,
        "tolerations": [{"operator": "Exists"}],
        "terminationGracePeriodSeconds": 0,
        "containers": [container],
        **more,
    }


def job(name: str, workers: int, gpus: int, **spec: Any) -> Json:
    template = {"spec": pod_spec(gpus)}
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {
            "schedulerName": "windlass",
            "queue": "rights",
            "minAvailable": workers,
            "plugins": {"svc": [], "env": []},
            "tasks": [{"name": "worker", "replicas": workers, "template": template}],
            **spec,
        },
    }


class RightsScene:
    """In a namespace of its own on a node of its own with two GPUs. Each method plays one thing to its end."""

    def __init__(self, api: Cluster) -> None:
        self._api = api
        self.namespace = api.new_namespace("rights")
        self.jobs = JOBS.format(self.namespace)
        self.pods = f"/api/v1/namespaces/{self.namespace}/pods"

    def world(self) -> None:
        api = self._api
        amounts = {"cpu": "8", "memory": "32Gi", "pods": "50", "nvidia.com/gpu": "2"}
        ready = [{"type": "Ready", "status": "True"}]
        labels = {**SELECTOR, "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"}
        status = {"allocatable": amounts, "capacity": amounts, "conditions": ready}
        api.post("/api/v1/nodes", {"metadata": {"name": NODE, "labels": labels}, "status": status}).ok(201)
        self._make("/apis/scheduling.volcano.sh/v1beta1/queues", "Queue", {}, name="rights")
        member = {"type": "Node", "selector": {"exactMatch": {"name": NODE}}}
        self._make(
            "/apis/topology.volcano.sh/v1alpha1/hypernodes",
            "HyperNode",
            {"tier": 1, "members": [member]},
            name="rights-rack",
        )

    def spelling(self) -> None:
        """Words of another vendor for a part of a card are understood, and told."""
        amounts = {"limits": {"aliyun.com/gpu-mem": "10"}}
        spec = pod_spec(container={"resources": amounts})
        self._api.post(self.pods, {"metadata": {"name": "spelled"}, "spec": spec}).ok(201)
        path = f"{self.pods}/spelled"

        def told() -> bool:
            conditions = self._api.get(path).ok()["status"].get("conditions") or []
            return any(one["type"] == "Normalized" for one in conditions)

        eventually(told)
        self._api.delete(path)

    def eviction(self) -> None:
        """Ordinary work makes room for work of higher priority."""
        self._api.post(self.jobs, job("ordinary", 2, 1)).ok(201)
        eventually(lambda: self.bound("ordinary") == 2)
        self._api.post(self.jobs, job("first", 2, 1, priorityClassName="high-priority")).ok(201)
        eventually(lambda: self.bound("first") == 2)
        for name in ("ordinary", "first"):
            self._api.delete(f"{self.jobs}/{name}")
        eventually(lambda: not self._api.get(self.pods).ok()["items"])

    def growth(self) -> None:
        """A job that grows tells its members of one another anew; then a command ends it."""
        self._api.post(self.jobs, job("grows", 1, 0)).ok(201)
        eventually(lambda: self.bound("grows") == 1)
        live = self._api.get(f"{self.jobs}/grows").ok()
        live["spec"]["tasks"][0]["replicas"] = 2
        self._api.put(f"{self.jobs}/grows", live).ok()
        eventually(lambda: self.bound("grows") == 2)
        owner = {
            "apiVersion": live["apiVersion"],
            "kind": "Job",
            "name": "grows",
            "uid": live["metadata"]["uid"],
        }
        command = {
            "apiVersion": "bus.volcano.sh/v1alpha1",
            "kind": "Command",
            "metadata": {"name": "end", "ownerReferences": [{**owner, "controller": True}]},
            "action": "AbortJob",
            "target": {**owner, "controller": True},
        }
        self._api.post(f"/apis/bus.volcano.sh/v1alpha1/namespaces/{self.namespace}/commands", command).ok(201)
        eventually(lambda: self.bound("grows") == 0)

    def volumes(self) -> None:
        """One claim that a volume waits for, and one that is to be made where the pod goes."""
        classes = "/apis/storage.k8s.io/v1/storageclasses"
        for name, provisioner in (
            ("rights-kept", "kubernetes.io/no-provisioner"),
            ("rights-made", "csi.test"),
        ):
            body = {
                "metadata": {"name": name},
                "provisioner": provisioner,
                "volumeBindingMode": "WaitForFirstConsumer",
            }
            self._api.post(classes, body).ok(201)
        volume = {
            "metadata": {"name": f"v-{self.namespace}"},
            "spec": {
                "capacity": {"storage": "1Gi"},
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": "rights-kept",
                "local": {"path": "/v"},
                "nodeAffinity": {
                    "required": {
                        "nodeSelectorTerms": [
                            {
                                "matchExpressions": [
                                    {"key": "kubernetes.io/hostname", "operator": "In", "values": [NODE]}
                                ]
                            }
                        ]
                    }
                },
            },
        }
        self._api.post("/api/v1/persistentvolumes", volume).ok(201)
        for name in ("kept", "made"):
            claim = {
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": f"rights-{name}",
                "resources": {"requests": {"storage": "1Gi"}},
            }
            mount = {"mountPath": "/data", "volumeClaim": claim}
            self._api.post(self.jobs, job(name, 1, 0, volumes=[mount])).ok(201)
        claims = f"/api/v1/namespaces/{self.namespace}/persistentvolumeclaims"
        key = "volume.kubernetes.io/selected-node"

        def chosen() -> bool:
            found = self._api.get(claims).ok()["items"]
            return any((claim["metadata"].get("annotations") or {}).get(key) == NODE for claim in found)

        eventually(chosen)
        eventually(lambda: self.bound("kept") == 1)

    def devices(self) -> None:
        """A device by a claim."""
        group = "/apis/resource.k8s.io/v1"
        driver = "gpu.rights.test"
        selector = {"cel": {"expression": f"device.driver == '{driver}'"}}
        self._api.post(
            f"{group}/deviceclasses", {"metadata": {"name": "rights"}, "spec": {"selectors": [selector]}}
        ).ok(201)
        pool = {"name": NODE, "generation": 1, "resourceSliceCount": 1}
        offer = {"driver": driver, "pool": pool, "nodeName": NODE, "devices": [{"name": "gpu-0"}]}
        self._api.post(f"{group}/resourceslices", {"metadata": {"name": "rights"}, "spec": offer}).ok(201)
        asked = {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "rights"}}]}}
        self._api.post(
            f"{group}/namespaces/{self.namespace}/resourceclaims",
            {"metadata": {"name": "one"}, "spec": asked},
        ).ok(201)
        spec = pod_spec(
            container={"resources": {"claims": [{"name": "c"}]}},
            resourceClaims=[{"name": "c", "resourceClaimName": "one"}],
        )
        self._bare("with-device", spec)
        eventually(lambda: self._node_of("with-device") == NODE)

    def kai(self) -> None:
        """Two gangs of KAI's API: one runs, one has to wait."""
        self._make("/apis/scheduling.run.ai/v2/queues", "Queue", {"resources": {}}, name="rights-kai")
        groups = f"/apis/scheduling.run.ai/v2alpha2/namespaces/{self.namespace}/podgroups"
        self._make(groups, "PodGroup", {"queue": "rights-kai", "minMember": 1}, name="waits")
        self._make(groups, "PodGroup", {"queue": "rights-kai", "minMember": 1}, name="runs")
        labels = {"kai.scheduler/queue": "rights-kai"}
        for name, gpus in (("waits", 64), ("runs", 1)):
            notes = {"pod-group-name": name}
            self._bare(f"{name}-0", pod_spec(gpus), annotations=notes, labels=labels)

        def told() -> bool:
            group = self._api.get(f"{groups}/waits").ok()
            queue = self._api.get("/apis/scheduling.run.ai/v2/queues/rights-kai").ok()
            said = (group.get("status") or {}).get("schedulingConditions")
            return bool(
                said and group["metadata"].get("annotations") and queue["metadata"].get("annotations")
            )

        eventually(told)

    def coscheduling(self) -> None:
        """A gang of the coscheduling plug-in that has to wait."""
        groups = f"/apis/scheduling.x-k8s.io/v1alpha1/namespaces/{self.namespace}/podgroups"
        self._make(groups, "PodGroup", {"minMember": 1}, name="too-large")
        self._bare("too-large-0", pod_spec(64), labels={"scheduling.x-k8s.io/pod-group": "too-large"})

        def told() -> bool:
            group = self._api.get(f"{groups}/too-large").ok()
            return bool(group["metadata"].get("annotations") and group.get("status", {}).get("phase"))

        eventually(told)

    def native(self) -> None:
        """Two gangs of Kubernetes' own API: one has to wait, which is told on it; the other is scheduled."""
        path = f"/apis/scheduling.k8s.io/v1alpha2/namespaces/{self.namespace}/podgroups"
        for name, gpus in (("own-large", 64), ("own-small", 1)):
            self._make(path, "PodGroup", {"schedulingPolicy": {"gang": {"minCount": 1}}}, name=name)
            self._bare(f"{name}-0", {**pod_spec(gpus), "schedulingGroup": {"podGroupName": name}})

        def told(name: str) -> list[tuple[str, str, str]]:
            status = self._api.get(f"{path}/{name}").ok().get("status") or {}
            return [(one["type"], one["status"], one["reason"]) for one in status.get("conditions") or ()]

        eventually(lambda: told("own-large") == [("PodGroupScheduled", "False", "Unschedulable")])
        eventually(lambda: told("own-small") == [("PodGroupScheduled", "True", "Scheduled")])

    def nodes(self) -> None:
        """A gang that lacks nodes, for which all of them are asked for, until it is gone."""
        queue = {"kind": "Queue", "metadata": {"name": "rights-nodes", "annotations": {CLASS: ATOMIC}}}
        path = "/apis/scheduling.volcano.sh/v1beta1"
        self._api.post(f"{path}/queues", {"apiVersion": "scheduling.volcano.sh/v1beta1", **queue}).ok(201)
        groups = f"{path}/namespaces/{self.namespace}/podgroups"
        self._make(groups, "PodGroup", {"queue": "rights-nodes", "minMember": 2}, name="lacks")
        for i in range(2):
            self._bare(f"lacks-{i}", pod_spec(64), annotations={"scheduling.k8s.io/group-name": "lacks"})
        asked = (REQUESTS.format(self.namespace), f"/api/v1/namespaces/{self.namespace}/podtemplates")
        eventually(lambda: all(self._api.get(path).ok()["items"] for path in asked))
        for i in range(2):
            self._api.delete(f"{self.pods}/lacks-{i}").ok()
        eventually(lambda: not any(self._api.get(path).ok()["items"] for path in asked))

    def alone(self) -> None:
        """Pods without a group: one that waits, and one of Volcano's that gets its group made."""
        self._bare("waits-alone", pod_spec(64))
        self._bare("of-volcano", pod_spec(0, schedulerName="volcano"))
        for name in ("waits-alone", "of-volcano"):
            path = f"{self.pods}/{name}"
            eventually(lambda path=path: self._api.get(path).ok()["metadata"].get("annotations"))

    def bound(self, name: str) -> int:
        """How many pods of a job are on a node and not on their way out."""
        found = self._api.get(self.pods, query=f"labelSelector=volcano.sh/job-name={name}").ok()["items"]
        return sum(
            bool(pod["spec"].get("nodeName")) and "deletionTimestamp" not in pod["metadata"] for pod in found
        )

    def _node_of(self, name: str) -> str:
        return self._api.get(f"{self.pods}/{name}").ok()["spec"].get("nodeName", "")

    def _bare(self, name: str, spec: Json, **metadata: Any) -> None:
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, **metadata},
            "spec": spec,
        }
        self._api.post(self.pods, body).ok(201)

    def _make(self, path: str, kind: str, spec: Json, *, name: str) -> None:
        group_version = "/".join(path.split("/")[2:4])
        body = {"apiVersion": group_version, "kind": kind, "metadata": {"name": name}, "spec": spec}
        self._api.post(path, body).ok(201)
