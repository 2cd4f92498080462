"""What ``windlass install --adopt volcano`` finds in a cluster that runs Volcano. Reads, writes nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import PurePosixPath
from typing import Any

from windlass.api.annotations import ADOPTED
from windlass.api.errors import StatusError
from windlass.api.resources import CONFIG_MAPS, POD_GROUPS, PODS, QUEUES, Resource
from windlass.api.views import Pod, PodGroup, Queue, decode_pod, decode_pod_group, decode_queue, encode
from windlass.cli.installing import DEPLOYMENTS
from windlass.client.blocking import BlockingClient
from windlass.model import groups, scheduler_config
from windlass.model.engines import make_engine
from windlass.plugins import registry

Json = dict[str, Any]
SCHEDULER, CONTROLLERS = "volcano-scheduler", "volcano-controller"
DEFAULT_NAME = "volcano"
STOP, NOTE, GOOD = "stop", "note", "ok"
_BATCH, _FLOW = "batch.volcano.sh", "flow.volcano.sh"
ONLY_VOLCANO = (
    Resource(_BATCH, "v1alpha1", "cronjobs", "CronJob"),
    Resource(_FLOW, "v1alpha1", "jobflows", "JobFlow"),
    Resource(_FLOW, "v1alpha1", "jobtemplates", "JobTemplate"),
    Resource("training.volcano.sh", "v1alpha1", "hyperjobs", "HyperJob"),
)
"""Kinds that Volcano's controllers work on, and those of Windlass do not yet."""


@dataclass(frozen=True, slots=True)
class Finding:
    """``level``: :data:`STOP` (nothing is done because of it), :data:`NOTE` or :data:`GOOD`."""

    level: str
    subject: str
    words: str


@dataclass(frozen=True, slots=True)
class QueueRow:
    """One queue as it stands. ``adopted``: marked for Windlass; ``handed``: gangs that are handed over."""

    name: str
    state: str
    adopted: bool
    gangs: int
    handed: int
    waiting: int
    running: int


@dataclass(slots=True)
class Report:
    """``names``: the scheduler names that Volcano serves. ``configuration``: its policy as text. ``kept``: how many
    objects there are of each kind of :data:`ONLY_VOLCANO`."""

    scheduler: Json | None = None
    controllers: Json | None = None
    names: tuple[str, ...] = (DEFAULT_NAME,)
    configuration: str = ""
    findings: list[Finding] = field(default_factory=list)
    queues: list[QueueRow] = field(default_factory=list)
    kept: Mapping[str, int] = field(default_factory=dict)

    @property
    def stops(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.level == STOP]

    def say(self, level: str, subject: str, words: str) -> None:
        self.findings.append(Finding(level, subject, words))


def preflight(client: BlockingClient) -> Report:
    """Everything that an administrator should know before. Raises ``StatusError``, ``Unreachable``."""
    report = Report()
    _processes(client, report)
    if report.scheduler is not None:
        report.configuration = _configuration(client, report.scheduler)
        _policy(report)
    _kept(client, report)
    _queues(client, report)
    return report


def queue_rows(client: BlockingClient, names: Sequence[str] = (DEFAULT_NAME,)) -> list[QueueRow]:
    """The queues by name, with what is in them. ``names``: the scheduler names that count."""
    queues = [decode_queue(encode(obj)) for obj in client.list(QUEUES).items]
    found = [decode_pod_group(encode(obj)) for obj in client.list(POD_GROUPS).items]
    pods = [decode_pod(encode(obj)) for obj in client.list(PODS).items]
    return _rows(queues, found, [pod for pod in pods if pod.scheduler_name in names])


def title(deployment: Json) -> str:
    return f"{deployment['metadata']['namespace']}/{deployment['metadata']['name']}"


def label(deployment: Json) -> str:
    """The label ``app`` of the pods, by which the chart of Volcano calls its parts."""
    template = deployment["spec"]["template"]["metadata"]
    return (template.get("labels") or {}).get("app", "")


# ---------------------------------------------------------------------- its processes and its policy


def _processes(client: BlockingClient, report: Report) -> None:
    for deployment in client.list(DEPLOYMENTS).items:
        if label(deployment) == SCHEDULER:
            report.scheduler = deployment
        elif label(deployment) == CONTROLLERS:
            report.controllers = deployment
    if report.scheduler is None:
        words = f"no Deployment has pods with the label app={SCHEDULER}: nothing is to be taken over"
        report.say(STOP, "volcano-scheduler", words)
        return
    report.names = tuple(_flags(report.scheduler, "--scheduler-name")) or (DEFAULT_NAME,)
    for deployment in filter(None, (report.scheduler, report.controllers)):
        wanted = deployment["spec"].get("replicas", 1)
        ready = (deployment.get("status") or {}).get("readyReplicas") or 0
        report.say(GOOD, title(deployment), f"{_image(deployment)}, {ready} of {wanted} ready")
    report.say(GOOD, "schedulerName", ", ".join(report.names))
    sharding = _flags(report.scheduler, "--scheduler-sharding-mode")
    if sharding and sharding[0] != "none":
        words = f"sharding mode {sharding[0]}: Windlass places on all nodes, also on those of other shards"
        report.say(STOP, title(report.scheduler), words)


