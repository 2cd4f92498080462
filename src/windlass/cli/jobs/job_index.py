"""Assignment of pods to jobs: all jobs of a cluster, or one by name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from windlass.api import annotations as names
from windlass.api.resources import (
    AIGC_WORKFLOWS,
    COSCHEDULING_POD_GROUPS,
    EVENTS,
    KAI_POD_GROUPS,
    NATIVE_POD_GROUPS,
    POD_GROUPS,
    PODS,
    VOLCANO_JOBS,
    WORKFLOWS,
)
from windlass.cli import ungrouped_gangs
from windlass.cli.errors import check_namespace, if_served, missing
from windlass.cli.invocation import Invocation
from windlass.cli.jobs.events import last_seen
from windlass.cli.jobs.jobs import OTHER_GROUPS, Job, Object
from windlass.cli.jobs.kinds.job_kinds import JOB_KINDS, kind_of, owner_key
from windlass.cli.jobs.workflow_pods import judge
from windlass.cli.ungrouped_gangs import GANG

if TYPE_CHECKING:
    from windlass.client.blocking import BlockingClient


def fetch(invocation: Invocation, namespace: str | None) -> list[Job]:
    """Return all jobs of a namespace (``None``: of all namespaces)."""
    client = invocation.client
    jobs = assemble(
        _all_jobs(client, namespace),
        [*client.list(POD_GROUPS, namespace).items, *_other_groups(client, namespace)],
        client.list(PODS, namespace).items,
    )
    judge(client, jobs)
    now = invocation.clock.now()
    for job in jobs:
        job.seen = now
    return jobs


def _all_jobs(client: BlockingClient, namespace: str | None) -> list[Object]:
    """Return the jobs of all kinds that the cluster serves and this user may see.

    Each object has its ``kind``, which items of a list may lack.
    """
    found: list[Object] = []
    for entry in JOB_KINDS.values():
        resource = entry.resource
        if resource is VOLCANO_JOBS:
            items = client.list(resource, namespace).items
        else:
            items = if_served(lambda resource=resource: client.list(resource, namespace).items, [])
        found += [{"apiVersion": resource.api_version, "kind": resource.kind, **item} for item in items]
    return found


def _other_groups(client: BlockingClient, namespace: str | None) -> list[Object]:
    """Return groups of other APIs than Volcano's.

    Kinds that the cluster does not serve, or this user may not see, are omitted.
    """
    groups: list[Object] = []
    for resource in OTHER_GROUPS.values():
        items = if_served(lambda kind=resource: client.list(kind, namespace).items, [])
        groups += [{"apiVersion": resource.api_version, "kind": resource.kind, **item} for item in items]
    return groups


def assemble(jobs: Iterable[Object], groups: Iterable[Object], pods: Iterable[Object]) -> list[Job]:
    """Assign pods to their job or group, and groups to their job or pod."""
    by_job = {(_kind(job), *_key(job)): Job(_kind(job), job) for job in jobs}
    by_group: dict[tuple[str, str, str], Job] = {}
    loose: list[Object] = []
    pod_groups: dict[str, Object] = {}
    for group in groups:
        owner = _owner(group)
        kind, name = owner_key(group)
        if (kind, *_key_of(group, name)) in by_job:
            job = by_job[kind, *_key_of(group, name)]
            job.group = _clearer(job.group, group)
        elif owner.get("kind") == "Pod":
            pod_groups[str(owner.get("uid"))] = group
        else:
            job = Job("PodGroup", group, group=group)
            by_group[_group_key(job)] = job
    by_gang: dict[str, list[Object]] = {}
    for pod in pods:
        if names.MIRROR in (pod["metadata"].get("annotations") or {}):
            continue  # a process of its node, such as a part of the control plane
        job = _job_of_pod(pod, by_job, by_group)
        if job is not None:
            job.pods.append(pod)
        elif gang := ungrouped_gangs.key_of(pod):
            by_gang.setdefault(gang, []).append(pod)
        else:
            loose.append(pod)
    _fold(by_job)
    without = [
        Job(GANG, ungrouped_gangs.gang_object(key, members), members) for key, members in by_gang.items()
    ]
    singles = [Job("Pod", pod, [pod], pod_groups.get(str(pod["metadata"].get("uid")))) for pod in loose]
    return [*by_job.values(), *by_group.values(), *without, *singles]


def _clearer(one: Object | None, other: Object) -> Object:
    """Return that of two groups of a job which tells why it waits."""
    if one is None or names.EXPLANATION in (other["metadata"].get("annotations") or {}):
        return other
    return one


def _fold(jobs: dict[tuple[str, str, str], Job]) -> None:
    """Give the pods of each job that another job controls to that one, and leave the inner job out."""
    for key, job in list(jobs.items()):
        kind, name = owner_key(job.obj)
        outer = jobs.get((kind, *_key_of(job.obj, name))) if kind else None
        if outer is not None:
            outer.pods += job.pods
            outer.group = outer.group or job.group
            del jobs[key]


def _job_of_pod(
    pod: Object, jobs: Mapping[tuple[str, str, str], Job], groups: Mapping[tuple[str, str, str], Job]
) -> Job | None:
    metadata = pod["metadata"]
    annotations, labels = metadata.get("annotations") or {}, metadata.get("labels") or {}
    kind, name = owner_key(pod)
    if not kind:
        kind, name = "Job", labels.get(names.JOB_NAME) or annotations.get(names.JOB_NAME) or ""
    if name and (kind, *_key_of(pod, name)) in jobs:
        return jobs[kind, *_key_of(pod, name)]
    for resource, group in (
        (KAI_POD_GROUPS, annotations.get(names.GROUP_NAME_KAI)),
        (POD_GROUPS, annotations.get(names.GROUP_NAME) or annotations.get(names.GROUP_NAME_VOLCANO)),
        (NATIVE_POD_GROUPS, ((pod.get("spec") or {}).get("schedulingGroup") or {}).get("podGroupName")),
        (COSCHEDULING_POD_GROUPS, labels.get(names.GROUP_NAME_COSCHEDULING)),
    ):
        if group and (job := groups.get((resource.group, *_key_of(pod, group)))) is not None:
            return job
    return None


def _group_key(job: Job) -> tuple[str, str, str]:
    """Return the key of a group with its API group, as groups of two APIs may have one name."""
    return (job.resource.group, *_key(job.obj))


def _kind(job: Object) -> str:
    return kind_of(job.get("apiVersion") or "", job.get("kind") or "") or VOLCANO_JOBS.kind


def _key(obj: Object) -> tuple[str, str]:
    return obj["metadata"].get("namespace", ""), obj["metadata"]["name"]


def _key_of(obj: Object, name: str) -> tuple[str, str]:
    return obj["metadata"].get("namespace", ""), name


def _owner(obj: Object) -> Mapping[str, Any]:
    for owner in obj["metadata"].get("ownerReferences") or ():
        if owner.get("controller"):
            return owner
    owners: Sequence[Mapping[str, Any]] = obj["metadata"].get("ownerReferences") or ()
    return owners[0] if owners else {}


def find(invocation: Invocation, name: str) -> Job:
    """Return the job that a user names.

    ``name`` is the name alone, ``job/name``, ``pod/name``, ``gang/name`` or
    ``namespace/name``. Raises :class:`WindlassError` (``WL-JOB-404``) with the nearest
    names.
    """
    kind, slash, rest = name.partition("/")
    wanted_name, space = (rest if slash else name), invocation.home_namespace
    kinds = _KIND_WORDS.get(kind.lower(), ()) if slash else _EVERY_KIND
    if slash and not kinds:
        space, kinds = kind, _EVERY_KIND
    client = invocation.client
    for job_kind in filter(JOB_KINDS.get, kinds):
        job = _job_of_kind(client, job_kind, wanted_name, space)
        if job is not None:
            if kinds is _EVERY_KIND:
                job_kind, job = _outermost(client, job_kind, job, space)
            return _with_members(invocation, Job(job_kind, job))
    if "PodGroup" in kinds:
        group = client.find(POD_GROUPS, wanted_name, space) or _other_group(client, wanted_name, space)
        if group is not None:
            return _with_members(invocation, Job("PodGroup", group, group=group))
    if "Pod" in kinds:
        pod = client.find(PODS, wanted_name, space)
        if pod is not None:
            return _single_pod(invocation, pod)
    jobs = fetch(invocation, space)
    for job in jobs:
        if job.kind in kinds and job.kind == GANG and job.name == wanted_name:
            return job
        if job.kind in kinds and job.kind == "PodGroup" and _foreign_owner(job.obj) == wanted_name:
            return job
    if not jobs:
        check_namespace(client, space)
    error = missing("jobs", wanted_name, [job.name for job in jobs], space)
    if gone := _eviction_of(client, wanted_name, space):
        error.evidence = f"a pod of this name was {gone}; {error.evidence}"
    if not slash and _is_workflow(client, wanted_name, space):
        error.evidence = f"a workflow has this name; {error.evidence}"
        own = invocation.namespace_flag(space)
        error.remedies = (f"windlass workflow show {wanted_name}{own}", *error.remedies)
    raise error


def _is_workflow(client: BlockingClient, name: str, namespace: str) -> bool:
    return any(
        if_served(partial(client.find, kind, name, namespace), None) is not None
        for kind in (WORKFLOWS, AIGC_WORKFLOWS)
    )


def _foreign_owner(group: Object) -> str:
    """Return the name of another operator's object by which a group was made; else empty."""
    notes = group["metadata"].get("annotations") or {}
    return str(_owner(group).get("name") or "") if names.GROUPED_BY in notes else ""


