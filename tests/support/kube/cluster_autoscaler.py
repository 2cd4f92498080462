"""The cluster autoscaler itself, with its provider ``kwok``: it makes Nodes from templates, and nobody runs their pods.

Its program (``cluster-autoscaler`` of Kubernetes 1.36) is looked for beside etcd and the API server.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

import yaml
from clusters import Cluster
from provisioning_request_crd import ATOMIC, GROUP, REQUESTS
from realkube import RealKube, free_ports, missing, tools_folder
from scheduler_processes import Part
from scheduling_over_http import Json, Scene

from windlass.api.annotations import EXPLANATION
from windlass.api.reasons import Explanation, NodesRequested
from windlass.api.resources import NODES, POD_GROUPS

BINARY = "cluster-autoscaler"
POOL = "pool"
"""The label of a node that names its group."""
_SPACE = "kube-system"
_PROMPT = {
    "scan-interval": "1s",
    "scale-down-delay-after-add": "0s",
    "scale-down-unneeded-time": "2s",
    "node-delete-delay-after-taint": "1s",
    "unremovable-node-recheck-timeout": "1s",
    "bypassed-scheduler-names": "nobody",
    "enable-provisioning-requests": "true",
    "provisioning-request-initial-backoff-time": "1s",
    "provisioning-request-max-backoff-time": "1s",
}
"""Times in which a test can wait for it; by default ten seconds, ten minutes twice, five seconds, five minutes, one
minute, and ten. Because it bypasses a scheduler, it looks at pods with GPUs at once, and not after thirty seconds."""


def need_autoscaler() -> None:
    """Skips the test, by its name, where its program is not there."""
    if missing([BINARY]):
        import pytest

        pytest.skip(f"no {BINARY} beside etcd and kube-apiserver (docs/guides/autoscaling.md)")


def _template(name: str, most: int, gpus: int) -> Json:
    """A node of the group ``name``, of which there may be ``most``."""
    amounts = {"cpu": "64", "memory": "256Gi", "pods": "110", "nvidia.com/gpu": str(gpus)}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {POOL: name, "accelerator": "gpu"},
            "annotations": {"cluster-autoscaler.kwok.nodegroup/max-count": str(most)},
        },
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": [{"type": "Ready", "status": "True", "reason": "Simulated"}],
        },
    }


def configure(api: Cluster, *, most: int) -> None:
    """What it may make: so many nodes of eight GPUs in the group ``gpu``, and (of a single template it reads none) one
    in ``other``."""
    settings = {
        "readNodesFrom": "configmap",
        "nodegroups": {"fromNodeLabelKey": POOL},
        "nodes": {
            "skipTaint": True,
            "gpuConfig": {"gpuLabelKey": "accelerator", "availableGPUTypes": {"gpu": {}}},
        },
        "configmap": {"name": "kwok-provider-templates"},
    }
    templates = [_template("gpu", most, 8), _template("other", 1, 8)]
    for name, key, text in (
        ("kwok-provider-config", "config", yaml.safe_dump(settings)),
        ("kwok-provider-templates", "templates", yaml.safe_dump_all(templates)),
    ):
        body = {"metadata": {"name": name}, "data": {key: text}}
        api.post(f"/api/v1/namespaces/{_SPACE}/configmaps", body).ok(201)


class Autoscaler(Part):
    """Without leader election, in a hurry."""

    def __init__(self, kube: RealKube) -> None:
        (port,) = free_ports(1)
        argv = [
            str(tools_folder() / BINARY),
            "--cloud-provider=kwok",
            f"--kubeconfig={kube.kubeconfig}",
            f"--namespace={_SPACE}",
            f"--address=127.0.0.1:{port}",
            "--leader-elect=false",
            "--v=4",
            *(f"--{name}={value}" for name, value in _PROMPT.items()),
        ]
        more = {"KWOK_PROVIDER_MODE": "local", "KUBECONFIG": str(kube.kubeconfig), "POD_NAMESPACE": _SPACE}
        super().__init__(argv, kube.folder / f"{BINARY}.log", port, more)

    @property
    def rounds(self) -> int:
        """How often it has looked at the cluster."""
        return self.text().count("Starting main loop")


class GrowingScene(Scene):
    """Pods that only the autoscaler's nodes take, and that tolerate nothing."""

    async def pod(self, name: str, **fields: Any) -> None:
        await super().pod(name, **{"nodeSelector": {POOL: "gpu"}, "tolerations": [], **fields})

    async def wide_gang(self, name: str, members: int, **spec: Any) -> None:
        """Of pods that each take a node."""
        await self.group_of(name, members, **spec)
        for i in range(members):
            await self.pod(f"{name}-{i}", group=name, gpus=8)

    async def asked_whole(self, name: str, members: int, queue: str) -> None:
        """A gang of pods that each take a node, with a request for all these nodes or none."""
        container = {"name": "main", "image": "x", "resources": {"limits": {"nvidia.com/gpu": "8"}}}
        template = {"nodeSelector": {POOL: "gpu"}, "containers": [container]}
        sets = [{"count": members, "podTemplateRef": {"name": name}}]
        request = {"provisioningClassName": ATOMIC, "podSets": sets}
        body = {"metadata": {"name": name}, "template": {"spec": template}}
        self._cluster.post(f"/api/v1/namespaces/{self.namespace}/podtemplates", body).ok(201)
        body = {
            "apiVersion": f"{GROUP}/v1",
            "kind": "ProvisioningRequest",
            "metadata": {"name": name},
            "spec": request,
        }
        self._cluster.post(self._requests, body).ok(201)
        await self.group_of(name, members, queue=queue)
        for i in range(members):
            await self.pod(
                f"{name}-{i}",
                group=name,
                gpus=8,
                annotations={f"{GROUP}/consume-provisioning-request": name},
            )

    async def close(self) -> None:
        """Nor is room booked any more."""
        self._cluster.delete(self._requests).ok()
        await super().close()

    def requests(self) -> list[Json]:
        """Those of its namespace."""
        return self._cluster.get(self._requests).ok()["items"]

    async def asked(self, group: str) -> NodesRequested | None:
        """What a gang is told of the nodes that Windlass asks for."""
        found = await self.client.get(POD_GROUPS, group, self.namespace)
        text = (found["metadata"].get("annotations") or {}).get(EXPLANATION)
        return Explanation.from_dict(json.loads(text)).asked if text else None

    @property
    def _requests(self) -> str:
        return REQUESTS.format(self.namespace)

    def provisioned(self, name: str) -> str:
        """The status of the condition ``Provisioned`` of a request, empty while there is none."""
        told = (self._cluster.get(f"{self._requests}/{name}").ok().get("status") or {}).get(
            "conditions"
        ) or ()
        return next((one["status"] for one in told if one["type"] == "Provisioned"), "")

    async def nodes(self) -> dict[str, Json]:
        return {obj["metadata"]["name"]: obj for obj in (await self.client.list(NODES)).items}

    async def reasons(self) -> dict[str, str]:
        """Pod → why it is not scheduled, of those to whom that was said."""
        found = {}
        for name, obj in (await self.pods()).items():
            for said in obj["status"].get("conditions") or ():
                if said["type"] == "PodScheduled" and said["status"] == "False":
                    found[name] = said["reason"]
        return found


async def looked(autoscaler: Autoscaler, rounds: int = 3) -> None:
    """The autoscaler has looked at all that is there now so many times."""
    was = autoscaler.rounds
    while autoscaler.rounds <= was + rounds:  # one may have begun before
        assert autoscaler.alive, autoscaler.text()[-2000:]
        await asyncio.sleep(0.1)
