"""Volcano and KAI as their charts install them. Their own programs run where they are found beside etcd and the API
server (``volcano-scheduler``; ``kai-scheduler`` and ``kai-binder``); else one stands in for them that passes over the
same PodGroups."""

from __future__ import annotations

import os
from typing import Any

import yaml
from clusters import JSON_PATCH, Cluster, eventually
from realkube import free_ports, missing, spawn, tools_folder
from takeover_cluster import NODES, Json, Repeated, Scene

from windlass.sim.replay.policies import VOLCANO as VOLCANO_CHART

VOLCANO = "/apis/scheduling.volcano.sh/v1beta1"
KAI, KAI_CONFIG = "/apis/scheduling.run.ai", "/apis/kai.scheduler/v1"
SUFFIX = ".adopted.windlass.dev"
NODE_POOL = "kai.scheduler/node-pool"
_KAI_PLUGINS = """\
predicates proportion priority nodeavailability resourcetype podaffinity elastic kubeflow ray subgrouporder taskorder
nominatednode dynamicresources minruntime topology snapshot sg-nodelocalgreedy sg-multinodegang gpupack nodeplacement
gpusharingorder"""
_KAI_ARGUMENTS = {"nodeplacement": {"cpu": "binpack", "gpu": "binpack"}}
KAI_POLICY = yaml.safe_dump(
    {
        "actions": "allocate, consolidation, reclaim, preempt, stalegangeviction",
        "tiers": [
            {
                "plugins": [
                    {"name": name, "arguments": _KAI_ARGUMENTS.get(name, {})} for name in _KAI_PLUGINS.split()
                ]
            }
        ],
    }
)
"""What KAI's operator writes for a shard where nothing else is said."""


class VolcanoScene(Scene):
    kind, title, scheduler_name = "volcano", "Volcano", "volcano"
    groups_path = f"{VOLCANO}/namespaces/{{}}/podgroups"
    _deployments = "/apis/apps/v1/namespaces/volcano-system/deployments"

    def install(self) -> None:
        self._as_volcano_defines()
        for name in ("default", "research", "prod"):
            queue = {
                "apiVersion": "scheduling.volcano.sh/v1beta1",
                "kind": "Queue",
                "metadata": {"name": name},
            }
            self.api.post(f"{VOLCANO}/queues", {**queue, "spec": {"weight": 1}}).ok(201)
            state = {"status": {"state": "Open"}}  # Volcano's queue controller writes it
            self.api.patch(f"{VOLCANO}/queues/{name}/status", state).ok()
        self.api.post("/api/v1/namespaces", {"metadata": {"name": "volcano-system"}}).ok(201)
        config = {
            "metadata": {"name": "volcano-scheduler-configmap"},
            "data": {"volcano-scheduler.conf": VOLCANO_CHART},
        }
        self.api.post("/api/v1/namespaces/volcano-system/configmaps", config).ok(201)
        arguments = [
            "--logtostderr",
            "--scheduler-conf=/volcano.scheduler/volcano-scheduler.conf",
            "--scheduler-name=volcano",
        ]
        mounts = [{"name": "scheduler-config", "mountPath": "/volcano.scheduler"}]
        volumes = [{"name": "scheduler-config", "configMap": {"name": "volcano-scheduler-configmap"}}]
        for name, app in (
            ("volcano-scheduler", "volcano-scheduler"),
            ("volcano-controllers", "volcano-controller"),
        ):
            image = f"docker.io/volcanosh/{name}:v1.15.0"
            container = {"image": image, "args": arguments, "volumeMounts": mounts}
            self.api.post(self._deployments, deployment(name, app, container, volumes)).ok(201)

    def _as_volcano_defines(self) -> None:
        """In Volcano's definition PodGroups have no subresource for their status, which its scheduler writes with the
        object; and it is not ours."""
        path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/podgroups.scheduling.volcano.sh"
        gone = [
            {"op": "remove", "path": where} for where in ("/spec/versions/0/subresources", "/metadata/labels")
        ]
        self.api.patch(path, gone, JSON_PATCH).ok()

        def gone_from_discovery() -> bool:
            return "podgroups/status" not in {one["name"] for one in self.api.get(VOLCANO).ok()["resources"]}

        eventually(gone_from_discovery)

    def tell_running(self, api: Cluster, group: Json) -> None:
        if not says_running(group):
            api.patch(f"{self.groups}/{group['metadata']['name']}", {"status": {"phase": "Running"}}).ok()

    def shown_running(self, name: str) -> bool:
        return says_running(self.group(name))

    def own_processes(self) -> list[Any]:
        if missing(["volcano-scheduler"]):
            return []
        conf = self.kube.folder / "volcano-scheduler.conf"
        conf.write_text(VOLCANO_CHART)
        argv = [
            str(tools_folder() / "volcano-scheduler"),
            f"--kubeconfig={self.kube.kubeconfig}",
            f"--scheduler-conf={conf}",
            "--scheduler-name=volcano",
            "--leader-elect=false",
            "--schedule-period=200ms",
            "--enable-healthz=false",
            "--enable-metrics=false",
            "--cache-dumper=false",
            "--listen-address=127.0.0.1:0",
        ]
        return [spawn(argv, self.kube.folder / "volcano.log", cwd=self.kube.folder)]

    def passes_over(self, group: Json, queues: set[str]) -> bool:
        return group["spec"]["queue"] not in queues

    def group_body(self, name: str, queue: str, pods: int) -> Json:
        return {
            "apiVersion": "scheduling.volcano.sh/v1beta1",
            "kind": "PodGroup",
            "metadata": {"name": name},
            "spec": {"minMember": pods, "queue": queue},
        }

    def pod_metadata(self, group: str, queue: str) -> Json:
        return {"annotations": {"scheduling.k8s.io/group-name": group}}

    def handed(self, name: str) -> bool:
        return self.group(name)["spec"]["queue"].endswith(SUFFIX)

    def instances(self) -> int:
        return self.api.get(f"{self._deployments}/volcano-scheduler").ok()["spec"]["replicas"]


