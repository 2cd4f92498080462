"""Parts of the adoption that all schedulers share: findings, queues, how each is stopped."""

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
    """One finding.

    ``level``: :data:`STOP` (prevents the adoption), :data:`NOTE` or :data:`GOOD`.
    """

    level: str
    subject: str
    text: str


@dataclass(frozen=True, slots=True)
class QueueRow:
    """State of one queue.

    ``adopted``: marked for Windlass. ``handed``: gangs that are handed over.
    ``staying``: gangs that stay with the other scheduler in any case. ``parent``:
    ``""`` at the top. ``inner``: it has only child queues, no gangs.
    """

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
    def remaining(self) -> int:
        """Number of gangs that are still to be handed over."""
        return self.gangs - self.staying - self.handed


@dataclass(frozen=True, slots=True)
class Switch:
    """Field with the number of instances of one component.

    ``path``: of the field in ``obj``. An annotation of ``obj`` stores its original
    value. ``deployments``: Deployments that follow the field.
    """

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
        """Return whether it was scaled to zero by Windlass."""
        return ADOPTED_REPLICAS in (self.obj["metadata"].get("annotations") or {})

    def turn_off(self, client: BlockingClient) -> None:
        """Scale it to zero, and store the original value."""
        if not self.off:
            found: Any = self.obj
            for part in self.path:
                found = (found or {}).get(part)
            self._write(client, 0, "" if found is None else str(found))

    def turn_on(self, client: BlockingClient) -> None:
        """Restore the original value."""
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
    """Report on another scheduler.

    ``title``: name for people. ``resource``: kind of its queues. ``look``: returns the
    current queues. ``names``: scheduler names that it serves. ``configuration``: its
    policy as text. ``against``: obstacles to stopping it. ``grouped``: scheduler names;
    another controller continues to create PodGroups for their pods.
    """

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
        """Return whether it was scaled to zero by Windlass."""
        return any(switch.off for switch in self.switches)

    def add(self, level: str, subject: str, text: str) -> None:
        self.findings.append(AdoptionFinding(level, subject, text))

    def below(self, names: Collection[str]) -> list[str]:
        """Return these queues, with those below them in place of inner ones."""
        names_found = {row.name for row in self.queues if row.name in names}
        size = -1
        while size != len(names_found):
            size = len(names_found)
            names_found |= {row.name for row in self.queues if row.parent in names_found}
        return [row.name for row in self.queues if row.name in names_found and not row.inner]


def rows(
    queues: Sequence[QueueObject | KaiQueue],
    found: Mapping[str, PodGroup | KaiPodGroup],
    pods: Sequence[Pod],
    staying: Collection[str] = (),
) -> list[QueueRow]:
    """Return the queues by name, with their contents.

    :param found: gangs by the keys with which pods name them
    """
    waiting: Counter[str] = Counter()
    running: Counter[str] = Counter()
    for pod in pods:
        group = found.get(podgroups.group_key(pod))
        if group is not None and not pod.finished and not pod.deleted:
            (running if pod.node_name else waiting)[group.queue] += 1
    gangs = Counter(group.queue for group in found.values())
    handed_over = Counter(group.queue for group in found.values() if group.adopted)
    stays = Counter(found[key].queue for key in staying)
    parents = {queue.parent for queue in queues}
    return [
        QueueRow(
            queue.name,
            (queue.state or "Open") if isinstance(queue, QueueObject) else "-",
            queue.annotations.get(ADOPTED) == "true",
            gangs[queue.name],
            handed_over[queue.name],
            stays[queue.name],
            waiting[queue.name],
            running[queue.name],
            queue.parent,
            not gangs[queue.name] and (queue.name in parents or queue.name == "root"),
        )
        for queue in sorted(queues, key=lambda queue: queue.name)
    ]


def decoded(client: BlockingClient, resource: Resource, decode: Callable[[bytes], View]) -> list[View]:
    """Return all objects of a kind as views."""
    return [decode(encode(obj)) for obj in client.list(resource).items]


def pods_of(client: BlockingClient, names: Collection[str]) -> list[Pod]:
    """Return the pods of the schedulers with these names."""
    return [pod for pod in decoded(client, PODS, decode_pod) if pod.scheduler_name in names]


def listed(client: BlockingClient, resource: Resource) -> list[Json] | None:
    """Return all objects of a kind; ``None`` if the cluster lacks the kind.

    Raises ``StatusError``.
    """
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


def state_text(deployment: Json) -> str:
    """Return the image of a Deployment, and the number of its ready instances."""
    wanted = deployment["spec"].get("replicas", 1)
    ready = (deployment.get("status") or {}).get("readyReplicas") or 0
    return f"{container(deployment).get('image', '')}, {ready} of {wanted} ready"


def flags(deployment: Json, name: str) -> list[str]:
    """Return the values of a flag, given as ``--flag=value`` or as two words."""
    entry = container(deployment)
    words = [*(entry.get("command") or ()), *(entry.get("args") or ())]
    values = [word.removeprefix(f"{name}=") for word in words if word.startswith(f"{name}=")]
    return values + [value for word, value in pairwise(words) if word == name]
