"""Small mistakes of published ``kubeflow.org/v1`` manifests, for the warnings of the server.

The first word of a text is its kind, as in the server's warnings: ``alias`` (another
spelling), ``default`` (a missing value was set), ``advice`` (run as written, but
possibly not what the author intended). What an ``alias`` or a ``default`` says is done
in the pods (``jobs.kubeflow.pods``), the object stays as written.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from windlass.api.fields.kubeflow import MASTER, WORKER, lent_volumes
from windlass.api.quantities import is_device
from windlass.api.resources import PYTORCH_JOBS
from windlass.jobs.definition import Role
from windlass.jobs.kubeflow.job import KubeflowJob
from windlass.jobs.kubeflow.master_port import port_in_arguments
from windlass.jobs.kubeflow.pods import DOLLAR_BRACE
from windlass.jobs.kubeflow.pytorch import elastic_bounds, master_port, rendezvous_place

_NODES = re.compile(r"--nnodes[= ](\d+)(?![\d:])")
_PROCESSES = re.compile(r"--nproc[_-]per[_-]node[= ](\d+)")


def advice(job: KubeflowJob) -> list[str]:
    """Return the warnings about a job, in a fixed order."""
    torch = job.kind.resource is PYTORCH_JOBS
    return [
        *_container_names(job),
        *_variables(job),
        *(_node_rank(job) if torch else ()),
        *_schedulers(job),
        *_volumes(job),
        *(_port(job) if torch else ()),
        *_host_network(job),
        *_visible_devices(job),
        *(_torchrun(job) if torch else ()),
    ]


def _main(job: KubeflowJob, role: Role) -> Mapping[str, Any]:
    return job.kind.fields.main_container(role.pod_spec)


def _words(job: KubeflowJob, role: Role, field: str) -> str:
    return " ".join(str(word) for word in _main(job, role).get(field) or ())


def _command(job: KubeflowJob, role: Role) -> str:
    return f"{_words(job, role, 'command')} {_words(job, role, 'args')}"


def _container_names(job: KubeflowJob) -> Iterator[str]:
    if job.kind.fields.first_container:
        return
    wanted = job.kind.fields.container
    for role in job.definition.roles:
        name = _main(job, role).get("name")
        if name and name != wanted:
            yield f"alias: {role.name} container is named {name}, not {wanted} -> the only container is used"


def _injected(job: KubeflowJob, role: Role) -> set[str]:
    return {name for name, _ in job.kind.environment(job, role, 0)}


def _used(job: KubeflowJob, field: str) -> list[str]:
    """Return the injected variables that commands write as ``${NAME}``, in the order of their names."""
    found: set[str] = set()
    for role in job.definition.roles:
        found |= set(DOLLAR_BRACE.findall(_words(job, role, field))) & _injected(job, role)
    return sorted(found)


def _variables(job: KubeflowJob) -> Iterator[str]:
    for field in ("command", "args"):
        used = _used(job, field)
        if used:
            shown = ", ".join(f"${{{name}}}" for name in used)
            yield f"alias: {shown} in {field} -> expanded like $(NAME)"


def _node_rank(job: KubeflowJob) -> Iterator[str]:
    if any("NODE_RANK" in _command(job, role) for role in job.definition.roles):
        yield "alias: NODE_RANK is injected with the pod rank (upstream sets only RANK and PET_NODE_RANK)"


def _schedulers(job: KubeflowJob) -> Iterator[str]:
    named = [role for role in job.definition.roles if role.pod_spec.get("schedulerName")]
    for role in job.definition.roles if named else ():
        if not role.pod_spec.get("schedulerName"):
            scheduler = named[0].pod_spec["schedulerName"]
            yield f"default: {role.name} has no schedulerName -> {scheduler}, taken from {named[0].name}"


def _volumes(job: KubeflowJob) -> Iterator[str]:
    for role in job.definition.roles:
        for volume in lent_volumes(job.replica_specs, role.name):
            name = volume["name"]
            lender = next(
                other.name
                for other in job.definition.roles
                if any(found.get("name") == name for found in other.pod_spec.get("volumes") or ())
            )
            yield (
                f"default: {role.name} mounts volume {name} but declares none -> "
                f"volume {name} taken from {lender}"
            )


def _port(job: KubeflowJob) -> Iterator[str]:
    """Warn where a command reads MASTER_PORT and another command names the port."""
    named = port_in_arguments(job)
    default = job.kind.fields.port
    if named in (None, default) or job.role(MASTER) is None or master_port(job) != named:
        return
    if any("MASTER_PORT" in _command(job, role) for role in job.definition.roles):
        users = [role.key for role in job.definition.roles if f"{named}" in _command(job, role)]
        yield (
            f"default: MASTER_PORT -> {named}, because the {' and '.join(users)} args name it "
            f"(upstream default {default} would not match)"
        )


def _host_network(job: KubeflowJob) -> Iterator[str]:
    roles = job.definition.roles
    for role in roles:
        if role.pod_spec.get("hostNetwork") and not role.pod_spec.get("dnsPolicy"):
            yield (
                f"default: hostNetwork without dnsPolicy on {role.name} -> ClusterFirstWithHostNet, "
                f"so that the name of the {roles[0].key} resolves"
            )
    using = [role.name for role in roles if role.pod_spec.get("hostNetwork")]
    others = [role.name for role in roles if not role.pod_spec.get("hostNetwork")]
    if using and others:
        verb = "uses" if len(using) == 1 else "use"
        does = "does" if len(others) == 1 else "do"
        yield f"advice: {', '.join(using)} {verb} the host network, {', '.join(others)} {does} not"


def _visible_devices(job: KubeflowJob) -> Iterator[str]:
    for role in job.definition.roles:
        names = {entry.get("name") for entry in _main(job, role).get("env") or ()}
        if "CUDA_VISIBLE_DEVICES" in names:
            yield (
                f"advice: CUDA_VISIBLE_DEVICES is set by hand on {role.name}; "
                "the devices assigned by Windlass win"
            )


def _torchrun(job: KubeflowJob) -> Iterator[str]:
    commands = {role.name: _command(job, role) for role in job.definition.roles}
    text = " ".join(commands.values())
    pods = job.definition.replicas
    nodes = {int(number) for number in _NODES.findall(text)}
    for number in sorted(nodes - {pods}):
        yield f"advice: {pods} pods but --nnodes={number}; args are not rewritten"
    for role in job.definition.roles:
        processes = _PROCESSES.search(commands[role.name])
        gpus = _gpus(_main(job, role))
        if processes is not None and 0 < gpus < int(processes[1]):
            word = "GPU" if gpus == 1 else "GPUs"
            yield f"advice: {role.name} has {gpus} {word} but --nproc_per_node={processes[1]}"
    if job.spec.get("elasticPolicy") is not None and nodes and job.role(WORKER) is not None:
        fixed = " and ".join(
            flag
            for flag in ("--nnodes", "--master_addr")
            if flag in text.replace("--master-addr", "--master_addr")
        )
        yield f"advice: fixed {fixed} override elasticPolicy, so the job will not resize"
    yield from _rendezvous(job)
    if (job.spec.get("elasticPolicy") or {}).get("metrics"):
        yield (
            "advice: no autoscaler acts on elasticPolicy.metrics yet -> the job fills the room for its replicas; "
            "change them with kubectl scale"
        )


def _rendezvous(job: KubeflowJob) -> Iterator[str]:
    """Yield advice about an elastic job with a rendezvous that is not told the world, or with a Master."""
    policy, worker = job.spec.get("elasticPolicy"), job.role(WORKER)
    if policy is None or worker is None or policy.get("standalone"):
        return
    waits = "torchrun is not told its world -> after a change of size it waits for its own time-outs"
    backend = policy.get("rdzvBackend") or "c10d"
    if backend != "c10d":
        yield f"advice: elasticPolicy.rdzvBackend {backend} is the job's own, so {waits}; omit it to use c10d"
    elif rendezvous_place(job) is None:
        host = policy.get("rdzvHost")
        yield f"advice: elasticPolicy.rdzvHost {host} is no pod of the job, so {waits}; omit it to use worker 0"
    bounds = elastic_bounds(job.spec)
    if job.role(MASTER) is not None and bounds is not None and worker.replicas >= bounds[1]:
        yield (
            f"advice: elasticPolicy.maxReplicas {bounds[1]} counts the agents of torchrun, and the Master is one "
            f"-> at most {bounds[1] - 1} of {worker.replicas} workers take part; raise maxReplicas"
        )


def _gpus(container: Mapping[str, Any]) -> int:
    limits = (container.get("resources") or {}).get("limits") or {}
    return sum(int(count) for name, count in limits.items() if is_device(name) and str(count).isdecimal())