class KaiScene(Scene):
    kind, title, scheduler_name = "kai", "KAI", "kai-scheduler"
    groups_path = f"{KAI}/v2alpha2/namespaces/{{}}/podgroups"
    _space = "/apis/apps/v1/namespaces/kai-scheduler/deployments"
    _deployment = f"{_space}/kai-scheduler-default"

    def install(self) -> None:
        self.kube.install_foreign_crds()
        folder = self.kube.folder / "kai"
        folder.mkdir()
        for plural, kind, group, version, scope in (
            ("configs", "Config", "kai.scheduler", "v1", "Cluster"),
            ("schedulingshards", "SchedulingShard", "kai.scheduler", "v1", "Cluster"),
            ("bindrequests", "BindRequest", "scheduling.run.ai", "v1alpha2", "Namespaced"),
        ):
            text = yaml.safe_dump(loose_definition(plural, kind, group, version, scope))
            (folder / f"{plural}.yaml").write_text(text)
        self.kube.install_crds(folder)
        amounts = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
        resources = dict.fromkeys(("gpu", "cpu", "memory"), amounts)
        for name, above in (("org", ""), ("default", "org"), ("research", "org"), ("prod", "org")):
            spec = {"resources": resources, **({"parentQueue": above} if above else {})}
            queue = {"apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": {"name": name}}
            self.api.post(f"{KAI}/v2/queues", {**queue, "spec": spec}).ok(201)
        for kind, plural, name, spec in (
            ("Config", "configs", "kai-config", {"namespace": "kai-scheduler"}),
            ("SchedulingShard", "schedulingshards", "default", {"partitionLabelValue": ""}),
        ):
            body = {"apiVersion": "kai.scheduler/v1", "kind": kind, "metadata": {"name": name}, "spec": spec}
            self.api.post(f"{KAI_CONFIG}/{plural}", body).ok(201)
        self.api.post("/api/v1/namespaces", {"metadata": {"name": "kai-scheduler"}}).ok(201)
        name = "kai-scheduler-default"
        config = {"metadata": {"name": name}, "data": {"config.yaml": KAI_POLICY}}
        self.api.post("/api/v1/namespaces/kai-scheduler/configmaps", config).ok(201)
        container = {"image": "ghcr.io/kai-scheduler/kai-scheduler/scheduler:v0.17.0"}
        self.api.post(self._space, deployment(name, name, container, [])).ok(201)
        self._grouper()
        self._operator = Repeated(self.api, self._follow)

    def _grouper(self) -> None:
        """Its pod grouper, as far as anybody looks: a Deployment with an instance that is ready."""
        name, pods = "pod-grouper", "/api/v1/namespaces/kai-scheduler/pods"
        container = {"image": "ghcr.io/kai-scheduler/kai-scheduler/pod-grouper:v0.17.0"}
        body = deployment(name, name, container, [])
        body["spec"]["template"]["spec"].update(nodeName=NODES[0], tolerations=[{"operator": "Exists"}])
        self.api.post(self._space, body).ok(201)

        def made() -> list[str]:
            found = [pod["metadata"]["name"] for pod in self.api.get(pods).ok()["items"]]
            return [pod for pod in found if pod.startswith(name)]

        eventually(made)
        ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        self.api.patch(f"{pods}/{made()[0]}/status", {"status": ready}).ok()
        eventually(lambda: self.api.get(f"{self._space}/{name}").ok().get("status", {}).get("readyReplicas"))

    def _follow(self, api: Cluster) -> None:
        """What KAI's operator does: the Deployment has as many instances as the Config says."""
        config = api.get(f"{KAI_CONFIG}/configs/kai-config").ok()["spec"]
        wanted = config.get("scheduler", {}).get("replicas", 1)
        if api.get(self._deployment).ok()["spec"]["replicas"] != wanted:
            api.patch(self._deployment, {"spec": {"replicas": wanted}}).ok()

    def close(self) -> None:
        self._operator.stop()

    def own_processes(self) -> list[Any]:
        if missing(["kai-scheduler", "kai-binder"]):
            return []
        conf = self.kube.folder / "kai.yaml"
        conf.write_text(KAI_POLICY)
        ports, found = free_ports(4), []
        environment = {**os.environ, "KUBECONFIG": str(self.kube.kubeconfig), "NAMESPACE": "kai-scheduler"}
        for name, arguments in (
            (
                "kai-scheduler",
                [
                    f"--scheduler-conf={conf}",
                    "--schedule-period=200ms",
                    f"--listen-address=127.0.0.1:{ports[0]}",
                    f"--plugin-server-port={ports[1]}",
                ],
            ),
            (
                "kai-binder",
                [
                    f"--metrics-bind-address=127.0.0.1:{ports[2]}",
                    f"--health-probe-bind-address=127.0.0.1:{ports[3]}",
                ],
            ),
        ):
            log = self.kube.folder / f"{name}.log"
            argv = [str(tools_folder() / name), *arguments]
            found.append(spawn(argv, log, cwd=self.kube.folder, env=environment))
        return found

    def passes_over(self, group: Json, queues: set[str]) -> bool:
        return NODE_POOL in (group["metadata"].get("labels") or {})

    def group_body(self, name: str, queue: str, pods: int) -> Json:
        return {
            "apiVersion": "scheduling.run.ai/v2alpha2",
            "kind": "PodGroup",
            "metadata": {"name": name},
            "spec": {"minMember": pods, "queue": queue},
        }

    def pod_metadata(self, group: str, queue: str) -> Json:
        return {"annotations": {"pod-group-name": group}, "labels": {"kai.scheduler/queue": queue}}

    def handed(self, name: str) -> bool:
        labels = self.group(name)["metadata"].get("labels") or {}
        return labels.get(NODE_POOL) == "adopted.windlass.dev"

    def instances(self) -> int:
        config = self.api.get(f"{KAI_CONFIG}/configs/kai-config").ok()["spec"]
        return config.get("scheduler", {}).get("replicas", 1)


def says_running(group: Json) -> bool:
    """Whether a PodGroup of Volcano's says that it runs."""
    return bool((group.get("status") or {}).get("phase") == "Running")


def deployment(name: str, app: str, container: Json, volumes: list[Json]) -> Json:
    template = {
        "metadata": {"labels": {"app": app}},
        "spec": {"containers": [{"name": name, **container}], "volumes": volumes},
    }
    spec = {"replicas": 1, "selector": {"matchLabels": {"app": app}}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec}


def loose_definition(plural: str, kind: str, group: str, version: str, scope: str) -> Json:
    """A CustomResourceDefinition that takes anything."""
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    served = {
        "name": version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": anything},
        "subresources": {"status": {}},
    }
    names = {"kind": kind, "plural": plural, "singular": kind.lower()}
    notes = {"api-approved.kubernetes.io": "unapproved, for a test"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}", "annotations": notes},
        "spec": {"group": group, "names": names, "scope": scope, "versions": [served]},
    }
