"""Volcano's Jobs, PodGroups and Commands: checks against stored queues and classes."""

from __future__ import annotations

from typing import Any

from windlass.api import errors
from windlass.api.annotations import HOST_PORTS, HOST_PORTS_DISTINCT, QUEUE_NAME_VOLCANO
from windlass.api.defaults.volcano import DEFAULT_QUEUE
from windlass.api.errors import FieldError
from windlass.api.queues.opening import opening_commands
from windlass.api.resources import COMMANDS, NAMESPACES, POD_GROUPS, PRIORITY_CLASSES, QUEUES, VOLCANO_JOBS
from windlass.server.admission.plugin import Review

ROOT = "root"
_WORDS = (
    "no",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
)
_SHOWN_QUEUES = 6

_IN_QUEUES = frozenset((VOLCANO_JOBS, POD_GROUPS))
"""Kinds that are submitted to a queue."""


def fill(review: Review) -> None:
    """Set the queue of a group in the default queue to its namespace's queue, if one is set."""
    if review.resource is not POD_GROUPS or not review.creating or not review.main:
        return
    spec = review.object["spec"]
    if spec.get("queue") in (None, "", DEFAULT_QUEUE):
        namespace = review.objects.get(NAMESPACES, "", review.namespace) or {}
        named = (namespace.get("metadata", {}).get("annotations") or {}).get(QUEUE_NAME_VOLCANO)
        spec["queue"] = named or DEFAULT_QUEUE


def check(review: Review) -> None:
    """Reject work for a queue that is absent, is not open or has child queues."""
    if not review.main:
        return
    if review.resource is COMMANDS and review.creating:
        _command_target(review)
    if review.resource not in _IN_QUEUES:
        return
    queue = review.object["spec"].get("queue", "")
    before = ((review.old or {}).get("spec") or {}).get("queue")
    if queue == before:
        return
    if review.resource is POD_GROUPS and _made_by_controller(review.object):
        return  # the problem is reported in a condition of the group
    problem = queue_problem(review, queue)
    if problem is not None:
        raise errors.invalid(review.resource, review.name, [problem])


def _made_by_controller(obj: dict[str, Any]) -> bool:
    owners = obj["metadata"].get("ownerReferences") or ()
    return any(owner.get("controller") for owner in owners)


def queue_problem(review: Review, name: str) -> FieldError | None:
    """Return why queue ``name`` accepts no work, with the remedy; ``None`` if it does."""
    queue = review.objects.get(QUEUES, "", name)
    if queue is None:
        names = sorted(q["metadata"]["name"] for q in review.objects.list(QUEUES))
        usable = [other for other in names if other != ROOT]
        shown = ", ".join(usable[:_SHOWN_QUEUES]) + (", …" if len(usable) > _SHOWN_QUEUES else "")
        hint = f"; or use one of: {shown}" if shown else ""
        return FieldError(
            "spec.queue",
            f'Not found: "{name}": queue {name} does not exist: create it (windlass queue create {name}){hint}',
            "FieldValueNotFound",
        )
    if name == ROOT:
        return FieldError.invalid(
            "spec.queue",
            name,
            "root is the sum of all queues and takes no work itself: name a queue below it",
        )
    children = sorted(
        q["metadata"]["name"]
        for q in review.objects.list(QUEUES)
        if (q.get("spec") or {}).get("parent") == name
    )
    if children:
        return FieldError.invalid(
            "spec.queue",
            name,
            f"queue {name} has child queues and takes no work itself: use one of: {', '.join(children)}",
        )
    state = (queue.get("status") or {}).get("state") or "Open"
    queues = {q["metadata"]["name"]: q for q in review.objects.list(QUEUES)} if state != "Open" else {}
    if state != "Open":
        return FieldError.invalid(
            "spec.queue",
            name,
            f"queue {name} is {state} and takes no new work: open it ({opening_commands(queues, name)}) or use "
            "another queue",
        )
    return None


def _command_target(review: Review) -> None:
    target = review.object.get("target") or {}
    kinds = {"Queue": QUEUES, "Job": VOLCANO_JOBS}
    resource = kinds.get(target.get("kind", ""))
    name = target.get("name", "")
    if resource is None or not name:
        return  # reported by validation
    namespace = review.namespace if resource.namespaced else ""
    if review.objects.get(resource, namespace, name) is None:
        raise errors.invalid(
            COMMANDS,
            review.name,
            [
                FieldError(
                    "target.name",
                    f'Not found: "{name}": there is no {resource.kind} {name}'
                    + (f" in namespace {namespace}" if namespace else "")
                    + f": see kubectl get {resource.qualified}",
                    "FieldValueNotFound",
                )
            ],
        )


