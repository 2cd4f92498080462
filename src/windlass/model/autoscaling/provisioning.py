"""Nodes requested as a whole: the pods in a ProvisioningRequest, its phase, and due actions.

Pure. A gang that lacks nodes for its minimum wants nodes (:func:`want_of`). The
requests themselves record what has been requested (:func:`status_of`). :func:`decide`
returns the action that follows from both:

| wanted | the last request | due |
|---|---|---|
| nothing | any | it is withdrawn |
| something | none | a request is made |
| something | for other pods, or with another class | it is withdrawn; the new request
follows its deletion |
| something | requested, accepted, provisioned | nothing |
| something | failed, booking expired, capacity revoked | requested again after a pause
that doubles; a limited number of times |

A request with a successor is withdrawn.
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
"""No class: nodes are not requested."""
MAX_CLASSES = 32
"""Maximum number of pod classes in a request."""
_NO_PARAMETERS: Mapping[str, str] = {}
_OWNERS = {"scheduling.volcano.sh": "", "scheduling.run.ai": KAI, "scheduling.x-k8s.io": COSCHEDULING}


class ProvisioningPhase(StrEnum):
    """Phase of a request, as shown to users."""

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
"""Phases by condition, in order of precedence. Earlier conditions stay true."""


@dataclass(frozen=True, slots=True)
class ProvisioningStatus:
    """Phase of a request.

    ``since``: Unix seconds.
    ``detail``: the autoscaler's message.
    """

    phase: ProvisioningPhase
    since: float
    detail: str = ""


def status_of(request: views.ProvisioningRequest) -> ProvisioningStatus:
    """Return the status of a request by its conditions.

    The detail of an accepted request states whether capacity was found yet.
    """
    for kind, phase in _BY_CONDITION:
        condition = request.condition(kind)
        if condition is None or condition.status != "True":
            continue
        detail = condition.message
        if phase is ProvisioningPhase.ACCEPTED:
            provisioned = request.condition("Provisioned")
            detail = provisioned.message if provisioned is not None else ""
        return ProvisioningStatus(phase, condition.since or request.created, detail)
    return ProvisioningStatus(ProvisioningPhase.ASKED, request.created)


# ---------------------------------------------------------------------- wanted nodes


@dataclass(frozen=True, slots=True)
class PodClass:
    """Pods that are equal to a scheduler. ``labels``: those that all of them have."""

    pods: tuple[str, ...]
    each: str
    labels: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class WantedRequest:
    """Request to be made.

    ``digest``: equal for the same pods with the same class and ``parameters``.
    """

    class_name: str
    classes: tuple[PodClass, ...]
    digest: str
    parameters: tuple[tuple[str, str], ...] = ()

    @property
    def pods(self) -> Iterable[str]:
        return (key for pod_class in self.classes for key in pod_class.pods)

    @property
    def what(self) -> str:
        """``4 x 8 GPUs and 1 x 2 CPUs``, for users."""
        return " and ".join(f"{len(pod_class.pods)} x {pod_class.each}" for pod_class in self.classes)


def is_requested_whole(group: Group) -> bool:
    """Return whether the group's nodes are requested together, and not one by one."""
    return group.min_member > 1


def want_of(
    group: Group,
    pods: Iterable[views.Pod],
    assumed: Collection[str],
    class_name: str,
    parameters: Mapping[str, str] = _NO_PARAMETERS,
) -> WantedRequest | None:
    """Return the request for nodes that a gang needs; ``None`` if it lacks none.

    It contains as many waiting pods as the gang's minimum lacks. For a gang with
    sub-groups that have minimums of their own, it contains all of them. ``assumed``:
    pods with a binding in flight.
    """
    chosen = _lacking(group, pods, assumed)
    by_class: dict[str, list[views.Pod]] = {}
    for pod in chosen:
        by_class.setdefault(_likeness(pod), []).append(pod)
    if not by_class:
        return None
    classes = {text: _pod_class(alike) for text, alike in sorted(by_class.items())}
    counted = [f"{len(pod_class.pods)} {text}" for text, pod_class in classes.items()]
    settings = tuple(sorted(parameters.items()))
    lines = [class_name, *map(repr, settings), *counted]
    digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]
    return WantedRequest(class_name, tuple(classes.values()), digest, settings)


def lacks_minimum(group: Group, pods: Iterable[views.Pod], assumed: Collection[str]) -> bool:
    """Return whether fewer pods than the group's minimum are placed."""
    return len(_sorted_out(pods, assumed)[0]) < group.min_member


