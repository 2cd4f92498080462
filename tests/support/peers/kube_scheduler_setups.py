"""kube-scheduler, and what brings gangs to it: the plug-in coscheduling, and Kueue, which lets in by quota."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, ClassVar

import yaml
from peer_scheduler import GPU, UNLIMITED, Json, Peer, definitions, program
from realkube import free_ports
from scheduler_processes import KubeScheduler, Part

from windlass.api.resources import COSCHEDULING_POD_GROUPS, Resource

_QUEUES = "/apis/kueue.x-k8s.io/v1beta2"


class Kube(Peer):
    name, title = "kube", "kube-scheduler 1.36.3"
    programs = (KubeScheduler.BINARY,)
    scheduler_name = "default-scheduler"
    rates = "50, burst 100"

    def start(self) -> list[Part]:
        return [KubeScheduler(self._kube, limited=self._limited)]


class _CoschedulingScheduler(KubeScheduler):
    """kube-scheduler with the plug-in compiled in, and the profile of its manifest."""

    BINARY = "coscheduling-scheduler"
    PROFILES: ClassVar[list[dict[str, Any]]] = [
        {
            "schedulerName": "default-scheduler",
            "plugins": {
                "multiPoint": {"enabled": [{"name": "Coscheduling"}]},
                "queueSort": {"enabled": [{"name": "Coscheduling"}], "disabled": [{"name": "*"}]},
            },
            "pluginConfig": [{"name": "Coscheduling", "args": {"permitWaitingTimeSeconds": 10}}],
        }
    ]


class Coscheduling(Kube):
    name, title = "coscheduling", "coscheduling 0.34.7"
    programs, defined = (_CoschedulingScheduler.BINARY,), "coscheduling"
    left_out = "its controller, which writes statuses of PodGroups"

    def install(self) -> None:
        self._kube.install_crds(definitions(self.defined))

    def start(self) -> list[Part]:
        return [_CoschedulingScheduler(self._kube, limited=self._limited)]

    def group(self, gang: str, pods: int, gpus: int) -> tuple[Resource, Json] | None:
        kind = {"apiVersion": COSCHEDULING_POD_GROUPS.api_version, "kind": "PodGroup"}
        metadata = {"name": gang, "namespace": "default"}
        return COSCHEDULING_POD_GROUPS, {**kind, "metadata": metadata, "spec": {"minMember": pods}}

    def mark(self, pod: Json, gang: str, pods: int) -> None:
        super().mark(pod, gang, pods)
        pod["metadata"].setdefault("labels", {})["scheduling.x-k8s.io/pod-group"] = gang


class Kueue(Kube):
    """Groups of plain pods, let in by quota; kube-scheduler places them."""

    name, title = "kueue", "Kueue 0.15.2 and kube-scheduler 1.36.3"
    programs, defined = ("kueue", KubeScheduler.BINARY), "kueue"
    left_out = "its webhooks; pods are written as they leave them"
    rates = "50, burst 100, each"

    def install(self) -> None:
        self._kube.install_crds(self._definitions())
        self._certificates()
        self._create(f"{_QUEUES}/resourceflavors", _kueue("ResourceFlavor", "default", {}))
        amounts = {"cpu": str(64 * self._gpus), "memory": f"{512 * self._gpus}Gi", GPU: str(self._gpus)}
        resources = [{"name": name, "nominalQuota": amount} for name, amount in amounts.items()]
        flavor = {"name": "default", "resources": resources}
        groups = [{"coveredResources": list(amounts), "flavors": [flavor]}]
        cluster_queue = _kueue("ClusterQueue", "all", {"namespaceSelector": {}, "resourceGroups": groups})
        self._create(f"{_QUEUES}/clusterqueues", cluster_queue)
        local = _kueue("LocalQueue", "team", {"clusterQueue": "all"})
        self._create(f"{_QUEUES}/namespaces/default/localqueues", local)

    def _definitions(self) -> Path:
        """Its newest versions alone: nothing is ever converted, and a webhook that converts is only named."""
        folder = self._kube.folder / "kueue-crds"
        folder.mkdir()
        service = {"name": "kueue-webhook-service", "namespace": "kueue-system", "path": "/convert"}
        conversion = {"conversionReviewVersions": ["v1"], "clientConfig": {"service": service}}
        for file in definitions(self.defined).glob("*.yaml"):
            body = yaml.safe_load(file.read_text())
            versions = body["spec"]["versions"]
            newest = max(versions, key=lambda one: one["name"])
            body["spec"]["versions"] = [{**newest, "served": True, "storage": True}]
            if len(versions) > 1:
                body["spec"]["conversion"] = {"strategy": "Webhook", "webhook": conversion}
            (folder / file.name).write_text(yaml.safe_dump(body))
        return folder

    def _certificates(self) -> None:
        """What it insists on for its webhooks, of which none is registered."""
        self._create("/api/v1/namespaces", {"metadata": {"name": "kueue-system"}})
        secret = {"metadata": {"name": "kueue-webhook-server-cert"}}
        self._create("/api/v1/namespaces/kueue-system/secrets", secret)
        for kind in ("validating", "mutating"):
            body = {"metadata": {"name": f"kueue-{kind}-webhook-configuration"}, "webhooks": []}
            self._create(f"/apis/admissionregistration.k8s.io/v1/{kind}webhookconfigurations", body)
        folder = self._kube.folder / "kueue-certs"
        folder.mkdir()
        for ours, its in (("server.crt", "tls.crt"), ("server.key", "tls.key"), ("ca.crt", "ca.crt")):
            shutil.copy(self._kube.folder / ours, folder / its)

    def start(self) -> list[Part]:
        folder, (health, webhook) = self._kube.folder, free_ports(2)
        config = {
            "apiVersion": "config.kueue.x-k8s.io/v1beta2",
            "kind": "Configuration",
            "namespace": "kueue-system",
            "health": {"healthProbeBindAddress": f"127.0.0.1:{health}"},
            "metrics": {"bindAddress": "0"},
            "webhook": {"host": "127.0.0.1", "port": webhook, "certDir": str(folder / "kueue-certs")},
            "leaderElection": {"leaderElect": False},
            "controller": {"groupKindConcurrency": {"Pod": 5, "Workload.kueue.x-k8s.io": 5}},
            "clientConnection": {"qps": 50, "burst": 100}
            if self._limited
            else {"qps": int(UNLIMITED), "burst": int(UNLIMITED)},
            "integrations": {"frameworks": ["pod"]},
            "managedJobsNamespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "default"}},
            "featureGates": {"VisibilityOnDemand": False},
        }
        path = folder / "kueue.yaml"
        path.write_text(yaml.safe_dump(config))
        argv, more = [program("kueue"), f"--config={path}"], {"KUBECONFIG": str(self._kube.kubeconfig)}
        return [Part(argv, folder / "kueue.log", health, more), *super().start()]

    def mark(self, pod: Json, gang: str, pods: int) -> None:
        """As its webhook leaves a pod of a group."""
        super().mark(pod, gang, pods)
        metadata = pod["metadata"]
        metadata["finalizers"] = ["kueue.x-k8s.io/managed"]
        metadata.setdefault("labels", {}).update(
            {
                "kueue.x-k8s.io/queue-name": "team",
                "kueue.x-k8s.io/managed": "true",
                "kueue.x-k8s.io/pod-group-name": gang,
            }
        )
        metadata.setdefault("annotations", {}).update(
            {"kueue.x-k8s.io/pod-group-total-count": str(pods), "kueue.x-k8s.io/role-hash": "worker"}
        )
        gates = ("kueue.x-k8s.io/admission", "kueue.x-k8s.io/topology")
        pod["spec"]["schedulingGates"] = [{"name": gate} for gate in gates]


def _kueue(kind: str, name: str, spec: Json) -> Json:
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": kind,
        "metadata": {"name": name},
        "spec": spec,
    }
