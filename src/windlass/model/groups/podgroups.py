"""Group of a pod, and translation of Volcano's PodGroup to the engine's group."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from msgspec.structs import replace as altered

from windlass.api import annotations as names
from windlass.api import views
from windlass.api.errors import FieldError
from windlass.api.generated_names import without_uid
from windlass.api.nodes.resources import node_resources
from windlass.api.preemptibility import TRUE, statement
from windlass.api.views.wire import moment
from windlass.kits import durations
from windlass.model.records.attained_service import attained_service_of
from windlass.spi.objects import Group

PHASES_RUN = ("Running", "Unknown", "Completed")
PHASES_ADMITTED = ("Inqueue", *PHASES_RUN)
KAI_SCHEDULER = "kai-scheduler"
IMPLICIT = "pod:"
KAI = "kai:"
NATIVE = "native:"
COSCHEDULING = "coscheduling:"
KUEUE = "kueue:"
OWNER = "owner:"
"""Prefixes of the name in a group's key.

They mark a pod without a group, a PodGroup of KAI, one of Kubernetes' own API, one
of the coscheduling plugin, a plain pod group of Kueue, and the pods of a Job that KAI
treats as a gang. Volcano's PodGroups have none. The prefix is needed as two APIs may
use one name for different groups.
"""
BY_PODS = frozenset((NATIVE, COSCHEDULING, KUEUE, OWNER))
"""Kinds of groups with a queue that their pods may name."""
WITHOUT_OBJECT = frozenset((IMPLICIT, KUEUE, OWNER))
"""Kinds of groups without an object: their pods alone define them."""
_PREFIXES = frozenset((IMPLICIT, KAI, NATIVE, COSCHEDULING, KUEUE, OWNER))
_SLASH_IMPLICIT = f"/{IMPLICIT}"
_QUEUE_NAMES = frozenset((names.QUEUE_NAME_VOLCANO, names.QUEUE_NAME_KAI, names.QUEUE_NAME_LABEL))
_READ = (
    "volcano.sh/preemptable",
    "volcano.sh/revocable-zone",
    "volcano.sh/jdb-min-available",
    "volcano.sh/jdb-max-unavailable",
    "volcano.sh/cooldown-time",
    names.MOVABLE,
    names.CHECKPOINTED,
    names.CHECKPOINT_EVERY,
    names.RESTART_COST,
    names.TIME_SHARE,
    names.MODEL,
)
"""Annotations of a group (or of a pod without one) that a policy reads."""
_TRANSLATED = frozenset(
    (
        *_READ,
        names.RUN_ESTIMATE,
        names.EARLIEST_START,
        names.RESERVE_UNTIL,
        names.STALENESS_GRACE,
        names.WAITING_TIME,
        names.WAITING_TIME_BARE,
        names.ATTAINED,
    )
)
"""Annotations of a PodGroup of Volcano that become part of its group."""


def policy_annotations(annotations: Mapping[str, str]) -> dict[str, str]:
    """Return the annotations that a policy reads."""
    return {name: annotations[name] for name in _READ if name in annotations} if annotations else {}


def group_name(pod: views.Pod) -> str:
    """Return the PodGroup that the pod names, ``""`` if none."""
    annotations = pod.annotations
    return annotations.get(names.GROUP_NAME) or annotations.get(names.GROUP_NAME_VOLCANO) or ""


def kai_group_name(pod: views.Pod) -> str:
    """Return the PodGroup of KAI that the pod names, ``""`` if none."""
    return pod.annotations.get(names.GROUP_NAME_KAI, "")


def group_key(pod: views.Pod) -> str:
    """Return the key of a pod's group: ``namespace/name`` of its PodGroup.

    The name has a prefix ``pod:``, ``kai:``, ``native:``, ``coscheduling:``, ``kueue:``
    or ``owner:`` for a group of another kind than Volcano's. If the pod names several
    groups, that of its scheduler counts.
    """
    annotations = pod.annotations
    volcano = annotations.get(names.GROUP_NAME) or annotations.get(names.GROUP_NAME_VOLCANO)
    kai = annotations.get(names.GROUP_NAME_KAI)
    if kai and (not volcano or pod.scheduler_name == KAI_SCHEDULER):
        return f"{pod.namespace}/{KAI}{kai}"
    if volcano:
        return f"{pod.namespace}/{volcano}"
    if pod.scheduling_group:
        return f"{pod.namespace}/{NATIVE}{pod.scheduling_group}"
    if coscheduling := pod.labels.get(names.GROUP_NAME_COSCHEDULING):
        return f"{pod.namespace}/{COSCHEDULING}{coscheduling}"
    if kueue := kueue_group_name(pod):
        return f"{pod.namespace}/{KUEUE}{kueue}"
    if _kai_batch(pod) and (owner := pod.controller) is not None and owner.kind == "Job":
        return f"{pod.namespace}/{OWNER}{owner.name}"
    return implicit_key(pod)


def kueue_group_name(pod: views.Pod) -> str:
    """Return the plain pod group of Kueue that the pod is in, ``""`` if none.

    Groups with pods that do not start together do not count.
    """
    annotations = pod.annotations
    name = annotations.get(names.GROUP_NAME_KUEUE) or pod.labels.get(names.GROUP_NAME_KUEUE) or ""
    excluded = name and "true" in (
        annotations.get(names.GROUP_FAST_KUEUE),
        annotations.get(names.GROUP_SERVING_KUEUE),
    )
    return "" if excluded else name


def implicit_key(pod: views.Pod) -> str:
    """Return the key of the group of a single pod that is in no other group."""
    return f"{pod.namespace}/{IMPLICIT}{pod.name}"


def _kai_batch(pod: views.Pod) -> bool:
    """Return whether the pod's Job is one gang, as KAI's pod grouper makes it."""
    return pod.scheduler_name == KAI_SCHEDULER and names.BATCH_MIN_MEMBER_KAI in pod.annotations


def is_implicit(key: str) -> bool:
    """Return whether a group key is that of a pod without a PodGroup."""
    return _SLASH_IMPLICIT in key


def has_object(key: str) -> bool:
    """Return whether a group key is that of an object, of any API."""
    return kind_prefix(key) not in WITHOUT_OBJECT


def kind_prefix(key: str) -> str:
    """Return the prefix of the name in a group's key, ``""`` for Volcano's."""
    slash = key.find("/")
    prefix = key[slash + 1 : key.find(":", slash) + 1] if slash >= 0 else ""
    return prefix if prefix in _PREFIXES else ""


def shown_key(key: str) -> str:
    """Return ``namespace/name`` as users know the group (or the pod without one)."""
    namespace, _, name = key.partition("/")
    return f"{namespace}/{name.removeprefix(kind_prefix(key))}"


def kai_key(group: views.KaiPodGroup) -> str:
    """Return the key of a PodGroup of KAI."""
    return f"{group.namespace}/{KAI}{group.name}"


def coscheduling_key(group: views.CoschedulingGroup) -> str:
    """Return the key of a PodGroup of the coscheduling plugin."""
    return f"{group.namespace}/{COSCHEDULING}{group.name}"


def job_title(key: str) -> str:
    """Return ``namespace/name`` of the group's job, as submitted."""
    return without_uid(shown_key(key))