def advise(review: Review) -> None:
    """Warn about accepted specifications with a probably unintended meaning."""
    if not review.main or review.resource not in _IN_QUEUES:
        return
    spec = review.object["spec"]
    _advise_class(review, spec)
    if review.resource is POD_GROUPS:
        _advise_members(review, spec)
    elif review.creating:
        _advise_host_ports(review, spec)
        _advise_events(review, spec)
        _advise_dependencies(review, spec)
        pods = sum(task.get("replicas", 0) for task in spec.get("tasks") or ())
        if not spec.get("plugins") and pods > 1:
            review.warn(
                "advice: no plugins -> no host list and no rendezvous variables are injected (plugins.pytorch "
                "would do it)"
            )


def _advise_class(review: Review, spec: dict[str, Any]) -> None:
    name = spec.get("priorityClassName")
    before = ((review.old or {}).get("spec") or {}).get("priorityClassName")
    if name and name != before and review.objects.get(PRIORITY_CLASSES, "", name) is None:
        review.warn(
            f"advice: PriorityClass {name} does not exist; priority 0 counts until it is created "
            "(see kubectl get priorityclasses)"
        )


def _advise_host_ports(review: Review, spec: dict[str, Any]) -> None:
    """Warn about replicas that cannot share a node because of their ports."""
    for at, task in enumerate(spec.get("tasks") or ()):
        template: dict[str, Any] = task.get("template") or {}
        pod: Any = template.get("spec") or {}
        notes = (template.get("metadata") or {}).get("annotations") or {}
        ports: list[dict[str, Any]] = []
        for container in pod.get("containers") or []:
            ports += container.get("ports") or []
        if not pod.get("hostNetwork") or not ports or task.get("replicas", 1) < 2:
            continue
        if notes.get(HOST_PORTS) != HOST_PORTS_DISTINCT:
            review.warn(
                f"advice: spec.tasks[{at}]: replicas on the host network with port "
                f"{ports[0].get('containerPort')} exclude each other from a node; the annotation "
                f"{HOST_PORTS}: {HOST_PORTS_DISTINCT} on the template gives each replica ports of its own"
            )


def _advise_events(review: Review, spec: dict[str, Any]) -> None:
    """Warn about policies on an event that is never raised."""
    tasks: list[dict[str, Any]] = spec.get("tasks") or []
    for path, owner in (("spec", spec), *((f"spec.tasks[{at}]", task) for at, task in enumerate(tasks))):
        policies: list[dict[str, Any]] = owner.get("policies") or []
        for at, policy in enumerate(policies):
            if "JobUpdated" in (policy.get("event"), *(policy.get("events") or [])):
                review.warn(
                    f"advice: {path}.policies[{at}]: event JobUpdated is never raised, by Volcano neither; "
                    "after a change of replicas pods are added or removed without a policy"
                )


def _advise_dependencies(review: Review, spec: dict[str, Any]) -> None:
    """Warn about a gang that waits for pods of tasks that wait for the gang."""
    tasks: list[dict[str, Any]] = spec.get("tasks") or []
    later = [task for task in tasks if (task.get("dependsOn") or {}).get("name")]
    first = sum(task.get("replicas", 0) for task in tasks if task not in later)
    minimums = sum(task.get("minAvailable", 0) for task in tasks)
    held = [task.get("name", "") for task in later if task.get("minAvailable")]
    # The minimums of the tasks count unless minAvailable is below their sum.
    most = min(first, minimums - 1) if held else first
    least = spec.get("minAvailable", 0)
    if later and least > most > 0:
        names = ", ".join(str(task.get("name")) for task in later)
        review.warn(
            f"advice: spec.minAvailable {least} includes pods of {names}, created only when other tasks run: "
            f"the gang would wait for ever; set spec.minAvailable: {most}"
        )


def _advise_members(review: Review, spec: dict[str, Any]) -> None:
    tasks = spec.get("minTaskMember") or {}
    minimum, total = spec.get("minMember", 0), sum(tasks.values())
    before = (review.old or {}).get("spec") or {}
    if (
        not tasks
        or minimum == total
        or (before.get("minTaskMember"), before.get("minMember")) == (tasks, minimum)
    ):
        return
    shown = f"{'+'.join(str(count) for count in tasks.values())}={total}"
    if minimum > total:
        more = minimum - total
        review.warn(
            f"advice: minMember {minimum} is above the sum of minTaskMember ({shown}); both conditions hold, so "
            f"{number(more)} more {'members' if more > 1 else 'member'} of any task "
            f"{'are' if more > 1 else 'is'} needed"
        )
    else:
        review.warn(
            f"advice: minMember {minimum} is below the sum of minTaskMember ({shown}); both conditions hold, so "
            f"{number(total)} members are needed"
        )


def number(count: int) -> str:
    """Return a number, written as a word if it is small."""
    return _WORDS[count] if count < len(_WORDS) else str(count)
