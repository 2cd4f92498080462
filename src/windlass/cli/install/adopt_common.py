"""What is the same of every scheduler that a cluster can be taken over from: findings, queues, and how it is
stopped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, TypeVar

from windlass.api.annotations import ADOPTED, ADOPTED_REPLICAS
from windlass.api.errors import StatusError
from windlass.api.resources import PODS, Resource
from windlass.api.views import KaiPodGroup, KaiQueue, Pod, PodGroup, QueueObject, decode_pod, encode
from windlass.client.blocking import BlockingClient
from windlass.model.cluster.ownership import OtherScheduler
from windlass.model.groups import podgroups

Json = dict[str, Any]
View = TypeVar("View")
STOP, NOTE, GOOD = "stop", "note", "ok"


@dataclass(frozen=True, slots=True)
class AdoptionFinding:
    """``level``: :data:`STOP` (nothing is done because of it), :data:`NOTE` or :data:`GOOD`."""

    level: str
    subject: str
    words: str


@dataclass(frozen=True, slots=True)
class QueueRow:
    """One queue as it stands. ``adopted``: marked for Windlass; ``handed``: gangs that are handed over; ``staying``:
    gangs that the other scheduler keeps in any case. ``parent``: ``""`` at the top; ``inner``: no work is in it, only
    queues."""

    name: str
    state: str
    adopted: bool
    gangs: int
    handed: int
    staying: int
    waiting: int
    running: int
    parent: str = ""
    inner: bool = False

    @property
    def theirs(self) -> int:
        """Gangs that are to change hands and have not."""
        return self.gangs - self.staying - self.handed


@dataclass(frozen=True, slots=True)
class Switch:
    """Where the number of instances of one of its parts stands. ``path``: of the number in ``obj``, whose annotation
    keeps what it was. ``deployments``: those that follow it."""

    resource: Resource
    obj: Json
    path: tuple[str, ...]
    deployments: Sequence[Json]

    @property
    def name(self) -> str:
        metadata = self.obj["metadata"]
        return "/".join(filter(None, (metadata.get("namespace"), metadata["name"])))

    @property
    def off(self) -> bool:
        """Whether it was scaled to nothing here."""
        return ADOPTED_REPLICAS in (self.obj["metadata"].get("annotations") or {})

    def turn_off(self, client: BlockingClient) -> None:
        """Scale it to nothing, and keep what stood there."""
        if not self.off:
            found: Any = self.obj
            for part in self.path:
                found = (found or {}).get(part)
            self._write(client, 0, "" if found is None else str(found))

    def turn_on(self, client: BlockingClient) -> None:
        """What stood there stands there again."""
        was = self.obj["metadata"]["annotations"][ADOPTED_REPLICAS]
        self._write(client, int(was) if was else None, None)

    def _write(self, client: BlockingClient, replicas: int | None, was: str | None) -> None:
        change: Any = replicas
        for part in reversed(self.path):
            change = {part: change}
        metadata = self.obj["metadata"]
        body = {**change, "metadata": {"annotations": {ADOPTED_REPLICAS: was}}}
        client.patch(self.resource, metadata["name"], body, metadata.get("namespace"))


@dataclass(slots=True)
class Report:
    """``title``: what people call it. ``resource``: of its queues. ``look``: its queues as they are now. ``names``: the
    scheduler names that it serves. ``configuration``: its policy as text. ``against``: what has to go before it can be
    stopped. ``grouped``: scheduler names for whose pods somebody else goes on making PodGroups."""

    kind: str
    title: str
    resource: Resource
    look: Callable[[], list[QueueRow]]
    names: tuple[str, ...] = ()
    configuration: str = ""
    findings: list[AdoptionFinding] = field(default_factory=list)
    queues: list[QueueRow] = field(default_factory=list)
    against: list[str] = field(default_factory=list)
    switches: list[Switch] = field(default_factory=list)
    grouped: tuple[str, ...] = ()

    @property
    def peer(self) -> OtherScheduler:
        return OtherScheduler(self.kind, self.names)

    @property
    def stops(self) -> list[AdoptionFinding]:
        return [finding for finding in self.findings if finding.level == STOP]

    @property
    def stopped(self) -> bool:
        """Whether it was scaled to nothing here."""
        return any(switch.off for switch in self.switches)

    def say(self, level: str, subject: str, words: str) -> None:
        self.findings.append(AdoptionFinding(level, subject, words))

    def below(self, names: Collection[str]) -> list[str]:
        """Those queues, and for one above others those below it."""
        found = {row.name for row in self.queues if row.name in names}
        size = -1
        while size != len(found):
            size = len(found)
            found |= {row.name for row in self.queues if row.parent in found}
        return [row.name for row in self.queues if row.name in found and not row.inner]


def rows(
    queues: Sequence[QueueObject | KaiQueue],
    found: Mapping[str, PodGroup | KaiPodGroup],
    pods: Sequence[Pod],
    staying: Collection[str] = (),
) -> list[QueueRow]:
    """The queues by name, with what is in them. ``found``: gangs by the keys that pods name them by."""
    waiting: Counter[str] = Counter()
    running: Counter[str] = Counter()
    for pod in pods:
        group = found.get(podgroups.group_key(pod))
        if group is not None and not pod.finished and not pod.deleted:
            (running if pod.node_name else waiting)[group.queue] += 1
    gangs = Counter(group.queue for group in found.values())
    handed = Counter(group.queue for group in found.values() if group.adopted)
    stays = Counter(found[key].queue for key in staying)
    above = {queue.parent for queue in queues}
    return [
        QueueRow(
            queue.name,
            (queue.state or "Open") if isinstance(queue, QueueObject) else "-",
            queue.annotations.get(ADOPTED) == "true",
            gangs[queue.name],
            handed[queue.name],
            stays[queue.name],
            waiting[queue.name],
            running[queue.name],
            queue.parent,
            not gangs[queue.name] and (queue.name in above or queue.name == "root"),
        )
        for queue in sorted(queues, key=lambda queue: queue.name)
    ]


def decoded(client: BlockingClient, resource: Resource, decode: Callable[[bytes], View]) -> list[View]:
    """All objects of a kind, as views."""
    return [decode(encode(obj)) for obj in client.list(resource).items]


def pods_of(client: BlockingClient, names: Collection[str]) -> list[Pod]:
    """The pods for the schedulers of these names."""
    return [pod for pod in decoded(client, PODS, decode_pod) if pod.scheduler_name in names]


def listed(client: BlockingClient, resource: Resource) -> list[Json] | None:
    """All objects of a kind, ``None`` where the cluster has no such kind. Raises ``StatusError``."""
    try:
        return client.list(resource).items
    except StatusError as error:
        if error.code != 404:
            raise
        return None


# ---------------------------------------------------------------------- Deployments


def title(deployment: Json) -> str:
    return f"{deployment['metadata']['namespace']}/{deployment['metadata']['name']}"


def container(deployment: Json) -> Json:
    return deployment["spec"]["template"]["spec"]["containers"][0]


def standing(deployment: Json) -> str:
    """Its image, and how many of its instances are ready."""
    wanted = deployment["spec"].get("replicas", 1)
    ready = (deployment.get("status") or {}).get("readyReplicas") or 0
    return f"{container(deployment).get('image', '')}, {ready} of {wanted} ready"


def flags(deployment: Json, name: str) -> list[str]:
    """The values of a flag, as ``--flag=value`` or as two words."""
    found = container(deployment)
    words = [*(found.get("command") or ()), *(found.get("args") or ())]
    values = [word.removeprefix(f"{name}=") for word in words if word.startswith(f"{name}=")]
    return values + [after for word, after in pairwise(words) if word == name]