def _sorted_out(
    pods: Iterable[views.Pod], assumed: Collection[str]
) -> tuple[list[views.Pod], list[views.Pod]]:
    """Return the pods that are placed, and those that wait."""
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
    """Return the first pods of each role up to its minimum, then others up to the gang's.

    By Volcano's rule, minimums of roles count if ``minMember`` is at least their sum.
    """
    least = group.min_task_member if group.min_member >= sum(group.min_task_member.values()) else {}
    open_roles = {role: number - sum(role_of(pod) == role for pod in held) for role, number in least.items()}
    first: list[views.Pod] = []
    rest: list[views.Pod] = []
    for pod in waiting:
        role = role_of(pod)
        if open_roles.get(role, 0) > 0:
            open_roles[role] -= 1
            first.append(pod)
        else:
            rest.append(pod)
    return [*first, *rest[: max(0, lacks - len(first))]]


def _likeness(pod: views.Pod) -> str:
    """Return a text that is equal for pods that every node treats alike."""
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
    """Return the scarce resource of one pod: ``8 GPUs``."""
    devices = [name for name in sorted(shape.request) if is_device(name) and shape.request[name]]
    name = devices[0] if devices else "cpu"
    amount = from_units(name, shape.request.get(name, 0))
    unit = "GPU" if name.endswith("/gpu") else "CPU" if name == "cpu" else ""
    return f"{amount} {unit}{'' if amount == '1' else 's'}" if unit else f"{amount} {name}"


# ---------------------------------------------------------------------- due actions


@dataclass(frozen=True, slots=True)
class Retry:
    """Retries of a request that is over.

    It is repeated ``times`` times: ``seconds`` after the first, and after twice the
    previous pause for each further one, at most ``max_seconds``.
    """

    times: int = 3
    seconds: float = 60.0
    max_seconds: float = 1800.0

    def pause(self, attempt: int) -> float:
        """Return the pause (seconds) after the ``attempt``-th request, counted from 1."""
        return min(self.max_seconds, self.seconds * 2 ** min(attempt - 1, 30))

    def again(self, request: views.ProvisioningRequest) -> float | None:
        """Return when (Unix seconds) a request that is over is repeated; ``None``: not any more."""
        attempt = attempt_of(request)
        return status_of(request).since + self.pause(attempt) if attempt <= self.times else None


@dataclass(frozen=True, slots=True)
class DueAction:
    """Actions that are due.

    ``ask``: number of the attempt to make; 0 for none.
    ``look_at``: time (Unix seconds) of the next action that depends on time only.
    ``current``: the request in effect.
    """

    withdraw: tuple[views.ProvisioningRequest, ...] = ()
    ask: int = 0
    look_at: float | None = None
    current: views.ProvisioningRequest | None = None


def attempt_of(request: views.ProvisioningRequest) -> int:
    text = request.annotations.get(names.ATTEMPT, "")
    return int(text) if text.isascii() and text.isdigit() and 0 < len(text) < 9 else 1


def last_of(requests: Iterable[views.ProvisioningRequest]) -> views.ProvisioningRequest | None:
    """Return the last request that is not being deleted."""
    return max((request for request in requests if not request.deleted), key=attempt_of, default=None)


def decide(
    want: WantedRequest | None,
    owner: str,
    existing: Collection[views.ProvisioningRequest],
    now: float,
    retry: Retry,
) -> DueAction:
    """Return the due actions.

    ``owner``: the uid of the gang's object.
    ``existing``: requests that Windlass has made for it, or for a previous object of
        its name.
    ``now``: Unix seconds.
    """
    own = [request for request in existing if any(reference.uid == owner for reference in request.owners)]
    last = last_of(own) if want is not None else None
    fits = (
        last is not None
        and want is not None
        and names.read(last.annotations, names.PROVISIONING_FOR) == want.digest
    )
    obsolete = tuple(
        request for request in existing if not request.deleted and not (fits and request is last)
    )
    if want is None:
        return DueAction(obsolete)
    if last is None or not fits:
        return DueAction(obsolete, ask=0 if existing else 1)
    if status_of(last).phase not in OVER:
        return DueAction(obsolete, current=last)
    again = retry.again(last)
    if again is None:
        return DueAction(obsolete, current=last)
    if now < again:
        return DueAction(obsolete, look_at=again, current=last)
    return DueAction(obsolete, ask=attempt_of(last) + 1, current=last)


def group_of(request: views.ProvisioningRequest) -> str:
    """Return the key of the request's group; ``""`` for a request that Windlass did not make."""
    if names.read(request.annotations, names.PROVISIONING_FOR) is None:
        return ""
    for owner in request.owners:
        prefix = _OWNERS.get(owner.api_version.partition("/")[0])
        if owner.kind == "PodGroup" and prefix is not None:
            return f"{request.namespace}/{prefix}{owner.name}"
    return ""