def _outermost(client: BlockingClient, kind: str, job: Object, space: str | None) -> tuple[str, Object]:
    """Return the job that controls a job, such as the RayJob of a Job that submits it; else the job itself."""
    outer_kind, name = owner_key(job)
    outer = _job_of_kind(client, outer_kind, name, space) if outer_kind else None
    return _outermost(client, outer_kind, outer, space) if outer is not None else (kind, job)


def _eviction_of(client: BlockingClient, pod: str, namespace: str | None) -> str:
    """Return the message of the last eviction of a pod that does not exist any more; else empty."""
    fields = f"involvedObject.name={pod},reason=PreemptionByScheduler"
    events = if_served(lambda: client.list(EVENTS, namespace, fields=fields).items, [])
    return str(max(events, key=last_seen).get("message") or "") if events else ""


def _words() -> dict[str, tuple[str, ...]]:
    """Return word → the kinds that it may mean, in the order in which they are looked up."""
    found: dict[str, tuple[str, ...]] = {}
    for name, kind in JOB_KINDS.items():
        for word in kind.words:
            found[word] = (*found.get(word, ()), name)
    return found


_EVERY_KIND = (*JOB_KINDS, "PodGroup", "Pod", GANG)
_KIND_WORDS: Mapping[str, tuple[str, ...]] = {
    **_words(),
    "podgroup": ("PodGroup", GANG),
    "podgroups": ("PodGroup", GANG),
    "pg": ("PodGroup", GANG),
    "gang": ("PodGroup", GANG),
    "pod": ("Pod",),
    "pods": ("Pod",),
    "po": ("Pod",),
}


