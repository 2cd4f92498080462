"""Nodes that are asked for as a whole: which pods of a gang a ProvisioningRequest counts, how it stands, what is due.

Pure. A gang that lacks nodes for its minimum is wanted nodes for (:func:`want_of`); what has been asked for is on the
requests themselves (:func:`standing`), and :func:`decide` says what is to be done about the two:

| wanted | the last request | due |
|---|---|---|
| nothing | any | it is withdrawn |
| something | none | it is asked for |
| something | for other pods, or by another class | it is withdrawn; once it is gone, the new is asked for |
| something | asked, accepted, provisioned | nothing |
| something | failed, booking expired, capacity revoked | asked for anew, after a pause that doubles; so often |

A request that another has followed is withdrawn.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from windlass.api import annotations as names
from windlass.api import views
from windlass.api.quantities import from_units, is_device
from windlass.model.groups.podgroups import COSCHEDULING, KAI, index_of, role_of
from windlass.spi.objects import Group

NONE = "none"
"""No class: nodes are not asked for."""
MOST_CLASSES = 32
"""So many kinds of pods may a request count."""
_NO_PARAMETERS: Mapping[str, str] = {}
_OWNERS = {"scheduling.volcano.sh": "", "scheduling.run.ai": KAI, "scheduling.x-k8s.io": COSCHEDULING}


class ProvisioningPhase(StrEnum):
    """How a request stands, in words for people."""

    ASKED = "asked"
    ACCEPTED = "accepted"
    PROVISIONED = "provisioned"
    FAILED = "failed"
    EXPIRED = "booking expired"
    REVOKED = "capacity revoked"


OVER = frozenset((ProvisioningPhase.FAILED, ProvisioningPhase.EXPIRED, ProvisioningPhase.REVOKED))
_BY_CONDITION = (
    ("Failed", ProvisioningPhase.FAILED),
    ("CapacityRevoked", ProvisioningPhase.REVOKED),
    ("BookingExpired", ProvisioningPhase.EXPIRED),
    ("Provisioned", ProvisioningPhase.PROVISIONED),
    ("Accepted", ProvisioningPhase.ACCEPTED),
)
"""The first that is true tells; those that were true before it stay so."""


@dataclass(frozen=True, slots=True)
class ProvisioningStatus:
    """``since``: Unix seconds. ``detail``: what the autoscaler says of it."""

    stand: ProvisioningPhase
    since: float
    detail: str = ""


def standing(request: views.ProvisioningRequest) -> ProvisioningStatus:
    """By the request's conditions. One that was accepted and for which nothing was found yet says so in its detail."""
    for kind, stand in _BY_CONDITION:
        found = request.condition(kind)
        if found is None or found.status != "True":
            continue
        detail = found.message
        if stand is ProvisioningPhase.ACCEPTED:
            yet = request.condition("Provisioned")
            detail = yet.message if yet is not None else ""
        return ProvisioningStatus(stand, found.since or request.created, detail)
    return ProvisioningStatus(ProvisioningPhase.ASKED, request.created)


# ---------------------------------------------------------------------- what is wanted


@dataclass(frozen=True, slots=True)
class PodClass:
    """Pods that are alike to a scheduler. ``labels``: those that all of them have."""

    pods: tuple[str, ...]
    each: str
    labels: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class WantedRequest:
    """``digest``: the same for the same pods, asked for by the same class with the same ``parameters``."""

    class_name: str
    classes: tuple[PodClass, ...]
    digest: str
    parameters: tuple[tuple[str, str], ...] = ()

    @property
    def pods(self) -> Iterable[str]:
        return (key for one in self.classes for key in one.pods)

    @property
    def what(self) -> str:
        """``4 x 8 GPUs and 1 x 2 CPUs``."""
        return " and ".join(f"{len(one.pods)} x {one.each}" for one in self.classes)


def is_requested_whole(group: Group) -> bool:
    """Return whether all or none of a group's nodes would be another thing than one node after the other."""
    return group.min_member > 1


def want_of(
    group: Group,
    pods: Iterable[views.Pod],
    assumed: Collection[str],
    class_name: str,
    parameters: Mapping[str, str] = _NO_PARAMETERS,
) -> WantedRequest | None:
    """What nodes are to be asked for: as many of a gang's pods that wait as its minimum lacks, all of them where it has
    sub-groups with minima of their own. ``None``: none lacks. ``assumed``: pods whose binding is on its way."""
    chosen = _lacking(group, pods, assumed)
    by_class: dict[str, list[views.Pod]] = {}
    for pod in chosen:
        by_class.setdefault(_likeness(pod), []).append(pod)
    if not by_class:
        return None
    classes = {text: _pod_class(alike) for text, alike in sorted(by_class.items())}
    counted = [f"{len(one.pods)} {text}" for text, one in classes.items()]
    handed = tuple(sorted(parameters.items()))
    asked = [class_name, *map(repr, handed), *counted]
    digest = hashlib.sha256("\n".join(asked).encode()).hexdigest()[:16]
    return WantedRequest(class_name, tuple(classes.values()), digest, handed)


def lacks_minimum(group: Group, pods: Iterable[views.Pod], assumed: Collection[str]) -> bool:
    """Return whether fewer pods than its minimum have a place."""
    return len(_sorted_out(pods, assumed)[0]) < group.min_member


def _sorted_out(
    pods: Iterable[views.Pod], assumed: Collection[str]
) -> tuple[list[views.Pod], list[views.Pod]]:
    """Those that have a place, and those that wait."""
    held: list[views.Pod] = []
    waiting: list[views.Pod] = []
    for pod in pods:
        if pod.phase == "Failed" or (pod.deleted and pod.phase != "Succeeded"):
            continue
        placed = pod.node_name or pod.finished or pod.key in assumed
        (held if placed else waiting).append(pod)
    return held, waiting


