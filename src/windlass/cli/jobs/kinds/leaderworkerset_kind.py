"""LeaderWorkerSets for commands."""

from __future__ import annotations

from windlass.api.fields import leaderworkerset
from windlass.api.resources import LEADER_WORKER_SETS
from windlass.cli.jobs.kinds.job_kind import JobKind, JobRole, Object
from windlass.cli.jobs.kinds.queue_names import GROUP_PLACES, queue_named
from windlass.cli.jobs.kinds.workload_kinds import IDLE


def _replicas(obj: Object) -> int:
    found = (obj.get("spec") or {}).get("replicas")
    return 1 if found is None else int(found)


def _phase(obj: Object) -> str:
    if _replicas(obj) == 0:
        return IDLE
    return "Running" if (obj.get("status") or {}).get("readyReplicas") else "Pending"


def _roles(obj: Object) -> list[JobRole]:
    template = (obj.get("spec") or {}).get("leaderWorkerTemplate") or {}
    groups, size = _replicas(obj), int(template.get("size") or 1)
    worker = template.get("workerTemplate") or {}
    roles = [JobRole("leader", groups, template.get("leaderTemplate") or worker)]
    return [*roles, JobRole("worker", groups * (size - 1), worker)] if size > 1 else roles


def _first_group(obj: Object) -> str:
    """Return the name of the PodGroup of the first group."""
    from windlass.jobs.leaderworkerset.spec import read_set  # not needed for lists

    name = obj["metadata"]["name"]
    if not (obj.get("spec") or {}).get("leaderWorkerTemplate"):
        return name
    return leaderworkerset.group_name(name, 0, read_set(obj).template.revision)


LEADER_WORKER_SET_KIND = JobKind(
    resource=LEADER_WORKER_SETS,
    words=("lws", "leaderworkerset", "leaderworkersets", "leaderworkerset.leaderworkerset.x-k8s.io"),
    phase=_phase,
    roles=_roles,
    queue=lambda obj: queue_named(obj["metadata"], GROUP_PLACES),
    ended=lambda obj: 0.0,
    succeeded=lambda obj: 0,
    group=_first_group,
    selector=lambda name: f"{leaderworkerset.NAME}={name}",
)