def role_of(pod: views.Pod) -> str:
    return pod.annotations.get(names.TASK_SPEC) or pod.labels.get(names.TASK_SPEC) or ""


def index_of(pod: views.Pod) -> int:
    text = pod.annotations.get(names.TASK_INDEX) or pod.labels.get(names.TASK_INDEX) or ""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0


def preemptible(
    labels: Mapping[str, str], annotations: Mapping[str, str], *, protected_class: bool = False
) -> bool:
    """Return whether a group or a pod is preemptible.

    Its own statement takes precedence over that of its PriorityClass. Without either it
    is preemptible.
    """
    own = statement(labels, annotations)
    return not protected_class if own is None else own.preemptible


def revocable_zone(annotations: Mapping[str, str]) -> str:
    """Return ``*`` for a pod that nodes of revocable zones accept, ``""`` for others.

    The pod states that itself with ``*``. A pod that states no zone is accepted if it
    is preemptible.
    """
    zone = annotations.get(names.REVOCABLE_ZONE)
    if zone is None:
        return "*" if annotations.get(names.PREEMPTABLE) in TRUE else ""
    return zone if zone == "*" else ""


def queue_named(pod: views.Pod) -> str:
    """Return the queue that a pod without a PodGroup names; ``""`` if it names none."""
    if _QUEUE_NAMES.isdisjoint(pod.labels) and _QUEUE_NAMES.isdisjoint(pod.annotations):
        return ""
    return (
        pod.annotations.get(names.QUEUE_NAME_VOLCANO)
        or pod.labels.get(names.QUEUE_NAME_KAI)
        or pod.annotations.get(names.QUEUE_NAME_LABEL)
        or pod.labels.get(names.QUEUE_NAME_LABEL)
        or ""
    )