def _job_of_kind(client: BlockingClient, kind: str, name: str, namespace: str | None) -> Object | None:
    resource = JOB_KINDS[kind].resource
    if resource is VOLCANO_JOBS:
        return client.find(resource, name, namespace)
    return if_served(lambda: client.find(resource, name, namespace), None)


def _single_pod(invocation: Invocation, pod: Object) -> Job:
    job = Job("Pod", pod, [pod], _group_of_pod(invocation, pod), invocation.clock.now())
    judge(invocation.client, [job])
    return job


def _with_members(invocation: Invocation, job: Job) -> Job:
    client = invocation.client
    job.seen = invocation.clock.now()
    if job.definition is not None:
        job.pods = client.list(PODS, job.namespace, labels=job.definition.pods_of(job.obj)).items
        by_owner = f"podgroup-{job.obj['metadata'].get('uid')}"  # if another operator creates the pods
        job.group = client.find(POD_GROUPS, job.definition.group(job.obj), job.namespace) or client.find(
            POD_GROUPS, by_owner, job.namespace
        )
        return job
    pods = client.list(PODS, job.namespace).items
    job.pods = [pod for pod in pods if _job_of_pod(pod, {}, {_group_key(job): job}) is job]
    return job


def _other_group(client: BlockingClient, name: str, namespace: str | None) -> Object | None:
    for resource in OTHER_GROUPS.values():
        known = if_served(lambda kind=resource: client.find(kind, name, namespace), None)
        if known is not None:
            return known
    return None


def _group_of_pod(invocation: Invocation, pod: Object) -> Object | None:
    annotations = pod["metadata"].get("annotations") or {}
    name = annotations.get(names.GROUP_NAME) or annotations.get(names.GROUP_NAME_VOLCANO)
    return invocation.client.find(POD_GROUPS, name, pod["metadata"].get("namespace")) if name else None


def refresh(invocation: Invocation, job: Job) -> Job | None:
    """Return the current state of the job; ``None`` if it no longer exists."""
    if job.kind == GANG:
        return _gang_now(invocation, job)
    obj = invocation.client.find(job.resource, job.name, job.namespace)
    if obj is None or obj["metadata"].get("uid") != job.obj["metadata"].get("uid"):
        return None
    if job.kind == "Pod":
        return _single_pod(invocation, obj)
    return _with_members(invocation, Job(job.kind, obj, group=obj if job.kind == "PodGroup" else None))


def _gang_now(invocation: Invocation, gang: Job) -> Job | None:
    key = gang.obj["metadata"]["uid"]
    pods = [p for p in invocation.client.list(PODS, gang.namespace).items if ungrouped_gangs.key_of(p) == key]
    if not pods:
        return None
    return Job(GANG, ungrouped_gangs.gang_object(key, pods), pods, seen=invocation.clock.now())