def _container(deployment: Json) -> Json:
    return deployment["spec"]["template"]["spec"]["containers"][0]


def _image(deployment: Json) -> str:
    return _container(deployment).get("image", "")


def _flags(deployment: Json, name: str) -> list[str]:
    """The values of a flag, as ``--flag=value`` or as two words."""
    container = _container(deployment)
    words = [*(container.get("command") or ()), *(container.get("args") or ())]
    found = [word.removeprefix(f"{name}=") for word in words if word.startswith(f"{name}=")]
    return found + [after for word, after in pairwise(words) if word == name]


def _configuration(client: BlockingClient, deployment: Json) -> str:
    """The text of its policy, from the ConfigMap that its pods mount; ``""`` where it runs its built-in one."""
    paths = _flags(deployment, "--scheduler-conf")
    if not paths:
        return ""
    path = PurePosixPath(paths[0])
    spec = deployment["spec"]["template"]["spec"]
    mounts = {
        m["name"]
        for m in _container(deployment).get("volumeMounts") or ()
        if m["mountPath"] == str(path.parent)
    }
    for volume in spec.get("volumes") or ():
        if volume["name"] in mounts and "configMap" in volume:
            found = client.find(CONFIG_MAPS, volume["configMap"]["name"], deployment["metadata"]["namespace"])
            return ((found or {}).get("data") or {}).get(path.name, "")
    return ""


def _policy(report: Report) -> None:
    if not report.configuration:
        report.say(NOTE, "configuration", "none was found: Windlass begins with its own default policy")
        return
    try:
        parsed = scheduler_config.parse(report.configuration)
        warned: list[str] = []
        make_engine(parsed.config, warned.append)
    except (scheduler_config.ConfigError, registry.UnknownAction, ValueError) as error:
        report.say(STOP, "configuration", f"{error}; give another one with --config")
        return
    plugins = [plugin.name for tier in parsed.config.tiers for plugin in tier.plugins]
    report.say(
        GOOD, "configuration", f"actions {', '.join(parsed.config.actions)}; plugins {', '.join(plugins)}"
    )
    for words in dict.fromkeys((*parsed.notes, *warned)):
        report.say(NOTE, "configuration", words)


# ---------------------------------------------------------------------- what is in the cluster


def _kept(client: BlockingClient, report: Report) -> None:
    kept: dict[str, int] = {}
    for resource in ONLY_VOLCANO:
        try:
            count = len(client.list(resource).items)
        except StatusError as error:
            if error.code != 404:
                raise
            continue
        if count:
            kept[resource.qualified] = count
            words = f"{count}: only Volcano's controllers work on them, so these have to stay"
            report.say(NOTE, resource.qualified, words)
    report.kept = kept


def _queues(client: BlockingClient, report: Report) -> None:
    views: tuple[tuple[Resource, Callable[[bytes], Any]], ...] = (
        (QUEUES, decode_queue),
        (POD_GROUPS, decode_pod_group),
    )
    for resource, decode in views:
        try:
            items = [decode(encode(obj)) for obj in client.list(resource).items]
        except StatusError as error:
            if error.code != 404:
                raise
            report.say(STOP, resource.qualified, "the cluster has no such kind: Volcano is not installed")
            return
        for item in items:
            for problem in item.problems:
                report.say(NOTE, f"{resource.singular} {getattr(item, 'key', item.name)}", str(problem))
    report.queues = queue_rows(client, report.names)


def _rows(queues: Sequence[Queue], found: Sequence[PodGroup], pods: Sequence[Pod]) -> list[QueueRow]:
    queue_of = {group.key: group.queue for group in found}
    waiting: Counter[str] = Counter()
    running: Counter[str] = Counter()
    for pod in pods:
        queue = queue_of.get(groups.group_key(pod))
        if queue is not None and not pod.finished and not pod.deleted:
            (running if pod.node_name else waiting)[queue] += 1
    gangs = Counter(group.queue for group in found)
    handed = Counter(group.queue for group in found if group.adopted)
    return [
        QueueRow(
            queue.name,
            queue.state or "Open",
            queue.annotations.get(ADOPTED) == "true",
            gangs[queue.name],
            handed[queue.name],
            waiting[queue.name],
            running[queue.name],
        )
        for queue in sorted(queues, key=lambda queue: queue.name)
    ]