class Urgency(NamedTuple):
    """Priority and preemption policy that a priority class gives a group."""

    value: int
    never_preempts: bool
    protected: bool = False
    """The class states ``volcano.sh/preemptable: "false"``."""


_UNKNOWN_CLASS = Urgency(0, False)


class Classes:
    """PriorityClasses: names to values."""

    def __init__(self) -> None:
        self._classes: dict[str, views.PriorityClass] = {}
        self._default: views.PriorityClass | None = None

    def upsert(self, view: views.PriorityClass) -> bool:
        """Store a class. Return whether anything changed."""
        if self._classes.get(view.name) == view:
            return False
        self._classes[view.name] = view
        self._choose_default()
        return True

    def remove(self, name: str) -> bool:
        if self._classes.pop(name, None) is None:
            return False
        self._choose_default()
        return True

    def value(self, name: str) -> int:
        """Return the priority of a class: 0 if undefined, the global default without a name."""
        known = self._find(name)
        return known.value if known else 0

    def defined(self, name: str) -> bool:
        """Return whether the class exists; for ``""``, whether there is a global default."""
        return self._find(name) is not None

    def is_gone(self, name: str) -> bool:
        """Return whether a class is named and does not exist."""
        return bool(name) and name not in self._classes

    def never_preempts(self, name: str) -> bool:
        known = self._find(name)
        return known is not None and known.preemption_policy == "Never"

    def protects(self, name: str) -> bool:
        """Return whether the class keeps pods from being evicted that state nothing themselves."""
        known = self._classes.get(name) if name else self._default
        return known is not None and known.protected

    def urgency(self, name: str, pods: Callable[[], Iterable[views.Pod]]) -> Urgency:
        """Return the priority of a group with these pods.

        A deleted class still applies to them: the server wrote its values into each pod
        when the pod was created.
        """
        known = self._classes.get(name) if name else self._default
        if known is not None:
            return Urgency(known.value, known.preemption_policy == "Never", known.protected)
        if name:
            made = [(pod.priority, pod.preemption_policy) for pod in pods() if pod.priority_class == name]
            values = [value for value, _ in made if value is not None]
            if values:
                return Urgency(max(values), all(policy == "Never" for _, policy in made))
        return _UNKNOWN_CLASS

    def _find(self, name: str) -> views.PriorityClass | None:
        return self._classes.get(name) if name else self._default

    def _choose_default(self) -> None:
        """Select the lowest of several defaults, as the admission plugin does."""
        defaults = (known for known in self._classes.values() if known.global_default)
        self._default = min(defaults, key=lambda known: known.value, default=None)


def group_problems(view: views.PodGroup) -> tuple[FieldError, ...]:
    """Return the problems of a PodGroup's own fields."""
    problems = list(view.problems)
    if view.min_member < 0:
        problems.append(FieldError.invalid("spec.minMember", view.min_member, "must be at least 0"))
    for role, least in view.min_task_member.items():
        if least < 0:
            problems.append(FieldError.invalid(f"spec.minTaskMember[{role}]", least, "must be at least 0"))
    if view.min_resources:
        problems.extend(negative_resources(view.min_resources))
    return tuple(problems)