def _lacking(group: Group, pods: Iterable[views.Pod], assumed: Collection[str]) -> list[views.Pod]:
    held, waiting = _sorted_out(pods, assumed)
    lacks = group.min_member - len(held)
    if lacks <= 0:
        return []
    if group.subgroups or len(waiting) <= lacks:
        return waiting
    waiting.sort(key=lambda pod: (index_of(pod), pod.created, pod.name))
    return _by_roles(group, held, waiting, lacks)


def _by_roles(
    group: Group, held: Sequence[views.Pod], waiting: Sequence[views.Pod], lacks: int
) -> list[views.Pod]:
    """The first of each role that its minimum lacks, and of all until the gang's is there. By Volcano's rule the minima
    of roles count where ``minMember`` is at least their sum."""
    least = group.min_task_member if group.min_member >= sum(group.min_task_member.values()) else {}
    open_roles = {role: number - sum(role_of(pod) == role for pod in held) for role, number in least.items()}
    first: list[views.Pod] = []
    others: list[views.Pod] = []
    for pod in waiting:
        role = role_of(pod)
        if open_roles.get(role, 0) > 0:
            open_roles[role] -= 1
            first.append(pod)
        else:
            others.append(pod)
    return [*first, *others[: max(0, lacks - len(first))]]


def _likeness(pod: views.Pod) -> str:
    """The same for pods that any node takes, or does not take, alike."""
    shape = pod.shape
    return repr(
        (
            sorted(shape.request.items()),
            sorted(shape.node_selector.items()),
            shape.affinity,
            shape.tolerations,
            shape.host_ports,
            shape.spread,
            shape.claims,
            pod.claims,
            pod.priority,
        )
    )


def _pod_class(pods: Sequence[views.Pod]) -> PodClass:
    labels = set(pods[0].labels.items()).intersection(*(pod.labels.items() for pod in pods))
    return PodClass(tuple(pod.key for pod in pods), _each(pods[0].shape), tuple(sorted(labels)))


def _each(shape: views.PodShape) -> str:
    """``8 GPUs``: what of one pod is scarce."""
    devices = [name for name in sorted(shape.request) if is_device(name) and shape.request[name]]
    name = devices[0] if devices else "cpu"
    amount = from_units(name, shape.request.get(name, 0))
    unit = "GPU" if name.endswith("/gpu") else "CPU" if name == "cpu" else ""
    return f"{amount} {unit}{'' if amount == '1' else 's'}" if unit else f"{amount} {name}"


# ---------------------------------------------------------------------- what is due


@dataclass(frozen=True, slots=True)
class Retry:
    """After a request that is over it is asked for anew ``times`` times, ``seconds`` after the first and twice as long
    after each further one, ``most_seconds`` at most."""

    times: int = 3
    seconds: float = 60.0
    most_seconds: float = 1800.0

    def pause(self, attempt: int) -> float:
        """After the ``attempt``-th, counted from 1."""
        return min(self.most_seconds, self.seconds * 2 ** min(attempt - 1, 30))

    def again(self, request: views.ProvisioningRequest) -> float | None:
        """When it is asked for anew (Unix seconds) after one that is over; ``None``: no more."""
        attempt = attempt_of(request)
        return standing(request).since + self.pause(attempt) if attempt <= self.times else None


@dataclass(frozen=True, slots=True)
class DueAction:
    """``ask``: the attempt to make, 0 for none. ``look_at``: when there is something to do by the clock alone (Unix
    seconds). ``current``: the request that stands."""

    withdraw: tuple[views.ProvisioningRequest, ...] = ()
    ask: int = 0
    look_at: float | None = None
    current: views.ProvisioningRequest | None = None


def attempt_of(request: views.ProvisioningRequest) -> int:
    text = request.annotations.get(names.ATTEMPT, "")
    return int(text) if text.isascii() and text.isdigit() and 0 < len(text) < 9 else 1


def last_of(requests: Iterable[views.ProvisioningRequest]) -> views.ProvisioningRequest | None:
    """The last that was made and is not on its way out."""
    return max((one for one in requests if not one.deleted), key=attempt_of, default=None)


def decide(
    want: WantedRequest | None,
    owner: str,
    seen: Collection[views.ProvisioningRequest],
    now: float,
    retry: Retry,
) -> DueAction:
    """``owner``: the uid of the gang's object. ``seen``: the requests that Windlass has made for it, or for one of its
    name. ``now``: Unix seconds."""
    mine = [one for one in seen if any(found.uid == owner for found in one.owners)]
    last = last_of(mine) if want is not None else None
    fits = (
        last is not None
        and want is not None
        and names.read(last.annotations, names.PROVISIONING_FOR) == want.digest
    )
    others = tuple(one for one in seen if not one.deleted and not (fits and one is last))
    if want is None:
        return DueAction(others)
    if last is None or not fits:
        return DueAction(others, ask=0 if seen else 1)
    if standing(last).stand not in OVER:
        return DueAction(others, current=last)
    again = retry.again(last)
    if again is None:
        return DueAction(others, current=last)
    if now < again:
        return DueAction(others, look_at=again, current=last)
    return DueAction(others, ask=attempt_of(last) + 1, current=last)


def group_of(request: views.ProvisioningRequest) -> str:
    """The key of the group that it was made for; ``""`` of one that Windlass has not made."""
    if names.read(request.annotations, names.PROVISIONING_FOR) is None:
        return ""
    for owner in request.owners:
        prefix = _OWNERS.get(owner.api_version.partition("/")[0])
        if owner.kind == "PodGroup" and prefix is not None:
            return f"{request.namespace}/{prefix}{owner.name}"
    return ""
