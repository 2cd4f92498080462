"""Pods to their jobs: what a cluster holds gathered to :class:`~windlass.cli.jobs.jobs.Job`, all of it or by name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from windlass.api import annotations as names
from windlass.api.resources import (
    COSCHEDULING_POD_GROUPS,
    KAI_POD_GROUPS,
    NATIVE_POD_GROUPS,
    POD_GROUPS,
    PODS,
    VOLCANO_JOBS,
)
from windlass.cli import ungrouped_gangs
from windlass.cli.errors import check_namespace, if_served, missing
from windlass.cli.invocation import Invocation
from windlass.cli.jobs.jobs import OTHER_GROUPS, Job, Object
from windlass.cli.ungrouped_gangs import GANG

if TYPE_CHECKING:
    from windlass.client.blocking import BlockingClient


def fetch(invocation: Invocation, namespace: str | None) -> list[Job]:
    """All jobs of a namespace (``None``: of all)."""
    client = invocation.client
    found = assemble(
        client.list(VOLCANO_JOBS, namespace).items,
        [*client.list(POD_GROUPS, namespace).items, *_other_groups(client, namespace)],
        client.list(PODS, namespace).items,
    )
    now = invocation.clock.now()
    for job in found:
        job.seen = now
    return found


def _other_groups(client: BlockingClient, namespace: str | None) -> list[Object]:
    """Groups of other APIs than Volcano's; none of a kind that the cluster does not know, or this user may not see."""
    found: list[Object] = []
    for resource in OTHER_GROUPS.values():
        items = if_served(lambda kind=resource: client.list(kind, namespace).items, [])
        found += [{"apiVersion": resource.api_version, "kind": resource.kind, **item} for item in items]
    return found


def assemble(jobs: Iterable[Object], groups: Iterable[Object], pods: Iterable[Object]) -> list[Job]:
    """Pods to their job or group; groups to their job or pod."""
    by_job = {_key(job): Job("Job", job) for job in jobs}
    by_group: dict[tuple[str, str, str], Job] = {}
    loose: list[Object] = []
    pod_groups: dict[str, Object] = {}
    for group in groups:
        owner = _owner(group)
        if owner.get("kind") == "Job" and _space_key(group, owner["name"]) in by_job:
            by_job[_space_key(group, owner["name"])].group = group
        elif owner.get("kind") == "Pod":
            pod_groups[str(owner.get("uid"))] = group
        else:
            job = Job("PodGroup", group, group=group)
            by_group[_group_key(job)] = job
    by_gang: dict[str, list[Object]] = {}
    for pod in pods:
        job = _home(pod, by_job, by_group)
        if job is not None:
            job.pods.append(pod)
        elif gang := ungrouped_gangs.key_of(pod):
            by_gang.setdefault(gang, []).append(pod)
        else:
            loose.append(pod)
    without = [
        Job(GANG, ungrouped_gangs.gang_object(key, members), members) for key, members in by_gang.items()
    ]
    singles = [Job("Pod", pod, [pod], pod_groups.get(str(pod["metadata"].get("uid")))) for pod in loose]
    return [*by_job.values(), *by_group.values(), *without, *singles]


def _home(
    pod: Object, jobs: Mapping[tuple[str, str], Job], groups: Mapping[tuple[str, str, str], Job]
) -> Job | None:
    metadata = pod["metadata"]
    notes, labels = metadata.get("annotations") or {}, metadata.get("labels") or {}
    name = labels.get(names.JOB_NAME) or notes.get(names.JOB_NAME)
    if name and _space_key(pod, name) in jobs:
        return jobs[_space_key(pod, name)]
    for resource, group in (
        (KAI_POD_GROUPS, notes.get(names.GROUP_NAME_KAI)),
        (POD_GROUPS, notes.get(names.GROUP_NAME) or notes.get(names.GROUP_NAME_VOLCANO)),
        (NATIVE_POD_GROUPS, ((pod.get("spec") or {}).get("schedulingGroup") or {}).get("podGroupName")),
        (COSCHEDULING_POD_GROUPS, labels.get(names.GROUP_NAME_COSCHEDULING)),
    ):
        if group and (found := groups.get((resource.group, *_space_key(pod, group)))) is not None:
            return found
    return None


def _group_key(job: Job) -> tuple[str, str, str]:
    """Groups of several APIs may have one name."""
    return (job.resource.group, *_key(job.obj))


def _key(obj: Object) -> tuple[str, str]:
    return obj["metadata"].get("namespace", ""), obj["metadata"]["name"]


def _space_key(obj: Object, name: str) -> tuple[str, str]:
    return obj["metadata"].get("namespace", ""), name