def negative_resources(amounts: Mapping[str, int]) -> Iterator[FieldError]:
    """Yield the problems of ``spec.minResources`` of a PodGroup."""
    for name, units in amounts.items():
        if units < 0:
            yield FieldError.invalid(f"spec.minResources[{name}]", units, "must be at least 0")


def group_of(view: views.PodGroup, urgency: Urgency) -> Group:
    """Return the group of a PodGroup of Volcano.

    A group with contradictory fields is held: it gets no resources until that is
    corrected.
    """
    group = Group(
        key=f"{view.namespace}/{view.name}",
        queue=view.queue,
        priority=urgency.value,
        min_member=max(0, view.min_member),
        min_task_member=view.min_task_member,
        min_resources=node_resources(view.min_resources) if view.min_resources else {},
        preemptible=preemptible(view.labels, view.annotations, protected_class=urgency.protected),
        never_preempts=urgency.never_preempts,
        created=queued_since(view.annotations, view.created),
        uid=view.uid,
        admitted=view.phase in PHASES_ADMITTED,
        has_run=view.phase in PHASES_RUN,
        held=bool(group_problems(view)),
    )
    return group if _TRANSLATED.isdisjoint(view.annotations) else _with_annotations(group, view)


def _with_annotations(group: Group, view: views.PodGroup) -> Group:
    """Return the group with the settings in the annotations of its object."""
    annotations = view.annotations
    return altered(
        group,
        run_estimate=duration_of(annotations.get(names.RUN_ESTIMATE)),
        earliest_start=moment(annotations.get(names.EARLIEST_START)) or None,
        reserve_until=moment(annotations.get(names.RESERVE_UNTIL)) or None,
        waiting_limit=waiting_limit(annotations),
        stale_grace=duration_of(annotations.get(names.STALENESS_GRACE)),
        annotations=policy_annotations(annotations),
        past=attained_service_of(annotations, view.created),
    )


def queued_since(annotations: Mapping[str, str], created: float) -> float:
    """Return since when an object counts in the order of its queue (Unix seconds).

    That is its creation, or an earlier time if it was created again after an eviction.
    """
    text = annotations.get(names.QUEUED_SINCE)
    earlier = moment(text) if text else 0.0
    return earlier if 0.0 < earlier < created else created


def duration_of(text: str | None) -> float | None:
    """Return seconds; ``None`` for an annotation that is not a duration."""
    if not text:
        return None
    try:
        return durations.parse(text)
    except ValueError:
        return None


def waiting_limit(annotations: Mapping[str, str]) -> float | None:
    """Return the seconds after which Volcano's ``sla`` admits a group; ``None`` if not set."""
    limits = (duration_of(annotations.get(name)) for name in (names.WAITING_TIME, names.WAITING_TIME_BARE))
    return next((seconds for seconds in limits if seconds is not None and seconds > 0), None)


def implicit_group(pod: views.Pod, classes: Classes, namespace_queue: str = "") -> Group:
    """Return the group of a single pod without a PodGroup."""
    return Group(
        key=group_key(pod),
        queue=queue_named(pod) or namespace_queue or "default",
        priority=pod.priority if pod.priority is not None else classes.value(pod.priority_class),
        min_member=1,
        preemptible=preemptible(
            pod.labels, pod.annotations, protected_class=classes.protects(pod.priority_class)
        ),
        never_preempts=pod.preemption_policy == "Never",
        created=queued_since(pod.annotations, pod.created),
        uid=pod.uid,
        admitted=True,
        run_estimate=duration_of(pod.annotations.get(names.RUN_ESTIMATE)),
        annotations=pod_policy_annotations(pod),
    )


def pod_policy_annotations(pod: views.Pod) -> dict[str, str]:
    """Return the annotations of a pod that a policy reads.

    A pod without a controller is not moved, as it would not be recreated, whatever its
    annotations state.
    """
    annotations = policy_annotations(pod.annotations)
    if pod.controller is None:
        annotations.pop(names.MOVABLE, None)
    return annotations
