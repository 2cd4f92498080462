"""Schedulers of gangs as their users install them, on a bare API server, and gangs as their users write them.

Each is its own program, built by ``tools/kubernetes/build.sh --peers`` beside its CustomResourceDefinitions. What it
does not need to bind a gang is left out (webhooks, controllers that only count): that is in its favour, and
``left_out`` tells it.
"""

from __future__ import annotations

from contextlib import closing
from typing import ClassVar

from clusters import Cluster
from kube_scheduler_setups import Coscheduling, Kube, Kueue
from peer_scheduler import GPU, UNLIMITED, Json, Peer, definitions, program
from realkube import RealKube, free_ports
from same_decisions import open_queue
from scheduler_processes import Part, WindlassPart

from windlass.api.resources import KAI_POD_GROUPS, KAI_QUEUES, POD_GROUPS, Resource
from windlass.sim.replay.policies import VOLCANO as VOLCANO_CHART


class Windlass(Peer):
    name, title = "windlass", "Windlass"
    programs = ()
    scheduler_name = "windlass"

    def install(self) -> None:
        self._kube.install_crds()

    def start(self) -> list[Part]:
        return [WindlassPart(self._kube, "scheduler"), WindlassPart(self._kube, "controller")]

    def group(self, gang: str, pods: int, gpus: int) -> tuple[Resource, Json] | None:
        """As Volcano's own controller writes it for a job: with all that its pods ask for."""
        spec = {"minMember": pods, "queue": "default", "minResources": {GPU: str(pods * gpus)}}
        metadata = {"name": gang, "namespace": "default"}
        kind = {"apiVersion": POD_GROUPS.api_version, "kind": "PodGroup"}
        return POD_GROUPS, {**kind, "metadata": metadata, "spec": spec}

    def mark(self, pod: Json, gang: str, pods: int) -> None:
        super().mark(pod, gang, pods)
        pod["metadata"].setdefault("annotations", {})["scheduling.k8s.io/group-name"] = gang


class Together(Windlass):
    """As the chart's ``oneProcess`` has it."""

    name, title = "together", "Windlass, one process"

    def start(self) -> list[Part]:
        return [WindlassPart(self._kube, "scheduler", "--with-controllers=true")]


class Volcano(Windlass):
    """Gangs are written as for Windlass, which reads Volcano's kinds."""

    name, title = "volcano", "Volcano 1.15.0"
    programs, defined = ("volcano-scheduler",), "volcano"
    scheduler_name = "volcano"
    left_out = "its webhooks and controllers; its queue is open already"
    rates = "2000, burst 2000"
    more: ClassVar[tuple[str, ...]] = ()
    """Of its command line."""

    def __init__(
        self, kube: RealKube, gpus: int, *, limited: bool = False, policy: str = VOLCANO_CHART
    ) -> None:
        super().__init__(kube, gpus, limited=limited)
        self._policy = policy

    def install(self) -> None:
        self._kube.install_crds(definitions(self.defined))
        with closing(Cluster.of_real(self._kube)) as api:
            open_queue(api, "default")

    def start(self) -> list[Part]:
        conf, port = self._kube.folder / "volcano-scheduler.conf", free_ports(1)[0]
        conf.write_text(self._policy)
        argv = [
            program("volcano-scheduler"),
            f"--kubeconfig={self._kube.kubeconfig}",
            f"--scheduler-conf={conf}",
            "--leader-elect=false",
            "--enable-healthz=false",
            "--cache-dumper=false",
            f"--listen-address=127.0.0.1:{port}",
            *self.more,
        ]
        if not self._limited:
            argv += [f"--kube-api-qps={UNLIMITED}", f"--kube-api-burst={UNLIMITED}"]
        return [Part(argv, self._kube.folder / "volcano-scheduler.log", port)]


class Kai(Peer):
    name, title = "kai", "KAI 0.12.0"
    programs, defined = ("kai-scheduler", "kai-binder"), "kai"
    scheduler_name = "kai-scheduler"
    left_out = "its pod-grouper (PodGroups are written as it would), webhooks, queue and PodGroup controllers"
    rates = "50, burst 300, scheduler and binder each"
    _QUEUE = "default-queue"

    def install(self) -> None:
        self._kube.install_crds(definitions(self.defined))
        for space in ("kai-scheduler", "kai-resource-reservation", "kai-scale-adjust"):
            self._create("/api/v1/namespaces", {"metadata": {"name": space}})
        train = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "train"}}
        self._create("/apis/scheduling.k8s.io/v1/priorityclasses", {**train, "value": 50})
        open_to_all = {"quota": 0, "limit": -1, "overQuotaWeight": 1}
        resources = dict.fromkeys(("gpu", "cpu", "memory"), open_to_all)
        for name, parent in (("default-parent-queue", None), (self._QUEUE, "default-parent-queue")):
            spec = {"resources": resources, **({"parentQueue": parent} if parent else {})}
            queue = {"apiVersion": KAI_QUEUES.api_version, "kind": "Queue", "metadata": {"name": name}}
            self._create(KAI_QUEUES.path(), {**queue, "spec": spec})

    def start(self) -> list[Part]:
        ports, folder = free_ports(4), self._kube.folder
        more = {"KUBECONFIG": str(self._kube.kubeconfig), "NAMESPACE": "kai-scheduler"}
        free = [] if self._limited else [f"--qps={UNLIMITED}", f"--burst={UNLIMITED}"]
        scheduler = [program("kai-scheduler"), f"--listen-address=127.0.0.1:{ports[0]}"]
        scheduler += [f"--plugin-server-port={ports[1]}", *free]
        binder = [program("kai-binder"), f"--metrics-bind-address=127.0.0.1:{ports[2]}"]
        binder += [f"--health-probe-bind-address=127.0.0.1:{ports[3]}", *free]
        return [
            Part(scheduler, folder / "kai-scheduler.log", ports[0], more),
            Part(binder, folder / "kai-binder.log", ports[3], more),
        ]

    def group(self, gang: str, pods: int, gpus: int) -> tuple[Resource, Json] | None:
        spec = {"minMember": pods, "queue": self._QUEUE, "priorityClassName": "train"}
        metadata = {"name": gang, "namespace": "default"}
        kind = {"apiVersion": KAI_POD_GROUPS.api_version, "kind": "PodGroup"}
        return KAI_POD_GROUPS, {**kind, "metadata": metadata, "spec": spec}

    def mark(self, pod: Json, gang: str, pods: int) -> None:
        super().mark(pod, gang, pods)
        pod["metadata"].setdefault("annotations", {})["pod-group-name"] = gang
        pod["metadata"].setdefault("labels", {})["kai.scheduler/queue"] = self._QUEUE


PEERS: dict[str, type[Peer]] = {
    peer.name: peer for peer in (Windlass, Together, Volcano, Kai, Kueue, Coscheduling, Kube)
}