def _owner(obj: Object) -> Mapping[str, Any]:
    for owner in obj["metadata"].get("ownerReferences") or ():
        if owner.get("controller"):
            return owner
    owners: Sequence[Mapping[str, Any]] = obj["metadata"].get("ownerReferences") or ()
    return owners[0] if owners else {}


def find(invocation: Invocation, name: str) -> Job:
    """The job that a person means by ``name``, ``job/name``, ``pod/name``, ``gang/name`` or ``namespace/name``.

    Raises :class:`WindlassError` (``WL-JOB-404``) with the nearest names.
    """
    kind, slash, rest = name.partition("/")
    wanted, space = (rest if slash else name), invocation.home_namespace
    kinds = _KIND_WORDS.get(kind.lower(), ()) if slash else _EVERY_KIND
    if slash and not kinds:
        space, kinds = kind, _EVERY_KIND
    client = invocation.client
    if "Job" in kinds:
        job = client.find(VOLCANO_JOBS, wanted, space)
        if job is not None:
            return _with_members(invocation, Job("Job", job))
    if "PodGroup" in kinds:
        group = client.find(POD_GROUPS, wanted, space) or _other_group(client, wanted, space)
        if group is not None:
            return _with_members(invocation, Job("PodGroup", group, group=group))
    if "Pod" in kinds:
        pod = client.find(PODS, wanted, space)
        if pod is not None:
            return _alone(invocation, pod)
    jobs = fetch(invocation, space)
    for job in jobs:
        if job.kind in kinds and job.kind == GANG and job.name == wanted:
            return job
    if not jobs:
        check_namespace(client, space)
    raise missing("jobs", wanted, [job.name for job in jobs])


_EVERY_KIND = ("Job", "PodGroup", "Pod", GANG)
_KIND_WORDS = {
    "job": ("Job",),
    "jobs": ("Job",),
    "vcjob": ("Job",),
    "vj": ("Job",),
    "job.batch.volcano.sh": ("Job",),
    "podgroup": ("PodGroup", GANG),
    "podgroups": ("PodGroup", GANG),
    "pg": ("PodGroup", GANG),
    "gang": ("PodGroup", GANG),
    "pod": ("Pod",),
    "pods": ("Pod",),
    "po": ("Pod",),
}


def _alone(invocation: Invocation, pod: Object) -> Job:
    return Job("Pod", pod, [pod], _group_of_pod(invocation, pod), invocation.clock.now())


def _with_members(invocation: Invocation, job: Job) -> Job:
    client = invocation.client
    job.seen = invocation.clock.now()
    if job.kind == "Job":
        job.pods = client.list(PODS, job.namespace, labels=f"{names.JOB_NAME}={job.name}").items
        uid = job.obj["metadata"].get("uid")
        job.group = client.find(POD_GROUPS, f"{job.name}-{uid}", job.namespace)
        return job
    pods = client.list(PODS, job.namespace).items
    job.pods = [pod for pod in pods if _home(pod, {}, {_group_key(job): job}) is job]
    return job


def _other_group(client: BlockingClient, name: str, namespace: str | None) -> Object | None:
    for resource in OTHER_GROUPS.values():
        found = if_served(lambda kind=resource: client.find(kind, name, namespace), None)
        if found is not None:
            return found
    return None


def _group_of_pod(invocation: Invocation, pod: Object) -> Object | None:
    notes = pod["metadata"].get("annotations") or {}
    name = notes.get(names.GROUP_NAME) or notes.get(names.GROUP_NAME_VOLCANO)
    return invocation.client.find(POD_GROUPS, name, pod["metadata"].get("namespace")) if name else None


def refresh(invocation: Invocation, job: Job) -> Job | None:
    """The job as it is now; ``None`` once it is gone."""
    if job.kind == GANG:
        return _gang_now(invocation, job)
    obj = invocation.client.find(job.resource, job.name, job.namespace)
    if obj is None or obj["metadata"].get("uid") != job.obj["metadata"].get("uid"):
        return None
    if job.kind == "Pod":
        return _alone(invocation, obj)
    return _with_members(invocation, Job(job.kind, obj, group=obj if job.kind == "PodGroup" else None))


def _gang_now(invocation: Invocation, gang: Job) -> Job | None:
    key = gang.obj["metadata"]["uid"]
    pods = [p for p in invocation.client.list(PODS, gang.namespace).items if ungrouped_gangs.key_of(p) == key]
    if not pods:
        return None
    return Job(GANG, ungrouped_gangs.gang_object(key, pods), pods, seen=invocation.clock.now())
